// SPDX-License-Identifier: Apache-2.0

package cost_test

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/cost"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/infra/render/rendertest"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

const (
	region = "us-east-1"
	// rounded prices make the sums in the tests easy to follow: 1 and 2 dollars an hour
	testTable = `currency USD
source old 2020-01-02 a test
source new 2026-03-04 a test
us-east-1 ec2/small 1 hour new
us-east-1 ec2/large 2 hour new
us-east-1 ebs/gp3 0.1 GiB-month new
us-east-1 ebs/gp3-iops 0.01 IOPS-month new
us-east-1 ebs/gp3-throughput 0.5 MiB/s-month old
us-east-1 nat-gateway 0.5 hour new
us-east-1 network-load-balancer 0.1 hour new
us-east-1 interface-endpoint 0.01 hour new
* public-ipv4 0.01 hour new
* kms-key 1 month new
* hosted-zone 0.5 month new
`
)

func parse(t *testing.T, text string) cost.Table {
	t.Helper()
	table, err := cost.ParseTable(text)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// desired are the nodes of a graph, with references to each other.
func desired(g *graph.Graph) (out []plan.DesiredResource) {
	for _, n := range g.Nodes() {
		out = append(out, plan.DesiredResource{Addr: n.Addr, Resource: n.Resource})
	}
	return out
}

// existing are the nodes of a graph as AWS has them: every reference is the identity of what it refers to.
func existing(g *graph.Graph) (out []plan.ActualResource) {
	for _, n := range g.Nodes() {
		r := graph.Resolve(n.Resource, func(s graph.Symbol) (string, bool) { return "id-of-" + s.String(), true })
		if group, ok := r.(awskind.AutoScalingGroup); ok {
			group.DesiredCapacity = max(group.DesiredCapacity, group.MinSize)
			r = group
		}
		out = append(out, plan.ActualResource{Addr: n.Addr, ID: "id-of-" + string(n.Addr), Resource: r})
	}
	return out
}

// group returns a graph with a group of machines, and what change makes of it.
func group(public bool, change func(*awskind.AutoScalingGroup, *awskind.LaunchTemplateData)) *graph.Graph {
	g := &graph.Graph{}
	vpc := graph.Add(g, "main", awskind.VPC{})
	subnet := graph.Add(g, "a", awskind.Subnet{VPC: vpc, MapPublicIP: public})
	data := awskind.LaunchTemplateData{InstanceType: "small"}
	asg := awskind.AutoScalingGroup{MinSize: 2, MaxSize: 5, Subnets: []graph.Ref[awskind.Subnet]{subnet}}
	if change != nil {
		change(&asg, &data)
	}
	template := graph.Add(g, "w", awskind.LaunchTemplate{Data: data})
	if len(asg.MixedInstances.Launch.Overrides) > 0 {
		asg.MixedInstances.Launch.Template.ID = template
	} else {
		asg.Template.ID = template
	}
	graph.Add(g, "w", asg)
	return g
}

// lines are the items of an estimate, as "count what amount".
func lines(c plan.MonthlyCost) (out []string) {
	for _, i := range c.Items {
		bound := ""
		if i.UpperBound {
			bound = " at most"
		}
		out = append(out, fmt.Sprintf("%d→%d %s: %.2f→%.2f%s", i.CountBefore, i.CountAfter, i.What, i.Before, i.After, bound))
	}
	return out
}

// TestChargesOfEachResource is a table of resources and what they cost in a month of 730 hours.
func TestChargesOfEachResource(t *testing.T) {
	t.Parallel()
	type (
		asg  = awskind.AutoScalingGroup
		data = awskind.LaunchTemplateData
	)
	mixed := func(types ...string) func(*asg) {
		return func(g *asg) {
			g.MinSize = 4
			for _, name := range types {
				g.MixedInstances.Launch.Overrides = append(g.MixedInstances.Launch.Overrides, awskind.InstanceTypeOverride{InstanceType: name})
			}
		}
	}
	root := []awskind.BlockDevice{{EBS: awskind.EBS{VolumeType: "gp3", VolumeSize: 20, IOPS: 3000, Throughput: 125}}}
	for name, c := range map[string]struct {
		graph    *graph.Graph
		want     []string
		unpriced []string
	}{
		"machines and their root volumes": {
			graph: group(false, func(_ *asg, d *data) { d.BlockDevices = root }),
			want:  []string{"0→2 small: 0.00→1460.00", "0→2 gp3 volume, 20 GiB: 0.00→4.00"},
		},
		"machines with public addresses": {
			graph: group(true, nil),
			want:  []string{"0→2 small: 0.00→1460.00", "0→2 public IPv4 address: 0.00→14.60"},
		},
		"a group of size zero": {graph: group(true, func(g *asg, _ *data) { g.MinSize = 0 })},
		"an instance type without a price": {
			graph:    group(false, func(_ *asg, d *data) { d.InstanceType = "x99.huge" }),
			unpriced: []string{"x99.huge in us-east-1 (autoscaling-group/w)"},
		},
		"a stopped warm pool pays for its volumes": {
			graph: group(false, func(g *asg, d *data) {
				d.BlockDevices = root
				g.WarmPool = awskind.WarmPool{State: "Stopped", MaxPrepared: -1}
			}),
			want: []string{"0→2 small: 0.00→1460.00", "0→5 gp3 volume, 20 GiB: 0.00→10.00"},
		},
		"a running warm pool pays for machines": {
			graph: group(false, func(g *asg, _ *data) { g.WarmPool = awskind.WarmPool{State: "Running", MinSize: 1, MaxPrepared: 2} }),
			want:  []string{"0→3 small: 0.00→2190.00"},
		},
		"two on demand, half of the others spot": {
			graph: group(false, func(g *asg, _ *data) {
				mixed("small")(g)
				g.MixedInstances.Distribution = awskind.InstancesDistribution{OnDemandBase: 2, OnDemandPercentage: 50}
			}),
			want: []string{"0→3 small: 0.00→2190.00", "0→1 small, spot: 0.00→730.00 at most"},
		},
		"a maximum price for spot": {
			graph: group(false, func(g *asg, _ *data) {
				mixed("small")(g)
				g.MixedInstances.Distribution = awskind.InstancesDistribution{SpotMaxPrice: "0.25"}
			}),
			want: []string{"0→4 small, spot: 0.00→730.00 at most"},
		},
		"several types count as the most expensive": {
			graph: group(false, func(g *asg, _ *data) {
				mixed("small", "large")(g)
				g.MixedInstances.Distribution = awskind.InstancesDistribution{OnDemandPercentage: 100}
			}),
			want: []string{"0→4 small or 1 other types: 0.00→5840.00 at most"},
		},
		"one of several types without a price": {
			graph: group(false, func(g *asg, _ *data) {
				mixed("small", "unheard.of")(g)
				g.MixedInstances.Distribution = awskind.InstancesDistribution{OnDemandPercentage: 100}
			}),
			unpriced: []string{"small or 1 other types in us-east-1 (autoscaling-group/w)"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := cost.Estimate(parse(t, testTable), region, cost.Resources{Desired: desired(c.graph)})
			if diff := cmp.Diff(c.want, lines(got)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(append([]string{}, c.unpriced...), got.Unpriced); diff != "" {
				t.Errorf("unpriced: %s", diff)
			}
		})
	}
}

// TestNetworkAndStorage: the resources that are not machines, one of each.
func TestNetworkAndStorage(t *testing.T) {
	t.Parallel()
	g := &graph.Graph{}
	vpc := graph.Add(g, "main", awskind.VPC{})
	subnets := []graph.Ref[awskind.Subnet]{graph.Add(g, "a", awskind.Subnet{VPC: vpc}), graph.Add(g, "b", awskind.Subnet{VPC: vpc})}
	address := graph.Add(g, "nat", awskind.EIP{Domain: "vpc"})
	graph.Add(g, "nat", awskind.NATGateway{Subnet: subnets[0], Allocation: address})
	graph.Add(g, "api", awskind.LoadBalancer{Type: "network", Scheme: "internet-facing", Subnets: subnets})
	graph.Add(g, "inside", awskind.LoadBalancer{Type: "network", Scheme: "internal", Subnets: subnets})
	graph.Add(g, "other", awskind.LoadBalancer{Type: "application", Scheme: "internal", Subnets: subnets})
	graph.Add(g, "s3", awskind.VPCEndpoint{VPC: vpc, Type: awskind.EndpointGateway})
	graph.Add(g, "ec2", awskind.VPCEndpoint{VPC: vpc, Type: awskind.EndpointInterface, Subnets: subnets})
	graph.Add(g, "main", awskind.KMSKey{})
	graph.Add(g, "main", awskind.HostedZone{Name: "example.com"})
	graph.Add(g, "plain", awskind.Volume{VolumeType: "gp3", Size: 20})
	graph.Add(g, "fast", awskind.Volume{VolumeType: "gp3", Size: 20, IOPS: 4000, Throughput: 225})
	graph.Add(g, "io", awskind.Volume{VolumeType: "io2", Size: 20, IOPS: 500})
	got := cost.Estimate(parse(t, testTable), region, cost.Resources{Existing: existing(g)})
	if diff := cmp.Diff([]string{
		"1→0 NAT gateway: 365.00→0.00",
		"1→0 network load balancer: 73.00→0.00",
		"1→0 network load balancer: 73.00→0.00",
		"1→0 gp3 volume, 100 MiB/s above 125: 50.00→0.00",
		"2→0 public IPv4 address: 14.60→0.00",
		"2→0 interface endpoint in a zone: 14.60→0.00",
		"1→0 gp3 volume, 1000 IOPS above 3000: 10.00→0.00",
		"1→0 public IPv4 address: 7.30→0.00",
		"1→0 gp3 volume, 20 GiB: 2.00→0.00",
		"1→0 gp3 volume, 20 GiB: 2.00→0.00",
		"1→0 KMS key: 1.00→0.00",
		"1→0 hosted zone: 0.50→0.00",
	}, sortedByAmount(got)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{
		"application load balancer in us-east-1 (load-balancer/other)",
		"io2 volume, 20 GiB in us-east-1 (volume/io)", "io2 volume, 500 IOPS in us-east-1 (volume/io)",
	}, got.Unpriced); diff != "" {
		t.Error(diff)
	}
	if got.Before != 613 || got.After != 0 || got.PricesOf != "2020-01-02" {
		t.Errorf("%v → %v at prices of %s", got.Before, got.After, got.PricesOf)
	}
}

// sortedByAmount are the lines of an estimate, which must be in that order.
func sortedByAmount(c plan.MonthlyCost) []string {
	for i := 1; i < len(c.Items); i++ {
		if max(c.Items[i].Before, c.Items[i].After) > max(c.Items[i-1].Before, c.Items[i-1].After) {
			return []string{"the items are not in the order of their amounts"}
		}
	}
	return lines(c)
}

// TestAnElasticAddressReplacesThatOfItsMachine: the address of a self-healing single machine is paid once.
func TestAnElasticAddressReplacesThatOfItsMachine(t *testing.T) {
	t.Parallel()
	g := group(true, func(a *awskind.AutoScalingGroup, _ *awskind.LaunchTemplateData) { a.MinSize = 1 })
	graph.Add(g, "api", awskind.EIP{Tags: awskind.Tags{awskind.TagSlot: "a"}})
	got := cost.Estimate(parse(t, testTable), region, cost.Resources{Desired: desired(g)})
	if diff := cmp.Diff([]string{"0→1 small: 0.00→730.00", "0→1 public IPv4 address: 0.00→7.30"}, lines(got)); diff != "" {
		t.Error(diff)
	}
}

// TestAnAutoscalersSizeIsKept: a change of the template does not pretend to scale a group back.
func TestAnAutoscalersSizeIsKept(t *testing.T) {
	t.Parallel()
	have := existing(group(false, func(a *awskind.AutoScalingGroup, _ *awskind.LaunchTemplateData) { a.DesiredCapacity = 4 }))
	for name, c := range map[string]struct {
		minSize, maxSize int
		want             string
	}{
		"in its limits":   {2, 5, "4→4 small: 2920.00→2920.00"},
		"a lower maximum": {2, 3, "4→3 small: 2920.00→2190.00"},
		"a higher limit":  {5, 9, "4→5 small: 2920.00→3650.00"},
		"scaled to zero":  {0, 0, "4→0 small: 2920.00→0.00"},
	} {
		want := desired(group(false, func(a *awskind.AutoScalingGroup, _ *awskind.LaunchTemplateData) {
			a.MinSize, a.MaxSize = c.minSize, c.maxSize
		}))
		got := cost.Estimate(parse(t, testTable), region, cost.Resources{Existing: have, Desired: want})
		if diff := cmp.Diff([]string{c.want}, lines(got)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestReferencesToWhatExists: a desired group refers to its existing template by its id.
func TestReferencesToWhatExists(t *testing.T) {
	t.Parallel()
	have := existing(group(false, nil))
	want := make([]plan.DesiredResource, 0, len(have))
	for _, r := range have {
		if lt, ok := r.Resource.(awskind.LaunchTemplate); ok {
			lt.Data.InstanceType = "large"
			r.Resource = lt
		}
		want = append(want, plan.DesiredResource{Addr: r.Addr, Resource: r.Resource})
	}
	got := cost.Estimate(parse(t, testTable), region, cost.Resources{Existing: have, Desired: want})
	if diff := cmp.Diff([]string{"0→2 large: 0.00→2920.00", "2→0 small: 1460.00→0.00"}, lines(got)); diff != "" {
		t.Error(diff)
	}
	if got.Before != 1460 || got.After != 2920 {
		t.Errorf("%v → %v", got.Before, got.After)
	}
}

func TestKeptResourcesGoOnCosting(t *testing.T) {
	t.Parallel()
	g := &graph.Graph{}
	graph.Add(g, "etcd-a", awskind.Volume{VolumeType: "gp3", Size: 20})
	got := cost.Estimate(parse(t, testTable), region, cost.Resources{Kept: existing(g)})
	if got.Before != 2 || got.After != 2 {
		t.Errorf("%v → %v", got.Before, got.After)
	}
}

// TestEveryKindIsPricedOrFree: a kind that somebody adds must be decided about.
func TestEveryKindIsPricedOrFree(t *testing.T) {
	t.Parallel()
	for _, r := range awskind.AllKinds() {
		if _, ok := r.(awskind.AutoScalingGroup); ok {
			continue // its machines need a template
		}
		got := cost.Estimate(cost.ListPrices(), region, cost.Resources{Existing: []plan.ActualResource{{Addr: "a/b", Resource: r}}})
		for _, name := range got.Unpriced {
			if strings.HasPrefix(name, r.Kind().Name+" (") {
				t.Errorf("decide in addResource or isFree what a %s costs", r.Kind().Name)
			}
		}
	}
}

func TestOtherPartitionsAndRegions(t *testing.T) {
	t.Parallel()
	g := &graph.Graph{}
	graph.Add(g, "main", awskind.KMSKey{})
	graph.Add(g, "nat", awskind.NATGateway{})
	for region, want := range map[string]float64{"us-east-1": 366, "eu-west-9": 1, "cn-north-1": 0, "us-gov-west-1": 0} {
		got := cost.Estimate(parse(t, testTable), region, cost.Resources{Desired: desired(g)})
		if got.After != want || (want < 366) == (len(got.Unpriced) == 0) {
			t.Errorf("%s: %v, unpriced %v", region, got.After, got.Unpriced)
		}
	}
}

// TestDefaultCluster checks the sum of the default cluster with the price table of the repository, by hand:
// 5 t3.large at 0.0832, 3 NAT gateways at 0.045, 2 load balancers at 0.0225, 6 addresses at 0.005 an hour.
func TestDefaultCluster(t *testing.T) {
	t.Parallel()
	got := cost.Estimate(cost.ListPrices(), region, cost.Resources{Desired: desired(rendertest.Graph(t, manifest.NewSetOptions{}))})
	if len(got.Unpriced) > 0 {
		t.Errorf("without a price: %v", got.Unpriced)
	}
	sums := map[string]float64{}
	for _, i := range got.Items {
		sums[i.What] += i.After
	}
	for what, want := range map[string]float64{
		"t3.large": 5 * 0.0832 * 730, "NAT gateway": 3 * 0.045 * 730, "network load balancer": 2 * 0.0225 * 730,
		"public IPv4 address": 6 * 0.005 * 730, "KMS key": 1,
	} {
		if math.Abs(sums[what]-want) > 0.02 {
			t.Errorf("%s: %.2f, want %.2f", what, sums[what], want)
		}
		delete(sums, what)
	}
	for what, sum := range sums {
		if !strings.HasPrefix(what, "gp3 volume, ") || !strings.HasSuffix(what, " GiB") || sum == 0 {
			t.Errorf("unexpected %s: %.2f", what, sum)
		}
	}
}

// TestEveryInstanceTypeHasAPrice: what a manifest accepts has a price, at least in us-east-1.
func TestEveryInstanceTypeHasAPrice(t *testing.T) {
	t.Parallel()
	f, err := os.Open("../../manifest/data/instance-types.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := 0
	for s := bufio.NewScanner(f); s.Scan(); {
		name, _, _ := strings.Cut(s.Text(), " ")
		if name == "#" {
			continue
		}
		n++
		g := group(false, func(_ *awskind.AutoScalingGroup, d *awskind.LaunchTemplateData) { d.InstanceType = name })
		if got := cost.Estimate(cost.ListPrices(), region, cost.Resources{Desired: desired(g)}); len(got.Unpriced) > 0 {
			t.Errorf("no price: %v", got.Unpriced)
		}
	}
	if n < 200 {
		t.Errorf("only %d types were read", n)
	}
}

func TestTheTableIsDated(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("prices.txt")
	if err != nil {
		t.Fatal(err)
	}
	if table := parse(t, string(text)); table.Currency == "" {
		t.Error("no currency")
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if f[0] != "source" {
			continue
		}
		if when, err := time.Parse(time.DateOnly, f[2]); err != nil || when.After(time.Now()) {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func TestParseTableRefuses(t *testing.T) {
	t.Parallel()
	const ok = "currency USD\nsource s 2026-01-02 text\n"
	for text, want := range map[string]string{
		"source s 2026-13-02 text":                        "line 1",
		ok + "us-east-1 a 1 hour t":                       "no source \"t\"",
		ok + "us-east-1 a x hour s":                       "\"x\" is not a price",
		ok + "us-east-1 a 0 hour s":                       "\"0\" is not a price",
		ok + "us-east-1 a 1 week s":                       "unit \"week\"",
		ok + "us-east-1 a 1 hour s\nus-east-1 a 2 hour s": "a has two prices in us-east-1",
		ok + "nonsense":                                   "line 3",
	} {
		if _, err := cost.ParseTable(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
