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
)

// surveyNetwork looks at the instances, security groups and interfaces in the cluster's VPCs.
func (s *leftoverSurvey) surveyNetwork(ctx context.Context) error {
	vpcs := driver.NewFilters("vpc-id", slices.Sorted(maps.Keys(s.vpcs))...)
	instances := ec2.NewDescribeInstancesPaginator(
		s.finder.ec2,
		&ec2.DescribeInstancesInput{Filters: append(vpcs, driver.NewFilters(
			"instance-state-name", "pending", "running", "stopping", "stopped")...)},
	)

	for instances.HasMorePages() {
		page, err := instances.NextPage(ctx)
		if err != nil {
			return transport.Wrap(err, "list the machines in the cluster's network")
		}

		for _, r := range page.Reservations {
			for _, i := range r.Instances {
				s.classifyInstance(i)
			}
		}
	}

	faces := ec2.NewDescribeNetworkInterfacesPaginator(
		s.finder.ec2,
		&ec2.DescribeNetworkInterfacesInput{Filters: vpcs},
	)

	for faces.HasMorePages() {
		page, err := faces.NextPage(ctx)
		if err != nil {
			return transport.Wrap(err, "list the network interfaces in the cluster's network")
		}

		s.interfaces = append(s.interfaces, page.NetworkInterfaces...)
	}

	return s.surveySecurityGroups(ctx, vpcs)
}

// classifyInstance sorts out one machine. Those of the cluster's own groups go with their group.
func (s *leftoverSurvey) classifyInstance(i ec2types.Instance) {
	tags := driver.FromEC2Tags(i.Tags)
	id := aws.ToString(i.InstanceId)
	group := tags[driver.ScalingGroupTag]

	switch {
	case slices.Contains(s.scalingGroups, group) && group != "":
	case classifyOwnership(tags, s.finder.cluster) == ownedByCluster && group == "":
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

// newInstanceBlocker describes a machine that is in the way.
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

// surveySecurityGroups finds the groups that controllers made, and of their rules those that refer to a group: until they are
// gone two such groups keep each other.
func (s *leftoverSurvey) surveySecurityGroups(ctx context.Context, vpcs []ec2types.Filter) error {
	var ids []string
	owner := map[string]awskind.Tags{}
	pages := ec2.NewDescribeSecurityGroupsPaginator(
		s.finder.ec2,
		&ec2.DescribeSecurityGroupsInput{Filters: vpcs},
	)

	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return transport.Wrap(err, "list the security groups in the cluster's network")
		}

		for _, g := range page.SecurityGroups {
			tags := driver.FromEC2Tags(g.Tags)
			id := aws.ToString(g.GroupId)
			name := aws.ToString(g.GroupName)

			switch {
			case s.ownIDs[id] || name == "default":
			case classifyOwnership(tags, s.finder.cluster) == ownedByCluster:
				s.addLeftover(id, name, tags, awskind.SecurityGroup{
					VPC:         graph.UnmanagedRef[awskind.VPC](aws.ToString(g.VpcId)),
					Name:        name,
					Description: aws.ToString(g.Description),
					Tags:        tags,
				})

				ids = append(ids, id)
				owner[id] = tags

			default:
				s.addBlocker(aws.ToString(g.VpcId), newGroupBlocker(g))
			}
		}
	}

	rules, err := driver.ReadRules(ctx, s.finder.ec2, ids)

	for _, r := range rules {
		group := graph.Ref[awskind.SecurityGroup]{}
		peer := graph.Ref[awskind.SecurityGroup]{}
		switch x := r.Resource.(type) {
		case awskind.SecurityGroupIngress:
			group = x.Group
			peer = x.Source
		case awskind.SecurityGroupEgress:
			group = x.Group
			peer = x.Destination
		}

		if peer.Literal() != "" {
			r.Owner = s.describeCreator(owner[group.Literal()])
			s.mu.Lock()
			s.result.Resources = append(s.result.Resources, r)
			s.mu.Unlock()
		}
	}

	return err
}

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

// classifyInterface sorts out one interface. One of a machine, of a gateway or of a load balancer goes with it or is named with it.
func (s *leftoverSurvey) classifyInterface(n ec2types.NetworkInterface) {
	tags := driver.FromEC2Tags(n.TagSet)
	id := aws.ToString(n.NetworkInterfaceId)
	text := aws.ToString(n.Description)
	if attachedInstance(n) != "" {
		return
	}

	if slices.ContainsFunc(
		strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == '/' }),
		s.isKnown,
	) {
		return
	}

	free := n.Status == ec2types.NetworkInterfaceStatusAvailable
	who := classifyOwnership(tags, s.finder.cluster)
	cni := strings.HasPrefix(text, "aws-K8S-i-") && who != ownedByOther && s.vpcs[aws.ToString(n.VpcId)]
	if !free || who != ownedByCluster && !cni {
		s.addBlocker(aws.ToString(n.VpcId), newInterfaceBlocker(n))
		return
	}

	r := driver.NetworkInterface{Subnet: graph.UnmanagedRef[awskind.Subnet](aws.ToString(n.SubnetId)), Tags: tags}

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

// isKnown says that a word is the id of a thing of the cluster, or the name of a load balancer that was looked at.
func (s *leftoverSurvey) isKnown(word string) bool { return s.ownIDs[word] || s.balancerNames[word] }

// surveyBalancers looks at the load balancers and target groups in the cluster's VPCs.
func (s *leftoverSurvey) surveyBalancers(ctx context.Context) error {
	lbs, err := driver.ListBalancers(ctx, s.finder.elb)
	if err != nil {
		return err
	}

	tgs, err := driver.ListTargetGroups(ctx, s.finder.elb)
	if err != nil {
		return err
	}

	lbs = slices.DeleteFunc(
		lbs,
		func(l elbtypes.LoadBalancer) bool { _, in := s.vpcs[aws.ToString(l.VpcId)]; return !in },
	)

	tgs = slices.DeleteFunc(
		tgs,
		func(g elbtypes.TargetGroup) bool { _, in := s.vpcs[aws.ToString(g.VpcId)]; return !in },
	)

	var arns []string
	for _, l := range lbs {
		arns = append(arns, aws.ToString(l.LoadBalancerArn))
	}

	for _, g := range tgs {
		arns = append(arns, aws.ToString(g.TargetGroupArn))
	}

	tags, err := driver.DescribeELBTags(ctx, s.finder.elb, arns)
	if err != nil {
		return err
	}

	for _, l := range lbs {
		s.classifyBalancer(l, tags[aws.ToString(l.LoadBalancerArn)])
	}

	for _, g := range tgs {
		arn := aws.ToString(g.TargetGroupArn)
		// A target group that nobody claims is no obstacle: it lies in a VPC by name only.
		if t := tags[arn]; !s.ownIDs[arn] && classifyOwnership(t, s.finder.cluster) == ownedByCluster {
			s.addLeftover(
				arn,
				aws.ToString(g.TargetGroupName),
				t,
				awskind.TargetGroup{
					Name: aws.ToString(g.TargetGroupName),
					VPC:  graph.UnmanagedRef[awskind.VPC](aws.ToString(g.VpcId)),
					Tags: t,
				},
				g.LoadBalancerArns...)
		}
	}

	return nil
}

func (s *leftoverSurvey) classifyBalancer(l elbtypes.LoadBalancer, tags awskind.Tags) {
	arn := aws.ToString(l.LoadBalancerArn)
	name := aws.ToString(l.LoadBalancerName)
	s.mu.Lock()
	s.balancerNames[name] = true
	s.mu.Unlock()

	switch {
	case s.ownIDs[arn]:
	case classifyOwnership(tags, s.finder.cluster) == ownedByCluster:
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

// formatBalancer is what people call a load balancer: NLB k8s-default-web.
func formatBalancer(l elbtypes.LoadBalancer) string {
	kind := map[elbtypes.LoadBalancerTypeEnum]string{elbtypes.LoadBalancerTypeEnumNetwork: "NLB", elbtypes.LoadBalancerTypeEnumApplication: "ALB"}[l.Type]
	if kind == "" {
		kind = string(l.Type) + " load balancer"
	}

	return kind + " " + aws.ToString(l.LoadBalancerName)
}
