// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// countedEC2 lists machines and counts the calls.
type countedEC2 struct {
	EC2API
	list  []types.Instance
	calls int
}

func (e *countedEC2) DescribeInstances(context.Context, *ec2.DescribeInstancesInput, ...func(*ec2.Options)) (*ec2.DescribeInstancesOutput, error) {
	e.calls++

	return &ec2.DescribeInstancesOutput{Reservations: []types.Reservation{{Instances: e.list}}}, nil
}

// add adds a running machine. It has a slot if it is of the control plane.
func (e *countedEC2) add(id, role, slot string) {
	tag := func(key, value string) types.Tag { return types.Tag{Key: &key, Value: &value} }
	e.list = append(e.list, types.Instance{
		InstanceId:       &id,
		PrivateDnsName:   aws.String(id + ".ec2.internal"),
		PrivateIpAddress: aws.String("10.80.0." + id[len(id)-1:]),
		State:            &types.InstanceState{Name: types.InstanceStateNameRunning},
		Tags:             []types.Tag{tag(tagRole, role), tag(tagSlot, slot)},
	})
}

// idleCluster is a control-plane machine of a cluster in which nothing happens.
type idleCluster struct {
	t       *testing.T
	agent   *Agent
	ec2     *countedEC2
	api     kube.Client
	now     time.Time
	nodes   []Node
	live    map[string]any
	patched []map[string]any
}

func newIdleCluster(t *testing.T) *idleCluster {
	t.Helper()
	c := &idleCluster{t: t, agent: testAgent(t), ec2: &countedEC2{}, now: time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)}
	c.live = map[string]any{"i-8.ec2.internal": "i-8", "i-9.ec2.internal": "i-9"}
	c.agent.Now = func() time.Time { return c.now }
	c.agent.EC2 = c.ec2
	c.agent.Boot.Slot = "a"
	c.agent.instance.ID = "i-1"
	c.agent.peersAnswer.Store(true)
	for id, slot := range map[string]string{"i-1": "a", "i-2": "b", "i-3": "c"} {
		c.ec2.add(id, node.RoleTagControlPlane, slot)
		c.addNode(id, "control-plane")
	}

	for _, id := range []string{"i-8", "i-9"} {
		c.ec2.add(id, node.RoleTagWorker, "")
		c.addNode(id, "worker")
	}

	server := httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(server.Close)
	c.api = kube.Client{Server: server.URL, HTTP: server.Client()}

	return c
}

func (c *idleCluster) addNode(id, role string) {
	var n Node
	n.Metadata.Name = id + ".ec2.internal"
	n.Metadata.CreationTimestamp = c.now.Add(-time.Hour)
	n.Spec.ProviderID = "aws:///us-east-1a/" + id
	n.Status.Conditions = []nodeCondition{{Type: "Ready", Status: "True"}}
	if role != "" {
		n.Metadata.Labels = map[string]string{rolePrefix + role: ""}
	}

	c.nodes = append(c.nodes, n)
}

func (c *idleCluster) serve(w http.ResponseWriter, r *http.Request) {
	var out any = map[string]any{"items": c.nodes}
	switch {
	case r.Method == http.MethodPatch:
		var patch map[string]any
		_ = json.NewDecoder(r.Body).Decode(&patch)
		c.patched = append(c.patched, patch)
	case strings.HasSuffix(r.URL.Path, liveMachinesName):
		out = map[string]any{"data": c.live}
	}

	_ = json.NewEncoder(w).Encode(out)
}

// run runs the tasks that list machines at their intervals, and returns how often EC2 was called.
func (c *idleCluster) run(d time.Duration) int {
	c.t.Helper()
	before := c.ec2.calls
	for second := time.Duration(0); second < d; second += time.Second {
		for _, task := range machineTasks(c.agent, c.api) {
			if second%task.interval != 0 {
				continue
			}

			if err := task.run(c.t.Context()); err != nil {
				c.t.Fatalf("task %s: %v", task.name, err)
			}
		}

		c.now = c.now.Add(time.Second)
	}

	return c.ec2.calls - before
}

// TestIdleMachineListsMachinesOnceAMinute: it was 16 calls a minute: all machines of an account share EC2's limit.
func TestIdleMachineListsMachinesOnceAMinute(t *testing.T) {
	c := newIdleCluster(t)
	if calls := c.run(10 * time.Minute); calls != 10 {
		t.Errorf("%d calls of DescribeInstances in 10 minutes, want 10", calls)
	}
}

// TestMachinesAreListedAtOnceIfSomethingHappens: the list of up to a minute ago is not used then.
func TestMachinesAreListedAtOnceIfSomethingHappens(t *testing.T) {
	for name, change := range map[string]func(c *idleCluster){
		"a member does not answer": func(c *idleCluster) { c.agent.peersAnswer.Store(false) },
		"a node is not Ready":      func(c *idleCluster) { c.nodes[4].Status.Conditions = nil },
		"a node has joined": func(c *idleCluster) {
			c.addNode("i-7", "")
			c.nodes[5].Metadata.CreationTimestamp = c.now
		},
		"a machine was announced": func(c *idleCluster) { c.live["i-7.ec2.internal"] = "i-7" },
	} {
		c := newIdleCluster(t)
		c.run(2 * time.Second)
		change(c)
		c.ec2.add("i-7", node.RoleTagWorker, "")
		if calls := c.run(16 * time.Second); calls == 0 {
			t.Errorf("%s: EC2 was not asked", name)
		}
	}
}

// TestListOfEarlierRemovesNoMachine: a worker that was announced after EC2 was asked stays in the list of live
// machines, or its kubelet could not register.
func TestListOfEarlierRemovesNoMachine(t *testing.T) {
	c := newIdleCluster(t)
	c.run(2 * time.Second)
	c.ec2.add("i-7", node.RoleTagWorker, "")
	c.live["i-7.ec2.internal"] = "i-7"
	c.run(30 * time.Second)
	if len(c.patched) != 0 {
		t.Errorf("patched %v", c.patched)
	}
}
