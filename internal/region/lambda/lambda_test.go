// SPDX-License-Identifier: Apache-2.0

package lambda_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	runtimeapi "github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// TestMain is the function that the tests run: the region starts this program with the address of its runtime API. The
// client of the runtime API is AWS's own.
func TestMain(m *testing.M) {
	if os.Getenv("AWS_LAMBDA_RUNTIME_API") == "" {
		os.Exit(m.Run())
	}

	runtimeapi.Start(handle)
}

// order says what the function does.
type order struct{ Do string }

func handle(ctx context.Context, event json.RawMessage) (map[string]string, error) {
	var o order
	_ = json.Unmarshal(event, &o) // other events have no order
	fmt.Fprintln(os.Stderr, "got", string(event))

	switch o.Do {
	case "fail":
		return nil, errors.New("asked to fail")
	case "exit":
		os.Exit(3)
	case "hang":
		time.Sleep(time.Minute)
	}

	about, _ := lambdacontext.FromContext(ctx)

	return map[string]string{
		"name":     os.Getenv("AWS_LAMBDA_FUNCTION_NAME"),
		"region":   os.Getenv("AWS_REGION"),
		"key":      os.Getenv("AWS_ACCESS_KEY_ID"),
		"greeting": os.Getenv("GREETING"),
		"pid":      strconv.Itoa(os.Getpid()),
		"arn":      about.InvokedFunctionArn,
		"request":  about.AwsRequestID,
	}, nil
}

const (
	roleTrust = `{"Version":"2012-10-17","Statement":{"Effect":"Allow","Principal":{"Service":"lambda.amazonaws.com"},"Action":"sts:AssumeRole"}}`
	logPolicy = `{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":["logs:CreateLogStream","logs:PutLogEvents"],
		"Resource":"arn:aws:logs:us-east-1:123456789012:log-group:/aws/lambda/greet:*"}}`
	roleARN  = "arn:aws:iam::123456789012:role/greet"
	groupARN = "arn:aws:logs:us-east-1:123456789012:log-group:/aws/lambda/greet"
)

// lab is a region with a role, a log group and the code of a function.
type lab struct {
	t      *testing.T
	region regiontest.Region
	lambda *lambda.Client
	logs   *cloudwatchlogs.Client
	cfg    aws.Config
}

func newLab(t *testing.T) *lab {
	t.Helper()
	r := regiontest.Start(t)
	cfg := r.AWSConfig()
	l := &lab{
		t:      t,
		region: r,
		lambda: lambda.NewFromConfig(cfg),
		logs:   cloudwatchlogs.NewFromConfig(cfg),
		cfg:    cfg,
	}

	ctx := t.Context()
	roles := iam.NewFromConfig(cfg)
	_, err := roles.CreateRole(ctx, &iam.CreateRoleInput{RoleName: aws.String("greet"), AssumeRolePolicyDocument: aws.String(roleTrust)})
	l.check(err)
	_, err = roles.PutRolePolicy(ctx, &iam.PutRolePolicyInput{RoleName: aws.String("greet"), PolicyName: aws.String("logs"), PolicyDocument: aws.String(logPolicy)})
	l.check(err)
	_, err = l.logs.CreateLogGroup(ctx, &cloudwatchlogs.CreateLogGroupInput{LogGroupName: aws.String("/aws/lambda/greet")})
	l.check(err)

	l.upload("code.zip", regiontest.NewDeploymentPackage(t, regiontest.ScriptOfTest(t)+"# 1\n"))

	return l
}

func (l *lab) check(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) upload(key string, body []byte) {
	l.t.Helper()
	buckets := s3.NewFromConfig(l.cfg, func(o *s3.Options) { o.UsePathStyle = true })
	if _, err := buckets.HeadBucket(l.t.Context(), &s3.HeadBucketInput{Bucket: aws.String("code-1")}); err != nil {
		_, err := buckets.CreateBucket(l.t.Context(), &s3.CreateBucketInput{Bucket: aws.String("code-1")})
		l.check(err)
	}

	_, err := buckets.PutObject(l.t.Context(), &s3.PutObjectInput{Bucket: aws.String("code-1"), Key: &key, Body: bytes.NewReader(body)})
	l.check(err)
}

// validInput returns a request for the function of the tests.
func validInput() *lambda.CreateFunctionInput {
	return &lambda.CreateFunctionInput{
		FunctionName: aws.String("greet"),
		Role:         aws.String(roleARN),
		Runtime:      types.RuntimeProvidedal2023,
		Handler:      aws.String("bootstrap"),
		Code:         &types.FunctionCode{S3Bucket: aws.String("code-1"), S3Key: aws.String("code.zip")},
		Environment:  &types.Environment{Variables: map[string]string{"GREETING": "hello"}},
		Tags:         map[string]string{"team": "a"},
	}
}

func (l *lab) create() {
	l.t.Helper()
	out, err := l.lambda.CreateFunction(l.t.Context(), validInput())
	l.check(err)
	if out.State != types.StatePending {
		l.t.Errorf("a new function is %s, want Pending", out.State)
	}

	l.wait()
}

// wait waits until the function is ready.
func (l *lab) wait() {
	l.t.Helper()
	for range 100 {
		out, err := l.lambda.GetFunctionConfiguration(l.t.Context(), &lambda.GetFunctionConfigurationInput{FunctionName: aws.String("greet")})
		l.check(err)
		if out.State == types.StateActive && out.LastUpdateStatus == types.LastUpdateStatusSuccessful {
			return
		}

		time.Sleep(20 * time.Millisecond)
	}

	l.t.Fatal("the function did not become active")
}

func (l *lab) invoke(payload string) (map[string]string, *lambda.InvokeOutput) {
	l.t.Helper()
	out, err := l.lambda.Invoke(l.t.Context(), &lambda.InvokeInput{FunctionName: aws.String("greet"), Payload: []byte(payload)})
	l.check(err)

	var answer map[string]string
	_ = json.Unmarshal(out.Payload, &answer) // an error has another form

	return answer, out
}

// messages returns the lines of the function's log.
func (l *lab) messages() string {
	l.t.Helper()
	out, err := l.logs.FilterLogEvents(l.t.Context(), &cloudwatchlogs.FilterLogEventsInput{LogGroupName: aws.String("/aws/lambda/greet")})
	l.check(err)

	var lines []string
	for _, e := range out.Events {
		lines = append(lines, aws.ToString(e.Message))
	}

	return strings.Join(lines, "\n")
}

// waitForMessage waits until the log has a text some times.
func (l *lab) waitForMessage(text string, times int) {
	l.t.Helper()
	for range 500 {
		if strings.Count(l.messages(), text) >= times {
			return
		}

		time.Sleep(20 * time.Millisecond)
	}

	l.t.Fatalf("the log has not %d times %q:\n%s", times, text, l.messages())
}

// TestFunctionRuns: a function gets events, the credentials of its role and its settings, and its process is used again.
func TestFunctionRuns(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.create()

	answer, out := l.invoke(`{"do":"greet"}`)
	if out.StatusCode != http.StatusOK || out.FunctionError != nil || aws.ToString(out.ExecutedVersion) != "$LATEST" {
		t.Errorf("answer %+v", out)
	}

	for k, want := range map[string]string{
		"name": "greet", "region": "us-east-1", "greeting": "hello",
		"arn": "arn:aws:lambda:us-east-1:123456789012:function:greet",
	} {
		if answer[k] != want {
			t.Errorf("%s is %q, want %q", k, answer[k], want)
		}
	}

	if answer["key"] == regiontest.AccessKey || answer["key"] == "" || answer["request"] == "" {
		t.Errorf("answer %v", answer)
	}

	again, _ := l.invoke(`{}`)
	if again["pid"] != answer["pid"] || again["request"] == answer["request"] {
		t.Errorf("the second event: %v after %v", again, answer)
	}

	for _, text := range []string{"START RequestId: " + answer["request"], `got {"do":"greet"}`, "END RequestId: " + answer["request"]} {
		if !strings.Contains(l.messages(), text) {
			t.Errorf("the log lacks %q:\n%s", text, l.messages())
		}
	}
}

// TestFunctionsFail: errors, exits and timeouts are those of the function, and the next event gets a new process.
func TestFunctionsFail(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.create()
	_, err := l.lambda.UpdateFunctionConfiguration(t.Context(), &lambda.UpdateFunctionConfigurationInput{FunctionName: aws.String("greet"), Timeout: aws.Int32(1)})
	l.check(err)
	l.wait()

	first, _ := l.invoke(`{}`)
	for payload, want := range map[string]string{
		`{"do":"fail"}`: "asked to fail",
		`{"do":"exit"}`: "Runtime exited with error: exit status 3",
		`{"do":"hang"}`: "Task timed out after 1.00 seconds",
	} {
		_, out := l.invoke(payload)
		if aws.ToString(out.FunctionError) != "Unhandled" || !strings.Contains(string(out.Payload), want) {
			t.Errorf("%s: %s %s, want %s", payload, aws.ToString(out.FunctionError), out.Payload, want)
		}
	}

	if last, out := l.invoke(`{}`); out.FunctionError != nil || last["pid"] == first["pid"] {
		t.Errorf("the last event: %v, %s", last, out.Payload)
	}
}

// TestFunctionsChange: new code and settings are used by the next event, and nothing changes while a change is made.
func TestFunctionsChange(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	ctx := t.Context()
	l.create()
	before, _ := l.invoke(`{}`)

	_, err := l.lambda.UpdateFunctionConfiguration(ctx, &lambda.UpdateFunctionConfigurationInput{
		FunctionName: aws.String("greet"), Environment: &types.Environment{Variables: map[string]string{"GREETING": "good day"}},
	})
	l.check(err)

	_, err = l.lambda.UpdateFunctionCode(ctx, &lambda.UpdateFunctionCodeInput{FunctionName: aws.String("greet"), S3Bucket: aws.String("code-1"), S3Key: aws.String("code.zip")})
	if code := errorCode(err); code != "ResourceConflictException" {
		t.Errorf("a change during a change: %v, want ResourceConflictException", err)
	}

	l.wait()
	if after, _ := l.invoke(`{}`); after["greeting"] != "good day" || after["pid"] == before["pid"] {
		t.Errorf("after the change of settings: %v", after)
	}

	l.upload("new.zip", regiontest.NewDeploymentPackage(t, regiontest.ScriptOfTest(t)+"# 2\n"))
	changed, err := l.lambda.UpdateFunctionCode(ctx, &lambda.UpdateFunctionCodeInput{FunctionName: aws.String("greet"), S3Bucket: aws.String("code-1"), S3Key: aws.String("new.zip")})
	l.check(err)
	l.wait()

	got, err := l.lambda.GetFunction(ctx, &lambda.GetFunctionInput{FunctionName: aws.String("arn:aws:lambda:us-east-1:123456789012:function:greet")})
	l.check(err)
	if aws.ToString(got.Configuration.CodeSha256) != aws.ToString(changed.CodeSha256) || got.Tags["team"] != "a" || got.Configuration.Environment.Variables["GREETING"] != "good day" {
		t.Errorf("function %+v, tags %v", got.Configuration, got.Tags)
	}

	_, err = l.lambda.DeleteFunction(ctx, &lambda.DeleteFunctionInput{FunctionName: aws.String("greet")})
	l.check(err)
	if _, err := l.lambda.GetFunction(ctx, &lambda.GetFunctionInput{FunctionName: aws.String("greet")}); errorCode(err) != "ResourceNotFoundException" {
		t.Errorf("after the deletion: %v", err)
	}
}

func errorCode(err error) string {
	if e, ok := errors.AsType[smithy.APIError](err); ok {
		return e.ErrorCode()
	}

	return fmt.Sprint(err)
}

// TestCreateFunctionIsStrict: the region refuses what Lambda refuses, and by name what it does not implement.
func TestCreateFunctionIsStrict(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.upload("text.zip", []byte("hello"))

	for name, test := range map[string]struct {
		change func(*lambda.CreateFunctionInput)
		code   string
		text   string
	}{
		"name":     {func(in *lambda.CreateFunctionInput) { in.FunctionName = aws.String("a b") }, "ValidationException", "functionName"},
		"role":     {func(in *lambda.CreateFunctionInput) { in.Role = aws.String(roleARN + "x") }, "InvalidParameterValueException", "cannot be assumed by Lambda"},
		"runtime":  {func(in *lambda.CreateFunctionInput) { in.Runtime = types.RuntimePython312 }, "NotImplemented", "python3.12"},
		"handler":  {func(in *lambda.CreateFunctionInput) { in.Handler = nil }, "InvalidParameterValueException", "Handler"},
		"memory":   {func(in *lambda.CreateFunctionInput) { in.MemorySize = aws.Int32(10_241) }, "InvalidParameterValueException", "MemorySize"},
		"timeout":  {func(in *lambda.CreateFunctionInput) { in.Timeout = aws.Int32(901) }, "InvalidParameterValueException", "Timeout"},
		"reserved": {func(in *lambda.CreateFunctionInput) { in.Environment.Variables["AWS_REGION"] = "x" }, "InvalidParameterValueException", "AWS_REGION"},
		"large":    {func(in *lambda.CreateFunctionInput) { in.Environment.Variables["X1"] = strings.Repeat("x", 4096) }, "InvalidParameterValueException", "4KB"},
		"object":   {func(in *lambda.CreateFunctionInput) { in.Code.S3Key = aws.String("none.zip") }, "InvalidParameterValueException", "NoSuchKey"},
		"no zip":   {func(in *lambda.CreateFunctionInput) { in.Code.S3Key = aws.String("text.zip") }, "InvalidParameterValueException", "unzip"},
		"inline":   {func(in *lambda.CreateFunctionInput) { in.Code = &types.FunctionCode{ZipFile: []byte("x")} }, "NotImplemented", "Code.ZipFile"},
		"VPC":      {func(in *lambda.CreateFunctionInput) { in.VpcConfig = &types.VpcConfig{SubnetIds: []string{"subnet-1"}} }, "NotImplemented", "VpcConfig"},
		"image":    {func(in *lambda.CreateFunctionInput) { in.PackageType = types.PackageTypeImage }, "NotImplemented", "Image"},
		"tag":      {func(in *lambda.CreateFunctionInput) { in.Tags["aws:x"] = "y" }, "InvalidParameterValueException", "aws:"},
		"JSON logs": {func(in *lambda.CreateFunctionInput) {
			in.LoggingConfig = &types.LoggingConfig{LogFormat: types.LogFormatJson}
		}, "NotImplemented", "LogFormat"},
	} {
		in := validInput()
		test.change(in)
		_, err := l.lambda.CreateFunction(t.Context(), in)
		if errorCode(err) != test.code || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: %v, want %s with %q", name, err, test.code, test.text)
		}
	}

	l.create()
	if _, err := l.lambda.CreateFunction(t.Context(), validInput()); errorCode(err) != "ResourceConflictException" {
		t.Errorf("a second function of the name: %v", err)
	}
}

// TestAsynchronousInvocations: a function that fails gets the event again after a minute and after two more. The policy of
// a function has the permissions of services.
func TestAsynchronousInvocations(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	ctx := t.Context()
	l.create()

	out, err := l.lambda.Invoke(ctx, &lambda.InvokeInput{
		FunctionName: aws.String("greet"), InvocationType: types.InvocationTypeEvent, Payload: []byte(`{"do":"fail"}`),
	})
	l.check(err)
	if out.StatusCode != http.StatusAccepted || len(out.Payload) != 0 {
		t.Errorf("an asynchronous invocation: %+v", out)
	}

	const failed = `"errorMessage":"asked to fail"`
	l.waitForMessage(failed, 1)
	l.region.AdvanceClock(61 * time.Second)
	l.waitForMessage(failed, 2)
	l.region.AdvanceClock(121 * time.Second)
	l.waitForMessage(failed, 3)

	policy := func(want string) {
		t.Helper()
		out, err := l.lambda.GetPolicy(ctx, &lambda.GetPolicyInput{FunctionName: aws.String("greet")})
		if err != nil && errorCode(err) != want || err == nil && !strings.Contains(aws.ToString(out.Policy), want) {
			t.Errorf("policy %v, %v; want %s", out, err, want)
		}
	}
	policy("ResourceNotFoundException")

	add := &lambda.AddPermissionInput{
		FunctionName: aws.String("greet"), StatementId: aws.String("events"), Action: aws.String("lambda:InvokeFunction"),
		Principal: aws.String("events.amazonaws.com"), SourceArn: aws.String("arn:aws:events:us-east-1:123456789012:rule/launches"),
	}
	_, err = l.lambda.AddPermission(ctx, add)
	l.check(err)
	policy(`"ArnLike":{"AWS:SourceArn":"arn:aws:events:us-east-1:123456789012:rule/launches"}`)
	if _, err := l.lambda.AddPermission(ctx, add); errorCode(err) != "ResourceConflictException" {
		t.Errorf("the same permission twice: %v", err)
	}

	_, err = l.lambda.RemovePermission(ctx, &lambda.RemovePermissionInput{FunctionName: aws.String("greet"), StatementId: aws.String("events")})
	l.check(err)
	policy("ResourceNotFoundException")
}
