// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/machine/node"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

func input(tb testing.TB, o manifest.NewSetOptions) model.Input {
	tb.Helper()
	const name = "demo"
	set, fs := manifest.NewSet(name, []string{"us-east-1a", "us-east-1b", "us-east-1c"}, o)
	set = manifest.Default(set)
	if err := append(fs, manifest.Validate(set)...).Err(); err != nil {
		tb.Fatal(err)
	}
	in := model.Input{
		Cluster: set.Cluster, ClusterID: "k7q2m4x9c3v5b8n1", Groups: set.Groups, Account: "123456789012", Region: "us-east-1", Partition: "aws",
		Images: map[string]model.Image{}, Boot: map[string]model.BootSource{}, BootScript: node.BootScript("us-east-1"),
		MachineStore: model.MachineStore{Bucket: "store", Prefix: "prod", KMSKeyARN: "arn:aws:kms:us-east-1:123456789012:key/k"},
	}
	for _, g := range set.Groups {
		in.Images[g.Metadata.Name] = model.Image{ID: "ami-1", RootDevice: "/dev/xvda"}
		sum := strings.Repeat("0", 64)
		in.Boot[g.Metadata.Name] = model.BootSource{
			AgentURL: "s3://store/prod/" + node.AgentPrefix(name) + sum + "/slipway-node", AgentSHA256: sum,
			DocumentURL: "s3://store/prod/" + node.DocumentPrefix(name, g.Spec.Role) + "documents/" + g.Metadata.Name + "-" + sum + ".json", DocumentSHA256: sum,
		}
	}
	return in
}

func build(tb testing.TB, in model.Input) *graph.Graph {
	tb.Helper()
	g, fs := model.Build(in)
	if err := fs.Err(); err != nil {
		tb.Fatal(err)
	}
	return g
}

// flows lists who may speak to whom, by port.
func flows(g *graph.Graph) (in, out []string) {
	name := func(r graph.Ref[awskind.SecurityGroup], cidr string) string {
		return strings.TrimPrefix(string(r.Addr()), "security-group/") + cidr
	}
	for _, n := range g.Nodes() {
		switch r := n.Resource.(type) {
		case awskind.SecurityGroupIngress:
			in = append(in, fmt.Sprintf("%s > %s %s %d-%d", name(r.Source, r.CIDR), name(r.Group, ""), r.Protocol, r.FromPort, r.ToPort))
		case awskind.SecurityGroupEgress:
			out = append(out, fmt.Sprintf("%s > %s %s %d-%d", name(r.Group, ""), name(r.Destination, r.CIDR), r.Protocol, r.FromPort, r.ToPort))
		}
	}
	slices.Sort(in)
	slices.Sort(out)
	return in, out
}

func TestSecurityGroupMatrix(t *testing.T) {
	in, out := flows(build(t, input(t, manifest.NewSetOptions{})))
	if diff := cmp.Diff([]string{
		"0.0.0.0/0 > api-internal icmp 3-4",
		"0.0.0.0/0 > api-public icmp 3-4",
		"0.0.0.0/0 > api-public tcp 443-443",
		"0.0.0.0/0 > control-plane icmp 3-4",
		"0.0.0.0/0 > worker icmp 3-4",
		"api-internal > control-plane tcp 3988-3988",
		"api-internal > control-plane tcp 6443-6443",
		"api-public > control-plane tcp 6443-6443",
		"control-plane > api-internal tcp 3988-3988",
		"control-plane > api-internal tcp 6443-6443",
		"control-plane > control-plane tcp 10250-10250",
		"control-plane > control-plane tcp 2379-2380",
		"control-plane > control-plane tcp 30000-32767",
		"control-plane > control-plane tcp 6443-6443",
		"control-plane > control-plane udp 30000-32767",
		"control-plane > control-plane udp 8472-8472",
		"control-plane > worker tcp 10250-10250",
		"control-plane > worker tcp 30000-32767",
		"control-plane > worker udp 30000-32767",
		"control-plane > worker udp 8472-8472",
		"worker > api-internal tcp 3988-3988",
		"worker > api-internal tcp 6443-6443",
		"worker > control-plane tcp 30000-32767",
		"worker > control-plane tcp 6443-6443",
		"worker > control-plane udp 30000-32767",
		"worker > control-plane udp 8472-8472",
		"worker > worker tcp 30000-32767",
		"worker > worker udp 30000-32767",
		"worker > worker udp 8472-8472",
	}, in); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{
		"api-internal > control-plane tcp 3988-3988",
		"api-internal > control-plane tcp 6443-6443",
		"api-public > control-plane tcp 6443-6443",
		"control-plane > 0.0.0.0/0 -1 0-0",
		"worker > 0.0.0.0/0 -1 0-0",
	}, out); diff != "" {
		t.Error(diff)
	}
}

func TestInternalAPIOpensNothingToTheWorld(t *testing.T) {
	g := build(t, input(t, manifest.NewSetOptions{APILoadBalancerType: "Internal"}))
	in, _ := flows(g)
	for _, f := range in {
		if strings.HasSuffix(f, " icmp 3-4") {
			continue // path MTU discovery opens no port
		}
		if strings.HasPrefix(f, "0.0.0.0/0") || strings.Contains(f, "public") {
			t.Errorf("%s", f)
		}
	}
	if !slices.Contains(in, "10.80.0.0/16 > api-internal tcp 443-443") || g.Node("load-balancer/api") != nil || g.Node("listener/api") == nil {
		t.Errorf("the API is reached through the internal load balancer only: %v", in)
	}
}

// allowed lists action on resource of a role's policy.
func allowed(t *testing.T, g *graph.Graph, role string) []string {
	t.Helper()
	p, ok := g.Node(graph.Addr("iam-role-policy/" + role)).Resource.(awskind.IAMRolePolicy)
	if !ok {
		t.Fatal("no policy")
	}
	var doc struct {
		Statement []struct {
			Action, Resource []string
			Condition        map[string]map[string]any
		}
	}
	if err := json.Unmarshal([]byte(p.Document), &doc); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, s := range doc.Statement {
		var conds []string
		for op, keys := range s.Condition {
			for k, v := range keys {
				conds = append(conds, fmt.Sprintf(" if %s %s %v", op, k, v))
			}
		}
		slices.Sort(conds)
		cond := strings.Join(conds, "")
		for _, a := range s.Action {
			for _, r := range s.Resource {
				out = append(out, a+" "+r+cond)
			}
		}
	}
	slices.Sort(out)
	return out
}

// newVolumeOfSlotB are the conditions of a volume that a machine of slot b creates.
const newVolumeOfSlotB = " if Bool ec2:Encrypted true" +
	" if ForAllValues:StringEquals aws:TagKeys [Name kubernetes.io/cluster/demo slipway.dev/address slipway.dev/cluster slipway.dev/etcd-slot slipway.dev/id]" +
	" if Null ec2:ParentSnapshot true" +
	" if NumericEquals ec2:VolumeIops 3000 if NumericEquals ec2:VolumeSize 20 if NumericEquals ec2:VolumeThroughput 125" +
	" if StringEquals aws:RequestTag/Name etcd-b.demo" +
	" if StringEquals aws:RequestTag/kubernetes.io/cluster/demo owned" +
	" if StringEquals aws:RequestTag/slipway.dev/address volume/etcd-b" +
	" if StringEquals aws:RequestTag/slipway.dev/cluster demo" +
	" if StringEquals aws:RequestTag/slipway.dev/etcd-slot b" +
	" if StringEquals aws:RequestTag/slipway.dev/id k7q2m4x9c3v5b8n1" +
	" if StringEquals ec2:AvailabilityZone us-east-1b" +
	" if StringEquals ec2:VolumeType gp3"

func TestRolesMayDoWhatTheyCallAndNoMore(t *testing.T) {
	g := build(t, input(t, manifest.NewSetOptions{}))
	key := "arn:aws:kms:us-east-1:123456789012:key/k"
	via := " if StringEquals kms:ViaService s3.us-east-1.amazonaws.com"
	groups := "* if StringEquals aws:ResourceTag/slipway.dev/id k7q2m4x9c3v5b8n1" +
		" if StringEquals aws:ResourceTag/slipway.dev/role worker"
	if diff := cmp.Diff([]string{
		"kms:Decrypt " + key + via,
		"s3:GetObject arn:aws:s3:::store/prod/demo/machine/agent/*",
		"s3:GetObject arn:aws:s3:::store/prod/demo/machine/worker/*",
	}, allowed(t, g, "worker")); diff != "" {
		t.Error(diff)
	}
	slot := " if StringEquals aws:ResourceTag/slipway.dev/cluster demo" +
		" if StringEquals aws:ResourceTag/slipway.dev/etcd-slot b" +
		" if StringEqualsIfExists aws:ResourceTag/slipway.dev/id k7q2m4x9c3v5b8n1"
	if diff := cmp.Diff([]string{
		"autoscaling:CompleteLifecycleAction " + groups,
		"autoscaling:DescribeAutoScalingGroups *",
		"autoscaling:RecordLifecycleActionHeartbeat " + groups,
		"autoscaling:SetInstanceHealth " + strings.Replace(groups, "role worker", "role control-plane", 1),
		"autoscaling:TerminateInstanceInAutoScalingGroup " + groups,
		"ec2:AttachVolume arn:aws:ec2:us-east-1:123456789012:instance/*" + slot,
		"ec2:AttachVolume arn:aws:ec2:us-east-1:123456789012:volume/*" + slot,
		"ec2:CreateTags arn:aws:ec2:us-east-1:123456789012:volume/* if StringEquals ec2:CreateAction CreateVolume",
		"ec2:CreateVolume arn:aws:ec2:us-east-1:123456789012:volume/*" + newVolumeOfSlotB,
		"ec2:DescribeInstances *",
		"ec2:DescribeVolumes *",
		"ec2:DetachVolume arn:aws:ec2:us-east-1:123456789012:instance/*" + slot,
		"ec2:DetachVolume arn:aws:ec2:us-east-1:123456789012:volume/*" + slot,
		"kms:Decrypt " + key + " if StringEquals kms:EncryptionContext:slipway.dev/cluster demo",
		"kms:Decrypt " + key + via,
		"kms:GenerateDataKey " + key + " if StringEquals kms:EncryptionContext:slipway.dev/cluster demo" +
			" if StringLike kms:EncryptionContext:slipway.dev/backup *",
		"kms:GenerateDataKey " + key + via,
		"s3:DeleteObject arn:aws:s3:::store/prod/demo/machine/etcd/backups/*",
		"s3:GetObject arn:aws:s3:::store/prod/demo/machine/agent/*",
		"s3:GetObject arn:aws:s3:::store/prod/demo/machine/controlplane/*",
		"s3:GetObject arn:aws:s3:::store/prod/demo/machine/etcd/*",
		"s3:GetObject arn:aws:s3:::store/prod/demo/machine/secrets/*",
		"s3:ListBucket arn:aws:s3:::store if StringLike s3:prefix prod/demo/machine/etcd/*",
		"s3:PutObject arn:aws:s3:::store/prod/demo/machine/etcd/absent/*",
		"s3:PutObject arn:aws:s3:::store/prod/demo/machine/etcd/answer.json",
		"s3:PutObject arn:aws:s3:::store/prod/demo/machine/etcd/backups/*.json if Null s3:if-none-match false",
		"s3:PutObject arn:aws:s3:::store/prod/demo/machine/etcd/backups/*/part-*",
		"s3:PutObject arn:aws:s3:::store/prod/demo/machine/etcd/created/b",
		"s3:PutObject arn:aws:s3:::store/prod/demo/machine/etcd/generations/* if Null s3:if-none-match false",
		"s3:PutObject arn:aws:s3:::store/prod/demo/machine/etcd/initialized if Null s3:if-none-match false",
		"s3:PutObject arn:aws:s3:::store/prod/demo/machine/etcd/joined/b",
		"s3:PutObject arn:aws:s3:::store/prod/demo/machine/etcd/quorum/b",
		"s3:PutObject arn:aws:s3:::store/prod/demo/machine/etcd/resize",
		"s3:PutObject arn:aws:s3:::store/prod/demo/machine/etcd/restored/*/b if Null s3:if-none-match false",
	}, allowed(t, g, "control-plane-b")); diff != "" {
		t.Error(diff)
	}
}

// TestAuditLogIsOnlyAddedTo: with the field, the control plane may create objects of its cluster's audit log, and not
// replace them. Workers may not.
func TestAuditLogIsOnlyAddedTo(t *testing.T) {
	in := input(t, manifest.NewSetOptions{})
	in.Cluster.Spec.KubeAPIServer.AuditLogUpload = true
	g := build(t, in)
	const want = "s3:PutObject arn:aws:s3:::store/prod/_audit/demo/* if Null s3:if-none-match false"
	if got := allowed(t, g, "control-plane-a"); !slices.Contains(got, want) {
		t.Errorf("the control plane may not %s, but %q", want, got)
	}

	for _, got := range allowed(t, g, "worker") {
		if strings.Contains(got, "_audit") {
			t.Errorf("workers may %s", got)
		}
	}
}

func TestMachines(t *testing.T) {
	in := input(t, manifest.NewSetOptions{ControlPlaneCount: 5})
	g := build(t, in)
	var zones []string
	for _, n := range g.Nodes() {
		switch r := n.Resource.(type) {
		case awskind.Volume:
			zones = append(zones, r.Tags[awskind.TagSlot]+" "+r.Zone)
			if !r.Encrypted || !n.Protected {
				t.Errorf("%s: encrypted %v, protected %v", n.Addr, r.Encrypted, n.Protected)
			}
		case awskind.LaunchTemplate:
			checkTemplate(t, n, r.Data)
		case awskind.AutoScalingGroup:
			if slot := r.Tags[awskind.TagSlot]; slot != "" && (r.MinSize != 1 || r.MaxSize != 1 || len(r.Subnets) != 1 || len(r.TargetGroups) != 3) {
				t.Errorf("slot %s: %+v", slot, r)
			}
		}
	}
	if diff := cmp.Diff([]string{"a us-east-1a", "b us-east-1b", "c us-east-1c", "d us-east-1a", "e us-east-1b"}, zones); diff != "" {
		t.Error(diff)
	}
}

func checkTemplate(t *testing.T, n *graph.Node, d awskind.LaunchTemplateData) {
	t.Helper()
	if d.Metadata.Tokens != "required" || d.Metadata.HopLimit != 1 || !d.BlockDevices[0].EBS.Encrypted {
		t.Errorf("%s: %+v", n.Addr, d)
	}
	resolved, ok := graph.Resolve(n.Resource, func(s graph.Symbol) (string, bool) {
		return strings.ReplaceAll(string(s.Addr), "/", "-") + "-0123456789abcdef.elb.us-east-1.amazonaws.com", true
	}).(awskind.LaunchTemplate)
	if !ok {
		t.Fatal("no template")
	}
	var script strings.Builder
	for _, p := range resolved.Data.UserData.Parts() {
		script.WriteString(p.Literal)
	}
	if size := script.Len(); size > node.MaxUserDataBytes {
		t.Errorf("%s: user data has %d bytes", n.Addr, size)
	}
	_, rest, _ := strings.Cut(script.String(), "json.loads(r'''")
	config, _, _ := strings.Cut(rest, "'''")
	dec := json.NewDecoder(bytes.NewReader([]byte(config)))
	dec.DisallowUnknownFields()
	var c node.BootConfig
	if err := dec.Decode(&c); err != nil {
		t.Fatalf("%s: package node does not read the boot config: %v\n%s", n.Addr, err, config)
	}
	if c.Cluster != "demo" || c.Document.URL == "" || !strings.HasPrefix(c.API.Internal, "load-balancer-internal-") || !strings.HasPrefix(c.API.Public, "load-balancer-api-") {
		t.Errorf("%s: %+v", n.Addr, c)
	}
}

func TestEverythingIsTagged(t *testing.T) {
	in := input(t, manifest.NewSetOptions{})
	in.Cluster.Spec.Tags = map[string]string{"team": "a", "slipway.dev/cluster": "another"}
	for _, n := range build(t, in).Nodes() {
		for _, f := range graph.Fields(n.Resource) {
			tags, ok := f.Value.(map[string]any)
			if f.IsTags && (!ok || tags["slipway.dev/cluster"] != "demo" || tags["slipway.dev/address"] != string(n.Addr) ||
				tags["slipway.dev/id"] != "k7q2m4x9c3v5b8n1" || tags["team"] != "a") {
				t.Errorf("%s: %v", n.Addr, tags)
			}
		}
	}
}

func TestMissingInputIsReportedAtOnce(t *testing.T) {
	in := input(t, manifest.NewSetOptions{})
	in.Images, in.Boot = nil, nil
	if _, fs := model.Build(in); len(fs) != 4 {
		t.Errorf("two groups lack an image and a document: %v", fs)
	}
}
