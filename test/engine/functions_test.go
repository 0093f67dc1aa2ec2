// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
	"github.com/slipway-k8s/slipway/test/dnsfunction"
)

// The tests of this file run in real time: a Lambda function is a process, which does not run in a bubble.

// newDNSGraph returns the graph of a highly available cluster whose members of etcd find each other by DNS. Its function is
// published in the region. EventBridge and SNS trigger it.
func newDNSGraph(t *testing.T, r regiontest.Region) *graph.Graph {
	t.Helper()
	bucket := newInput(newHASet(t, "demo")).MachineStore.Bucket

	return newGraphOfCode(t, dnsfunction.Publish(t, r.AWSConfig(), bucket, "function.zip"))
}

// newGraphOfCode returns the graph of newDNSGraph with a function of some code.
func newGraphOfCode(t *testing.T, code model.FunctionCode) *graph.Graph {
	t.Helper()
	set := newHASet(t, "demo")
	set.Cluster.Spec.Etcd.Discovery = v1alpha1.EtcdDiscoveryDNS
	set.Cluster.Spec.Etcd.DiscoveryEvents = []string{v1alpha1.EtcdEventsEventBridge, v1alpha1.EtcdEventsSNS}
	in := newInput(set)
	in.FunctionCode = code
	g, fs := model.Build(in)
	if err := fs.Err(); err != nil {
		t.Fatal(err)
	}
	return g
}

// onlyFunction returns the part of a graph that consists of the function and all that it needs.
func onlyFunction(g *graph.Graph) *graph.Graph {
	needed := map[graph.Addr]bool{}
	var visit func(addr graph.Addr)
	visit = func(addr graph.Addr) {
		needed[addr] = true
		for _, d := range g.Node(addr).Deps {
			visit(d)
		}
	}
	visit("lambda-permission/dns")
	visit("event-rule/dns")
	visit("sns-subscription/dns")

	out := &graph.Graph{}
	refs := map[graph.Addr]graph.Reference{}
	for _, n := range g.Nodes() {
		if !needed[n.Addr] {
			continue
		}
		var after []graph.Reference
		for _, d := range n.ExplicitDeps {
			after = append(after, refs[d])
		}
		refs[n.Addr] = addTo(out, n, after)
	}
	return out
}

// addTo adds the resource of a node to another graph.
func addTo(g *graph.Graph, n *graph.Node, after []graph.Reference) graph.Reference {
	return graph.Add(g, n.Name, n.Resource, after...)
}

// newEngineFor returns an engine that reads what the graph of the cluster demo can have.
func newEngineFor(cfg sdk.Config, g *graph.Graph) engine {
	e := newEngine(cfg, "demo")
	if hasFunction(g) {
		findFunction(e)
	}
	return e
}

// findFunction makes an engine read the function and its topic.
func findFunction(e engine) {
	e.cloud.FindFunction(model.FunctionName("demo"), true)
	e.cloud.FindTopic(model.FunctionName("demo"), true)
}

func hasFunction(g *graph.Graph) bool { return g.Node("lambda-function/dns") != nil }

// settleTime is how long a change takes until the region shows it.
func settleTime(g *graph.Graph) time.Duration {
	if hasFunction(g) {
		return 300 * time.Millisecond // real time
	}
	return 10 * time.Second
}

// runFunction plans and applies, or deletes if the graph is empty, in real time.
func runFunction(ctx context.Context, cfg sdk.Config, g *graph.Graph) error {
	e := newEngine(cfg, "demo")
	findFunction(e)
	return e.run(ctx, g)
}

// mustPlanNothing checks that a plan is empty.
func mustPlanNothing(t *testing.T, cfg sdk.Config, g *graph.Graph, when string) {
	t.Helper()
	e := newEngine(cfg, "demo")
	findFunction(e)
	if p, err := e.plan(t.Context(), g); err != nil || !p.IsEmpty() {
		t.Errorf("%s; the second plan is not empty: %v\n%s", when, err, strings.Join(planLines(p), "\n"))
	}
}

// etcdRecords returns the addresses of the members in the zone of a cluster, by their names, and the number of members in
// each of the service records.
func etcdRecords(t *testing.T, cfg sdk.Config) (addresses map[string]string, services []int) {
	t.Helper()
	api := route53.NewFromConfig(cfg)
	zones, err := api.ListHostedZones(t.Context(), &route53.ListHostedZonesInput{})
	if err != nil {
		t.Fatal(err)
	}
	addresses = map[string]string{}
	for _, z := range zones.HostedZones {
		out, err := api.ListResourceRecordSets(t.Context(), &route53.ListResourceRecordSetsInput{HostedZoneId: z.Id})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range out.ResourceRecordSets {
			switch r.Type {
			case r53types.RRTypeA:
				addresses[*r.Name] = *r.ResourceRecords[0].Value
			case r53types.RRTypeSrv:
				services = append(services, len(r.ResourceRecords))
			default:
			}
		}
	}
	return addresses, services
}

// controlPlane returns the private addresses of the running machines of the control plane by their ids.
func controlPlane(t *testing.T, cfg sdk.Config) map[string]string {
	t.Helper()
	res, err := ec2.NewFromConfig(cfg).DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{Filters: []ec2types.Filter{
		{Name: sdk.String("tag:" + awskind.TagRole), Values: []string{"control-plane"}}, {Name: sdk.String("instance-state-name"), Values: []string{"running"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, r := range res.Reservations {
		for _, i := range r.Instances {
			out[*i.InstanceId] = *i.PrivateIpAddress
		}
	}
	return out
}

// waitForMembers waits until the records are those of three machines, which do not include the one with an id.
func waitForMembers(t *testing.T, cfg sdk.Config, gone string) map[string]string {
	t.Helper()
	var machines, records map[string]string
	var services []int
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		machines = controlPlane(t, cfg)
		records, services = etcdRecords(t, cfg)
		have, want := slices.Sorted(maps.Values(records)), slices.Sorted(maps.Values(machines))
		if len(want) == 3 && machines[gone] == "" && slices.Equal(have, want) && slices.Equal(services, []int{3, 3}) {
			return machines
		}
	}
	t.Fatalf("the records are %v and %v, the machines %v", records, services, machines)
	return nil
}

// TestRecordsOfCluster: with discovery by DNS, the records of etcd's members follow the machines of the control plane, and
// the deletion leaves neither the records nor anything else.
func TestRecordsOfCluster(t *testing.T) {
	t.Parallel()
	r := regiontest.StartWith(t, regiontest.Options{VisibilityDelay: regiontest.LikeAWS})
	cfg := r.AWSConfig()
	g := newDNSGraph(t, r)
	empty := r.Inventory(t)
	if err := runFunction(t.Context(), cfg, g); err != nil {
		t.Fatal(err)
	}
	mustPlanNothing(t, cfg, g, "applied")
	first := waitForMembers(t, cfg, "")
	mustPlanNothing(t, cfg, g, "with records")
	checkNotifications(t, cfg, g)

	lost := slices.Sorted(maps.Keys(first))[0]
	if _, err := ec2.NewFromConfig(cfg).TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{lost}}); err != nil {
		t.Fatal(err)
	}
	waitForMembers(t, cfg, lost)

	if err := runFunction(t.Context(), cfg, &graph.Graph{}); err != nil {
		t.Fatal(err)
	}
	mustPlanNothing(t, cfg, &graph.Graph{}, "deleted")
	checkInventory(t, r, empty, "deleted")
}

// checkNotifications: notifications of a group to the topic of somebody else stay, and its own come back.
func checkNotifications(t *testing.T, cfg sdk.Config, g *graph.Graph) {
	t.Helper()
	topics, groups := sns.NewFromConfig(cfg), autoscaling.NewFromConfig(cfg)
	name := sdk.String("control-plane-a.demo")
	other, err := topics.CreateTopic(t.Context(), &sns.CreateTopicInput{Name: sdk.String("mine")})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(settleTime(g))
	_, err = groups.PutNotificationConfiguration(t.Context(), &autoscaling.PutNotificationConfigurationInput{
		AutoScalingGroupName: name, TopicARN: other.TopicArn, NotificationTypes: []string{"autoscaling:EC2_INSTANCE_LAUNCH"},
	})
	if err != nil {
		t.Fatal(err)
	}
	mustPlanNothing(t, cfg, g, "with notifications to another topic")

	_, err = groups.DeleteNotificationConfiguration(t.Context(), &autoscaling.DeleteNotificationConfigurationInput{
		AutoScalingGroupName: name, TopicARN: sdk.String("arn:aws:sns:us-east-1:123456789012:slipway-dns-demo"),
	})
	if err != nil {
		t.Fatal(err)
	}
	e := newEngine(cfg, "demo")
	findFunction(e)
	p, err := e.plan(t.Context(), g)
	if lines := strings.Join(planLines(p), "\n"); err != nil || !strings.Contains(lines, "~ autoscaling-group/control-plane-a") || !strings.Contains(lines, "NotificationConfigurations") {
		t.Errorf("without its notifications: %v\n%s", err, lines)
	}
	if err := runFunction(t.Context(), cfg, g); err != nil {
		t.Fatal(err)
	}
	mustPlanNothing(t, cfg, g, "with its notifications again")
	if _, err := topics.DeleteTopic(t.Context(), &sns.DeleteTopicInput{TopicArn: other.TopicArn}); err != nil {
		t.Fatal(err)
	}
}

// checkInventory waits until the region has what it had before.
func checkInventory(t *testing.T, r regiontest.Region, want []string, when string) {
	t.Helper()
	diff := ""
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if diff = cmp.Diff(want, r.Inventory(t)); diff == "" {
			return
		}
	}
	t.Errorf("%s: differs from before (-before +now):\n%s", when, diff)
}

// TestFunctionComesAndGoes: a cluster that changes to discovery by tags loses the function, the zone and its records, and
// keeps its machines.
func TestFunctionComesAndGoes(t *testing.T) {
	t.Parallel()
	r := regiontest.StartWith(t, regiontest.Options{VisibilityDelay: regiontest.LikeAWS})
	cfg := r.AWSConfig()
	byDNS := newDNSGraph(t, r)
	byTags := mustBuildGraph(t, newHASet(t, "demo"))
	if err := runFunction(t.Context(), cfg, byDNS); err != nil {
		t.Fatal(err)
	}
	before := waitForMembers(t, cfg, "")
	if err := runFunction(t.Context(), cfg, byTags); err != nil {
		t.Fatal(err)
	}
	mustPlanNothing(t, cfg, byTags, "changed to tags")
	if records, services := etcdRecords(t, cfg); len(records)+len(services) > 0 {
		t.Errorf("records are left: %v %v", records, services)
	}
	if diff := cmp.Diff(before, controlPlane(t, cfg)); diff != "" {
		t.Errorf("the machines changed: %s", diff)
	}
	if err := runFunction(t.Context(), cfg, byDNS); err != nil {
		t.Fatal(err)
	}
	waitForMembers(t, cfg, "")
}

// TestFunctionCrashAtEveryCall is TestCrashAtEveryCall for the function and all that it needs.
func TestFunctionCrashAtEveryCall(t *testing.T) {
	t.Parallel()
	r := regiontest.StartWith(t, regiontest.Options{VisibilityDelay: regiontest.LikeAWS})
	g := onlyFunction(newDNSGraph(t, r))
	apply, remove := newEngineFor(r.AWSConfig(), g), newEngineFor(r.AWSConfig(), g)
	if err := apply.run(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	if err := remove.run(t.Context(), &graph.Graph{}); err != nil {
		t.Fatal(err)
	}
	_, applyCalls := apply.calls.TotalCalls()
	_, removeCalls := remove.calls.TotalCalls()
	var cases atomic.Int32
	for n := 1; n <= applyCalls+removeCalls; n += callStep() {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("call %d %s", n, killTiming(after)), func(t *testing.T) {
				t.Parallel()
				cases.Add(1)
				if n <= applyCalls {
					crashFunction(t, n, 0, after)
				} else {
					crashFunction(t, 0, n-applyCalls, after)
				}
			})
		}
	}
	t.Logf("%d calls of apply and %d of delete", applyCalls, removeCalls)
}

// crashFunction applies and deletes in a region of its own. The client is killed at a call of the apply or of the deletion.
func crashFunction(t *testing.T, atApply, atDelete int, after bool) {
	t.Helper()
	r := regiontest.StartWith(t, regiontest.Options{VisibilityDelay: regiontest.LikeAWS})
	cfg := r.AWSConfig()
	g := onlyFunction(newDNSGraph(t, r))
	empty := r.Inventory(t)
	for _, c := range []struct {
		nth int
		to  *graph.Graph
	}{{atApply, g}, {atDelete, &graph.Graph{}}} {
		when := "undisturbed"
		if c.nth > 0 {
			ctx, kill := context.WithCancel(t.Context())
			m := r.NewKillableClient(c.nth, after, kill)
			if err := runFunction(ctx, m.AWSConfig(cfg), c.to); err == nil && m.KilledAt() != "" {
				t.Errorf("killed at %s, but the run succeeds", m.KilledAt())
			}
			kill()
			when = "killed " + killTiming(after) + " " + m.KilledAt()
			time.Sleep(settleTime(g))
		}
		if err := runFunction(t.Context(), cfg, c.to); err != nil {
			t.Fatalf("%s; the next run fails: %v", when, err)
		}
		mustPlanNothing(t, cfg, c.to, when)
	}
	checkInventory(t, r, empty, "deleted")
}

// checkFunctionDrifts makes each change of the function, and returns the rows of the documentation.
func checkFunctionDrifts(t *testing.T) []string {
	t.Helper()
	r := regiontest.StartWith(t, regiontest.Options{VisibilityDelay: regiontest.LikeAWS})
	g := onlyFunction(newDNSGraph(t, r))
	if err := newEngineFor(r.AWSConfig(), g).run(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	time.Sleep(settleTime(g))
	var rows []string
	for _, d := range functionDrifts() {
		rows = append(rows, d.checkDrift(t, r, g))
	}
	return rows
}

// TestForgedCodeOfFunction: somebody replaces the code in S3 after it was compared, and before Lambda reads it. No function
// stays that has it, whether it was to be created or changed.
func TestForgedCodeOfFunction(t *testing.T) {
	t.Parallel()
	r := regiontest.StartWith(t, regiontest.Options{VisibilityDelay: regiontest.LikeAWS})
	cfg := r.AWSConfig()
	bucket := newInput(newHASet(t, "demo")).MachineStore.Bucket
	code := dnsfunction.Publish(t, cfg, bucket, "function.zip")
	g := onlyFunction(newGraphOfCode(t, code))
	functions := lambda.NewFromConfig(cfg)
	checkRefused := func(when string, wanted *graph.Graph) {
		t.Helper()
		err := runFunction(t.Context(), cfg, wanted)
		if err == nil || !strings.Contains(err.Error(), "somebody replaced the object") {
			t.Errorf("%s: %v", when, err)
		}
		in := &lambda.GetFunctionInput{FunctionName: sdk.String(model.FunctionName("demo"))}
		if f, err := functions.GetFunction(t.Context(), in); err == nil {
			t.Errorf("%s: there is a function with the code %s", when, *f.Configuration.CodeSha256)
		}
	}

	expected := code
	expected.SHA256 = strings.Repeat("ab", 32)
	checkRefused("create", onlyFunction(newGraphOfCode(t, expected)))
	if err := runFunction(t.Context(), cfg, g); err != nil {
		t.Fatal(err)
	}
	checkRefused("change", onlyFunction(newGraphOfCode(t, expected)))
	if err := runFunction(t.Context(), cfg, g); err != nil {
		t.Fatal(err)
	}
	mustPlanNothing(t, cfg, g, "the right code")
}
