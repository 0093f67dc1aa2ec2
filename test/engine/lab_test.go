// SPDX-License-Identifier: Apache-2.0

// Package engine_test tests the guarantees of plan and apply against the local region in records
// mode, without machines: they survive a kill at any call, converge after any failure, and detect
// every change that is made outside of Slipway.
//
// Every case runs in a bubble of testing/synctest with its own region, so that waiting takes no
// real time. The tests use the region through AWS calls and through its records only.
package engine_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"

	"github.com/slipway-k8s/slipway/examples"
	"github.com/slipway-k8s/slipway/internal/infra/aws"
	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/manifest"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
	"github.com/slipway-k8s/slipway/test/dnsfunction"
)

// printFigure prints a figure for the summary of `make test`: hack/testsum shows lines that begin
// with COUNT.
func printFigure(t *testing.T, format string, args ...any) {
	t.Helper()
	fmt.Printf("COUNT "+format+"\n", args...)
}

// newHASet is the highly available topology of examples/ha.yaml with another name.
func newHASet(tb testing.TB, cluster string) manifest.Set {
	tb.Helper()
	all := examples.All()
	i := slices.IndexFunc(all, func(x examples.Topology) bool { return x.Name == "ha" })
	if i < 0 {
		tb.Fatal("there is no example ha")
	}
	text := string(all[i].YAML)
	text = strings.ReplaceAll(text, "slipway.dev/cluster: demo", "slipway.dev/cluster: "+cluster)
	text = strings.Replace(text, "name: demo", "name: "+cluster, 1)
	set, fs := manifest.Parse([]byte(text))
	set = manifest.Default(set)
	if err := append(fs, manifest.Validate(set)...).Err(); err != nil {
		tb.Fatal(err)
	}
	return set
}

// TestMain is the Lambda function of a cluster when the local region starts this program as one.
func TestMain(m *testing.M) {
	dnsfunction.Main()
	os.Exit(m.Run())
}

// buildGraph returns the graph of a cluster's manifests, as the command line builds it.
func buildGraph(set manifest.Set) (*graph.Graph, error) {
	g, fs := model.Build(newInput(set))
	return g, fs.Err()
}

// newInput returns the input of the model for a cluster's manifests.
func newInput(set manifest.Set) model.Input {
	in := model.Input{
		Cluster: set.Cluster, ClusterID: "k7q2m4x9c3v5b8n1", Groups: set.Groups, Account: regiontest.AccountID, Region: regiontest.RegionName, Partition: "aws",
		Images: map[string]model.Image{}, Boot: map[string]model.BootSource{}, BootScript: "#!/bin/sh\n# @@CONFIG@@\n",
		MachineStore: model.MachineStore{Bucket: "store", KMSKeyARN: "arn:aws:kms:us-east-1:123456789012:key/0"},
	}
	for _, g := range set.Groups {
		in.Images[g.Metadata.Name] = model.Image{ID: regiontest.ImageID, RootDevice: "/dev/xvda"}
		in.Boot[g.Metadata.Name] = model.BootSource{AgentURL: "s3://store/agent", AgentSHA256: "0", DocumentURL: "s3://store/doc", DocumentSHA256: "0"}
	}
	return in
}

func mustBuildGraph(tb testing.TB, set manifest.Set) *graph.Graph {
	tb.Helper()
	g, err := buildGraph(set)
	if err != nil {
		tb.Fatal(err)
	}
	return g
}

// engine is one client of a cluster. It corresponds to one run of slipway.
type engine struct {
	cloud *aws.Cloud
	calls *transport.CallLimiter
}

func newEngine(cfg sdk.Config, cluster string) engine {
	e := engine{calls: &transport.CallLimiter{}}
	e.cloud = aws.New(e.calls.Instrument(cfg), aws.Scope{
		Cluster: cluster, Region: regiontest.RegionName, RolePath: model.RolePath(cluster, regiontest.RegionName), KeyAlias: model.KeyAliasName(cluster),
	})
	return e
}

func (e engine) plan(ctx context.Context, g *graph.Graph) (plan.Plan, error) {
	if slices.ContainsFunc(g.Nodes(), func(n *graph.Node) bool { _, ok := n.Resource.(awskind.OIDCProvider); return ok }) {
		e.cloud.FindProviders(true)
	}
	have, err := e.cloud.Read(ctx)
	if err != nil {
		return plan.Plan{}, err
	}
	p, fs := plan.Compute(g, have, plan.Options{DestroyData: true})
	return p, fs.Err()
}

// run plans and applies: the AWS part of an apply, or of a delete if the graph is empty.
func (e engine) run(ctx context.Context, g *graph.Graph) error {
	p, err := e.plan(ctx, g)
	if err != nil {
		return err
	}
	return plan.Applier{Cloud: e.cloud, Now: time.Now, RetryTimeout: 10 * time.Minute}.Apply(ctx, p)
}

// startRegion starts a region in the bubble, with the images and parameters of a snapshot.
func startRegion(t *testing.T, from regiontest.Snapshot) regiontest.Region {
	t.Helper()
	r := regiontest.StartWith(t, regiontest.Options{InProcess: true, VisibilityDelay: regiontest.LikeAWS, Snapshot: from})
	t.Cleanup(func() { time.Sleep(time.Minute) }) // a killed client's waits end by themselves
	return r
}

// waitForRegion waits, in the bubble's time, until the asynchronous operations of the region have
// ended.
func waitForRegion() { time.Sleep(5 * time.Second) }

func planLines(p plan.Plan) []string {
	var out []string
	for _, s := range p.Steps {
		out = append(out, strings.TrimSpace(s.String()))
		for _, c := range s.Changes {
			out = append(out, "  "+c.String())
		}
	}
	return out
}
