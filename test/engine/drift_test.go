// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/manifest"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
	"github.com/slipway-k8s/slipway/internal/region/server"
)

var update = flag.Bool("update", false, "write docs/operations/drift.md anew")

// drift is one change that is made outside of Slipway.
type drift struct {
	description string // for the documentation
	change      func(awsClients) error
	// want are the expected lines of the plan. A line of the plan may be longer. IDs are written as
	// ID.
	want []string
	// leavesNewVersion means that the repair leaves another record: it creates a newer version of a
	// launch template instead of removing the changed one.
	leavesNewVersion bool
}

// awsClients are AWS clients that are independent of Slipway, except that they find its resources
// by the IDs that it uses.
type awsClients struct {
	context.Context
	ec2     *ec2.Client
	elb     *elb.Client
	iam     *iam.Client
	kms     *kms.Client
	scaling *autoscaling.Client
	dns     *route53.Client
	lambda  *lambda.Client
	events  *eventbridge.Client
	logs    *cloudwatchlogs.Client
	sns     *sns.Client
	ids     map[graph.Addr]string
}

func newAWSClients(ctx context.Context, cfg sdk.Config, ids map[graph.Addr]string) awsClients {
	return awsClients{
		Context: ctx, ids: ids, ec2: ec2.NewFromConfig(cfg), elb: elb.NewFromConfig(cfg), iam: iam.NewFromConfig(cfg),
		kms: kms.NewFromConfig(cfg), scaling: autoscaling.NewFromConfig(cfg), dns: route53.NewFromConfig(cfg),
		lambda: lambda.NewFromConfig(cfg), events: eventbridge.NewFromConfig(cfg), logs: cloudwatchlogs.NewFromConfig(cfg),
		sns: sns.NewFromConfig(cfg),
	}
}

// resourceID returns the ID of the resource at an address of the graph.
func (h awsClients) resourceID(addr graph.Addr) *string {
	v, ok := h.ids[addr]
	if !ok {
		panic("nothing is at " + string(addr)) // a mistake in the table
	}
	return &v
}

// readResourceIDs reads the IDs of all resources of a cluster.
func readResourceIDs(t *testing.T, e engine, g *graph.Graph) map[graph.Addr]string {
	t.Helper()
	p, err := e.plan(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	out := map[graph.Addr]string{}
	for _, n := range g.Nodes() {
		if id := p.ResourceID(n.Addr); id != "" {
			out[n.Addr] = id
		}
	}
	return out
}

// TestDrift makes each change with a plain AWS client, one at a time. The plan must report exactly
// this change, and apply must repair it: the records of the region are then as before.
func TestDrift(t *testing.T) {
	var rows []string
	synctest.Test(t, func(t *testing.T) {
		r := startRegion(t, nil)
		g := mustBuildGraph(t, newPeeredHASet(t, r))
		if err := newEngine(r.AWSConfig(), "demo").run(t.Context(), g); err != nil {
			t.Fatal(err)
		}
		waitForRegion()
		built := r.Inventory(t)
		for i, d := range drifts() {
			if testing.Short() && i >= 8 { // later rows need what earlier ones leave
				break
			}
			t.Log(d.description)
			rows = append(rows, d.checkDrift(t, r, g))
			waitForRegion()
			now := r.Inventory(t)
			if d.leavesNewVersion {
				built = now
			}
			if diff := cmp.Diff(built, now); diff != "" {
				t.Fatalf("%s: differs from before (-before +now):\n%s", d.description, diff)
			}
		}
	})
	if testing.Short() {
		return // the page has all rows
	}
	rows = append(rows, checkFunctionDrifts(t)...)
	const least = 25
	if len(rows) < least {
		t.Errorf("%d kinds of drift, want at least %d", len(rows), least)
	}
	printFigure(t, "drift: %d kinds of change outside of Slipway, each reported exactly by the plan and repaired by apply", len(rows))
	checkDriftPage(t, rows)
}

// newPeeredHASet is the highly available topology with all other kinds of resources: a peering to an
// existing VPC, a DNS name in a private zone, a VPC endpoint for S3, a key pair, and a service account with a role.
func newPeeredHASet(t *testing.T, r regiontest.Region) manifest.Set {
	t.Helper()
	set, api := newHASet(t, "demo"), ec2.NewFromConfig(r.AWSConfig())
	vpc, err := api.CreateVpc(t.Context(), &ec2.CreateVpcInput{CidrBlock: sdk.String("10.200.0.0/16")})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second) // until the VPC is seen
	table, err := api.CreateRouteTable(t.Context(), &ec2.CreateRouteTableInput{VpcId: vpc.Vpc.VpcId})
	if err != nil {
		t.Fatal(err)
	}
	set.Cluster.Spec.Networking.VPCPeerings = []v1alpha1.VPCPeering{{
		Name: "data", NetworkID: *vpc.Vpc.VpcId, CIDRs: []string{"10.200.0.0/16"}, RouteTables: []string{*table.RouteTable.RouteTableId},
	}}
	set.Cluster.Spec.Networking.VPCEndpoints = []string{"s3"}
	set.Cluster.Spec.DNSZone = "k8s.example.com"
	set.Cluster.Spec.Topology.DNS.Type = manifest.DNSPrivate
	set.Cluster.Spec.ServiceAccountIssuerDiscovery.DiscoveryStore = "s3://oidc/prod"
	set.Cluster.Spec.IAM.ServiceAccountExternalPermissions = []v1alpha1.ServiceAccountPermissions{{
		Name: "reader", Namespace: "shop", AWS: v1alpha1.ServiceAccountAWS{InlinePolicy: `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:GetObject","Resource":"*"}]}`},
	}}
	set.Cluster.Spec.SSHKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPLLbNYYsVe9WrZhsnw7dmEhqHxzyZyqzqeoAxxhCcc8 operator"
	return manifest.Default(set)
}

// checkDrift makes one change, checks the plan, and checks that apply repairs it. It returns the
// row of the documentation.
func (d drift) checkDrift(t *testing.T, r regiontest.Region, g *graph.Graph) string {
	t.Helper()
	e := newEngineFor(r.AWSConfig(), g)
	h := newAWSClients(t.Context(), r.AWSConfig(), readResourceIDs(t, e, g))
	before := r.CallCounts()
	if err := d.change(h); err != nil {
		t.Fatalf("%s: %v", d.description, err)
	}
	var by []string
	for _, call := range slices.Sorted(maps.Keys(r.CallCounts())) {
		if _, op, _ := strings.Cut(call, ":"); server.IsMutating(op) && r.CallCounts()[call] > before[call] {
			by = append(by, "`"+call+"`")
		}
	}
	time.Sleep(settleTime(g)) // what was ordered has happened
	p, err := e.plan(t.Context(), g)
	if err != nil {
		t.Fatalf("%s: %v", d.description, err)
	}
	got := planLines(p)
	names := h.idReplacer()
	for i, l := range got {
		got[i] = names.Replace(l)
	}
	fits := len(got) == len(d.want)
	for i := range min(len(got), len(d.want)) {
		fits = fits && strings.HasPrefix(got[i], d.want[i])
	}
	if !fits {
		t.Errorf("%s: the plan is\n%s\nwant\n%s", d.description, strings.Join(got, "\n"), strings.Join(d.want, "\n"))
	}
	d.repairDrift(t, r, g, p)
	return fmt.Sprintf("| %s | %s | %s |", d.description, strings.Join(by, ", "), "`"+strings.Join(d.want, "`<br>`")+"`")
}

func (d drift) repairDrift(t *testing.T, r regiontest.Region, g *graph.Graph, p plan.Plan) {
	t.Helper()
	e := newEngineFor(r.AWSConfig(), g)
	if err := (plan.Applier{Cloud: e.cloud, Now: time.Now}).Apply(t.Context(), p); err != nil {
		t.Fatalf("%s: not repaired: %v", d.description, err)
	}
	if rest, err := newEngineFor(r.AWSConfig(), g).plan(t.Context(), g); err != nil || !rest.IsEmpty() {
		t.Fatalf("%s: not repaired: %v\n%s", d.description, err, strings.Join(planLines(rest), "\n"))
	}
	if hasFunction(g) {
		time.Sleep(settleTime(g)) // a function takes one change at a time
	}
}

// idReplacer replaces IDs by ID, since they differ in each run.
func (h awsClients) idReplacer() *strings.Replacer {
	var pairs []string
	for _, id := range h.ids {
		if strings.HasPrefix(id, "arn:") || strings.Contains(id, "-0") {
			pairs = append(pairs, id, "ID")
		}
	}
	return strings.NewReplacer(pairs...)
}

// checkDriftPage compares docs/operations/drift.md with the table.
func checkDriftPage(t *testing.T, rows []string) {
	t.Helper()
	const path, begin, end = "../../docs/operations/drift.md", "<!-- table: go test ./test/engine -run TestDrift -update -->\n", "<!-- end of the table -->\n"
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(b), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no marks for the table", path)
	}
	table := "\n| change | AWS calls | plan |\n|---|---|---|\n" + strings.Join(rows, "\n") + "\n\n"
	want := head + begin + table + end + tail
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, string(b)); diff != "" {
		t.Errorf("%s is out of date (go test ./test/engine -run TestDrift -update):\n%s", path, diff)
	}
}
