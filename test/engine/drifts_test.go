// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"slices"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	scalingtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	kmstypes "github.com/aws/aws-sdk-go-v2/service/kms/types"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// drifts is the table of docs/operations/drift.md.
func drifts() []drift {
	return slices.Concat(tagDrifts(), networkDrifts(), dnsDrifts(), ruleDrifts(), identityDrifts(), podDrifts(), keyDrifts(), balancerDrifts(), machineDrifts(), lossDrifts())
}

// setTag sets a tag of an EC2 resource.
func setTag(addr graph.Addr, key, value string) func(awsClients) error {
	return func(h awsClients) error {
		_, err := h.ec2.CreateTags(h, &ec2.CreateTagsInput{Resources: []string{*h.resourceID(addr)}, Tags: []ec2types.Tag{{Key: &key, Value: &value}}})
		return err
	}
}

func tagDrifts() []drift {
	return []drift{
		{description: "a tag that Slipway set is changed", change: setTag("subnet/private-a", "Name", "mine"), want: []string{"~ subnet/private-a", `  Tags[Name]: "mine" → "private-a.demo"`}},
		{description: "a tag that Slipway set is removed", change: func(h awsClients) error {
			_, err := h.ec2.DeleteTags(h, &ec2.DeleteTagsInput{Resources: []string{*h.resourceID("vpc/main")}, Tags: []ec2types.Tag{{Key: sdk.String("kubernetes.io/cluster/demo")}}})
			return err
		}, want: []string{"~ vpc/main", `  Tags[kubernetes.io/cluster/demo]: (not set) → "owned"`}},
		{description: "a tag with Slipway's prefix is added", change: setTag("eip/nat-us-east-1a", "slipway.dev/role", "worker"), want: []string{"~ eip/nat-us-east-1a", `  Tags[slipway.dev/role]: "worker" → (not set)`}},
		{description: "an etcd volume claims another slot", change: setTag("volume/etcd-a", "slipway.dev/etcd-slot", "z"), want: []string{"~ volume/etcd-a", `  Tags[slipway.dev/etcd-slot]: "z" → "a"`}},
		{
			description: "an internet gateway's tag is changed",
			change:      setTag("internet-gateway/main", "Name", "mine"),
			want:        []string{"~ internet-gateway/main", `  Tags[Name]: "mine" → "main.demo"`},
		},
		{
			description: "a route table's tag is changed",
			change:      setTag("route-table/public", "Name", "mine"),
			want:        []string{"~ route-table/public", `  Tags[Name]: "mine" → "public.demo"`},
		},
		{
			description: "a security group's tag is changed",
			change:      setTag("security-group/worker", "Name", "mine"),
			want:        []string{"~ security-group/worker", `  Tags[Name]: "mine" → "worker.demo"`},
		},
		{description: "a role's tag is changed", change: func(h awsClients) error {
			_, err := h.iam.TagRole(h, &iam.TagRoleInput{RoleName: h.resourceID("iam-role/worker"), Tags: iamTags("Name", "mine")})
			return err
		}, want: []string{"~ iam-role/worker", `  Tags[Name]: "mine" → "worker.demo"`}},
		{description: "a key's tag is changed", change: func(h awsClients) error {
			_, err := h.kms.TagResource(h, &kms.TagResourceInput{KeyId: h.resourceID("kms-key/main"), Tags: []kmstypes.Tag{{TagKey: sdk.String("Name"), TagValue: sdk.String("mine")}}})
			return err
		}, want: []string{"~ kms-key/main", `  Tags[Name]: "mine" → "main.demo"`}},
		{description: "a load balancer's tag is removed", change: func(h awsClients) error {
			_, err := h.elb.RemoveTags(h, &elb.RemoveTagsInput{ResourceArns: []string{*h.resourceID("load-balancer/api")}, TagKeys: []string{"Name"}})
			return err
		}, want: []string{"~ load-balancer/api", `  Tags[Name]: (not set) → "api.demo"`}},
		{description: "an auto scaling group's tag is changed", change: func(h awsClients) error {
			_, err := h.scaling.CreateOrUpdateTags(h, &autoscaling.CreateOrUpdateTagsInput{Tags: []scalingtypes.Tag{{
				ResourceId: sdk.String("workers.demo"), ResourceType: sdk.String("auto-scaling-group"), Key: sdk.String("slipway.dev/group"), Value: sdk.String("others"), PropagateAtLaunch: sdk.Bool(true),
			}}})
			return err
		}, want: []string{"~ autoscaling-group/workers", `  Tags[slipway.dev/group]: "others" → "workers"`}},
	}
}

func networkDrifts() []drift {
	return []drift{
		{description: "DNS hostnames of a VPC are disabled", change: func(h awsClients) error {
			_, err := h.ec2.ModifyVpcAttribute(h, &ec2.ModifyVpcAttributeInput{VpcId: h.resourceID("vpc/main"), EnableDnsHostnames: newFalseAttribute()})
			return err
		}, want: []string{"~ vpc/main", "  EnableDnsHostnames: false → true"}},
		{description: "DNS support of a VPC is disabled", change: func(h awsClients) error {
			if _, err := h.ec2.ModifyVpcAttribute(h, &ec2.ModifyVpcAttributeInput{VpcId: h.resourceID("vpc/main"), EnableDnsHostnames: newFalseAttribute()}); err != nil {
				return err
			}
			_, err := h.ec2.ModifyVpcAttribute(h, &ec2.ModifyVpcAttributeInput{VpcId: h.resourceID("vpc/main"), EnableDnsSupport: newFalseAttribute()})
			return err
		}, want: []string{"~ vpc/main", "  EnableDnsHostnames: false → true", "  EnableDnsSupport: false → true"}},
		{description: "a private subnet assigns public addresses", change: func(h awsClients) error {
			_, err := h.ec2.ModifySubnetAttribute(h, &ec2.ModifySubnetAttributeInput{SubnetId: h.resourceID("subnet/private-b"), MapPublicIpOnLaunch: &ec2types.AttributeBooleanValue{Value: sdk.Bool(true)}})
			return err
		}, want: []string{"~ subnet/private-b", "  MapPublicIpOnLaunch: true → false"}},
		{description: "a route is removed", change: func(h awsClients) error {
			_, err := h.ec2.DeleteRoute(h, &ec2.DeleteRouteInput{RouteTableId: h.resourceID("route-table/private-b"), DestinationCidrBlock: sdk.String("0.0.0.0/0")})
			return err
		}, want: []string{"+ route/private-b"}},
		{description: "a route has another target", change: func(h awsClients) error {
			_, err := h.ec2.ReplaceRoute(h, &ec2.ReplaceRouteInput{RouteTableId: h.resourceID("route-table/private-b"), DestinationCidrBlock: sdk.String("0.0.0.0/0"), NatGatewayId: h.resourceID("nat-gateway/nat-us-east-1a")})
			return err
		}, want: []string{"~ route/private-b", `  NatGatewayId: "ID" → "ID"`}},
		{description: "a route that bypasses the NAT gateway is added", change: func(h awsClients) error {
			_, err := h.ec2.CreateRoute(h, &ec2.CreateRouteInput{RouteTableId: h.resourceID("route-table/private-a"), DestinationCidrBlock: sdk.String("198.51.100.0/24"), GatewayId: h.resourceID("internet-gateway/main")})
			return err
		}, want: []string{"- route/private-a:198.51.100.0/24"}},
		{description: "the return route of a peering is removed from the other VPC", change: func(h awsClients) error {
			table, dest, _ := strings.Cut(*h.resourceID("route/from-data-0"), "/")
			_, err := h.ec2.DeleteRoute(h, &ec2.DeleteRouteInput{RouteTableId: &table, DestinationCidrBlock: &dest})
			return err
		}, want: []string{"+ route/from-data-0"}},
		{description: "a VPC peering is deleted", change: func(h awsClients) error {
			_, err := h.ec2.DeleteVpcPeeringConnection(h, &ec2.DeleteVpcPeeringConnectionInput{VpcPeeringConnectionId: h.resourceID("vpc-peering/data")})
			return err
		}, want: []string{
			"+ vpc-peering/data",
			"~ route/public-to-data-0", `  VpcPeeringConnectionId: "ID" → (known after apply)`,
			"~ route/private-a-to-data-0", `  VpcPeeringConnectionId: "ID" → (known after apply)`,
			"~ route/private-b-to-data-0", `  VpcPeeringConnectionId: "ID" → (known after apply)`,
			"~ route/private-c-to-data-0", `  VpcPeeringConnectionId: "ID" → (known after apply)`,
			"~ route/from-data-0", `  VpcPeeringConnectionId: "ID" → (known after apply)`,
		}, leavesNewVersion: true},
		{
			description: "a route table is removed from a VPC endpoint",
			change: func(h awsClients) error {
				_, err := h.ec2.ModifyVpcEndpoint(h, &ec2.ModifyVpcEndpointInput{
					VpcEndpointId:       h.resourceID("vpc-endpoint/s3"),
					RemoveRouteTableIds: []string{*h.resourceID("route-table/private-a")},
				})

				return err
			},
			want: []string{"~ vpc-endpoint/s3", "  RouteTableIds:"},
		},
		{
			description: "a VPC endpoint is deleted",
			change: func(h awsClients) error {
				_, err := h.ec2.DeleteVpcEndpoints(h, &ec2.DeleteVpcEndpointsInput{
					VpcEndpointIds: []string{*h.resourceID("vpc-endpoint/s3")},
				})

				return err
			},
			want:             []string{"+ vpc-endpoint/s3"},
			leavesNewVersion: true,
		},
		{description: "a subnet uses another route table", change: func(h awsClients) error {
			_, err := h.ec2.ReplaceRouteTableAssociation(h, &ec2.ReplaceRouteTableAssociationInput{AssociationId: h.resourceID("route-table-association/private-c"), RouteTableId: h.resourceID("route-table/public")})
			return err
		}, want: []string{"-/+ route-table-association/private-c", `  RouteTableId: "ID" → "ID"`}},
		{description: "a subnet is disassociated from its route table", change: func(h awsClients) error {
			_, err := h.ec2.DisassociateRouteTable(h, &ec2.DisassociateRouteTableInput{AssociationId: h.resourceID("route-table-association/private-a")})
			return err
		}, want: []string{"+ route-table-association/private-a"}},
	}
}

func newFalseAttribute() *ec2types.AttributeBooleanValue {
	return &ec2types.AttributeBooleanValue{Value: sdk.Bool(false)}
}

func openIngress(group *string, port int32) *ec2.AuthorizeSecurityGroupIngressInput {
	return &ec2.AuthorizeSecurityGroupIngressInput{GroupId: group, IpPermissions: []ec2types.IpPermission{{
		IpProtocol: sdk.String("tcp"), FromPort: &port, ToPort: &port, IpRanges: []ec2types.IpRange{{CidrIp: sdk.String("0.0.0.0/0")}},
	}}}
}

func ruleDrifts() []drift {
	return []drift{
		{description: "an ingress rule is removed", change: func(h awsClients) error {
			_, err := h.ec2.RevokeSecurityGroupIngress(h, &ec2.RevokeSecurityGroupIngressInput{
				GroupId: h.resourceID("security-group/worker"), SecurityGroupRuleIds: []string{*h.resourceID("security-group-ingress/kubelet-worker")},
			})
			return err
		}, want: []string{"+ security-group-ingress/kubelet-worker"}},
		{description: "SSH is opened to the internet", change: func(h awsClients) error {
			_, err := h.ec2.AuthorizeSecurityGroupIngress(h, openIngress(h.resourceID("security-group/worker"), 22))
			return err
		}, want: []string{"- security-group-ingress/worker:tcp:22:22:0.0.0.0/0"}},
		{description: "an egress rule is removed", change: func(h awsClients) error {
			_, err := h.ec2.RevokeSecurityGroupEgress(h, &ec2.RevokeSecurityGroupEgressInput{
				GroupId: h.resourceID("security-group/worker"), SecurityGroupRuleIds: []string{*h.resourceID("security-group-egress/worker")},
			})
			return err
		}, want: []string{"+ security-group-egress/worker"}},
		{description: "an egress rule is added", change: func(h awsClients) error {
			_, err := h.ec2.AuthorizeSecurityGroupEgress(h, &ec2.AuthorizeSecurityGroupEgressInput{GroupId: h.resourceID("security-group/api-internal"), IpPermissions: []ec2types.IpPermission{{
				IpProtocol: sdk.String("-1"), IpRanges: []ec2types.IpRange{{CidrIp: sdk.String("0.0.0.0/0")}},
			}}})
			return err
		}, want: []string{"- security-group-egress/api-internal:-1:0.0.0.0/0"}},
		{description: "a rule's description is changed", change: func(h awsClients) error {
			_, err := h.ec2.ModifySecurityGroupRules(h, &ec2.ModifySecurityGroupRulesInput{GroupId: h.resourceID("security-group/api-public"), SecurityGroupRules: []ec2types.SecurityGroupRuleUpdate{{
				SecurityGroupRuleId: h.resourceID("security-group-ingress/access-0"),
				SecurityGroupRule:   &ec2types.SecurityGroupRuleRequest{IpProtocol: sdk.String("tcp"), FromPort: sdk.Int32(443), ToPort: sdk.Int32(443), CidrIpv4: sdk.String("0.0.0.0/0"), Description: sdk.String("temporary")},
			}}})
			return err
		}, want: []string{"~ security-group-ingress/access-0", `  Description: "temporary" →`}},
		{description: "the source of an ingress rule is changed", change: func(h awsClients) error {
			_, err := h.ec2.ModifySecurityGroupRules(h, &ec2.ModifySecurityGroupRulesInput{GroupId: h.resourceID("security-group/worker"), SecurityGroupRules: []ec2types.SecurityGroupRuleUpdate{{
				SecurityGroupRuleId: h.resourceID("security-group-ingress/kubelet-worker"),
				SecurityGroupRule:   &ec2types.SecurityGroupRuleRequest{IpProtocol: sdk.String("tcp"), FromPort: sdk.Int32(10250), ToPort: sdk.Int32(10250), ReferencedGroupId: h.resourceID("security-group/worker")},
			}}})
			return err
		}, want: []string{"+ security-group-ingress/kubelet-worker", "- security-group-ingress/worker:tcp:10250:10250:worker"}},
	}
}

const allowAllPolicy = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}`

func identityDrifts() []drift {
	return []drift{
		{description: "a role gets a policy", change: func(h awsClients) error {
			_, err := h.iam.PutRolePolicy(h, &iam.PutRolePolicyInput{RoleName: h.resourceID("iam-role/worker"), PolicyName: sdk.String("extra"), PolicyDocument: sdk.String(allowAllPolicy)})
			return err
		}, want: []string{"- iam-role-policy/worker:extra"}},
		{description: "a role's policy is changed", change: func(h awsClients) error {
			_, err := h.iam.PutRolePolicy(h, &iam.PutRolePolicyInput{RoleName: h.resourceID("iam-role/control-plane-a"), PolicyName: sdk.String("machine"), PolicyDocument: sdk.String(allowAllPolicy)})
			return err
		}, want: []string{"~ iam-role-policy/control-plane-a", "  PolicyDocument:"}},
		{description: "a role's policy is removed", change: func(h awsClients) error {
			_, err := h.iam.DeleteRolePolicy(h, &iam.DeleteRolePolicyInput{RoleName: h.resourceID("iam-role/worker"), PolicyName: sdk.String("machine")})
			return err
		}, want: []string{"+ iam-role-policy/worker"}},
		{description: "a managed policy is attached to a role", change: func(h awsClients) error {
			_, err := h.iam.AttachRolePolicy(h, &iam.AttachRolePolicyInput{RoleName: h.resourceID("iam-role/worker"), PolicyArn: sdk.String("arn:aws:iam::aws:policy/AdministratorAccess")})
			return err
		}, want: []string{"~ iam-role/worker", `  ManagedPolicyArns: ["arn:aws:iam::aws:policy/AdministratorAccess"] → []`}},
		{description: "another principal may assume a role", change: func(h awsClients) error {
			_, err := h.iam.UpdateAssumeRolePolicy(h, &iam.UpdateAssumeRolePolicyInput{RoleName: h.resourceID("iam-role/control-plane-a"), PolicyDocument: sdk.String(
				`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"*"},"Action":"sts:AssumeRole"}]}`)})
			return err
		}, want: []string{"~ iam-role/control-plane-a", "  AssumeRolePolicyDocument:"}},
		{description: "an instance profile has no role", change: func(h awsClients) error {
			_, err := h.iam.RemoveRoleFromInstanceProfile(h, &iam.RemoveRoleFromInstanceProfileInput{InstanceProfileName: h.resourceID("iam-instance-profile/worker"), RoleName: h.resourceID("iam-role/worker")})
			return err
		}, want: []string{"~ iam-instance-profile/worker", `  Roles: (not set) → ["demo.worker.us-east-1"]`}},
		{description: "an instance profile has the control plane's role", change: func(h awsClients) error {
			_, err := h.iam.RemoveRoleFromInstanceProfile(h, &iam.RemoveRoleFromInstanceProfileInput{InstanceProfileName: h.resourceID("iam-instance-profile/worker"), RoleName: h.resourceID("iam-role/worker")})
			if err != nil {
				return err
			}
			_, err = h.iam.AddRoleToInstanceProfile(h, &iam.AddRoleToInstanceProfileInput{InstanceProfileName: h.resourceID("iam-instance-profile/worker"), RoleName: h.resourceID("iam-role/control-plane-a")})
			return err
		}, want: []string{"~ iam-instance-profile/worker", `  Roles: ["demo.control-plane-a.us-east-1"] → ["demo.worker.us-east-1"]`}},
	}
}

func keyDrifts() []drift {
	return []drift{
		{description: "a key's rotation is disabled", change: func(h awsClients) error {
			_, err := h.kms.DisableKeyRotation(h, &kms.DisableKeyRotationInput{KeyId: h.resourceID("kms-key/main")})
			return err
		}, want: []string{"~ kms-key/main", "  EnableKeyRotation: false → true"}},
		{description: "a key's policy is changed", change: func(h awsClients) error {
			_, err := h.kms.PutKeyPolicy(h, &kms.PutKeyPolicyInput{KeyId: h.resourceID("kms-key/main"), PolicyName: sdk.String("default"), Policy: sdk.String(
				`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::123456789012:root"},"Action":"kms:*","Resource":"*"}]}`)})
			return err
		}, want: []string{"~ kms-key/main", "  KeyPolicy:"}},
		{description: "a key is disabled", change: func(h awsClients) error {
			_, err := h.kms.DisableKey(h, &kms.DisableKeyInput{KeyId: h.resourceID("kms-key/main")})
			return err
		}, want: []string{"~ kms-key/main", "  Enabled: false → true"}},
		{description: "an alias is removed", change: func(h awsClients) error {
			_, err := h.kms.DeleteAlias(h, &kms.DeleteAliasInput{AliasName: h.resourceID("kms-alias/main")})
			return err
		}, want: []string{"+ kms-alias/main"}},
		{description: "an alias points to another key", change: func(h awsClients) error {
			made, err := h.kms.CreateKey(h, &kms.CreateKeyInput{})
			if err != nil {
				return err
			}
			time.Sleep(regiontest.LikeAWS) // until KMS sees the key
			_, err = h.kms.UpdateAlias(h, &kms.UpdateAliasInput{AliasName: h.resourceID("kms-alias/main"), TargetKeyId: made.KeyMetadata.KeyId})
			if err != nil {
				return err
			}
			_, err = h.kms.ScheduleKeyDeletion(h, &kms.ScheduleKeyDeletionInput{KeyId: made.KeyMetadata.KeyId, PendingWindowInDays: sdk.Int32(7)})
			return err
		}, want: []string{"~ kms-alias/main", "  TargetKeyId:"}},
	}
}

func balancerDrifts() []drift {
	attribute := func(addr graph.Addr, key, value string) func(awsClients) error {
		return func(h awsClients) error {
			_, err := h.elb.ModifyLoadBalancerAttributes(h, &elb.ModifyLoadBalancerAttributesInput{LoadBalancerArn: h.resourceID(addr), Attributes: []elbtypes.LoadBalancerAttribute{{Key: &key, Value: &value}}})
			return err
		}
	}
	return []drift{
		{
			description: "cross-zone load balancing is disabled", change: attribute("load-balancer/api", "load_balancing.cross_zone.enabled", "false"),
			want: []string{"~ load-balancer/api", `  LoadBalancerAttributes[load_balancing.cross_zone.enabled]: "false" → "true"`},
		},
		{description: "a load balancer has another security group", change: func(h awsClients) error {
			_, err := h.elb.SetSecurityGroups(h, &elb.SetSecurityGroupsInput{LoadBalancerArn: h.resourceID("load-balancer/api"), SecurityGroups: []string{*h.resourceID("security-group/api-internal")}})
			return err
		}, want: []string{"~ load-balancer/api", `  SecurityGroups: ["ID"] → ["ID"]`}},
		{description: "the path of a health check is changed", change: func(h awsClients) error {
			_, err := h.elb.ModifyTargetGroup(h, &elb.ModifyTargetGroupInput{TargetGroupArn: h.resourceID("target-group/api"), HealthCheckPath: sdk.String("/livez")})
			return err
		}, want: []string{"~ target-group/api", `  HealthCheckPath: "/livez" → "/readyz"`}},
		{description: "the interval of a health check is raised", change: func(h awsClients) error {
			_, err := h.elb.ModifyTargetGroup(h, &elb.ModifyTargetGroupInput{TargetGroupArn: h.resourceID("target-group/join"), HealthCheckIntervalSeconds: sdk.Int32(300), UnhealthyThresholdCount: sdk.Int32(10)})
			return err
		}, want: []string{"~ target-group/join", "  HealthCheckIntervalSeconds: 300 → 5", "  UnhealthyThresholdCount: 10 → 2"}},
		{description: "an attribute of a target group is changed", change: func(h awsClients) error {
			_, err := h.elb.ModifyTargetGroupAttributes(h, &elb.ModifyTargetGroupAttributesInput{TargetGroupArn: h.resourceID("target-group/api"), Attributes: []elbtypes.TargetGroupAttribute{{
				Key: sdk.String("deregistration_delay.timeout_seconds"), Value: sdk.String("300"),
			}}})
			return err
		}, want: []string{"~ target-group/api", `  TargetGroupAttributes[deregistration_delay.timeout_seconds]: "300" → "10"`}},
		{description: "a lifecycle hook is removed", change: func(h awsClients) error {
			_, err := h.scaling.DeleteLifecycleHook(h, &autoscaling.DeleteLifecycleHookInput{AutoScalingGroupName: h.resourceID("autoscaling-group/workers"), LifecycleHookName: sdk.String("slipway-drain")})
			return err
		}, want: []string{"+ lifecycle-hook/workers"}},
		{description: "a lifecycle hook waits longer", change: func(h awsClients) error {
			_, err := h.scaling.PutLifecycleHook(h, &autoscaling.PutLifecycleHookInput{
				AutoScalingGroupName: h.resourceID("autoscaling-group/workers"), LifecycleHookName: sdk.String("slipway-drain"), HeartbeatTimeout: sdk.Int32(300), DefaultResult: sdk.String("ABANDON"),
			})
			return err
		}, want: []string{"~ lifecycle-hook/workers", `  DefaultResult: "ABANDON" → "CONTINUE"`, "  HeartbeatTimeout: 300 → 60"}},
		{description: "a listener is removed", change: func(h awsClients) error {
			_, err := h.elb.DeleteListener(h, &elb.DeleteListenerInput{ListenerArn: h.resourceID("listener/join")})
			return err
		}, want: []string{"+ listener/join"}},
		{description: "a listener forwards to another target group", change: func(h awsClients) error {
			_, err := h.elb.ModifyListener(h, &elb.ModifyListenerInput{ListenerArn: h.resourceID("listener/api-internal"), DefaultActions: []elbtypes.Action{{
				Type: elbtypes.ActionTypeEnumForward, TargetGroupArn: h.resourceID("target-group/join"),
			}}})
			return err
		}, want: []string{"~ listener/api-internal", "  DefaultActions[0].TargetGroupArn:"}},
		{description: "a listener is added", change: func(h awsClients) error {
			_, err := h.elb.CreateListener(h, &elb.CreateListenerInput{LoadBalancerArn: h.resourceID("load-balancer/api"), Port: sdk.Int32(3988), Protocol: elbtypes.ProtocolEnumTcp, DefaultActions: []elbtypes.Action{{
				Type: elbtypes.ActionTypeEnumForward, TargetGroupArn: h.resourceID("target-group/api"),
			}}})
			return err
		}, want: []string{"- listener/api:3988"}},
	}
}
