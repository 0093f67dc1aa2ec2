// SPDX-License-Identifier: Apache-2.0

// Package quota compares a cluster with the service quotas of its AWS account: how much of each quota its
// graph requires, and whether that fits in addition to what other resources use. It makes no calls: limits
// and usage are passed in.
package quota

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// Code identifies a quota in AWS Service Quotas.
type Code struct {
	// Service is the service code, such as vpc.
	Service string
	// Quota is the quota code, such as L-F678F1CE.
	Quota string
}

// String returns the service code and the quota code, separated by a blank.
func (c Code) String() string { return c.Service + " " + c.Quota }

// VPCQuota is the number of VPCs in a region.
func VPCQuota() Code { return Code{Service: "vpc", Quota: "L-F678F1CE"} }

// ElasticIPQuota is the number of Elastic IP addresses in a region.
func ElasticIPQuota() Code { return Code{Service: "ec2", Quota: "L-0263D0A3"} }

// VCPUQuota is the number of vCPUs of running on-demand instances of the standard families (A, C, D, H, I, M,
// R, T, Z).
func VCPUQuota() Code { return Code{Service: "ec2", Quota: "L-1216C47A"} }

// LoadBalancerQuota is the number of Network Load Balancers in a region.
func LoadBalancerQuota() Code { return Code{Service: "elasticloadbalancing", Quota: "L-69A177A2"} }

// RoleQuota is the number of IAM roles in an account.
func RoleQuota() Code { return Code{Service: iamService, Quota: "L-FE177D64"} }

// InstanceProfileQuota is the number of instance profiles in an account.
func InstanceProfileQuota() Code { return Code{Service: iamService, Quota: "L-6E65F664"} }

// iamService is the service code of IAM. Its quotas are those of the account in all regions.
const iamService = "iam"

// SecurityGroupRuleQuota is the number of rules of a security group in each direction.
func SecurityGroupRuleQuota() Code { return Code{Service: "vpc", Quota: "L-0EA8095F"} }

// Requirement is how much of a quota a cluster requires.
type Requirement struct {
	// Code identifies the quota.
	Code Code
	// Name is the quota's name in the AWS console.
	Name string
	// Amount is the amount that the whole cluster requires. For [SecurityGroupRuleQuota] it is that of the
	// largest group.
	Amount int
	// Default is AWS's default value of a quota that can be raised and not lowered, so that the quota of an account need
	// not be read as long as the default suffices. 0: the quota must be read. Source:
	// https://docs.aws.amazon.com/vpc/latest/userguide/amazon-vpc-limits.html
	Default int
	// Source is the field of the manifest, or the resource, that requires it.
	Source string
	// Remedy is how to require less, as a hint.
	Remedy string
	// Shared is true if other resources of the account count against the same quota.
	Shared bool
	// NeedsResources is true if the cluster's resources must be known to tell what others use: AWS lists what
	// counts without tags.
	NeedsResources bool
	// kinds lists the names of the kinds whose resources count.
	kinds []string
}

// RequirementsOf returns the requirements of g, in a fixed order and without zero amounts. vcpus returns the
// vCPUs of an instance type; 0 if they are unknown.
func RequirementsOf(g *graph.Graph, vcpus func(machineType string) int) []Requirement {
	count := map[string]int{}
	rules := map[string]int{}
	totalVCPUs := 0

	for _, n := range g.Nodes() {
		count[n.Resource.Kind().Name]++
		switch r := n.Resource.(type) {
		case awskind.SecurityGroupIngress:
			rules[string(r.Group.Addr())+" in"]++
		case awskind.SecurityGroupEgress:
			rules[string(r.Group.Addr())+" out"]++
		case awskind.AutoScalingGroup:
			totalVCPUs += onDemandCount(r) * vcpusPerMachine(g, r, vcpus)
		}
	}

	group, most := largestCount(rules)
	all := []Requirement{
		vpcRequirement(count[awskind.VPC{}.Kind().Name]),
		elasticIPRequirement(count[awskind.EIP{}.Kind().Name]),
		vcpuRequirement(totalVCPUs),
		ruleRequirement(group, most),
		loadBalancerRequirement(count[awskind.LoadBalancer{}.Kind().Name]),
		roleRequirement(count[awskind.IAMRole{}.Kind().Name]),
		instanceProfileRequirement(count[awskind.InstanceProfile{}.Kind().Name]),
	}

	return slices.DeleteFunc(all, func(n Requirement) bool { return n.Amount == 0 })
}

func vpcRequirement(amount int) Requirement {
	return Requirement{
		Code:    VPCQuota(),
		Default: 5,
		Name:    "VPCs per Region",
		Amount:  amount,
		Shared:  true,
		kinds:   []string{awskind.VPC{}.Kind().Name},
		Source:  "cluster: spec.networking",
		Remedy:  "name an existing VPC in spec.networking.networkID",
	}
}

func elasticIPRequirement(amount int) Requirement {
	return Requirement{
		Code:    ElasticIPQuota(),
		Default: 5,
		Name:    "EC2-VPC Elastic IPs",
		Amount:  amount,
		Shared:  true,
		kinds:   []string{awskind.EIP{}.Kind().Name},
		Source:  "cluster: spec.networking",
		Remedy:  "use fewer NAT gateways (spec.networking.natGateways)",
	}
}

func vcpuRequirement(amount int) Requirement {
	return Requirement{
		Code:   VCPUQuota(),
		Name:   "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances",
		Amount: amount,
		Shared: true,
		kinds:  []string{awskind.AutoScalingGroup{}.Kind().Name},
		Source: "instancegroups: spec.minSize, spec.machineType",
		Remedy: "use fewer or smaller machines",
	}
}

// ruleRequirement returns the requirement of group, an address and a direction, with the most rules.
func ruleRequirement(group string, amount int) Requirement {
	return Requirement{
		Code:    SecurityGroupRuleQuota(),
		Default: 60,
		Name:    "Inbound or outbound rules per security group",
		Amount:  amount,
		Source:  group,
		Remedy:  "allow fewer CIDR ranges",
		kinds: []string{
			awskind.SecurityGroupIngress{}.Kind().Name,
			awskind.SecurityGroupEgress{}.Kind().Name,
		},
	}
}

// loadBalancerRequirement has AWS's default from
// https://docs.aws.amazon.com/elasticloadbalancing/latest/network/load-balancer-limits.html
func loadBalancerRequirement(amount int) Requirement {
	return Requirement{
		Code:           LoadBalancerQuota(),
		Default:        50,
		Name:           "Network Load Balancers per Region",
		Amount:         amount,
		Shared:         true,
		NeedsResources: true,
		kinds:          []string{awskind.LoadBalancer{}.Kind().Name},
		Source:         "cluster: spec.api.loadBalancer",
		Remedy:         "delete load balancers that are not in use",
	}
}

func roleRequirement(amount int) Requirement {
	return Requirement{
		Code:           RoleQuota(),
		Name:           "Roles per account",
		Amount:         amount,
		Shared:         true,
		NeedsResources: true,
		kinds:          []string{awskind.IAMRole{}.Kind().Name},
		Source:         "cluster: spec.iam, instancegroups: spec.iam",
		Remedy:         "delete IAM roles that are not in use, or use fewer groups and service accounts with roles of their own",
	}
}

func instanceProfileRequirement(amount int) Requirement {
	return Requirement{
		Code:           InstanceProfileQuota(),
		Name:           "Instance profiles per account",
		Amount:         amount,
		Shared:         true,
		NeedsResources: true,
		kinds:          []string{awskind.InstanceProfile{}.Kind().Name},
		Source:         "instancegroups: spec.iam",
		Remedy:         "delete instance profiles that are not in use, or use fewer groups with permissions of their own",
	}
}

// largestCount returns the name with the largest count; of equal ones the first by name.
func largestCount(counts map[string]int) (name string, most int) {
	for _, candidate := range slices.Sorted(maps.Keys(counts)) {
		if counts[candidate] > most {
			name = candidate
			most = counts[candidate]
		}
	}

	return name, most
}

// onDemandCount returns the number of on-demand instances of a group. Spot instances have a separate quota.
func onDemandCount(r awskind.AutoScalingGroup) int {
	all := max(r.MinSize, r.DesiredCapacity)
	d := r.MixedInstances.Distribution
	if len(r.MixedInstances.Launch.Overrides) == 0 {
		return all
	}

	above := max(all-d.OnDemandBase, 0)

	return min(all, d.OnDemandBase) + (above*d.OnDemandPercentage+99)/100 // Auto Scaling rounds up
}

// vcpusPerMachine returns the vCPUs of the largest instance type that a group may use.
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

// IsStandardFamily reports whether an instance type counts against [VCPUQuota]. Instances with accelerators,
// Mac and HPC instances have separate quotas; their series begin with other letters, except for those listed
// here.
func IsStandardFamily(machineType string) bool {
	series := machineType[:len(machineType)-len(strings.TrimLeft(machineType, "abcdefghijklmnopqrstuvwxyz"))]
	if series == "" || slices.Contains([]string{"dl", "hpc", "inf", "mac", "trn"}, series) {
		return false
	}

	return slices.Contains([]string{"a", "c", "d", "h", "i", "m", "r", "t", "z"}, series[:1])
}

// FilterIncreased returns the requirements that p increases. The others are already met by existing
// resources.
func FilterIncreased(requirements []Requirement, p plan.Plan) []Requirement {
	return slices.DeleteFunc(slices.Clone(requirements), func(n Requirement) bool {
		return !slices.ContainsFunc(p.Steps, func(s plan.Step) bool {
			return s.Action == plan.Create && slices.Contains(n.kinds, s.Kind) ||
				n.Code == VCPUQuota() && mayNeedVCPUs(s)
		})
	})
}

// mayNeedVCPUs reports whether a step may increase the vCPUs of a group: by its size or its instance types.
func mayNeedVCPUs(s plan.Step) bool {
	return s.Action == plan.Update && slices.ContainsFunc(s.Changes, func(c plan.Change) bool {
		top, _, _ := strings.Cut(c.Property, ".")
		return slices.Contains([]string{"MinSize", "DesiredCapacity", "MixedInstancesPolicy"}, top) ||
			c.Property == "LaunchTemplateData.InstanceType"
	})
}

// Check returns an error finding for each requirement that exceeds its limit. A quota without a limit is not
// checked. used is the amount that other resources of the account use.
func Check(requirements []Requirement, limits, used map[Code]int) (fs diag.Findings) {
	for _, n := range requirements {
		limit, known := limits[n.Code]
		if !known || used[n.Code]+n.Amount <= limit {
			continue
		}

		others := ""
		if n.Shared {
			others = fmt.Sprintf(", and other resources use %d", used[n.Code])
		}

		fs.Errorf(
			n.Source,
			strconv.Itoa(n.Amount),
			n.Remedy+", or request an increase: "+increaseCommand(n.Code, used[n.Code]+n.Amount),
			"the quota %q is %d%s",
			n.Name,
			limit,
			others,
		)
	}

	return fs
}

// increaseCommand returns the AWS CLI command that requests a quota increase. AWS has the quotas of IAM in us-east-1
// only ("IAM and AWS STS quotas" in the IAM user guide).
func increaseCommand(c Code, value int) string {
	region := ""
	if c.Service == iamService {
		region = "--region us-east-1 "
	}

	return fmt.Sprintf(
		"aws service-quotas request-service-quota-increase "+
			"%s--service-code %s --quota-code %s --desired-value %d",
		region,
		c.Service,
		c.Quota,
		value,
	)
}
