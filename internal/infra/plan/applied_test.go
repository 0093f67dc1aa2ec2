// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// everyKind are resources with every sort of property: text, number, truth, lists, maps, structs, references.
func everyKind() map[string]graph.Resource {
	return map[string]graph.Resource{
		"vpc/a":           awskind.VPC{CIDR: "10.0.0.0/16", DNSHostnames: true, Tags: awskind.Tags{"a": "b"}},
		"target-group/a":  awskind.TargetGroup{Name: "x", Port: 6443, HealthCheckInterval: 10, Attributes: map[string]string{"k": "v"}},
		"load-balancer/a": awskind.LoadBalancer{Name: "x", Subnets: []graph.Ref[awskind.Subnet]{graph.UnmanagedRef[awskind.Subnet]("subnet-1")}},
		"launch-template/a": awskind.LaunchTemplate{Name: "x", Data: awskind.LaunchTemplateData{
			ImageID: "ami-1", UserData: graph.LiteralText("hello").Base64(), Profile: awskind.ProfileSpec{Name: graph.UnmanagedRef[awskind.InstanceProfile]("p")},
			BlockDevices: []awskind.BlockDevice{{DeviceName: "/dev/xvda", EBS: awskind.EBS{VolumeSize: 20, Encrypted: true, KMSKey: graph.LiteralText("arn")}}},
			Tags:         []awskind.TagSpecification{{ResourceType: "volume", Tags: awskind.Tags{"a": "b"}}},
		}},
		"iam-role/a": awskind.IAMRole{Name: "x", TrustPolicy: graph.CanonicalJSON(`{"b":1,"a":2}`)},
	}
}

// TestAppliedComesBack: after a round trip through the record the planner sees no difference.
func TestAppliedComesBack(t *testing.T) {
	var a plan.LastApplied
	for addr, r := range everyKind() {
		g := &graph.Graph{}
		graph.Add(g, "a", r)
		p, _ := plan.Compute(g, nil, plan.Options{})
		list, err := p.AppliedResources(nil)
		if err != nil {
			t.Fatal(addr, err)
		}
		a.Resources = append(a.Resources, list...)
	}
	body, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := plan.ParseLastApplied(body)
	if err != nil {
		t.Fatal(err)
	}
	g, err := back.ToGraph(awskind.AllKinds())
	if err != nil {
		t.Fatal(err)
	}
	for addr, r := range everyKind() {
		got := g.Node(graph.Addr(addr)).Resource
		if diff := cmp.Diff(plan.Diff(r, got), plan.Diff(got, r)); diff != "" || len(plan.Diff(r, got)) > 0 {
			t.Errorf("%s: %v", addr, plan.Diff(r, got))
		}
		was, is := graph.Fields(r), graph.Fields(got)
		if len(was) != len(is) {
			t.Errorf("%s has %d properties, not %d", addr, len(is), len(was))
		}
		for i := range was {
			if !graph.EqualValues(was[i].Value, is[i].Value) {
				t.Errorf("%s %s: %v, not %v", addr, was[i].Property, is[i].Value, was[i].Value)
			}
		}
	}
}

func TestAppliedIsRefused(t *testing.T) {
	for _, body := range []string{
		``, `[]`, `{"version":2,"resources":[]}`, `{"version":1,"resources":[]} x`,
	} {
		if _, err := plan.ParseLastApplied([]byte(body)); err == nil {
			t.Errorf("%s is accepted", body)
		}
	}
	for _, r := range []string{
		`{"address":"vpc/a","kind":"none","properties":{}}`, `{"address":"vpc/a","kind":"subnet","properties":{}}`, `{"address":"vpc","kind":"vpc","properties":{}}`,
		`{"address":"vpc/a","kind":"vpc","properties":{"CidrBlock":1}}`, `{"address":"vpc/a","kind":"vpc","properties":{"None":"x"}}`,
		`{"address":"vpc/a","kind":"vpc","properties":{"Tags":"x"}}`, `{"address":"vpc/a","kind":"vpc","properties":{"Tags":{"a":1}}}`,
		`{"address":"vpc/a","kind":"vpc","properties":{"EnableDnsSupport":"true"}}`, `{"address":"volume/a","kind":"volume","properties":{"Size":1.5}}`,
		`{"address":"vpc/a","kind":"vpc","properties":{}},{"address":"vpc/a","kind":"vpc","properties":{}}`,
	} {
		a, err := plan.ParseLastApplied(fmt.Appendf(nil, `{"version":1,"resources":[%s]}`, r))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.ToGraph(awskind.AllKinds()); err == nil {
			t.Errorf("%s is accepted", r)
		}
	}
}

// TestCauses: the cause of a deviation.
func TestCauses(t *testing.T) {
	want := &graph.Graph{}
	graph.Add(want, "main", awskind.VPC{CIDR: "10.0.0.0/16", DNSSupport: true})
	graph.Add(want, "gone", awskind.EIP{Domain: "vpc"})
	have := []plan.ActualResource{
		{Addr: "vpc/main", ID: "vpc-1", Resource: awskind.VPC{CIDR: "10.0.0.0/16"}},
		{ID: "sgr-1", Resource: awskind.SecurityGroupIngress{Group: graph.UnmanagedRef[awskind.SecurityGroup]("sg-1"), Protocol: "tcp", FromPort: 22, ToPort: 22}},
	}
	p, _ := plan.Compute(want, have, plan.Options{})
	tries := func(steps map[graph.Addr]plan.Action) []plan.Attempt { return []plan.Attempt{{Token: 1, Steps: steps}} }
	for name, tt := range map[string]struct {
		tries    []plan.Attempt
		recorded bool
		want     map[graph.Addr]plan.DriftCause
	}{
		"no attempt": {nil, true, map[graph.Addr]plan.DriftCause{
			"vpc/main": plan.ExternalChange, "eip/gone": plan.ExternalChange, "security-group-ingress/sg-1:tcp:22:22": plan.ExternalChange,
		}},
		"an attempt at the same": {
			tries(map[graph.Addr]plan.Action{"vpc/main": plan.Update, "eip/gone": plan.Delete, "security-group-ingress/ssh": plan.Create}), true,
			map[graph.Addr]plan.DriftCause{"vpc/main": plan.UnfinishedApply, "eip/gone": plan.UnfinishedApply, "security-group-ingress/sg-1:tcp:22:22": plan.UnfinishedApply},
		},
		"an attempt at something else": {
			tries(map[graph.Addr]plan.Action{"vpc/other": plan.Update, "security-group-ingress/ssh": plan.Update}), true,
			map[graph.Addr]plan.DriftCause{"vpc/main": plan.ExternalChange, "eip/gone": plan.ExternalChange, "security-group-ingress/sg-1:tcp:22:22": plan.ExternalChange},
		},
		"nothing is recorded": {nil, false, map[graph.Addr]plan.DriftCause{
			"vpc/main": plan.NoApplyRecorded, "eip/gone": plan.NoApplyRecorded, "security-group-ingress/sg-1:tcp:22:22": plan.NoApplyRecorded,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got := map[graph.Addr]plan.DriftCause{}
			for _, d := range p.Deviations(tt.tries, tt.recorded) {
				got[d.Addr] = d.ChangedBy
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestVolumesDoNotShrink: AWS rejects it, so the plan has an error before the first call.
func TestVolumesDoNotShrink(t *testing.T) {
	for size, refused := range map[int]bool{10: true, 20: false, 30: false} {
		g := &graph.Graph{}
		graph.Add(g, "etcd-a", awskind.Volume{Zone: "us-east-1a", Size: size})
		_, fs := plan.Compute(g, []plan.ActualResource{{Addr: "volume/etcd-a", ID: "vol-1", Resource: awskind.Volume{Zone: "us-east-1a", Size: 20}}}, plan.Options{})
		if (fs.Err() != nil) != refused {
			t.Errorf("from 20 to %d: %v", size, fs.Err())
		}
	}
}

func FuzzParseApplied(f *testing.F) {
	f.Add([]byte(`{"version":1,"token":1,"resources":[{"address":"vpc/a","kind":"vpc","properties":{"CidrBlock":"10.0.0.0/16","Tags":{"a":"b"}}}],"attempts":[{"token":2,"steps":{"vpc/a":"update"}}]}`))
	f.Add([]byte(`{"version":1,"resources":[{"address":"launch-template/a","kind":"launch-template","properties":{"LaunchTemplateData":{"BlockDeviceMappings":[{"Ebs":{"VolumeSize":1}}]}}}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		a, err := plan.ParseLastApplied(body)
		if err != nil {
			return
		}
		first, err := a.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := plan.ParseLastApplied(first)
		if err != nil {
			t.Fatal(err)
		}
		if second, err := again.Encode(); err != nil || !bytes.Equal(first, second) {
			t.Fatalf("%s\n%s", first, second)
		}
		g, err := a.ToGraph(awskind.AllKinds())
		if err != nil {
			return
		}
		p, _ := plan.Compute(g, nil, plan.Options{})
		if _, err := json.Marshal(p.Deviations(a.Attempts, true)); err != nil {
			t.Fatal(err)
		}
	})
}
