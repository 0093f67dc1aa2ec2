// SPDX-License-Identifier: Apache-2.0

package iampolicy_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	eventtypes "github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	lambdatypes "github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	snstypes "github.com/aws/aws-sdk-go-v2/service/sns/types"

	"github.com/slipway-k8s/slipway/internal/infra/iampolicy"
	"github.com/slipway-k8s/slipway/test/dnsfunction"
)

const (
	dnsFunctionARN = "arn:aws:lambda:us-east-1:123456789012:function:slipway-dns-demo"
	dnsTopicARN    = "arn:aws:sns:us-east-1:123456789012:slipway-dns-demo"
)

// isOfFunction reports whether a statement is for the function that keeps DNS records.
func isOfFunction(st iampolicy.Statement) bool {
	return slices.Contains([]string{
		"ReadFunction", "ReadRule", "ReadLogGroup", "ChangeFunction", "TriggerFunction", "PassFunctionRole", "ChangeRule", "ChangeTargets",
		"ChangeLogGroup", "ReadZones", "CreateZone", "ReadTopic", "ReadNotifications", "ChangeTopic", "SubscribeFunction",
	}, st.Sid)
}

// TestFunctionPolicyIsEnough is TestPolicyIsEnough for the function that keeps the DNS records of etcd's members. The function
// itself runs with no more than its role and the boundary of the store allow.
func TestFunctionPolicyIsEnough(t *testing.T) {
	b := newBench(t)
	function, err := dnsfunction.Build(b.dir)
	b.check(0, err)
	b.function = function
	b.must(who{}, 0, "state", "init", "--yes")
	b.create(who{}, "demo")
	b.edit(who{}, "demo", "discovery: Tags", "discovery: DNS\n    discoveryEvents: [EventBridge, SNS]")
	docs := b.policies("demo", "--allow-existing")
	op := b.user("operator", docs)
	b.must(op, 0, "apply", "demo", "--yes")
	b.must(op, 0, "plan", "demo")

	b.driftFunction(t.Context())
	b.must(op, 2, "plan", "demo")
	b.must(op, 0, "apply", "demo", "--yes")
	b.must(op, 0, "plan", "demo")
	b.deniedToOperator(t.Context(), op)
	b.attach("operator", "deletion", b.policies("demo", "--deletion")[0])
	b.must(op, 0, "delete", "cluster", "demo", "--yes", "--destroy-data")

	var ofFunction []iampolicy.Policy
	for _, d := range docs {
		d.Statement = slices.DeleteFunc(slices.Clone(d.Statement), func(st iampolicy.Statement) bool { return !isOfFunction(st) })
		ofFunction = append(ofFunction, d)
	}
	b.necessary(ofFunction, b.trace("operator"))
}

// driftFunction changes everything of the function that an apply repairs.
func (b *bench) driftFunction(ctx context.Context) {
	b.Helper()
	functions := lambda.NewFromConfig(b.region.AWSConfig())
	events := eventbridge.NewFromConfig(b.region.AWSConfig())
	logs := cloudwatchlogs.NewFromConfig(b.region.AWSConfig())
	topics := sns.NewFromConfig(b.region.AWSConfig())
	name := sdk.String("slipway-dns-demo")
	for _, change := range []func() error{
		func() error {
			_, err := functions.AddPermission(ctx, &lambda.AddPermissionInput{
				FunctionName: name, StatementId: sdk.String("mine"), Action: sdk.String("lambda:InvokeFunction"), Principal: sdk.String("s3.amazonaws.com"),
			})
			return err
		},
		func() error {
			_, err := topics.SetTopicAttributes(ctx, &sns.SetTopicAttributesInput{
				TopicArn: sdk.String(dnsTopicARN), AttributeName: sdk.String("Policy"), AttributeValue: sdk.String(""),
			})
			return err
		},
		func() error {
			_, err := topics.TagResource(ctx, &sns.TagResourceInput{ResourceArn: sdk.String(dnsTopicARN), Tags: []snstypes.Tag{
				{Key: sdk.String("slipway.dev/role"), Value: sdk.String("x")}, {Key: sdk.String("Name"), Value: sdk.String("x")},
			}})
			return err
		},
		func() error {
			_, err := functions.TagResource(ctx, &lambda.TagResourceInput{Resource: sdk.String(dnsFunctionARN), Tags: map[string]string{"slipway.dev/role": "x"}})
			return err
		},
		func() error {
			_, err := functions.UpdateFunctionConfiguration(ctx, &lambda.UpdateFunctionConfigurationInput{FunctionName: name, Timeout: sdk.Int32(3)})
			return err
		},
		func() error { return b.changeArchitecture(ctx, functions) },
		func() error {
			_, err := events.TagResource(ctx, &eventbridge.TagResourceInput{
				ResourceARN: sdk.String("arn:aws:events:us-east-1:123456789012:rule/slipway-dns-demo"),
				Tags:        []eventtypes.Tag{{Key: sdk.String("slipway.dev/role"), Value: sdk.String("x")}, {Key: sdk.String("Name"), Value: sdk.String("x")}},
			})
			return err
		},
		func() error {
			_, err := logs.TagResource(ctx, &cloudwatchlogs.TagResourceInput{
				ResourceArn: sdk.String("arn:aws:logs:us-east-1:123456789012:log-group:/aws/lambda/slipway-dns-demo"), Tags: map[string]string{"slipway.dev/role": "x", "Name": "x"},
			})
			return err
		},
		func() error {
			_, err := logs.DeleteRetentionPolicy(ctx, &cloudwatchlogs.DeleteRetentionPolicyInput{LogGroupName: sdk.String("/aws/lambda/slipway-dns-demo")})
			return err
		},
	} {
		b.check(0, eventually(change))
	}
}

// eventually repeats a change until the function has made the one before.
func eventually(change func() error) error {
	var err error
	for range 50 {
		if err = change(); err == nil || !strings.Contains(err.Error(), "ResourceConflict") {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}

// configOf returns the configuration of clients with the credentials of w.
func (b *bench) configOf(w who) sdk.Config {
	cfg := b.region.AWSConfig()
	cfg.Credentials = credentials.NewStaticCredentialsProvider(w.key, w.secret, "")
	return cfg
}

// functionObject returns the bucket and the key of the code of the function.
func (b *bench) functionObject(ctx context.Context) (bucket, key string) {
	b.Helper()
	objects := s3.NewFromConfig(b.region.AWSConfig(), func(o *s3.Options) { o.UsePathStyle = true })
	out, err := objects.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: sdk.String("slipway-test"), Prefix: sdk.String("team/demo/machine/function/")})
	b.check(out, err)
	if len(out.Contents) != 1 {
		b.Fatalf("%d objects with the code of the function", len(out.Contents))
	}
	return "slipway-test", *out.Contents[0].Key
}

// changeArchitecture changes the architecture of the function, whose code stays.
func (b *bench) changeArchitecture(ctx context.Context, functions *lambda.Client) error {
	have, err := functions.GetFunction(ctx, &lambda.GetFunctionInput{FunctionName: sdk.String("slipway-dns-demo")})
	if err != nil {
		return err
	}
	other := lambdatypes.ArchitectureArm64
	if have.Configuration.Architectures[0] == other {
		other = lambdatypes.ArchitectureX8664
	}
	bucket, key := b.functionObject(ctx)
	_, err = functions.UpdateFunctionCode(ctx, &lambda.UpdateFunctionCodeInput{
		FunctionName: sdk.String("slipway-dns-demo"), S3Bucket: &bucket, S3Key: &key, Architectures: []lambdatypes.Architecture{other},
	})
	return err
}

// deniedToOperator checks that the policies are no way around the limits of the function's role.
func (b *bench) deniedToOperator(ctx context.Context, op who) {
	b.Helper()
	cfg := b.configOf(op)
	functions := lambda.NewFromConfig(cfg)
	roles, err := iam.NewFromConfig(b.region.AWSConfig()).ListRoles(ctx, &iam.ListRolesInput{PathPrefix: sdk.String("/slipway/us-east-1/demo/")})
	b.check(roles, err)
	bucket, key := b.functionObject(ctx)
	for _, role := range roles.Roles {
		_, err := functions.UpdateFunctionConfiguration(ctx, &lambda.UpdateFunctionConfigurationInput{FunctionName: sdk.String("slipway-dns-demo"), Role: role.Arn})
		if denied := err != nil && strings.Contains(err.Error(), "AccessDenied"); denied == strings.Contains(*role.RoleName, ".dns.") {
			b.Errorf("pass %s to Lambda: %v", *role.RoleName, err)
		}
		_, err = functions.CreateFunction(ctx, &lambda.CreateFunctionInput{
			FunctionName: sdk.String("mine"), Role: role.Arn, Runtime: lambdatypes.RuntimeProvidedal2023, Handler: sdk.String("bootstrap"),
			Code: &lambdatypes.FunctionCode{S3Bucket: &bucket, S3Key: &key},
		})
		if err == nil || !strings.Contains(err.Error(), "AccessDenied") {
			b.Errorf("create another function with role %s: %v", *role.RoleName, err)
		}
	}
	_, err = functions.AddPermission(ctx, &lambda.AddPermissionInput{
		FunctionName: sdk.String("slipway-dns-demo"), StatementId: sdk.String("mine"), Action: sdk.String("lambda:InvokeFunction"), Principal: sdk.String("s3.amazonaws.com"),
	})
	if err == nil || !strings.Contains(err.Error(), "AccessDenied") {
		b.Errorf("let another service invoke the function: %v", err)
	}
	_, err = eventbridge.NewFromConfig(cfg).PutTargets(ctx, &eventbridge.PutTargetsInput{
		Rule: sdk.String("slipway-dns-demo"), Targets: []eventtypes.Target{{Id: sdk.String("x"), Arn: sdk.String("arn:aws:lambda:us-east-1:123456789012:function:mine")}},
	})
	if err == nil || !strings.Contains(err.Error(), "AccessDenied") {
		b.Errorf("trigger another function: %v", err)
	}
	_, err = sns.NewFromConfig(cfg).Subscribe(ctx, &sns.SubscribeInput{
		TopicArn: sdk.String(dnsTopicARN), Protocol: sdk.String("lambda"), Endpoint: sdk.String("arn:aws:lambda:us-east-1:123456789012:function:mine"),
	})
	if err == nil || !strings.Contains(err.Error(), "AuthorizationError") {
		b.Errorf("subscribe another function: %v", err)
	}
	_, err = sns.NewFromConfig(cfg).CreateTopic(ctx, &sns.CreateTopicInput{Name: sdk.String("mine")})
	if err == nil || !strings.Contains(err.Error(), "AuthorizationError") {
		b.Errorf("create another topic: %v", err)
	}
}
