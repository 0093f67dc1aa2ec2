// SPDX-License-Identifier: Apache-2.0

// Package quota holds a cluster against the limits of its AWS account: what its graph takes of each, and whether that
// fits beside what others use. It makes no call: limits and usage are given to it.
package quota

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// Code names a quota as Service Quotas does: the service's code and the quota's.
type Code struct{ Service, Quota string }

// String is the code as `aws service-quotas` takes it.
func (c Code) String() string { return c.Service + " " + c.Quota }

// VPCQuota is how many VPCs a region may have.
func VPCQuota() Code { return Code{"vpc", "L-F678F1CE"} }

// ElasticIPQuota is how many elastic IP addresses a region may have.
func ElasticIPQuota() Code { return Code{"ec2", "L-0263D0A3"} }

// VCPUQuota is how many virtual processors on-demand machines of the standard families (A, C, D, H, I, M, R, T, Z) may have.
func VCPUQuota() Code { return Code{"ec2", "L-1216C47A"} }

// SecurityGroupRuleQuota is how many rules a security group may have in each direction.
func SecurityGroupRuleQuota() Code { return Code{"vpc", "L-0EA8095F"} }

// Requirement is what a cluster takes of a quota.
type Requirement struct {
	Code Code
	// Name is the quota's own, as the console shows it.
	Name string
	// Amount is how much the cluster takes, all of it. Of [SecurityGroupRuleQuota] the most that one group takes.
	Amount int
	// Source is what takes it, and Fix how to take less.
	Source, Remedy string
	// Shared says that others of the account take of the same.
	Shared bool
	// kinds are those whose resources take of it.
	kinds []string
}

// RequirementsOf is what g takes, in the order of the checks. What g takes nothing of is left out. vcpus tells how many virtual
// processors a machine of a type has; 0 if it is not known.
func RequirementsOf(g *graph.Graph, vcpus func(machineType string) int) []Requirement {
	count := map[string]int{}
	rules := map[string]int{}
	processors := 0

	for _, n := range g.Nodes() {
		count[n.Resource.Kind().Name]++
		switch r := n.Resource.(type) {
		case awskind.SecurityGroupIngress:
			rules[string(r.Group.Addr())+" in"]++
		case awskind.SecurityGroupEgress:
			rules[string(r.Group.Addr())+" out"]++
		case awskind.AutoScalingGroup:
			processors += onDemandCount(r) * vcpusPerMachine(g, r, vcpus)
		}
	}

	group := ""
	most := 0

	for name, n := range rules {
		if n > most || n == most && name < group {
			group = name
			most = n
		}
	}

	vpc := awskind.VPC{}.Kind().Name
	eip := awskind.EIP{}.Kind().Name
	all := []Requirement{
		{
			Code:   VPCQuota(),
			Name:   "VPCs per Region",
			Amount: count[vpc],
			Shared: true,
			kinds:  []string{vpc},
			Source: "cluster: spec.networking",
			Remedy: "name an existing VPC in spec.networking.networkID",
		},
		{
			Code:   ElasticIPQuota(),
			Name:   "EC2-VPC Elastic IPs",
			Amount: count[eip],
			Shared: true,
			kinds:  []string{eip},
			Source: "cluster: spec.networking",
			Remedy: "take fewer NAT gateways (spec.networking.natGateways)",
		},
		{
			Code:   VCPUQuota(),
			Name:   "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances",
			Amount: processors,
			Shared: true,
			kinds:  []string{awskind.AutoScalingGroup{}.Kind().Name},
			Source: "instancegroups: spec.minSize, spec.machineType",
			Remedy: "take fewer or smaller machines",
		},
		{
			Code:   SecurityGroupRuleQuota(),
			Name:   "Inbound or outbound rules per security group",
			Amount: most,
			Source: group,
			Remedy: "allow fewer ranges",
			kinds: []string{
				awskind.SecurityGroupIngress{}.Kind().Name,
				awskind.SecurityGroupEgress{}.Kind().Name,
			},
		},
	}

	return slices.DeleteFunc(all, func(n Requirement) bool { return n.Amount == 0 })
}

// onDemandCount is how many machines of a group are on-demand ones: spot machines have a quota of their own.
func onDemandCount(r awskind.AutoScalingGroup) int {
	all := max(r.MinSize, r.DesiredCapacity)
	d := r.MixedInstances.Distribution
	if len(r.MixedInstances.Launch.Overrides) == 0 {
		return all
	}

	above := max(all-d.OnDemandBase, 0)

	return min(all, d.OnDemandBase) + (above*d.OnDemandPercentage+99)/100 // Auto Scaling rounds up
}

// vcpusPerMachine is how much a machine of a group counts: the largest that it may take.
func vcpusPerMachine(g *graph.Graph, r awskind.AutoScalingGroup, vcpus func(string) int) int {
	var types []string
	for _, o := range r.MixedInstances.Launch.Overrides {
		types = append(types, o.InstanceType)
	}

	if node := g.Node(r.Template.ID.Addr()); node != nil {
		if template, ok := node.Resource.(awskind.LaunchTemplate); ok {
			types = append(types, template.Data.InstanceType)
		}
	}

	most := 0

	for _, t := range types {
		if IsStandardFamily(t) {
			most = max(most, vcpus(t))
		}
	}

	return most
}

// IsStandardFamily tells whether a machine type's processors count against [VCPUQuota]: accelerators, Macs and HPC have quotas of
// their own, and the spelling of their series begins with other letters, but for these.
func IsStandardFamily(machineType string) bool {
	series := machineType[:len(machineType)-len(strings.TrimLeft(machineType, "abcdefghijklmnopqrstuvwxyz"))]
	if series == "" || slices.Contains([]string{"dl", "hpc", "inf", "mac", "trn"}, series) {
		return false
	}

	return slices.Contains([]string{"a", "c", "d", "h", "i", "m", "r", "t", "z"}, series[:1])
}

// FilterIncreased are the needs that a plan makes larger: with the others, what exists fits already.
func FilterIncreased(needs []Requirement, p plan.Plan) []Requirement {
	return slices.DeleteFunc(slices.Clone(needs), func(n Requirement) bool {
		return !slices.ContainsFunc(p.Steps, func(s plan.Step) bool {
			return s.Action == plan.Create && slices.Contains(n.kinds, s.Kind) ||
				n.Code == VCPUQuota() && mayNeedVCPUs(s)
		})
	})
}

// mayNeedVCPUs says whether a change may let a group take more of them: by its size or by its machines' types.
func mayNeedVCPUs(s plan.Step) bool {
	return s.Action == plan.Update && slices.ContainsFunc(s.Changes, func(c plan.Change) bool {
		top, _, _ := strings.Cut(c.Property, ".")
		return slices.Contains([]string{"MinSize", "DesiredCapacity", "MixedInstancesPolicy"}, top) ||
			c.Property == "LaunchTemplateData.InstanceType"
	})
}

// Check finds the needs that do not fit. Limits that are not known are not checked; used is what others take.
func Check(needs []Requirement, limits, used map[Code]int) (fs diag.Findings) {
	for _, n := range needs {
		limit, known := limits[n.Code]
		if !known || used[n.Code]+n.Amount <= limit {
			continue
		}

		others := ""
		if n.Shared {
			others = fmt.Sprintf(" and others use %d", used[n.Code])
		}

		fs.Errorf(
			n.Source,
			strconv.Itoa(n.Amount),
			n.Remedy+fmt.Sprintf(
				", or ask for more: aws service-quotas request-service-quota-increase --service-code %s --quota-code %s --desired-value %d",
				n.Code.Service,
				n.Code.Quota,
				used[n.Code]+n.Amount,
			),
			"the quota %q is %d%s",
			n.Name,
			limit,
			others,
		)
	}

	return fs
}
