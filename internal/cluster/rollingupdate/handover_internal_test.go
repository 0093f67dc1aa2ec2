// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// announceStandby writes the lease of a machine that waits for its slot.
func (f *fakeCluster) announceStandby(slot, id string) {
	now := metav1.NowMicro()
	f.add("leases", &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: report.StandbyLeasePrefix + slot},
		Spec:       coordinationv1.LeaseSpec{RenewTime: &now, HolderIdentity: &id},
	})
}

// handOverSlots does what the agents of machines do that are asked to hand over their slot.
func (f *fakeCluster) handOverSlots() {
	for _, m := range f.machines {
		if m.Slot == "" || f.holder[m.Slot] != m.ID || f.keepsSlots {
			continue
		}

		nodes := corev1.SchemeGroupVersion.WithResource("nodes")
		object, err := f.client.Tracker().Get(nodes, "", "node-"+m.ID)
		if err != nil {
			f.t.Error(err)
			continue
		}

		to, _, _ := strings.Cut(object.(*corev1.Node).Annotations[report.HandOverAnnotation], " ")
		if slices.ContainsFunc(f.machines, func(x rollout.Machine) bool { return x.ID == to && x.Slot == m.Slot }) {
			f.join(m.Slot, to, &report.HandOver{From: m.ID, To: to, MissingSeconds: 7.25})
		}
	}
}

// takeFreeSlot lets a waiting machine take a slot whose machine was terminated.
func (f *fakeCluster) takeFreeSlot(slot string) {
	for _, m := range f.machines {
		if m.Slot == slot && !m.Detached && !f.neverReady && m.Version != f.brokenTemplate {
			f.join(slot, m.ID, nil)
			return
		}
	}
}

// Each control-plane machine hands over its slot to one that has prepared; the time for which its member was missing is
// part of the event.
func TestRunHandsOverSlots(t *testing.T) {
	f := newFakeCluster(t, 3, 1)
	var joined []Event
	var order []EventType
	u := f.updater(Request{Name: "demo", OnEvent: func(e Event) {
		if e.Type == EventJoined && e.Slot != "" {
			joined = append(joined, e)
		}

		if e.Slot == "a" && e.Type != EventWaiting {
			order = append(order, e.Type)
		}
	}})
	if _, err := run(t.Context(), u); err != nil {
		t.Fatal(err)
	}

	want := []EventType{EventDetach, EventDrain, EventHandOver, EventJoined, EventTerminate}
	if !slices.Equal(order, want) {
		t.Errorf("the steps of slot a are %v, want %v", order, want)
	}

	if len(f.slotDetached) != 3 || len(f.terminated) != 4 || len(f.machines) != 4 {
		t.Errorf("detached %v, terminated %v, left %v", f.slotDetached, f.terminated, f.machines)
	}

	if len(joined) != 3 || joined[0].MemberMissingSeconds != 7.3 || !strings.Contains(joined[0].Message, "was missing for 7.2 s") {
		t.Errorf("got %+v", joined)
	}
}

// Without capacity for a machine more, the old one is drained and terminated first.
func TestRunWithoutCapacity(t *testing.T) {
	f := newFakeCluster(t, 3, 0)
	f.noCapacity = "We currently do not have sufficient m7i.large capacity"
	if _, err := run(t.Context(), f.updater(Request{Name: "demo"})); err != nil {
		t.Fatal(err)
	}

	if len(f.slotDetached) != 3 || len(f.terminated) != 3 || len(f.machines) != 3 {
		t.Errorf("detached %v, terminated %v, left %v", f.slotDetached, f.terminated, f.machines)
	}

	if all := strings.Join(f.messages, "\n"); strings.Count(all, "no machine can be launched in addition (We currently do not have") != 3 {
		t.Error(all)
	}
}

// A group without a surge, and a control plane of one machine, have no hand-over.
func TestRunWithoutSurge(t *testing.T) {
	f := newFakeCluster(t, 3, 0)
	f.set.Groups[0].Spec.RollingUpdate.MaxSurge = "0"
	if _, err := run(t.Context(), f.updater(Request{Name: "demo"})); err != nil || len(f.slotDetached) > 0 || len(f.terminated) != 3 {
		t.Errorf("%v, detached %v, terminated %v", err, f.slotDetached, f.terminated)
	}

	single := newFakeCluster(t, 1, 0)
	if _, err := run(t.Context(), single.updater(Request{Name: "demo"})); err != nil || len(single.slotDetached) > 0 {
		t.Errorf("%v, detached %v", err, single.slotDetached)
	}
}

// A new machine that does not get as far as to prepare costs nothing: the old one keeps its slot, and the update stops
// and rolls back.
func TestRunKeepsSlotsOfBrokenMachines(t *testing.T) {
	f := newFakeCluster(t, 3, 0)
	f.brokenTemplate = "2"
	u := f.updater(Request{Name: "demo", AutomaticRollback: true, JoinTimeout: 50 * time.Millisecond})
	_, err := run(t.Context(), u)
	if err == nil || !strings.Contains(err.Error(), "it stopped at stage start") || !strings.Contains(err.Error(), "rolled back") {
		t.Errorf("got %v", err)
	}

	for _, m := range f.machines {
		if m.Version != "1" || f.holder[m.Slot] != m.ID {
			t.Errorf("%+v, the volumes are at %v", m, f.holder)
		}
	}

	if slices.Contains(f.terminated, "i-2") || slices.Contains(f.terminated, "i-3") || len(f.machines) != 3 {
		t.Errorf("terminated %v, left %v", f.terminated, f.machines)
	}
}

// TestKilledHandOver kills an update after each change while slots are handed over. The next run continues.
func TestKilledHandOver(t *testing.T) {
	k := &killer{}
	for nth := 1; ; nth++ {
		f := newFakeCluster(t, 3, 1)
		k.watch(f)
		killed, _ := f.runKilled(k, nth, Request{Name: "demo"})
		at := k.last
		if _, err := f.runKilled(k, 0, Request{Name: "demo"}); err != nil && killed {
			t.Fatalf("killed after change %d (%s): the next run: %v", nth, at, err)
		}

		f.checkReplaced(nth, at)
		if !killed {
			t.Logf("killed after each of %d changes", nth-1)
			break
		}
	}
}
