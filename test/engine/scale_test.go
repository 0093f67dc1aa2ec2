// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/infra/aws"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/manifest"
	"github.com/slipway-k8s/slipway/internal/region/ec2"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// newWideSet is a cluster with groups of workers over six zones. Each group has size machines.
func newWideSet(tb testing.TB, groups, size int) manifest.Set {
	tb.Helper()
	var b strings.Builder
	b.WriteString("apiVersion: slipway.dev/v1alpha1\nkind: Cluster\nmetadata: {name: wide}\nspec:\n  cloudProvider: {aws: {region: us-east-1}}\n  networking:\n    networkCIDR: 172.16.0.0/16\n    podCIDR: 10.0.0.0/8\n    serviceClusterIPRange: 172.20.0.0/16\n    subnets:\n")
	const zones = "abcdef"
	for _, z := range zones {
		fmt.Fprintf(&b, "    - {name: public-%[1]c, zone: us-east-1%[1]c, type: Public}\n    - {name: private-%[1]c, zone: us-east-1%[1]c, type: Private}\n", z)
	}
	group := func(name, spec string) {
		fmt.Fprintf(&b, "---\napiVersion: slipway.dev/v1alpha1\nkind: InstanceGroup\nmetadata: {name: %s, labels: {slipway.dev/cluster: wide}}\nspec: {%s}\n", name, spec)
	}
	group("control-plane", "role: ControlPlane, minSize: 3, maxSize: 3, subnets: [private-a, private-b, private-c]")
	for i := range groups {
		group(fmt.Sprintf("workers-%03d", i), fmt.Sprintf("role: Worker, minSize: %d, maxSize: %d, subnets: [private-%c]", size, size, zones[i%len(zones)]))
	}
	set, fs := manifest.Parse([]byte(b.String()))
	set = manifest.Default(set)
	if err := append(fs, manifest.Validate(set)...).Err(); err != nil {
		tb.Fatal(err)
	}
	return set
}

// scaleSize is the size of a cluster: groups of workers, and machines of each.
type scaleSize struct{ groups, size int }

// scaleSizes returns the sizes that TestScale compares. The region needs minutes of the processor for 20,000 machines,
// so only make bench tries that many.
func scaleSizes() []scaleSize {
	if os.Getenv("SLIPWAY_BENCH") != "" {
		return []scaleSize{{4, 1}, {200, 100}}
	}
	return []scaleSize{{4, 1}, {100, 50}}
}

// TestScale plans a cluster of 100 groups over six zones with 5,000 machines, in records mode. The
// AWS calls of a plan without changes do not grow with the number of machines, and with the number of groups only by
// the pages of AWS's lists.
func TestScale(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short, since it creates 5,000 machines")
	}
	quotas := ec2.Quotas{Addresses: 20, VCPUs: 80000, Volumes: 30000}
	calls := map[int]map[string]int{}
	for _, x := range scaleSizes() {
		r := regiontest.StartWith(t, regiontest.Options{InProcess: true, VisibilityDelay: regiontest.LikeAWS, Quotas: quotas})
		g := mustBuildGraph(t, newWideSet(t, x.groups, x.size))
		e := newEngine(r.AWSConfig(), "wide")
		begin := time.Now()
		if err := e.run(t.Context(), g); err != nil {
			t.Fatal(err)
		}
		applied := time.Since(begin)
		made, _ := e.calls.TotalCalls()

		e = newEngine(r.AWSConfig(), "wide")
		begin = time.Now()
		have, err := e.cloud.Read(aws.WithRecordedHooks(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		read := time.Since(begin)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		begin = time.Now()
		g = mustBuildGraph(t, newWideSet(t, x.groups, x.size))
		p, fs := plan.Compute(g, have, plan.Options{})
		planned := time.Since(begin)
		runtime.ReadMemStats(&after)
		if err := fs.Err(); err != nil || !p.IsEmpty() {
			t.Fatalf("the second plan is not empty: %v %v", planLines(p), err)
		}
		calls[x.groups] = e.calls.Calls()
		n, mutating := e.calls.TotalCalls()
		const mega = 1 << 20
		printFigure(t, "scale: %d groups, %d machines: first apply %d calls in %s; plan without changes: %d calls, read %s (both with the region's own work), graph and plan %s, %d allocations, %.1f MB allocated",
			x.groups, x.groups*x.size+3, made, applied.Round(10*time.Millisecond), n, read.Round(time.Millisecond), planned.Round(time.Millisecond),
			after.Mallocs-before.Mallocs, float64(after.TotalAlloc-before.TotalAlloc)/mega)
		if mutating != 0 {
			t.Errorf("a plan made %d mutating calls", mutating)
		}
	}
	const page = 100 // groups of Auto Scaling
	small, wide := calls[4], scaleSizes()[1].groups
	small["Auto Scaling:DescribeAutoScalingGroups"] = (wide + 3 + page - 1) / page
	if !maps.Equal(small, calls[wide]) {
		for _, op := range slices.Sorted(maps.Keys(calls[wide])) {
			if small[op] != calls[wide][op] {
				t.Errorf("%s: %d calls with 4 groups, %d with %d", op, small[op], calls[wide][op], wide)
			}
		}
	}
}
