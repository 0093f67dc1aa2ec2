// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
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
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/slipway-k8s/slipway/internal/infra/aws"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// hand changes resources outside of slipway: through the AWS API.
type hand struct {
	ctx   context.Context
	ec2   *ec2.Client
	elb   *elb.Client
	iam   *iam.Client
	kms   *kms.Client
	s3    *s3.Client
	scale *autoscaling.Client
	cloud *aws.Cloud
}

const tampered = "demo" // the cluster

func newHand(ctx context.Context, r regiontest.Region) hand {
	cfg := r.AWSConfig()
	return hand{
		ctx: ctx, ec2: ec2.NewFromConfig(cfg), elb: elb.NewFromConfig(cfg), iam: iam.NewFromConfig(cfg), kms: kms.NewFromConfig(cfg),
		s3: s3.NewFromConfig(cfg), scale: autoscaling.NewFromConfig(cfg),
		cloud: aws.New(cfg, aws.Scope{
			Cluster: tampered, Region: cfg.Region, RolePath: model.RolePath(tampered, cfg.Region), KeyAlias: model.KeyAliasName(tampered),
		}),
	}
}

// has says whether a resource's property has a value.
func has(r graph.Resource, property, value string) bool {
	for _, f := range graph.Fields(r) {
		if f.Property == property {
			return fmt.Sprint(f.Value) == value
		}
	}
	return false
}

// find returns the identity of what has the address, or of a kind without tags has the properties.
func (h hand) find(addr string, properties ...string) *string {
	have, err := h.cloud.Read(h.ctx)
	if err != nil {
		panic(err)
	}
	for _, a := range have {
		is := a.Addr == graph.Addr(addr) || a.Addr == "" && a.Resource.Kind().Name == addr
		for i := 0; i+1 < len(properties); i += 2 {
			is = is && has(a.Resource, properties[i], properties[i+1])
		}
		if is {
			return &a.ID
		}
	}
	panic("there is no " + addr + fmt.Sprint(properties))
}

func (h hand) tag(addr, key, value string) error {
	_, err := h.ec2.CreateTags(h.ctx, &ec2.CreateTagsInput{
		Resources: []string{*h.find(addr)}, Tags: []ec2types.Tag{{Key: &key, Value: &value}},
	})
	return err
}

// tamper is one thing that somebody may do. finding is how 'slipway drift' names it: the address and, after a blank, the
// property; what is gone or new has none.
type tamper struct {
	name    string
	finding string
	do      func(h hand) error
}

func permission(from, to int32, cidr string) []ec2types.IpPermission {
	return []ec2types.IpPermission{{IpProtocol: new("tcp"), FromPort: &from, ToPort: &to, IpRanges: []ec2types.IpRange{{CidrIp: &cidr}}}}
}

const everything = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}`

func networkTampers() []tamper {
	return []tamper{
		{"a Name tag", "subnet/private-a Tags[Name]", func(h hand) error { return h.tag("subnet/private-a", "Name", "mine") }},
		{"an ownership tag", "subnet/public-b Tags[kubernetes.io/cluster/demo]", func(h hand) error {
			return h.tag("subnet/public-b", "kubernetes.io/cluster/demo", "shared")
		}},
		{"a tag of ours that was not there", "vpc/main Tags[slipway.dev/mine]", func(h hand) error { return h.tag("vpc/main", "slipway.dev/mine", "x") }},
		{"a tag is gone", "internet-gateway/main Tags[Name]", func(h hand) error {
			_, err := h.ec2.DeleteTags(h.ctx, &ec2.DeleteTagsInput{
				Resources: []string{*h.find("internet-gateway/main")}, Tags: []ec2types.Tag{{Key: new("Name")}},
			})
			return err
		}},
		{"an address's tag", "eip/nat-us-east-1a Tags[Name]", func(h hand) error { return h.tag("eip/nat-us-east-1a", "Name", "mine") }},
		{"a NAT gateway's tag", "nat-gateway/nat-us-east-1b Tags[Name]", func(h hand) error { return h.tag("nat-gateway/nat-us-east-1b", "Name", "mine") }},
		{"DNS names are off", "vpc/main EnableDnsHostnames", func(h hand) error {
			_, err := h.ec2.ModifyVpcAttribute(h.ctx, &ec2.ModifyVpcAttributeInput{
				VpcId: h.find("vpc/main"), EnableDnsHostnames: &ec2types.AttributeBooleanValue{Value: new(false)},
			})
			return err
		}},
		{"a private subnet gives public addresses", "subnet/private-b MapPublicIpOnLaunch", func(h hand) error {
			_, err := h.ec2.ModifySubnetAttribute(h.ctx, &ec2.ModifySubnetAttributeInput{
				SubnetId: h.find("subnet/private-b"), MapPublicIpOnLaunch: &ec2types.AttributeBooleanValue{Value: new(true)},
			})
			return err
		}},
		{"a route is gone", "route/private-b", func(h hand) error {
			_, err := h.ec2.DeleteRoute(h.ctx, &ec2.DeleteRouteInput{RouteTableId: h.find("route-table/private-b"), DestinationCidrBlock: new("0.0.0.0/0")})
			return err
		}},
		{"a route leads elsewhere", "route/private-c NatGatewayId", func(h hand) error {
			_, err := h.ec2.ReplaceRoute(h.ctx, &ec2.ReplaceRouteInput{
				RouteTableId: h.find("route-table/private-c"), DestinationCidrBlock: new("0.0.0.0/0"), NatGatewayId: h.find("nat-gateway/nat-us-east-1a"),
			})
			return err
		}},
		{"a route that was not there", "route/private-a:192.0.2.0/24", func(h hand) error {
			_, err := h.ec2.CreateRoute(h.ctx, &ec2.CreateRouteInput{
				RouteTableId: h.find("route-table/private-a"), DestinationCidrBlock: new("192.0.2.0/24"), NatGatewayId: h.find("nat-gateway/nat-us-east-1a"),
			})
			return err
		}},
		{"a subnet's table is taken away", "route-table-association/private-c", func(h hand) error {
			_, err := h.ec2.DisassociateRouteTable(h.ctx, &ec2.DisassociateRouteTableInput{
				AssociationId: h.find("route-table-association", "SubnetId", *h.find("subnet/private-c")),
			})
			return err
		}},
	}
}

func securityTampers() []tamper {
	return []tamper{
		{"SSH is opened", "security-group-ingress/worker:tcp:22:22:0.0.0.0/0", func(h hand) error {
			_, err := h.ec2.AuthorizeSecurityGroupIngress(h.ctx, &ec2.AuthorizeSecurityGroupIngressInput{
				GroupId: h.find("security-group/worker"), IpPermissions: permission(22, 22, "0.0.0.0/0"),
			})
			return err
		}},
		{"a rule is gone", "security-group-egress/worker", func(h hand) error {
			group := h.find("security-group/worker")
			_, err := h.ec2.RevokeSecurityGroupEgress(h.ctx, &ec2.RevokeSecurityGroupEgressInput{
				GroupId: group, SecurityGroupRuleIds: []string{*h.find("security-group-egress", "GroupId", *group)},
			})
			return err
		}},
		{"a rule's description", "security-group-egress/control-plane Description", func(h hand) error {
			group := h.find("security-group/control-plane")
			_, err := h.ec2.UpdateSecurityGroupRuleDescriptionsEgress(h.ctx, &ec2.UpdateSecurityGroupRuleDescriptionsEgressInput{
				GroupId: group, SecurityGroupRuleDescriptions: []ec2types.SecurityGroupRuleDescription{{
					SecurityGroupRuleId: h.find("security-group-egress", "GroupId", *group), Description: new("mine"),
				}},
			})
			return err
		}},
		{"a role may do more", "iam-role-policy/worker:extra", func(h hand) error {
			_, err := h.iam.PutRolePolicy(h.ctx, &iam.PutRolePolicyInput{RoleName: h.find("iam-role/worker"), PolicyName: new("extra"), PolicyDocument: new(everything)})
			return err
		}},
		{"a policy is another", "iam-role-policy/worker PolicyDocument", func(h hand) error {
			_, err := h.iam.PutRolePolicy(h.ctx, &iam.PutRolePolicyInput{RoleName: h.find("iam-role/worker"), PolicyName: new("machine"), PolicyDocument: new(everything)})
			return err
		}},
		{"a policy is gone", "iam-role-policy/control-plane-a", func(h hand) error {
			_, err := h.iam.DeleteRolePolicy(h.ctx, &iam.DeleteRolePolicyInput{RoleName: h.find("iam-role/control-plane-a"), PolicyName: new("machine")})
			return err
		}},
		{"who may be a role", "iam-role/worker AssumeRolePolicyDocument", func(h hand) error {
			_, err := h.iam.UpdateAssumeRolePolicy(h.ctx, &iam.UpdateAssumeRolePolicyInput{
				RoleName:       h.find("iam-role/worker"),
				PolicyDocument: new(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"sts:AssumeRole","Principal":{"AWS":"*"}}]}`),
			})
			return err
		}},
		{"a role's tag", "iam-role/worker Tags[Name]", func(h hand) error {
			_, err := h.iam.TagRole(h.ctx, &iam.TagRoleInput{RoleName: h.find("iam-role/worker"), Tags: []iamtypes.Tag{{Key: new("Name"), Value: new("mine")}}})
			return err
		}},
		{"a key does not rotate", "kms-key/main EnableKeyRotation", func(h hand) error {
			_, err := h.kms.DisableKeyRotation(h.ctx, &kms.DisableKeyRotationInput{KeyId: h.find("kms-key/main")})
			return err
		}},
		{"a key's policy", "kms-key/main KeyPolicy", func(h hand) error {
			_, err := h.kms.PutKeyPolicy(h.ctx, &kms.PutKeyPolicyInput{
				KeyId:  h.find("kms-key/main"),
				Policy: new(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::123456789012:root"},"Action":"kms:*","Resource":"*"}]}`),
			})
			return err
		}},
		{"a key's tag", "kms-key/main Tags[Name]", func(h hand) error {
			_, err := h.kms.TagResource(h.ctx, &kms.TagResourceInput{KeyId: h.find("kms-key/main"), Tags: []kmstypes.Tag{{TagKey: new("Name"), TagValue: new("mine")}}})
			return err
		}},
	}
}

func balancerTampers() []tamper {
	return []tamper{
		{"a load balancer's attribute", "load-balancer/api LoadBalancerAttributes[load_balancing.cross_zone.enabled]", func(h hand) error {
			_, err := h.elb.ModifyLoadBalancerAttributes(h.ctx, &elb.ModifyLoadBalancerAttributesInput{
				LoadBalancerArn: h.find("load-balancer/api"), Attributes: []elbtypes.LoadBalancerAttribute{{Key: new("load_balancing.cross_zone.enabled"), Value: new("false")}},
			})
			return err
		}},
		{"a load balancer's security group", "load-balancer/internal SecurityGroups", func(h hand) error {
			_, err := h.elb.SetSecurityGroups(h.ctx, &elb.SetSecurityGroupsInput{
				LoadBalancerArn: h.find("load-balancer/internal"), SecurityGroups: []string{*h.find("security-group/worker")},
			})
			return err
		}},
		{"a load balancer's tag", "load-balancer/api Tags[Name]", func(h hand) error {
			_, err := h.elb.AddTags(h.ctx, &elb.AddTagsInput{ResourceArns: []string{*h.find("load-balancer/api")}, Tags: []elbtypes.Tag{{Key: new("Name"), Value: new("mine")}}})
			return err
		}},
		{"a health check's path", "target-group/api HealthCheckPath", func(h hand) error {
			_, err := h.elb.ModifyTargetGroup(h.ctx, &elb.ModifyTargetGroupInput{TargetGroupArn: h.find("target-group/api"), HealthCheckPath: new("/livez")})
			return err
		}},
		{"a health check's pace", "target-group/join HealthCheckIntervalSeconds", func(h hand) error {
			_, err := h.elb.ModifyTargetGroup(h.ctx, &elb.ModifyTargetGroupInput{TargetGroupArn: h.find("target-group/join"), HealthCheckIntervalSeconds: new(int32(30))})
			return err
		}},
		{"a listener is gone", "listener/join", func(h hand) error {
			_, err := h.elb.DeleteListener(h.ctx, &elb.DeleteListenerInput{ListenerArn: h.find("listener", "Port", "3988")})
			return err
		}},
	}
}

func machineTampers() []tamper {
	return []tamper{
		{"a group's maximum", "autoscaling-group/workers MaxSize", func(h hand) error {
			_, err := h.scale.UpdateAutoScalingGroup(h.ctx, &autoscaling.UpdateAutoScalingGroupInput{AutoScalingGroupName: h.find("autoscaling-group/workers"), MaxSize: new(int32(9))})
			return err
		}},
		{"a group's minimum", "autoscaling-group/workers MinSize", func(h hand) error {
			_, err := h.scale.UpdateAutoScalingGroup(h.ctx, &autoscaling.UpdateAutoScalingGroupInput{AutoScalingGroupName: h.find("autoscaling-group/workers"), MinSize: new(int32(1))})
			return err
		}},
		{"a group's zones", "autoscaling-group/workers VPCZoneIdentifier", func(h hand) error {
			_, err := h.scale.UpdateAutoScalingGroup(h.ctx, &autoscaling.UpdateAutoScalingGroupInput{
				AutoScalingGroupName: h.find("autoscaling-group/workers"), VPCZoneIdentifier: h.find("subnet/private-a"),
			})
			return err
		}},
		{"a group's tag", "autoscaling-group/workers Tags[slipway.dev/role]", func(h hand) error {
			_, err := h.scale.CreateOrUpdateTags(h.ctx, &autoscaling.CreateOrUpdateTagsInput{Tags: []astypes.Tag{{
				ResourceId: h.find("autoscaling-group/workers"), ResourceType: new("auto-scaling-group"),
				Key: new("slipway.dev/role"), Value: new("control-plane"), PropagateAtLaunch: new(true),
			}}})
			return err
		}},
		{"a launch template's default version", "launch-template/workers LaunchTemplateData.InstanceType", func(h hand) error {
			id := h.find("launch-template/workers")
			out, err := h.ec2.CreateLaunchTemplateVersion(h.ctx, &ec2.CreateLaunchTemplateVersionInput{
				LaunchTemplateId: id, SourceVersion: new("1"), LaunchTemplateData: &ec2types.RequestLaunchTemplateData{InstanceType: "t3.xlarge"},
			})
			if err != nil {
				return err
			}
			version := strconv.FormatInt(sdk.ToInt64(out.LaunchTemplateVersion.VersionNumber), 10)
			_, err = h.ec2.ModifyLaunchTemplate(h.ctx, &ec2.ModifyLaunchTemplateInput{LaunchTemplateId: id, DefaultVersion: &version})
			return err
		}},
		{"a volume's speed", "volume/etcd-a Iops", func(h hand) error {
			_, err := h.ec2.ModifyVolume(h.ctx, &ec2.ModifyVolumeInput{VolumeId: h.find("volume/etcd-a"), Iops: new(int32(5000))})
			return err
		}},
		{"a volume's slot", "volume/etcd-b Tags[slipway.dev/etcd-slot]", func(h hand) error { return h.tag("volume/etcd-b", "slipway.dev/etcd-slot", "z") }},
		{"a machine's node document", "object/worker", func(h hand) error {
			bucket := "slipway-test"
			out, err := h.s3.ListObjectsV2(h.ctx, &s3.ListObjectsV2Input{Bucket: &bucket, Prefix: new("demo/machine/worker/documents/")})
			if err != nil {
				return err
			}
			for _, o := range out.Contents {
				if _, err := h.s3.DeleteObject(h.ctx, &s3.DeleteObjectInput{Bucket: &bucket, Key: o.Key}); err != nil {
					return err
				}
			}
			return nil
		}},
	}
}

func tampers() []tamper {
	out := append(networkTampers(), securityTampers()...)
	return append(append(out, balancerTampers()...), machineTampers()...)
}

// cmdTamper does one of these in a script: tamper 'a Name tag'.
func cmdTamper(ts *testscript.TestScript, _ bool, args []string) {
	r, ok := ts.Value("region").(regiontest.Region)
	if !ok {
		ts.Fatalf("no region")
	}
	grows := tamper{name: "a volume grows", do: func(h hand) error {
		_, err := h.ec2.ModifyVolume(h.ctx, &ec2.ModifyVolumeInput{VolumeId: h.find("volume/etcd-a"), Size: new(int32(30))})
		return err
	}} // which nobody can put back
	keys := tamper{name: "the keys of the issuer are replaced", do: func(h hand) error {
		bucket := s3.NewFromConfig(r.AWSConfig(), func(o *s3.Options) { o.UsePathStyle = true })
		_, err := bucket.PutObject(h.ctx, &s3.PutObjectInput{
			Bucket: sdk.String("slipway-oidc"), Key: sdk.String("prod/demo/openid/v1/jwks"), Body: strings.NewReader("{}"),
		})
		return err
	}} // of which the default cluster has none
	for _, tt := range append(tampers(), grows, keys) {
		if tt.name == args[0] {
			ts.Check(tt.do(newHand(context.Background(), r)))
			return
		}
	}
	ts.Fatalf("nobody knows how to tamper with %s", args[0])
}
