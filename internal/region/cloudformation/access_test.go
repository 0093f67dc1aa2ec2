// SPDX-License-Identifier: Apache-2.0

package cloudformation_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	cfn "github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// user makes a user with a policy and returns a client that is that user.
func (l *lab) user(policy string) *cfn.Client {
	l.t.Helper()
	c := iam.NewFromConfig(l.region.AWSConfig())
	name := aws.String("somebody")
	must[*iam.CreateUserOutput](l)(c.CreateUser(l.ctx(), &iam.CreateUserInput{UserName: name}))
	must[*iam.PutUserPolicyOutput](l)(c.PutUserPolicy(l.ctx(), &iam.PutUserPolicyInput{UserName: name, PolicyName: aws.String("p"), PolicyDocument: &policy}))
	key := must[*iam.CreateAccessKeyOutput](l)(c.CreateAccessKey(l.ctx(), &iam.CreateAccessKeyInput{UserName: name})).AccessKey
	cfg := l.region.AWSConfig()
	cfg.Credentials = credentials.NewStaticCredentialsProvider(*key.AccessKeyId, *key.SecretAccessKey, "")
	return cfn.NewFromConfig(cfg)
}

// A stack can do what its caller can, or what the role can that the caller hands over.
func TestStackActsAsItsCaller(t *testing.T) {
	t.Parallel()
	const vpc = `{"Resources":{"Vpc":{"Type":"AWS::EC2::VPC","Properties":{"CidrBlock":"10.0.0.0/16"}}}}`
	l := newLab(t)
	c := l.user(`{"Version":"2012-10-17","Statement":[
		{"Effect":"Allow","Action":"cloudformation:*","Resource":"arn:aws:cloudformation:*:*:stack/mine*/*"},
		{"Effect":"Allow","Action":"iam:PassRole","Resource":"arn:aws:iam::*:role/builder"}]}`)
	_, err := c.CreateStack(l.ctx(), &cfn.CreateStackInput{StackName: aws.String("other"), TemplateBody: aws.String(vpc)})
	if !strings.HasPrefix(refused(err), "AccessDenied: ") || !strings.Contains(refused(err), ":stack/other/*") {
		t.Errorf("another's stack: %s", refused(err))
	}
	must[*cfn.CreateStackOutput](l)(c.CreateStack(l.ctx(), &cfn.CreateStackInput{StackName: aws.String("mine"), TemplateBody: aws.String(vpc)}))
	l.want(l.settle("mine"), "ROLLBACK_COMPLETE")
	reason := aws.ToString(l.resources("mine")["Vpc"].ResourceStatusReason) + strings.Join(l.events("mine"), "\n")
	if !strings.Contains(reason, "UnauthorizedOperation") || !strings.Contains(reason, "ec2:CreateVpc") {
		t.Errorf("the reason does not say what was denied: %s", reason)
	}
	role := must[*iam.CreateRoleOutput](l)(iam.NewFromConfig(l.region.AWSConfig()).CreateRole(l.ctx(), &iam.CreateRoleInput{
		RoleName: aws.String("builder"), AssumeRolePolicyDocument: aws.String(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"cloudformation.amazonaws.com"},"Action":"sts:AssumeRole"}]}`),
	})).Role
	must[*iam.PutRolePolicyOutput](l)(iam.NewFromConfig(l.region.AWSConfig()).PutRolePolicy(l.ctx(), &iam.PutRolePolicyInput{
		RoleName: aws.String("builder"), PolicyName: aws.String("p"), PolicyDocument: aws.String(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"ec2:*","Resource":"*"}]}`),
	}))
	must[*cfn.CreateStackOutput](l)(c.CreateStack(l.ctx(), &cfn.CreateStackInput{StackName: aws.String("mine2"), TemplateBody: aws.String(vpc), RoleARN: role.Arn}))
	l.want(l.settle("mine2"), "CREATE_COMPLETE")
	id := *l.describe("mine2").StackId
	must[*cfn.DeleteStackOutput](l)(c.DeleteStack(l.ctx(), &cfn.DeleteStackInput{StackName: aws.String("mine2")}))
	l.want(l.settle(id), "DELETE_COMPLETE")
}

func TestRequestsAreRefused(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	const role = `{"Resources":{"R":{"Type":"AWS::IAM::Role","Properties":{%s"AssumeRolePolicyDocument":{}}}}}`
	small := `{"Resources":{"V":{"Type":"AWS::EC2::VPC","Properties":{"CidrBlock":"10.0.0.0/16"}}}}`
	for what, c := range map[string]struct {
		in   cfn.CreateStackInput
		want string
	}{
		"a named role without a word": {cfn.CreateStackInput{TemplateBody: aws.String(strings.Replace(role, "%s", `"RoleName":"r",`, 1)), Capabilities: []types.Capability{types.CapabilityCapabilityIam}}, "InsufficientCapabilitiesException: Requires capabilities : [CAPABILITY_NAMED_IAM]"},
		"a role without a word":       {cfn.CreateStackInput{TemplateBody: aws.String(strings.Replace(role, "%s", "", 1))}, "InsufficientCapabilitiesException: Requires capabilities : [CAPABILITY_IAM]"},
		"too long a body":             {cfn.CreateStackInput{TemplateBody: aws.String(small + strings.Repeat(" ", 51200))}, "Member must have length less than or equal to 51200"},
		"no template":                 {cfn.CreateStackInput{}, "Either Template URL or Template Body must be specified."},
		"an unknown parameter":        {cfn.CreateStackInput{TemplateBody: &small, Parameters: params("a", "b")}, "Parameters: [a] do not exist in the template"},
		"a missing parameter":         {cfn.CreateStackInput{TemplateBody: aws.String(strings.Replace(small, `{"R`, `{"Parameters":{"P":{"Type":"String"}},"R`, 1))}, "Parameters: [P] must have values"},
		"a VPC that is not there":     {cfn.CreateStackInput{TemplateBody: aws.String(strings.Replace(small, `{"R`, `{"Parameters":{"P":{"Type":"AWS::EC2::VPC::Id"}},"R`, 1)), Parameters: params("P", "vpc-0123456789abcdef0")}, "parameter value vpc-0123456789abcdef0 for parameter name P does not exist"},
		"a bucket that is not there":  {cfn.CreateStackInput{TemplateURL: aws.String("https://nowhere.s3.amazonaws.com/t.json")}, "S3 error: "},
		"a URL of something else":     {cfn.CreateStackInput{TemplateURL: aws.String("https://example.com")}, "TemplateURL must be a supported URL."},
		"a reserved tag":              {cfn.CreateStackInput{TemplateBody: &small, Tags: []types.Tag{{Key: aws.String("aws:x"), Value: aws.String("y")}}}, "aws: prefixed tag key names are not allowed"},
		"a bad policy":                {cfn.CreateStackInput{TemplateBody: &small, StackPolicyBody: aws.String("{")}, "Error validating stack policy"},
	} {
		c.in.StackName = aws.String("s")
		_, err := l.cfn.CreateStack(l.ctx(), &c.in)
		if !strings.Contains(refused(err), c.want) {
			t.Errorf("%s: %q, want %q", what, refused(err), c.want)
		}
	}
	if _, err := l.cfn.CreateStack(l.ctx(), &cfn.CreateStackInput{StackName: aws.String("1x"), TemplateBody: &small}); !strings.Contains(refused(err), "regular expression pattern") {
		t.Errorf("a bad name: %s", refused(err))
	}
	if n := len(must[*cfn.ListStacksOutput](l)(l.cfn.ListStacks(l.ctx(), &cfn.ListStacksInput{})).StackSummaries); n != 0 {
		t.Errorf("%d stacks were made", n)
	}
}

// Templates and parameters from elsewhere: S3, and the parameter store.
func TestTemplateURLAndStoredParameters(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	c := s3.NewFromConfig(l.region.AWSConfig(), func(o *s3.Options) { o.UsePathStyle = true })
	must[*s3.CreateBucketOutput](l)(c.CreateBucket(l.ctx(), &s3.CreateBucketInput{Bucket: aws.String("templates")}))
	body := `
Parameters: {Image: {Type: "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>", Default: /aws/service/debian/release/12/latest/amd64}, Secret: {Type: String, NoEcho: true}}
Resources: {T: {Type: AWS::EC2::LaunchTemplate, Properties: {LaunchTemplateData: {ImageId: !Ref Image}}}}
Outputs: {Image: {Value: !Ref Image}}
` + strings.Repeat("# a long comment\n", 4000)
	must[*s3.PutObjectOutput](l)(c.PutObject(l.ctx(), &s3.PutObjectInput{Bucket: aws.String("templates"), Key: aws.String("d/t.yaml"), Body: strings.NewReader(body)}))
	for name, url := range map[string]string{"host": "https://templates.s3.us-east-1.amazonaws.com/d/t.yaml", "path": l.region.URL + "/templates/d/t.yaml"} {
		must[*cfn.CreateStackOutput](l)(l.cfn.CreateStack(l.ctx(), &cfn.CreateStackInput{StackName: &name, TemplateURL: &url, Parameters: params("Secret", "s3cret")}))
		st := l.settle(name)
		l.want(st, "CREATE_COMPLETE")
		if got := l.output(st, "Image"); got != "ami-0123456789abcdef0" {
			t.Errorf("image: %s", got)
		}
		shown := map[string]string{}
		for _, p := range st.Parameters {
			shown[*p.ParameterKey] = *p.ParameterValue + " " + aws.ToString(p.ResolvedValue)
		}
		if shown["Secret"] != "**** " || !strings.HasSuffix(shown["Image"], " ami-0123456789abcdef0") {
			t.Errorf("parameters: %v", shown)
		}
	}
	got := must[*cfn.GetTemplateSummaryOutput](l)(l.cfn.GetTemplateSummary(l.ctx(), &cfn.GetTemplateSummaryInput{StackName: aws.String("host")}))
	if len(got.Parameters) != 2 || len(got.ResourceTypes) != 1 {
		t.Errorf("summary: %v", got)
	}
}

// CloudFormation reads a template from S3 with the caller's rights, and at most 1 MiB of it.
func TestTemplateURLIsReadAsTheCaller(t *testing.T) {
	t.Parallel()
	const vpc = `{"Resources":{"Vpc":{"Type":"AWS::EC2::VPC","Properties":{"CidrBlock":"10.0.0.0/16"}}}}`
	l := newLab(t)
	c := s3.NewFromConfig(l.region.AWSConfig(), func(o *s3.Options) { o.UsePathStyle = true })
	must[*s3.CreateBucketOutput](l)(c.CreateBucket(l.ctx(), &s3.CreateBucketInput{Bucket: aws.String("templates")}))
	put := func(key, body string) *string {
		t.Helper()
		must[*s3.PutObjectOutput](l)(c.PutObject(l.ctx(), &s3.PutObjectInput{Bucket: aws.String("templates"), Key: &key, Body: strings.NewReader(body)}))
		return aws.String("https://templates.s3.us-east-1.amazonaws.com/" + key)
	}
	mine := l.user(`{"Version":"2012-10-17","Statement":[
		{"Effect":"Allow","Action":"cloudformation:*","Resource":"*"},
		{"Effect":"Allow","Action":"s3:GetObject","Resource":"arn:aws:s3:::templates/mine/*"}]}`)
	must[*cfn.ValidateTemplateOutput](l)(mine.ValidateTemplate(l.ctx(), &cfn.ValidateTemplateInput{TemplateURL: put("mine/t.json", vpc)}))
	must[*cfn.ValidateTemplateOutput](l)(mine.ValidateTemplate(l.ctx(), &cfn.ValidateTemplateInput{TemplateURL: put("mine/full.json", vpc+strings.Repeat(" ", 1<<20-len(vpc)))}))
	for url, want := range map[*string]string{
		put("other/t.json", vpc): "S3 error: Access Denied",
		put("mine/large.json", vpc+strings.Repeat(" ", 1<<20-len(vpc)+1)): "may not exceed 1048576 bytes",
	} {
		_, err := mine.CreateChangeSet(l.ctx(), &cfn.CreateChangeSetInput{
			StackName: aws.String("s"), ChangeSetName: aws.String("c"), ChangeSetType: types.ChangeSetTypeCreate, TemplateURL: url,
		})
		if !strings.Contains(refused(err), want) {
			t.Errorf("%s: %s, want %q", *url, refused(err), want)
		}
	}
}

// TestTemplateOfChangeSets: GetTemplate with a change set returns what CloudFormation has read, whatever the object in S3 is
// now, and a question mark for each character that is not ASCII.
func TestTemplateOfChangeSets(t *testing.T) {
	t.Parallel()
	const (
		body    = `{"Description":"caf\u00e9 ☺","Resources":{"Vpc":{"Type":"AWS::EC2::VPC","Properties":{"CidrBlock":"10.0.0.0/16"}}}}`
		another = `{"Resources":{"Vpc":{"Type":"AWS::EC2::VPC","Properties":{"CidrBlock":"10.9.0.0/16"}}}}`
	)

	l := newLab(t)
	c := s3.NewFromConfig(l.region.AWSConfig(), func(o *s3.Options) { o.UsePathStyle = true })
	must[*s3.CreateBucketOutput](l)(c.CreateBucket(l.ctx(), &s3.CreateBucketInput{Bucket: aws.String("templates")}))
	put := func(body string) {
		must[*s3.PutObjectOutput](l)(c.PutObject(l.ctx(), &s3.PutObjectInput{Bucket: aws.String("templates"), Key: aws.String("t.json"), Body: strings.NewReader(body)}))
	}

	put(body)
	made := must[*cfn.CreateChangeSetOutput](l)(l.cfn.CreateChangeSet(l.ctx(), &cfn.CreateChangeSetInput{
		StackName: aws.String("s"), ChangeSetName: aws.String("c"), ChangeSetType: types.ChangeSetTypeCreate,
		TemplateURL: aws.String(l.region.URL + "/templates/t.json"),
	}))
	put(another)
	got := must[*cfn.GetTemplateOutput](l)(l.cfn.GetTemplate(l.ctx(), &cfn.GetTemplateInput{
		StackName: made.StackId, ChangeSetName: made.Id, TemplateStage: types.TemplateStageOriginal,
	}))
	if want := strings.ReplaceAll(body, "☺", "?"); aws.ToString(got.TemplateBody) != want {
		t.Errorf("got %s, want %s", aws.ToString(got.TemplateBody), want)
	}
}

// The AWS CLI deploys, shows and deletes a stack.
func TestCLI(t *testing.T) {
	t.Parallel()
	path, err := exec.LookPath("aws")
	if err != nil {
		t.Skip("SKIPPED: the AWS CLI is not on this machine: it does not judge CloudFormation here")
	}
	l := newLab(t)
	file := filepath.Join(t.TempDir(), "t.yaml")
	if err := os.WriteFile(file, []byte(network), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), path, args...)
		cmd.Env = append(cmd.Environ(), "AWS_CONFIG_FILE=/nonexistent", "AWS_DEFAULT_REGION=us-east-1")
		for k, v := range l.region.Env() {
			cmd.Env = append(cmd.Env, k+"="+v)
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("aws %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return strings.TrimSpace(string(out))
	}
	cf := func(args ...string) string { t.Helper(); return run(append([]string{"cloudformation"}, args...)...) }
	cf("validate-template", "--template-body", "file://"+file)
	cf("deploy", "--stack-name", "net", "--template-file", file, "--tags", "team=a")
	var stacks struct {
		Stacks []struct {
			StackStatus string
			Outputs     []struct{ OutputKey, OutputValue string }
		}
	}
	if err := json.Unmarshal([]byte(cf("describe-stacks", "--stack-name", "net", "--output", "json")), &stacks); err != nil {
		t.Fatal(err)
	}
	if st := stacks.Stacks[0]; st.StackStatus != "CREATE_COMPLETE" || len(st.Outputs) != 2 {
		t.Errorf("stack: %+v", st)
	}
	out := cf("deploy", "--stack-name", "net", "--template-file", file, "--parameter-overrides", "Group=second", "--tags", "team=b")
	if !strings.Contains(out, "Successfully created/updated stack") {
		t.Errorf("deploy: %s", out)
	}
	if got := cf("describe-stack-events", "--stack-name", "net", "--query", "StackEvents[0].ResourceStatus", "--output", "text"); !strings.HasPrefix(got, "UPDATE_COMPLETE") {
		t.Errorf("last event: %s", got)
	}
	id := *l.describe("net").StackId
	cf("delete-stack", "--stack-name", "net")
	l.want(l.settle(id), "DELETE_COMPLETE")
}

// TestCapabilitiesAreToldIfNeeded: CloudFormation tells the capabilities of a stack only if its template needs one.
func TestCapabilitiesAreToldIfNeeded(t *testing.T) {
	l := newLab(t)
	for name, c := range map[string]struct {
		template string
		want     int
	}{
		"plain": {`{"Resources":{"W":{"Type":"AWS::CloudFormation::WaitConditionHandle"}}}`, 0},
		"role":  {`{"Resources":{"P":{"Type":"AWS::IAM::InstanceProfile","Properties":{"Roles":[{"Ref":"R"}]}},"R":{"Type":"AWS::IAM::Role","Properties":{"AssumeRolePolicyDocument":{"Version":"2012-10-17","Statement":{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}}}}}}`, len(allCapabilities())},
	} {
		l.want(l.create(name, c.template), "CREATE_COMPLETE")
		out, err := l.cfn.DescribeStacks(t.Context(), &cfn.DescribeStacksInput{StackName: &name})
		if err != nil || len(out.Stacks[0].Capabilities) != c.want {
			t.Errorf("%s: %+v, %v", name, out, err)
		}
	}
}
