// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// TestDefaultRanges checks that the default ranges overlap neither each other nor Docker's
// networks: its bridge, and the pools from which it creates other networks (requirement S5.10).
func TestDefaultRanges(t *testing.T) {
	set, fs := manifest.NewSet("demo", []string{"us-east-1a", "us-east-1b", "us-east-1c"}, manifest.NewSetOptions{})
	if err := fs.Err(); err != nil {
		t.Fatal(err)
	}
	n := manifest.Default(set).Cluster.Spec.Networking
	ranges := map[string]netip.Prefix{
		"networkCIDR": netip.MustParsePrefix(n.NetworkCIDR), "podCIDR": netip.MustParsePrefix(n.PodCIDR),
		"serviceClusterIPRange": netip.MustParsePrefix(n.ServiceClusterIPRange),
	}
	for _, docker := range []string{"172.17.0.0/16", "172.18.0.0/15", "172.20.0.0/14", "172.24.0.0/13", "192.168.0.0/16"} {
		ranges["Docker's "+docker] = netip.MustParsePrefix(docker)
	}
	for a, x := range ranges {
		for b, y := range ranges {
			if a < b && x.Overlaps(y) {
				t.Errorf("%s %s overlaps %s %s", a, x, b, y)
			}
		}
	}
	if len(n.Subnets) == 0 {
		t.Error("no subnets")
	}
	for i, s := range n.Subnets {
		p := netip.MustParsePrefix(s.CIDR)
		if !ranges["networkCIDR"].Contains(p.Addr()) {
			t.Errorf("subnet %s is outside of the network", p)
		}
		for _, other := range n.Subnets[:i] {
			if netip.MustParsePrefix(other.CIDR).Overlaps(p) {
				t.Errorf("subnet %s overlaps %s", p, other.CIDR)
			}
		}
	}
}

// TestPeeringRanges checks that each error in a peering is reported at its field, and that a valid
// peering has no findings.
func TestPeeringRanges(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*v1alpha1.VPCPeering)
		want []string
	}{
		"fits":           {func(*v1alpha1.VPCPeering) {}, nil},
		"the network":    {func(p *v1alpha1.VPCPeering) { p.CIDRs = []string{"10.80.128.0/17"} }, []string{"vpcPeerings[0].cidrs[0]", "networkCIDR"}},
		"the pods":       {func(p *v1alpha1.VPCPeering) { p.CIDRs = []string{"10.244.0.0/16"} }, []string{"vpcPeerings[0].cidrs[0]", "podCIDR"}},
		"the services":   {func(p *v1alpha1.VPCPeering) { p.CIDRs = []string{"10.96.0.0/16"} }, []string{"vpcPeerings[0].cidrs[0]", "serviceClusterIPRange"}},
		"each other":     {func(p *v1alpha1.VPCPeering) { p.CIDRs = []string{"10.200.0.0/16", "10.200.1.0/24"} }, []string{"vpcPeerings[0].cidrs[1]", "cidrs[0]"}},
		"no range":       {func(p *v1alpha1.VPCPeering) { p.CIDRs = nil }, []string{"vpcPeerings[0].cidrs"}},
		"the same VPC":   {func(p *v1alpha1.VPCPeering) { p.NetworkID = "vpc-1" }, []string{"vpcPeerings[0].networkID"}},
		"no route table": {func(p *v1alpha1.VPCPeering) { p.RouteTables = []string{"main"} }, []string{"vpcPeerings[0].routeTables[0]"}},
		"no name":        {func(p *v1alpha1.VPCPeering) { p.Name = "Data Bases" }, []string{"vpcPeerings[0].name"}},
	} {
		t.Run(name, func(t *testing.T) {
			set, _ := manifest.NewSet("demo", []string{"us-east-1a", "us-east-1b", "us-east-1c"}, manifest.NewSetOptions{})
			p := v1alpha1.VPCPeering{Name: "data", NetworkID: "vpc-0123456789abcdef0", CIDRs: []string{"10.200.0.0/16"}, RouteTables: []string{"rtb-0123456789abcdef0"}}
			c.edit(&p)
			set.Cluster.Spec.Networking.VPCPeerings = []v1alpha1.VPCPeering{p}
			fs := manifest.Validate(manifest.Default(set))
			if len(c.want) == 0 && len(fs) > 0 || len(c.want) > 0 && len(fs) != 1 {
				t.Fatalf("findings: %v", fs)
			}
			for _, w := range c.want {
				if !strings.Contains(fs[0].String(), w) {
					t.Errorf("%q does not contain %s", fs[0], w)
				}
			}
		})
	}
}
