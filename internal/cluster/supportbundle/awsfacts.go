// SPDX-License-Identifier: Apache-2.0

package supportbundle

import (
	"context"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	autoscalingtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/infra/aws/driver"
	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
)

// awsFacts reads what AWS has of one cluster.
type awsFacts struct {
	cluster   string // its name
	ownership func(context.Context) (clusterstate.Ownership, error)
	ec2       *ec2.Client
	scaling   *autoscaling.Client
	balancers *elb.Client
}

// awsSources returns facts from AWS about the cluster's resources.
func (c *Collector) awsSources() []Source {
	a := awsFacts{
		cluster:   c.Live.Name(),
		ownership: c.Live.Ownership,
		ec2:       ec2.NewFromConfig(c.Live.Config),
		scaling:   autoscaling.NewFromConfig(c.Live.Config),
		balancers: elb.NewFromConfig(c.Live.Config),
	}

	return []Source{
		newSource("aws/instances.json", "EC2 instances", a.readInstances),
		newSource("aws/volumes.json", "EBS volumes", a.readVolumes),
		newSource("aws/subnets.json", "subnets", a.readSubnets),
		newSource("aws/route-tables.json", "route tables", a.readRouteTables),
		newSource("aws/security-groups.json", "security groups", a.readSecurityGroups),
		newSource("aws/nat-gateways.json", "NAT gateways", a.readNATGateways),
		newSource("aws/load-balancers.json", "load balancers", a.readBalancers),
		newSource("aws/target-health.json", "health of the load balancers' targets", a.readTargetHealth),
		newSource("aws/auto-scaling-groups.json", "auto scaling groups", func(ctx context.Context) (any, error) {
			return a.listGroups(ctx)
		}),
		newSource("aws/scaling-activities.json", "last activities of the auto scaling groups", a.readActivities),
	}
}

func newSource(path, title string, read func(context.Context) (any, error)) Source {
	return Source{Path: path, Title: title, Read: read}
}

// byName is the filter of EC2 for resources of clusters of the name.
func (a awsFacts) byName() []ec2types.Filter {
	return []ec2types.Filter{{Name: aws.String("tag:" + awskind.TagCluster), Values: []string{a.cluster}}}
}

// notOwned returns a function that reports whether a resource with these tags is not the cluster's, but one of
// another cluster of the name or of nobody.
func (a awsFacts) notOwned(ctx context.Context) (func(tags map[string]string) bool, error) {
	own, err := a.ownership(ctx)
	if err != nil {
		return nil, err
	}

	return func(tags map[string]string) bool {
		return tags[awskind.TagCluster] != a.cluster || !own.OwnsTags(tags)
	}, nil
}

// keepOwned returns those of list that are the cluster's.
func keepOwned[T any](
	ctx context.Context,
	a awsFacts,
	list []T,
	tagsOf func(T) []ec2types.Tag,
) (any, error) {
	notOwned, err := a.notOwned(ctx)
	if err != nil {
		return nil, err
	}

	return slices.DeleteFunc(list, func(item T) bool { return notOwned(driver.FromEC2Tags(tagsOf(item))) }), nil
}

func (a awsFacts) readInstances(ctx context.Context) (any, error) {
	var list []ec2types.Instance
	pages := ec2.NewDescribeInstancesPaginator(a.ec2, &ec2.DescribeInstancesInput{Filters: a.byName()})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}

		for _, r := range page.Reservations {
			list = append(list, r.Instances...)
		}
	}

	return keepOwned(ctx, a, list, func(i ec2types.Instance) []ec2types.Tag { return i.Tags })
}

func (a awsFacts) readVolumes(ctx context.Context) (any, error) {
	pages := ec2.NewDescribeVolumesPaginator(a.ec2, &ec2.DescribeVolumesInput{Filters: a.byName()})
	list, err := transport.CollectPages(ctx, pages, func(p *ec2.DescribeVolumesOutput) []ec2types.Volume { return p.Volumes })
	if err != nil {
		return nil, err
	}

	return keepOwned(ctx, a, list, func(v ec2types.Volume) []ec2types.Tag { return v.Tags })
}

func (a awsFacts) readSubnets(ctx context.Context) (any, error) {
	pages := ec2.NewDescribeSubnetsPaginator(a.ec2, &ec2.DescribeSubnetsInput{Filters: a.byName()})
	list, err := transport.CollectPages(ctx, pages, func(p *ec2.DescribeSubnetsOutput) []ec2types.Subnet { return p.Subnets })
	if err != nil {
		return nil, err
	}

	return keepOwned(ctx, a, list, func(s ec2types.Subnet) []ec2types.Tag { return s.Tags })
}

func (a awsFacts) readRouteTables(ctx context.Context) (any, error) {
	pages := ec2.NewDescribeRouteTablesPaginator(a.ec2, &ec2.DescribeRouteTablesInput{Filters: a.byName()})
	list, err := transport.CollectPages(ctx, pages, func(p *ec2.DescribeRouteTablesOutput) []ec2types.RouteTable { return p.RouteTables })
	if err != nil {
		return nil, err
	}

	return keepOwned(ctx, a, list, func(t ec2types.RouteTable) []ec2types.Tag { return t.Tags })
}

func (a awsFacts) readSecurityGroups(ctx context.Context) (any, error) {
	pages := ec2.NewDescribeSecurityGroupsPaginator(a.ec2, &ec2.DescribeSecurityGroupsInput{Filters: a.byName()})
	list, err := transport.CollectPages(ctx, pages, func(p *ec2.DescribeSecurityGroupsOutput) []ec2types.SecurityGroup { return p.SecurityGroups })
	if err != nil {
		return nil, err
	}

	return keepOwned(ctx, a, list, func(g ec2types.SecurityGroup) []ec2types.Tag { return g.Tags })
}

func (a awsFacts) readNATGateways(ctx context.Context) (any, error) {
	pages := ec2.NewDescribeNatGatewaysPaginator(a.ec2, &ec2.DescribeNatGatewaysInput{Filter: a.byName()})
	list, err := transport.CollectPages(ctx, pages, func(p *ec2.DescribeNatGatewaysOutput) []ec2types.NatGateway { return p.NatGateways })
	if err != nil {
		return nil, err
	}

	return keepOwned(ctx, a, list, func(n ec2types.NatGateway) []ec2types.Tag { return n.Tags })
}

// readBalancers returns the load balancers of the cluster.
func (a awsFacts) readBalancers(ctx context.Context) (any, error) {
	pages := elb.NewDescribeLoadBalancersPaginator(a.balancers, &elb.DescribeLoadBalancersInput{})
	list, err := transport.CollectPages(ctx, pages, func(p *elb.DescribeLoadBalancersOutput) []elbtypes.LoadBalancer {
		return p.LoadBalancers
	})
	if err != nil {
		return nil, err
	}

	return keepOwnedARNs(ctx, a, list, func(lb elbtypes.LoadBalancer) string {
		return aws.ToString(lb.LoadBalancerArn)
	})
}

// keepOwnedARNs returns those of list that are the cluster's.
func keepOwnedARNs[T any](ctx context.Context, a awsFacts, list []T, arnOf func(T) string) ([]T, error) {
	notOwned, err := a.notOwned(ctx)
	if err != nil {
		return nil, err
	}

	var arns []string
	for _, item := range list {
		arns = append(arns, arnOf(item))
	}

	tags, err := driver.DescribeELBTags(ctx, a.balancers, arns)
	if err != nil {
		return nil, err
	}

	return slices.DeleteFunc(list, func(item T) bool { return notOwned(tags[arnOf(item)]) }), nil
}

// readTargetHealth returns the health of the targets of the cluster's load balancers, by target group.
func (a awsFacts) readTargetHealth(ctx context.Context) (any, error) {
	pages := elb.NewDescribeTargetGroupsPaginator(a.balancers, &elb.DescribeTargetGroupsInput{})
	all, err := transport.CollectPages(ctx, pages, func(p *elb.DescribeTargetGroupsOutput) []elbtypes.TargetGroup {
		return p.TargetGroups
	})
	if err != nil {
		return nil, err
	}

	groups, err := keepOwnedARNs(ctx, a, all, func(g elbtypes.TargetGroup) string {
		return aws.ToString(g.TargetGroupArn)
	})
	if err != nil {
		return nil, err
	}

	out := map[string]any{}

	for _, g := range groups {
		health, err := a.balancers.DescribeTargetHealth(
			ctx,
			&elb.DescribeTargetHealthInput{TargetGroupArn: g.TargetGroupArn},
		)
		if err != nil {
			return nil, fmt.Errorf("read the targets of %s: %w", aws.ToString(g.TargetGroupName), err)
		}

		out[aws.ToString(g.TargetGroupName)] = health.TargetHealthDescriptions
	}

	return out, nil
}

func (a awsFacts) listGroups(ctx context.Context) ([]autoscalingtypes.AutoScalingGroup, error) {
	notOwned, err := a.notOwned(ctx)
	if err != nil {
		return nil, err
	}

	pages := autoscaling.NewDescribeAutoScalingGroupsPaginator(a.scaling, &autoscaling.DescribeAutoScalingGroupsInput{
		Filters: []autoscalingtypes.Filter{
			{Name: aws.String("tag:" + awskind.TagCluster), Values: []string{a.cluster}},
		},
	})
	all, err := transport.CollectPages(
		ctx,
		pages,
		func(p *autoscaling.DescribeAutoScalingGroupsOutput) []autoscalingtypes.AutoScalingGroup {
			return p.AutoScalingGroups
		},
	)
	if err != nil {
		return nil, err
	}

	return slices.DeleteFunc(all, func(g autoscalingtypes.AutoScalingGroup) bool {
		tags := map[string]string{}
		for _, t := range g.Tags {
			tags[aws.ToString(t.Key)] = aws.ToString(t.Value)
		}

		return notOwned(tags)
	}), nil
}

// maxActivities is how many activities of each group are kept.
const maxActivities = 20

func (a awsFacts) readActivities(ctx context.Context) (any, error) {
	list, err := a.listGroups(ctx)
	if err != nil {
		return nil, err
	}

	var all []autoscalingtypes.Activity

	for _, g := range list {
		out, err := a.scaling.DescribeScalingActivities(ctx, &autoscaling.DescribeScalingActivitiesInput{
			AutoScalingGroupName: g.AutoScalingGroupName,
			MaxRecords:           aws.Int32(maxActivities),
		})
		if err != nil {
			return nil, fmt.Errorf("read the activities of %s: %w", aws.ToString(g.AutoScalingGroupName), err)
		}

		all = append(all, out.Activities...)
	}

	return all, nil
}
