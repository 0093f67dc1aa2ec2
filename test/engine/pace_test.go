// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	astypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/region/fault"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// slowTransport is an HTTP transport that adds a delay to each call.
type slowTransport struct {
	next  http.RoundTripper
	delay time.Duration
}

func (s slowTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(s.delay)
	return s.next.RoundTrip(r)
}

func slowConfig(r regiontest.Region, d time.Duration) sdk.Config {
	cfg := r.AWSConfig()
	cfg.HTTPClient = &http.Client{Transport: slowTransport{r.Transport(), d}}
	return cfg
}

// TestThrottledApplyConverges applies and deletes the highly available cluster in a region with a
// low rate limit. Both succeed at the first attempt, with few throttled calls.
func TestThrottledApplyConverges(t *testing.T) {
	for _, k := range []float64{1, 3, 10} {
		synctest.Test(t, func(t *testing.T) {
			limit := &regiontest.RateLimit{ReadsPerSecond: 2 * k, ChangesPerSecond: k}
			r := regiontest.StartWith(t, regiontest.Options{InProcess: true, VisibilityDelay: regiontest.LikeAWS, RateLimit: limit})
			g := mustBuildGraph(t, newHASet(t, "demo"))
			begin := time.Now()
			e := newEngine(slowConfig(r, 20*time.Millisecond), "demo")
			if err := e.run(t.Context(), g); err != nil {
				t.Fatalf("apply at %g calls/s: %v", k, err)
			}
			took := time.Since(begin)
			all, _ := e.calls.TotalCalls()
			refused := limit.ThrottledCalls()
			printFigure(t, "throttled apply: at %g changes and %g reads a second of each API, %d calls, %d of them throttled (%d%%), %s of the test's time",
				k, 2*k, all, refused, 100*refused/all, took.Round(time.Second))
			if stats := e.calls.Stats(); stats.Throttled != refused || stats.Retries != refused+stats.NotPropagated {
				t.Errorf("%d were throttled, %+v", refused, stats)
			}
			if refused > (all-refused)/2 {
				t.Errorf("%d of %d calls were wasted", refused, all)
			}
			if p, err := newEngine(slowConfig(r, 20*time.Millisecond), "demo").plan(t.Context(), g); err != nil || !p.IsEmpty() {
				t.Errorf("the second plan is not empty: %v %v", planLines(p), err)
			}
			if err := newEngine(slowConfig(r, 20*time.Millisecond), "demo").run(t.Context(), &graph.Graph{}); err != nil {
				t.Errorf("delete at %g calls/s: %v", k, err)
			}
			time.Sleep(time.Minute)
		})
	}
}

// TestWhatIsNotSeenYet applies the cluster in a region in which the first n calls about a new
// resource do not find it. Apply succeeds, the next plan is empty at once, and there are as many
// resources as without the delay.
func TestWhatIsNotSeenYet(t *testing.T) {
	var want []string
	for _, n := range []int{0, 1, 2, 5} {
		synctest.Test(t, func(t *testing.T) {
			r := regiontest.StartWith(t, regiontest.Options{InProcess: true, VisibilityDelay: regiontest.LikeAWS})
			r.DelayVisibility(n)
			g := mustBuildGraph(t, newHASet(t, "demo"))
			e := newEngine(r.AWSConfig(), "demo")
			if err := e.run(t.Context(), g); err != nil {
				t.Fatalf("%d stale calls: %v", n, err)
			}
			p, err := newEngine(r.AWSConfig(), "demo").plan(t.Context(), g)
			if err != nil || !p.IsEmpty() {
				t.Errorf("%d stale calls: the second plan is not empty: %v\n%s", n, err, strings.Join(planLines(p), "\n"))
			}
			stats := e.calls.Stats()
			all, _ := e.calls.TotalCalls()
			printFigure(t, "eventual consistency: the first %d calls about a new resource do not find it: %d calls, %d of them repeats", n, all, stats.NotPropagated)
			if n > 0 && stats.NotPropagated == 0 {
				t.Error("nothing was repeated")
			}
			changeUnseen(t, r)
			r.DelayVisibility(0)
			waitForRegion()
			got := r.Inventory(t)
			if n == 0 {
				want = got
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%d stale calls: differs from a region without them (-without +here):\n%s", n, diff)
			}
			time.Sleep(time.Minute)
		})
	}
}

// TestCostOfTheVisibilityDelay applies the highly available cluster where what is new is seen at once, and where it is seen after a
// while as in a region that people start. A call takes 50 ms. The delay costs few calls and little time, and no machine starts later
// because its launch template was not seen.
func TestCostOfTheVisibilityDelay(t *testing.T) {
	type cost struct {
		calls, repeats int
		took           time.Duration
	}
	measured := map[time.Duration]cost{}
	for _, delay := range []time.Duration{0, regiontest.LikeAWS} {
		synctest.Test(t, func(t *testing.T) {
			r := regiontest.StartWith(t, regiontest.Options{InProcess: true, VisibilityDelay: delay})
			g := mustBuildGraph(t, newHASet(t, "demo"))
			begin := time.Now()
			e := newEngine(slowConfig(r, callLatency), "demo")
			if err := e.run(t.Context(), g); err != nil {
				t.Fatal(err)
			}
			all, _ := e.calls.TotalCalls()
			measured[delay] = cost{calls: all, repeats: e.calls.Stats().NotPropagated, took: time.Since(begin)}
			out, err := autoscaling.NewFromConfig(r.AWSConfig()).DescribeScalingActivities(t.Context(), &autoscaling.DescribeScalingActivitiesInput{})
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range out.Activities {
				if a.StatusCode == astypes.ScalingActivityStatusCodeFailed {
					t.Errorf("delay %s: %s", delay, sdk.ToString(a.StatusMessage))
				}
			}
			time.Sleep(time.Minute)
		})
	}
	at, late := measured[0], measured[regiontest.LikeAWS]
	printFigure(t, "visibility delay of %s: apply makes %d calls in %.1f s, %d of them repeats; without the delay %d calls in %.1f s",
		regiontest.LikeAWS, late.calls, late.took.Seconds(), late.repeats, at.calls, at.took.Seconds())
	if at.repeats > 0 || late.repeats == 0 || late.calls > at.calls*3/2 || late.took > at.took+2*time.Second {
		t.Errorf("with the delay %+v, without %+v", late, at)
	}
}

// changeUnseen changes the tags of all resources of the cluster. The next plan is empty at once.
func changeUnseen(t *testing.T, r regiontest.Region) {
	t.Helper()
	set := newHASet(t, "demo")
	set.Cluster.Spec.Tags = map[string]string{"team": "a"}
	g := mustBuildGraph(t, set)
	if err := newEngine(r.AWSConfig(), "demo").run(t.Context(), g); err != nil {
		t.Fatalf("change the tags: %v", err)
	}
	p, err := newEngine(r.AWSConfig(), "demo").plan(t.Context(), g)
	if err != nil || !p.IsEmpty() {
		t.Errorf("the plan after other tags is not empty: %v\n%s", err, strings.Join(planLines(p), "\n"))
	}
}

// TestFunctionIsNotSeenYet: a function whose role, policies and rules are seen late is created, invoked and deleted.
func TestFunctionIsNotSeenYet(t *testing.T) {
	t.Parallel()
	r := regiontest.StartWith(t, regiontest.Options{VisibilityDelay: regiontest.LikeAWS})
	g := onlyFunction(newDNSGraph(t, r))
	empty := r.Inventory(t)
	r.DelayVisibility(2)
	if err := runFunction(t.Context(), r.AWSConfig(), g); err != nil {
		t.Fatal(err)
	}
	mustPlanNothing(t, r.AWSConfig(), g, "seen late")
	if err := runFunction(t.Context(), r.AWSConfig(), &graph.Graph{}); err != nil {
		t.Fatal(err)
	}
	r.DelayVisibility(0)
	checkInventory(t, r, empty, "deleted")
}

// TestCriticalPath applies the cluster in a region in which NAT gateways, load balancers and
// machines take as long as in AWS. The apply takes hardly longer than the longest chain of
// dependent resources.
func TestCriticalPath(t *testing.T) {
	takes := map[string]time.Duration{"nat-gateway": 100 * time.Second, "load-balancer": 150 * time.Second, "instance": 30 * time.Second}
	for _, d := range []time.Duration{0, 50 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			r := regiontest.StartWith(t, regiontest.Options{InProcess: true, VisibilityDelay: regiontest.LikeAWS})
			for _, kind := range slices.Sorted(maps.Keys(takes)) {
				if _, err := r.Faults.AddRule(fault.Rule{Effect: fault.EffectProvision, Kind: kind, Delay: fault.Duration(takes[kind])}); err != nil {
					t.Fatal(err)
				}
			}
			g := mustBuildGraph(t, newHASet(t, "demo"))
			e := newEngine(slowConfig(r, d), "demo")
			p, err := e.plan(t.Context(), g)
			if err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			if err := (plan.Applier{Cloud: e.cloud, Now: time.Now, RetryTimeout: time.Hour}).Apply(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			took, chain := time.Since(begin), criticalPath(g, takes)
			ratio := took.Seconds() / chain.Seconds()
			looks := map[string]int{}
			for op, n := range e.calls.Calls() {
				if strings.Contains(op, "Describe") {
					looks[op] = n
				}
			}
			printFigure(t, "critical path: NAT 100 s, load balancer 150 s, machine 30 s, %s a call: apply takes %.1f s, its longest chain %.0f s, ratio %.3f (goal 1.05); looks: %d at %d gateways, %d at load balancers, %d at groups",
				d, took.Seconds(), chain.Seconds(), ratio, looks["EC2:DescribeNatGateways"], 3, looks["Elastic Load Balancing v2:DescribeLoadBalancers"], looks["Auto Scaling:DescribeAutoScalingGroups"])
			if ratio > 1.05 {
				t.Errorf("apply takes %.3f times its longest chain", ratio)
			}
			time.Sleep(time.Minute)
		})
	}
}

// criticalPath returns the duration of an apply whose calls take no time: dependents wait for a NAT
// gateway, while load balancers and machines become ready concurrently with other steps.
func criticalPath(g *graph.Graph, takes map[string]time.Duration) time.Duration {
	ready := map[graph.Addr]time.Duration{}
	var all time.Duration
	for _, n := range g.Nodes() {
		var at time.Duration
		for _, d := range n.Deps {
			at = max(at, ready[d])
		}
		end := at
		switch n.Resource.Kind().Name {
		case "nat-gateway":
			at += takes["nat-gateway"]
			end = at
		case "load-balancer":
			end += takes["load-balancer"]
		case "autoscaling-group":
			end += takes["instance"]
		}
		ready[n.Addr], all = at, max(all, end)
	}
	return all
}
