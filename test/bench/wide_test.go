// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/autoscaling"

	"github.com/slipway-k8s/slipway/internal/region/ec2"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// The size of the widest cluster that is measured.
const (
	wideGroups    = 200
	wideGroupSize = 100
)

// widePlanCalls is the most that a plan of it may take: the calls of any plan, and the further pages of AWS's lists of
// Auto Scaling groups and launch templates.
const widePlanCalls = 40

// TestWidePlan measures the plan of a cluster with 200 groups and 20,000 machines, which exist as records in a region.
// The program runs as an operator would run it, so its memory is its own.
func TestWidePlan(t *testing.T) {
	if os.Getenv("SLIPWAY_BENCH") == "" {
		t.Skip("SKIPPED: a benchmark: make bench")
	}
	r := regiontest.StartWith(t, regiontest.Options{Quotas: ec2.Quotas{Addresses: 20, VCPUs: 80000, Volumes: 30000}}) //nolint:mnd // enough
	p := newProxy(t, r.URL)
	x := newSlipwayTool(t, p, "ssm:"+regiontest.ImageParameter,
		[]string{"AWS_ACCESS_KEY_ID=" + regiontest.AccessKey, "AWS_SECRET_ACCESS_KEY=" + regiontest.SecretKey})
	const name = "wide"
	if err := os.WriteFile(x.file(name), []byte(wideManifest(name)), 0o600); err != nil {
		t.Fatal(err)
	}
	x.run(t, createCommand, name)
	x.program.mustRun(t, []int{0}, "apply", name, "--yes")
	waitForMachines(t, r, wideGroups*wideGroupSize)
	p.reset(latency)
	plan := x.program.mustRun(t, []int{0}, "plan", name)
	calls, _ := p.callCounts()
	fmt.Printf("COUNT wide plan: %d groups, %d machines: %d calls of 50 ms, %.1f s, of which %.1f s of the program's processor, %d MB resident at most\n",
		wideGroups, wideGroups*wideGroupSize, calls, plan.wall.Seconds(), plan.cpu.Seconds(), plan.memory>>20) //nolint:mnd // MiB
	if calls > widePlanCalls {
		t.Errorf("%d calls, the goal is %d: %s", calls, widePlanCalls, strings.Join(p.callNames(), ", "))
	}
}

// wideManifest is a cluster with groups of workers over six zones.
func wideManifest(name string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `apiVersion: slipway.dev/v1alpha1
kind: Cluster
metadata: {name: %s}
spec:
  cloudProvider: {aws: {region: us-east-1}}
  networking:
    networkCIDR: 172.16.0.0/16
    podCIDR: 10.0.0.0/8
    serviceClusterIPRange: 172.20.0.0/16
    subnets:
`, name)
	const zones = "abcdef"
	for _, z := range zones {
		fmt.Fprintf(&b, "    - {name: public-%[1]c, zone: us-east-1%[1]c, type: Public}\n", z)
		fmt.Fprintf(&b, "    - {name: private-%[1]c, zone: us-east-1%[1]c, type: Private}\n", z)
	}
	group := func(group, spec string) {
		fmt.Fprintf(&b, `---
apiVersion: slipway.dev/v1alpha1
kind: InstanceGroup
metadata: {name: %s, labels: {slipway.dev/cluster: %s}}
spec: {%s}
`, group, name, spec)
	}
	group("control-plane", "role: ControlPlane, minSize: 3, maxSize: 3, subnets: [private-a, private-b, private-c]")
	for i := range wideGroups {
		group(fmt.Sprintf("workers-%03d", i), fmt.Sprintf("role: Worker, minSize: %d, maxSize: %[1]d, subnets: [private-%c]",
			wideGroupSize, zones[i%len(zones)]))
	}
	return b.String()
}

// waitForMachines waits until the groups of workers have launched their machines.
func waitForMachines(t *testing.T, r regiontest.Region, want int) {
	t.Helper()
	api := autoscaling.NewFromConfig(r.AWSConfig())
	for deadline := time.Now().Add(10 * time.Minute); ; time.Sleep(time.Second) {
		machines := 0
		pages := autoscaling.NewDescribeAutoScalingGroupsPaginator(api, &autoscaling.DescribeAutoScalingGroupsInput{})
		for pages.HasMorePages() {
			page, err := pages.NextPage(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, g := range page.AutoScalingGroups {
				machines += len(g.Instances)
			}
		}
		if machines >= want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d machines after 10 minutes, want %d", machines, want)
		}
	}
}
