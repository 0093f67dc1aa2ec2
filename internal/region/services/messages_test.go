// SPDX-License-Identifier: Apache-2.0

package services_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	astypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	lbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// messageCase is a request that AWS refuses, with the code and the message that users of AWS have reported, and that it
// documents or records. docs/aws-facts.md has the sources.
type messageCase struct {
	name string
	call func() error
	want string // code: message; the message may go on
}

func checkMessages(t *testing.T, cases []messageCase) {
	t.Helper()
	for _, c := range cases {
		failed, ok := errors.AsType[smithy.APIError](c.call())
		if !ok {
			t.Errorf("%s: no error, want %s", c.name, c.want)
			continue
		}

		if got := failed.ErrorCode() + ": " + failed.ErrorMessage(); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s:\n got  %s\n want %s", c.name, got, c.want)
		}
	}
}

func volume(t *testing.T, client *ec2.Client, in ec2.CreateVolumeInput) func() error {
	t.Helper()
	return func() error {
		in.AvailabilityZone = aws.String("us-east-1a")
		_, err := client.CreateVolume(t.Context(), &in)

		return err
	}
}

func TestMessagesOfEC2(t *testing.T) {
	t.Parallel()
	client := ec2.NewFromConfig(regiontest.Start(t).AWSConfig())
	ctx := t.Context()
	tag := func(id string) func() error {
		return func() error {
			_, err := client.CreateTags(ctx, &ec2.CreateTagsInput{
				Resources: []string{id}, Tags: []types.Tag{{Key: aws.String("a"), Value: aws.String("b")}},
			})

			return err
		}
	}

	checkMessages(t, []messageCase{
		{"a group by a name", func() error {
			_, err := client.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{GroupNames: []string{"none"}})
			return err
		}, "InvalidGroup.NotFound: The security group 'none' does not exist in default VPC 'vpc-"},
		{"a name like an ID", func() error {
			_, err := client.CreateSecurityGroup(ctx, &ec2.CreateSecurityGroupInput{
				GroupName: aws.String("sg-x"), Description: aws.String("d"),
			})

			return err
		}, "InvalidParameterValue: Value (sg-x) for parameter GroupName is invalid. Group names may not be in the format sg-*."},
		{"a zone", func() error {
			_, err := client.DescribeAvailabilityZones(ctx, &ec2.DescribeAvailabilityZonesInput{ZoneNames: []string{"us-east-1z"}})
			return err
		}, "InvalidParameterValue: Invalid availability zone: [us-east-1z]"},
		{"a launch template", func() error {
			_, err := client.DescribeLaunchTemplates(ctx, &ec2.DescribeLaunchTemplatesInput{LaunchTemplateIds: []string{"lt-0123456789abcdef0"}})
			return err
		}, "InvalidLaunchTemplateId.NotFound: The specified launch template, with template ID lt-0123456789abcdef0, does not exist."},
		{"another architecture", func() error {
			_, err := client.RunInstances(ctx, &ec2.RunInstancesInput{
				ImageId: aws.String(regiontest.ImageID), InstanceType: "t4g.small", MinCount: aws.Int32(1), MaxCount: aws.Int32(1),
			})

			return err
		}, "InvalidParameterValue: The architecture 'arm64' of the specified instance type does not match the architecture " +
			"'x86_64' of the specified AMI. Specify an instance type and an AMI that have matching architectures, and try again."},
		{"tags of an instance", tag("i-0123456789abcdef0"), "InvalidInstanceID.NotFound: The instance ID 'i-0123456789abcdef0' does not exist"},
		{"tags of a VPC", tag("vpc-0123456789abcdef0"), "InvalidVpcID.NotFound: The vpc ID 'vpc-0123456789abcdef0' does not exist"},
		{"tags of nothing", tag("zz"), "InvalidID: The ID 'zz' is not valid"},
		{
			"io1 without IOPS", volume(t, client, ec2.CreateVolumeInput{Size: aws.Int32(10), VolumeType: "io1"}),
			"InvalidParameterCombination: The parameter iops must be specified for io1 volumes.",
		},
		{
			"IOPS for the size", volume(t, client, ec2.CreateVolumeInput{Size: aws.Int32(20), VolumeType: "io1", Iops: aws.Int32(1600)}),
			"InvalidParameterValue: Iops to volume size ratio of 80.000000 is too high; maximum is 50",
		},
		{
			"throughput for the IOPS", volume(t, client, ec2.CreateVolumeInput{
				Size: aws.Int32(20), VolumeType: "gp3", Iops: aws.Int32(3000), Throughput: aws.Int32(1000),
			}),
			"InvalidParameterValue: Throughput (MiBps) to iops ratio of 0.333333 is too high; maximum is 0.250000 MiBps per iops.",
		},
	})

	if err := volume(t, client, ec2.CreateVolumeInput{
		Size: aws.Int32(20000), VolumeType: "gp3", Iops: aws.Int32(80000), Throughput: aws.Int32(2000),
	})(); err != nil {
		t.Errorf("the largest gp3: %v", err)
	}
}

// newGroupInput returns a request for a group of the launch template "t" in a default subnet.
func newGroupInput(ctx context.Context, t *testing.T, client *ec2.Client, name string) *autoscaling.CreateAutoScalingGroupInput {
	t.Helper()
	subnets, err := client.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{
		Filters: []types.Filter{{Name: aws.String("default-for-az"), Values: []string{"true"}}},
	})
	if err != nil {
		t.Fatal(err)
	}

	return &autoscaling.CreateAutoScalingGroupInput{
		AutoScalingGroupName: &name,
		MinSize:              aws.Int32(0),
		MaxSize:              aws.Int32(1),
		VPCZoneIdentifier:    subnets.Subnets[0].SubnetId,
		LaunchTemplate: &astypes.LaunchTemplateSpecification{
			LaunchTemplateName: aws.String("template"), Version: aws.String("1"),
		},
	}
}

func TestMessagesOfGroups(t *testing.T) {
	t.Parallel()
	cfg := regiontest.Start(t).AWSConfig()
	ctx := t.Context()
	client, groups := ec2.NewFromConfig(cfg), autoscaling.NewFromConfig(cfg)
	balancers := elasticloadbalancingv2.NewFromConfig(cfg)
	if _, err := client.CreateLaunchTemplate(ctx, &ec2.CreateLaunchTemplateInput{
		LaunchTemplateName: aws.String("template"),
		LaunchTemplateData: &types.RequestLaunchTemplateData{InstanceType: "t3.small", ImageId: aws.String(regiontest.ImageID)},
	}); err != nil {
		t.Fatal(err)
	}

	create := func(change func(*autoscaling.CreateAutoScalingGroupInput)) func() error {
		in := newGroupInput(ctx, t, client, "refused")
		change(in)

		return func() error {
			_, err := groups.CreateAutoScalingGroup(ctx, in)

			return err
		}
	}

	both := newGroupInput(ctx, t, client, "both")
	both.HealthCheckType = aws.String("EC2,ELB")
	both.DesiredCapacity = aws.Int32(1)
	if _, err := groups.CreateAutoScalingGroup(ctx, both); err != nil {
		t.Errorf("two kinds of health checks: %v", err)
	}

	checkMessages(t, []messageCase{
		{"a health check", create(func(in *autoscaling.CreateAutoScalingGroupInput) {
			in.HealthCheckType = aws.String("X")
		}), "ValidationError: "},
		{"a health check of AWS", create(func(in *autoscaling.CreateAutoScalingGroupInput) {
			in.HealthCheckType = aws.String("EC2,EBS")
		}), "NotImplemented: "},
		{"a termination policy", create(func(in *autoscaling.CreateAutoScalingGroupInput) {
			in.TerminationPolicies = []string{"NewestInstance"}
		}), "NotImplemented: "},
		{"a maximum lifetime", create(func(in *autoscaling.CreateAutoScalingGroupInput) {
			in.MaxInstanceLifetime = aws.Int32(86400)
		}), "NotImplemented: "},
		{"a health check of a group that exists", func() error {
			_, err := groups.UpdateAutoScalingGroup(ctx, &autoscaling.UpdateAutoScalingGroupInput{
				AutoScalingGroupName: aws.String("both"), HealthCheckType: aws.String("X"),
			})

			return err
		}, "ValidationError: "},
		{"a VPC", func() error {
			_, err := balancers.CreateTargetGroup(ctx, &elasticloadbalancingv2.CreateTargetGroupInput{
				Name: aws.String("t"), Protocol: "TCP", Port: aws.Int32(1), VpcId: aws.String("vpc-0123456789abcdef0"),
			})

			return err
		}, "ValidationError: The VPC ID 'vpc-0123456789abcdef0' is not found"},
	})
}

func TestMessagesOfPoliciesAndBuckets(t *testing.T) {
	t.Parallel()
	cfg := regiontest.Start(t).AWSConfig()
	ctx := t.Context()
	identities, keys := iam.NewFromConfig(cfg), kms.NewFromConfig(cfg)
	buckets := s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true })
	document := aws.String(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:*","Resource":"*"}]}`)
	created, err := identities.CreatePolicy(ctx, &iam.CreatePolicyInput{PolicyName: aws.String("p"), PolicyDocument: document})
	if err != nil {
		t.Fatal(err)
	}

	arn := created.Policy.Arn
	if _, err := identities.CreatePolicyVersion(ctx, &iam.CreatePolicyVersionInput{PolicyArn: arn, PolicyDocument: document}); err != nil {
		t.Fatal(err)
	}

	remove := func() error {
		_, err := identities.DeletePolicy(ctx, &iam.DeletePolicyInput{PolicyArn: arn})
		return err
	}

	fillVersionedBucket(t, buckets)
	checkMessages(t, []messageCase{
		{
			"a policy with versions", remove,
			"DeleteConflict: This policy has more than one version. Before you delete a policy, you must delete the policy's " +
				"versions. The default version is deleted with the policy.",
		},
		{"the default version", func() error {
			_, err := identities.DeletePolicyVersion(ctx, &iam.DeletePolicyVersionInput{PolicyArn: arn, VersionId: aws.String("v1")})
			return err
		}, "DeleteConflict: Cannot delete the default version of a policy."},
		{"the name of an alias", func() error {
			key, err := keys.CreateKey(ctx, &kms.CreateKeyInput{})
			if err != nil {
				return err
			}

			_, err = keys.CreateAlias(ctx, &kms.CreateAliasInput{AliasName: aws.String("a"), TargetKeyId: key.KeyMetadata.KeyId})

			return err
		}, `ValidationException: Alias must start with the prefix "alias/". Please see https://docs.aws.amazon.com/kms/latest/developerguide/kms-alias.html`},
		{"an encoding", func() error {
			_, err := buckets.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: aws.String("b-1"), EncodingType: "value"})
			return err
		}, "InvalidArgument: Invalid Encoding Method specified in Request"},
		{"a bucket with versions", func() error {
			_, err := buckets.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: aws.String("b-1")})
			return err
		}, "BucketNotEmpty: The bucket you tried to delete is not empty. You must delete all versions in the bucket."},
	})

	if _, err := identities.CreateUser(ctx, &iam.CreateUserInput{UserName: aws.String("u")}); err != nil {
		t.Fatal(err)
	}

	if _, err := identities.AttachUserPolicy(ctx, &iam.AttachUserPolicyInput{UserName: aws.String("u"), PolicyArn: arn}); err != nil {
		t.Fatal(err)
	}

	checkMessages(t, []messageCase{
		{"an attached policy", remove, "DeleteConflict: Cannot delete a policy attached to entities."},
	})
}

// fillVersionedBucket creates the bucket b-1 with versions and an object.
func fillVersionedBucket(t *testing.T, client *s3.Client) {
	t.Helper()
	name := aws.String("b-1")
	_, err := client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: name})
	if err == nil {
		_, err = client.PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{
			Bucket: name, VersioningConfiguration: &s3types.VersioningConfiguration{Status: s3types.BucketVersioningStatusEnabled},
		})
	}

	if err == nil {
		_, err = client.PutObject(t.Context(), &s3.PutObjectInput{Bucket: name, Key: aws.String("k")})
	}

	if err != nil {
		t.Fatal(err)
	}
}

// TestMessagesOfDenials has the messages of "Troubleshoot access denied error messages" in the IAM user guide.
func TestMessagesOfDenials(t *testing.T) {
	t.Parallel()
	region := regiontest.Start(t)
	ctx := t.Context()
	root := iam.NewFromConfig(region.AWSConfig())
	buckets := s3.NewFromConfig(region.AWSConfig(), func(o *s3.Options) { o.UsePathStyle = true })
	fillVersionedBucket(t, buckets)
	if _, err := root.CreateUser(ctx, &iam.CreateUserInput{UserName: aws.String("u")}); err != nil {
		t.Fatal(err)
	}

	if _, err := root.PutUserPolicy(ctx, &iam.PutUserPolicyInput{
		UserName: aws.String("u"), PolicyName: aws.String("p"),
		PolicyDocument: aws.String(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:*","Resource":"*"},` +
			`{"Sid":"Two","Effect":"Deny","Action":"s3:DeleteBucket","Resource":"*"}]}`),
	}); err != nil {
		t.Fatal(err)
	}

	key, err := root.CreateAccessKey(ctx, &iam.CreateAccessKeyInput{UserName: aws.String("u")})
	if err != nil {
		t.Fatal(err)
	}

	cfg := region.AWSConfig()
	cfg.Credentials = credentials.NewStaticCredentialsProvider(*key.AccessKey.AccessKeyId, *key.AccessKey.SecretAccessKey, "")
	own := s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true })
	anonymous := s3.NewFromConfig(region.AWSConfig(), func(o *s3.Options) {
		o.UsePathStyle = true
		o.Credentials = aws.AnonymousCredentials{}
	})
	const user = "User: arn:aws:iam::123456789012:user/u is not authorized to perform: "
	checkMessages(t, []messageCase{
		{"EC2", func() error {
			_, err := ec2.NewFromConfig(cfg).DescribeVpcs(ctx, &ec2.DescribeVpcsInput{})
			return err
		}, "UnauthorizedOperation: You are not authorized to perform this operation. " + user + "ec2:DescribeVpcs on resource: * " +
			"because no identity-based policy allows the ec2:DescribeVpcs action"},
		{"an explicit deny", func() error {
			_, err := own.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: aws.String("b-1")})
			return err
		}, "AccessDenied: " + user + `s3:DeleteBucket on resource: "arn:aws:s3:::b-1" with an explicit deny in an identity-based policy`},
		{"nobody", func() error {
			_, err := anonymous.GetObject(ctx, &s3.GetObjectInput{Bucket: aws.String("b-1"), Key: aws.String("k")})
			return err
		}, "AccessDenied: Access Denied"},
	})
}

// TestTagsHaveTheCharactersOfTheirService: what EC2 allows in tags, others do not.
func TestTagsHaveTheCharactersOfTheirService(t *testing.T) {
	t.Parallel()
	cfg := regiontest.Start(t).AWSConfig()
	ctx := t.Context()
	trust := aws.String(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},` +
		`"Action":"sts:AssumeRole"}]}`)
	role := func(key, value string) func() error {
		return func() error {
			_, err := iam.NewFromConfig(cfg).CreateRole(ctx, &iam.CreateRoleInput{
				RoleName: aws.String("r"), AssumeRolePolicyDocument: trust, Tags: []iamtypes.Tag{{Key: &key, Value: &value}},
			})

			return err
		}
	}

	vpc, err := ec2.NewFromConfig(cfg).CreateVpc(ctx, &ec2.CreateVpcInput{
		CidrBlock: aws.String("10.0.0.0/16"), TagSpecifications: []types.TagSpecification{{
			ResourceType: "vpc", Tags: []types.Tag{{Key: aws.String("a;b"), Value: aws.String("c, d")}},
		}},
	})
	if err != nil {
		t.Fatalf("EC2: %v", err)
	}

	checkMessages(t, []messageCase{
		{
			"a key", role("a;b", "c"), `ValidationError: 1 validation error detected: Value 'a;b' at 'tags.1.member.key' failed to ` +
				`satisfy constraint: Member must satisfy regular expression pattern: [\p{L}\p{Z}\p{N}_.:/=+\-@]+`,
		},
		{
			"a value", role("a", "c, d"), `ValidationError: 1 validation error detected: Value 'c, d' at 'tags.1.member.value' failed ` +
				`to satisfy constraint: Member must satisfy regular expression pattern: [\p{L}\p{Z}\p{N}_.:/=+\-@]*`,
		},
		{"a target group", func() error {
			_, err := elasticloadbalancingv2.NewFromConfig(cfg).CreateTargetGroup(ctx, &elasticloadbalancingv2.CreateTargetGroupInput{
				Name: aws.String("t"), Protocol: "TCP", Port: aws.Int32(1), VpcId: vpc.Vpc.VpcId,
				Tags: []lbtypes.Tag{{Key: aws.String("a"), Value: aws.String("c, d")}},
			})

			return err
		}, "ValidationError: 1 validation error detected: Value 'c, d' at 'tags.1.member.value' failed to satisfy constraint"},
		{"a log group", func() error {
			_, err := cloudwatchlogs.NewFromConfig(cfg).CreateLogGroup(ctx, &cloudwatchlogs.CreateLogGroupInput{
				LogGroupName: aws.String("g"), Tags: map[string]string{"a": "c, d"},
			})

			return err
		}, "InvalidParameterException: "},
	})
}
