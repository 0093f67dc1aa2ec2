// SPDX-License-Identifier: Apache-2.0

package awskind

import "github.com/slipway-k8s/slipway/internal/infra/graph"

// LambdaFunction is a Lambda function whose code is a zip file in S3.
type LambdaFunction struct {
	Name        string     `aws:"FunctionName,immutable"`
	Description string     `aws:"Description"`
	Role        graph.Text `aws:"Role"`    // ARN
	Runtime     string     `aws:"Runtime"` // provided.al2023
	Handler     string     `aws:"Handler"` // bootstrap; the runtime does not use it
	// Architectures has exactly one: arm64 or x86_64.
	Architectures []string `aws:"Architectures"`
	MemorySize    int      `aws:"MemorySize"` // MB; it sets the share of a processor too
	Timeout       int      `aws:"Timeout"`    // seconds
	// Code is where Lambda reads the code when the function is created or changed. AWS does not return it.
	Code FunctionCode `aws:"Code,write" tf:"-,inline"`
	// CodeSHA256 of the zip file in base64. CloudFormation compares Code instead, whose key contains the hash.
	CodeSHA256  string              `aws:"CodeSha256" tf:"source_code_hash" cfn:"-"`
	Environment FunctionEnvironment `aws:"Environment"`
	Tags        Tags                `aws:"Tags,tags"`
}

// FunctionCode is the location of the code of a [LambdaFunction] in S3.
type FunctionCode struct {
	Bucket string `aws:"S3Bucket" tf:"s3_bucket"`
	Key    string `aws:"S3Key" tf:"s3_key"`
}

// FunctionEnvironment is the environment of a [LambdaFunction].
type FunctionEnvironment struct {
	Variables FunctionVariables `aws:"Variables" tf:"variables,map"`
}

// FunctionVariables are the environment variables of cmd/slipway-dns.
type FunctionVariables struct {
	Cluster   string                `aws:"SLIPWAY_CLUSTER" tf:"SLIPWAY_CLUSTER"`
	ClusterID string                `aws:"SLIPWAY_CLUSTER_ID" tf:"SLIPWAY_CLUSTER_ID"`
	Zone      graph.Ref[HostedZone] `aws:"SLIPWAY_ZONE" tf:"SLIPWAY_ZONE"`
}

// Kind implements [graph.Resource].
func (LambdaFunction) Kind() graph.Kind {
	return graph.Kind{
		Name:                 "lambda-function",
		Terraform:            "aws_lambda_function",
		CloudFormation:       "AWS::Lambda::Function",
		ImplicitDependencies: []string{"iam-role", "iam-role-policy", "log-group"},
		Attributes:           map[string]string{"Arn": "arn"},
		Outputs:              []string{""},
		Lifecycle:            graph.Lifecycle{Replacement: graph.ForbidReplacement, ForbiddenHint: renameHint},
	}
}

// The principals of the services that trigger functions and run them. They are the same in all partitions.
const (
	PrincipalLambda      = "lambda.amazonaws.com"
	PrincipalEventBridge = "events.amazonaws.com"
	PrincipalSNS         = "sns.amazonaws.com"
)

// LambdaPermission is a statement of the policy of a function that lets a service invoke it.
type LambdaPermission struct {
	Function  graph.Ref[LambdaFunction] `aws:"FunctionName,immutable" tf:"function_name"`
	Action    string                    `aws:"Action,immutable"`    // lambda:InvokeFunction
	Principal string                    `aws:"Principal,immutable"` // such as events.amazonaws.com
	// SourceARN is the resource on whose behalf the service may invoke the function.
	SourceARN graph.Text `aws:"SourceArn,immutable" tf:"source_arn"`
}

// Kind implements [graph.Resource].
func (LambdaPermission) Kind() graph.Kind {
	return graph.Kind{
		Name:           "lambda-permission",
		Terraform:      "aws_lambda_permission",
		CloudFormation: "AWS::Lambda::Permission",
		KeyProperties:  []string{"FunctionName", "Principal"},
		DeletedWith:    graph.Parent{Kind: "lambda-function"},
	}
}

// LambdaInvocation invokes a function when it is created, when its input changes and when it is deleted, and waits for the
// answer each time. So a function can delete what it has made before what that needs is deleted. In AWS there is no such
// resource: CloudFormation and Terraform have one. A direct apply records the input in a tag of the function.
type LambdaInvocation struct {
	Function graph.Text `aws:"ServiceToken,immutable" tf:"function_name"` // ARN of the function
	Input    graph.JSON `aws:"Input"`                                     // with what the provisioner adds
	// LifecycleScope is CRUD, so that Terraform invokes the function for a deletion too.
	LifecycleScope string `aws:"LifecycleScope,write" cfn:"-"`
}

// Kind implements [graph.Resource].
func (LambdaInvocation) Kind() graph.Kind {
	// Seconds. Lambda runs a failed event again after one and after two more minutes, a minute each: six minutes in all.
	// CloudFormation's default is an hour.
	const answerWithin = 600

	return graph.Kind{
		Name:                 "lambda-invocation",
		Terraform:            "aws_lambda_invocation",
		CloudFormation:       "AWS::CloudFormation::CustomResource",
		KeyProperties:        []string{"ServiceToken"},
		ImplicitDependencies: []string{"lambda-function", "iam-role-policy", "log-group", "hosted-zone"},
		CloudFormationExtra:  map[string]any{"ServiceTimeout": answerWithin},
		Lifecycle: graph.Lifecycle{
			DeleteNote: "invokes the function, which deletes its DNS records",
		},
	}
}

// EventRule is a rule of the default event bus of EventBridge. It triggers its targets for each event that matches the
// pattern, and on a schedule.
type EventRule struct {
	Name        string `aws:"Name,immutable"`
	Description string `aws:"Description"`
	// Pattern is unset for a rule that has only a schedule.
	Pattern  graph.JSON `aws:"EventPattern,whole"`
	Schedule string     `aws:"ScheduleExpression"` // such as rate(5 minutes)
	State    string     `aws:"State"`              // ENABLED
	// Targets are separate resources in Terraform.
	Targets []EventTarget `aws:"Targets" tf:"-,apart=aws_cloudwatch_event_target,with=rule"`
	Tags    Tags          `aws:"Tags,tags"`
}

// EventTarget is what an [EventRule] triggers.
type EventTarget struct {
	ID  string     `aws:"Id" tf:"target_id"` // unique in the rule
	ARN graph.Text `aws:"Arn" tf:"arn"`
}

// Kind implements [graph.Resource].
func (EventRule) Kind() graph.Kind {
	return graph.Kind{
		Name:           "event-rule",
		Terraform:      "aws_cloudwatch_event_rule",
		CloudFormation: "AWS::Events::Rule",
		Attributes:     map[string]string{"Arn": "arn"},
		// No event must reach the function after it has deleted what it made.
		ImplicitDependencies: []string{"lambda-invocation", "lambda-function"},
		Lifecycle:            graph.Lifecycle{Replacement: graph.ForbidReplacement, ForbiddenHint: renameHint},
	}
}

// LogGroup is a log group of CloudWatch Logs.
type LogGroup struct {
	Name      string `aws:"LogGroupName,immutable" tf:"name"`
	Retention int    `aws:"RetentionInDays"`
	Tags      Tags   `aws:"Tags,tags"`
}

// Kind implements [graph.Resource].
func (LogGroup) Kind() graph.Kind {
	return graph.Kind{
		Name:           "log-group",
		Terraform:      "aws_cloudwatch_log_group",
		CloudFormation: "AWS::Logs::LogGroup",
		Lifecycle:      graph.Lifecycle{Replacement: graph.ForbidReplacement, ForbiddenHint: renameHint},
	}
}

// FunctionLogGroup returns the name of the log group into which Lambda writes the log of a function.
func FunctionLogGroup(function string) string { return "/aws/lambda/" + function }

// EtcdZoneName is the name, in the graph, of the private hosted zone with the records of etcd's members.
const EtcdZoneName = "etcd"
