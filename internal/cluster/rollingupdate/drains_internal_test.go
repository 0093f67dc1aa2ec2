// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestLoadBalancersComeFirst: a node whose pods are evicted leaves the load balancers of Services before its machine is
// terminated. A node that somebody else took out does not wait.
func TestLoadBalancersComeFirst(t *testing.T) {
	f := newFakeCluster(t, 0, 2)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shop"}}
	service.Spec.Type = corev1.ServiceTypeLoadBalancer
	if err := f.client.Tracker().Add(service); err != nil {
		t.Fatal(err)
	}
	nodes := f.client.CoreV1().Nodes()
	excluded, err := nodes.Get(t.Context(), "node-i-2", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	excluded.Labels = map[string]string{corev1.LabelNodeExcludeBalancers: ""}
	if _, err := nodes.Update(t.Context(), excluded, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	times := map[string]map[EventType]time.Time{"i-1": {}, "i-2": {}}
	var blocked []string
	u := f.updater(Request{Name: "demo", OnEvent: func(e Event) {
		if seen := times[e.Machine]; seen != nil && seen[e.Type].IsZero() {
			seen[e.Type] = time.Now()
		}
		if e.Type == EventBlocked && strings.Contains(e.Message, "load balancers") {
			blocked = append(blocked, e.Message)
			node, err := nodes.Get(t.Context(), e.Node, metav1.GetOptions{})
			if err != nil || node.Labels[corev1.LabelNodeExcludeBalancers] == "" || !node.Spec.Unschedulable {
				t.Errorf("the node waits for load balancers, and is not taken out of them: %v %v", node, err)
			}
		}
	}})
	u.leaveDelay = 200 * time.Millisecond
	if _, err := run(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	took := func(id string) time.Duration { return times[id][EventTerminate].Sub(times[id][EventDrain]) }
	if took("i-1") < u.leaveDelay || took("i-2") >= u.leaveDelay {
		t.Errorf("the machines were terminated %s and %s after their drain began, want %s for the first one only", took("i-1"), took("i-2"), u.leaveDelay)
	}
	if want := []string{"node node-i-1 waits for load balancers of Services to take it out"}; !slices.Equal(blocked, want) {
		t.Errorf("told %q, want %q", blocked, want)
	}
}
