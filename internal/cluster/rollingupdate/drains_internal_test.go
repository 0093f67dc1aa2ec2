// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
)

// TestLoadBalancersComeFirst: a node leaves the load balancers of Services when its pods are gone, and its machine is
// terminated later. As long as a disruption budget keeps a pod there, also a node that an earlier run took out stays in
// them. A node that somebody else took out does not wait.
func TestLoadBalancersComeFirst(t *testing.T) {
	f := newFakeCluster(t, 0, 2)
	f.addService()
	f.setExcluded("node-i-1", "drain")
	f.setExcluded("node-i-2", "")

	var terminated time.Time
	var blocked []string
	u := f.updater(Request{Name: "demo", OnEvent: func(e Event) {
		if e.Machine == "i-1" && e.Type == EventTerminate {
			terminated = time.Now()
		}
		if e.Type == EventBlocked && strings.Contains(e.Message, "load balancers") {
			blocked = append(blocked, e.Message)
			node := f.node(e.Node)
			if node.Labels[corev1.LabelNodeExcludeBalancers] == "" || !node.Spec.Unschedulable {
				t.Errorf("the node waits for load balancers, and is not taken out of them: %v", node)
			}
		}
	}})
	var evicted time.Time
	refused := 0
	f.refuse = func(pod string) error {
		if pod != "pod-i-1" {
			return nil
		}
		if _, isSet := f.node("node-i-1").Labels[corev1.LabelNodeExcludeBalancers]; isSet && refused > 0 {
			t.Error("the node is out of the load balancers while its pod has to stay")
		}
		if refused++; refused < 5 {
			return apierrors.NewTooManyRequests("the disruption budget", 1)
		}
		evicted = time.Now()

		return nil
	}
	u.leaveDelay = 200 * time.Millisecond
	if _, err := run(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	if took := terminated.Sub(evicted); took < u.leaveDelay {
		t.Errorf("the machine was terminated %s after its last pod had gone, want %s", took, u.leaveDelay)
	}
	if want := []string{"node node-i-1 waits for load balancers of Services to take it out"}; !slices.Equal(blocked, want) {
		t.Errorf("told %q, want %q", blocked, want)
	}
}

// TestFailedDrainReturnsToLoadBalancers: a node whose drain fails or is given up is in the load balancers again, unless
// somebody else took it out.
func TestFailedDrainReturnsToLoadBalancers(t *testing.T) {
	for _, c := range []struct {
		name   string
		before string
		stays  bool // the pod
		want   string
	}{
		{name: "timeout", stays: true},
		{name: "timeout after an earlier run", before: "drain", stays: true},
		{name: "timeout of a node that a person took out", before: "person", stays: true, want: "person"},
		{name: "interrupted while it waits for load balancers"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			f := newFakeCluster(t, 0, 1)
			f.addService()
			if c.before != "" {
				f.setExcluded("node-i-1", c.before)
			}
			u := f.updater(Request{Name: "demo", DrainTimeout: 50 * time.Millisecond, OnEvent: func(e Event) {
				if e.Type == EventBlocked && strings.Contains(e.Message, "load balancers") {
					cancel()
				}
			}})
			u.leaveDelay = time.Minute
			f.refuse = func(string) error {
				if c.stays {
					return apierrors.NewTooManyRequests("the disruption budget", 1)
				}

				return nil
			}
			u.memory = map[string]machineMemory{}
			if err := u.replaceAll(ctx, nil, rollout.Options{JoinTimeout: time.Minute}); err == nil {
				t.Error("the update did not fail")
			}
			node := f.node("node-i-1")
			if got := node.Labels[corev1.LabelNodeExcludeBalancers]; got != c.want || !node.Spec.Unschedulable {
				t.Errorf("labels %v, unschedulable %t", node.Labels, node.Spec.Unschedulable)
			}
		})
	}
}

// TestUnfinishedMachinesReturnToLoadBalancers: when an update ends, the nodes of machines that are drained and will not
// be terminated by it are in the load balancers again.
func TestUnfinishedMachinesReturnToLoadBalancers(t *testing.T) {
	f := newFakeCluster(t, 0, 3)
	u := f.updater(Request{Name: "demo"})
	u.memory = map[string]machineMemory{
		"i-1": {drained: true, nodeName: "node-i-1"},
		"i-2": {drained: true, nodeName: "node-i-2", ending: true},
		"i-3": {nodeName: "node-i-3"},
	}
	for _, name := range []string{"node-i-1", "node-i-2", "node-i-3"} {
		f.setExcluded(name, "drain")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	u.returnToBalancers(ctx)
	for name, want := range map[string]string{"node-i-1": "", "node-i-2": "drain", "node-i-3": "drain"} {
		if got := f.node(name).Labels[corev1.LabelNodeExcludeBalancers]; got != want {
			t.Errorf("%s: label %q, want %q", name, got, want)
		}
	}
}

// addService adds a Service with a load balancer.
func (f *fakeCluster) addService() {
	f.t.Helper()
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shop"}}
	service.Spec.Type = corev1.ServiceTypeLoadBalancer
	if err := f.client.Tracker().Add(service); err != nil {
		f.t.Fatal(err)
	}
}

// setExcluded takes a node out of load balancers.
func (f *fakeCluster) setExcluded(name, value string) {
	f.t.Helper()
	node := f.node(name)
	node.Labels = map[string]string{corev1.LabelNodeExcludeBalancers: value}
	if err := f.client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), node, ""); err != nil {
		f.t.Fatal(err)
	}
}

// node returns a node. It may be called during an eviction, unlike the client.
func (f *fakeCluster) node(name string) *corev1.Node {
	f.t.Helper()
	object, err := f.client.Tracker().Get(corev1.SchemeGroupVersion.WithResource("nodes"), "", name)
	if err != nil {
		f.t.Error(err)
		return &corev1.Node{}
	}

	return object.(*corev1.Node)
}
