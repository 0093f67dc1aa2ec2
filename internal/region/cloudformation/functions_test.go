// SPDX-License-Identifier: Apache-2.0

package cloudformation_test

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// functionTemplate has a function with its role, its log group and a rule that invokes it.
func functionTemplate(key, greeting, target string, days int) string {
	return fmt.Sprintf(`{"Resources":{
		"Role":{"Type":"AWS::IAM::Role","Properties":{"AssumeRolePolicyDocument":{"Version":"2012-10-17","Statement":{"Effect":"Allow",
			"Principal":{"Service":"lambda.amazonaws.com"},"Action":"sts:AssumeRole"}}}},
		"Log":{"Type":"AWS::Logs::LogGroup","Properties":{"LogGroupName":"/aws/lambda/greet","RetentionInDays":%[4]d,"Tags":[{"Key":"k","Value":%[2]q}]}},
		"Function":{"Type":"AWS::Lambda::Function","Properties":{"FunctionName":"greet","Runtime":"provided.al2023","Handler":"bootstrap","Architectures":["x86_64"],
			"Role":{"Fn::GetAtt":["Role","Arn"]},"Code":{"S3Bucket":"code-1","S3Key":%[1]q},"Environment":{"Variables":{"GREETING":%[2]q}},"Tags":[{"Key":"k","Value":%[2]q}]}},
		"Rule":{"Type":"AWS::Events::Rule","Properties":{"Name":"greet","EventPattern":{"source":["aws.autoscaling"],"detail":{"AutoScalingGroupName":[%[2]q]}},
			"Targets":[{"Id":%[3]q,"Arn":{"Fn::GetAtt":["Function","Arn"]}}],"Tags":[{"Key":"k","Value":%[2]q}]}},
		"Permission":{"Type":"AWS::Lambda::Permission","Properties":{"Action":"lambda:InvokeFunction","FunctionName":{"Ref":"Function"},
			"Principal":"events.amazonaws.com","SourceArn":{"Fn::GetAtt":["Rule","Arn"]}}}},
		"Outputs":{"Function":{"Value":{"Fn::GetAtt":["Function","Arn"]}},"Log":{"Value":{"Fn::GetAtt":["Log","Arn"]}},"Rule":{"Value":{"Ref":"Rule"}}}}`,
		key, greeting, target, days)
}

// uploadCode puts a zip file with a program that says text.
func uploadCode(l *lab, key, text string) {
	l.t.Helper()
	body := bytes.NewReader(regiontest.NewDeploymentPackage(l.t, "#!/bin/sh\necho "+text+"\n"))
	api := s3.NewFromConfig(l.region.AWSConfig(), func(o *s3.Options) { o.UsePathStyle = true })
	must[*s3.PutObjectOutput](l)(api.PutObject(l.ctx(), &s3.PutObjectInput{Bucket: aws.String("code-1"), Key: &key, Body: body}))
}

// TestFunctionOfStack: a stack creates a function, its log group, and a rule with the permission to invoke it, changes all
// of them in place and deletes them.
func TestFunctionOfStack(t *testing.T) {
	t.Parallel()
	l := labOf(t, regiontest.Start(t))
	cfg := l.region.AWSConfig()
	functions := lambda.NewFromConfig(cfg)
	events := eventbridge.NewFromConfig(cfg)
	logs := cloudwatchlogs.NewFromConfig(cfg)
	buckets := s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true })
	must[*s3.CreateBucketOutput](l)(buckets.CreateBucket(l.ctx(), &s3.CreateBucketInput{Bucket: aws.String("code-1")}))
	uploadCode(l, "one.zip", "one")
	uploadCode(l, "two.zip", "two")

	// look returns what the stack's resources are.
	look := func() map[string]string {
		t.Helper()
		f := must[*lambda.GetFunctionOutput](l)(functions.GetFunction(l.ctx(), &lambda.GetFunctionInput{FunctionName: aws.String("greet")}))
		policy := must[*lambda.GetPolicyOutput](l)(functions.GetPolicy(l.ctx(), &lambda.GetPolicyInput{FunctionName: aws.String("greet")}))
		rule := must[*eventbridge.DescribeRuleOutput](l)(events.DescribeRule(l.ctx(), &eventbridge.DescribeRuleInput{Name: aws.String("greet")}))
		targets := must[*eventbridge.ListTargetsByRuleOutput](l)(events.ListTargetsByRule(l.ctx(), &eventbridge.ListTargetsByRuleInput{Rule: aws.String("greet")}))
		groups := must[*cloudwatchlogs.DescribeLogGroupsOutput](l)(logs.DescribeLogGroups(l.ctx(), &cloudwatchlogs.DescribeLogGroupsInput{}))
		var ids []string
		for _, target := range targets.Targets {
			ids = append(ids, *target.Id)
		}

		return map[string]string{
			"greeting": f.Configuration.Environment.Variables["GREETING"], "tag": f.Tags["k"], "stack": f.Tags["aws:cloudformation:stack-name"],
			"pattern": *rule.EventPattern, "targets": strings.Join(ids, ","), "days": strconv.Itoa(int(aws.ToInt32(groups.LogGroups[0].RetentionInDays))),
			"allowed": strconv.FormatBool(strings.Contains(*policy.Policy, *rule.Arn)),
		}
	}
	want := func(greeting, target, days string) map[string]string {
		return map[string]string{
			"greeting": greeting, "tag": greeting, "stack": "greet", "targets": target, "days": days, "allowed": "true",
			"pattern": `{"detail":{"AutoScalingGroupName":["` + greeting + `"]},"source":["aws.autoscaling"]}`,
		}
	}

	st := l.create("greet", functionTemplate("one.zip", "hello", "a", 7))
	l.want(st, "CREATE_COMPLETE")
	if diff := cmp.Diff(want("hello", "a", "7"), look()); diff != "" {
		t.Errorf("after the creation (-want +have):\n%s", diff)
	}

	for output, value := range map[string]string{
		"Function": "arn:aws:lambda:us-east-1:" + regiontest.AccountID + ":function:greet",
		"Log":      "arn:aws:logs:us-east-1:" + regiontest.AccountID + ":log-group:/aws/lambda/greet:*",
		"Rule":     "greet",
	} {
		if have := l.output(st, output); have != value {
			t.Errorf("output %s is %s, want %s", output, have, value)
		}
	}

	l.want(l.update("greet", functionTemplate("two.zip", "good day", "b", 14)), "UPDATE_COMPLETE")
	if diff := cmp.Diff(want("good day", "b", "14"), look()); diff != "" {
		t.Errorf("after the update (-want +have):\n%s", diff)
	}

	l.want(l.remove("greet"), "DELETE_COMPLETE")
	left := must[*lambda.ListFunctionsOutput](l)(functions.ListFunctions(l.ctx(), &lambda.ListFunctionsInput{}))
	rules := must[*eventbridge.ListRulesOutput](l)(events.ListRules(l.ctx(), &eventbridge.ListRulesInput{}))
	groups := must[*cloudwatchlogs.DescribeLogGroupsOutput](l)(logs.DescribeLogGroups(l.ctx(), &cloudwatchlogs.DescribeLogGroupsInput{}))
	if len(left.Functions)+len(rules.Rules)+len(groups.LogGroups) != 0 {
		t.Errorf("left are %v, %v and %v", left.Functions, rules.Rules, groups.LogGroups)
	}
}
