// SPDX-License-Identifier: Apache-2.0

package awskind

import "github.com/slipway-k8s/slipway/internal/infra/graph"

// SNSTopic is a standard topic of Amazon SNS. Its identity is its ARN.
type SNSTopic struct {
	Name string `aws:"TopicName,immutable" tf:"name"`
	// Policy says who may use the topic besides those whom IAM allows it. Without one, AWS allows
	// everybody in the account to publish, to subscribe, and to delete the topic. It is a separate
	// resource in CloudFormation.
	Policy TopicPolicy `aws:"Policy" tf:"-,inline" cfn:"-,apart=AWS::SNS::TopicPolicy,with=Topics[]"`
	Tags   Tags        `aws:"Tags,tags"`
}

// TopicPolicy is the policy of an [SNSTopic].
type TopicPolicy struct {
	Document graph.JSON `aws:"PolicyDocument" tf:"policy"`
}

// Kind implements [graph.Resource].
func (SNSTopic) Kind() graph.Kind {
	return graph.Kind{
		Name:           "sns-topic",
		Terraform:      "aws_sns_topic",
		CloudFormation: "AWS::SNS::Topic",
		Attributes:     map[string]string{"TopicArn": "arn"},
		Lifecycle:      graph.Lifecycle{Replacement: graph.ForbidReplacement, ForbiddenHint: renameHint},
	}
}

// SNSSubscription delivers the messages of a topic to a Lambda function.
type SNSSubscription struct {
	Topic    graph.Ref[SNSTopic] `aws:"TopicArn,immutable"`
	Protocol string              `aws:"Protocol,immutable"` // lambda
	Endpoint graph.Text          `aws:"Endpoint,immutable"` // ARN of the function
}

// Kind implements [graph.Resource].
func (SNSSubscription) Kind() graph.Kind {
	return graph.Kind{
		Name:           "sns-subscription",
		Terraform:      "aws_sns_topic_subscription",
		CloudFormation: "AWS::SNS::Subscription",
		KeyProperties:  []string{"TopicArn", "Protocol"},
		// No message must reach the function after it has deleted what it made.
		ImplicitDependencies: []string{"lambda-invocation", "lambda-function", "lambda-permission"},
	}
}

// GroupNotification makes an [AutoScalingGroup] publish a message for each event of some types.
// Auto Scaling publishes a test message when it is configured.
type GroupNotification struct {
	Topic graph.Ref[SNSTopic] `aws:"TopicARN" tf:"topic_arn"`
	Types []string            `aws:"NotificationTypes,set" tf:"notifications"` // such as autoscaling:EC2_INSTANCE_LAUNCH
}
