// SPDX-License-Identifier: Apache-2.0

package services_test

import (
	"errors"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/servicequotas"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// TestInventedTokensAreRefused: a token that no list returned is an error, and not the end of a list.
func TestInventedTokensAreRefused(t *testing.T) {
	t.Parallel()
	cfg := regiontest.Start(t).AWSConfig()
	ctx := t.Context()
	token := aws.String("zzzz")
	errs := map[string]error{}
	_, errs["ec2"] = ec2.NewFromConfig(cfg).DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{NextToken: token})
	_, errs["autoscaling"] = autoscaling.NewFromConfig(cfg).DescribeAutoScalingGroups(ctx, &autoscaling.DescribeAutoScalingGroupsInput{
		NextToken: token,
	})
	_, errs["elbv2"] = elasticloadbalancingv2.NewFromConfig(cfg).DescribeLoadBalancers(ctx, &elasticloadbalancingv2.DescribeLoadBalancersInput{
		Marker: token,
	})
	_, errs["iam"] = iam.NewFromConfig(cfg).ListRoles(ctx, &iam.ListRolesInput{Marker: token})
	_, errs["kms"] = kms.NewFromConfig(cfg).ListKeys(ctx, &kms.ListKeysInput{Marker: token})
	_, errs["kms aliases"] = kms.NewFromConfig(cfg).ListAliases(ctx, &kms.ListAliasesInput{Marker: token})
	_, errs["cloudformation"] = cloudformation.NewFromConfig(cfg).ListStacks(ctx, &cloudformation.ListStacksInput{NextToken: token})
	_, errs["logs"] = cloudwatchlogs.NewFromConfig(cfg).DescribeLogGroups(ctx, &cloudwatchlogs.DescribeLogGroupsInput{NextToken: token})
	_, errs["lambda"] = lambda.NewFromConfig(cfg).ListFunctions(ctx, &lambda.ListFunctionsInput{Marker: token})
	_, errs["events"] = eventbridge.NewFromConfig(cfg).ListRules(ctx, &eventbridge.ListRulesInput{NextToken: token})
	_, errs["ecr"] = ecr.NewFromConfig(cfg).DescribeRepositories(ctx, &ecr.DescribeRepositoriesInput{NextToken: token})
	_, errs["ssm"] = ssm.NewFromConfig(cfg).GetParametersByPath(ctx, &ssm.GetParametersByPathInput{Path: aws.String("/"), NextToken: token})
	_, errs["quotas"] = servicequotas.NewFromConfig(cfg).ListServiceQuotas(ctx, &servicequotas.ListServiceQuotasInput{
		ServiceCode: aws.String("ec2"), NextToken: token,
	})

	for service, err := range errs {
		if _, ok := errors.AsType[smithy.APIError](err); !ok {
			t.Errorf("%s: %v, want an error about the token", service, err)
		}
	}
}
