// SPDX-License-Identifier: Apache-2.0

package services_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	autoscalingtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	cfntypes "github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
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
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

const (
	publicKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPLLbNYYsVe9WrZhsnw7dmEhqHxzyZyqzqeoAxxhCcc8 me"
	trust     = `{"Version":"2012-10-17","Statement":{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}}`
	allow     = `{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"ec2:*","Resource":"*"}}`
)

// namedResource is a kind of resource with a name or a tag whose length AWS limits.
type namedResource struct {
	kind   string
	limit  int    // in characters, of the name with prefix
	prefix string // of every name
	code   string // of the error for a longer name
	create func(ctx context.Context, name string) error
}

func ec2Names(cfg aws.Config, vpc *string) []namedResource {
	api := ec2.NewFromConfig(cfg)
	template := func(name, description string) *ec2.CreateLaunchTemplateInput {
		return &ec2.CreateLaunchTemplateInput{
			LaunchTemplateName: &name, VersionDescription: &description, LaunchTemplateData: &ec2types.RequestLaunchTemplateData{InstanceType: "t3.micro"},
		}
	}
	tag := func(ctx context.Context, key, value string) error {
		_, err := api.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{*vpc}, Tags: []ec2types.Tag{{Key: &key, Value: &value}}})
		return err
	}
	return []namedResource{
		{"security group", 255, "", "InvalidParameterValue", func(ctx context.Context, name string) error {
			_, err := api.CreateSecurityGroup(ctx, &ec2.CreateSecurityGroupInput{GroupName: &name, Description: aws.String("x"), VpcId: vpc})
			return err
		}},
		{"description of a security group", 255, "", "InvalidParameterValue", func(ctx context.Context, name string) error {
			_, err := api.CreateSecurityGroup(ctx, &ec2.CreateSecurityGroupInput{GroupName: aws.String("described"), Description: &name, VpcId: vpc})
			return err
		}},
		{"launch template", 128, "", "InvalidLaunchTemplateName.MalformedException", func(ctx context.Context, name string) error {
			_, err := api.CreateLaunchTemplate(ctx, template(name, ""))
			return err
		}},
		{"description of a version", 255, "", "InvalidParameterValue", func(ctx context.Context, name string) error {
			_, err := api.CreateLaunchTemplate(ctx, template("described", name))
			return err
		}},
		{"key pair", 255, "", "InvalidParameterValue", func(ctx context.Context, name string) error {
			_, err := api.ImportKeyPair(ctx, &ec2.ImportKeyPairInput{KeyName: &name, PublicKeyMaterial: []byte(publicKey)})
			return err
		}},
		{"tag key of EC2", 128, "", "InvalidParameterValue", func(ctx context.Context, name string) error { return tag(ctx, name, "") }},
		{"tag value of EC2", 256, "", "InvalidParameterValue", func(ctx context.Context, name string) error { return tag(ctx, "value", name) }},
	}
}

func iamNames(cfg aws.Config) []namedResource {
	api := iam.NewFromConfig(cfg)
	role := func(name string, tags ...iamtypes.Tag) *iam.CreateRoleInput {
		return &iam.CreateRoleInput{RoleName: &name, AssumeRolePolicyDocument: aws.String(trust), Tags: tags}
	}
	return []namedResource{
		{"role", 64, "", "ValidationError", func(ctx context.Context, name string) error {
			_, err := api.CreateRole(ctx, role(name))
			return err
		}},
		{"instance profile", 128, "", "ValidationError", func(ctx context.Context, name string) error {
			_, err := api.CreateInstanceProfile(ctx, &iam.CreateInstanceProfileInput{InstanceProfileName: &name})
			return err
		}},
		{"managed policy", 128, "", "ValidationError", func(ctx context.Context, name string) error {
			_, err := api.CreatePolicy(ctx, &iam.CreatePolicyInput{PolicyName: &name, PolicyDocument: aws.String(allow)})
			return err
		}},
		{"inline policy", 128, "", "ValidationError", func(ctx context.Context, name string) error {
			if _, err := api.CreateRole(ctx, role("inline"+name[:1])); err != nil && !strings.Contains(err.Error(), "already exists") {
				return err
			}
			_, err := api.PutRolePolicy(ctx, &iam.PutRolePolicyInput{RoleName: aws.String("inline" + name[:1]), PolicyName: &name, PolicyDocument: aws.String(allow)})
			return err
		}},
		{"path", 512, "/", "ValidationError", func(ctx context.Context, name string) error {
			path := name[:len(name)-1] + "/"
			_, err := api.CreateInstanceProfile(ctx, &iam.CreateInstanceProfileInput{InstanceProfileName: aws.String("path"), Path: &path})
			return err
		}},
		{"tag key of IAM", 128, "", "ValidationError", func(ctx context.Context, name string) error {
			_, err := api.CreateRole(ctx, role("key", iamtypes.Tag{Key: &name, Value: aws.String("")}))
			return err
		}},
		{"tag value of IAM", 256, "", "ValidationError", func(ctx context.Context, name string) error {
			_, err := api.CreateRole(ctx, role("value", iamtypes.Tag{Key: aws.String("k"), Value: &name}))
			return err
		}},
	}
}

func balancerNames(cfg aws.Config, vpc *string, subnet string) []namedResource {
	api := elb.NewFromConfig(cfg)
	return []namedResource{
		{"load balancer", 32, "", "ValidationError", func(ctx context.Context, name string) error {
			_, err := api.CreateLoadBalancer(ctx, &elb.CreateLoadBalancerInput{Name: &name, Type: "network", Scheme: "internal", Subnets: []string{subnet}})
			return err
		}},
		{"target group", 32, "", "ValidationError", func(ctx context.Context, name string) error {
			_, err := api.CreateTargetGroup(ctx, &elb.CreateTargetGroupInput{Name: &name, Protocol: "TCP", Port: aws.Int32(443), VpcId: vpc})
			return err
		}},
		{"tag key of Elastic Load Balancing", 128, "", "ValidationError", func(ctx context.Context, name string) error {
			_, err := api.CreateTargetGroup(ctx, &elb.CreateTargetGroupInput{
				Name: aws.String("tagged"), Protocol: "TCP", Port: aws.Int32(443), VpcId: vpc, Tags: []elbtypes.Tag{{Key: &name}},
			})
			return err
		}},
	}
}

func otherNames(t *testing.T, cfg aws.Config, subnet string) []namedResource {
	t.Helper()
	groups, keys, stacks, zones := autoscaling.NewFromConfig(cfg), kms.NewFromConfig(cfg), cloudformation.NewFromConfig(cfg), route53.NewFromConfig(cfg)
	buckets := s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true })
	key, err := keys.CreateKey(t.Context(), &kms.CreateKeyInput{})
	if err != nil {
		t.Fatal(err)
	}
	zone, err := zones.CreateHostedZone(t.Context(), &route53.CreateHostedZoneInput{Name: aws.String("example.com"), CallerReference: aws.String("1")})
	if err != nil {
		t.Fatal(err)
	}
	template, err := ec2.NewFromConfig(cfg).CreateLaunchTemplate(t.Context(), &ec2.CreateLaunchTemplateInput{
		LaunchTemplateName: aws.String("group"), LaunchTemplateData: &ec2types.RequestLaunchTemplateData{InstanceType: "t3.micro", ImageId: aws.String(regiontest.ImageID)},
	})
	if err != nil {
		t.Fatal(err)
	}
	tagZone := func(ctx context.Context, tags ...r53types.Tag) error {
		_, err := zones.ChangeTagsForResource(ctx, &route53.ChangeTagsForResourceInput{
			ResourceId: aws.String(strings.TrimPrefix(*zone.HostedZone.Id, "/hostedzone/")), ResourceType: "hostedzone", AddTags: tags,
		})
		return err
	}
	tagKey := func(ctx context.Context, k, v string) error {
		_, err := keys.TagResource(ctx, &kms.TagResourceInput{KeyId: key.KeyMetadata.KeyId, Tags: []kmstypes.Tag{{TagKey: &k, TagValue: &v}}})
		return err
	}
	stack := func(ctx context.Context, name string, tags ...cfntypes.Tag) error {
		_, err := stacks.CreateStack(ctx, &cloudformation.CreateStackInput{
			StackName: &name, Tags: tags, TemplateBody: aws.String(`{"Resources":{"A":{"Type":"AWS::CloudFormation::WaitConditionHandle"}}}`),
		})
		return err
	}
	return []namedResource{
		{"Auto Scaling group", 255, "", "ValidationError", func(ctx context.Context, name string) error {
			_, err := groups.CreateAutoScalingGroup(ctx, &autoscaling.CreateAutoScalingGroupInput{
				AutoScalingGroupName: &name, MinSize: aws.Int32(0), MaxSize: aws.Int32(0), VPCZoneIdentifier: &subnet,
				LaunchTemplate: &autoscalingtypes.LaunchTemplateSpecification{LaunchTemplateId: template.LaunchTemplate.LaunchTemplateId},
			})
			return err
		}},
		{"lifecycle hook", 255, "", "ValidationError", func(ctx context.Context, name string) error {
			_, err := groups.PutLifecycleHook(ctx, &autoscaling.PutLifecycleHookInput{
				AutoScalingGroupName: aws.String(strings.Repeat("x", 255)), LifecycleHookName: &name, LifecycleTransition: aws.String("autoscaling:EC2_INSTANCE_TERMINATING"),
			})
			return err
		}},
		{"alias", 256, "alias/", "InvalidAliasNameException", func(ctx context.Context, name string) error {
			_, err := keys.CreateAlias(ctx, &kms.CreateAliasInput{AliasName: &name, TargetKeyId: key.KeyMetadata.KeyId})
			return err
		}},
		{"tag key of KMS", 128, "", "ValidationException", func(ctx context.Context, name string) error { return tagKey(ctx, name, "") }},
		{"tag value of KMS", 256, "", "ValidationException", func(ctx context.Context, name string) error { return tagKey(ctx, "value", name) }},
		{"tag key of Route 53", 128, "", "InvalidInput", func(ctx context.Context, name string) error {
			return tagZone(ctx, r53types.Tag{Key: &name, Value: aws.String("")})
		}},
		{"tag value of Route 53", 256, "", "InvalidInput", func(ctx context.Context, name string) error {
			return tagZone(ctx, r53types.Tag{Key: aws.String("k"), Value: &name})
		}},
		{"bucket", 63, "", "InvalidBucketName", func(ctx context.Context, name string) error {
			_, err := buckets.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: &name})
			return err
		}},
		{"stack", 128, "", "ValidationError", func(ctx context.Context, name string) error { return stack(ctx, name) }},
		{"tag key of CloudFormation", 128, "", "ValidationError", func(ctx context.Context, name string) error {
			return stack(ctx, "key", cfntypes.Tag{Key: &name, Value: aws.String("v")})
		}},
		{"tag value of CloudFormation", 256, "", "ValidationError", func(ctx context.Context, name string) error {
			return stack(ctx, "value", cfntypes.Tag{Key: aws.String("k"), Value: &name})
		}},
	}
}

func nameErrorCode(err error) string {
	if e, ok := errors.AsType[smithy.APIError](err); ok {
		return e.ErrorCode()
	}
	return ""
}

// TestNamesHaveAWSsLengths: the region accepts the longest name that AWS allows, and refuses one character more. See
// docs/aws-facts.md for the limits.
func TestNamesHaveAWSsLengths(t *testing.T) {
	t.Parallel()
	r := regiontest.StartWith(t, regiontest.Options{})
	cfg, api := r.AWSConfig(), ec2.NewFromConfig(r.AWSConfig())
	vpc, err := api.CreateVpc(t.Context(), &ec2.CreateVpcInput{CidrBlock: aws.String("10.0.0.0/16")})
	if err != nil {
		t.Fatal(err)
	}
	subnet, err := api.CreateSubnet(t.Context(), &ec2.CreateSubnetInput{VpcId: vpc.Vpc.VpcId, CidrBlock: aws.String("10.0.0.0/24"), AvailabilityZone: aws.String("us-east-1a")})
	if err != nil {
		t.Fatal(err)
	}
	all := append(ec2Names(cfg, vpc.Vpc.VpcId), iamNames(cfg)...)
	all = append(all, balancerNames(cfg, vpc.Vpc.VpcId, *subnet.Subnet.SubnetId)...)
	all = append(all, otherNames(t, cfg, *subnet.Subnet.SubnetId)...)
	for _, k := range all {
		longest := k.prefix + strings.Repeat("x", k.limit-len(k.prefix))
		if err := k.create(t.Context(), longest+"x"); nameErrorCode(err) != k.code {
			t.Errorf("%s with %d characters: %v, want %s", k.kind, k.limit+1, err, k.code)
		}
		if err := k.create(t.Context(), longest); err != nil {
			t.Errorf("%s with %d characters: %v", k.kind, k.limit, err)
		}
	}
}
