// SPDX-License-Identifier: Apache-2.0

package lambda_test

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	eventtypes "github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
)

// TestAccess: a caller needs the right to a function by its tag and to pass the role, and a request that is not signed well
// is refused.
func TestAccess(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	ctx := t.Context()
	users := iam.NewFromConfig(l.cfg)
	_, err := users.CreateUser(ctx, &iam.CreateUserInput{UserName: aws.String("u")})
	l.check(err)
	key, err := users.CreateAccessKey(ctx, &iam.CreateAccessKeyInput{UserName: aws.String("u")})
	l.check(err)

	client := func(secret string) *lambda.Client {
		cfg := l.cfg.Copy()
		cfg.Credentials = credentials.NewStaticCredentialsProvider(*key.AccessKey.AccessKeyId, secret, "")
		return lambda.NewFromConfig(cfg)
	}
	user := client(*key.AccessKey.SecretAccessKey)
	allow := func(statements string) {
		t.Helper()
		_, err := users.PutUserPolicy(ctx, &iam.PutUserPolicyInput{
			UserName: aws.String("u"), PolicyName: aws.String("p"), PolicyDocument: aws.String(`{"Version":"2012-10-17","Statement":[` + statements + `]}`),
		})
		l.check(err)
	}

	if _, err := client("wrong").ListFunctions(ctx, &lambda.ListFunctionsInput{}); errorCode(err) != "InvalidSignatureException" {
		t.Errorf("a wrong signature: %v", err)
	}

	const (
		objects = `{"Effect":"Allow","Action":"s3:GetObject","Resource":"*"}`
		create  = `{"Effect":"Allow","Action":"lambda:CreateFunction","Resource":"*","Condition":{"StringEquals":{"aws:RequestTag/team":"a"}}}`
		pass    = `{"Effect":"Allow","Action":"iam:PassRole","Resource":"` + roleARN + `","Condition":{"StringEquals":{"iam:PassedToService":"lambda.amazonaws.com"}}}`
		others  = `{"Effect":"Allow","Action":"lambda:*","Resource":"*","Condition":{"StringEquals":{"aws:ResourceTag/team":"b"}}}`
	)
	for _, step := range []struct{ statements, code, text string }{
		{objects + "," + pass, "AccessDeniedException", "lambda:CreateFunction"},
		{objects + "," + create, "AccessDeniedException", "iam:PassRole"},
		{create + "," + pass, "InvalidParameterValueException", "S3 Error Code: AccessDenied"},
		{objects + "," + create + "," + pass, "", ""},
	} {
		allow(step.statements)
		_, err := user.CreateFunction(ctx, validInput())
		if step.code == "" && err != nil || step.code != "" && (errorCode(err) != step.code || !strings.Contains(err.Error(), step.text)) {
			t.Errorf("%s: %v, want %s with %s", step.statements, err, step.code, step.text)
		}
	}

	allow(others)
	if _, err := user.DeleteFunction(ctx, &lambda.DeleteFunctionInput{FunctionName: aws.String("greet")}); errorCode(err) != "AccessDeniedException" {
		t.Errorf("a function with another tag: %v", err)
	}
}

// TestRules: rules and targets are described as they were put, and the region refuses what it does not implement.
func TestRules(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	ctx := t.Context()
	events := eventbridge.NewFromConfig(l.cfg)
	const function = "arn:aws:lambda:us-east-1:123456789012:function:greet"

	put := func(pattern string) error {
		_, err := events.PutRule(ctx, &eventbridge.PutRuleInput{Name: aws.String("launches"), EventPattern: &pattern, Tags: []eventtypes.Tag{{Key: aws.String("team"), Value: aws.String("a")}}})
		return err
	}
	l.check(put(`{"detail":{"AutoScalingGroupName":["a"]}}`))
	for pattern, code := range map[string]string{
		`{"source":["aws.autoscaling"]}`:   "",
		`{"source":[{"prefix":"aws."}]}`:   "",
		`{"source":[{"exists":true}]}`:     "NotImplemented",
		`{"$or":[{"source":["aws.ec2"]}]}`: "NotImplemented",
		`{"source":"aws.autoscaling"}`:     "InvalidEventPatternException",
		`{"source":[]}`:                    "InvalidEventPatternException",
		`[]`:                               "InvalidEventPatternException",
		`{}`:                               "InvalidEventPatternException",
	} {
		if err := put(pattern); err == nil && code != "" || err != nil && errorCode(err) != code {
			t.Errorf("pattern %s: %v, want %q", pattern, err, code)
		}
	}

	if _, err := events.PutRule(ctx, &eventbridge.PutRuleInput{Name: aws.String("hourly"), ScheduleExpression: aws.String("cron(0 * * * ? *)")}); errorCode(err) != "NotImplemented" {
		t.Errorf("a schedule: %v", err)
	}

	target := func(arn string) error {
		_, err := events.PutTargets(ctx, &eventbridge.PutTargetsInput{Rule: aws.String("launches"), Targets: []eventtypes.Target{{Id: aws.String("function"), Arn: &arn}}})
		return err
	}
	l.check(target(function))
	if err := target("arn:aws:sns:us-east-1:123456789012:topic"); errorCode(err) != "NotImplemented" {
		t.Errorf("a topic as target: %v", err)
	}

	rule, err := events.DescribeRule(ctx, &eventbridge.DescribeRuleInput{Name: aws.String("launches")})
	l.check(err)
	list, err := events.ListTargetsByRule(ctx, &eventbridge.ListTargetsByRuleInput{Rule: aws.String("launches")})
	l.check(err)
	tags, err := events.ListTagsForResource(ctx, &eventbridge.ListTagsForResourceInput{ResourceARN: rule.Arn})
	l.check(err)
	if rule.State != eventtypes.RuleStateEnabled || len(list.Targets) != 1 || len(tags.Tags) != 1 {
		t.Errorf("rule %+v, targets %v, tags %v", rule, list.Targets, tags.Tags)
	}

	if _, err := events.DeleteRule(ctx, &eventbridge.DeleteRuleInput{Name: aws.String("launches")}); errorCode(err) != "ValidationException" {
		t.Errorf("the deletion of a rule with targets: %v", err)
	}

	_, err = events.RemoveTargets(ctx, &eventbridge.RemoveTargetsInput{Rule: aws.String("launches"), Ids: []string{"function"}})
	l.check(err)
	for range 2 { // the second one finds nothing
		_, err = events.DeleteRule(ctx, &eventbridge.DeleteRuleInput{Name: aws.String("launches")})
		l.check(err)
	}
}

// TestLogGroups: groups have a retention of a permitted number of days, and tags.
func TestLogGroups(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	ctx := t.Context()
	name := aws.String("/aws/lambda/greet")

	if _, err := l.logs.CreateLogGroup(ctx, &cloudwatchlogs.CreateLogGroupInput{LogGroupName: name}); errorCode(err) != "ResourceAlreadyExistsException" {
		t.Errorf("a second group: %v", err)
	}

	for days, code := range map[int32]string{14: "", 15: "InvalidParameterException"} {
		_, err := l.logs.PutRetentionPolicy(ctx, &cloudwatchlogs.PutRetentionPolicyInput{LogGroupName: name, RetentionInDays: &days})
		if err == nil && code != "" || err != nil && errorCode(err) != code {
			t.Errorf("a retention of %d days: %v, want %q", days, err, code)
		}
	}

	_, err := l.logs.TagResource(ctx, &cloudwatchlogs.TagResourceInput{ResourceArn: aws.String(groupARN), Tags: map[string]string{"team": "a"}})
	l.check(err)
	tags, err := l.logs.ListTagsForResource(ctx, &cloudwatchlogs.ListTagsForResourceInput{ResourceArn: aws.String(groupARN)})
	l.check(err)
	groups, err := l.logs.DescribeLogGroups(ctx, &cloudwatchlogs.DescribeLogGroupsInput{LogGroupNamePrefix: aws.String("/aws/lambda/")})
	l.check(err)
	if len(groups.LogGroups) != 1 || aws.ToInt32(groups.LogGroups[0].RetentionInDays) != 14 || aws.ToString(groups.LogGroups[0].Arn) != groupARN+":*" || tags.Tags["team"] != "a" {
		t.Errorf("groups %+v, tags %v", groups.LogGroups, tags.Tags)
	}

	_, err = l.logs.DeleteLogGroup(ctx, &cloudwatchlogs.DeleteLogGroupInput{LogGroupName: name})
	l.check(err)
	if _, err := l.logs.DeleteLogGroup(ctx, &cloudwatchlogs.DeleteLogGroupInput{LogGroupName: name}); errorCode(err) != "ResourceNotFoundException" {
		t.Errorf("a second deletion: %v", err)
	}
}
