// SPDX-License-Identifier: Apache-2.0

package services_test

import (
	"bytes"
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	kmstypes "github.com/aws/aws-sdk-go-v2/service/kms/types"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	lambdatypes "github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sns"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// balancer creates an internal load balancer, and returns its ARN.
func (l *lateLab) balancer() *string {
	l.Helper()
	out, err := elb.NewFromConfig(l.cfg).CreateLoadBalancer(l.Context(), &elb.CreateLoadBalancerInput{
		Name: aws.String("api"), Type: elbtypes.LoadBalancerTypeEnumNetwork, Scheme: elbtypes.LoadBalancerSchemeEnumInternal,
		Subnets: []string{*l.defaultSubnet().SubnetId},
	})
	l.must(err)

	return out.LoadBalancers[0].LoadBalancerArn
}

// targetGroup creates a target group, and returns its ARN.
func (l *lateLab) targetGroup() *string {
	l.Helper()
	out, err := elb.NewFromConfig(l.cfg).CreateTargetGroup(l.Context(), &elb.CreateTargetGroupInput{
		Name: aws.String("api"), Protocol: elbtypes.ProtocolEnumTcp, Port: aws.Int32(443), VpcId: l.defaultSubnet().VpcId,
	})
	l.must(err)

	return out.TargetGroups[0].TargetGroupArn
}

// key creates a KMS key, and returns its id.
func (l *lateLab) key() *string {
	l.Helper()
	out, err := kms.NewFromConfig(l.cfg).CreateKey(l.Context(), &kms.CreateKeyInput{})
	l.must(err)

	return out.KeyMetadata.KeyId
}

// function creates a function. Its role and its code are visible.
func (l *lateLab) function() *lambda.Client {
	l.Helper()
	l.withoutDelay(func() {
		l.createRole("function")
		bucket := s3.NewFromConfig(l.cfg)
		_, err := bucket.CreateBucket(l.Context(), &s3.CreateBucketInput{Bucket: aws.String("code")})
		l.must(err)
		code := regiontest.NewDeploymentPackage(l.T, "#!/bin/sh\n")
		_, err = bucket.PutObject(l.Context(), &s3.PutObjectInput{
			Bucket: aws.String("code"), Key: aws.String("f.zip"), Body: bytes.NewReader(code),
		})
		l.must(err)
	})
	api := lambda.NewFromConfig(l.cfg)
	_, err := api.CreateFunction(l.Context(), &lambda.CreateFunctionInput{
		FunctionName: aws.String("dns"), Runtime: lambdatypes.RuntimeProvidedal2023, Handler: aws.String("bootstrap"),
		Role: aws.String(iamARN("role/function")),
		Code: &lambdatypes.FunctionCode{S3Bucket: aws.String("code"), S3Key: aws.String("f.zip")},
	})
	l.must(err)

	return api
}

// serviceCases are the cases of the other services.
func serviceCases() map[string]lateCase {
	return map[string]lateCase{
		"elasticloadbalancing.CreateLoadBalancer": func(l *lateLab) (string, func(context.Context) error) {
			l.balancer()

			return "LoadBalancerNotFound", func(ctx context.Context) error {
				_, err := elb.NewFromConfig(l.cfg).DescribeLoadBalancers(ctx, &elb.DescribeLoadBalancersInput{Names: []string{"api"}})
				return err
			}
		},
		"elasticloadbalancing.CreateTargetGroup": func(l *lateLab) (string, func(context.Context) error) {
			arn := l.targetGroup()

			return "TargetGroupNotFound", func(ctx context.Context) error {
				_, err := elb.NewFromConfig(l.cfg).DescribeTargetHealth(ctx, &elb.DescribeTargetHealthInput{TargetGroupArn: arn})
				return err
			}
		},
		"elasticloadbalancing.CreateListener": func(l *lateLab) (string, func(context.Context) error) {
			api := elb.NewFromConfig(l.cfg)
			in := &elb.CreateListenerInput{Protocol: elbtypes.ProtocolEnumTcp, Port: aws.Int32(443)}
			l.withoutDelay(func() {
				in.LoadBalancerArn = l.balancer()
				in.DefaultActions = []elbtypes.Action{{Type: elbtypes.ActionTypeEnumForward, TargetGroupArn: l.targetGroup()}}
			})
			_, err := api.CreateListener(l.Context(), in)
			l.must(err)

			return errNotListed.Error(), func(ctx context.Context) error {
				out, err := api.DescribeListeners(ctx, &elb.DescribeListenersInput{LoadBalancerArn: in.LoadBalancerArn})
				return listed(err == nil && len(out.Listeners) > 0, err)
			}
		},
		"kms.CreateKey": func(l *lateLab) (string, func(context.Context) error) {
			id := l.key()

			return "NotFoundException", func(ctx context.Context) error {
				_, err := kms.NewFromConfig(l.cfg).DescribeKey(ctx, &kms.DescribeKeyInput{KeyId: id})
				return err
			}
		},
		"kms.CreateAlias": func(l *lateLab) (string, func(context.Context) error) {
			in := &kms.CreateAliasInput{AliasName: aws.String("alias/cluster")}
			l.withoutDelay(func() { in.TargetKeyId = l.key() })
			_, err := kms.NewFromConfig(l.cfg).CreateAlias(l.Context(), in)
			l.must(err)

			return "NotFoundException: Alias arn:aws:kms:", func(ctx context.Context) error {
				_, err := kms.NewFromConfig(l.cfg).Encrypt(ctx, &kms.EncryptInput{KeyId: in.AliasName, Plaintext: []byte("x")})
				return err
			}
		},
		"kms.CreateGrant": func(l *lateLab) (string, func(context.Context) error) {
			in := &kms.CreateGrantInput{
				GranteePrincipal: aws.String(iamARN("role/worker")), Operations: []kmstypes.GrantOperation{kmstypes.GrantOperationDecrypt},
			}
			l.withoutDelay(func() { in.KeyId = l.key() })
			api := kms.NewFromConfig(l.cfg)
			_, err := api.CreateGrant(l.Context(), in)
			l.must(err)

			return errNotListed.Error(), func(ctx context.Context) error {
				out, err := api.ListGrants(ctx, &kms.ListGrantsInput{KeyId: in.KeyId})
				return listed(err == nil && len(out.Grants) > 0, err)
			}
		},
		"events.PutRule": func(l *lateLab) (string, func(context.Context) error) {
			api := eventbridge.NewFromConfig(l.cfg)
			_, err := api.PutRule(l.Context(), &eventbridge.PutRuleInput{
				Name: aws.String("launches"), EventPattern: aws.String(`{"source":["aws.autoscaling"]}`),
			})
			l.must(err)

			return "ResourceNotFoundException", func(ctx context.Context) error {
				_, err := api.DescribeRule(ctx, &eventbridge.DescribeRuleInput{Name: aws.String("launches")})
				return err
			}
		},
		"sns.CreateTopic": func(l *lateLab) (string, func(context.Context) error) {
			api := sns.NewFromConfig(l.cfg)
			out, err := api.CreateTopic(l.Context(), &sns.CreateTopicInput{Name: aws.String("launches")})
			l.must(err)

			return "NotFound: Topic does not exist", func(ctx context.Context) error {
				_, err := api.GetTopicAttributes(ctx, &sns.GetTopicAttributesInput{TopicArn: out.TopicArn})
				return err
			}
		},
		"sns.Subscribe": func(l *lateLab) (string, func(context.Context) error) {
			api := sns.NewFromConfig(l.cfg)
			in := &sns.SubscribeInput{
				Protocol: aws.String("lambda"), Endpoint: aws.String("arn:aws:lambda:us-east-1:" + regiontest.AccountID + ":function:dns"),
			}
			l.withoutDelay(func() {
				out, err := api.CreateTopic(l.Context(), &sns.CreateTopicInput{Name: aws.String("launches")})
				l.must(err)
				in.TopicArn = out.TopicArn
			})
			out, err := api.Subscribe(l.Context(), in)
			l.must(err)

			return "NotFound: Subscription does not exist", func(ctx context.Context) error {
				_, err := api.GetSubscriptionAttributes(ctx, &sns.GetSubscriptionAttributesInput{SubscriptionArn: out.SubscriptionArn})
				return err
			}
		},
		"lambda.CreateFunction": func(l *lateLab) (string, func(context.Context) error) {
			api := l.function()

			return "ResourceNotFoundException: Function not found", func(ctx context.Context) error {
				_, err := api.GetFunction(ctx, &lambda.GetFunctionInput{FunctionName: aws.String("dns")})
				return err
			}
		},
		"lambda.AddPermission": func(l *lateLab) (string, func(context.Context) error) {
			var api *lambda.Client
			l.withoutDelay(func() { api = l.function() })
			_, err := api.AddPermission(l.Context(), &lambda.AddPermissionInput{
				FunctionName: aws.String("dns"), StatementId: aws.String("events"), Action: aws.String("lambda:InvokeFunction"),
				Principal: aws.String("events.amazonaws.com"),
			})
			l.must(err)

			return "ResourceNotFoundException", func(ctx context.Context) error {
				_, err := api.GetPolicy(ctx, &lambda.GetPolicyInput{FunctionName: aws.String("dns")})
				return err
			}
		},
		"route53.CreateHostedZone": func(l *lateLab) (string, func(context.Context) error) {
			api := route53.NewFromConfig(l.cfg)
			out, err := api.CreateHostedZone(l.Context(), &route53.CreateHostedZoneInput{
				Name: aws.String("example.com"), CallerReference: aws.String("one"),
			})
			l.must(err)

			return "NoSuchHostedZone", func(ctx context.Context) error {
				_, err := api.GetHostedZone(ctx, &route53.GetHostedZoneInput{Id: out.HostedZone.Id})
				return err
			}
		},
		"s3.CreateBucket": func(l *lateLab) (string, func(context.Context) error) {
			api := s3.NewFromConfig(l.cfg)
			_, err := api.CreateBucket(l.Context(), &s3.CreateBucketInput{Bucket: aws.String("state")})
			l.must(err)

			return "NoSuchBucket", func(ctx context.Context) error {
				_, err := api.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: aws.String("state")})
				return err
			}
		},
		"ecr.CreateRepository": func(l *lateLab) (string, func(context.Context) error) {
			api := ecr.NewFromConfig(l.cfg)
			_, err := api.CreateRepository(l.Context(), &ecr.CreateRepositoryInput{RepositoryName: aws.String("pause")})
			l.must(err)

			return "RepositoryNotFoundException", func(ctx context.Context) error {
				_, err := api.DescribeRepositories(ctx, &ecr.DescribeRepositoriesInput{RepositoryNames: []string{"pause"}})
				return err
			}
		},
	}
}
