// SPDX-License-Identifier: Apache-2.0

package services_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	astypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	lambdatypes "github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// delayed is how many calls do not see what is new.
const delayed = 2

// visibility is a region in which what is new is not visible at once.
type visibility struct {
	t   *testing.T
	r   regiontest.Region
	iam *iam.Client
	ec2 *ec2.Client
}

func startVisibility(t *testing.T) visibility {
	t.Helper()
	r := regiontest.Start(t)
	r.DelayVisibility(delayed)
	cfg := r.AWSConfig()
	return visibility{t: t, r: r, iam: iam.NewFromConfig(cfg), ec2: ec2.NewFromConfig(cfg)}
}

// youngTrust is a trust policy for EC2, Lambda and the users of the account.
const youngTrust = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"sts:AssumeRole",
	"Principal":{"Service":["ec2.amazonaws.com","lambda.amazonaws.com"],"AWS":"` + regiontest.AccountID + `"}}]}`

func (v visibility) createRole(name string) {
	v.t.Helper()
	_, err := v.iam.CreateRole(v.t.Context(), &iam.CreateRoleInput{RoleName: &name, AssumeRolePolicyDocument: aws.String(youngTrust)})
	if err != nil {
		v.t.Fatal(err)
	}
}

// late fails unless exactly the first calls, delayed times, are refused with an error that contains want.
func (v visibility) late(what, want string, call func(context.Context) error) {
	v.t.Helper()
	for i := range delayed {
		if got := codeOf(call(v.t.Context())); !strings.Contains(got, want) {
			v.t.Errorf("%s, call %d: %q, want %q", what, i+1, got, want)
		}
	}
	if err := call(v.t.Context()); err != nil {
		v.t.Errorf("%s, after %d calls: %v", what, delayed, err)
	}
}

// codeOf returns the code and the message of an error.
func codeOf(err error) string {
	if e, ok := errors.AsType[smithy.APIError](err); ok {
		return e.ErrorCode() + ": " + e.ErrorMessage()
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// TestNewRolesAreSeenLater: IAM's own calls, lists, AssumeRole and other services do not see a new role or instance profile
// at once.
func TestNewRolesAreSeenLater(t *testing.T) {
	v := startVisibility(t)
	v.createRole("named")
	v.late("GetRole", "NoSuchEntity: The role with name named cannot be found.", func(ctx context.Context) error {
		_, err := v.iam.GetRole(ctx, &iam.GetRoleInput{RoleName: aws.String("named")})
		return err
	})

	v.createRole("listed")
	v.late("ListRoles", "not listed", func(ctx context.Context) error {
		out, err := v.iam.ListRoles(ctx, &iam.ListRolesInput{PathPrefix: aws.String("/")})
		if err != nil {
			return err
		}
		for _, r := range out.Roles {
			if aws.ToString(r.RoleName) == "listed" {
				return nil
			}
		}
		return errors.New("not listed")
	})

	v.createRole("function")
	functions := lambda.NewFromConfig(v.r.AWSConfig())
	v.late("CreateFunction", "InvalidParameterValueException: The role defined for the function cannot be assumed by Lambda.", func(ctx context.Context) error {
		_, err := functions.CreateFunction(ctx, &lambda.CreateFunctionInput{
			FunctionName: aws.String("f"), Runtime: lambdatypes.RuntimeProvidedal2023, Handler: aws.String("bootstrap"),
			Role: aws.String("arn:aws:iam::" + regiontest.AccountID + ":role/function"),
			Code: &lambdatypes.FunctionCode{S3Bucket: aws.String("none"), S3Key: aws.String("none")},
		})
		if strings.Contains(codeOf(err), "cannot be assumed") {
			return err
		}
		return nil // the role was seen; there is no such code
	})

	_, err := v.iam.CreateInstanceProfile(t.Context(), &iam.CreateInstanceProfileInput{InstanceProfileName: aws.String("machines")})
	if err != nil {
		t.Fatal(err)
	}
	v.late("RunInstances", "InvalidParameterValue: Value (machines) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name", func(ctx context.Context) error {
		_, err := v.ec2.RunInstances(ctx, &ec2.RunInstancesInput{
			ImageId: aws.String(regiontest.ImageID), InstanceType: ec2types.InstanceTypeT3Large, MinCount: aws.Int32(1), MaxCount: aws.Int32(1),
			IamInstanceProfile: &ec2types.IamInstanceProfileSpecification{Name: aws.String("machines")},
		})
		return err
	})
}

// TestNewTemplatesAreSeenLater: EC2 and Auto Scaling do not see a new launch template at once, and no instance is launched late because
// of that.
func TestNewTemplatesAreSeenLater(t *testing.T) {
	v := startVisibility(t)
	groups := autoscaling.NewFromConfig(v.r.AWSConfig())
	subnets, err := v.ec2.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{})
	if err != nil || len(subnets.Subnets) == 0 {
		t.Fatalf("the default subnets: %v, %v", subnets, err)
	}
	made, err := v.ec2.CreateLaunchTemplate(t.Context(), &ec2.CreateLaunchTemplateInput{
		LaunchTemplateName: aws.String("machines"),
		LaunchTemplateData: &ec2types.RequestLaunchTemplateData{ImageId: aws.String(regiontest.ImageID), InstanceType: ec2types.InstanceTypeT3Large},
	})
	if err != nil {
		t.Fatal(err)
	}
	id := made.LaunchTemplate.LaunchTemplateId
	v.late("CreateAutoScalingGroup", "ValidationError: You must use a valid fully-formed launch template. The specified launch template, with template ID "+*id+", does not exist.", func(ctx context.Context) error {
		_, err := groups.CreateAutoScalingGroup(ctx, &autoscaling.CreateAutoScalingGroupInput{
			AutoScalingGroupName: aws.String("nodes"), MinSize: aws.Int32(1), MaxSize: aws.Int32(1),
			LaunchTemplate:    &astypes.LaunchTemplateSpecification{LaunchTemplateId: id, Version: aws.String("1")},
			VPCZoneIdentifier: subnets.Subnets[0].SubnetId,
		})
		return err
	})
	for range 100 {
		out, err := groups.DescribeScalingActivities(t.Context(), &autoscaling.DescribeScalingActivitiesInput{AutoScalingGroupName: aws.String("nodes")})
		if err != nil {
			t.Fatal(err)
		}
		if len(out.Activities) > 0 {
			if out.Activities[0].StatusCode == astypes.ScalingActivityStatusCodeFailed {
				t.Errorf("the launch: %s", *out.Activities[0].StatusMessage)
			}
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Error("nothing was launched")
}

// TestOtherServicesSeeNetworksLater: Elastic Load Balancing and Auto Scaling do not see a new subnet or security group at once.
func TestOtherServicesSeeNetworksLater(t *testing.T) {
	v := startVisibility(t)
	vpcs, err := v.ec2.DescribeVpcs(t.Context(), &ec2.DescribeVpcsInput{})
	if err != nil || len(vpcs.Vpcs) != 1 {
		t.Fatalf("the default VPC: %v, %v", vpcs, err)
	}

	vpc := vpcs.Vpcs[0].VpcId
	newSubnet := func(block string) string {
		t.Helper()
		out, err := v.ec2.CreateSubnet(t.Context(), &ec2.CreateSubnetInput{VpcId: vpc, CidrBlock: &block})
		if err != nil {
			t.Fatal(err)
		}

		return *out.Subnet.SubnetId
	}

	balancers := elb.NewFromConfig(v.r.AWSConfig())
	createBalancer := func(name, subnet string, groups ...string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := balancers.CreateLoadBalancer(ctx, &elb.CreateLoadBalancerInput{
				Name:           &name,
				Type:           elbtypes.LoadBalancerTypeEnumNetwork,
				Scheme:         elbtypes.LoadBalancerSchemeEnumInternal,
				Subnets:        []string{subnet},
				SecurityGroups: groups,
			})

			return err
		}
	}

	subnet := newSubnet("172.31.200.0/24")
	v.late("CreateLoadBalancer", "SubnetNotFound: ", createBalancer("a", subnet))

	group, err := v.ec2.CreateSecurityGroup(t.Context(), &ec2.CreateSecurityGroupInput{
		GroupName:   aws.String("g"),
		Description: aws.String("g"),
		VpcId:       vpc,
	})
	if err != nil {
		t.Fatal(err)
	}

	v.late("CreateLoadBalancer", "InvalidSecurityGroup: ", createBalancer("b", subnet, *group.GroupId))

	v.r.DelayVisibility(0)
	made, err := v.ec2.CreateLaunchTemplate(t.Context(), &ec2.CreateLaunchTemplateInput{
		LaunchTemplateName: aws.String("machines"),
		LaunchTemplateData: &ec2types.RequestLaunchTemplateData{ImageId: aws.String(regiontest.ImageID)},
	})
	if err != nil {
		t.Fatal(err)
	}

	template := made.LaunchTemplate.LaunchTemplateId
	v.r.DelayVisibility(delayed)

	young := newSubnet("172.31.201.0/24")
	groups := autoscaling.NewFromConfig(v.r.AWSConfig())
	want := "ValidationError: The subnet ID '" + young + "' does not exist"
	v.late("CreateAutoScalingGroup", want, func(ctx context.Context) error {
		_, err := groups.CreateAutoScalingGroup(ctx, &autoscaling.CreateAutoScalingGroupInput{
			AutoScalingGroupName: aws.String("nodes"),
			MinSize:              aws.Int32(0),
			MaxSize:              aws.Int32(1),
			LaunchTemplate:       &astypes.LaunchTemplateSpecification{LaunchTemplateId: template, Version: aws.String("1")},
			VPCZoneIdentifier:    &young,
		})

		return err
	})
}

// TestVisibilityIsDelayedByTime: what is new is seen after a while, however often it is asked for.
func TestVisibilityIsDelayedByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := regiontest.StartWith(t, regiontest.Options{InProcess: true, VisibilityDelay: regiontest.LikeAWS})
		api := ec2.NewFromConfig(r.AWSConfig())
		vpc, err := api.CreateVpc(t.Context(), &ec2.CreateVpcInput{CidrBlock: aws.String("10.0.0.0/16")})
		if err != nil {
			t.Fatal(err)
		}
		describe := func() string {
			_, err := api.DescribeVpcs(t.Context(), &ec2.DescribeVpcsInput{VpcIds: []string{*vpc.Vpc.VpcId}})
			return codeOf(err)
		}
		for range 10 {
			if got := describe(); !strings.HasPrefix(got, "InvalidVpcID.NotFound") {
				t.Fatalf("at once: %q", got)
			}
		}
		time.Sleep(regiontest.LikeAWS)
		if got := describe(); got != "" {
			t.Errorf("after %s: %q", regiontest.LikeAWS, got)
		}
		time.Sleep(time.Minute)
	})
}

// asUser returns the configuration of a new user who may do anything.
func (v visibility) asUser() aws.Config {
	v.t.Helper()
	ctx := v.t.Context()
	name, document := aws.String("operator"), aws.String(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}`)
	v.r.DelayVisibility(0)
	defer v.r.DelayVisibility(delayed)
	_, err := v.iam.CreateUser(ctx, &iam.CreateUserInput{UserName: name})
	_, second := v.iam.PutUserPolicy(ctx, &iam.PutUserPolicyInput{UserName: name, PolicyName: name, PolicyDocument: document})
	if err = errors.Join(err, second); err != nil {
		v.t.Fatal(err)
	}
	key, err := v.iam.CreateAccessKey(ctx, &iam.CreateAccessKeyInput{UserName: name})
	if err != nil {
		v.t.Fatal(err)
	}
	return v.as(credentials.NewStaticCredentialsProvider(*key.AccessKey.AccessKeyId, *key.AccessKey.SecretAccessKey, ""))
}

func (v visibility) as(who aws.CredentialsProvider) aws.Config {
	cfg := v.r.AWSConfig()
	cfg.Credentials = who
	return cfg
}

// TestNewPoliciesDecideLater: a role cannot be assumed at once, may not do at once what a new policy allows, and cannot be
// deleted at once after its last policy.
func TestNewPoliciesDecideLater(t *testing.T) {
	v := startVisibility(t)
	operator := sts.NewFromConfig(v.asUser())
	v.createRole("worker")
	var session aws.CredentialsProvider
	v.late("AssumeRole", "AccessDenied: ", func(ctx context.Context) error {
		out, err := operator.AssumeRole(ctx, &sts.AssumeRoleInput{
			RoleArn: aws.String("arn:aws:iam::" + regiontest.AccountID + ":role/worker"), RoleSessionName: aws.String("session"),
		})
		if err == nil {
			c := out.Credentials
			session = credentials.NewStaticCredentialsProvider(*c.AccessKeyId, *c.SecretAccessKey, *c.SessionToken)
		}
		return err
	})

	worker := ec2.NewFromConfig(v.as(session))
	describe := func(ctx context.Context) error {
		_, err := worker.DescribeVpcs(ctx, &ec2.DescribeVpcsInput{})
		return err
	}
	if got := codeOf(describe(t.Context())); !strings.HasPrefix(got, "UnauthorizedOperation") {
		t.Errorf("without a policy: %q", got)
	}
	name := aws.String("read")
	_, err := v.iam.PutRolePolicy(t.Context(), &iam.PutRolePolicyInput{RoleName: aws.String("worker"), PolicyName: name, PolicyDocument: aws.String(
		`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"ec2:DescribeVpcs","Resource":"*"}]}`,
	)})
	if err != nil {
		t.Fatal(err)
	}
	v.late("DescribeVpcs", "UnauthorizedOperation", describe)
	v.late("DeleteRolePolicy", "NoSuchEntity: ", func(ctx context.Context) error {
		_, err := v.iam.DeleteRolePolicy(ctx, &iam.DeleteRolePolicyInput{RoleName: aws.String("worker"), PolicyName: name})
		return err
	})
	for i := range delayed {
		if err := describe(t.Context()); err != nil {
			t.Errorf("call %d after the policy was deleted: %v", i+1, err)
		}
	}
	if got := codeOf(describe(t.Context())); !strings.HasPrefix(got, "UnauthorizedOperation") {
		t.Errorf("after the policy was deleted: %q", got)
	}

	v.late("DeleteRole", "DeleteConflict: ", func(ctx context.Context) error {
		_, err := v.iam.DeleteRole(ctx, &iam.DeleteRoleInput{RoleName: aws.String("worker")})
		return err
	})
}

// TestNewTagsAreFoundLater: filters and DescribeTags do not see new tags at once; who asks for the id sees them.
func TestNewTagsAreFoundLater(t *testing.T) {
	v := startVisibility(t)
	vpcs, err := v.ec2.DescribeVpcs(t.Context(), &ec2.DescribeVpcsInput{})
	if err != nil || len(vpcs.Vpcs) != 1 {
		t.Fatalf("the default VPC: %v, %v", vpcs, err)
	}
	id := *vpcs.Vpcs[0].VpcId
	tag := func(value string) {
		t.Helper()
		_, err := v.ec2.CreateTags(t.Context(), &ec2.CreateTagsInput{Resources: []string{id}, Tags: []ec2types.Tag{{Key: aws.String("team"), Value: &value}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	found := func(value string) func(context.Context) error {
		return func(ctx context.Context) error {
			out, err := v.ec2.DescribeVpcs(ctx, &ec2.DescribeVpcsInput{Filters: []ec2types.Filter{{Name: aws.String("tag:team"), Values: []string{value}}}})
			if err == nil && len(out.Vpcs) == 0 {
				err = errors.New("not found")
			}
			return err
		}
	}

	tag("a")
	v.late("the filter of a new tag", "not found", found("a"))
	tag("b")
	byID, err := v.ec2.DescribeVpcs(t.Context(), &ec2.DescribeVpcsInput{VpcIds: []string{id}})
	if err != nil || len(byID.Vpcs) != 1 || len(byID.Vpcs[0].Tags) != 1 || *byID.Vpcs[0].Tags[0].Value != "b" {
		t.Errorf("by its id: %+v, %v", byID, err)
	}
	if err := found("a")(t.Context()); err != nil {
		t.Errorf("the former tag: %v", err)
	}
	if err := found("b")(t.Context()); err == nil {
		t.Error("the new tag is found at once")
	}
	if err := found("b")(t.Context()); err != nil {
		t.Errorf("the new tag: %v", err)
	}

	tag("c")
	v.late("DescribeTags", "not listed", func(ctx context.Context) error {
		out, err := v.ec2.DescribeTags(ctx, &ec2.DescribeTagsInput{Filters: []ec2types.Filter{{Name: aws.String("resource-id"), Values: []string{id}}}})
		if err == nil && len(out.Tags) == 0 {
			err = errors.New("not listed")
		}
		return err
	})
}

// TestChangesAreSeenAtOnceByDefault: nobody who does not ask for it has to wait.
func TestChangesAreSeenAtOnceByDefault(t *testing.T) {
	v := startVisibility(t)
	v.r.DelayVisibility(0)
	v.createRole("r")
	if _, err := v.iam.GetRole(t.Context(), &iam.GetRoleInput{RoleName: aws.String("r")}); err != nil {
		t.Error(err)
	}
}
