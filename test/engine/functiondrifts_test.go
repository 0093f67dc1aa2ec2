// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	eventtypes "github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	lambdatypes "github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	snstypes "github.com/aws/aws-sdk-go-v2/service/sns/types"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
)

const (
	driftFunction = "slipway-dns-demo"
	driftARN      = "arn:aws:lambda:us-east-1:123456789012:function:" + driftFunction
	driftRuleARN  = "arn:aws:events:us-east-1:123456789012:rule/" + driftFunction
	driftTopicARN = "arn:aws:sns:us-east-1:123456789012:" + driftFunction
	driftLogARN   = "arn:aws:logs:us-east-1:123456789012:log-group:/aws/lambda/" + driftFunction
)

// functionDrifts are changes of the function that keeps the records of etcd's members.
func functionDrifts() []drift {
	tagFunction := func(key, value string) func(awsClients) error {
		return func(h awsClients) error {
			_, err := h.lambda.TagResource(h, &lambda.TagResourceInput{Resource: sdk.String(driftARN), Tags: map[string]string{key: value}})
			return err
		}
	}
	return append([]drift{
		{description: "a setting of the function for DNS records is changed", change: func(h awsClients) error {
			_, err := h.lambda.UpdateFunctionConfiguration(h, &lambda.UpdateFunctionConfigurationInput{FunctionName: sdk.String(driftFunction), Timeout: sdk.Int32(3)})
			return err
		}, want: []string{"~ lambda-function/dns", "  Timeout: 3 → 60"}},
		{description: "the function gets another zone", change: func(h awsClients) error {
			_, err := h.lambda.UpdateFunctionConfiguration(h, &lambda.UpdateFunctionConfigurationInput{
				FunctionName: sdk.String(driftFunction), Environment: environment("Z0123456789ABCDEFGHIJ"),
			})
			return err
		}, want: []string{"~ lambda-function/dns", `  Environment.Variables.SLIPWAY_ZONE: "Z0123456789ABCDEFGHIJ" → "`}},
		{description: "a tag of the function is changed", change: tagFunction("Name", "mine"), want: []string{"~ lambda-function/dns", `  Tags[Name]: "mine" → "dns.demo"`}},
		{description: "the function gets a tag with Slipway's prefix", change: tagFunction("slipway.dev/role", "worker"), want: []string{"~ lambda-function/dns", `  Tags[slipway.dev/role]: "worker" → (not set)`}},
		{description: "the record of the function's last invocation is removed", change: func(h awsClients) error {
			_, err := h.lambda.UntagResource(h, &lambda.UntagResourceInput{Resource: sdk.String(driftARN), TagKeys: []string{awskind.TagInvoked}})
			return err
		}, want: []string{"+ lambda-invocation/dns"}},
		{description: "EventBridge may not invoke the function any more", change: func(h awsClients) error {
			_, err := h.lambda.RemovePermission(h, &lambda.RemovePermissionInput{FunctionName: sdk.String(driftFunction), StatementId: sdk.String("slipway")})
			return err
		}, want: []string{"+ lambda-permission/dns"}},
		{description: "another service may invoke the function", change: func(h awsClients) error {
			_, err := h.lambda.AddPermission(h, &lambda.AddPermissionInput{
				FunctionName: sdk.String(driftFunction), StatementId: sdk.String("mine"), Action: sdk.String("lambda:InvokeFunction"), Principal: sdk.String("s3.amazonaws.com"),
			})
			return err
		}, want: []string{"- lambda-permission/dns:s3.amazonaws.com"}},
		{description: "the function is deleted", change: func(h awsClients) error {
			_, err := h.lambda.DeleteFunction(h, &lambda.DeleteFunctionInput{FunctionName: sdk.String(driftFunction)})
			return err
		}, want: []string{"+ lambda-function/dns", "+ lambda-invocation/dns", "~ event-rule/dns", "  Targets[0].Arn: ", "+ lambda-permission/dns", "+ lambda-permission/dns-sns", "-/+ sns-subscription/dns", "  Endpoint: "}},
	}, append(triggerDrifts(), topicDrifts()...)...)
}

// topicDrifts are changes of the topic that triggers the function.
func topicDrifts() []drift {
	tagTopic := func(key, value string) func(awsClients) error {
		return func(h awsClients) error {
			_, err := h.sns.TagResource(h, &sns.TagResourceInput{
				ResourceArn: sdk.String(driftTopicARN), Tags: []snstypes.Tag{{Key: &key, Value: &value}},
			})
			return err
		}
	}
	return []drift{
		{description: "SNS may not invoke the function any more", change: func(h awsClients) error {
			_, err := h.lambda.RemovePermission(h, &lambda.RemovePermissionInput{FunctionName: sdk.String(driftFunction), StatementId: sdk.String("slipway-sns")})
			return err
		}, want: []string{"+ lambda-permission/dns-sns"}},
		{description: "the topic gets the policy that AWS gives to topics", change: func(h awsClients) error {
			_, err := h.sns.SetTopicAttributes(h, &sns.SetTopicAttributesInput{
				TopicArn: sdk.String(driftTopicARN), AttributeName: sdk.String("Policy"), AttributeValue: sdk.String(""),
			})
			return err
		}, want: []string{"~ sns-topic/dns", "  Policy.PolicyDocument: "}},
		{description: "a tag of the topic is changed", change: tagTopic("Name", "mine"), want: []string{"~ sns-topic/dns", `  Tags[Name]: "mine" → "dns.demo"`}},
		{description: "the topic gets a tag with Slipway's prefix", change: tagTopic("slipway.dev/role", "worker"), want: []string{"~ sns-topic/dns", `  Tags[slipway.dev/role]: "worker" → (not set)`}},
		{description: "the function is unsubscribed", change: func(h awsClients) error {
			list, err := h.sns.ListSubscriptionsByTopic(h, &sns.ListSubscriptionsByTopicInput{TopicArn: sdk.String(driftTopicARN)})
			if err != nil {
				return err
			}
			_, err = h.sns.Unsubscribe(h, &sns.UnsubscribeInput{SubscriptionArn: list.Subscriptions[0].SubscriptionArn})
			return err
		}, want: []string{"+ sns-subscription/dns"}},
		{description: "the topic is deleted", change: func(h awsClients) error {
			_, err := h.sns.DeleteTopic(h, &sns.DeleteTopicInput{TopicArn: sdk.String(driftTopicARN)})
			return err
		}, want: []string{"+ sns-topic/dns", "-/+ lambda-permission/dns-sns", "  SourceArn: ", "+ sns-subscription/dns"}},
	}
}

// environment returns the environment of the function with another zone.
func environment(zone string) *lambdatypes.Environment {
	return &lambdatypes.Environment{Variables: map[string]string{"SLIPWAY_CLUSTER": "demo", "SLIPWAY_CLUSTER_ID": "k7q2m4x9c3v5b8n1", "SLIPWAY_ZONE": zone}}
}

// triggerDrifts are changes of the function's rule and of its log group.
func triggerDrifts() []drift {
	return []drift{
		{description: "the function's rule is disabled", change: func(h awsClients) error {
			_, err := h.events.PutRule(h, &eventbridge.PutRuleInput{
				Name: sdk.String(driftFunction), ScheduleExpression: sdk.String("rate(1 day)"), State: eventtypes.RuleStateDisabled,
			})
			return err
		}, want: []string{
			"~ event-rule/dns", "  Description: (not set) → ", "  EventPattern: (not set) → ", `  ScheduleExpression: "rate(1 day)" → "rate(5 minutes)"`, `  State: "DISABLED" → "ENABLED"`,
		}},
		{description: "the rule loses its target", change: func(h awsClients) error {
			_, err := h.events.RemoveTargets(h, &eventbridge.RemoveTargetsInput{Rule: sdk.String(driftFunction), Ids: []string{"function"}})
			return err
		}, want: []string{"~ event-rule/dns", "  Targets: "}},
		{description: "the rule gets a tag with Slipway's prefix", change: func(h awsClients) error {
			_, err := h.events.TagResource(h, &eventbridge.TagResourceInput{
				ResourceARN: sdk.String(driftRuleARN), Tags: []eventtypes.Tag{{Key: sdk.String("slipway.dev/role"), Value: sdk.String("worker")}},
			})
			return err
		}, want: []string{"~ event-rule/dns", `  Tags[slipway.dev/role]: "worker" → (not set)`}},
		{description: "a tag of the rule is changed", change: func(h awsClients) error {
			_, err := h.events.TagResource(h, &eventbridge.TagResourceInput{
				ResourceARN: sdk.String(driftRuleARN), Tags: []eventtypes.Tag{{Key: sdk.String("Name"), Value: sdk.String("mine")}},
			})
			return err
		}, want: []string{"~ event-rule/dns", `  Tags[Name]: "mine" → "dns.demo"`}},
		{description: "the function's log is kept for ever", change: func(h awsClients) error {
			_, err := h.logs.DeleteRetentionPolicy(h, &cloudwatchlogs.DeleteRetentionPolicyInput{LogGroupName: sdk.String("/aws/lambda/" + driftFunction)})
			return err
		}, want: []string{"~ log-group/dns", "  RetentionInDays: (not set) → 14"}},
		{description: "a tag of the log group is changed", change: func(h awsClients) error {
			_, err := h.logs.TagResource(h, &cloudwatchlogs.TagResourceInput{ResourceArn: sdk.String(driftLogARN), Tags: map[string]string{"Name": "mine", "slipway.dev/role": "worker"}})
			return err
		}, want: []string{"~ log-group/dns", `  Tags[Name]: "mine" → "dns.demo"`, `  Tags[slipway.dev/role]: "worker" → (not set)`}},
		{description: "the log group is deleted", change: func(h awsClients) error {
			_, err := h.logs.DeleteLogGroup(h, &cloudwatchlogs.DeleteLogGroupInput{LogGroupName: sdk.String("/aws/lambda/" + driftFunction)})
			return err
		}, want: []string{"+ log-group/dns"}},
	}
}
