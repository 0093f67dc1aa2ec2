// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/internal/cli"
	"github.com/slipway-k8s/slipway/internal/infra/iampolicy"
	"github.com/slipway-k8s/slipway/internal/lib/asset/assettest"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// The state store of the lab.
const (
	bucket   = "slipway-test"
	stateURL = "s3://slipway-test/team"
)

// lab is a region with a state store.
type lab struct {
	*testing.T
	region regiontest.Region
	agent  string
	dir    string
	more   map[string]string // more environment of commands
}

// smallGroups are the instance groups of a small cluster, to follow its manifest.
const smallGroups = `---
apiVersion: slipway.dev/v1alpha1
kind: InstanceGroup
metadata: {name: control-plane}
spec: {role: ControlPlane, minSize: 1}
---
apiVersion: slipway.dev/v1alpha1
kind: InstanceGroup
metadata: {name: workers}
spec: {role: Worker}
`

// caller is a set of credentials; the zero value is the account's root.
type caller struct{ key, secret, token string }

// newLab starts a region and creates its state store as root.
func newLab(t *testing.T) *lab {
	t.Helper()
	l := newLabWithoutStore(t)
	l.must(caller{}, 0, "state", "init", "--yes")

	return l
}

// newLabWithoutStore starts a region.
func newLabWithoutStore(t *testing.T) *lab {
	t.Helper()

	return newLabWith(t, regiontest.Options{})
}

// newLabWith starts a region with options.
func newLabWith(t *testing.T, o regiontest.Options) *lab {
	t.Helper()
	agent, err := exec.LookPath("true")
	if err != nil {
		t.Skip("SKIPPED: no program to stand for the agent")
	}

	l := &lab{T: t, agent: agent, dir: t.TempDir()}
	l.region = regiontest.StartWith(t, o)

	return l
}

// slipway runs a command as c.
func (l *lab) slipway(c caller, args ...string) (stdout, stderr string, code int) {
	l.Helper()
	env := l.region.Env()
	if c.key != "" {
		env["AWS_ACCESS_KEY_ID"] = c.key
		env["AWS_SECRET_ACCESS_KEY"] = c.secret
		env["AWS_SESSION_TOKEN"] = c.token
	}

	env["SLIPWAY_STATE"] = stateURL
	env["SLIPWAY_NODE_BINARY"] = l.agent
	env["HOME"] = l.dir
	maps.Copy(env, l.more)

	for k, v := range env { // the SDK reads the process's own
		if strings.HasPrefix(k, "AWS_") {
			l.Setenv(k, v)
		}
	}

	var out, errs bytes.Buffer
	code = cli.Main(l.Context(), cli.Env{
		Args:       args,
		Stdin:      strings.NewReader(""),
		Stdout:     &out,
		Stderr:     &errs,
		Getenv:     func(k string) string { return env[k] },
		Now:        time.Now,
		Hostname:   os.Hostname,
		Registries: assettest.Registries{},
	})

	return out.String(), errs.String(), code
}

// must runs a command as c and checks its exit code.
func (l *lab) must(c caller, code int, args ...string) string {
	l.Helper()
	out, errs, got := l.slipway(c, args...)
	if got != code {
		l.Fatalf("slipway %s: exit %d, want %d\n%s%s", strings.Join(args, " "), got, code, out, errs)
	}

	return out
}

// createCluster creates and applies the cluster demo as root.
func (l *lab) createCluster() {
	l.Helper()
	const name = "demo"
	l.must(caller{}, 0, "create", "cluster", name, "--zones", "us-east-1a,us-east-1b,us-east-1c", "--yes")
	l.must(caller{}, 0, "apply", name, "--yes")
}

// config returns the configuration of AWS clients that call as c.
func (l *lab) config(c caller) sdk.Config {
	cfg := l.region.AWSConfig()
	if c.key != "" {
		cfg.Credentials = credentials.NewStaticCredentialsProvider(c.key, c.secret, c.token)
	}

	return cfg
}

// s3 returns a client of S3 that calls as c.
func (l *lab) s3(c caller) *s3.Client {
	return s3.NewFromConfig(l.config(c), func(o *s3.Options) { o.UsePathStyle = true })
}

// policies returns the policies that 'slipway iam operator-policy' prints.
func (l *lab) policies(args ...string) []iampolicy.Policy {
	l.Helper()
	var doc struct {
		Policies []struct{ Document iampolicy.Policy }
	}

	printed := l.must(caller{}, 0, append([]string{"iam", "operator-policy", "-o", "json"}, args...)...)
	if err := json.Unmarshal([]byte(printed), &doc); err != nil {
		l.Fatal(err)
	}

	var out []iampolicy.Policy
	for _, p := range doc.Policies {
		out = append(out, p.Document)
	}

	return out
}

// user creates a user with these policies only.
func (l *lab) user(name string, policies []iampolicy.Policy) caller {
	l.Helper()
	api := iam.NewFromConfig(l.config(caller{}))
	_, err := api.CreateUser(l.Context(), &iam.CreateUserInput{UserName: &name})
	l.check(err)

	for i, p := range policies {
		text, err := json.Marshal(p)
		l.check(err)
		made, err := api.CreatePolicy(l.Context(), &iam.CreatePolicyInput{
			PolicyName:     sdk.String(fmt.Sprintf("%s-%d", name, i)),
			PolicyDocument: sdk.String(string(text)),
		})
		l.check(err)

		_, err = api.AttachUserPolicy(l.Context(), &iam.AttachUserPolicyInput{UserName: &name, PolicyArn: made.Policy.Arn})
		l.check(err)
	}

	key, err := api.CreateAccessKey(l.Context(), &iam.CreateAccessKeyInput{UserName: &name})
	l.check(err)

	return caller{key: *key.AccessKey.AccessKeyId, secret: *key.AccessKey.SecretAccessKey}
}

// unescape returns a policy document as text.
func (l *lab) unescape(document string) string {
	l.Helper()
	text, err := url.QueryUnescape(document)
	l.check(err)

	return text
}

// check ends the test if the lab itself failed.
func (l *lab) check(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

// objects returns the keys of all objects of the bucket, as root sees them.
func (l *lab) objects() []string {
	l.Helper()
	var out []string
	pages := s3.NewListObjectsV2Paginator(l.s3(caller{}), &s3.ListObjectsV2Input{Bucket: sdk.String(bucket)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(l.Context())
		l.check(err)

		for _, o := range page.Contents {
			out = append(out, *o.Key)
		}
	}

	return out
}

// objectsBelow returns the keys of the objects with a prefix.
func (l *lab) objectsBelow(prefix string) []string {
	l.Helper()

	return slices.DeleteFunc(l.objects(), func(key string) bool { return !strings.HasPrefix(key, prefix) })
}

// denied checks that AWS refused a call for lack of permission.
func (l *lab) denied(what string, err error) {
	l.Helper()
	var refused smithy.APIError
	if !asAPIError(err, &refused) || !isDenial(refused.ErrorCode()) {
		l.Errorf("%s: the attack succeeded or failed for another reason: %v", what, err)
	}
}

func isDenial(code string) bool {
	return code == "AccessDenied" || code == "AccessDeniedException" || code == "UnauthorizedOperation" ||
		code == "KMS.AccessDeniedException"
}

// temporaryFile writes text to a file of the lab.
func (l *lab) temporaryFile(name, text string) string {
	l.Helper()
	path := filepath.Join(l.dir, name)
	l.check(os.WriteFile(path, []byte(text), 0o600))

	return path
}
