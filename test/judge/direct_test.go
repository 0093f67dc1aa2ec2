// SPDX-License-Identifier: Apache-2.0

package judge_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"

	"github.com/slipway-k8s/slipway/internal/cluster/existing"
	"github.com/slipway-k8s/slipway/internal/infra/aws"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/infra/target/targettest"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
	"github.com/slipway-k8s/slipway/test/moto"
)

// direct builds a topology through the API at cfg: apply, an empty second plan, and a deletion that leaves nothing.
// known changes what an emulator is known to get wrong, in the graph and in what is read.
type direct struct {
	cfg   sdk.Config
	known func(graph.Resource) graph.Resource
}

func (d direct) judge(t *testing.T, x targettest.Topology, edit func(*model.Input)) {
	t.Helper()
	x = d.prepare(t, x)
	in := x.Input(t, regiontest.Name)
	edit(&in)
	if existing.Needed(in.Cluster) {
		facts, err := aws.ReadExisting(t.Context(), d.cfg, in.Cluster)
		check(t, err)
		for _, f := range existing.Check(in.Cluster, in.Groups, facts) {
			t.Error(f)
		}
	}
	before := d.inventory(t)
	c := d.cluster(t, in)
	c.apply(t)
	c.unchanged(t)
	c.remove(t)
	d.sameAs(t, before)
}

// sameAs checks that exactly what there was before is there again.
func (d direct) sameAs(t *testing.T, before []string) {
	t.Helper()
	if after := d.inventory(t); !slices.Equal(before, after) {
		t.Errorf("before there was\n%s\nand after the deletion\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
}

// built is one cluster and what it should be.
type built struct {
	direct
	cloud *aws.Cloud
	graph *graph.Graph
}

func (d direct) cluster(t *testing.T, in model.Input) built {
	t.Helper()
	g, fs := model.Build(in)
	if err := fs.Err(); err != nil {
		t.Fatal(err)
	}
	for _, n := range g.Nodes() {
		n.Resource = d.known(n.Resource)
	}
	name := in.Cluster.Metadata.Name
	cloud := aws.New(d.cfg, aws.Scope{
		Cluster: name, Region: regiontest.Name, RolePath: model.RolePath(name, regiontest.Name), KeyAlias: model.AliasName(name),
	})
	cloud.LookIn(model.ExistingZones(in.Cluster.Spec)...)
	return built{direct: d, graph: g, cloud: cloud}
}

func (b built) plan(t *testing.T, g *graph.Graph) plan.Plan {
	t.Helper()
	have, err := b.cloud.Read(t.Context())
	check(t, err)
	for i := range have {
		have[i].Resource = b.known(have[i].Resource)
	}
	p, fs := plan.Make(g, have, plan.Options{DestroyData: true})
	if err := fs.Err(); err != nil {
		t.Fatal(err)
	}
	return p
}

func (b built) walk(t *testing.T, g *graph.Graph) {
	t.Helper()
	if err := (plan.Walk{Cloud: b.cloud, Now: time.Now, Patience: time.Minute}).Apply(t.Context(), b.plan(t, g)); err != nil {
		t.Fatal(err)
	}
}

func (b built) apply(t *testing.T) {
	t.Helper()
	b.walk(t, b.graph)
}

func (b built) unchanged(t *testing.T) {
	t.Helper()
	if p := b.plan(t, b.graph); !p.Empty() {
		t.Errorf("planned again, there are changes:\n%s", lines(p))
	}
}

func (b built) remove(t *testing.T) {
	t.Helper()
	b.walk(t, &graph.Graph{})
	if p := b.plan(t, &graph.Graph{}); !p.Empty() {
		t.Errorf("deleted, there is still:\n%s", lines(p))
	}
}

// same is what an emulator without known mistakes says.
func same(r graph.Resource) graph.Resource { return r }

func lines(p plan.Plan) string {
	var b strings.Builder
	for _, s := range p.Steps {
		fmt.Fprintln(&b, s)
		for _, c := range s.Changes {
			fmt.Fprintln(&b, "  ", c)
		}
	}
	return b.String()
}

// TestDirectRegion builds every topology in the local region, in records mode.
func TestDirectRegion(t *testing.T) {
	t.Parallel()
	for _, x := range targettest.Topologies() {
		t.Run(x.Name, func(t *testing.T) {
			t.Parallel()
			cell(t, x.Name, "direct", "region")
			direct{cfg: regiontest.Start(t).Config(), known: same}.judge(t, x, func(*model.Input) {})
		})
	}
}

// TestDirectMoto builds every topology in moto, which shares no code and no author with the local region.
func TestDirectMoto(t *testing.T) { //nolint:tparallel // one moto for all: it takes one call at a time
	t.Parallel()
	var cfg sdk.Config // of one moto for all, started by the first that asks for it
	var image string   // one that it has
	owner := t
	for _, x := range targettest.Topologies() {
		t.Run(x.Name, func(t *testing.T) {
			cell(t, x.Name, "direct", "moto")
			if cfg.BaseEndpoint == nil {
				cfg = moto.StartUntil(t, owner)
				image = moto.Image(t, cfg)
			}
			direct{cfg: cfg, known: motoDefects}.judge(t, x, func(in *model.Input) {
				for name, x := range in.Images {
					x.ID = image
					in.Images[name] = x
				}
			})
		})
	}
}

// motoDefects hides two defects of moto 5.2.1: it puts the tags of a launch template into the template's data, and it
// does not return the description of a rule between groups.
func motoDefects(r graph.Resource) graph.Resource {
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
