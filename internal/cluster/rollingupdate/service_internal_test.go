// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// setReady changes the condition Ready of a node, as kubelet and node controller do.
func (f *fakeCluster) setReady(name string, status corev1.ConditionStatus, since time.Time) {
	nodes := corev1.SchemeGroupVersion.WithResource("nodes")
	object, err := f.client.Tracker().Get(nodes, "", name)
	if err != nil {
		f.t.Fatal(err)
	}

	node := object.(*corev1.Node).DeepCopy()
	node.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.NewTime(since),
	}}
	if err := f.client.Tracker().Update(nodes, node, ""); err != nil {
		f.t.Fatal(err)
	}
}

// TestFlapDoesNotStopAnUpdate: a machine that is up to date, has served for an hour and is not Ready for a moment neither stops
// the update nor makes it roll back.
func TestFlapDoesNotStopAnUpdate(t *testing.T) {
	f := newFakeCluster(t, 1, 3)
	f.groups[0].Version = "1"
	f.machines[3].Version = "2"
	f.machines[3].Launched = time.Now().Add(-time.Hour)
	looks := 0
	u := f.updater(Request{Name: "demo", AutomaticRollback: true, OnProgress: func(Progress) {
		switch looks++; looks {
		case 1:
			f.setReady("node-i-4", corev1.ConditionUnknown, time.Now())
		case 3:
			f.setReady("node-i-4", corev1.ConditionTrue, time.Now())
		}
	}})
	if _, err := run(t.Context(), u); err != nil || slices.Contains(f.terminated, "i-4") || len(f.terminated) != 2 {
		t.Errorf("%v, terminated %v", err, f.terminated)
	}
}

// TestServiceIsRemembered: since when a machine does not serve comes from its node, else from what the run has seen.
func TestServiceIsRemembered(t *testing.T) {
	start := time.Now().Truncate(time.Second)
	u := &updater{}
	down := func(m rollout.Machine, after time.Duration) time.Duration {
		m.ID = "i-1"
		m.State = rollout.StateRunning
		o := rollout.Observation{Now: start.Add(after), Machines: []rollout.Machine{m}}
		u.addMemory(&o)
		if o.Machines[0].DownSince.IsZero() {
			return -1
		}

		return o.Machines[0].DownSince.Sub(start)
	}

	for i, c := range []struct {
		m     rollout.Machine
		after time.Duration
		want  time.Duration
	}{
		{rollout.Machine{Slot: "a"}, 0, -1}, // it has not registered yet
		{rollout.Machine{Slot: "a", NodeReady: true}, 10, 10},
		{rollout.Machine{Slot: "a", NodeReady: true}, 20, 10},
		{rollout.Machine{NodeReady: true}, 30, -1},
		{rollout.Machine{NodeReady: false}, 40, 40}, // its node was deleted
		{rollout.Machine{NodeReady: false, DownSince: start.Add(45)}, 50, 45},
	} {
		if got := down(c.m, c.after); got != c.want {
			t.Errorf("%d: %d, want %d", i, got, c.want)
		}
	}
}

// TestReadiness: a node that has never been Ready differs from one that is not any more.
func TestReadiness(t *testing.T) {
	created := time.Now().Add(-time.Hour)
	node := func(status corev1.ConditionStatus, since time.Time) corev1.Node {
		return corev1.Node{
			ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(created)},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue},
				{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.NewTime(since)},
			}},
		}
	}

	for name, c := range map[string]struct {
		node  corev1.Node
		ready bool
		never bool
	}{
		"Ready":        {node(corev1.ConditionTrue, created), true, false},
		"never Ready":  {node(corev1.ConditionFalse, created.Add(time.Second)), false, true},
		"lost":         {node(corev1.ConditionUnknown, created.Add(time.Second)), false, false},
		"not any more": {node(corev1.ConditionFalse, created.Add(time.Minute)), false, false},
	} {
		var m rollout.Machine
		addReadiness(&m, c.node)
		if m.NodeReady != c.ready || m.NeverReady != c.never || m.DownSince.IsZero() != c.ready {
			t.Errorf("%s: %+v", name, m)
		}
	}

	uninitialized := node(corev1.ConditionTrue, created)
	uninitialized.Spec.Taints = []corev1.Taint{{Key: kube.TaintUninitialized, Effect: corev1.TaintEffectNoSchedule}}

	var m rollout.Machine
	addReadiness(&m, uninitialized)
	if m.NodeReady || !m.NeverReady {
		t.Errorf("not initialized by the cloud controller manager: %+v", m)
	}
}
