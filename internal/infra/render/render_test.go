// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/infra/render"
	"github.com/slipway-k8s/slipway/internal/infra/render/cloudformation"
	"github.com/slipway-k8s/slipway/internal/infra/render/rendertest"
	"github.com/slipway-k8s/slipway/internal/infra/render/terraform"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

var update = flag.Bool("update", false, "rewrite the goldens")

// ha is the topology of most tests.
func ha() rendertest.Topology {
	all := rendertest.Topologies()
	return all[slices.IndexFunc(all, func(x rendertest.Topology) bool { return x.Name == "ha" })]
}

// rendered returns both renderings of a topology.
func rendered(t *testing.T, x rendertest.Topology) map[string]string {
	t.Helper()
	return renderings(t, x.Graph(t), x.StackGraph(t, "us-east-1"))
}

// renderings renders g for Terraform and stack for CloudFormation.
func renderings(t *testing.T, g, stack *graph.Graph) map[string]string {
	t.Helper()
	tf, err := terraform.Render(g, terraform.Options{Region: "us-east-1"})
	if err != nil {
		t.Fatal(err)
	}
	cfn, err := cloudformation.Render(stack, cloudformation.Options{Description: "a small cluster"})
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{"main.tf.json": string(tf), "template.json": string(cfn)}
}

// small has one resource of each shape that the renderers distinguish.
func small(signals bool) *graph.Graph {
	g := &graph.Graph{}
	tags := func(addr string) awskind.Tags {
		return awskind.Tags{awskind.TagAddress: addr, "cost": "${x} at 100%{y}"}
	}
	vpc := graph.Add(g, "main", awskind.VPC{CIDR: "10.0.0.0/16", DNSSupport: true, Tags: tags("vpc/main")})
	igw := graph.Add(g, "main", awskind.InternetGateway{})
	attached := graph.Add(g, "main", awskind.GatewayAttachment{VPC: vpc, Gateway: igw})
	subnet := graph.Add(g, "1-a", awskind.Subnet{VPC: graph.UnmanagedRef[awskind.VPC]("vpc-1"), CIDR: "10.0.0.0/24", Zone: "us-east-1a"})
	eip := graph.Add(g, "nat", awskind.EIP{Domain: "vpc"}, attached)
	graph.Add(g, "nat", awskind.NATGateway{Subnet: subnet, Allocation: eip})
	group := graph.Add(g, "lb", awskind.SecurityGroup{VPC: vpc, Name: "lb", Description: "lb"})
	graph.MarkInternal(g, group)
	lb := graph.Add(g, "api", awskind.LoadBalancer{
		Name: "api", Type: "network", Scheme: "internal", Subnets: []graph.Ref[awskind.Subnet]{subnet}, SecurityGroups: []graph.Ref[awskind.SecurityGroup]{group},
		Attributes: map[string]string{"load_balancing.cross_zone.enabled": "true"},
	})
	role := graph.Add(g, "worker", awskind.IAMRole{Name: "r", TrustPolicy: graph.CanonicalJSON(`{"Version":"2012-10-17","Statement":[{"Condition":{"StringEquals":{"a":"${aws:username}"}}}]}`)})
	profile := graph.Add(g, "worker", awskind.InstanceProfile{Name: "p", Roles: []graph.Ref[awskind.IAMRole]{role}})
	key := graph.Add(g, "main", awskind.KMSKey{Description: "volumes", Policy: "{}", BypassLockoutCheck: true})
	volume := graph.Add(g, "etcd-a", awskind.Volume{Zone: "us-east-1a", Size: 20, Encrypted: true, KMSKey: key.Attr("Arn")})
	graph.Protect(g, volume)
	script := ""
	if signals {
		script = graph.SignalsPlaceholder("autoscaling-group/workers") + " " + graph.StackNamePlaceholder
	}
	template := graph.Add(g, "workers", awskind.LaunchTemplate{Name: "workers", Tags: tags("launch-template/workers"), Data: awskind.LaunchTemplateData{
		ImageID: "ami-1", InstanceType: "t3.large", Profile: awskind.ProfileSpec{Name: profile},
		BlockDevices: []awskind.BlockDevice{{DeviceName: "/dev/xvda", EBS: awskind.EBS{VolumeSize: 30}}},
		UserData:     graph.Concat(graph.LiteralText("echo \"$HOME ${PATH}\"\n# 5% of $"), lb.Attr("DNSName"), graph.LiteralText(script+"\n")).Base64(),
	}})
	graph.Add(g, "workers", awskind.AutoScalingGroup{
		Name: "workers", MaxSize: 3, DesiredCapacity: 1, Template: awskind.TemplateSpec{ID: template, Version: template.Attr("LatestVersionNumber")},
		Tags: awskind.Tags{awskind.TagGroup: "workers"},
	})
	return g
}

func TestGolden(t *testing.T) {
	for name, got := range renderings(t, small(false), small(true)) {
		file := filepath.Join("testdata", "small."+name)
		if *update {
			if err := os.MkdirAll("testdata", 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("run go test ./internal/infra/render -update (-want +got):\n%s", diff)
		}
	}
}

func TestSameGraphSameBytes(t *testing.T) {
	for _, x := range rendertest.Topologies() {
		first := rendered(t, x)
		for range 5 {
			if diff := cmp.Diff(first, rendered(t, x)); diff != "" {
				t.Fatalf("%s: %s", x.Name, diff)
			}
		}
	}
}

func TestNoSecret(t *testing.T) {
	for _, x := range rendertest.Topologies() {
		for file, body := range rendered(t, x) {
			for _, s := range []string{"PRIVATE KEY", "AKIA", "password", "BEGIN CERTIFICATE"} {
				if strings.Contains(body, s) {
					t.Errorf("%s of %s contains %q", file, x.Name, s)
				}
			}
		}
	}
}

// TestTemplateSizes: the template of the default cluster leaves room below twice what a request may have, so that it
// is not far from the limit of the console's editor; and what CloudFormation does not even read from S3 is refused.
func TestTemplateSizes(t *testing.T) {
	if n := len(rendered(t, ha())["template.json"]); n > cloudformation.MaxBodySize*27/20 {
		t.Errorf("the template of the default cluster has %d bytes, 35%% over %d", n, cloudformation.MaxBodySize)
	}
	g := &graph.Graph{}
	for i := range 300 {
		name := fmt.Sprintf("v-%d", i)
		graph.Add(g, name, awskind.Volume{Zone: "z", Size: 1, Tags: awskind.Tags{"text": name + strings.Repeat("x", 4000)}})
	}
	if _, err := cloudformation.Render(g, cloudformation.Options{}); err == nil || !strings.Contains(err.Error(), "CloudFormation allows 1048576") {
		t.Errorf("a template of more than 1 MiB: %v", err)
	}
}

func TestParameters(t *testing.T) {
	p := render.ParametersOf(rendertest.Graph(t, manifest.NewSetOptions{}))
	var got []string
	for _, one := range p.List() {
		got = append(got, one.Name)
	}
	// A control-plane slot has one machine: its group has no size parameters.
	if diff := cmp.Diff([]string{
		"control-plane-image-id", "control-plane-instance-type", "control-plane-volume-size", "volume-size",
		"workers-image-id", "workers-instance-type", "workers-max-size", "workers-min-size", "workers-volume-size",
	}, got); diff != "" {
		t.Error(diff)
	}
	g := &graph.Graph{}
	graph.Add(g, "a", awskind.Volume{Zone: "z", Size: 1})
	graph.Add(g, "b", awskind.Volume{Zone: "z", Size: 2})
	if n := len(render.ParametersOf(g).List()); n != 0 {
		t.Errorf("volumes of different sizes share %d parameters", n)
	}
}

// TestVersionsStay: a template keeps the latest other versions, unless a group is new.
func TestVersionsStay(t *testing.T) {
	in := ha().Input(t, "us-east-1")
	in.SignalStack = true
	g, fs := model.Build(in)
	if err := fs.Err(); err != nil {
		t.Fatal(err)
	}
	both := func(what string) map[string]string {
		return map[string]string{"ControlPlane": what, "Workers": what, "Gone": what}
	}
	body, err := cloudformation.Render(g, cloudformation.Options{EarlierVersions: cloudformation.Versions{
		"1.36.3": both("stale"), "1.36.2": both("b"), "1.36.10": both("k"), "1.35.9": both("j"), "1.35.10": both("l"), "1.34.0": both("old"), "1.36.1": {"Workers": "w"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Parameters map[string]struct {
			Default       string
			AllowedValues []string
		}
		Mappings struct{ Versions cloudformation.Versions }
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		t.Fatal(err)
	}
	now := in.Boot["workers"].DocumentSHA256
	now += `.json","sha256":"` + now
	want := cloudformation.Versions{"1.36.3": {"ControlPlane": now, "Workers": now}}
	for v, d := range map[string]string{"1.36.2": "b", "1.36.10": "k", "1.35.9": "j", "1.35.10": "l"} {
		want[v] = map[string]string{"ControlPlane": d, "Workers": d}
	}
	if diff := cmp.Diff(want, doc.Mappings.Versions); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	p := doc.Parameters["KubernetesVersion"]
	if diff := cmp.Diff([]string{"1.35.10", "1.35.9", "1.36.10", "1.36.2", "1.36.3"}, p.AllowedValues); diff != "" || p.Default != "1.36.3" {
		t.Errorf("default %s: %s", p.Default, diff)
	}
	if n := strings.Count(string(body), strings.ReplaceAll(now, `"`, `\"`)); n != 2 {
		t.Errorf("the documents are named %d times, want once in each group's version", n)
	}
}

// TestManyGroupsFit: CloudFormation allows 200 parameters and 500 resources, however many groups there are.
func TestManyGroupsFit(t *testing.T) {
	graphOf := func(groups int) *graph.Graph {
		g := &graph.Graph{}
		for i := range groups {
			name := fmt.Sprintf("pool-%d", i)
			lt := graph.Add(g, name, awskind.LaunchTemplate{Data: awskind.LaunchTemplateData{
				ImageID: "ami-1", InstanceType: "t3.large", BlockDevices: []awskind.BlockDevice{{EBS: awskind.EBS{VolumeSize: 30}}},
			}})
			graph.Add(g, name, awskind.AutoScalingGroup{
				MaxSize: 1, Template: awskind.TemplateSpec{ID: lt, Version: lt.Attr("LatestVersionNumber")}, Tags: awskind.Tags{awskind.TagGroup: name},
			})
		}
		return g
	}
	for groups, want := range map[int]string{
		39: "image-id instance-type max-size min-size volume-size", 45: "image-id instance-type max-size min-size",
		60: "instance-type max-size min-size", 150: "instance-type", 230: "",
	} {
		of, n := map[string]bool{}, 0
		for _, p := range render.ParametersOf(graphOf(groups)).LimitTo(197).List() {
			n++
			of[strings.Join(strings.Split(p.Name, "-")[2:], "-")] = true
		}
		if got := strings.Join(slices.Sorted(maps.Keys(of)), " "); got != want || n > 197 {
			t.Errorf("%d groups: %d parameters: %s, want %s", groups, n, got, want)
		}
	}
	if _, err := cloudformation.Render(graphOf(260), cloudformation.Options{}); err == nil || !strings.Contains(err.Error(), "520 resources: CloudFormation allows 500") {
		t.Errorf("520 resources: %v", err)
	}
}

// TestTemplateQuotas: a template that CloudFormation would refuse is refused with the cause, and shared texts are divided
// among the mapping and the resources.
func TestTemplateQuotas(t *testing.T) {
	g := &graph.Graph{}
	for i := range 201 {
		script := fmt.Sprintf("%03d", i) + strings.Repeat("x", 300)
		for _, half := range []string{"a", "b"} {
			graph.Add(g, fmt.Sprintf("pool-%d-%s", i, half), awskind.LaunchTemplate{Data: awskind.LaunchTemplateData{UserData: graph.LiteralText(script)}})
		}
	}
	body, err := cloudformation.Render(g, cloudformation.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Mappings map[string]map[string]map[string]any
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		t.Fatal(err)
	}
	for name, keys := range doc.Mappings {
		for key, attributes := range keys {
			if len(attributes) != 200 {
				t.Errorf("mapping %s has %d attributes of %s, want all that are allowed", name, len(attributes), key)
			}
		}
	}
	_, err = cloudformation.Render(&graph.Graph{}, cloudformation.Options{Description: strings.Repeat("x", 1025)})
	if err == nil || !strings.Contains(err.Error(), "the description of the template has 1025 bytes: CloudFormation allows 1024") {
		t.Errorf("a long description: %v", err)
	}

	many := &graph.Graph{}
	for i := range 201 {
		graph.Add(many, fmt.Sprintf("network-%d", i), awskind.VPC{})
	}
	_, err = cloudformation.Render(many, cloudformation.Options{})
	if err == nil || !strings.Contains(err.Error(), "201 outputs: CloudFormation allows 200; use fewer") {
		t.Errorf("201 outputs: %v", err)
	}
}

// TestUnmanagedIsAParameter: a template's user can replace the manifest's existing network by another one,
// everywhere.
func TestUnmanagedIsAParameter(t *testing.T) {
	all := rendertest.Topologies()
	x := all[slices.IndexFunc(all, func(x rendertest.Topology) bool { return x.Name == "existing" })]
	var names []string
	for _, p := range render.ParametersOf(x.Graph(t)).List() {
		if strings.HasPrefix(p.Name, "existing-") {
			names = append(names, p.Name+" "+p.Type)
		}
	}
	subnet := " AWS::EC2::Subnet::Id"
	if diff := cmp.Diff([]string{
		"existing-security-group-control-plane AWS::EC2::SecurityGroup::Id", "existing-security-group-worker AWS::EC2::SecurityGroup::Id",
		"existing-subnet-private-a" + subnet, "existing-subnet-private-b" + subnet, "existing-subnet-private-c" + subnet,
		"existing-subnet-utility-a" + subnet, "existing-subnet-utility-b" + subnet, "existing-subnet-utility-c" + subnet, "existing-vpc AWS::EC2::VPC::Id",
	}, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for file, body := range rendered(t, x) {
		for _, id := range []string{"vpc-0123456789abcdef0", "subnet-0123456789abca000", "subnet-0123456789abcb200", "sg-0123456789abcde01", "sg-0123456789abcde02"} {
			if n := strings.Count(body, id); n != 1 {
				t.Errorf("%s contains %s %d times, want only the default", file, id, n)
			}
		}
	}
}

func TestRetainedContainsTheKeyOfAVolume(t *testing.T) {
	got := slices.Sorted(maps.Keys(render.RetainedResources(small(true))))
	if diff := cmp.Diff([]graph.Addr{"kms-key/main", "volume/etcd-a"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestEqualNamesAreRejected(t *testing.T) {
	g := &graph.Graph{}
	graph.Add(g, "a-1", awskind.InternetGateway{})
	graph.Add(g, "a1", awskind.InternetGateway{})
	_, err := cloudformation.Render(g, cloudformation.Options{})
	if err == nil || !strings.Contains(err.Error(), "internet-gateway/a-1 and internet-gateway/a1") {
		t.Errorf("got %v", err)
	}
	if _, err := terraform.Render(g, terraform.Options{}); err != nil {
		t.Errorf("Terraform distinguishes them: %v", err)
	}
}

// TestGroupAndSlotTags: this package declares these tags itself; a parameter named after its group shows that
// they are those of package awskind.
func TestGroupAndSlotTags(t *testing.T) {
	g := &graph.Graph{}
	lt := graph.Add(g, "x", awskind.LaunchTemplate{Data: awskind.LaunchTemplateData{InstanceType: "t3.large"}})
	spec := awskind.TemplateSpec{ID: lt, Version: lt.Attr("LatestVersionNumber")}
	graph.Add(g, "x", awskind.AutoScalingGroup{MaxSize: 1, Template: spec, Tags: awskind.Tags{awskind.TagGroup: "g", awskind.TagSlot: "a"}})
	got := render.ParametersOf(g).List()
	want := []render.Parameter{{Name: "g-instance-type", Description: "InstanceType of g", Default: "t3.large", Property: "InstanceType"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestTemplateVersionsArePinned: a group names the number of a launch template's version, in all three outputs. With
// $Latest, a worker that happens to be replaced would be the first to run a new version, outside of any rollout.
func TestTemplateVersionsArePinned(t *testing.T) {
	for _, x := range rendertest.Topologies() {
		files := rendered(t, x)
		for file, body := range files {
			for _, moving := range []string{`"$Latest"`, `"$Default"`, `"$$Latest"`, `"$$Default"`, "DefaultVersionNumber", ".default_version"} {
				if strings.Contains(body, moving) {
					t.Errorf("%s of %s contains %s", file, x.Name, moving)
				}
			}
		}
		g := x.Graph(t) // what a direct apply makes
		groups, kept := 0, 0
		for _, n := range g.Nodes() {
			group, ok := n.Resource.(awskind.AutoScalingGroup)
			if !ok {
				continue
			}
			groups++
			path := `"launch_template[0].version"`
			template, version := group.Template.ID, group.Template.Version
			if template.Addr() == "" {
				template, version = group.MixedInstances.Launch.Template.ID, group.MixedInstances.Launch.Template.Version
				path = `"mixed_instances_policy[0].launch_template[0].launch_template_specification[0].version"`
			}
			if group.Tags[awskind.TagRole] != "bastion" { // no rolling update replaces bastions
				kept++
				if !strings.Contains(files["main.tf.json"], path) {
					t.Errorf("Terraform of %s lacks %s", x.Name, path)
				}
			}
			want := []graph.TextPart{{Symbol: graph.Symbol{Addr: template.Addr(), Attribute: "LatestVersionNumber"}}}
			if diff := cmp.Diff(want, version.Parts()); diff != "" {
				t.Errorf("%s of %s: %s", n.Addr, x.Name, diff)
			}
			id := render.CamelCase(string(template.Addr()))
			if pinned := `"Version":{"Fn::GetAtt":["` + id + `","LatestVersionNumber"]}`; !strings.Contains(files["template.json"], pinned) {
				t.Errorf("the template of %s lacks %s", x.Name, pinned)
			}
		}
		if groups == 0 {
			t.Errorf("%s has no groups", x.Name)
		}
		if n := strings.Count(files["main.tf.json"], ".latest_version}"); n != groups {
			t.Errorf("Terraform of %s pins %d versions, want %d", x.Name, n, groups)
		}
		if n := strings.Count(files["main.tf.json"], `"ignore_changes"`); n != kept {
			t.Errorf("Terraform of %s keeps %d versions, want %d", x.Name, n, kept)
		}
	}
}

func TestNames(t *testing.T) {
	for in, want := range map[string][2]string{
		"nat-us-east-1a":        {"nat-us-east-1a", "NatUsEast1a"},
		"1-a":                   {"_1-a", "1A"},
		"load-balancer/api":     {"load-balancer_api", "LoadBalancerApi"},
		"workers-instance-type": {"workers-instance-type", "WorkersInstanceType"},
		"é.b":                   {"__b", "B"},
	} {
		if diff := cmp.Diff(want, [2]string{render.SafeLabel(in), render.CamelCase(in)}); diff != "" {
			t.Errorf("%s: %s", in, diff)
		}
	}
}
