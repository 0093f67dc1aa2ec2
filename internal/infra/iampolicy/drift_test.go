// SPDX-License-Identifier: Apache-2.0

package iampolicy_test

import (
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	astypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	kmstypes "github.com/aws/aws-sdk-go-v2/service/kms/types"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// check ends the test if a call of the root's failed.
func (b *bench) check(_ any, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// drift changes resources as root, so that apply must call every operation that changes a resource in place.
func (b *bench) drift(name string, op who) {
	b.Helper()
	ctx, cfg, id, s := b.Context(), b.region.AWSConfig(), b.ids(name), sdk.String
	e, l, a := ec2.NewFromConfig(cfg), elb.NewFromConfig(cfg), autoscaling.NewFromConfig(cfg)
	ours := s("slipway.dev/stray")
	b.check(e.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{*id("vpc/main")}, Tags: []ec2types.Tag{{Key: ours, Value: s("x")}, {Key: s("Name"), Value: s("mine")}}}))
	b.check(e.ModifySubnetAttribute(ctx, &ec2.ModifySubnetAttributeInput{
		SubnetId: id("subnet/private-a"), MapPublicIpOnLaunch: &ec2types.AttributeBooleanValue{Value: sdk.Bool(true)},
	}))
	for range 100 { // apply keeps the newest hundred versions
		b.check(e.CreateLaunchTemplateVersion(ctx, &ec2.CreateLaunchTemplateVersionInput{
			LaunchTemplateId: id("launch-template/workers"), SourceVersion: s("1"), LaunchTemplateData: &ec2types.RequestLaunchTemplateData{InstanceType: "t3.nano"},
		}))
	}
	b.check(e.ModifyVolume(ctx, &ec2.ModifyVolumeInput{VolumeId: id("volume/etcd-a"), Iops: sdk.Int32(4000)}))
	b.check(e.ReplaceRoute(ctx, &ec2.ReplaceRouteInput{
		RouteTableId: id("route-table/private-a"), DestinationCidrBlock: s("0.0.0.0/0"), GatewayId: id("internet-gateway/main"),
	}))
	b.check(e.CreateRoute(ctx, &ec2.CreateRouteInput{
		RouteTableId: id("route-table/private-a"), DestinationCidrBlock: s("10.250.0.0/16"), GatewayId: id("internet-gateway/main"),
	}))
	b.check(e.ReplaceRouteTableAssociation(ctx, &ec2.ReplaceRouteTableAssociationInput{
		AssociationId: id("route-table-association/private-a"), RouteTableId: id("route-table/public"),
	}))
	b.check(e.AuthorizeSecurityGroupEgress(ctx, &ec2.AuthorizeSecurityGroupEgressInput{
		GroupId: id("security-group/worker"), IpPermissions: []ec2types.IpPermission{{
			IpProtocol: s("tcp"), FromPort: sdk.Int32(1), ToPort: sdk.Int32(2), IpRanges: []ec2types.IpRange{{CidrIp: s("192.0.2.0/24")}},
		}},
	}))
	rules, err := e.DescribeSecurityGroupRules(ctx, &ec2.DescribeSecurityGroupRulesInput{
		Filters: []ec2types.Filter{{Name: s("group-id"), Values: []string{*id("security-group/worker")}}},
	})
	b.check(rules, err)
	for _, r := range rules.SecurityGroupRules {
		if !*r.IsEgress {
			b.check(e.UpdateSecurityGroupRuleDescriptionsIngress(ctx, &ec2.UpdateSecurityGroupRuleDescriptionsIngressInput{
				GroupId: r.GroupId, SecurityGroupRuleDescriptions: []ec2types.SecurityGroupRuleDescription{{SecurityGroupRuleId: r.SecurityGroupRuleId, Description: s("mine")}},
			}))
			break
		}
	}
	b.check(e.ModifyVpcEndpoint(ctx, &ec2.ModifyVpcEndpointInput{VpcEndpointId: id("vpc-endpoint/s3"), RemoveRouteTableIds: []string{*id("route-table/private-a")}}))
	b.check(e.ModifyVpcAttribute(ctx, &ec2.ModifyVpcAttributeInput{VpcId: id("vpc/main"), EnableDnsHostnames: &ec2types.AttributeBooleanValue{Value: sdk.Bool(false)}}))

	b.check(e.DeleteVpcPeeringConnection(ctx, &ec2.DeleteVpcPeeringConnectionInput{VpcPeeringConnectionId: id("vpc-peering/data")}))

	b.driftZone(id("hosted-zone/main"), id("vpc/main"))

	lb := id("load-balancer/internal")
	b.check(l.AddTags(ctx, &elb.AddTagsInput{ResourceArns: []string{*lb}, Tags: []elbtypes.Tag{{Key: ours, Value: s("x")}, {Key: s("Name"), Value: s("mine")}}}))
	b.check(l.SetSecurityGroups(ctx, &elb.SetSecurityGroupsInput{LoadBalancerArn: lb, SecurityGroups: []string{*id("security-group/worker")}}))
	b.check(l.ModifyTargetGroup(ctx, &elb.ModifyTargetGroupInput{TargetGroupArn: id("target-group/api"), HealthCheckPath: s("/livez")}))
	b.check(l.ModifyListener(ctx, &elb.ModifyListenerInput{ListenerArn: id("listener/internal:3988"), DefaultActions: []elbtypes.Action{
		{Type: elbtypes.ActionTypeEnumForward, TargetGroupArn: id("target-group/api-internal")},
	}}))
	b.check(l.CreateListener(ctx, &elb.CreateListenerInput{
		LoadBalancerArn: lb, Port: sdk.Int32(9999), Protocol: elbtypes.ProtocolEnumTcp, DefaultActions: []elbtypes.Action{
			{Type: elbtypes.ActionTypeEnumForward, TargetGroupArn: id("target-group/api-internal")},
		},
	}))
	b.check(l.SetSubnets(ctx, &elb.SetSubnetsInput{LoadBalancerArn: lb, Subnets: []string{*id("subnet/private-a"), *id("subnet/private-b"), *id("subnet/public-c")}}))

	b.check(a.UpdateAutoScalingGroup(ctx, &autoscaling.UpdateAutoScalingGroupInput{AutoScalingGroupName: s("workers." + name), MaxSize: sdk.Int32(9)}))
	b.check(a.CreateOrUpdateTags(ctx, &autoscaling.CreateOrUpdateTagsInput{Tags: []astypes.Tag{
		scalingTag("workers."+name, "slipway.dev/stray", "x"), scalingTag("workers."+name, "Name", "mine"),
	}}))
	b.check(a.DeleteLifecycleHook(ctx, &autoscaling.DeleteLifecycleHookInput{AutoScalingGroupName: s("workers." + name), LifecycleHookName: s(model.TerminationHook)}))
	b.check(a.PutLifecycleHook(ctx, &autoscaling.PutLifecycleHookInput{
		AutoScalingGroupName: s("workers." + name), LifecycleHookName: s("slipway-stray"), LifecycleTransition: s("autoscaling:EC2_INSTANCE_TERMINATING"),
	}))
	group := "control-plane-a." + name
	b.check(a.DetachLoadBalancerTargetGroups(ctx, &autoscaling.DetachLoadBalancerTargetGroupsInput{AutoScalingGroupName: &group, TargetGroupARNs: []string{*id("target-group/join")}}))
	b.check(a.AttachLoadBalancerTargetGroups(ctx, &autoscaling.AttachLoadBalancerTargetGroupsInput{AutoScalingGroupName: s("workers." + name), TargetGroupARNs: []string{*id("target-group/join")}}))
	b.driftIdentities(name, op)
}

// driftZone associates the zone with another VPC instead of the cluster's, and changes its comment.
func (b *bench) driftZone(zone, vpc *string) {
	b.Helper()
	ctx, cfg, s := b.Context(), b.region.AWSConfig(), sdk.String
	other, err := ec2.NewFromConfig(cfg).CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: s("10.99.0.0/16")})
	b.check(other, err)
	in := func(id *string) *r53types.VPC { return &r53types.VPC{VPCId: id, VPCRegion: regiontest.RegionName} }
	z := route53.NewFromConfig(cfg)
	b.check(z.AssociateVPCWithHostedZone(ctx, &route53.AssociateVPCWithHostedZoneInput{HostedZoneId: zone, VPC: in(other.Vpc.VpcId)}))
	b.check(z.DisassociateVPCFromHostedZone(ctx, &route53.DisassociateVPCFromHostedZoneInput{HostedZoneId: zone, VPC: in(vpc)}))
	b.check(z.UpdateHostedZoneComment(ctx, &route53.UpdateHostedZoneCommentInput{Id: zone, Comment: s("mine")}))
}

func scalingTag(group, key, value string) astypes.Tag {
	return astypes.Tag{Key: &key, Value: &value, ResourceId: &group, ResourceType: sdk.String("auto-scaling-group"), PropagateAtLaunch: sdk.Bool(true)}
}

func (b *bench) driftIdentities(name string, op who) {
	b.Helper()
	ctx, cfg, id, s := b.Context(), b.region.AWSConfig(), b.ids(name), sdk.String
	i, k := iam.NewFromConfig(cfg), kms.NewFromConfig(cfg)
	role, key := id("iam-role/worker"), id("kms-key/main")
	b.check(i.TagRole(ctx, &iam.TagRoleInput{RoleName: role, Tags: []iamtypes.Tag{{Key: s("slipway.dev/stray"), Value: s("x")}, {Key: s("Name"), Value: s("mine")}}}))
	b.check(i.UpdateRole(ctx, &iam.UpdateRoleInput{RoleName: role, Description: s("mine")}))
	// A role of an older slipway has no boundary.
	b.check(i.DeleteRolePermissionsBoundary(ctx, &iam.DeleteRolePermissionsBoundaryInput{RoleName: role}))
	b.check(i.DeleteRolePermissionsBoundary(ctx, &iam.DeleteRolePermissionsBoundaryInput{RoleName: s(model.KarpenterRoleName(name, regiontest.RegionName))}))
	b.check(k.TagResource(ctx, &kms.TagResourceInput{KeyId: key, Tags: []kmstypes.Tag{
		{TagKey: s("slipway.dev/stray"), TagValue: s("x")}, {TagKey: s("Name"), TagValue: s("mine")},
	}}))
	b.check(k.UpdateKeyDescription(ctx, &kms.UpdateKeyDescriptionInput{KeyId: key, Description: s("mine")}))
	b.check(k.DisableKeyRotation(ctx, &kms.DisableKeyRotationInput{KeyId: key}))
	b.check(k.DisableKey(ctx, &kms.DisableKeyInput{KeyId: key}))
	b.driftProvider(id("iam-oidc-provider/pods"))
	more, err := i.CreatePolicy(ctx, &iam.CreatePolicyInput{PolicyName: s("more"), PolicyDocument: s(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}`)})
	b.check(more, err)
	b.check(i.AttachRolePolicy(ctx, &iam.AttachRolePolicyInput{RoleName: role, PolicyArn: more.Policy.Arn}))

	alias := awskind.KMSAlias{Name: model.KeyAliasName(name), Target: graph.UnmanagedRef[awskind.KMSKey](*key)}
	cfg.Credentials = credentials.NewStaticCredentialsProvider(op.key, op.secret, "")
	b.check(b.cloud(cfg, name).Update(ctx, plan.Task{Step: plan.Step{Kind: "kms-alias"}, Desired: alias, Actual: plan.ActualResource{ID: alias.Name, Resource: alias}}))
	// An earlier run has created the profile, and the eventually consistent list does not show it yet.
	p := awskind.InstanceProfile{Name: *id("iam-instance-profile/worker"), Path: model.RolePath(name, regiontest.RegionName), Roles: []graph.Ref[awskind.IAMRole]{graph.UnmanagedRef[awskind.IAMRole](*role)}}
	b.check(b.cloud(cfg, name).Create(ctx, plan.Task{Step: plan.Step{Kind: "iam-instance-profile"}, Desired: p, ReportWaiting: func(string) {}}))
}

// driftProvider changes the audiences and the tags of an OpenID Connect provider.
func (b *bench) driftProvider(arn *string) {
	b.Helper()
	ctx := b.Context()
	i := iam.NewFromConfig(b.region.AWSConfig())
	s := sdk.String
	b.check(i.AddClientIDToOpenIDConnectProvider(ctx, &iam.AddClientIDToOpenIDConnectProviderInput{OpenIDConnectProviderArn: arn, ClientID: s("vault")}))
	b.check(i.RemoveClientIDFromOpenIDConnectProvider(ctx, &iam.RemoveClientIDFromOpenIDConnectProviderInput{
		OpenIDConnectProviderArn: arn, ClientID: s(model.STSAudience),
	}))
	b.check(i.TagOpenIDConnectProvider(ctx, &iam.TagOpenIDConnectProviderInput{OpenIDConnectProviderArn: arn, Tags: []iamtypes.Tag{
		{Key: s("slipway.dev/stray"), Value: s("x")}, {Key: s("Name"), Value: s("mine")},
	}}))
}

// replaceMachine detaches and terminates a worker, and terminates another one, as a rolling update does, which needs a
// Kubernetes API for the rest.
func (b *bench) replaceMachine(name string, op who) {
	b.Helper()
	cfg := b.region.AWSConfig()
	groups, err := autoscaling.NewFromConfig(cfg).DescribeAutoScalingGroups(b.Context(), &autoscaling.DescribeAutoScalingGroupsInput{
		AutoScalingGroupNames: []string{"workers." + name},
	})
	b.check(groups, err)
	cfg.Credentials = credentials.NewStaticCredentialsProvider(op.key, op.secret, "")
	detached := []string{*groups.AutoScalingGroups[0].Instances[0].InstanceId}
	b.check(ec2.NewFromConfig(cfg).CreateTags(b.Context(), &ec2.CreateTagsInput{
		Resources: detached, Tags: []ec2types.Tag{{Key: sdk.String("slipway.dev/detached"), Value: sdk.String("workers")}},
	}))
	b.check(autoscaling.NewFromConfig(cfg).DetachInstances(b.Context(), &autoscaling.DetachInstancesInput{
		AutoScalingGroupName: sdk.String("workers." + name), InstanceIds: detached, ShouldDecrementDesiredCapacity: sdk.Bool(false),
	}))
	b.check(ec2.NewFromConfig(cfg).TerminateInstances(b.Context(), &ec2.TerminateInstancesInput{InstanceIds: detached}))
	for range 200 {
		groups, err = autoscaling.NewFromConfig(b.region.AWSConfig()).DescribeAutoScalingGroups(b.Context(), &autoscaling.DescribeAutoScalingGroupsInput{
			AutoScalingGroupNames: []string{"workers." + name},
		})
		b.check(groups, err)
		if len(groups.AutoScalingGroups[0].Instances) > 0 {
			break
		}

		time.Sleep(50 * time.Millisecond)
	}

	b.check(autoscaling.NewFromConfig(cfg).TerminateInstanceInAutoScalingGroup(b.Context(), &autoscaling.TerminateInstanceInAutoScalingGroupInput{
		InstanceId: groups.AutoScalingGroups[0].Instances[0].InstanceId, ShouldDecrementDesiredCapacity: sdk.Bool(false),
	}))
	b.check(autoscaling.NewFromConfig(cfg).CompleteLifecycleAction(b.Context(), &autoscaling.CompleteLifecycleActionInput{
		AutoScalingGroupName: sdk.String("workers." + name), LifecycleHookName: sdk.String(model.TerminationHook),
		LifecycleActionResult: sdk.String("CONTINUE"), InstanceId: groups.AutoScalingGroups[0].Instances[0].InstanceId,
	}))
}

// litter creates the resources that programs in the cluster leave behind.
func (b *bench) litter(name string) {
	b.Helper()
	ctx, cfg, id, s := b.Context(), b.region.AWSConfig(), b.ids(name), sdk.String
	e, l := ec2.NewFromConfig(cfg), elb.NewFromConfig(cfg)
	tags := func(kind ec2types.ResourceType, key, value string) []ec2types.TagSpecification {
		return []ec2types.TagSpecification{{ResourceType: kind, Tags: []ec2types.Tag{{Key: &key, Value: &value}}}}
	}
	for _, by := range [][2]string{{"elbv2.k8s.aws/cluster", name}, {"kubernetes.io/cluster/" + name, "owned"}} {
		prefix := by[0][:5]
		var groups []string
		for _, end := range []string{"front", "back"} {
			g, err := e.CreateSecurityGroup(ctx, &ec2.CreateSecurityGroupInput{
				VpcId: id("vpc/main"), GroupName: s(prefix + end), Description: s("x"), TagSpecifications: tags(ec2types.ResourceTypeSecurityGroup, by[0], by[1]),
			})
			b.check(g, err)
			groups = append(groups, *g.GroupId)
		}
		for i := range groups { // they refer to each other, so that neither can be deleted first
			permit := []ec2types.IpPermission{{IpProtocol: s("tcp"), FromPort: sdk.Int32(1), ToPort: sdk.Int32(2), UserIdGroupPairs: []ec2types.UserIdGroupPair{{GroupId: &groups[1-i]}}}}
			b.check(e.AuthorizeSecurityGroupIngress(ctx, &ec2.AuthorizeSecurityGroupIngressInput{GroupId: &groups[i], IpPermissions: permit}))
			b.check(e.AuthorizeSecurityGroupEgress(ctx, &ec2.AuthorizeSecurityGroupEgressInput{GroupId: &groups[i], IpPermissions: permit}))
		}
		elbTags := []elbtypes.Tag{{Key: &by[0], Value: &by[1]}}
		b.check(l.CreateLoadBalancer(ctx, &elb.CreateLoadBalancerInput{
			Name: s("k8s-" + prefix), Type: elbtypes.LoadBalancerTypeEnumNetwork, Scheme: elbtypes.LoadBalancerSchemeEnumInternal,
			Subnets: []string{*id("subnet/private-a")}, SecurityGroups: groups[:1], Tags: elbTags,
		}))
		b.check(l.CreateTargetGroup(ctx, &elb.CreateTargetGroupInput{
			Name: s("k8s-" + prefix), VpcId: id("vpc/main"), Protocol: elbtypes.ProtocolEnumTcp, Port: sdk.Int32(80), TargetType: elbtypes.TargetTypeEnumInstance, Tags: elbTags,
		}))
	}
	for _, by := range [][2]string{{"cluster.k8s.amazonaws.com/name", name}, {"kubernetes.io/cluster/" + name, "owned"}} {
		b.check(e.CreateNetworkInterface(ctx, &ec2.CreateNetworkInterfaceInput{SubnetId: id("subnet/private-a"), TagSpecifications: tags(ec2types.ResourceTypeNetworkInterface, by[0], by[1])}))
	}
	for _, by := range [][2]string{{"slipway.dev/cluster", name}, {"kubernetes.io/cluster/" + name, "owned"}} {
		b.check(e.RunInstances(ctx, &ec2.RunInstancesInput{
			ImageId: s(regiontest.ImageID), InstanceType: ec2types.InstanceTypeM5Large, MinCount: sdk.Int32(1), MaxCount: sdk.Int32(1),
			SubnetId: id("subnet/private-a"), TagSpecifications: tags(ec2types.ResourceTypeInstance, by[0], by[1]),
		}))
	}
	v, err := e.CreateVolume(ctx, &ec2.CreateVolumeInput{
		AvailabilityZone: s("us-east-1a"), Size: sdk.Int32(8), TagSpecifications: tags(ec2types.ResourceTypeVolume, "kubernetes.io/cluster/"+name, "owned"),
	})
	b.check(v, err)
	b.check(e.CreateSnapshot(ctx, &ec2.CreateSnapshotInput{VolumeId: v.VolumeId, TagSpecifications: tags(ec2types.ResourceTypeSnapshot, "kubernetes.io/cluster/"+name, "owned")}))
}
