// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/follow"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/node"
	"github.com/slipway-k8s/slipway/internal/machine/repair"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// peerCluster is a control plane of three machines, i-a, i-b and i-c, as the elected one of them sees it.
type peerCluster struct {
	RepairAPI

	t       *testing.T
	now     time.Time
	ec2     *countedEC2
	nodes   []repairNode
	members []etcd.Member
	groups  []types.AutoScalingGroup
	lock    follow.Lock
	lease   peerLease
	// conflict lets the next change of the lease fail, because another machine was faster.
	conflict  bool
	described int
	reported  []string
}

// peerPatience is how long a machine must not work if the groups have no tag.
const peerPatience = 10 * time.Minute

func newPeerCluster(t *testing.T) *peerCluster {
	t.Helper()
	c := &peerCluster{t: t, ec2: &countedEC2{}, now: time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)}
	c.lease.Metadata.ResourceVersion = "7"
	c.lease.Spec.HolderIdentity = "i-a"
	tag := func(key, value string) types.TagDescription { return types.TagDescription{Key: &key, Value: &value} }
	for _, slot := range []string{"a", "b", "c"} {
		id := "i-" + slot
		c.ec2.add(id, node.RoleTagControlPlane, slot)
		c.ec2.list[len(c.ec2.list)-1].LaunchTime = aws.Time(c.now.Add(-time.Hour))
		c.members = append(c.members, etcd.Member{Slot: slot, Healthy: true})
		c.groups = append(c.groups, types.AutoScalingGroup{
			Tags: []types.TagDescription{tag(tagRole, node.RoleTagControlPlane), tag(tagSlot, slot), tag(tagClusterID, "k7q2")},
			Instances: []types.Instance{{
				InstanceId: &id, HealthStatus: aws.String("Healthy"), LifecycleState: types.LifecycleStateInService,
			}},
		})

		var n repairNode
		n.Metadata.Name = id + ".ec2.internal"
		c.nodes = append(c.nodes, n)
		c.setReady(len(c.nodes)-1, true)
	}

	return c
}

func (c *peerCluster) setReady(at int, ready bool) {
	text := `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`
	if ready {
		text = strings.Replace(text, "False", "True", 1)
	}

	if err := json.Unmarshal([]byte(text), &c.nodes[at]); err != nil {
		c.t.Fatal(err)
	}
}

// setReport lets the agent of a machine report its disks at a time.
func (c *peerCluster) setReport(at int, reported time.Time, disks ...report.Disk) {
	body, err := json.Marshal(report.Report{Time: reported, Disks: disks})
	if err != nil {
		c.t.Fatal(err)
	}

	c.nodes[at].Metadata.Annotations = map[string]string{report.Annotation: string(body)}
}

func (c *peerCluster) DescribeAutoScalingGroups(context.Context, *autoscaling.DescribeAutoScalingGroupsInput, ...func(*autoscaling.Options)) (*autoscaling.DescribeAutoScalingGroupsOutput, error) {
	c.described++

	return &autoscaling.DescribeAutoScalingGroupsOutput{AutoScalingGroups: c.groups}, nil
}

func (c *peerCluster) SetInstanceHealth(_ context.Context, in *autoscaling.SetInstanceHealthInput, _ ...func(*autoscaling.Options)) (*autoscaling.SetInstanceHealthOutput, error) {
	if *in.HealthStatus != "Unhealthy" || !*in.ShouldRespectGracePeriod {
		c.t.Errorf("reported with %+v", in)
	}

	c.reported = append(c.reported, *in.InstanceId)

	return nil, nil
}

func (c *peerCluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPatch {
		var patch peerLease
		_ = json.NewDecoder(r.Body).Decode(&patch)
		if c.conflict || patch.Metadata.ResourceVersion != c.lease.Metadata.ResourceVersion {
			w.WriteHeader(http.StatusConflict)
			_ = json.NewEncoder(w).Encode(map[string]any{"message": "the object has been modified"})

			return
		}

		c.lease.Metadata.Annotations = patch.Metadata.Annotations
	}

	_ = json.NewEncoder(w).Encode(c.lease)
}

// start returns the repair of a new process of machine i-a.
func (c *peerCluster) start() *peerRepair {
	server := httptest.NewServer(c)
	c.t.Cleanup(server.Close)
	a := &Agent{Scaling: c, EC2: c.ec2, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return c.now }}
	a.instance.ID = "i-a"
	a.doc.ClusterID = "k7q2"
	a.doc.Slots = []node.Slot{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	p := newPeerRepair(a, kube.Client{Server: server.URL, HTTP: server.Client()})
	p.members = func(context.Context) []etcd.Member { return c.members }
	p.lock = func(context.Context) (follow.Lock, error) { return c.lock, nil }

	return p
}

// runFor runs the repair at its interval.
func (c *peerCluster) runFor(p *peerRepair, d time.Duration) {
	c.t.Helper()
	for end := c.now.Add(d); c.now.Before(end); c.now = c.now.Add(repairInterval) {
		if err := p.run(c.t.Context(), c.nodes); err != nil {
			c.t.Fatal(err)
		}
	}
}

func TestBrokenControlPlaneMachineIsReported(t *testing.T) {
	full := report.Disk{Path: "/", UsedBytes: 96, SizeBytes: 100}
	fullVolume := report.Disk{Path: etcd.DataMount, UsedBytes: 96, SizeBytes: 100}
	for name, tc := range map[string]struct {
		change func(c *peerCluster)
		want   string
	}{
		"all work":                       {func(*peerCluster) {}, ""},
		"its kubelet is dead":            {func(c *peerCluster) { c.setReady(1, false) }, "i-b"},
		"its etcd member is lost":        {func(c *peerCluster) { c.members[1].Healthy = false }, "i-b"},
		"etcd has no member of the slot": {func(c *peerCluster) { c.members = slices.Delete(c.members, 1, 2) }, "i-b"},
		"its member is a learner":        {func(c *peerCluster) { c.members[1] = etcd.Member{Slot: "b", Learner: true} }, ""},
		"no member has a quorum":         {func(c *peerCluster) { c.members = nil }, ""},
		"its disk is full":               {func(c *peerCluster) { c.setReport(1, c.now, full) }, "i-b"},
		"its disk was full long ago":     {func(c *peerCluster) { c.setReport(1, c.now.Add(-time.Hour), full) }, ""},
		"its etcd volume is full":        {func(c *peerCluster) { c.setReport(1, c.now, fullVolume); c.members[1].Healthy = false }, ""},
		"this machine itself":            {func(c *peerCluster) { c.setReady(0, false) }, ""},
		"two machines":                   {func(c *peerCluster) { c.members[1].Healthy = false; c.members[2].Healthy = false }, ""},
		"a rolling update": {func(c *peerCluster) {
			c.setReady(1, false)
			c.lock = follow.Lock{Holder: follow.RollingUpdate, Until: c.now.Add(time.Hour)}
		}, ""},
		"a stack updates the group": {func(c *peerCluster) {
			c.setReady(1, false)
			c.groups[1].SuspendedProcesses = []types.SuspendedProcess{{ProcessName: aws.String("ReplaceUnhealthy")}}
		}, ""},
		"the group of another cluster": {func(c *peerCluster) { c.setReady(1, false); c.groups[1].Tags[2].Value = aws.String("other") }, ""},
		"it has just booted": {func(c *peerCluster) {
			c.setReady(1, false)
			c.ec2.list[1].LaunchTime = aws.Time(c.now.Add(-5 * time.Minute))
		}, ""},
		"another machine is elected":        {func(c *peerCluster) { c.setReady(1, false); c.lease.Spec.HolderIdentity = "i-c" }, ""},
		"another machine changed the lease": {func(c *peerCluster) { c.setReady(1, false); c.conflict = true }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := newPeerCluster(t)
			tc.change(c)
			p := c.start()
			c.runFor(p, repair.MinPeerPatience)
			if c.described != 0 {
				t.Fatalf("called Auto Scaling %d times at once", c.described)
			}

			c.runFor(p, peerPatience-repair.MinPeerPatience)
			if len(c.reported) != 0 {
				t.Fatalf("reported %v too early", c.reported)
			}

			c.runFor(p, repairInterval)
			if got := strings.Join(c.reported, " "); got != tc.want {
				t.Errorf("reported %q, want %q; %+v", got, tc.want, p.agent.conditions.Conditions())
			}
		})
	}
}

// TestReportIsRepeatedForTheSameMachineOnly: a report that was recorded and not made is made by the next leader, and
// another machine waits.
func TestReportIsRepeatedForTheSameMachineOnly(t *testing.T) {
	c := newPeerCluster(t)
	c.setReady(1, false)
	c.runFor(c.start(), peerPatience+repairInterval)
	c.runFor(c.start(), peerPatience+repairInterval)
	if got := strings.Join(c.reported, " "); got != "i-b i-b" {
		t.Fatalf("reported %q", got)
	}

	c.setReady(1, true)
	c.setReady(2, false)
	p := c.start()
	c.runFor(p, peerPatience+repairInterval)
	if len(c.reported) != 2 {
		t.Errorf("reported %q within %s", c.reported, repair.PeerPause)
	}

	c.runFor(p, repair.PeerPause)
	if len(c.reported) == 2 || slices.Contains(c.reported[2:], "i-b") {
		t.Errorf("reported %q after %s", c.reported, repair.PeerPause)
	}
}

// setPolicy gives the groups of slots the tag with the policy.
func (c *peerCluster) setPolicy(text string, slots ...int) {
	for _, at := range slots {
		c.groups[at].Tags = append(c.groups[at].Tags, types.TagDescription{Key: aws.String(tagRepair), Value: &text})
	}
}

// TestPolicyOfControlPlane: the groups have the policy of spec.repair. While an apply changes it, the stricter one counts.
func TestPolicyOfControlPlane(t *testing.T) {
	const short = "2m0s 5m0s"
	for name, tc := range map[string]struct {
		change func(c *peerCluster)
		within time.Duration
		want   string
	}{
		"short times":             {func(c *peerCluster) { c.setPolicy(short, 0, 1, 2) }, repair.MinPeerPatience, "i-b"},
		"short times, not yet":    {func(c *peerCluster) { c.setPolicy(short, 0, 1, 2) }, repair.MinPeerPatience - repairInterval, ""},
		"an apply is in progress": {func(c *peerCluster) { c.setPolicy(short, 0, 1) }, peerPatience - repairInterval, ""},
		"it is disabled":          {func(c *peerCluster) { c.setPolicy("off", 0, 1, 2) }, time.Hour, ""},
		"a machine is young": {func(c *peerCluster) {
			c.setPolicy(short, 0, 1, 2)
			c.ec2.list[2].LaunchTime = aws.Time(c.now.Add(-time.Minute))
		}, repair.MinPeerPatience, ""},
		"it is old enough later": {func(c *peerCluster) {
			c.setPolicy(short, 0, 1, 2)
			c.ec2.list[2].LaunchTime = aws.Time(c.now.Add(-time.Minute))
		}, repair.MinPeerAge - time.Minute, "i-b"},
	} {
		c := newPeerCluster(t)
		c.setReady(1, false)
		tc.change(c)
		c.runFor(c.start(), tc.within+repairInterval)
		if got := strings.Join(c.reported, " "); got != tc.want {
			t.Errorf("%s: reported %q, want %q", name, got, tc.want)
		}
	}
}

// TestUnreadablePolicyReplacesNothing: it is an error that names the group and the tag.
func TestUnreadablePolicyReplacesNothing(t *testing.T) {
	c := newPeerCluster(t)
	c.setReady(1, false)
	c.setPolicy("1s 1s", 1)
	c.groups[1].AutoScalingGroupName = aws.String("control-plane-b.demo")
	p := c.start()
	if err := p.run(t.Context(), c.nodes); err != nil {
		t.Fatal(err)
	}

	c.now = c.now.Add(time.Hour)
	err := p.run(t.Context(), c.nodes)
	if err == nil || !strings.Contains(err.Error(), "tag slipway.dev/repair of auto scaling group control-plane-b.demo") {
		t.Error(err)
	}

	if len(c.reported) != 0 {
		t.Errorf("reported %q", c.reported)
	}
}

// TestProblemMustLast: a machine that works in between is not replaced.
func TestProblemMustLast(t *testing.T) {
	c := newPeerCluster(t)
	p := c.start()
	for range 5 {
		c.setReady(1, false)
		c.runFor(p, peerPatience)
		c.setReady(1, true)
		c.runFor(p, repairInterval)
	}

	if len(c.reported) != 0 {
		t.Errorf("reported %q", c.reported)
	}
}

// TestBrokenMachineLeavesTheElection: nobody would report it otherwise.
func TestBrokenMachineLeavesTheElection(t *testing.T) {
	for component, fit := range map[report.Component]bool{
		report.Kubelet: false, report.DiskSpace: false, report.EtcdMember: false, report.EtcdVolume: false, report.NodeDocument: true,
	} {
		c := newRepairedCluster(t)
		r := c.start("i-cp")
		r.agent.conditions.Set(report.Condition{Component: component, State: report.Failed}, c.now)
		if err := r.run(t.Context()); err != nil {
			t.Fatal(err)
		}

		if leads := c.lease != nil; leads != fit {
			t.Errorf("%s: leads is %t", component, leads)
		}
	}
}
