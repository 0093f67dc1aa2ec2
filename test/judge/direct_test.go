// SPDX-License-Identifier: Apache-2.0

package judge_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"

	"github.com/slipway-k8s/slipway/internal/infra/aws"
	"github.com/slipway-k8s/slipway/internal/infra/aws/discovery"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/infra/render/rendertest"
	"github.com/slipway-k8s/slipway/internal/infra/unmanaged"
	"github.com/slipway-k8s/slipway/internal/manifest"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
	"github.com/slipway-k8s/slipway/test/moto"
)

// directJudge creates a topology through the API at cfg: an apply, an empty second plan, and a
// deletion that leaves nothing. Its function known corrects the known defects of an emulator, in
// the graph and in the resources that are read.
type directJudge struct {
	cfg        sdk.Config
	fixDefects func(graph.Resource) graph.Resource
}

func (d directJudge) checkTopology(t *testing.T, x rendertest.Topology, edit func(*model.Input)) {
	t.Helper()
	x = d.prepareTopology(t, x)
	in := x.Input(t, regiontest.RegionName)
	edit(&in)
	if unmanaged.IsNeeded(in.Cluster) {
		owns := func(tags map[string]string) bool { return tags[awskind.TagCluster] == in.Cluster.Metadata.Name }
		facts, err := discovery.ReadUnmanaged(t.Context(), d.cfg, in.Cluster, owns)
		failOnError(t, err)
		for _, f := range unmanaged.Check(in.Cluster, in.Groups, facts) {
			t.Error(f)
		}
	}
	before := d.listInventory(t)
	c := d.buildCluster(t, in)
	c.apply(t)
	c.checkNoChanges(t)
	c.remove(t)
	d.checkInventory(t, before)
}

// checkInventory checks that the account contains exactly the resources that it contained before.
func (d directJudge) checkInventory(t *testing.T, before []string) {
	t.Helper()
	if after := d.listInventory(t); !slices.Equal(before, after) {
		t.Errorf("before\n%s\nafter the deletion\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
}

// builtCluster is a created cluster and its graph.
type builtCluster struct {
	directJudge
	cloud *aws.Cloud
	graph *graph.Graph
}

func (d directJudge) buildCluster(t *testing.T, in model.Input) builtCluster {
	t.Helper()
	g, fs := model.Build(in)
	if err := fs.Err(); err != nil {
		t.Fatal(err)
	}
	for _, n := range g.Nodes() {
		n.Resource = d.fixDefects(n.Resource)
	}
	name := in.Cluster.Metadata.Name
	cloud := aws.New(d.cfg, aws.Scope{
		Cluster: name, Region: regiontest.RegionName, RolePath: model.RolePath(name, regiontest.RegionName), KeyAlias: model.KeyAliasName(name),
	})
	cloud.AddRecordZones(model.UnmanagedZones(in.Cluster.Spec)...)
	if manifest.HasPodIdentity(in.Cluster) {
		cloud.FindProviders(true)
	}
	if model.UsesEtcdDNS(in.Cluster.Spec) {
		cloud.FindFunction(model.FunctionName(name), true)
	}
	if model.UsesEtcdTopic(in.Cluster.Spec) {
		cloud.FindTopic(model.FunctionName(name), true)
	}
	return builtCluster{directJudge: d, graph: g, cloud: cloud}
}

func (b builtCluster) plan(t *testing.T, g *graph.Graph) plan.Plan {
	t.Helper()
	have, err := b.cloud.Read(t.Context())
	failOnError(t, err)
	for i := range have {
		have[i].Resource = b.fixDefects(have[i].Resource)
	}
	p, fs := plan.Compute(g, have, plan.Options{DestroyData: true})
	if err := fs.Err(); err != nil {
		t.Fatal(err)
	}
	return p
}

func (b builtCluster) applyGraph(t *testing.T, g *graph.Graph) {
	t.Helper()
	if err := (plan.Applier{Cloud: b.cloud, Now: time.Now, RetryTimeout: time.Minute}).Apply(t.Context(), b.plan(t, g)); err != nil {
		t.Fatal(err)
	}
}

func (b builtCluster) apply(t *testing.T) {
	t.Helper()
	b.applyGraph(t, b.graph)
}

func (b builtCluster) checkNoChanges(t *testing.T) {
	t.Helper()
	if p := b.plan(t, b.graph); !p.IsEmpty() {
		t.Errorf("the second plan has changes:\n%s", formatPlan(p))
	}
}

func (b builtCluster) remove(t *testing.T) {
	t.Helper()
	b.applyGraph(t, &graph.Graph{})
	if p := b.plan(t, &graph.Graph{}); !p.IsEmpty() {
		t.Errorf("delete has left:\n%s", formatPlan(p))
	}
}

// keepResource corrects nothing, for an emulator without known defects.
func keepResource(r graph.Resource) graph.Resource { return r }

func formatPlan(p plan.Plan) string {
	var b strings.Builder
	for _, s := range p.Steps {
		fmt.Fprintln(&b, s)
		for _, c := range s.Changes {
			fmt.Fprintln(&b, "  ", c)
		}
	}
	return b.String()
}

// TestDirectRegion creates every topology in the local region, in records mode.
func TestDirectRegion(t *testing.T) {
	t.Parallel()
	for _, x := range judgedTopologies() {
		t.Run(x.Name, func(t *testing.T) {
			t.Parallel()
			reportVerdict(t, x.Name, "direct", "region")
			directJudge{cfg: regiontest.Start(t).AWSConfig(), fixDefects: keepResource}.checkTopology(t, x, func(*model.Input) {})
		})
	}
}

// TestDirectMoto creates every topology in moto, which shares neither code nor authors with the
// local region.
func TestDirectMoto(t *testing.T) { //nolint:tparallel // all topologies share one moto, which handles one call at a time
	t.Parallel()
	var cfg sdk.Config // of the shared moto, which the first test starts
	var image string   // of the shared moto
	owner := t
	for _, x := range judgedTopologies() {
		t.Run(x.Name, func(t *testing.T) {
			reportVerdict(t, x.Name, "direct", "moto")
			skipUnlessJudged(t, x.Name)
			if model.UsesEtcdDNS(x.Input(t, regiontest.RegionName).Cluster.Spec) {
				t.Skip("SKIPPED: moto needs Docker to run a Lambda function")
			}
			if cfg.BaseEndpoint == nil {
				cfg = moto.StartShared(t, owner)
				image = moto.FindImage(t, cfg)
			}
			directJudge{cfg: cfg, fixDefects: hideMotoDefects}.checkTopology(t, x, func(in *model.Input) {
				for name, x := range in.Images {
					x.ID = image
					in.Images[name] = x
				}
			})
		})
	}
}

// hideMotoDefects hides two defects of moto 5.2.1: it puts the tags of a launch template into the
// data of the template, and it does not return the description of a rule between security groups.
func hideMotoDefects(r graph.Resource) graph.Resource {
	switch r := r.(type) {
	case awskind.LaunchTemplate:
		r.Data.Tags = slices.DeleteFunc(slices.Clone(r.Data.Tags), func(s awskind.TagSpecification) bool { return s.ResourceType == "launch-template" })
		return r
	case awskind.SecurityGroupIngress:
		r.Description = ""
		return r
	case awskind.SecurityGroupEgress:
		r.Description = ""
		return r
	}
	return r
}
