// SPDX-License-Identifier: Apache-2.0

package aws_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws"
	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/manifest"
	"github.com/slipway-k8s/slipway/test/moto"
)

// startMoto starts moto. Its application id distinguishes it from the local region.
func startMoto(t *testing.T) sdk.Config {
	t.Helper()
	cfg := moto.Start(t)
	cfg.AppID = "moto"
	return cfg
}

// modelInput returns the model input of a cluster with the defaults of manifests.
func modelInput(t *testing.T, cluster, image string) model.Input {
	t.Helper()
	set := manifest.Set{}
	set.Cluster.Metadata.Name = cluster
	text := strings.ReplaceAll(`
apiVersion: slipway.dev/v1alpha1
kind: Cluster
metadata: {name: NAME}
spec:
  cloudProvider: {aws: {region: us-east-1}}
  networking:
    subnets:
    - {name: private-a, zone: us-east-1a, type: Private}
    - {name: private-b, zone: us-east-1b, type: Private}
    - {name: private-c, zone: us-east-1c, type: Private}
    - {name: public-a, zone: us-east-1a, type: Public}
    - {name: public-b, zone: us-east-1b, type: Public}
    - {name: public-c, zone: us-east-1c, type: Public}
---
apiVersion: slipway.dev/v1alpha1
kind: InstanceGroup
metadata: {name: control-plane, labels: {slipway.dev/cluster: NAME}}
spec: {role: ControlPlane}
---
apiVersion: slipway.dev/v1alpha1
kind: InstanceGroup
metadata: {name: nodes, labels: {slipway.dev/cluster: NAME}}
spec: {role: Worker}
`, "NAME", cluster)
	set, fs := manifest.Parse([]byte(text))
	set = manifest.Default(set)
	if err := append(fs, manifest.Validate(set)...).Err(); err != nil {
		t.Fatal(err)
	}
	in := model.Input{
		Cluster: set.Cluster, ClusterID: "k7q2m4x9c3v5b8n1", Groups: set.Groups, Account: "123456789012", Region: "us-east-1", Partition: "aws",
		Images: map[string]model.Image{}, Boot: map[string]model.BootSource{}, BootScript: "#!/bin/sh\n# @@CONFIG@@\n",
		MachineStore: model.MachineStore{Bucket: "store", KMSKeyARN: "arn:aws:kms:us-east-1:123456789012:key/0"},
	}
	for _, g := range set.Groups {
		in.Images[g.Metadata.Name] = model.Image{ID: image, RootDevice: "/dev/xvda"}
		in.Boot[g.Metadata.Name] = model.BootSource{AgentURL: "s3://store/agent", AgentSHA256: "0", DocumentURL: "s3://store/doc", DocumentSHA256: "0"}
	}
	return in
}

type testCluster struct {
	cfg   sdk.Config
	calls *transport.CallLimiter
	cloud *aws.Cloud
	moto  bool
}

func newTestCluster(cfg sdk.Config, cluster string) testCluster {
	l := testCluster{calls: &transport.CallLimiter{}, moto: cfg.AppID == "moto"}
	l.cfg = l.calls.Instrument(cfg)
	l.cloud = aws.New(l.cfg, aws.Scope{
		Cluster: cluster, Region: "us-east-1", RolePath: model.RolePath(cluster, "us-east-1"), KeyAlias: model.KeyAliasName(cluster),
	})
	return l
}

func (l testCluster) makePlan(t *testing.T, g *graph.Graph) plan.Plan {
	t.Helper()
	have, err := l.cloud.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if l.moto {
		have = correctMotoDefects(have)
	}
	p, fs := plan.Compute(g, have, plan.Options{DestroyData: true})
	if err := fs.Err(); err != nil {
		t.Fatal(err)
	}
	return p
}

// correctMotoDefects works around two defects of moto 5.2.1: it adds the tags of a launch template to the
// data of the template, and it neither returns nor changes the description of a rule between groups.
func correctMotoDefects(have []plan.ActualResource) []plan.ActualResource {
	for i, a := range have {
		switch r := a.Resource.(type) {
		case awskind.LaunchTemplate:
			r.Data.Tags = slices.DeleteFunc(r.Data.Tags, func(s awskind.TagSpecification) bool { return s.ResourceType == "launch-template" })
			have[i].Resource = r
		case awskind.SecurityGroupIngress:
			r.Description = ""
			have[i].Resource = r
		case awskind.SecurityGroupEgress:
			r.Description = ""
			have[i].Resource = r
		}
	}
	return have
}

// withoutRuleDescriptions returns g without the descriptions of rules between groups, for moto.
func withoutRuleDescriptions(g *graph.Graph) *graph.Graph {
	for _, n := range g.Nodes() {
		switch r := n.Resource.(type) {
		case awskind.SecurityGroupIngress:
			r.Description = ""
			n.Resource = r
		case awskind.SecurityGroupEgress:
			r.Description = ""
			n.Resource = r
		}
	}
	return g
}

func (l testCluster) applyPlan(t *testing.T, p plan.Plan) {
	t.Helper()
	if err := (plan.Applier{Cloud: l.cloud, Now: time.Now, RetryTimeout: time.Minute}).Apply(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

func planLines(p plan.Plan) []string {
	var out []string
	for _, s := range p.Steps {
		out = append(out, s.String())
		for _, c := range s.Changes {
			out = append(out, "  "+c.String())
		}
	}
	return out
}

func TestMoto(t *testing.T) {
	cfg := startMoto(t)
	id := moto.FindImage(t, cfg)
	build := func(name string) *graph.Graph {
		g, fs := model.Build(modelInput(t, name, id))
		if err := fs.Err(); err != nil {
			t.Fatal(err)
		}
		return withoutRuleDescriptions(g)
	}
	g := build("demo")
	first := newTestCluster(cfg, "demo")
	p := first.makePlan(t, g)
	if _, mutating := first.calls.TotalCalls(); mutating != 0 {
		t.Errorf("plan made %d mutating calls: %v", mutating, first.calls.Calls())
	}
	first.applyPlan(t, p)
	all, mutating := first.calls.TotalCalls()
	t.Logf("first apply: %d steps, %d calls, of which %d change something", len(p.Steps), all, mutating)

	again := newTestCluster(cfg, "demo")
	if rest := again.makePlan(t, g); !rest.IsEmpty() {
		t.Fatalf("the second plan is not empty:\n%s", strings.Join(planLines(rest), "\n"))
	}
	all, _ = again.calls.TotalCalls()
	t.Logf("plan without changes: %d calls: %v", all, again.calls.Calls())
	const mostCalls = 40
	if all > mostCalls {
		t.Errorf("a plan without changes makes %d calls, at most %d are allowed", all, mostCalls)
	}

	t.Run("drift", func(t *testing.T) { checkMotoDrift(t, cfg, g) })

	// A cluster whose name begins with the same letters is not changed.
	neighbour := build("demo-2")
	other := newTestCluster(cfg, "demo-2")
	other.applyPlan(t, other.makePlan(t, neighbour))
	again.applyPlan(t, again.makePlan(t, &graph.Graph{}))
	if rest := other.makePlan(t, neighbour); !rest.IsEmpty() {
		t.Errorf("deleting demo changed demo-2:\n%s", strings.Join(planLines(rest), "\n"))
	}
	other.applyPlan(t, other.makePlan(t, &graph.Graph{}))
	for _, name := range []string{"demo", "demo-2"} {
		if left := listTaggedResources(t, cfg, name); len(left) > 0 {
			t.Errorf("remaining resources with the tag of %s: %v", name, left)
		}
		if rest := newTestCluster(cfg, name).makePlan(t, &graph.Graph{}); !rest.IsEmpty() {
			t.Errorf("remaining resources of %s: %v", name, planLines(rest))
		}
	}
}

func checkMotoDrift(t *testing.T, cfg sdk.Config, g *graph.Graph) {
	t.Helper()
	l := newTestCluster(cfg, "demo")
	api := ec2.NewFromConfig(cfg)
	groups, err := api.DescribeSecurityGroups(t.Context(), &ec2.DescribeSecurityGroupsInput{Filters: []ec2types.Filter{
		{Name: sdk.String("tag:slipway.dev/cluster"), Values: []string{"demo"}}, {Name: sdk.String("group-name"), Values: []string{"worker.demo"}},
	}})
	if err != nil || len(groups.SecurityGroups) != 1 {
		t.Fatalf("the workers' group: %v %v", groups, err)
	}
	rules, err := api.DescribeSecurityGroupRules(t.Context(), &ec2.DescribeSecurityGroupRulesInput{Filters: []ec2types.Filter{
		{Name: sdk.String("group-id"), Values: []string{*groups.SecurityGroups[0].GroupId}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	var kubelet ec2types.SecurityGroupRule
	for _, r := range rules.SecurityGroupRules {
		if sdk.ToInt32(r.FromPort) == 10250 {
			kubelet = r
		}
	}
	if _, err := api.RevokeSecurityGroupIngress(t.Context(), &ec2.RevokeSecurityGroupIngressInput{
		GroupId: kubelet.GroupId, SecurityGroupRuleIds: []string{*kubelet.SecurityGroupRuleId},
	}); err != nil {
		t.Fatal(err)
	}
	if got := planLines(l.makePlan(t, g)); len(got) != 1 || !strings.HasPrefix(got[0], "  + security-group-ingress/kubelet-") {
		t.Errorf("one rule was revoked, the plan is:\n%s", strings.Join(got, "\n"))
	}
	l.applyPlan(t, l.makePlan(t, g))
	if _, err := api.AuthorizeSecurityGroupIngress(t.Context(), &ec2.AuthorizeSecurityGroupIngressInput{
		GroupId: kubelet.GroupId, IpPermissions: []ec2types.IpPermission{{
			IpProtocol: sdk.String("tcp"), FromPort: sdk.Int32(22), ToPort: sdk.Int32(22), IpRanges: []ec2types.IpRange{{CidrIp: sdk.String("0.0.0.0/0")}},
		}},
	}); err != nil {
		t.Fatal(err)
	}
	if got := planLines(l.makePlan(t, g)); len(got) != 1 || !strings.HasPrefix(got[0], "  - security-group-ingress/") || !strings.Contains(got[0], ":tcp:22:22:0.0.0.0/0") {
		t.Errorf("SSH was opened by hand, the plan is:\n%s", strings.Join(got, "\n"))
	}
	l.applyPlan(t, l.makePlan(t, g))
	if rest := l.makePlan(t, g); !rest.IsEmpty() {
		t.Errorf("the plan after apply is not empty:\n%s", strings.Join(planLines(rest), "\n"))
	}
}

// listTaggedResources lists the resources of a cluster in EC2 without using the drivers. It lists each kind,
// because DescribeTags of moto still lists the tags of deleted resources.
func listTaggedResources(t *testing.T, cfg sdk.Config, cluster string) []string {
	t.Helper()
	api := ec2.NewFromConfig(cfg)
	mine := []ec2types.Filter{{Name: sdk.String("tag:slipway.dev/cluster"), Values: []string{cluster}}}
	var left []string
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	vpcs, err := api.DescribeVpcs(t.Context(), &ec2.DescribeVpcsInput{Filters: mine})
	check(err)
	for _, x := range vpcs.Vpcs {
		left = append(left, *x.VpcId)
	}
	groups, err := api.DescribeSecurityGroups(t.Context(), &ec2.DescribeSecurityGroupsInput{Filters: mine})
	check(err)
	for _, x := range groups.SecurityGroups {
		left = append(left, *x.GroupId)
	}
	volumes, err := api.DescribeVolumes(t.Context(), &ec2.DescribeVolumesInput{Filters: mine})
	check(err)
	for _, x := range volumes.Volumes {
		if x.State == ec2types.VolumeStateDeleting {
			continue
		}
		left = append(left, *x.VolumeId)
	}
	addresses, err := api.DescribeAddresses(t.Context(), &ec2.DescribeAddressesInput{Filters: mine})
	check(err)
	for _, x := range addresses.Addresses {
		left = append(left, *x.AllocationId)
	}
	machines, err := api.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{Filters: mine})
	check(err)
	for _, r := range machines.Reservations {
		for _, x := range r.Instances {
			if x.State.Name != ec2types.InstanceStateNameTerminated {
				left = append(left, *x.InstanceId)
			}
		}
	}
	return left
}
