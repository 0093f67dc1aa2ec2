// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

// fill writes keys whose values can be damaged, and waits until they are in the databases, which are written every 100 ms.
func (r *realCluster) fill() {
	r.Helper()
	c := r.client(0)
	for i := range 20 {
		if _, err := c.Put(r.Context(), "key"+strconv.Itoa(i), "damage-me"); err != nil {
			r.Fatal(err)
		}
	}
	time.Sleep(time.Second)
}

// lead makes the member of a slot the leader.
func (r *realCluster) lead(slot int) {
	r.Helper()
	peer := r.manager.Peers[slot]
	eventually(r.T, "etcd-"+peer.Slot+" leads", func() error {
		s, err := r.manager.Status(r.Context(), peer.ClientURL)
		if err != nil || s.Leader {
			return err
		}
		for i, other := range r.manager.Peers {
			if status, err := r.manager.Status(r.Context(), other.ClientURL); err == nil && status.Leader {
				_, err := r.client(i).MoveLeader(r.Context(), s.MemberID)
				return errors.Join(errors.New("just moved"), err)
			}
		}
		return errors.New("no leader")
	})
}

// TestRealRejoinBesideDamagedLeader: the volume of a member is lost while the leader's data is damaged. The member must not
// copy it: its agent waits.
func TestRealRejoinBesideDamagedLeader(t *testing.T) {
	r := newRealCluster(t)
	r.fill()
	a, c := r.manager.Peers[0], r.manager.Peers[2]
	r.stops["c"]()
	if err := os.RemoveAll(r.dir("c")); err != nil {
		t.Fatal(err)
	}
	r.stops["a"]()
	r.damage("a")
	r.start(a, "existing")
	r.await(a)
	r.await(r.manager.Peers[1])
	r.lead(0)
	f := etcd.Facts{
		Slot: "c", Slots: []string{"a", "b", "c"}, Volume: "v", Joined: []string{"a", "b", "c"}, Marker: &etcd.BootstrapMarker{},
	}
	waited := 0
	eventually(t, "the agent waits", func() error {
		f.Members = r.manager.Members(t.Context(), "c")
		f.Comparison = etcd.Comparison{}
		if f.NeedsComparison() {
			f.Comparison = r.manager.Compare(t.Context(), "c")
		}
		switch action := etcd.Decide(f); action.Type {
		case etcd.ActionRemoveMember:
			return errors.Join(errors.New(action.Reason), r.manager.RemoveMember(t.Context(), "c", action.MemberID))
		case etcd.ActionWait:
			if strings.Contains(action.Reason, "CORRUPT") || strings.Contains(action.Reason, "differs") {
				waited++
			}
			if waited < 5 {
				return errors.New(action.Reason)
			}
			return nil
		default:
			r.start(c, "existing")
			t.Fatalf("the member would copy damaged data: %+v", action)
			return nil
		}
	})
}

// TestRealRejectedMember: a damaged member raises the alarm CORRUPT and is rejected by etcd when it starts again. The others
// are a majority with the same data: they take writes again.
func TestRealRejectedMember(t *testing.T) {
	r := newRealCluster(t)
	r.fill()
	c := r.manager.Peers[2]
	r.stops["c"]()
	r.damage("c")
	r.start(c, "existing")
	r.await(c)
	r.lead(0)
	first := r.client(0)
	eventually(t, "the alarm is raised", func() error {
		got, err := first.AlarmList(t.Context())
		if err == nil && len(got.Alarms) == 0 {
			err = errors.New("none")
		}
		return err
	})
	r.stops["c"]() // and etcd rejects it from now on
	eventually(t, "writes are taken again", func() error {
		if err := r.maintain(); err != nil {
			return err
		}
		_, err := first.Put(t.Context(), "after", "value")
		return err
	})
	for slot, task := range r.tasks {
		if task.agent.etcdFenced.Load() {
			t.Errorf("member %s was stopped", slot)
		}
	}
}

// TestSetAsideNeedsRoom: without room for the backup the old data stays, and etcd does not run with it. When there is room
// again, because an older copy is replaced, the data is set aside.
func TestSetAsideNeedsRoom(t *testing.T) {
	a := testAgent(t)
	slot, _ := a.doc.Slot("a")
	s := store.NewFileStore(t.TempDir())
	runner := &killedRunner{killer: &killer{left: 1000}}
	a.Run = runner
	if err := a.Root.MakeDir(etcd.DataDir+"/member", 0o700, 0); err != nil {
		t.Fatal(err)
	}
	m := &etcdMember{agent: a, slot: slot, store: s, volume: "vol-1"}
	free, err := availableBytes(a.Root)
	if err != nil {
		t.Fatal(err)
	}
	signGeneration(t, a, s, etcd.Generation{Number: 2, Slot: "b", Backup: "b1", Token: "t", Bytes: free + (1 << 40)})
	err = m.decideAndAct(t.Context())
	if err == nil || !strings.Contains(err.Error(), "MiB of free space are needed") || !m.hasData() || !a.etcdFenced.Load() {
		t.Fatalf("without room: %v", err)
	}
	if _, waits := errors.AsType[notReadyError](err); waits {
		t.Error("the operator does not hear of it")
	}
	if want := "systemctl stop etcd"; len(runner.calls) != 1 || runner.calls[0] != want {
		t.Errorf("ran %q, want %s", runner.calls, want)
	}
	if err := a.Root.MakeDir(asideDir, 0o700, 0); err != nil {
		t.Fatal(err)
	}
	older, err := os.Create(a.Root.Path(asideDir + "/db"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(older.Truncate(2<<40), older.Close()); err != nil { // sparse
		t.Fatal(err)
	}
	err = m.decideAndAct(t.Context())
	if _, waits := errors.AsType[notReadyError](err); !waits || m.hasData() || !a.Root.Exists(asideDir+"/member") {
		t.Errorf("with room: %v", err)
	}
}
