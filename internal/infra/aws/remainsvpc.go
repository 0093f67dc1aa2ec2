// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// network looks at the instances, security groups and interfaces in the cluster's VPCs.
func (s *survey) network(ctx context.Context) error {
	vpcs := filter("vpc-id", slices.Sorted(maps.Keys(s.vpcs))...)
	instances := ec2.NewDescribeInstancesPaginator(s.c.lookout.ec2, &ec2.DescribeInstancesInput{Filters: append(vpcs, filter(
		"instance-state-name", "pending", "running", "stopping", "stopped")...)})
	for instances.HasMorePages() {
		page, err := instances.NextPage(ctx)
		if err != nil {
			return wrap(err, "list the machines in the cluster's network")
		}
		for _, r := range page.Reservations {
			for _, i := range r.Instances {
				s.instance(i)
			}
		}
	}
	faces := ec2.NewDescribeNetworkInterfacesPaginator(s.c.lookout.ec2, &ec2.DescribeNetworkInterfacesInput{Filters: vpcs})
	for faces.HasMorePages() {
		page, err := faces.NextPage(ctx)
		if err != nil {
			return wrap(err, "list the network interfaces in the cluster's network")
		}
		s.interfaces = append(s.interfaces, page.NetworkInterfaces...)
	}
	return s.securityGroups(ctx, vpcs)
}

// instance sorts out one machine. Those of the cluster's own groups go with their group.
func (s *survey) instance(i ec2types.Instance) {
	tags, id := fromEC2(i.Tags), aws.ToString(i.InstanceId)
	group := tags[groupTag]
	switch {
	case slices.Contains(s.groups, group) && group != "":
	case claimOf(tags, s.cluster) == mine && group == "":
		r := Instance{Subnet: graph.Existing[awskind.Subnet](aws.ToString(i.SubnetId)), Tags: tags}
		for _, g := range i.SecurityGroups {
			r.SecurityGroups = append(r.SecurityGroups, graph.Existing[awskind.SecurityGroup](aws.ToString(g.GroupId)))
		}
		s.leftover(id, id, tags, r)
	default:
		s.blocker(aws.ToString(i.VpcId), machineBlocker(i))
	}
}

// machineBlocker describes a machine that is in the way.
func machineBlocker(i ec2types.Instance) Blocker {
	tags := fromEC2(i.Tags)
	b := Blocker{ID: aws.ToString(i.InstanceId), Kind: "instance" + byName(tags), Owner: makerOf(tags)}
	if g := tags[groupTag]; g != "" {
		b.Owner = "auto scaling group " + g
	}
	return b
}

// securityGroups finds the groups that controllers made, and of their rules those that refer to a group: until they are
// gone two such groups keep each other.
func (s *survey) securityGroups(ctx context.Context, vpcs []ec2types.Filter) error {
	var ids []string
	owner := map[string]awskind.Tags{}
	pages := ec2.NewDescribeSecurityGroupsPaginator(s.c.lookout.ec2, &ec2.DescribeSecurityGroupsInput{Filters: vpcs})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return wrap(err, "list the security groups in the cluster's network")
		}
		for _, g := range page.SecurityGroups {
			tags, id, name := fromEC2(g.Tags), aws.ToString(g.GroupId), aws.ToString(g.GroupName)
			switch {
			case s.own[id] || name == "default":
			case claimOf(tags, s.cluster) == mine:
				s.leftover(id, name, tags, awskind.SecurityGroup{
					VPC: graph.Existing[awskind.VPC](aws.ToString(g.VpcId)), Name: name, Description: aws.ToString(g.Description), Tags: tags,
				})
				ids, owner[id] = append(ids, id), tags
			default:
				s.blocker(aws.ToString(g.VpcId), groupBlocker(g))
			}
		}
	}
	rules, err := readRules(ctx, s.c.lookout.ec2, ids)
	for _, r := range rules {
		group, peer := graph.Ref[awskind.SecurityGroup]{}, graph.Ref[awskind.SecurityGroup]{}
		switch x := r.Resource.(type) {
		case awskind.SecurityGroupIngress:
			group, peer = x.Group, x.Source
		case awskind.SecurityGroupEgress:
			group, peer = x.Group, x.Destination
		}
		if peer.Literal() != "" {
			r.Owner = s.maker(owner[group.Literal()])
			s.mu.Lock()
			s.out.Leftovers = append(s.out.Leftovers, r)
			s.mu.Unlock()
		}
	}
	return err
}

func groupBlocker(g ec2types.SecurityGroup) Blocker {
	tags := fromEC2(g.Tags)
	b := Blocker{ID: aws.ToString(g.GroupId), Kind: "security group " + aws.ToString(g.GroupName), Owner: makerOf(tags)}
	if b.Owner == "" && aws.ToString(g.Description) != "" {
		b.Kind += " (" + *g.Description + ")"
	}
	return b
}

// face sorts out one interface. One of a machine, of a gateway or of a load balancer goes with it or is named with it.
func (s *survey) face(n ec2types.NetworkInterface) {
	tags, id, text := fromEC2(n.TagSet), aws.ToString(n.NetworkInterfaceId), aws.ToString(n.Description)
	if machineOf(n) != "" {
		return
	}
	if slices.ContainsFunc(strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == '/' }), s.known) {
		return
	}
	free := n.Status == ec2types.NetworkInterfaceStatusAvailable
	who := claimOf(tags, s.cluster)
	cni := strings.HasPrefix(text, "aws-K8S-i-") && who != others && s.vpcs[aws.ToString(n.VpcId)]
	if !free || who != mine && !cni {
		s.blocker(aws.ToString(n.VpcId), faceBlocker(n))
		return
	}
	r := NetworkInterface{Subnet: graph.Existing[awskind.Subnet](aws.ToString(n.SubnetId)), Tags: tags}
	for _, g := range n.Groups {
		r.SecurityGroups = append(r.SecurityGroups, graph.Existing[awskind.SecurityGroup](aws.ToString(g.GroupId)))
	}
	if cni && len(tags) == 0 {
		tags = awskind.Tags{tagCNI: s.cluster}
	}
	s.leftover(id, id, tags, r)
}

// machineOf is the instance that an interface is attached to; else "".
func machineOf(n ec2types.NetworkInterface) string {
	if n.Attachment == nil {
		return ""
	}
	return aws.ToString(n.Attachment.InstanceId)
}

// known says that a word is the id of a thing of the cluster, or the name of a load balancer that was looked at.
func (s *survey) known(word string) bool { return s.own[word] || s.balancers[word] }

// faceBlocker describes an interface by what it says itself.
func faceBlocker(n ec2types.NetworkInterface) Blocker {
	tags := fromEC2(n.TagSet)
	b := Blocker{ID: aws.ToString(n.NetworkInterfaceId), Kind: "network interface" + byName(tags), Owner: makerOf(tags)}
	text := aws.ToString(n.Description)
	switch {
	case b.Owner != "":
	case machineOf(n) != "":
		b.Owner = machineOf(n)
	case strings.HasPrefix(text, "ELB ") && !strings.Contains(text, "/"):
		b.Owner = "classic load balancer " + text[len("ELB "):]
	case text != "":
		b.Kind += " (" + text + ")"
	case aws.ToBool(n.RequesterManaged):
		b.Owner = "AWS service " + aws.ToString(n.RequesterId)
	}
	return b
}

// balancing looks at the load balancers and target groups in the cluster's VPCs.
func (s *survey) balancing(ctx context.Context) error {
	lbs, err := listBalancers(ctx, s.c.lookout.elb)
	if err != nil {
		return err
	}
	tgs, err := listTargetGroups(ctx, s.c.lookout.elb)
	if err != nil {
		return err
	}
	lbs = slices.DeleteFunc(lbs, func(l elbtypes.LoadBalancer) bool { _, in := s.vpcs[aws.ToString(l.VpcId)]; return !in })
	tgs = slices.DeleteFunc(tgs, func(g elbtypes.TargetGroup) bool { _, in := s.vpcs[aws.ToString(g.VpcId)]; return !in })
	var arns []string
	for _, l := range lbs {
		arns = append(arns, aws.ToString(l.LoadBalancerArn))
	}
	for _, g := range tgs {
		arns = append(arns, aws.ToString(g.TargetGroupArn))
	}
	tags, err := balancerTags(ctx, s.c.lookout.elb, arns)
	if err != nil {
		return err
	}
	for _, l := range lbs {
		s.balancer(l, tags[aws.ToString(l.LoadBalancerArn)])
	}
	for _, g := range tgs {
		arn := aws.ToString(g.TargetGroupArn)
		// A target group that nobody claims is no obstacle: it lies in a VPC by name only.
		if t := tags[arn]; !s.own[arn] && claimOf(t, s.cluster) == mine {
			s.leftover(arn, aws.ToString(g.TargetGroupName), t,
				awskind.TargetGroup{Name: aws.ToString(g.TargetGroupName), VPC: graph.Existing[awskind.VPC](aws.ToString(g.VpcId)), Tags: t}, g.LoadBalancerArns...)
		}
	}
	return nil
}

func (s *survey) balancer(l elbtypes.LoadBalancer, tags awskind.Tags) {
	arn, name := aws.ToString(l.LoadBalancerArn), aws.ToString(l.LoadBalancerName)
	s.mu.Lock()
	s.balancers[name] = true
	s.mu.Unlock()
	switch {
	case s.own[arn]:
	case claimOf(tags, s.cluster) == mine:
		r := awskind.LoadBalancer{Name: name, Type: string(l.Type), Scheme: string(l.Scheme), Tags: tags}
		for _, z := range l.AvailabilityZones {
			r.Subnets = append(r.Subnets, graph.Existing[awskind.Subnet](aws.ToString(z.SubnetId)))
		}
		for _, g := range l.SecurityGroups {
			r.SecurityGroups = append(r.SecurityGroups, graph.Existing[awskind.SecurityGroup](g))
		}
		s.leftover(arn, name, tags, r)
	default:
		s.blocker(aws.ToString(l.VpcId), Blocker{ID: arn, Kind: balancerKind(l), Owner: makerOf(tags)})
	}
}

// balancerKind is what people call a load balancer: NLB k8s-default-web.
func balancerKind(l elbtypes.LoadBalancer) string {
	kind := map[elbtypes.LoadBalancerTypeEnum]string{elbtypes.LoadBalancerTypeEnumNetwork: "NLB", elbtypes.LoadBalancerTypeEnumApplication: "ALB"}[l.Type]
	if kind == "" {
		kind = string(l.Type) + " load balancer"
	}
	return kind + " " + aws.ToString(l.LoadBalancerName)
}
