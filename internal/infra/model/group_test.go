// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/mail"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/machine/node"
	"github.com/slipway-k8s/slipway/internal/machine/repair"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// with is the default cluster whose workers are changed, and what is added.
func with(t *testing.T, change func(*manifest.Set)) model.Input {
	t.Helper()
	in := input(t, manifest.NewSetOptions{})
	set := manifest.Set{Cluster: in.Cluster, Groups: in.Groups}
	change(&set)
	set = manifest.Default(set)
	if err := manifest.Validate(set).Err(); err != nil {
		t.Fatal(err)
	}
	in.Cluster, in.Groups = set.Cluster, set.Groups
	for _, g := range set.Groups {
		in.Images[g.Metadata.Name] = model.Image{ID: "ami-1", RootDevice: "/dev/xvda"}
	}
	return in
}

func workers(s *manifest.Set) *v1alpha1.InstanceGroupSpec { return &s.Groups[1].Spec }

func nodeAt[T graph.Resource](t *testing.T, g *graph.Graph, name string) T {
	t.Helper()
	var zero T
	n := g.Node(graph.Address(zero.Kind(), name))
	if n == nil {
		t.Fatalf("there is no %s %s", zero.Kind().Name, name)
	}
	r, ok := n.Resource.(T)
	if !ok {
		t.Fatalf("%s is a %T", n.Addr, n.Resource)
	}
	return r
}

func addBastion(s *manifest.Set) {
	s.Cluster.Spec.SSHAccess = []string{"192.0.2.0/24"}
	s.Cluster.Spec.SSHKeyName = "mine"
	s.Groups = append(s.Groups, v1alpha1.InstanceGroup{
		APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.KindInstanceGroup, Metadata: v1alpha1.Metadata{Name: "bastion"},
		Spec: v1alpha1.InstanceGroupSpec{Role: v1alpha1.RoleBastion},
	})
}

func sshFlows(g *graph.Graph) []string {
	in, _ := flows(g)
	return slices.DeleteFunc(in, func(f string) bool { return !strings.Contains(f, " 22-") })
}

func TestSSHComesThroughTheBastionOnly(t *testing.T) {
	if got := sshFlows(build(t, input(t, manifest.NewSetOptions{}))); len(got) > 0 {
		t.Errorf("without a bastion port 22 is open: %v", got)
	}
	g := build(t, with(t, addBastion))
	if diff := cmp.Diff([]string{
		"192.0.2.0/24 > bastion-balancer tcp 22-22", "bastion > control-plane tcp 22-22", "bastion > worker tcp 22-22",
		"bastion-balancer > bastion tcp 22-22",
	}, sshFlows(g)); diff != "" {
		t.Error(diff)
	}
	d := nodeAt[awskind.LaunchTemplate](t, g, "bastion").Data
	script, _ := d.UserData.Literal()
	if d.KeyName.Literal() != "mine" || d.Profile != (awskind.ProfileSpec{}) || !d.BlockDevices[0].EBS.Encrypted || d.Metadata.Tokens != "required" {
		t.Errorf("%+v", d)
	}
	if strings.Contains(script, "slipway-node") {
		t.Error("a bastion is given an agent")
	}
	if lb := nodeAt[awskind.LoadBalancer](t, g, "bastion"); lb.Scheme != "internet-facing" {
		t.Errorf("%+v", lb)
	}
}

func TestSessionManagerNeedsNoOpenPort(t *testing.T) {
	g := build(t, with(t, func(s *manifest.Set) {
		s.Cluster.Spec.MachineAccess.SessionManager = true
		for i := range s.Groups {
			s.Groups[i].Spec.Image = "ami-0123456789abcdef0"
		}
	}))
	if got := sshFlows(g); len(got) > 0 {
		t.Error(got)
	}
	for _, role := range []string{"control-plane-a", "worker"} {
		p := string(nodeAt[awskind.IAMRolePolicy](t, g, role+"-session-manager").Document)
		if !strings.Contains(p, "ssmmessages:OpenDataChannel") || strings.Contains(p, "GetParameter") {
			t.Errorf("%s: %s", role, p)
		}
	}
}

func TestGroupWithRightsHasItsOwnRole(t *testing.T) {
	in := with(t, func(s *manifest.Set) {
		workers(s).IAM = v1alpha1.GroupIAM{
			Policies: []string{"arn:aws:iam::aws:policy/A"}, InlinePolicy: `{"Version":"2012-10-17","Statement":[]}`,
		}
	})
	g := build(t, in)
	r := nodeAt[awskind.IAMRole](t, g, "worker-workers")
	if r.Name != model.GroupRoleName("demo", "us-east-1", "workers") || r.Name == nodeAt[awskind.IAMRole](t, g, "worker").Name {
		t.Errorf("role %s", r.Name)
	}
	if diff := cmp.Diff([]string{"arn:aws:iam::aws:policy/A"}, r.ManagedPolicies); diff != "" {
		t.Error(diff)
	}
	own, shared := nodeAt[awskind.IAMRolePolicy](t, g, "worker-workers").Document, nodeAt[awskind.IAMRolePolicy](t, g, "worker").Document
	if own != shared || strings.Contains(string(own), "autoscaling:") {
		t.Errorf("it differs from that of other workers, or has a right to lifecycle actions:\n%s\n%s", own, shared)
	}
	if nodeAt[awskind.IAMRolePolicy](t, g, "worker-workers-additional").Document == "" {
		t.Error("it lacks its inline policy")
	}
	if p := nodeAt[awskind.LaunchTemplate](t, g, "workers").Data.Profile.Name.Addr(); p != "iam-instance-profile/worker-workers" {
		t.Errorf("its machines have %s", p)
	}
}

func TestGroupTemplate(t *testing.T) {
	const key = "arn:aws:kms:us-east-1:123456789012:key/k"
	g := build(t, with(t, func(s *manifest.Set) {
		s.Cluster.Spec.Tags = map[string]string{"team": "a", "env": "test"}
		w := workers(s)
		w.CloudLabels = map[string]string{"team": "b"}
		w.RootVolume.EncryptionKey = key
		w.AdditionalSecurityGroups = []string{"sg-0123456789abcdef0"}
	}))
	lt := nodeAt[awskind.LaunchTemplate](t, g, "workers")
	for what, tags := range map[string]awskind.Tags{
		"template": lt.Tags, "volumes": lt.Data.Tags[0].Tags, "group": nodeAt[awskind.AutoScalingGroup](t, g, "workers").Tags,
	} {
		if tags["team"] != "b" || tags["env"] != "test" || tags[awskind.TagCluster] != "demo" {
			t.Errorf("%s: %v", what, tags)
		}
	}
	if k, _ := lt.Data.BlockDevices[0].EBS.KMSKey.Literal(); k != key {
		t.Errorf("key %q", k)
	}
	if n := len(lt.Data.SecurityGroups); n != 2 || lt.Data.SecurityGroups[1].Literal() != "sg-0123456789abcdef0" {
		t.Errorf("groups %v", lt.Data.SecurityGroups)
	}
}

func TestAutoscalerTags(t *testing.T) {
	g := build(t, with(t, func(s *manifest.Set) {
		w := workers(s)
		w.Autoscale, w.MaxSize = true, new(9)
		w.NodeLabels, w.Taints = map[string]string{"a/b": "c"}, []string{"d=e:NoSchedule", "f:NoExecute"}
	}))
	got := awskind.Tags{}
	for k, v := range nodeAt[awskind.AutoScalingGroup](t, g, "workers").Tags {
		if rest, ok := strings.CutPrefix(k, "k8s.io/cluster-autoscaler/"); ok {
			got[rest] = v
		}
	}
	if diff := cmp.Diff(awskind.Tags{
		"enabled": "true", "demo": "owned", "node-template/label/a/b": "c", "node-template/label/slipway.dev/group": "workers",
		"node-template/taint/d": "e:NoSchedule", "node-template/taint/f": ":NoExecute", "node-template/resources/ephemeral-storage": "64Gi",
	}, got); diff != "" {
		t.Error(diff)
	}
}

// TestAdditionalUserData reads user data as cloud-init does: our script whole, and first among the parts.
func TestAdditionalUserData(t *testing.T) {
	extra := []v1alpha1.UserData{
		{Name: "a.sh", Type: "text/x-shellscript", Content: "#!/bin/sh\necho é --slipway\n--slipway\n"},
		{Name: "b.yaml", Type: "text/cloud-config", Content: "#cloud-config\ntimezone: Etc/UTC"},
	}
	plain := build(t, input(t, manifest.NewSetOptions{}))
	g := build(t, with(t, func(s *manifest.Set) { workers(s).AdditionalUserData = extra }))
	text := func(g *graph.Graph) string {
		r, _ := graph.Resolve(nodeAt[awskind.LaunchTemplate](t, g, "workers"), func(graph.Symbol) (string, bool) { return "x", true }).(awskind.LaunchTemplate)
		var b strings.Builder
		for _, p := range r.Data.UserData.Parts() {
			b.WriteString(p.Literal)
		}
		return b.String()
	}
	msg, err := mail.ReadMessage(strings.NewReader(text(g)))
	if err != nil {
		t.Fatal(err)
	}
	_, params, err := mime.ParseMediaType(msg.Header.Get("Content-Type"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for r := multipart.NewReader(msg.Body, params["boundary"]); ; {
		p, err := r.NextPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(p)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, p.FileName()+" "+strings.TrimSuffix(string(body), "\n"))
	}
	if diff := cmp.Diff([]string{
		"00-slipway " + strings.TrimSuffix(text(plain), "\n"), "a.sh " + strings.TrimSuffix(extra[0].Content, "\n"), "b.yaml " + extra[1].Content,
	}, got); diff != "" {
		t.Error(diff)
	}
}

// TestLaunchHooks checks that only groups with a warm pool wait for their machines, and that the agent has the same name.
func TestLaunchHooks(t *testing.T) {
	for _, warm := range []bool{false, true} {
		s := input(t, manifest.NewSetOptions{ControlPlaneCount: 3})
		for i, g := range s.Groups {
			if warm && g.Spec.Role == v1alpha1.RoleWorker {
				s.Groups[i].Spec.WarmPool = v1alpha1.WarmPool{MinSize: 1, PoolState: "Stopped"}
			}
		}
		g := build(t, s)
		n := g.Node("lifecycle-hook/workers.launch")
		if (n != nil) != warm {
			t.Fatalf("with a pool: %t, hook: %v", warm, n)
		}
		if !warm {
			continue
		}
		h := n.Resource.(awskind.LifecycleHook)
		if h.Name != node.LaunchHook || h.DefaultResult != "CONTINUE" || h.Transition != "autoscaling:EC2_INSTANCE_LAUNCHING" || h.HeartbeatTimeout != 300 || h.Group.Addr() != "autoscaling-group/workers" {
			t.Errorf("%+v", h)
		}
	}
}

// TestTerminationHooks checks that groups of workers drain their machines.
func TestTerminationHooks(t *testing.T) {
	g := build(t, input(t, manifest.NewSetOptions{ControlPlaneCount: 3}))
	got := map[string]int{}
	for _, n := range g.Nodes() {
		h, ok := n.Resource.(awskind.LifecycleHook)
		if !ok {
			continue
		}

		if h.Name != model.TerminationHook || h.DefaultResult != "CONTINUE" || h.Transition != "autoscaling:EC2_INSTANCE_TERMINATING" {
			t.Errorf("%s: %+v", n.Addr, h)
		}

		got[string(h.Group.Addr())] = h.HeartbeatTimeout
	}

	if diff := cmp.Diff(map[string]int{"autoscaling-group/workers": 60}, got); diff != "" {
		t.Error(diff)
	}
}

// TestRepairPolicy checks that the policy of a group reaches its tag, and that the default one needs none.
func TestRepairPolicy(t *testing.T) {
	for want, r := range map[string]v1alpha1.Repair{
		"":            {},
		"off":         {Disabled: true},
		"10m0s 50%":   {MaxUnhealthyPercent: 50},
		"1h30m0s 20%": {NotReadyFor: "90m"},
	} {
		g := build(t, with(t, func(s *manifest.Set) { workers(s).Repair = r }))
		if got := nodeAt[awskind.AutoScalingGroup](t, g, "workers").Tags[awskind.TagRepair]; got != want {
			t.Errorf("%+v: tag %q, want %q", r, got, want)
		}
	}
}

// TestRepairPolicyOfControlPlane: each group of the control plane has the policy, and agents can read it.
func TestRepairPolicyOfControlPlane(t *testing.T) {
	for want, r := range map[string]v1alpha1.Repair{
		"":             {},
		"off":          {Disabled: true},
		"2m0s 5m0s":    {NotReadyFor: "2m", MinMachineAge: "5m"},
		"10m0s 1h0m0s": {MinMachineAge: "1h"},
	} {
		g := build(t, with(t, func(s *manifest.Set) { s.Groups[0].Spec.Repair = r }))
		if _, err := repair.ParsePeerPolicy(want); err != nil {
			t.Error(err)
		}

		for _, name := range []string{"control-plane-a", "control-plane-b", "control-plane-c"} {
			if got := nodeAt[awskind.AutoScalingGroup](t, g, name).Tags[awskind.TagRepair]; got != want {
				t.Errorf("%s, %+v: tag %q, want %q", name, r, got, want)
			}
		}
	}
}

// TestFallbackTypesOfControlPlane: each slot launches the next type if EC2 has no capacity for the first one, and never a
// spot instance.
func TestFallbackTypesOfControlPlane(t *testing.T) {
	g := build(t, with(t, func(s *manifest.Set) {
		s.Groups[0].Spec.MachineType = ""
		s.Groups[0].Spec.MixedInstancesPolicy.Instances = []string{"m6i.large", "m5.large"}
	}))
	for _, name := range []string{"control-plane-a", "control-plane-b", "control-plane-c"} {
		p := nodeAt[awskind.AutoScalingGroup](t, g, name).MixedInstances
		want := []awskind.InstanceTypeOverride{{InstanceType: "m6i.large"}, {InstanceType: "m5.large"}}
		if diff := cmp.Diff(want, p.Launch.Overrides); diff != "" || p.Distribution.OnDemandPercentage != 100 || p.Distribution.OnDemandAllocation != "prioritized" {
			t.Errorf("%s: %+v\n%s", name, p.Distribution, diff)
		}
	}
}

// TestHostnames: the templates of machines say how EC2 names them, except those of a cluster that says nothing: its
// templates, and so its machines, do not change.
func TestHostnames(t *testing.T) {
	for hostnames, want := range map[string]awskind.HostnameOptions{
		"":                           {},
		v1alpha1.HostnamesByResource: {Type: "resource-name", ResourceNameA: true},
		v1alpha1.HostnamesByAddress:  {Type: "ip-name"},
	} {
		g := build(t, with(t, func(s *manifest.Set) { s.Cluster.Spec.Networking.Hostnames = hostnames }))
		for _, name := range []string{"control-plane-a", "workers"} {
			if got := nodeAt[awskind.LaunchTemplate](t, g, name).Data.Hostname; got != want {
				t.Errorf("hostnames %q: template %s has %+v, want %+v", hostnames, name, got, want)
			}
		}
	}
}

// TestFlannelBackend: the machines' security groups admit the port of the backend, and not that of the other one.
func TestFlannelBackend(t *testing.T) {
	for backend, want := range map[string]string{v1alpha1.FlannelVXLAN: "8472", v1alpha1.FlannelWireGuard: "51820"} {
		in, _ := flows(build(t, with(t, func(s *manifest.Set) { s.Cluster.Spec.Networking.Flannel.Backend = backend })))
		var got []string
		for _, f := range in {
			if strings.Contains(f, " udp ") && !strings.Contains(f, " udp 30000-32767") {
				got = append(got, f)
			}
		}
		var all []string
		for _, pair := range []string{"control-plane > control-plane", "control-plane > worker", "worker > control-plane", "worker > worker"} {
			all = append(all, pair+" udp "+want+"-"+want)
		}
		if diff := cmp.Diff(all, got); diff != "" {
			t.Errorf("%s: %s", backend, diff)
		}
	}
}

// TestVPCPodFlows: pods with addresses of the VPC need no overlay. Workers admit each other and the control plane at all ports; the control
// plane admits workers at named ports only.
func TestVPCPodFlows(t *testing.T) {
	in := with(t, func(*manifest.Set) {})
	in.Cluster.Spec.Networking.CNI = v1alpha1.CNIAmazonVPC
	all := map[string]bool{}
	for _, n := range build(t, in).Nodes() {
		rule, ok := n.Resource.(awskind.SecurityGroupIngress)
		if !ok {
			continue
		}
		if rule.FromPort == 8472 || rule.FromPort == 51820 {
			t.Errorf("%s is of an overlay", n.Addr)
		}
		if rule.Protocol != "-1" {
			continue
		}
		all[string(rule.Source.Addr())+" to "+string(rule.Group.Addr())] = true
		if rule.FromPort != 0 || rule.ToPort != 0 || rule.CIDR != "" {
			t.Errorf("%s: %+v", n.Addr, rule)
		}
	}
	want := map[string]bool{
		"security-group/worker to security-group/worker":               true,
		"security-group/control-plane to security-group/worker":        true,
		"security-group/control-plane to security-group/control-plane": true,
	}
	if !maps.Equal(all, want) {
		t.Errorf("all ports are open from %v, want %v", all, want)
	}
}

// TestCiliumFlows: machines exchange the packets of Cilium's overlay and its health checks, and no others that flannel does not need.
func TestCiliumFlows(t *testing.T) {
	rules := func(cni string) map[string]bool {
		in := with(t, func(*manifest.Set) {})
		if cni != "" {
			in.Cluster.Spec.Networking.CNI = cni
			in.Cluster.Spec.Networking.Flannel.Backend = ""
		}
		out := map[string]bool{}
		for _, n := range build(t, in).Nodes() {
			if rule, ok := n.Resource.(awskind.SecurityGroupIngress); ok {
				out[fmt.Sprintf("%s %d from %s to %s", rule.Protocol, rule.FromPort, rule.Source.Addr(), rule.Group.Addr())] = true
			}
		}

		return out
	}
	flannel, cilium := rules(""), rules(v1alpha1.CNICilium)
	more := map[string]bool{}
	for rule := range cilium {
		if !flannel[rule] {
			more[rule] = true
		}
	}
	want := map[string]bool{}
	for _, from := range []string{"control-plane", "worker"} {
		for _, to := range []string{"control-plane", "worker"} {
			want["tcp 4240 from security-group/"+from+" to security-group/"+to] = true
		}
	}
	if !maps.Equal(more, want) || len(cilium) != len(flannel)+len(want) {
		t.Errorf("flannel has %d rules, Cilium %d, and more than flannel %v, want %v", len(flannel), len(cilium), more, want)
	}
}
