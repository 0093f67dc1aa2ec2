// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	scalingtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	kmstypes "github.com/aws/aws-sdk-go-v2/service/kms/types"
)

// The workload of others in the account.
const (
	foreignName   = "payments"
	foreignMarker = "team"
)

// foreignNetwork is a VPC of others with a subnet.
type foreignNetwork struct{ vpc, subnet string }

// createForeignNetwork creates a VPC of others.
func (l *lab) createForeignNetwork() foreignNetwork {
	l.Helper()
	api := ec2.NewFromConfig(l.config(caller{}))
	vpc, err := api.CreateVpc(l.Context(), &ec2.CreateVpcInput{CidrBlock: sdk.String("10.99.0.0/16")})
	l.check(err)
	subnet, err := api.CreateSubnet(l.Context(), &ec2.CreateSubnetInput{
		VpcId:            vpc.Vpc.VpcId,
		CidrBlock:        sdk.String("10.99.0.0/24"),
		AvailabilityZone: sdk.String("us-east-1a"),
	})
	l.check(err)

	return foreignNetwork{vpc: *vpc.Vpc.VpcId, subnet: *subnet.Subnet.SubnetId}
}

// createBalancer creates a load balancer of others and returns its ARN.
func (l *lab) createBalancer(n foreignNetwork) string {
	l.Helper()
	made, err := elb.NewFromConfig(l.config(caller{})).CreateLoadBalancer(l.Context(), &elb.CreateLoadBalancerInput{
		Name:    sdk.String(foreignName),
		Type:    elbtypes.LoadBalancerTypeEnumNetwork,
		Scheme:  elbtypes.LoadBalancerSchemeEnumInternal,
		Subnets: []string{n.subnet},
		Tags:    []elbtypes.Tag{{Key: sdk.String(foreignMarker), Value: sdk.String(foreignName)}},
	})
	l.check(err)

	return *made.LoadBalancers[0].LoadBalancerArn
}

// createTargets creates a target group of others and returns its ARN.
func (l *lab) createTargets(vpc string) string {
	l.Helper()
	made, err := elb.NewFromConfig(l.config(caller{})).CreateTargetGroup(l.Context(), &elb.CreateTargetGroupInput{
		Name:       sdk.String(foreignName),
		VpcId:      &vpc,
		Protocol:   elbtypes.ProtocolEnumTcp,
		Port:       sdk.Int32(443),
		TargetType: elbtypes.TargetTypeEnumInstance,
		Tags:       []elbtypes.Tag{{Key: sdk.String(foreignMarker), Value: sdk.String(foreignName)}},
	})
	l.check(err)

	return *made.TargetGroups[0].TargetGroupArn
}

// TestOperatorCannotTakeBalancers: the operator marks the load balancer and the target group of others as the cluster's own, and
// then changes and deletes them. Seen to succeed before only new load balancers could be tagged by the tag of the request.
func TestOperatorCannotTakeBalancers(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	n := l.createForeignNetwork()
	balancer, targets := l.createBalancer(n), l.createTargets(n.vpc)
	api := elb.NewFromConfig(l.config(l.user("operator", l.policies("demo"))))

	for _, arn := range []string{balancer, targets} {
		_, err := api.AddTags(t.Context(), &elb.AddTagsInput{ResourceArns: []string{arn}, Tags: []elbtypes.Tag{
			{Key: sdk.String("slipway.dev/cluster"), Value: sdk.String("demo")},
			{Key: sdk.String("kubernetes.io/cluster/demo"), Value: sdk.String("owned")},
		}})
		l.denied("tag "+arn, err)
	}

	_, err := api.ModifyLoadBalancerAttributes(t.Context(), &elb.ModifyLoadBalancerAttributesInput{
		LoadBalancerArn: &balancer,
		Attributes: []elbtypes.LoadBalancerAttribute{
			{Key: sdk.String("deletion_protection.enabled"), Value: sdk.String("false")},
		},
	})
	l.denied("change the load balancer", err)
	_, err = api.DeleteLoadBalancer(t.Context(), &elb.DeleteLoadBalancerInput{LoadBalancerArn: &balancer})
	l.denied("delete the load balancer", err)
	_, err = api.DeleteTargetGroup(t.Context(), &elb.DeleteTargetGroupInput{TargetGroupArn: &targets})
	l.denied("delete the target group", err)
}

// TestOperatorGivesNothingToOthers: the operator prepares a volume of etcd, a load balancer, a key or a group of machines, and gives it
// the tag of another cluster, whose machines then attach the volume, or trust the machines of the group. Seen to succeed before the
// tag of the cluster could be set only to the operator's own cluster.
func TestOperatorGivesNothingToOthers(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	operator := l.config(l.user("operator", l.policies("demo")))
	name, other := sdk.String("slipway.dev/cluster"), sdk.String("demo-2")
	volume := l.slotOf("a").volume

	_, err := ec2.NewFromConfig(operator).CreateTags(t.Context(), &ec2.CreateTagsInput{
		Resources: []string{volume}, Tags: []ec2types.Tag{{Key: name, Value: other}},
	})
	l.denied("give a volume of etcd to another cluster", err)

	balancers, err := elb.NewFromConfig(l.config(caller{})).DescribeLoadBalancers(t.Context(), &elb.DescribeLoadBalancersInput{})
	l.check(err)
	_, err = elb.NewFromConfig(operator).AddTags(t.Context(), &elb.AddTagsInput{
		ResourceArns: []string{*balancers.LoadBalancers[0].LoadBalancerArn},
		Tags:         []elbtypes.Tag{{Key: name, Value: other}},
	})
	l.denied("give a load balancer to another cluster", err)

	_, err = kms.NewFromConfig(operator).TagResource(t.Context(), &kms.TagResourceInput{
		KeyId: l.keyOf("demo"), Tags: []kmstypes.Tag{{TagKey: name, TagValue: other}},
	})
	l.denied("give the key to another cluster", err)
	_, err = kms.NewFromConfig(operator).UntagResource(t.Context(), &kms.UntagResourceInput{
		KeyId: l.keyOf("demo"), TagKeys: []string{*name},
	})
	l.denied("take the tag off the key, whose policy then lets everybody tag it", err)

	_, err = autoscaling.NewFromConfig(operator).CreateOrUpdateTags(t.Context(), &autoscaling.CreateOrUpdateTagsInput{
		Tags: []scalingtypes.Tag{groupTag("workers.demo", *name, *other)},
	})
	l.denied("give a group to another cluster", err)

	in := l.sameGroup("workers.demo", "spies.demo")
	in.Tags = []scalingtypes.Tag{groupTag("spies.demo", *name, *other)}
	_, err = autoscaling.NewFromConfig(operator).CreateAutoScalingGroup(t.Context(), in)
	l.denied("create a group whose machines have the tag of another cluster", err)
}

// keyOf returns the id of the key of a cluster.
func (l *lab) keyOf(cluster string) *string {
	l.Helper()
	found, err := kms.NewFromConfig(l.config(caller{})).DescribeKey(l.Context(), &kms.DescribeKeyInput{
		KeyId: sdk.String("alias/slipway/" + cluster),
	})
	l.check(err)

	return found.KeyMetadata.KeyId
}

// groupTag returns a tag of a group that its machines get as well.
func groupTag(group, key, value string) scalingtypes.Tag {
	return scalingtypes.Tag{
		Key:               &key,
		Value:             &value,
		ResourceId:        &group,
		ResourceType:      sdk.String("auto-scaling-group"),
		PropagateAtLaunch: sdk.Bool(true),
	}
}

// sameGroup returns a request for a group like another one, with another name and without machines.
func (l *lab) sameGroup(like, name string) *autoscaling.CreateAutoScalingGroupInput {
	l.Helper()
	found, err := autoscaling.NewFromConfig(l.config(caller{})).DescribeAutoScalingGroups(
		l.Context(),
		&autoscaling.DescribeAutoScalingGroupsInput{AutoScalingGroupNames: []string{like}},
	)
	l.check(err)
	g := found.AutoScalingGroups[0]
	template := g.LaunchTemplate
	if template == nil {
		template = g.MixedInstancesPolicy.LaunchTemplate.LaunchTemplateSpecification
	}

	return &autoscaling.CreateAutoScalingGroupInput{
		AutoScalingGroupName: &name,
		LaunchTemplate:       withoutName(template),
		VPCZoneIdentifier:    g.VPCZoneIdentifier,
		MinSize:              sdk.Int32(0),
		MaxSize:              sdk.Int32(0),
		Tags:                 []scalingtypes.Tag{groupTag(name, "slipway.dev/cluster", "demo")},
	}
}

// TestOperatorJoinsNoTargetsOfOthers: in a VPC that clusters share with others, the operator attaches a group of the cluster to the target
// group of another workload, and its machines get the requests of that workload. A group of another cluster whose name ends in this
// one's, x.demo, can be changed by its name. Seen to succeed before the policy named the target groups of the cluster and asked for the tag.
func TestOperatorJoinsNoTargetsOfOthers(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	root := autoscaling.NewFromConfig(l.config(caller{}))
	api := autoscaling.NewFromConfig(l.config(l.user("operator", l.policies("demo"))))
	targets := l.createTargets(l.createForeignNetwork().vpc)

	_, err := api.AttachLoadBalancerTargetGroups(t.Context(), &autoscaling.AttachLoadBalancerTargetGroupsInput{
		AutoScalingGroupName: sdk.String("workers.demo"), TargetGroupARNs: []string{targets},
	})
	l.denied("attach a group to the target group of others", err)

	in := l.sameGroup("workers.demo", "spies.demo")
	in.TargetGroupARNs = []string{targets}
	_, err = api.CreateAutoScalingGroup(t.Context(), in)
	l.denied("create a group in the target group of others", err)

	theirs := l.sameGroup("workers.demo", "workers.x.demo")
	theirs.Tags = []scalingtypes.Tag{groupTag("workers.x.demo", "slipway.dev/cluster", "x.demo")}
	_, err = root.CreateAutoScalingGroup(t.Context(), theirs)
	l.check(err)
	_, err = api.CreateOrUpdateTags(t.Context(), &autoscaling.CreateOrUpdateTagsInput{
		Tags: []scalingtypes.Tag{groupTag("workers.x.demo", "slipway.dev/cluster", "demo")},
	})
	l.denied("take the group of another cluster", err)
	_, err = api.UpdateAutoScalingGroup(t.Context(), &autoscaling.UpdateAutoScalingGroupInput{
		AutoScalingGroupName: sdk.String("workers.x.demo"), MaxSize: sdk.Int32(9),
	})
	l.denied("change the group of another cluster", err)
	_, err = api.DeleteAutoScalingGroup(t.Context(), &autoscaling.DeleteAutoScalingGroupInput{
		AutoScalingGroupName: sdk.String("workers.x.demo"),
	})
	l.denied("delete the group of another cluster", err)
}

// TestConsolesOfOthersStayUnread: operators and readers read what machines of others printed at their start, which may be secrets of
// their user data. Seen to succeed before the policies asked for the tag of the cluster.
func TestConsolesOfOthersStayUnread(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	own := l.slotOf("a").instance
	n := l.createForeignNetwork()
	made, err := ec2.NewFromConfig(l.config(caller{})).RunInstances(t.Context(), &ec2.RunInstancesInput{
		ImageId:      l.imageOf(own),
		InstanceType: ec2types.InstanceTypeM5Large,
		MinCount:     sdk.Int32(1),
		MaxCount:     sdk.Int32(1),
		SubnetId:     &n.subnet,
	})
	l.check(err)

	for name, policies := range map[string][]string{"operator": {"demo"}, "reader": {"demo", "--read-only"}} {
		api := ec2.NewFromConfig(l.config(l.user(name, l.policies(policies...))))
		_, err := api.GetConsoleOutput(t.Context(), &ec2.GetConsoleOutputInput{InstanceId: made.Instances[0].InstanceId})
		l.denied("read the console of a machine of others as "+name, err)
		_, err = api.GetConsoleOutput(t.Context(), &ec2.GetConsoleOutputInput{InstanceId: &own})
		l.check(err)
	}
}

// imageOf returns the image of a machine.
func (l *lab) imageOf(instance string) *string {
	l.Helper()
	found, err := ec2.NewFromConfig(l.config(caller{})).DescribeInstances(l.Context(), &ec2.DescribeInstancesInput{
		InstanceIds: []string{instance},
	})
	l.check(err)

	return found.Reservations[0].Instances[0].ImageId
}
