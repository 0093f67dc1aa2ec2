// SPDX-License-Identifier: Apache-2.0

package cleanup

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/driver"
	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// surveyNetwork finds the instances, security groups and network interfaces in the cluster's VPCs.
func (s *leftoverSurvey) surveyNetwork(ctx context.Context) error {
	vpcs := driver.NewFilters("vpc-id", slices.Sorted(maps.Keys(s.vpcs))...)
	states := driver.NewFilters("instance-state-name", "pending", "running", "stopping", "stopped")
	instances := ec2.NewDescribeInstancesPaginator(
		s.finder.ec2,
		&ec2.DescribeInstancesInput{Filters: slices.Concat(vpcs, states)},
	)

	for instances.HasMorePages() {
		page, err := instances.NextPage(ctx)
		if err != nil {
			return transport.Wrap(err, "list the instances in the cluster's VPC")
		}

		for _, r := range page.Reservations {
			for _, i := range r.Instances {
				s.classifyInstance(i)
			}
		}
	}

	interfaces := ec2.NewDescribeNetworkInterfacesPaginator(
		s.finder.ec2,
		&ec2.DescribeNetworkInterfacesInput{Filters: vpcs},
	)

	for interfaces.HasMorePages() {
		page, err := interfaces.NextPage(ctx)
		if err != nil {
			return transport.Wrap(err, "list the network interfaces in the cluster's VPC")
		}

		s.interfaces = append(s.interfaces, page.NetworkInterfaces...)
	}

	return s.surveySecurityGroups(ctx, vpcs)
}

// classifyInstance adds an instance as a leftover or as a blocker. Instances of the cluster's auto
// scaling groups are deleted with their group.
func (s *leftoverSurvey) classifyInstance(i ec2types.Instance) {
	tags := driver.FromEC2Tags(i.Tags)
	id := aws.ToString(i.InstanceId)
	group := tags[driver.ScalingGroupTag]

	switch {
	case slices.Contains(s.scalingGroups, group) && group != "":
	case s.finder.classify(tags) == ownedByCluster && group == "":
		r := driver.Instance{Subnet: graph.UnmanagedRef[awskind.Subnet](aws.ToString(i.SubnetId)), Tags: tags}
		for _, g := range i.SecurityGroups {
			r.SecurityGroups = append(
				r.SecurityGroups,
				graph.UnmanagedRef[awskind.SecurityGroup](aws.ToString(g.GroupId)),
			)
		}

		s.addLeftover(id, id, tags, r)

	default:
		s.addBlocker(aws.ToString(i.VpcId), newInstanceBlocker(i))
	}
}

// newInstanceBlocker returns an instance as a blocker.
func newInstanceBlocker(i ec2types.Instance) Blocker {
	tags := driver.FromEC2Tags(i.Tags)
	b := Blocker{
		ID:    aws.ToString(i.InstanceId),
		Kind:  "instance" + formatNameTag(tags),
		Owner: creatorFromTags(tags),
	}
	if g := tags[driver.ScalingGroupTag]; g != "" {
		b.Owner = "auto scaling group " + g
	}

	return b
}

// surveySecurityGroups finds the security groups that controllers created, and those of their rules
// that refer to another group. Two groups that refer to each other can be deleted only after these
// rules.
func (s *leftoverSurvey) surveySecurityGroups(ctx context.Context, vpcs []ec2types.Filter) error {
	var ids []string
	tagsByID := map[string]awskind.Tags{}
	pages := ec2.NewDescribeSecurityGroupsPaginator(
		s.finder.ec2,
		&ec2.DescribeSecurityGroupsInput{Filters: vpcs},
	)

	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return transport.Wrap(err, "list the security groups in the cluster's VPC")
		}

		for _, g := range page.SecurityGroups {
			tags := driver.FromEC2Tags(g.Tags)
			id := aws.ToString(g.GroupId)
			name := aws.ToString(g.GroupName)

			switch {
			case s.ownIDs[id] || name == "default":
			case s.finder.classify(tags) == ownedByCluster:
				s.addLeftover(id, name, tags, awskind.SecurityGroup{
					VPC:         graph.UnmanagedRef[awskind.VPC](aws.ToString(g.VpcId)),
					Name:        name,
					Description: aws.ToString(g.Description),
					Tags:        tags,
				})

				ids = append(ids, id)
				tagsByID[id] = tags

			default:
				s.addBlocker(aws.ToString(g.VpcId), newGroupBlocker(g))
			}
		}
	}

	rules, err := driver.ReadRules(ctx, s.finder.ec2, ids)
	for _, r := range rules {
		group, peer := ruleGroups(r)
		if peer != "" {
			r.Owner = s.describeCreator(tagsByID[group])
			s.mu.Lock()
			s.result.Resources = append(s.result.Resources, r)
			s.mu.Unlock()
		}
	}

	return err
}

// ruleGroups returns the id of the security group of a rule, and of the group that it refers to, if
// any.
func ruleGroups(rule plan.ActualResource) (group, peer string) {
	switch r := rule.Resource.(type) {
	case awskind.SecurityGroupIngress:
		return r.Group.Literal(), r.Source.Literal()
	case awskind.SecurityGroupEgress:
		return r.Group.Literal(), r.Destination.Literal()
	}

	return "", ""
}

// newGroupBlocker returns a security group as a blocker.
func newGroupBlocker(g ec2types.SecurityGroup) Blocker {
	tags := driver.FromEC2Tags(g.Tags)
	b := Blocker{
		ID:    aws.ToString(g.GroupId),
		Kind:  "security group " + aws.ToString(g.GroupName),
		Owner: creatorFromTags(tags),
	}
	if b.Owner == "" && aws.ToString(g.Description) != "" {
		b.Kind += " (" + *g.Description + ")"
	}

	return b
}

// classifyInterface adds a network interface as a leftover or as a blocker. It skips those of
// instances, gateways and load balancers: they are deleted with these, or these are blockers.
func (s *leftoverSurvey) classifyInterface(n ec2types.NetworkInterface) {
	tags := driver.FromEC2Tags(n.TagSet)
	id := aws.ToString(n.NetworkInterfaceId)
	description := aws.ToString(n.Description)
	if attachedInstance(n) != "" {
		return
	}

	words := strings.FieldsFunc(description, func(r rune) bool { return r == ' ' || r == '/' })
	if slices.ContainsFunc(words, s.isKnown) {
		return
	}

	detached := n.Status == ec2types.NetworkInterfaceStatusAvailable
	owner := s.finder.classify(tags)
	ownVPC := s.vpcs[aws.ToString(n.VpcId)]
	cni := strings.HasPrefix(description, "aws-K8S-i-") && owner != ownedByOther && ownVPC
	if !detached || owner != ownedByCluster && !cni {
		s.addBlocker(aws.ToString(n.VpcId), newInterfaceBlocker(n))
		return
	}

	r := driver.NetworkInterface{
		Subnet: graph.UnmanagedRef[awskind.Subnet](aws.ToString(n.SubnetId)),
		Tags:   tags,
	}

	for _, g := range n.Groups {
		r.SecurityGroups = append(
			r.SecurityGroups,
			graph.UnmanagedRef[awskind.SecurityGroup](aws.ToString(g.GroupId)),
		)
	}

	if cni && len(tags) == 0 {
		tags = awskind.Tags{tagCNI: s.finder.cluster}
	}

	s.addLeftover(id, id, tags, r)
}

// isKnown reports whether a word is the id of one of the cluster's resources, or the name of a load
// balancer in its VPCs.
func (s *leftoverSurvey) isKnown(word string) bool { return s.ownIDs[word] || s.balancerNames[word] }

// surveyBalancers finds the load balancers and target groups in the cluster's VPCs.
func (s *leftoverSurvey) surveyBalancers(ctx context.Context) error {
	all := s.finder.balancing
	if all == nil {
		listed, err := driver.ListAllBalancing(ctx, s.finder.elb)
		if err != nil {
			return err
		}

		all = &listed
	}

	for _, l := range all.Balancers {
		if s.hasVPC(l.VpcId) {
			s.classifyBalancer(l, all.Tags[aws.ToString(l.LoadBalancerArn)])
		}
	}

	for _, g := range all.TargetGroups {
		if s.hasVPC(g.VpcId) {
			s.classifyTargetGroup(g, all.Tags[aws.ToString(g.TargetGroupArn)])
		}
	}

	return nil
}

// hasVPC reports whether the cluster is in a VPC.
func (s *leftoverSurvey) hasVPC(id *string) bool {
	_, ok := s.vpcs[aws.ToString(id)]

	return ok
}

// classifyTargetGroup adds a target group as a leftover, if the cluster created it. A target group
// does not prevent the deletion of its VPC, so it is never a blocker.
func (s *leftoverSurvey) classifyTargetGroup(g elbtypes.TargetGroup, tags awskind.Tags) {
	arn := aws.ToString(g.TargetGroupArn)
	if s.ownIDs[arn] || s.finder.classify(tags) != ownedByCluster {
		return
	}

	r := awskind.TargetGroup{
		Name: aws.ToString(g.TargetGroupName),
		VPC:  graph.UnmanagedRef[awskind.VPC](aws.ToString(g.VpcId)),
		Tags: tags,
	}
	s.addLeftover(arn, r.Name, tags, r, g.LoadBalancerArns...)
}

// classifyBalancer adds a load balancer as a leftover or as a blocker.
func (s *leftoverSurvey) classifyBalancer(l elbtypes.LoadBalancer, tags awskind.Tags) {
	arn := aws.ToString(l.LoadBalancerArn)
	name := aws.ToString(l.LoadBalancerName)
	s.mu.Lock()
	s.balancerNames[name] = true
	s.mu.Unlock()

	switch {
	case s.ownIDs[arn]:
	case s.finder.classify(tags) == ownedByCluster:
		r := awskind.LoadBalancer{
			Name:   name,
			Type:   string(l.Type),
			Scheme: string(l.Scheme),
			Tags:   tags,
		}

		for _, z := range l.AvailabilityZones {
			r.Subnets = append(r.Subnets, graph.UnmanagedRef[awskind.Subnet](aws.ToString(z.SubnetId)))
		}

		for _, g := range l.SecurityGroups {
			r.SecurityGroups = append(r.SecurityGroups, graph.UnmanagedRef[awskind.SecurityGroup](g))
		}

		s.addLeftover(arn, name, tags, r)

	default:
		s.addBlocker(
			aws.ToString(l.VpcId),
			Blocker{ID: arn, Kind: formatBalancer(l), Owner: creatorFromTags(tags)},
		)
	}
}

// formatBalancer returns a load balancer in words, such as "NLB k8s-default-web".
func formatBalancer(l elbtypes.LoadBalancer) string {
	name := aws.ToString(l.LoadBalancerName)
	if l.Type == elbtypes.LoadBalancerTypeEnumNetwork {
		return "NLB " + name
	}

	if l.Type == elbtypes.LoadBalancerTypeEnumApplication {
		return "ALB " + name
	}

	return string(l.Type) + " load balancer " + name
}
