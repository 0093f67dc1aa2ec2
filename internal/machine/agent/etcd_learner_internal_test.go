// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

// learnerOf returns the agent's view of the data of a slot, whose mark it writes first if mark is set.
func (r *realCluster) learnerOf(slot string, mark bool) *etcdMember {
	r.Helper()
	m := r.tasks[slot].member
	m.store = store.NewFileStore(r.TempDir())
	if mark {
		if err := m.markLearner(); err != nil {
			r.Fatal(err)
		}
	}
	return m
}

func (r *realCluster) wantLearner(m *etcdMember, want bool, why string) {
	r.Helper()
	if got, err := m.isLearnerData(); err != nil || got != want {
		r.Errorf("%s: a learner's data: %v, %v; want %v", why, got, err, want)
	}
}

// TestRealLearnersData: the data of a real learner is known as such until it is promoted, also without its etcd, and whether the
// leader sent it all entries or a snapshot. The data of a voter is never taken for it, with or without the mark.
func TestRealLearnersData(t *testing.T) {
	for name, count := range map[string]int{"entries": 20, "snapshot": 12_000} {
		t.Run(name, func(t *testing.T) {
			if count > 10_000 && os.Getenv("SLIPWAY_LONG") == "" {
				t.Skip("SKIPPED: the long form writes so many entries that the leader sends a snapshot")
			}
			r := newRealCluster(t)
			r.fill()
			client := r.client(0)
			for i := range count {
				if _, err := client.Put(t.Context(), "more"+strconv.Itoa(i%100), "value"); err != nil {
					t.Fatal(err)
				}
			}
			r.wantLearner(r.learnerOf("b", true), false, "a founder with a mark")
			peer := r.manager.Peers[2]
			r.stops["c"]()
			if err := os.RemoveAll(r.dir("c")); err != nil {
				t.Fatal(err)
			}
			m := r.learnerOf("c", true)
			r.wantLearner(m, false, "no data")
			r.beginLearner(peer)
			eventually(t, "the learner has data", func() error {
				s, err := r.manager.Status(t.Context(), peer.ClientURL)
				if err == nil && s.RaftIndex < uint64(count) {
					err = errors.New("not all of it")
				}
				return err
			})
			r.wantLearner(m, true, "a learner")
			if err := m.notePromotion(t.Context(), r.manager, peer.ClientURL); err != nil || !m.agent.Root.Exists(learnerMark) {
				t.Errorf("the mark is gone before the promotion: %v", err)
			}
			r.stops["c"]()
			r.wantLearner(m, true, "a learner that is stopped")
			r.start(peer, "existing")
			r.promoted(peer)
			eventually(t, "the promotion is in the log", func() error {
				if is, err := m.isLearnerData(); err != nil || is {
					return errors.Join(errors.New("not yet"), err)
				}
				return nil
			})
			r.stops["c"]()
			if err := m.notePromotion(t.Context(), r.manager, peer.ClientURL); err != nil || !m.agent.Root.Exists(learnerMark) {
				t.Errorf("the mark is gone although nobody said that the member was promoted: %v", err)
			}
			r.wantLearner(m, false, "promoted, with the mark of before")
			r.start(peer, "existing")
			r.await(peer)
			if err := m.notePromotion(t.Context(), r.manager, peer.ClientURL); err != nil || m.agent.Root.Exists(learnerMark) {
				t.Errorf("the mark stays after the promotion: %v", err)
			}
		})
	}
}

// beginLearner adds the member of a slot without data as a learner and starts it.
func (r *realCluster) beginLearner(peer etcd.Peer) {
	r.Helper()
	eventually(r.T, "the learner starts", func() error {
		for _, e := range r.manager.Members(r.Context(), peer.Slot) {
			if e.Slot == peer.Slot && !e.Learner {
				return errors.Join(errors.New("removed"), r.manager.RemoveMember(r.Context(), peer.Slot, e.ID))
			}
		}
		_, err := r.manager.AddLearner(r.Context(), peer.Slot, peer.PeerURL)
		return err
	})
	r.start(peer, "existing")
}

// promoted promotes the learner of a slot.
func (r *realCluster) promoted(peer etcd.Peer) {
	r.Helper()
	eventually(r.T, "the learner is promoted", func() error {
		s, err := r.manager.Status(r.Context(), peer.ClientURL)
		if err != nil {
			return err
		}
		return r.manager.PromoteLearner(r.Context(), peer.Slot, s.MemberID)
	})
}

// TestRealLostVoterBesideLearner: a volume was lost and its member has joined again as a learner when a second one is lost. The
// last voter recovers its data without waiting for an operator.
func TestRealLostVoterBesideLearner(t *testing.T) {
	c := newRealCluster(t)
	c.fill()
	s := store.NewFileStore(t.TempDir())
	peer := c.manager.Peers[1]
	c.stops["b"]()
	if err := os.RemoveAll(c.dir("b")); err != nil {
		t.Fatal(err)
	}
	learner := newRealRecovery(t, c, "b", s)
	if err := learner.member.markLearner(); err != nil {
		t.Fatal(err)
	}
	c.beginLearner(peer)
	eventually(t, "the learner has data", func() error {
		if is, err := learner.member.isLearnerData(); err != nil || !is {
			return errors.Join(errors.New("none yet"), err)
		}
		return nil
	})
	r := newRealRecovery(t, c, "a", s)
	r.join()
	for _, slot := range []string{"a", "b", "c"} {
		c.stops[slot]()
	}
	if err := os.RemoveAll(c.dir("c")); err != nil {
		t.Fatal(err)
	}
	volumes := slices.Concat(r.agent.EC2.(*fakeEC2).volumes, learner.agent.EC2.(*fakeEC2).volumes)
	r.agent.EC2, learner.agent.EC2 = &fakeEC2{volumes: volumes}, &fakeEC2{volumes: volumes}
	for range 100 {
		if err := learner.recovery.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		learner.clock = learner.clock.Add(recoveryInterval)
		if err := r.recovery.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.clock = r.clock.Add(recoveryInterval)
		if r.generation() != nil {
			break
		}
	}
	if report := learner.readReport(); !report.Learner || report.Generation != 1 {
		t.Errorf("the learner reports %+v", report)
	}
	g := r.generation()
	if g == nil {
		t.Fatalf("etcd is not recovered: %+v", r.readReport())
	}
	if g.Slot != "a" || !g.Recovery.Survivor || strings.Join(g.Recovery.Lost, "") != "bc" {
		t.Errorf("%+v, %+v", g, g.Recovery)
	}
	if r.recovery.members(context.Background(), etcd.Facts{}) != nil {
		t.Error("somebody has a quorum")
	}
}

// TestLearnersAreMarked: a member without data is marked before it starts, and a founder is not, also after another decision before.
func TestLearnersAreMarked(t *testing.T) {
	a := testAgent(t)
	a.Run = &runs{}
	slot, _ := a.doc.Slot("a")
	m := &etcdMember{agent: a, slot: slot, store: store.NewFileStore(t.TempDir()), volume: "vol-a"}
	if err := m.startJoining(t.Context(), etcd.Facts{Slot: "a"}); err != nil {
		t.Fatal(err)
	}
	if !a.Root.Exists(learnerMark) {
		t.Error("the data of a learner is not marked")
	}
	if err := m.startNew(t.Context(), etcd.BootstrapMarker{Volumes: map[string]string{"a": "vol-a"}}); err != nil {
		t.Fatal(err)
	}
	if a.Root.Exists(learnerMark) {
		t.Error("the data of a founder is marked")
	}
}
