// SPDX-License-Identifier: Apache-2.0

package services_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	cfntypes "github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// TestUnreadMembersAreRefusedByName: the region refuses what no service reads, also in a template, and values that an
// enum of AWS does not have.
func TestUnreadMembersAreRefusedByName(t *testing.T) {
	t.Parallel()
	cfg := regiontest.Start(t).AWSConfig()
	ctx := t.Context()
	_, nested := ec2.NewFromConfig(cfg).CreateLaunchTemplate(ctx, &ec2.CreateLaunchTemplateInput{
		LaunchTemplateName: aws.String("nodes"),
		LaunchTemplateData: &ec2types.RequestLaunchTemplateData{EnclaveOptions: &ec2types.LaunchTemplateEnclaveOptionsRequest{Enabled: aws.Bool(true)}},
	})
	_, enum := ec2.NewFromConfig(cfg).CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: aws.String("10.0.0.0/16"), InstanceTenancy: "bogus"})
	_, group := autoscaling.NewFromConfig(cfg).CreateAutoScalingGroup(ctx, &autoscaling.CreateAutoScalingGroupInput{
		AutoScalingGroupName: aws.String("x"), MinSize: aws.Int32(0), MaxSize: aws.Int32(0), PlacementGroup: aws.String("p"),
	})
	_, header := s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true }).PutObject(ctx, &s3.PutObjectInput{
		Bucket: aws.String("b-1"), Key: aws.String("k"), Tagging: aws.String("a=b"),
	})
	_, policy := s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true }).PutBucketPolicy(ctx, &s3.PutBucketPolicyInput{
		Bucket: aws.String("b-1"), Policy: aws.String("{}"), ConfirmRemoveSelfBucketAccess: aws.Bool(true),
	})
	_, stack := cloudformation.NewFromConfig(cfg).CreateStack(ctx, &cloudformation.CreateStackInput{
		StackName: aws.String("x"), TemplateBody: aws.String("{}"),
		RollbackConfiguration: &cfntypes.RollbackConfiguration{MonitoringTimeInMinutes: aws.Int32(1)},
	})

	for name, x := range map[string]struct {
		err  error
		code string
	}{
		"LaunchTemplateData.EnclaveOptions": {nested, "NotImplemented"},
		"instanceTenancy":                   {enum, "InvalidParameterValue"},
		"PlacementGroup":                    {group, "NotImplemented"},
		"x-amz-tagging":                     {header, "NotImplemented"},
		"remove-self-bucket-access":         {policy, "NotImplemented"},
		"RollbackConfiguration":             {stack, "NotImplemented"},
	} {
		e, ok := errors.AsType[smithy.APIError](x.err)
		if !ok || e.ErrorCode() != x.code || !strings.Contains(e.ErrorMessage(), name) {
			t.Errorf("%s: %v, want %s with its name", name, x.err, x.code)
		}
	}
}
