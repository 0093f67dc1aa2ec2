// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/manifest"
	"github.com/slipway-k8s/slipway/internal/region/ec2"
	"github.com/slipway-k8s/slipway/internal/region/fault"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
	"github.com/slipway-k8s/slipway/internal/region/server"
)

// The clusters of the property test. The name of one is a prefix of the name of the other.
const testCluster, neighbourCluster = "demo", "demo-2"

// fixture is the initial state of every case of the property test.
type fixture struct {
	bothClusters       regiontest.Snapshot // both clusters
	neighbourInventory []string            // the inventory with the neighbour only
	neighbourResources []string            // what the neighbour has, byte for byte
}

// quotas allow two clusters.
func quotas() ec2.Quotas { return ec2.Quotas{Addresses: 20} }

func newFixture(t *testing.T) (g fixture) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := regiontest.StartWith(t, regiontest.Options{InProcess: true, VisibilityDelay: regiontest.LikeAWS, Quotas: quotas()})
		apply := func(name string) {
			graph := mustBuildGraph(t, newHASet(t, name))
			if err := newEngine(r.AWSConfig(), name).run(t.Context(), graph); err != nil {
				t.Fatal(err)
			}
			waitForRegion()
			if p, err := newEngine(r.AWSConfig(), name).plan(t.Context(), graph); err != nil || !p.IsEmpty() {
				t.Fatalf("%s: %v %v", name, planLines(p), err)
			}
		}
		apply(neighbourCluster)
		g.neighbourInventory = r.Inventory(t)
		apply(testCluster)
		g.bothClusters, g.neighbourResources = r.Snapshot(t), r.ClusterRecords(t, neighbourCluster)
	})
	return g
}

// limitCases lowers rapid's default number of cases, since each case is the whole life of a
// cluster. A number that is set explicitly stays.
func limitCases(t *testing.T, cases string) {
	t.Helper()
	f := flag.Lookup("rapid.checks")
	if f == nil || f.Value.String() != f.DefValue {
		return
	}
	if err := f.Value.Set(cases); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Value.Set(f.DefValue) }) // it was a value of the flag
}

// TestProperties subjects a cluster to edits of its manifests, changes outside of Slipway, and all
// kinds of failures in any order, and finally deletes it. In every case, runs converge and the plan
// is then empty, plans change nothing and have a valid order, the neighbouring cluster is
// unchanged, and delete leaves nothing.
func TestProperties(t *testing.T) {
	limitCases(t, "15")
	base := newFixture(t)
	var lives, runs, failures, edits, changes atomic.Int32
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(withoutDeadline{t}, func(rt *rapid.T) {
			r, stop := regiontest.StartStoppable(rt, regiontest.Options{InProcess: true, VisibilityDelay: regiontest.LikeAWS, Snapshot: base.bothClusters, Quotas: quotas()})
			defer stop()
			defer time.Sleep(time.Minute) // killed clients' waits end
			sc := &scenario{T: rt, ctx: t.Context(), region: r, set: newHASet(t, testCluster)}
			for range rapid.IntRange(1, 4).Draw(rt, "steps") {
				if rapid.Bool().Draw(rt, "edit") {
					sc.editManifest()
				} else {
					sc.changeResources()
				}
				sc.converge(mustBuildGraph(t, sc.set))
			}
			sc.converge(&graph.Graph{})
			waitForRegion()
			if diff := cmp.Diff(base.neighbourInventory, r.Inventory(rt)); diff != "" {
				rt.Fatalf("delete leaves (-neighbour alone +left):\n%s", diff)
			}
			if diff := cmp.Diff(base.neighbourResources, r.ClusterRecords(rt, neighbourCluster)); diff != "" {
				rt.Fatalf("the neighbour was changed:\n%s", diff)
			}
			lives.Add(1)
			runs.Add(sc.runs)
			failures.Add(sc.failures)
			edits.Add(sc.edits)
			changes.Add(sc.changes)
		})
	})
	printFigure(t, "properties: %d clusters next to one whose name has the same prefix: %d edits, %d changes outside of Slipway, %d runs, %d of them with a fault (killed, throttled, denied, response lost)",
		lives.Load(), edits.Load(), changes.Load(), runs.Load(), failures.Load())
}

// withoutDeadline hides the deadline of the test, which has no meaning in a bubble's time.
type withoutDeadline struct{ testing.TB }

// scenario is one case.
type scenario struct {
	*rapid.T
	ctx                            context.Context
	region                         regiontest.Region
	set                            manifest.Set
	runs, failures, edits, changes int32
}

// editManifest changes the manifests at random. It skips changes that would be invalid.
func (sc *scenario) editManifest() {
	next := sc.set
	next.Groups = slices.Clone(next.Groups)
	what := rapid.SampledFrom([]string{"size", "add", "remove", "type", "tags", "access", "disk", "zones", "etcd"}).Draw(sc.T, "what")
	worker := slices.IndexFunc(next.Groups, func(g v1alpha1.InstanceGroup) bool { return g.Metadata.Name == "workers" })
	g := &next.Groups[worker]
	switch what {
	case "size":
		g.Spec.MinSize = new(rapid.IntRange(0, 3).Draw(sc.T, "min"))
		g.Spec.MaxSize = new(*g.Spec.MinSize + rapid.IntRange(0, 3).Draw(sc.T, "more"))
	case "add":
		extra := *g
		extra.Metadata.Name = rapid.SampledFrom([]string{"extra", "workers-2", "gpu"}).Draw(sc.T, "name")
		extra.Spec.MinSize, extra.Spec.MaxSize = new(1), new(1)
		next.Groups = slices.DeleteFunc(next.Groups, func(have v1alpha1.InstanceGroup) bool { return have.Metadata.Name == extra.Metadata.Name })
		next.Groups = append(next.Groups, extra)
	case "remove":
		name := rapid.SampledFrom([]string{"extra", "workers-2", "gpu"}).Draw(sc.T, "name")
		next.Groups = slices.DeleteFunc(next.Groups, func(have v1alpha1.InstanceGroup) bool { return have.Metadata.Name == name })
	case "type":
		g.Spec.MachineType = rapid.SampledFrom([]string{"t3.large", "t3.xlarge", "m5.large"}).Draw(sc.T, "type")
	case "tags":
		next.Cluster.Spec.Tags = rapid.MapOfN(rapid.SampledFrom([]string{"team", "cost-centre", "Env"}), rapid.StringMatching(`[a-zA-Z0-9 ._:/=+@-]{1,20}`), 0, 3).Draw(sc.T, "tags")
	case "access":
		next.Cluster.Spec.API.Access = slices.Sorted(maps.Keys(rapid.MapOfN(rapid.SampledFrom([]string{"0.0.0.0/0", "10.1.0.0/16", "192.0.2.0/24"}), rapid.Just(true), 1, 3).Draw(sc.T, "access")))
	case "disk":
		g.Spec.RootVolume.Size = rapid.IntRange(20, 200).Draw(sc.T, "size")
	case "zones":
		g.Spec.Subnets = slices.Sorted(maps.Keys(rapid.MapOfN(rapid.SampledFrom([]string{"private-a", "private-b", "private-c"}), rapid.Just(true), 1, 3).Draw(sc.T, "subnets")))
	case "etcd":
		next.Cluster.Spec.Etcd.Volume.IOPS = rapid.IntRange(3000, 6000).Draw(sc.T, "iops")
	}
	if err := manifest.Validate(next).Err(); err != nil {
		sc.Logf("edit %s is not valid: %v", what, err)
		return
	}
	sc.Logf("edit %s", what)
	sc.set = next
	sc.edits++
}

// changeResources makes some changes outside of Slipway. It skips those that an earlier change has
// made impossible.
func (sc *scenario) changeResources() {
	g, err := buildGraph(sc.set)
	if err != nil {
		sc.Fatal(err)
	}
	p, err := newEngine(sc.region.AWSConfig(), testCluster).plan(sc.ctx, g)
	if err != nil {
		sc.Fatal(err)
	}
	ids := map[graph.Addr]string{}
	for _, n := range g.Nodes() {
		if id := p.ResourceID(n.Addr); id != "" {
			ids[n.Addr] = id
		}
	}
	h := newAWSClients(sc.ctx, sc.region.AWSConfig(), ids)
	all := drifts()
	for range rapid.IntRange(1, 3).Draw(sc.T, "changes") {
		d := all[rapid.IntRange(0, len(all)-1).Draw(sc.T, "drift")]
		if err := sc.tryDrift(d, h); err != nil {
			sc.Logf("%s: %v", d.description, err)
			continue
		}
		sc.Logf("%s", d.description)
		sc.changes++
	}
	waitForRegion()
}

// tryDrift makes a change. It returns an error if a resource no longer exists.
func (*scenario) tryDrift(d drift, h awsClients) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%v", v)
		}
	}()
	return d.change(h)
}

// converge runs until the region matches g, first with failures. A run without a failure must
// converge.
func (sc *scenario) converge(g *graph.Graph) {
	for range rapid.IntRange(0, 3).Draw(sc.T, "disturbed runs") {
		sc.failures++
		sc.runWithFault(g)
	}
	const most = 2 // the second one is for what the first could not know, such as a rule that came while it ran
	var err error
	for range most {
		sc.runs++
		e := newEngine(sc.region.AWSConfig(), testCluster)
		before := sc.countMutations()
		p, planErr := e.plan(sc.ctx, g)
		if planErr != nil {
			sc.Fatalf("plan: %v", planErr)
		}
		if n := sc.countMutations() - before; n != 0 {
			sc.Fatalf("plan made %d mutating calls", n)
		}
		sc.checkStepOrder(p, g)
		if err = (plan.Applier{Cloud: e.cloud, Now: time.Now}).Apply(sc.ctx, p); err == nil {
			break
		}
		sc.Logf("run: %v", err)
	}
	if err != nil {
		sc.Fatalf("does not converge: %v", err)
	}
	if p, err := newEngine(sc.region.AWSConfig(), testCluster).plan(sc.ctx, g); err != nil || !p.IsEmpty() {
		sc.Fatalf("the second plan is not empty: %v\n%s", err, strings.Join(planLines(p), "\n"))
	}
}

// runWithFault is a run with one injected failure.
func (sc *scenario) runWithFault(g *graph.Graph) {
	sc.runs++
	nth := rapid.IntRange(1, 40).Draw(sc.T, "nth")
	effect := rapid.SampledFrom([]fault.Effect{fault.EffectFail, fault.EffectThrottle, fault.EffectDropAnswer, fault.EffectClose, fault.EffectKill, fault.EffectKillAfter}).Draw(sc.T, "effect")
	cfg, ctx := sc.region.AWSConfig(), sc.ctx
	switch effect {
	case fault.EffectKill, fault.EffectKillAfter:
		kill, cancel := context.WithCancel(ctx)
		defer cancel()
		ctx, cfg = kill, sc.region.NewKillableClient(nth, effect == fault.EffectKillAfter, cancel).AWSConfig(cfg)
	default:
		rule := fault.Rule{Effect: effect, Nth: nth, Count: rapid.IntRange(1, 10).Draw(sc.T, "count"), Mutating: rapid.Bool().Draw(sc.T, "mutating")}
		if _, err := sc.region.Faults.AddRule(rule); err != nil {
			sc.Fatal(err)
		}
	}
	err := newEngine(cfg, testCluster).run(ctx, g)
	sc.Logf("%s at %d: %v", effect, nth, err)
	sc.region.Faults.ClearRules()
	waitForRegion()
}

func (sc *scenario) countMutations() int {
	n := 0
	for call, times := range sc.region.CallCounts() {
		if _, op, _ := strings.Cut(call, ":"); server.IsMutating(op) {
			n += times
		}
	}
	return n
}

// checkStepOrder checks the order of a plan: dependencies are created first, and deletions come
// last.
func (sc *scenario) checkStepOrder(p plan.Plan, g *graph.Graph) {
	at, deletes := map[graph.Addr]int{}, false
	for i, s := range p.Steps {
		if s.Action == plan.Delete {
			deletes = true
			continue
		}
		if deletes {
			sc.Fatalf("%s comes after a deletion", s.Addr)
		}
		at[s.Addr] = i
	}
	for a, i := range at {
		for _, d := range g.Node(a).Deps {
			if j, ok := at[d]; ok && j > i {
				sc.Fatalf("%s comes before %s, which it needs", a, d)
			}
		}
	}
	kinds := map[string]int{}
	for i, s := range p.Steps {
		if s.Action == plan.Delete {
			kinds[s.Kind] = i
		}
	}
	if vpc, ok := kinds["vpc"]; ok && vpc != len(p.Steps)-1 {
		for _, inside := range []string{"subnet", "security-group", "route-table", "gateway-attachment", "load-balancer", "nat-gateway"} {
			if kinds[inside] > vpc {
				sc.Fatalf("a %s is deleted after its VPC", inside)
			}
		}
	}
}
