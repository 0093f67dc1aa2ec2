// SPDX-License-Identifier: Apache-2.0

package s3_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awskms "github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	v1iam "github.com/aws/aws-sdk-go/service/iam"

	"github.com/slipway-k8s/slipway/internal/lib/awsfix/awstest"
	"github.com/slipway-k8s/slipway/internal/region/iam"
	"github.com/slipway-k8s/slipway/internal/region/kms"
	regions3 "github.com/slipway-k8s/slipway/internal/region/s3"
	"github.com/slipway-k8s/slipway/internal/region/server"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// region is a server with S3, IAM and KMS, and with one role.
type region struct {
	url        string
	root, role *s3.Client
	kms        *awskms.Client
	iam        *iam.IAM
}

func newRegion(t *testing.T, secure func(*http.Request) bool) region {
	t.Helper()
	id, err := iam.New(iam.Config{Account: "000000000000", AccessKeyID: "AKIAROOT", SecretKey: "s", State: state.Dir(t.TempDir()), Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := kms.New(kms.Config{Region: "us-east-1", Account: "000000000000", State: state.Dir(t.TempDir()), Now: time.Now, Identities: id})
	if err != nil {
		t.Fatal(err)
	}
	store, err := regions3.New(regions3.Config{Dir: t.TempDir(), Region: "us-east-1", Now: time.Now, Identities: id, KMS: keys})
	if err != nil {
		t.Fatal(err)
	}
	front, err := server.New(server.Config{
		Region: "us-east-1", Services: []wire.Service{id.Service(), keys.Wire(), store.Wire()}, Keys: id, Authorizer: id, Now: time.Now, IsSecure: secure,
	})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(front)
	t.Cleanup(srv.Close)
	r := region{url: srv.URL, iam: id}
	r.do(t, "CreateRole", &v1iam.CreateRoleInput{RoleName: new("r"), AssumeRolePolicyDocument: new(
		`{"Statement":{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}}`)})
	c, err := id.IssueRoleCredentials("r", "i-1")
	if err != nil {
		t.Fatal(err)
	}
	root := credentials.NewStaticCredentialsProvider("AKIAROOT", "s", "")
	client := func(c aws.CredentialsProvider) *s3.Client {
		return s3.NewFromConfig(awstest.NewConfig(srv.URL, "us-east-1", c), func(o *s3.Options) { o.UsePathStyle = true })
	}
	r.root, r.role = client(root), client(credentials.NewStaticCredentialsProvider(c.AccessKeyID, c.SecretAccessKey, c.Token))
	r.kms = awskms.NewFromConfig(awstest.NewConfig(srv.URL, "us-east-1", root))
	bucket(t, r.root)
	return r
}

func (r region) do(t *testing.T, op string, in any) {
	t.Helper()
	for _, o := range r.iam.Service().Operations {
		if o.Name == op {
			if _, err := o.Handle(t.Context(), in); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func (r region) allow(t *testing.T, statements string) {
	t.Helper()
	r.do(t, "PutRolePolicy", &v1iam.PutRolePolicyInput{RoleName: new("r"), PolicyName: new("p"), PolicyDocument: new(`{"Version":"2012-10-17","Statement":[` + statements + `]}`)})
}

func (r region) setPolicy(t *testing.T, statement string) error {
	t.Helper()
	_, err := r.root.PutBucketPolicy(t.Context(), &s3.PutBucketPolicyInput{Bucket: aws.String("b-1"), Policy: aws.String(`{"Version":"2012-10-17","Statement":[` + statement + `]}`)})
	return err
}

// unblock removes the public access block that every new bucket has.
func (r region) unblock(t *testing.T) {
	t.Helper()
	if _, err := r.root.DeletePublicAccessBlock(t.Context(), &s3.DeletePublicAccessBlockInput{Bucket: aws.String("b-1")}); err != nil {
		t.Fatal(err)
	}
}

func TestRoleSeesOnlyWhatItMay(t *testing.T) {
	t.Parallel()
	r := newRegion(t, nil)
	for _, k := range []string{"worker/a", "secret/b"} {
		if _, err := put(t, r.root, k, k); err != nil {
			t.Fatal(err)
		}
	}
	if got := get(t, r.role, "worker/a"); got != "AccessDenied" {
		t.Errorf("without rights: %q", got)
	}
	r.allow(t, `{"Effect":"Allow","Action":"s3:GetObject","Resource":"arn:aws:s3:::b-1/worker/*"}`)
	for key, want := range map[string]string{"worker/a": "worker/a", "secret/b": "AccessDenied", "worker/none": "AccessDenied"} {
		if got := get(t, r.role, key); got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
	if _, err := put(t, r.role, "worker/x", ""); code(err) != "AccessDenied" {
		t.Errorf("writing: %v", err)
	}
	r.allow(t, `{"Effect":"Allow","Action":["s3:GetObject","s3:ListBucket"],"Resource":["arn:aws:s3:::b-1/worker/*","arn:aws:s3:::b-1"],"Condition":{"StringLikeIfExists":{"s3:prefix":"worker/*"}}}`)
	if got := get(t, r.role, "worker/none"); got != "NoSuchKey" {
		t.Errorf("a missing key, to one who may list: %q", got)
	}
	for prefix, want := range map[string]string{"worker/": "", "secret/": "AccessDenied"} {
		_, err := r.role.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: aws.String("b-1"), Prefix: &prefix})
		if (err == nil) != (want == "") || err != nil && code(err) != want {
			t.Errorf("list %s: %v", prefix, err)
		}
	}
}

func TestBucketPolicies(t *testing.T) {
	t.Parallel()
	r := newRegion(t, func(q *http.Request) bool { return q.Header.Get("X-Test-Plain") == "" })
	if _, err := put(t, r.root, "k", "v"); err != nil {
		t.Fatal(err)
	}
	anonymous := func(path string, plain bool) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if plain {
			req.Header.Set("X-Test-Plain", "1")
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	if got := anonymous("/b-1/k", false); got != http.StatusForbidden {
		t.Errorf("an anonymous read of a private object returned %d", got)
	}
	r.unblock(t)
	err := r.setPolicy(t, `{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::b-1/*"},`+
		`{"Sid":"TLSOnly","Effect":"Deny","Principal":"*","Action":"s3:*","Resource":["arn:aws:s3:::b-1","arn:aws:s3:::b-1/*"],"Condition":{"Bool":{"aws:SecureTransport":"false"}}}`)
	if err != nil {
		t.Fatal(err)
	}
	for plain, want := range map[bool]int{false: http.StatusOK, true: http.StatusForbidden} {
		if got := anonymous("/b-1/k", plain); got != want {
			t.Errorf("a public object, plain %v: %d, want %d", plain, got, want)
		}
	}
	if got := get(t, r.role, "k"); got != "v" {
		t.Errorf("a role by the bucket's policy: %q", got)
	}
	if got := anonymous("/b-1", false); got != http.StatusForbidden {
		t.Errorf("an anonymous list of the bucket returned %d", got)
	}
	_, err = r.root.PutPublicAccessBlock(t.Context(), &s3.PutPublicAccessBlockInput{
		Bucket:                         aws.String("b-1"),
		PublicAccessBlockConfiguration: &types.PublicAccessBlockConfiguration{RestrictPublicBuckets: aws.Bool(true), BlockPublicPolicy: aws.Bool(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := anonymous("/b-1/k", false); got != http.StatusForbidden {
		t.Errorf("a blocked bucket is public: %d", got)
	}
	if err := r.setPolicy(t, `{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::b-1/*"}`); code(err) != "AccessDenied" {
		t.Errorf("a public policy on a blocked bucket: %v", err)
	}
	if err := r.setPolicy(t, `{"Effect":"Deny","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::other/*"}`); code(err) != "MalformedPolicy" {
		t.Errorf("a policy for another bucket: %v", err)
	}
	r.allow(t, `{"Effect":"Allow","Action":"s3:*","Resource":"*"}`)
	if err := r.setPolicy(t, `{"Effect":"Deny","Principal":{"AWS":"arn:aws:iam::000000000000:role/r"},"Action":"s3:GetObject","Resource":"arn:aws:s3:::b-1/*"}`); err != nil {
		t.Fatal(err)
	}
	if got := get(t, r.role, "k"); got != "AccessDenied" {
		t.Errorf("against the bucket's deny: %q", got)
	}
}

// TestConditionsMakePoliciesPrivate: a policy for everybody is public, and so blocked, unless a condition restricts it to fixed
// sources. Other conditions do not count.
func TestConditionsMakePoliciesPrivate(t *testing.T) {
	t.Parallel()
	r := newRegion(t, nil)
	for condition, want := range map[string]string{
		`{"IpAddress":{"aws:SourceIp":["192.0.2.0/24"]}}`:                                           "",
		`{"StringEquals":{"aws:SourceVpc":"vpc-0123456789abcdef0"}}`:                                "",
		`{"StringEquals":{"aws:PrincipalOrgID":"o-example"},"Bool":{"aws:SecureTransport":"true"}}`: "",
		`{"ArnLike":{"aws:SourceArn":"arn:aws:s3:::source"}}`:                                       "",
		`{"Bool":{"aws:SecureTransport":"true"}}`:                                                   "AccessDenied",
		`{"StringEquals":{"s3:prefix":"a"}}`:                                                        "AccessDenied",
		`{"StringLike":{"aws:SourceVpc":"vpc-*"}}`:                                                  "AccessDenied",
		`{"StringNotEquals":{"aws:SourceVpc":"vpc-0123456789abcdef0"}}`:                             "AccessDenied",
		`{"StringEqualsIfExists":{"aws:SourceVpc":"vpc-0123456789abcdef0"}}`:                        "AccessDenied",
		`{"NotIpAddress":{"aws:SourceIp":"192.0.2.0/24"}}`:                                          "AccessDenied",
		`{"IpAddress":{"aws:SourceIp":"0.0.0.0/0"}}`:                                                "AccessDenied",
	} {
		err := r.setPolicy(t, `{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::b-1/*","Condition":`+condition+`}`)
		if err != nil && code(err) != want || err == nil && want != "" {
			t.Errorf("%s: %v, want %q", condition, err, want)
		}
	}
}

func TestEncryptionAsksForTheKey(t *testing.T) {
	t.Parallel()
	r := newRegion(t, nil)
	made, err := r.kms.CreateKey(t.Context(), &awskms.CreateKeyInput{})
	if err != nil {
		t.Fatal(err)
	}
	arn := *made.KeyMetadata.Arn
	_, err = r.root.PutBucketEncryption(t.Context(), &s3.PutBucketEncryptionInput{
		Bucket: aws.String("b-1"), ServerSideEncryptionConfiguration: &types.ServerSideEncryptionConfiguration{Rules: []types.ServerSideEncryptionRule{{
			ApplyServerSideEncryptionByDefault: &types.ServerSideEncryptionByDefault{SSEAlgorithm: types.ServerSideEncryptionAwsKms, KMSMasterKeyID: &arn},
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	out, err := r.root.PutObject(t.Context(), &s3.PutObjectInput{Bucket: aws.String("b-1"), Key: aws.String("k"), Body: strings.NewReader("v")})
	if err != nil || out.ServerSideEncryption != types.ServerSideEncryptionAwsKms || aws.ToString(out.SSEKMSKeyId) != arn {
		t.Fatalf("put: %+v, %v", out, err)
	}
	const objects = `{"Effect":"Allow","Action":["s3:GetObject","s3:PutObject"],"Resource":"arn:aws:s3:::b-1/*"}`
	r.allow(t, objects)
	if got := get(t, r.role, "k"); got != "AccessDenied" {
		t.Errorf("without the key: %q", got)
	}
	r.allow(t, objects+`,{"Effect":"Allow","Action":"kms:Decrypt","Resource":"`+arn+`","Condition":{"StringEquals":{"kms:ViaService":"s3.us-east-1.amazonaws.com","kms:EncryptionContext:aws:s3:arn":"arn:aws:s3:::b-1/k"}}}`)
	if got := get(t, r.role, "k"); got != "v" {
		t.Errorf("with the key: %q", got)
	}
	if _, err := put(t, r.role, "k", "w"); code(err) != "AccessDenied" {
		t.Errorf("writing without a data key: %v", err)
	}
	if _, err := r.kms.DisableKey(t.Context(), &awskms.DisableKeyInput{KeyId: &arn}); err != nil {
		t.Fatal(err)
	}
	if got := get(t, r.root, "k"); got != "KMS.DisabledException" {
		t.Errorf("with a disabled key: %q", got)
	}
}

func TestCopiesAndConditionalReads(t *testing.T) {
	t.Parallel()
	r := newRegion(t, nil)
	ctx := t.Context()
	etag, err := put(t, r.root, "a b/ü", "body", func(in *s3.PutObjectInput) { in.Metadata = map[string]string{"m": "1"} })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.root.CopyObject(ctx, &s3.CopyObjectInput{Bucket: aws.String("b-1"), Key: aws.String("c"), CopySource: aws.String("b-1/a%20b/%C3%BC")}); err != nil {
		t.Fatal(err)
	}
	head, err := r.root.HeadObject(ctx, &s3.HeadObjectInput{Bucket: aws.String("b-1"), Key: aws.String("c")})
	if err != nil || head.Metadata["m"] != "1" || *head.ETag != etag || get(t, r.root, "c") != "body" {
		t.Errorf("the copy: %+v, %v", head, err)
	}
	for name, c := range map[string]struct {
		change func(*s3.GetObjectInput)
		want   string
	}{
		"same":        {func(in *s3.GetObjectInput) { in.IfNoneMatch = &etag }, "NotModified"},
		"not the one": {func(in *s3.GetObjectInput) { in.IfMatch = aws.String(`"x"`) }, "PreconditionFailed"},
		"old":         {func(in *s3.GetObjectInput) { in.IfModifiedSince = aws.Time(time.Now().Add(time.Hour)) }, "NotModified"},
		"new":         {func(in *s3.GetObjectInput) { in.IfUnmodifiedSince = aws.Time(time.Now().Add(-time.Hour)) }, "PreconditionFailed"},
		"no version":  {func(in *s3.GetObjectInput) { in.VersionId = aws.String(strings.Repeat("0", 32)) }, "NoSuchVersion"},
		"no id":       {func(in *s3.GetObjectInput) { in.VersionId = aws.String("none") }, "InvalidArgument"},
	} {
		in := &s3.GetObjectInput{Bucket: aws.String("b-1"), Key: aws.String("c")}
		c.change(in)
		if _, err := r.root.GetObject(ctx, in); code(err) != c.want && !strings.Contains(code(err), "304") {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err = r.root.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: aws.String("b-1"), Key: aws.String("c"), IfMatch: aws.String(`"x"`)})
	if code(err) != "PreconditionFailed" {
		t.Errorf("a stale deletion: %v", err)
	}
	if _, err := r.root.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: aws.String("b-1"), Key: aws.String("c"), IfMatch: &etag}); err != nil {
		t.Errorf("a deletion with its ETag: %v", err)
	}
}

func TestCLI(t *testing.T) {
	t.Parallel()
	path, err := exec.LookPath("aws")
	if err != nil {
		t.Skip("the AWS CLI is not on this machine: it does not judge S3 here")
	}
	r := newRegion(t, nil)
	dir := t.TempDir()
	file := filepath.Join(dir, "big")
	if err := os.WriteFile(file, []byte(strings.Repeat("0123456789abcdef", 1<<16*10)), 0o600); err != nil { // 10 MiB: sent in parts
		t.Fatal(err)
	}
	run := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), path, append([]string{"--endpoint-url", r.url}, args...)...)
		cmd.Env = append(cmd.Environ(), "AWS_ACCESS_KEY_ID=AKIAROOT", "AWS_SECRET_ACCESS_KEY=s", "AWS_DEFAULT_REGION=us-east-1", "AWS_CONFIG_FILE=/nonexistent")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("aws %s: %v: %s", strings.Join(args, " "), err, out)
		}
		return strings.TrimSpace(string(out))
	}
	run("s3", "mb", "s3://cli-bucket")
	run("s3", "cp", file, "s3://cli-bucket/dir/big")
	run("s3", "cp", "s3://cli-bucket/dir/big", "s3://cli-bucket/dir/copy")
	if got := run("s3", "ls", "s3://cli-bucket/dir/"); strings.Count(got, "10485760") != 2 {
		t.Errorf("ls: %s", got)
	}
	back := filepath.Join(dir, "back")
	run("s3", "cp", "s3://cli-bucket/dir/copy", back)
	want, _ := os.ReadFile(file)
	if got, err := os.ReadFile(back); err != nil || string(got) != string(want) {
		t.Errorf("%d bytes come back, %v", len(got), err)
	}
	run("s3", "rb", "--force", "s3://cli-bucket")
	if got := run("s3api", "list-buckets", "--query", "Buckets[].Name", "--output", "text"); got != "b-1" {
		t.Errorf("buckets: %s", got)
	}
}

// TestHostStyle names the bucket in the host, as clients do by default.
func TestHostStyle(t *testing.T) {
	t.Parallel()
	r := newRegion(t, nil)
	if _, err := put(t, r.root, "k", "v"); err != nil {
		t.Fatal(err)
	}
	r.unblock(t)
	if err := r.setPolicy(t, `{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::b-1/*"}`); err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+"/k", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "b-1.s3.us-east-1.amazonaws.com"
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); string(b) != "v" {
		t.Errorf("%s: %s", resp.Status, b)
	}
}

// TestBucketPolicyDeniesRoot: a Deny of a bucket policy binds the account's root too, except for the policy itself.
func TestBucketPolicyDeniesRoot(t *testing.T) {
	t.Parallel()
	r := newRegion(t, nil)
	if _, err := put(t, r.root, "k", "v"); err != nil {
		t.Fatal(err)
	}
	if err := r.setPolicy(t, `{"Effect":"Deny","Principal":"*","Action":"s3:*","Resource":["arn:aws:s3:::b-1","arn:aws:s3:::b-1/*"]}`); err != nil {
		t.Fatal(err)
	}
	if got := get(t, r.root, "k"); got != "AccessDenied" {
		t.Errorf("a denied read by root: %q", got)
	}
	name := aws.String("b-1")
	if _, err := r.root.GetBucketPolicy(t.Context(), &s3.GetBucketPolicyInput{Bucket: name}); err != nil {
		t.Errorf("root reads the policy: %v", err)
	}
	if _, err := r.root.DeleteBucketPolicy(t.Context(), &s3.DeleteBucketPolicyInput{Bucket: name}); err != nil {
		t.Errorf("root deletes the policy: %v", err)
	}
	if got := get(t, r.root, "k"); got != "v" {
		t.Errorf("without the policy: %q", got)
	}
}
