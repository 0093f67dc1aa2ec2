// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// repairedCluster is a cluster of one control-plane machine and workers, as the repairer sees it.
type repairedCluster struct {
	t     *testing.T
	now   time.Time
	nodes map[string]*repairNode
	pods  map[string]int // evictable pods by node
	lease map[string]any // nil: there is none
	// liars are further nodes, and live is the list of live machines; nil: there is none.
	liars []*repairNode
	live  map[string]string

	terminated, completed []string
	events                []string
	described             int

	mu            sync.Mutex // held during a call: a killed one ends without an answer
	calls, killAt int
	afterEffect   bool
	killed        bool
}

func (c *repairedCluster) call(effect func()) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	if c.calls != c.killAt {
		effect()
		return nil
	}

	c.killed = true
	if c.afterEffect {
		effect()
	}

	return errAgentKilled
}

func (c *repairedCluster) DescribeAutoScalingGroups(context.Context, *autoscaling.DescribeAutoScalingGroupsInput, ...func(*autoscaling.Options)) (*autoscaling.DescribeAutoScalingGroupsOutput, error) {
	c.described++
	tag := func(k, v string) types.TagDescription { return types.TagDescription{Key: &k, Value: &v} }
	workers := types.AutoScalingGroup{
		AutoScalingGroupName: aws.String("workers.demo"), DesiredCapacity: aws.Int32(3),
		Tags: []types.TagDescription{tag(tagRole, "worker"), tag(tagGroup, "workers")},
	}
	masters := types.AutoScalingGroup{AutoScalingGroupName: aws.String("cp-a.demo"), Tags: []types.TagDescription{tag(tagRole, "control-plane")}}
	for id, n := range c.nodes {
		i := types.Instance{InstanceId: aws.String(id), AvailabilityZone: aws.String("z"), LifecycleState: types.LifecycleStateInService}
		for _, t := range c.terminated {
			if t == id {
				i.LifecycleState = types.LifecycleStateTerminatingWait
			}
		}
		if n.isControlPlane() {
			masters.Instances = append(masters.Instances, i)
		} else {
			workers.Instances = append(workers.Instances, i)
		}
	}

	return &autoscaling.DescribeAutoScalingGroupsOutput{AutoScalingGroups: []types.AutoScalingGroup{workers, masters}}, nil
}

func (c *repairedCluster) TerminateInstanceInAutoScalingGroup(_ context.Context, in *autoscaling.TerminateInstanceInAutoScalingGroupInput, _ ...func(*autoscaling.Options)) (*autoscaling.TerminateInstanceInAutoScalingGroupOutput, error) {
	if *in.ShouldDecrementDesiredCapacity {
		c.t.Error("the group shrinks")
	}

	return nil, c.call(func() { c.terminated = append(c.terminated, *in.InstanceId) })
}

func (c *repairedCluster) CompleteLifecycleAction(_ context.Context, in *autoscaling.CompleteLifecycleActionInput, _ ...func(*autoscaling.Options)) (*autoscaling.CompleteLifecycleActionOutput, error) {
	return nil, c.call(func() { c.completed = append(c.completed, *in.AutoScalingGroupName+" "+*in.InstanceId) })
}

func (c *repairedCluster) RecordLifecycleActionHeartbeat(context.Context, *autoscaling.RecordLifecycleActionHeartbeatInput, ...func(*autoscaling.Options)) (*autoscaling.RecordLifecycleActionHeartbeatOutput, error) {
	return nil, errors.New("not called")
}

func (c *repairedCluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	status := http.StatusOK
	var out any = map[string]any{}
	effect := func() { status, out = c.answer(r) }
	if r.Method == http.MethodGet {
		effect()
	} else if err := c.call(effect); err != nil {
		panic(http.ErrAbortHandler)
	}

	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(out)
}

func (c *repairedCluster) answer(r *http.Request) (int, any) {
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body)
	path := r.URL.Path
	switch {
	case strings.HasPrefix(path, leasesPath) && r.Method == http.MethodGet:
		if c.lease == nil {
			return http.StatusNotFound, map[string]any{"message": "not found"}
		}
		return http.StatusOK, c.lease
	case strings.HasPrefix(path, leasesPath):
		c.lease = body
	case path == "/api/v1/nodes":
		items := []any{}
		for _, n := range c.nodes {
			items = append(items, n)
		}
		for _, n := range c.liars {
			items = append(items, n)
		}
		return http.StatusOK, map[string]any{"items": items}
	case path == liveMachinesPath && c.live != nil:
		return http.StatusOK, liveMachinesMap{Data: c.live}
	case path == liveMachinesPath:
		return http.StatusNotFound, map[string]any{"message": "not found"}
	case strings.HasPrefix(path, "/api/v1/nodes/"):
		n, isNode := c.nodes["i-"+strings.TrimPrefix(path, "/api/v1/nodes/node-")]
		if !isNode {
			n = c.liars[0]
		}
		spec, _ := body["spec"].(map[string]any)
		n.Spec.Unschedulable, _ = spec["unschedulable"].(bool)
		meta, _ := body["metadata"].(map[string]any)
		annotations, _ := meta["annotations"].(map[string]any)
		delete(n.Metadata.Annotations, repairAnnotation)
		if v, ok := annotations[repairAnnotation].(string); ok {
			n.Metadata.Annotations = map[string]string{repairAnnotation: v}
		}
	case path == "/api/v1/pods":
		items := []any{}
		node := strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "spec.nodeName=")
		for range c.pods[node] {
			items = append(items, map[string]any{"metadata": map[string]any{"namespace": "default", "name": node, "uid": "u"}})
		}
		return http.StatusOK, map[string]any{"items": items}
	case strings.HasSuffix(path, "/eviction"):
		c.pods[strings.TrimSuffix(strings.TrimPrefix(path, "/api/v1/namespaces/default/pods/"), "/eviction")] = 0
	case strings.HasSuffix(path, "/events"):
		reason, _ := body["reason"].(string)
		c.events = append(c.events, reason)
	default:
		c.t.Errorf("%s %s", r.Method, r.URL)
	}

	return http.StatusOK, map[string]any{}
}

func newRepairedCluster(t *testing.T) *repairedCluster {
	t.Helper()
	c := &repairedCluster{t: t, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), nodes: map[string]*repairNode{}, pods: map[string]int{}}
	for _, name := range []string{"cp", "w1", "w2", "w3"} {
		n := &repairNode{}
		n.Metadata.Name = "node-" + name
		n.Spec.ProviderID = "aws:///z/i-" + name
		if name == "cp" {
			n.Metadata.Labels = map[string]string{"node-role.kubernetes.io/control-plane": ""}
		}
		c.nodes["i-"+name] = n
		c.setReady(name, true)
	}

	return c
}

func (c *repairedCluster) setReady(name string, ready bool) {
	status := "Unknown"
	if ready {
		status = "True"
	}
	n := c.nodes["i-"+name]
	n.Status.Conditions = n.Status.Conditions[:0]
	n.Status.Conditions = append(n.Status.Conditions, struct {
		Type               string    `json:"type"`
		Status             string    `json:"status"`
		LastTransitionTime time.Time `json:"lastTransitionTime"`
	}{"Ready", status, c.now})
}

// start returns the repairer of a new process of the agent.
func (c *repairedCluster) start(holder string) *repairer {
	server := httptest.NewServer(c)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	c.t.Cleanup(server.Close)
	a := &Agent{Scaling: c, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return c.now }}
	a.instance.ID = holder
	r := newRepairer(a, kube.Client{Server: server.URL, HTTP: server.Client()})
	r.health = func(context.Context) string { return "" }

	return r
}

// runFor runs the repairer at its interval, and restarts it when it was killed.
func (c *repairedCluster) runFor(d time.Duration) {
	r := c.start("i-cp")
	for end := c.now.Add(d); c.now.Before(end); c.now = c.now.Add(repairInterval) {
		_ = r.run(c.t.Context())
		c.mu.Lock()
		killed := c.killed
		c.killed = false
		c.mu.Unlock()
		if killed {
			r = c.start("i-cp")
		}
	}
}

// TestRepairIsKilledAtEveryCall checks that a worker that is not Ready is drained, then terminated once, wherever the
// agent was killed, and that no other one is.
func TestRepairIsKilledAtEveryCall(t *testing.T) {
	run := func(killAt int, after bool) *repairedCluster {
		c := newRepairedCluster(t)
		c.killAt, c.afterEffect = killAt, after
		c.pods["node-w2"] = 1
		c.setReady("w2", false)
		c.runFor(12 * time.Minute)

		return c
	}
	clean := run(0, false)
	for k := 0; k <= clean.calls; k++ {
		for _, after := range []bool{false, true} {
			c := run(k, after)
			if len(c.terminated) != 1 || c.terminated[0] != "i-w2" {
				t.Errorf("killed at call %d (after its effect: %t): terminated %v", k, after, c.terminated)
			}

			if c.pods["node-w2"] != 0 || !c.nodes["i-w2"].Spec.Unschedulable {
				t.Errorf("killed at call %d (after its effect: %t): not drained", k, after)
			}
		}
	}

	if strings.Join(clean.events, " ") != "RepairBegan RepairTerminates" || strings.Join(clean.completed, " ") != "workers.demo i-w2" {
		t.Errorf("events %v, completed %v", clean.events, clean.completed)
	}
}

// TestRepairLooksAndWaits checks that a healthy cluster costs no call to AWS, that a node that is Ready again is
// uncordoned, and that 'slipway validate' sees why a machine is not replaced.
func TestRepairLooksAndWaits(t *testing.T) {
	c := newRepairedCluster(t)
	c.runFor(time.Minute)
	if c.described != 0 {
		t.Errorf("%d calls to AWS without a broken node", c.described)
	}

	c.pods["node-w2"] = 1
	c.setReady("w2", false)
	r := c.start("i-cp")
	c.now = c.now.Add(11 * time.Minute)
	if err := r.run(t.Context()); err != nil || !c.nodes["i-w2"].Spec.Unschedulable {
		t.Fatalf("not begun: %v", err)
	}

	c.setReady("w2", true)
	if err := r.run(t.Context()); err != nil || c.nodes["i-w2"].Spec.Unschedulable || !c.nodes["i-w2"].began().IsZero() {
		t.Errorf("not cancelled: %v, %+v", err, c.nodes["i-w2"])
	}

	// A rolling update has cordoned the node meanwhile.
	c.setReady("w2", false)
	c.now = c.now.Add(11 * time.Minute)
	if err := r.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.nodes["i-w2"].Metadata.Annotations[report.RollingUpdateAnnotation] = "i-w2"
	c.setReady("w2", true)
	if err := r.run(t.Context()); err != nil || !c.nodes["i-w2"].Spec.Unschedulable || !c.nodes["i-w2"].began().IsZero() {
		t.Errorf("the node of a rolling update was uncordoned: %v, %+v", err, c.nodes["i-w2"])
	}
	c.nodes["i-w2"].Spec.Unschedulable = false
	c.nodes["i-w2"].Metadata.Annotations = nil

	c.setReady("w2", false)
	c.setReady("w3", false)
	c.now = c.now.Add(11 * time.Minute)
	if err := r.run(t.Context()); err != nil {
		t.Fatal(err)
	}

	conditions := r.agent.conditions.Conditions()
	if len(conditions) != 1 || conditions[0].Component != report.Repair || !strings.Contains(conditions[0].Cause, "machine i-w2 is not replaced: 2 of 3 machines of group workers are not healthy") {
		t.Errorf("conditions %+v", conditions)
	}

	if len(c.terminated) > 0 {
		t.Errorf("terminated %v", c.terminated)
	}
}

// TestRepairBelievesNoOtherNode: a Node that names another machine, which its kubelet may have registered before the
// admission policy, has that machine neither ended nor kept. Seen to succeed.
func TestRepairBelievesNoOtherNode(t *testing.T) {
	c := newRepairedCluster(t)
	c.live = map[string]string{"node-w1": "i-w1", "node-w2": "i-w2", "node-w3": "i-w3", "node-liar": "i-liar"}
	liar := &repairNode{}
	liar.Metadata.Name, liar.Spec.ProviderID = "node-liar", "aws:///z/i-w2"
	c.setReady("w2", false)
	liar.Status.Conditions = slices.Clone(c.nodes["i-w2"].Status.Conditions)
	c.setReady("w2", true)
	c.liars = []*repairNode{liar}
	c.runFor(15 * time.Minute)
	if len(c.terminated) > 0 {
		t.Errorf("terminated %v because of a Node of another machine", c.terminated)
	}

	c.setReady("w2", false)
	liar.Status.Conditions = c.nodes["i-w1"].Status.Conditions // Ready
	c.runFor(15 * time.Minute)
	if len(c.terminated) != 1 || c.terminated[0] != "i-w2" {
		t.Errorf("terminated %v, want the machine that is not Ready", c.terminated)
	}
}

// TestElection checks that only one machine leads, and that another one takes over when it has not heard of the leader
// for the lease's duration.
func TestElection(t *testing.T) {
	c := newRepairedCluster(t)
	a, b := c.start("i-a").election, c.start("i-b").election
	leads := func(e *election) bool {
		t.Helper()
		ok, err := e.lead(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		return ok
	}
	if !leads(a) || leads(b) {
		t.Error("not exactly the first machine leads")
	}

	for range 10 {
		c.now = c.now.Add(repairLease / 2)
		if !leads(a) || leads(b) {
			t.Error("a leader that renews its lease lost it")
		}
	}

	c.now = c.now.Add(repairLease - time.Second)
	if leads(b) {
		t.Error("took over too early")
	}

	c.now = c.now.Add(2 * time.Second)
	if !leads(b) || leads(a) {
		t.Error("did not take over")
	}
}

func (*repairedCluster) SetInstanceHealth(context.Context, *autoscaling.SetInstanceHealthInput, ...func(*autoscaling.Options)) (*autoscaling.SetInstanceHealthOutput, error) {
	return nil, errors.New("not called")
}
