// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// TestNodesLeftToTheController: with an external node controller, agents leave nodes whose own machine has just ended, and no
// others: it does not see a ghost that uses the name of a live machine or the id of another one, nor one in a warm pool.
func TestNodesLeftToTheController(t *testing.T) {
	now := time.Date(2026, 11, 27, 3, 0, 0, 0, time.UTC)
	a := &Agent{Now: func() time.Time { return now }}
	ended := func(id, name string, ago time.Duration) Machine {
		return Machine{ID: id, Name: name, State: "shutting-down", Role: "worker", EndedSince: now.Add(-ago)}
	}
	machines := []Machine{
		{ID: "i-live", Name: "ip-10-80-0-5.ec2.internal", State: "running", Role: "worker"},
		{ID: "i-pooled", Name: "ip-10-80-0-6.ec2.internal", State: "stopped", Role: "worker"},
		ended("i-just", "ip-10-80-0-7.ec2.internal", 169*time.Second),
		ended("i-past", "ip-10-80-0-8.ec2.internal", 171*time.Second),
		ended("i-unnamed", "", time.Second),
	}
	for name, c := range map[string]struct {
		node, id string
		agent    bool // removes it without an external controller
		external bool // and with one
	}{
		"of a live machine":                  {"ip-10-80-0-5.ec2.internal", "i-live", false, false},
		"of a machine that ended just now":   {"ip-10-80-0-7.ec2.internal", "i-just", true, false},
		"of one that EC2 gives no name":      {"ip-10-80-0-9.ec2.internal", "i-unnamed", true, false},
		"the controller has not deleted it":  {"ip-10-80-0-8.ec2.internal", "i-past", true, true},
		"of a former machine of a live name": {"IP-10-80-0-5.ec2.internal", "i-just", true, true},
		"a ghost with the id of another":     {"ip-10-80-0-9.ec2.internal", "i-live", true, true},
		"a ghost without an id":              {"ip-10-80-0-9.ec2.internal", "", true, true},
		"of a machine that nobody knows":     {"ip-10-80-0-9.ec2.internal", "i-other", true, true},
		"of a machine in a warm pool":        {"ip-10-80-0-6.ec2.internal", "i-pooled", true, true},
	} {
		var n Node
		n.Metadata.Name = c.node
		n.Metadata.CreationTimestamp = now.Add(-time.Hour)
		n.Metadata.Annotations = map[string]string{terminatingAnnotation: "it ends"}
		if c.id != "" {
			n.Spec.ProviderID = "aws:///us-east-1a/" + c.id
		}

		for who, want := range map[string]bool{"": c.agent, v1alpha1.NodeControllerExternal: c.external} {
			a.doc.NodeController = who
			work := findNodeWork([]Node{n}, nil, machines, rulesOfNodes(a))
			if removed := len(work.terminated) == 1; removed != want {
				t.Errorf("%s, controller %q: removed is %t", name, who, removed)
			}
		}
	}
}

// TestTimeOfController: the controller sees only nodes that are not Ready, which kube-controller-manager decides.
func TestTimeOfController(t *testing.T) {
	for setting, want := range map[string]time.Duration{"": 170 * time.Second, "5m": 7 * time.Minute} {
		d := node.Document{KubeControllerManager: v1alpha1.KubeControllerManager{NodeMonitorGracePeriod: setting}}
		if got := timeOfController(d); got != want {
			t.Errorf("%q: %s, want %s", setting, got, want)
		}
	}
}

// TestEndOfMachinesIsRemembered: a machine has ended since it was first listed so, and not since each list.
func TestEndOfMachinesIsRemembered(t *testing.T) {
	start := time.Date(2026, 11, 27, 3, 0, 0, 0, time.UTC)
	instance := func(id string, state types.InstanceStateName) types.Instance {
		return types.Instance{InstanceId: &id, State: &types.InstanceState{Name: state}}
	}
	var l machineList
	for i, list := range [][]types.Instance{
		{instance("i-1", types.InstanceStateNameRunning), instance("i-2", types.InstanceStateNameShuttingDown)},
		{instance("i-1", types.InstanceStateNameShuttingDown), instance("i-2", types.InstanceStateNameTerminated)},
		{instance("i-1", types.InstanceStateNameTerminated)},
	} {
		client := EC2Client{EC2: machinesEC2{list: list}}
		machines, err := l.listNow(t.Context(), client, start.Add(time.Duration(i)*time.Minute))
		if err != nil {
			t.Fatal(err)
		}

		for _, m := range machines {
			want := map[string]time.Time{"i-1": start.Add(time.Minute), "i-2": start}[m.ID]
			if !m.isTerminated() {
				want = time.Time{}
			}

			if !m.EndedSince.Equal(want) {
				t.Errorf("list %d: %s has ended since %s, want %s", i, m.ID, m.EndedSince, want)
			}
		}
	}
}
