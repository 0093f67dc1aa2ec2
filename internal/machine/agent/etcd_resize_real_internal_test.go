// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/slipway-k8s/slipway/internal/lib/asset/assettest"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// sizedCluster is a real etcd without TLS whose number of members changes. It begins with one.
type sizedCluster struct {
	*realCluster
	store   store.Store
	founder string
	// slots of the current document.
	slots []string
	// added are the learners that were added last, by slot.
	added map[string]uint64
	// serving are the slots whose API server serves.
	serving []string
}

func newSizedCluster(t *testing.T) *sizedCluster {
	t.Helper()
	r := &sizedCluster{
		realCluster: &realCluster{
			T: t, bin: assettest.Program(t, "etcd", "bin/etcd"), stops: map[string]func(){}, tasks: map[string]*etcdMaintenance{},
			now: time.Now(), processes: map[string]*os.Process{}, corruptCheck: "0s",
		},
		store: store.NewFileStore(t.TempDir()), founder: "a", slots: []string{"a"}, added: map[string]uint64{},
	}
	r.manager.Timeout = 3 * time.Second
	ports := freePorts(t, 10)
	bundle := testBundle(t)
	for i, slot := range []string{"a", "b", "c", "d", "e"} {
		r.manager.Peers = append(r.manager.Peers, etcd.Peer{
			Slot: slot, ClientURL: "http://127.0.0.1:" + ports[i], PeerURL: "http://127.0.0.1:" + ports[5+i],
		})
		a := testAgent(t)
		a.EC2 = &fakeEC2{}
		a.doc = testDocument(t, 5, bundle)
		a.bundle = bundle
		a.Boot.Slot = slot
		own, _ := a.doc.Slot(slot)
		r.tasks[slot] = &etcdMaintenance{agent: a, member: &etcdMember{agent: a, slot: own, store: r.store}}
		if err := a.Root.MakeDir(etcd.DataMount, 0o700, 0); err != nil {
			t.Fatal(err)
		}
	}
	r.initial = "etcd-a=" + r.peer("a").PeerURL
	r.start(r.peer("a"), "new")
	r.await(r.peer("a"))
	return r
}

// patiently is eventually for what takes longer on a busy machine.
func (r *sizedCluster) patiently(what string, do func() error) {
	r.Helper()
	var err error
	begin := time.Now()
	for time.Since(begin) < 4*time.Minute {
		if err = do(); err == nil {
			r.Logf("%s: %s, to %v", what, time.Since(begin).Round(100*time.Millisecond), r.slots)
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	r.Fatalf("%s: %v", what, err)
}

func (r *sizedCluster) peer(slot string) etcd.Peer {
	return r.manager.Peers[slices.IndexFunc(r.manager.Peers, func(p etcd.Peer) bool { return p.Slot == slot })]
}

// publish makes a document with these slots current. Machines of other slots keep theirs.
func (r *sizedCluster) publish(slots ...string) {
	r.slots = slots
	for _, slot := range slots {
		a := r.tasks[slot].agent
		a.doc.Slots = nil
		for _, name := range slots {
			a.doc.Slots = append(a.doc.Slots, node.NewSlot("demo", name))
		}
	}
}

// join does one step of the start of a slot's member, and reports whether it votes.
func (r *sizedCluster) join(slot string) error {
	peer := r.peer(slot)
	ctx := r.Context()
	f := etcd.Facts{
		Slot: slot, Slots: r.slots, Volume: "vol-" + slot, HasData: r.tasks[slot].agent.Root.Exists(etcd.DataDir + "/member"),
		Marker: &etcd.BootstrapMarker{Volumes: map[string]string{r.founder: "vol-" + r.founder}},
		Added:  r.added[slot],
	}
	if !f.HasData {
		f.Members = r.manager.Members(ctx, slot)
		if f.NeedsComparison() {
			f.Comparison = r.manager.Compare(ctx, slot)
		}
	}
	switch action := etcd.Decide(f); action.Type {
	case etcd.ActionAddLearner:
		var err error
		r.added[slot], err = r.manager.AddLearner(ctx, slot, peer.PeerURL)
		return errors.Join(errors.New(action.Reason), err)
	case etcd.ActionStartJoining:
		var initial []string
		for _, m := range f.Members {
			initial = append(initial, "etcd-"+m.Slot+"="+r.peer(m.Slot).PeerURL)
		}
		r.initial = strings.Join(initial, ",")
		r.start(peer, "existing")
		eventually(r.T, "the member has data", func() error {
			_, err := os.Stat(r.dir(slot) + "/member")
			return err
		})
		return errors.New(action.Reason)
	case etcd.ActionStartExisting:
		s, err := r.manager.Status(ctx, peer.ClientURL)
		if err != nil || !s.Learner {
			return err
		}
		return errors.Join(errors.New("still a learner"), r.manager.PromoteLearner(ctx, slot, s.MemberID))
	default:
		return errors.New(action.Reason)
	}
}

// grow adds the members of slots, whose agents all work at the same time.
func (r *sizedCluster) grow(slots ...string) {
	r.Helper()
	most := 0
	r.serving = append(r.serving, slots...)
	r.patiently("the control plane grows", func() error {
		var errs []error
		for _, slot := range slots {
			if err := r.join(slot); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", slot, err))
			}
		}
		learners := 0
		for _, m := range r.manager.Members(r.Context(), "") {
			if m.Learner {
				learners++
			}
		}
		most = max(most, learners)
		return errors.Join(errs...)
	})
	if most != 1 {
		r.Errorf("%d members were learners at the same time", most)
	}
}

// resize lets every agent of a slot look once, as the leader's does.
func (r *sizedCluster) resize() error {
	for slot, task := range r.tasks {
		if r.stops[slot] == nil || r.manager.Ping(r.Context(), r.peer(slot).ClientURL) != nil {
			continue
		}
		w := task.member.newResize()
		w.manager = func() etcd.Manager { return r.manager }
		w.url = r.peer(slot).ClientURL
		w.checkChanges = func(context.Context) error { return nil }
		w.serves = func(_ context.Context, slot string) bool { return slices.Contains(r.serving, slot) }
		w.checkCurrent = func(context.Context) error {
			if !slices.Equal(slotNames(task.agent), r.slots) {
				return newNotReadyError("former slots")
			}
			return nil
		}
		if err := w.run(r.Context()); err != nil && !errors.As(err, new(notReadyError)) {
			return err
		}
	}
	return nil
}

// leave does what the machine of a slot that leaves does: it gives the leadership away and stops its API server.
func (r *sizedCluster) leave(slot string) error {
	f := newFollower(r.tasks[slot].agent)
	f.members = func() etcd.Manager { return r.manager }
	f.etcdURL = r.peer(slot).ClientURL
	desired := r.tasks[r.slots[0]].agent.doc
	if reason := f.staying(r.Context(), desired); reason != "" {
		return errors.New(reason)
	}
	if err := f.yieldTo(r.Context(), desired); err != nil {
		return err
	}
	r.serving = slices.DeleteFunc(r.serving, func(s string) bool { return s == slot })
	return nil
}

func (r *sizedCluster) members() []string {
	var out []string
	for _, m := range r.manager.Members(r.Context(), "") {
		state := m.Slot
		if m.Learner {
			state += "(learner)"
		}
		if !m.Healthy {
			state += "(down)"
		}
		out = append(out, state)
	}
	slices.Sort(out)
	return out
}

func (r *sizedCluster) reason() string {
	o, err := r.store.Get(r.Context(), node.EtcdResizeKey("demo"))
	if err != nil {
		return err.Error()
	}
	return string(o.Body)
}

// shrink removes the members of slots and ends their machines when they are recorded as absent.
func (r *sizedCluster) shrink(slots ...string) {
	r.Helper()
	r.patiently("the control plane shrinks", func() error {
		for _, slot := range slots {
			if r.stops[slot] == nil {
				continue
			}
			if record, err := r.tasks[slot].member.readAbsent(r.Context(), slot); err != nil || record.Absent {
				if err != nil {
					return err
				}
				if slices.Contains(r.members(), slot) {
					r.Fatalf("slot %s is recorded as absent, but is a member: %v", slot, r.members())
				}
				_ = r.processes[slot].Kill()
				delete(r.stops, slot)
				continue
			}
			if !slices.Contains(r.members(), slot) {
				continue // removed, and not recorded yet
			}
			if err := r.leave(slot); err != nil {
				return fmt.Errorf("%s: %w", slot, err)
			}
		}
		if err := r.resize(); err != nil {
			return err
		}
		if have := r.members(); !slices.Equal(have, r.slots) {
			return fmt.Errorf("members %v: %s", have, r.reason())
		}
		for _, slot := range slots {
			if r.stops[slot] != nil {
				return fmt.Errorf("the machine of slot %s has not ended", slot)
			}
		}
		return nil
	})
}

// TestRealSize grows a real etcd from 1 to 3 and 5 members and shrinks it to 3 and 1, under writes. No write that was
// acknowledged is lost, and writes go on all the time.
func TestRealSize(t *testing.T) {
	r := newSizedCluster(t)
	stop := r.write()
	r.publish("a", "b", "c")
	r.grow("b", "c")
	r.publish("a", "b", "c", "d", "e")
	r.grow("d", "e")
	if have := r.members(); !slices.Equal(have, []string{"a", "b", "c", "d", "e"}) {
		t.Fatalf("members %v", have)
	}

	// A member that stays does not answer: nobody leaves, and the operator learns why.
	r.stops["b"]()
	r.publish("a", "b", "c")
	r.patiently("nobody leaves", func() error {
		if err := r.resize(); err != nil {
			return err
		}
		if have := r.members(); have != nil && len(have) != 5 {
			t.Fatalf("members %v: %s", have, r.reason())
		}
		if !strings.Contains(r.reason(), "the member of slot b does not answer") {
			return errors.New(r.reason())
		}
		return nil
	})
	if err := r.leave("d"); err == nil {
		t.Fatal("a machine leaves although slot b does not answer")
	}
	r.start(r.peer("b"), "existing")
	r.await(r.peer("b"))

	r.lead(4) // the leader leaves
	r.shrink("d", "e")
	r.publish("a")
	r.shrink("b", "c")
	stop()
}

// putWithin writes a key, in at most 3 s.
func putWithin(ctx context.Context, c *clientv3.Client, key string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	_, err := c.Put(ctx, key, "value")

	return err
}

// write writes keys one after the other until the returned function is called, which checks them.
func (r *sizedCluster) write() func() {
	ctx, cancel := context.WithCancel(r.Context())
	var acknowledged []string
	var longest time.Duration
	var done sync.WaitGroup
	c := r.client(0)
	done.Go(func() {
		last := time.Now()
		for n := 0; ctx.Err() == nil; n++ {
			key := fmt.Sprintf("write-%06d", n)
			if err := putWithin(context.WithoutCancel(ctx), c, key); err == nil {
				acknowledged = append(acknowledged, key)
				longest = max(longest, time.Since(last))
				last = time.Now()
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	return func() {
		r.Helper()
		cancel()
		done.Wait()
		r.Logf("COUNT size: %d acknowledged writes, the longest time without one %s", len(acknowledged), longest.Round(time.Millisecond))
		for _, key := range acknowledged {
			got, err := c.Get(r.Context(), key)
			if err != nil || len(got.Kvs) != 1 {
				r.Fatalf("the acknowledged write %s is lost: %v", key, err)
			}
		}
		if len(acknowledged) < 100 || longest > 15*time.Second {
			r.Errorf("%d acknowledged writes, the longest time without one %s", len(acknowledged), longest)
		}
	}
}

// TestRealStuckLearner: a machine adds its member and never returns. The leader's agent removes this learner, and the next slot
// joins; so does the first one when its machine is back.
func TestRealStuckLearner(t *testing.T) {
	r := newSizedCluster(t)
	r.publish("a", "b", "c")
	r.patiently("slot b adds itself", func() error {
		if err := r.join("b"); len(r.manager.Members(t.Context(), "")) != 2 {
			return err
		}
		return nil
	})
	if err := r.join("c"); err == nil || !strings.Contains(err.Error(), "slot b is joining") {
		t.Fatalf("slot c joins although slot b does: %v", err)
	}
	task := r.tasks["a"]
	now := time.Now()
	task.agent.Now = func() time.Time { return now }
	w := task.member.newResize()
	w.manager = func() etcd.Manager { return r.manager }
	w.url = r.peer("a").ClientURL
	w.checkCurrent = func(context.Context) error { return nil }
	busy := true
	w.checkChanges = func(context.Context) error {
		if busy {
			return newNotReadyError("the control plane is being changed")
		}
		return nil
	}
	look := func(looks int) int {
		for range looks {
			now = now.Add(resizeInterval)
			if err := w.run(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		return len(r.manager.Members(t.Context(), ""))
	}
	if n := look(int(etcd.LearnerSilence / resizeInterval)); n != 2 {
		t.Fatalf("%d members before the time", n)
	}
	if n := look(5); n != 2 {
		t.Fatalf("%d members while the control plane is being changed", n)
	}
	busy = false
	if n := look(1); n != 1 {
		t.Fatalf("%d members", n)
	}
	r.grow("c")
	r.grow("b")
	if have := r.members(); !slices.Equal(have, []string{"a", "b", "c"}) {
		t.Fatalf("members %v", have)
	}
}
