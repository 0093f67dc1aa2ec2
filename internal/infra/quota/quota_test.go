// SPDX-License-Identifier: Apache-2.0

package quota_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/infra/quota"
)

// cluster has a VPC, two addresses, a load balancer, a role with an instance profile, three machines of two processors and one that does not count, and groups
// with three rules in and one out.
func cluster() *graph.Graph {
	g := &graph.Graph{}
	vpc := graph.Add(g, "main", awskind.VPC{CIDR: "10.0.0.0/16"})
	graph.Add(g, "a", awskind.EIP{Domain: "vpc"})
	graph.Add(g, "b", awskind.EIP{Domain: "vpc"})
	graph.Add(g, "api", awskind.LoadBalancer{Name: "api"})
	graph.Add(g, "worker", awskind.InstanceProfile{Name: "worker", Roles: []graph.Ref[awskind.IAMRole]{graph.Add(g, "worker", awskind.IAMRole{Name: "worker"})}})
	group := graph.Add(g, "worker", awskind.SecurityGroup{VPC: vpc, Name: "worker"})
	for _, port := range []int{1, 2, 3} {
		graph.Add(g, "port-"+string(rune('0'+port)), awskind.SecurityGroupIngress{Group: group, Protocol: "tcp", FromPort: port, ToPort: port})
	}
	graph.Add(g, "all", awskind.SecurityGroupEgress{Group: group, Protocol: "-1"})
	for name, machines := range map[string]int{"m5.large": 3, "p4d.24xlarge": 1} {
		template := graph.Add(g, name, awskind.LaunchTemplate{Name: name, Data: awskind.LaunchTemplateData{InstanceType: name}})
		graph.Add(g, name, awskind.AutoScalingGroup{Name: name, MinSize: machines, MaxSize: 9, Template: awskind.TemplateSpec{ID: template}})
	}
	return g
}

func vcpus(string) int { return 2 }

func TestNeeds(t *testing.T) {
	t.Parallel()
	got := map[quota.Code]int{}
	for _, n := range quota.RequirementsOf(cluster(), vcpus) {
		got[n.Code] = n.Amount
	}
	want := map[quota.Code]int{quota.VPCQuota(): 1, quota.ElasticIPQuota(): 2, quota.VCPUQuota(): 6, quota.SecurityGroupRuleQuota(): 3, quota.LoadBalancerQuota(): 1, quota.RoleQuota(): 1, quota.InstanceProfileQuota(): 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("needs (-want +got):\n%s", diff)
	}
	if got := quota.RequirementsOf(&graph.Graph{}, vcpus); len(got) != 0 {
		t.Errorf("an empty graph needs %v", got)
	}
}

func TestMixed(t *testing.T) {
	t.Parallel()
	g := &graph.Graph{}
	graph.Add(g, "spot", awskind.AutoScalingGroup{MinSize: 7, MixedInstances: awskind.MixedInstancesPolicy{
		Launch:       awskind.MixedLaunch{Overrides: []awskind.InstanceTypeOverride{{InstanceType: "m5.large"}, {InstanceType: "m5.xlarge"}, {InstanceType: "p5.48xlarge"}}},
		Distribution: awskind.InstancesDistribution{OnDemandBase: 2, OnDemandPercentage: 50},
	}})
	size := map[string]int{"m5.large": 2, "m5.xlarge": 4, "p5.48xlarge": 192}
	needs := quota.RequirementsOf(g, func(t string) int { return size[t] })
	if len(needs) != 1 || needs[0].Amount != (2+3)*4 {
		t.Errorf("two on-demand machines and half of the other five, of up to four processors: %+v", needs)
	}
}

func TestStandard(t *testing.T) {
	t.Parallel()
	for machine, want := range map[string]bool{
		"t3.large": true, "m7g.large": true, "c5n.large": true, "i4i.large": true, "r5.large": true, "x2gd.large": false, "p5.48xlarge": false,
		"g5.xlarge": false, "inf1.xlarge": false, "trn1.2xlarge": false, "dl1.24xlarge": false, "mac1.metal": false, "hpc7a.96xlarge": false,
		"u-6tb1.metal": false, "": false,
	} {
		if got := quota.IsStandardFamily(machine); got != want {
			t.Errorf("%q: %v", machine, got)
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	needs := quota.RequirementsOf(cluster(), vcpus)
	limits := map[quota.Code]int{quota.VPCQuota(): 5, quota.ElasticIPQuota(): 5, quota.VCPUQuota(): 8, quota.SecurityGroupRuleQuota(): 2}
	for _, tc := range []struct {
		name string
		used map[quota.Code]int
		want []string
	}{
		{"room for all but rules", map[quota.Code]int{quota.VPCQuota(): 4, quota.ElasticIPQuota(): 3, quota.VCPUQuota(): 2}, []string{"rules per security group"}},
		{
			"others fill it",
			map[quota.Code]int{quota.VPCQuota(): 5, quota.ElasticIPQuota(): 4, quota.VCPUQuota(): 3},
			[]string{"VPCs per Region\" is 5, and other resources use 5", "Elastic IPs\" is 5, and other resources use 4", "Standard", "rules per security group"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			fs := quota.Check(needs, limits, tc.used)
			if len(fs) != len(tc.want) {
				t.Fatalf("%d findings: %v", len(fs), fs)
			}
			for i, f := range fs {
				if !strings.Contains(f.Message, tc.want[i]) || !strings.Contains(f.Hint, "request-service-quota-increase") || f.Path == "" {
					t.Errorf("%v is not about %s", f, tc.want[i])
				}
			}
		})
	}
	if fs := quota.Check(needs, nil, nil); len(fs) != 0 {
		t.Errorf("with no limit known: %v", fs)
	}
}

func TestTouched(t *testing.T) {
	t.Parallel()
	p, findings := plan.Compute(cluster(), nil, plan.Options{})
	if findings.Err() != nil {
		t.Fatal(findings)
	}
	needs := quota.RequirementsOf(cluster(), vcpus)
	if got := quota.FilterIncreased(needs, p); len(got) != len(needs) {
		t.Errorf("all of it is new, and %d of %d are checked", len(got), len(needs))
	}
	if got := quota.FilterIncreased(needs, plan.Plan{}); len(got) != 0 {
		t.Errorf("nothing is new, and %v is checked", got)
	}
	for property, want := range map[string]int{
		"MinSize": 1, "LaunchTemplateData.InstanceType": 1, "MixedInstancesPolicy.LaunchTemplate.Overrides": 1, "LaunchTemplate.Version": 0, "MaxSize": 0,
	} {
		change := plan.Step{Action: plan.Update, Kind: "autoscaling-group", Changes: []plan.Change{{Property: property}}}
		if got := quota.FilterIncreased(needs, plan.Plan{Steps: []plan.Step{change}}); len(got) != want {
			t.Errorf("%s changes, and %v is checked", property, got)
		}
	}
}
