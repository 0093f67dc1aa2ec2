// SPDX-License-Identifier: Apache-2.0

package iampolicy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/slipway-k8s/slipway/internal/cli"
	"github.com/slipway-k8s/slipway/internal/infra/aws"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/iampolicy"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/asset/assettest"
	"github.com/slipway-k8s/slipway/internal/region/authz"
	"github.com/slipway-k8s/slipway/internal/region/fault"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// bench is a region with a trace of IAM's decisions.
type bench struct {
	*testing.T
	region   regiontest.Region
	agent    string
	function string // the program of the function for DNS records; empty: none
	dir      string

	mu    sync.Mutex
	asked []authz.Request
}

const state = "s3://slipway-test/team"

func newBench(t *testing.T, faults ...fault.Rule) *bench {
	t.Helper()
	agent, err := exec.LookPath("true")
	if err != nil {
		t.Skip("SKIPPED: no program to stand for the agent")
	}
	b := &bench{T: t, agent: agent, dir: t.TempDir()}
	b.region = regiontest.StartWith(t, regiontest.Options{Faults: faults, TraceAuthorization: func(r authz.Request, _ authz.Decision) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.asked = append(b.asked, r)
	}})
	return b
}

// who is a set of credentials; the zero value is the account's root.
type who struct{ key, secret string }

// slipway runs a command as w.
func (b *bench) slipway(w who, args ...string) (string, string, int) {
	b.Helper()
	env := b.region.Env()
	if w.key != "" {
		env["AWS_ACCESS_KEY_ID"], env["AWS_SECRET_ACCESS_KEY"] = w.key, w.secret
	}
	env["SLIPWAY_STATE"], env["SLIPWAY_NODE_BINARY"], env["HOME"] = state, b.agent, b.dir
	env["SLIPWAY_DNS_BINARY"] = b.function
	for k, v := range env { // the SDK reads the process's own
		if strings.HasPrefix(k, "AWS_") {
			b.Setenv(k, v)
		}
	}
	var out, errs bytes.Buffer
	code := cli.Main(b.Context(), cli.Env{
		Args: args, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Getenv: func(k string) string { return env[k] },
		Now: time.Now, Hostname: os.Hostname, Registries: assettest.Registries{},
	})
	return out.String(), errs.String(), code
}

// must runs a command and checks its exit code.
func (b *bench) must(w who, code int, args ...string) string {
	b.Helper()
	out, errs, got := b.slipway(w, args...)
	if got != code {
		b.Fatalf("slipway %s: exit %d, want %d\n%s%s", strings.Join(args, " "), got, code, out, errs)
	}
	return out
}

// policies returns the policies that 'slipway iam operator-policy' prints.
func (b *bench) policies(args ...string) []iampolicy.Policy {
	b.Helper()
	var doc struct {
		Policies []struct {
			Name     string
			Document iampolicy.Policy
		}
	}
	if err := json.Unmarshal([]byte(b.must(who{}, 0, append([]string{"iam", "operator-policy", "-o", "json"}, args...)...)), &doc); err != nil {
		b.Fatal(err)
	}
	var out []iampolicy.Policy
	for _, p := range doc.Policies {
		out = append(out, p.Document)
	}
	return out
}

// user creates a user with these policies only.
func (b *bench) user(name string, policies []iampolicy.Policy) who {
	b.Helper()
	api := iam.NewFromConfig(b.region.AWSConfig())
	check := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	_, err := api.CreateUser(b.Context(), &iam.CreateUserInput{UserName: &name})
	check(err)
	for i, p := range policies {
		text, err := json.Marshal(p)
		check(err)
		made, err := api.CreatePolicy(b.Context(), &iam.CreatePolicyInput{PolicyName: sdk.String(fmt.Sprintf("%s-%d", name, i)), PolicyDocument: sdk.String(string(text))})
		check(err)
		_, err = api.AttachUserPolicy(b.Context(), &iam.AttachUserPolicyInput{UserName: &name, PolicyArn: made.Policy.Arn})
		check(err)
	}
	key, err := api.CreateAccessKey(b.Context(), &iam.CreateAccessKeyInput{UserName: &name})
	check(err)
	return who{*key.AccessKey.AccessKeyId, *key.AccessKey.SecretAccessKey}
}

// attach gives a user one more policy.
func (b *bench) attach(user, name string, p iampolicy.Policy) {
	b.Helper()
	api := iam.NewFromConfig(b.region.AWSConfig())
	text, err := json.Marshal(p)
	b.check(0, err)
	made, err := api.CreatePolicy(b.Context(), &iam.CreatePolicyInput{PolicyName: &name, PolicyDocument: sdk.String(string(text))})
	b.check(made, err)
	b.check(api.AttachUserPolicy(b.Context(), &iam.AttachUserPolicyInput{UserName: &user, PolicyArn: made.Policy.Arn}))
}

func (b *bench) create(w who, name string) {
	b.Helper()
	b.must(w, 0, "create", "cluster", name, "--zones", "us-east-1a,us-east-1b,us-east-1c", "--yes")
}

func (b *bench) edit(w who, name, old, new string) {
	b.Helper()
	text := b.must(w, 0, "get", "clusters", name, "-o", "yaml") + "---\n" + b.must(w, 0, "get", "groups", name, "-o", "yaml")
	if !strings.Contains(text, old) {
		b.Fatalf("no %q in\n%s", old, text)
	}
	file := filepath.Join(b.dir, name+".yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, old, new)), 0o600); err != nil {
		b.Fatal(err)
	}
	b.must(w, 0, "replace", "-f", file, "--yes")
}

// addKarpenterGroup adds a group of Karpenter to a cluster's manifests.
func (b *bench) addKarpenterGroup(w who, name string) {
	b.Helper()
	file := filepath.Join(b.dir, "burst.yaml")
	text := "apiVersion: slipway.dev/v1alpha1\nkind: InstanceGroup\nmetadata: {name: burst}\nspec: {role: Worker, manager: Karpenter, maxSize: 3}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	b.must(w, 0, "replace", "-f", file, "--name", name, "--yes")
}

// ids returns a function from addresses to identities of a cluster's resources.
func (b *bench) ids(name string) func(string) *string {
	b.Helper()
	cloud := b.cloud(b.region.AWSConfig(), name)
	cloud.FindProviders(true)
	have, err := cloud.Read(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	p, _ := plan.Compute(&graph.Graph{}, have, plan.Options{DestroyData: true})
	return func(addr string) *string {
		b.Helper()
		for _, s := range p.Steps {
			if string(s.Addr) == addr {
				return &s.ID
			}
		}
		b.Fatalf("no %s", addr)
		return nil
	}
}

func (b *bench) cloud(cfg sdk.Config, name string) *aws.Cloud {
	return aws.New(cfg, aws.Scope{
		Cluster: name, Region: regiontest.RegionName, RolePath: model.RolePath(name, regiontest.RegionName), KeyAlias: model.KeyAliasName(name),
	})
}

// TestPolicyIsEnough runs the lifecycle of a cluster as a user who has only the printed policies: the state
// store with those of --state-init; create, plan, apply, changes of the manifest, repaired drift, and a
// deletion with leftovers. Then each action of each statement is removed in turn: some call of that lifecycle
// must be denied without it.
func TestPolicyIsEnough(t *testing.T) {
	b := newBench(t, fault.Rule{Effect: fault.EffectProvision, Kind: "instance", Delay: fault.Duration(4500 * time.Millisecond)}) // until apply asks why
	initial := b.policies("demo", "--state-init")
	starter := b.user("starter", initial)
	b.must(starter, 0, "state", "init", "--yes")
	_, err := s3.NewFromConfig(b.region.AWSConfig(), func(o *s3.Options) { o.UsePathStyle = true }).DeleteObject(t.Context(),
		&s3.DeleteObjectInput{Bucket: sdk.String("slipway-test"), Key: sdk.String("team/slipway-state.json")})
	b.check(0, err) // as if the first run had been killed
	b.must(starter, 0, "state", "init", "--yes")
	b.must(starter, 0, "state", "init", "--yes")
	started := b.trace("starter")
	initDiscovery := b.policies("demo", "--discovery-init", discoveryStore)
	publisher := b.user("publisher", initDiscovery)
	for range 2 { // the second time it exists
		b.must(publisher, 0, "iam", "init-discovery", discoveryStore, "--yes")
	}
	more := b.peering()
	b.create(who{}, "demo")
	b.edit(who{}, "demo", "    natGateways: PerZone", "    natGateways: Single\n    vpcEndpoints: [ec2, s3]\n"+more)
	b.edit(who{}, "demo", "  networking:\n", privateZone+podIdentity+"  networking:\n")
	docs := b.policies("demo", "--allow-existing") // they depend on the ids in the manifest
	op := b.user("operator", docs)
	b.must(who{}, 0, "delete", "cluster", "demo", "--yes")
	b.create(op, "demo")
	b.edit(op, "demo", "    natGateways: PerZone", "    natGateways: Single\n    vpcEndpoints: [ec2, s3]\n"+more)
	b.edit(op, "demo", "  networking:\n", "  sshKey: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPLLbNYYsVe9WrZhsnw7dmEhqHxzyZyqzqeoAxxhCcc8 operator@example.com\n"+privateZone+podIdentity+"  networking:\n")
	b.addKarpenterGroup(op, "demo")
	b.must(op, 2, "plan", "demo")
	b.must(op, 0, "apply", "demo", "--yes")
	_, err = kms.NewFromConfig(b.region.AWSConfig()).DeleteAlias(t.Context(), &kms.DeleteAliasInput{AliasName: sdk.String(model.KeyAliasName("demo"))})
	b.check(0, err) // the key is then found by its tags
	b.must(op, 0, "apply", "demo", "--yes")
	b.must(op, 0, "plan", "demo")
	b.must(op, 2, "validate", "cluster", "demo") // this region runs no machines

	b.drift("demo", op)
	b.must(op, 2, "plan", "demo")
	b.must(op, 0, "apply", "demo", "--yes")
	b.must(op, 0, "plan", "demo")

	b.edit(op, "demo", "      size: 20", "      size: 30")
	b.edit(op, "demo", "machineType: t3.large", "machineType: t3.xlarge")
	b.edit(op, "demo", "    vpcEndpoints:\n    - ec2\n    - s3", "    vpcEndpoints: [s3]")
	b.must(op, 0, "apply", "demo", "--yes")
	b.must(op, 0, "plan", "demo")

	b.replaceMachine("demo", op)
	b.litter("demo")
	deletion := b.policies("demo", "--deletion")
	if _, errs, code := b.slipway(op, "delete", "cluster", "demo", "--yes", "--destroy-data"); code != 1 || !strings.Contains(errs, "--deletion") {
		t.Errorf("a deletion without the policy for it: exit %d, %s", code, errs)
	}

	everyday := len(b.trace("operator"))
	b.attach("operator", "deletion", deletion[0])
	b.must(op, 0, "delete", "cluster", "demo", "--yes", "--destroy-data")
	if out, errs, code := b.slipway(who{}, "delete", "cluster", "demo", "--yes", "--destroy-data"); code != 1 || !strings.Contains(errs, "there is no cluster") {
		t.Errorf("something is left: %d %s %s", code, out, errs)
	}
	b.necessary(docs, b.trace("operator"))
	b.necessary(deletion, b.trace("operator")[everyday:])
	b.necessary(initial, started)
	b.necessary(initDiscovery, b.trace("publisher"))
	for i, d := range docs {
		t.Logf("policy %d of %d: %d statements, %d of %d characters", i+1, len(docs), len(d.Statement), d.Size(), iampolicy.MaxPolicySize)
		if d.Size() > iampolicy.MaxPolicySize {
			t.Errorf("policy %d is too long", i+1)
		}
	}
}

func parse(t *testing.T, st iampolicy.Statement) authz.Policy {
	t.Helper()
	text, err := json.Marshal(iampolicy.Policy{Version: "2012-10-17", Statement: []iampolicy.Statement{st}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := authz.ParsePolicy(authz.IdentityPolicy, string(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// privateZone is the part of a manifest for a zone that Slipway creates.
const privateZone = "  dnsZone: k8s.example.com\n  topology: {dns: {type: Private}}\n"

const discoveryStore = "s3://slipway-test-oidc/prod"

// podIdentity is the part of a manifest for a service account with a role.
const podIdentity = `  serviceAccountIssuerDiscovery: {discoveryStore: ` + discoveryStore + `}
  iam:
    serviceAccountExternalPermissions:
    - {name: reader, namespace: shop, aws: {inlinePolicy: '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:GetObject","Resource":"*"}]}'}}
`

// peering creates another VPC and returns the part of a manifest for a peering with it.
func (b *bench) peering() string {
	b.Helper()
	api := ec2.NewFromConfig(b.region.AWSConfig())
	v, err := api.CreateVpc(b.Context(), &ec2.CreateVpcInput{CidrBlock: sdk.String("10.200.0.0/16")})
	b.check(v, err)
	t, err := api.CreateRouteTable(b.Context(), &ec2.CreateRouteTableInput{VpcId: v.Vpc.VpcId})
	b.check(t, err)
	return "    vpcPeerings: [{name: data, networkID: " + *v.Vpc.VpcId + ", cidrs: [10.200.0.0/16], routeTables: [" + *t.RouteTable.RouteTableId + "]}]"
}

// TestReadOnly: a user with the read-only policies can plan, and do nothing else.
func TestReadOnly(t *testing.T) {
	b := newBench(t)
	b.must(who{}, 0, "state", "init", "--yes")
	b.create(who{}, "demo")
	docs := b.policies("demo", "--read-only")
	reader := b.user("reader", docs)
	b.must(reader, 2, "plan", "demo")
	b.must(who{}, 0, "apply", "demo", "--yes")
	b.addConditionalKinds("demo")
	b.must(reader, 0, "plan", "demo")
	b.must(reader, 0, "get", "machines", "demo")
	_, err := kms.NewFromConfig(b.region.AWSConfig()).DeleteAlias(t.Context(), &kms.DeleteAliasInput{AliasName: sdk.String(model.KeyAliasName("demo"))})
	b.check(0, err) // the key is then found by its tags
	b.must(reader, 2, "plan", "demo")
	b.must(who{}, 0, "apply", "demo", "--yes")
	b.must(reader, 2, "validate", "cluster", "demo") // this region runs no machines
	b.must(reader, 0, "drift", "demo")
	for _, action := range iampolicy.AllowedActions(docs) {
		_, op, _ := strings.Cut(action, ":")
		if !slices.ContainsFunc([]string{"Describe", "List", "Get", "Decrypt"}, func(p string) bool { return strings.HasPrefix(op, p) }) {
			t.Errorf("%s does not only read", action)
		}
	}
	b.necessary(docs, b.trace("reader"))
	for _, args := range [][]string{{"apply", "demo", "--yes"}, {"delete", "cluster", "demo", "--yes"}} {
		if _, errs, code := b.slipway(reader, args...); code != 1 || !strings.Contains(errs, "AccessDenied") {
			t.Errorf("%v: exit %d, %s", args, code, errs)
		}
	}
	b.must(who{}, 0, "plan", "demo")

	// A preflight lists the permissions that a reader lacks, and reports none for a user with all policies.
	ask := iampolicy.Policy{Version: "2012-10-17", Statement: []iampolicy.Statement{{
		Sid: "Ask", Effect: "Allow", Action: []string{"iam:SimulatePrincipalPolicy", "ec2:DescribeInstanceTypeOfferings"}, Resource: []string{"*"},
	}}}
	out := b.must(b.user("asking-reader", append(docs, ask)), 1, "preflight", "demo")
	for _, want := range []string{"ec2:CreateVpc on ", "iam:PassRole on ", "s3:PutObject on "} {
		if !strings.Contains(out, want) {
			t.Errorf("preflight does not print %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "ec2:DescribeVpcs") {
		t.Errorf("preflight reports a missing permission that the user has:\n%s", out)
	}
	b.must(b.user("asking-operator", append(b.policies("demo"), ask)), 0, "preflight", "demo")
	b.must(b.user("silent-operator", b.policies("demo")), 2, "preflight", "demo")
}

// TestNeighbour: the policies of one cluster give no permissions for another one whose name has the same
// prefix, neither through slipway nor by a call.
func TestNeighbour(t *testing.T) {
	b := newBench(t)
	b.must(who{}, 0, "state", "init", "--yes")
	b.create(who{}, "demo-2")
	b.edit(who{}, "demo-2", "natGateways: PerZone", "natGateways: Single")
	b.must(who{}, 0, "apply", "demo-2", "--yes")
	op := b.user("operator", b.policies("demo"))
	for _, args := range [][]string{{"plan", "demo-2"}, {"apply", "demo-2", "--yes"}, {"delete", "cluster", "demo-2", "--yes"}} {
		if _, errs, code := b.slipway(op, args...); code != 1 || !strings.Contains(errs, "AccessDenied") {
			t.Errorf("%v: exit %d, %s", args, code, errs)
		}
	}
	// The same steps without slipway's own checks: every one must be denied.
	cfg := b.region.AWSConfig()
	cfg.Credentials = credentials.NewStaticCredentialsProvider(op.key, op.secret, "")
	have, err := b.cloud(b.region.AWSConfig(), "demo-2").Read(t.Context())
	b.check(0, err)
	p, _ := plan.Compute(&graph.Graph{}, have, plan.Options{DestroyData: true})
	thief := b.cloud(cfg, "demo-2")
	denied := 0
	for i, s := range p.Steps {
		err := thief.Delete(t.Context(), plan.Task{Step: s, Actual: plan.ActualResource{Addr: s.Addr, ID: s.ID, Resource: s.Actual()}, ReportWaiting: func(string) {}})
		if plan.ErrorClassOf(err) != plan.AccessDenied {
			t.Errorf("step %d, %s: %v", i, s, err)
			continue
		}
		denied++
	}
	t.Logf("%d deletions denied", denied)
	b.must(who{}, 0, "plan", "demo-2")
}

// TestWithout: without an action, the command that needs it fails and names it.
func TestWithout(t *testing.T) {
	b := newBench(t)
	b.must(who{}, 0, "state", "init", "--yes")
	b.create(who{}, "demo")
	for i, action := range []string{"ec2:DescribeVpcs", "kms:CreateKey", "ec2:RunInstances", "iam:PassRole"} {
		docs := b.policies("demo")
		for d := range docs {
			for s := range docs[d].Statement {
				docs[d].Statement[s].Action = slices.DeleteFunc(docs[d].Statement[s].Action, func(a string) bool { return a == action })
			}
			docs[d].Statement = slices.DeleteFunc(docs[d].Statement, func(s iampolicy.Statement) bool { return len(s.Action) == 0 })
		}
		if _, errs, code := b.slipway(b.user(fmt.Sprint("without-", i), docs), "apply", "demo", "--yes"); code != 1 || !strings.Contains(errs, action) {
			t.Errorf("without %s: exit %d, %s", action, code, errs)
		}
	}
}
