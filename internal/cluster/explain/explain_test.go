// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/cluster/explain"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// document returns a node document and its key.
func document(t *testing.T, version, cpu string) (key string, body []byte) {
	t.Helper()
	d := node.Document{
		APIVersion: v1alpha1.APIVersion, Kind: node.DocumentKind, Cluster: "demo", Group: "workers", Role: v1alpha1.RoleWorker,
		KubernetesVersion: version,
		Files:             []node.File{{Name: "kubelet", URL: "https://dl.k8s.io/v" + version + "/bin/linux/amd64/kubelet", SHA256: "aaaabbbbccccdddd" + version}},
		Images:            map[string]string{"pause": "registry.k8s.io/pause:3.10@sha256:0123456789abcdef"},
		Trust:             node.TrustBundle{KubernetesCA: "-----BEGIN CERTIFICATE-----\nsecret-looking\n-----END CERTIFICATE-----\n"},
		Kubelet:           v1alpha1.Kubelet{KubeReserved: map[string]string{"cpu": cpu}},
		Taints:            []string{"a=b:NoSchedule"},
	}
	body, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return "demo/machine/worker/documents/workers-" + version + ".json", body
}

// script returns user data that refers to a document.
func script(t *testing.T, key, agent string) string {
	t.Helper()
	text, err := node.UserData(node.BootConfig{
		Cluster: "demo", Group: "workers", Role: "worker", Region: "us-east-1",
		Agent:    node.Download{URL: "s3://b/demo/machine/agent/" + agent, SHA256: agent},
		Document: node.Download{URL: "s3://b/" + key, SHA256: key},
		API:      node.APIEndpoints{Internal: "internal.example.com"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func encode(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// message returns user data with a part of the operator's.
func message(own, content string) string {
	return "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"slipway\"\n\n--slipway\n" +
		"Content-Disposition: attachment; filename=\"00-slipway\"\n\n" + own + "\n--slipway\n" +
		"Content-Disposition: attachment; filename=\"setup.sh\"\n\n" + content + "\n--slipway--\n"
}

// TestUserDataIsShownAsSettings: a change of user data is shown as what differs in the documents that it refers
// to, and never with the text of certificates or of the operator's own parts.
func TestUserDataIsShownAsSettings(t *testing.T) {
	oldKey, oldBody := document(t, "1.36.0", "100m")
	newKey, newBody := document(t, "1.36.1", "200m")
	documents := map[string][]byte{oldKey: oldBody, newKey: newBody}
	unreadable := map[string][]byte{newKey: newBody}
	const change = "LaunchTemplateData.UserData"
	for name, tt := range map[string]struct {
		old, now  string
		documents map[string][]byte
		want      []string
	}{
		"document": {script(t, oldKey, "a1"), script(t, newKey, "a1"), documents, []string{
			`kubernetesVersion: "1.36.0" → "1.36.1"`,
			`kubelet.kubeReserved.cpu: "100m" → "200m"`,
			`files.kubelet: "1.36.0 (aaaabbbbcccc)" → "1.36.1 (aaaabbbbcccc)"`,
		}},
		"agent":             {script(t, oldKey, "a1"), script(t, oldKey, "b2"), documents, []string{`agent: "v1, sha256 a1" → "v2, sha256 b2"`}},
		"deleted document":  {script(t, oldKey, "a1"), script(t, newKey, "a1"), unreadable, []string{`node document: "demo/machine" → "demo/machine"`}},
		"additional script": {message(script(t, oldKey, "a1"), "echo secret-1"), message(script(t, oldKey, "a1"), "echo secret-22"), documents, []string{`additionalUserData setup.sh: "`}},
		"bastion":           {"#!/bin/sh\n", "#!/bin/sh\ntrue\n", documents, nil},
	} {
		t.Run(name, func(t *testing.T) {
			steps := explain.Steps([]plan.Step{{
				Action: plan.Update, Addr: "launch-template/workers", Kind: "launch-template",
				Changes: []plan.Change{{Property: change, Old: encode(tt.old), New: encode(tt.now)}},
			}}, explain.Input{Tool: "v2", FormerTool: "v1", Document: func(key string) ([]byte, bool) {
				body, ok := tt.documents[key]
				return body, ok
			}})
			got := steps[0].Changes[0].Settings
			if len(got) != len(tt.want) {
				t.Fatalf("got %v, want %v", got, tt.want)
			}
			for i, want := range tt.want {
				if !strings.HasPrefix(got[i].String(), want) {
					t.Errorf("got %s, want %s", got[i], want)
				}
			}
			if text := plan.FormatSteps(steps); strings.Contains(text, "secret") {
				t.Errorf("shows a secret:\n%s", text)
			}
			if steps[0].Effect != plan.OnNewMachines {
				t.Errorf("effect %q", steps[0].Effect)
			}
		})
	}
}

// TestContent: new rules, policies and records show what they allow or point to.
func TestContent(t *testing.T) {
	group := graph.UnmanagedRef[awskind.SecurityGroup]("sg-1")
	policy := `{"Version":"2012-10-17","Statement":[{"Sid":"Read","Effect":"Allow","Action":["s3:GetObject","s3:ListBucket"],` +
		`"Resource":"arn:aws:s3:::b/*","Condition":{"StringEquals":{"aws:RequestTag/x":["y"]}}}]}`
	for want, r := range map[string]graph.Resource{
		"tcp 443 from 0.0.0.0/0":            awskind.SecurityGroupIngress{Protocol: "tcp", FromPort: 443, ToPort: 443, CIDR: "0.0.0.0/0"},
		"icmp type 3 code 4 from 0.0.0.0/0": awskind.SecurityGroupIngress{Protocol: "icmp", FromPort: 3, ToPort: 4, CIDR: "0.0.0.0/0"},
		"tcp 30000-32767 from sg-1":         awskind.SecurityGroupIngress{Protocol: "tcp", FromPort: 30000, ToPort: 32767, Source: group},
		"all traffic to ::/0":               awskind.SecurityGroupEgress{Protocol: "-1", CIDRv6: "::/0"},
		"A api.example.com → 192.0.2.1":     awskind.DNSRecord{Type: "A", Name: "api.example.com", Values: []graph.Text{graph.LiteralText("192.0.2.1")}},
		"A api.example.com → alias of lb":   awskind.DNSRecord{Type: "A", Name: "api.example.com", Alias: awskind.AliasTarget{DNSName: graph.LiteralText("lb")}},
		"0.0.0.0/0 → nat-1":                 awskind.Route{Destination: "0.0.0.0/0", NAT: graph.UnmanagedRef[awskind.NATGateway]("nat-1")},
		"Allow s3:GetObject, s3:ListBucket on arn:aws:s3:::b/* if aws:RequestTag/x StringEquals y": awskind.IAMRolePolicy{Document: graph.JSON(policy)},
	} {
		g := &graph.Graph{}
		graph.Add(g, "x", r)
		p, _ := plan.Compute(g, nil, plan.Options{})
		got := explain.Steps(p.Steps, explain.Input{})[0]
		if diff := cmp.Diff([]string{want}, got.Content); diff != "" {
			t.Error(diff)
		}
		if !strings.Contains(got.String(), ": "+want) {
			t.Errorf("%s does not show %s", got, want)
		}
	}
}

// TestPolicyChanges: a changed policy shows the statements that differ.
func TestPolicyChanges(t *testing.T) {
	old := `{"Statement":[{"Sid":"A","Effect":"Allow","Action":"s3:Get","Resource":"*"},{"Sid":"B","Effect":"Allow","Action":"x:Y","Resource":"*"}]}`
	now := `{"Statement":[{"Sid":"B","Effect":"Allow","Action":["x:Y"],"Resource":"*"},{"Sid":"C","Effect":"Deny","Action":"x:Z","Resource":"*"}]}`
	steps := explain.Steps([]plan.Step{{Action: plan.Update, Addr: "iam-role-policy/worker", Kind: "iam-role-policy", Changes: []plan.Change{
		{Property: "PolicyDocument", Old: old, New: now},
	}}}, explain.Input{})
	want := "  ~ iam-role-policy/worker\n      PolicyDocument:  # changes the permissions of running machines at once\n" +
		"        statement A: \"Allow s3:Get on *\" → (not set)\n        statement C: (not set) → \"Deny x:Z on *\"\n"
	if diff := cmp.Diff(want, plan.FormatSteps(steps)); diff != "" {
		t.Error(diff)
	}
}

// TestEffectsCoverEveryProperty: each property that AWS changes in place has an effect, and so has the deletion
// of each kind.
func TestEffectsCoverEveryProperty(t *testing.T) {
	table := explain.EffectsByKind()
	for _, r := range awskind.AllKinds() {
		kind := r.Kind().Name
		known, ok := table[kind]
		if !ok {
			t.Errorf("%s has no effects", kind)
			continue
		}
		properties := map[string]bool{}
		for _, f := range graph.Properties(r) {
			properties[f.Property] = true
			if !f.Immutable && !f.IsTags && !known[f.Property] {
				t.Errorf("%s has no effect of a change of %s", kind, f.Property)
			}
		}
		for p := range known {
			if !properties[p] {
				t.Errorf("%s has no property %s", kind, p)
			}
		}
	}
}

// TestEffects: what is said of the changes that an operator should think about.
func TestEffects(t *testing.T) {
	for _, tt := range []struct {
		kind, property string
		old, now       any
		rolls          bool
		want           plan.Effect
	}{
		{"autoscaling-group", "MaxSize", int64(4), int64(2), false, plan.Interrupts},
		{"autoscaling-group", "MaxSize", int64(2), int64(4), false, plan.NoEffect},
		{"autoscaling-group", "MaxSize", "10", "9", false, plan.Interrupts}, // of a stack
		{"autoscaling-group", "MaxSize", "9", "10", false, plan.NoEffect},
		{"autoscaling-group", "LaunchTemplate.Version", "1", "2", false, plan.OnNewMachines},
		{"autoscaling-group", "LaunchTemplate.Version", "1", "2", true, plan.RollsMachines},
		{"launch-template", "LaunchTemplateData.ImageId", "a", "b", false, plan.OnNewMachines},
		{"listener", "DefaultActions[0].TargetGroupArn", "a", "b", false, plan.Interrupts},
		{"route", "NatGatewayId", "a", "b", false, plan.Interrupts},
		{"target-group", "HealthCheckPath", "a", "b", false, plan.NoEffect},
		{"subnet", "Tags[Name]", "a", "b", false, plan.NoEffect},
	} {
		steps := explain.Steps([]plan.Step{{Action: plan.Update, Kind: tt.kind, Changes: []plan.Change{
			{Property: tt.property, Old: tt.old, New: tt.now}, {Property: "Tags[x]", Old: "a", New: "b"},
		}}}, explain.Input{Rolls: tt.rolls})
		if got := steps[0]; got.Effect != tt.want || got.Changes[0].Effect != tt.want || got.EffectText == "" {
			t.Errorf("%+v: %s", tt, fmt.Sprint(got.Effect, got.Changes[0].Effect))
		}
	}
}

// TestEffectsOfCreations: what interrupts its subnet or network when it is added does not if these are new as well.
func TestEffectsOfCreations(t *testing.T) {
	g := &graph.Graph{}
	vpc := graph.Add(g, "main", awskind.VPC{})
	table := graph.Add(g, "public", awskind.RouteTable{VPC: vpc})
	subnet := graph.Add(g, "public-a", awskind.Subnet{VPC: vpc})
	association := graph.Add(g, "public-a", awskind.RouteTableAssociation{Subnet: subnet, Table: table}).Addr()
	create := func(addrs ...graph.Addr) plan.Effect {
		var steps []plan.Step
		for _, addr := range addrs {
			kind, _, _ := strings.Cut(string(addr), "/")
			steps = append(steps, plan.Step{Action: plan.Create, Addr: addr, Kind: kind})
		}
		explained := explain.Steps(steps, explain.Input{Graph: g})
		return explained[len(explained)-1].Effect
	}
	if got := create(association); got != plan.Interrupts {
		t.Errorf("in an existing subnet: %s", got)
	}
	if got := create(table.Addr(), association); got != plan.Interrupts {
		t.Errorf("with a new table in an existing subnet: %s", got)
	}
	if got := create(subnet.Addr(), association); got != plan.NoEffect {
		t.Errorf("in a new subnet: %s", got)
	}
}

// TestNewMachinesTellTheirAuthority: the plan of new machines names the authority that they will trust.
func TestNewMachinesTellTheirAuthority(t *testing.T) {
	key, body := document(t, "1.36.0", "100m")
	g := &graph.Graph{}
	graph.Add(g, "workers", awskind.LaunchTemplate{Data: awskind.LaunchTemplateData{
		UserData: graph.LiteralText(script(t, key, "sum")).Base64(),
	}})
	p, findings := plan.Compute(g, nil, plan.Options{})
	if err := findings.Err(); err != nil {
		t.Fatal(err)
	}
	known := func(k string) ([]byte, bool) { return body, k == key }
	got := explain.Steps(p.Steps, explain.Input{Graph: g, Document: known})[0].Content
	if len(got) != 1 || !strings.HasPrefix(got[0], "Kubernetes CA: ") || !strings.Contains(got[0], "sha256 ") {
		t.Errorf("%q", got)
	}
	if got := explain.Steps(p.Steps, explain.Input{Graph: g})[0].Content; len(got) != 0 {
		t.Errorf("without the document: %q", got)
	}
}
