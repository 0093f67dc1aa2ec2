// SPDX-License-Identifier: Apache-2.0

package unmanaged_test

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/unmanaged"
)

// TestPeers: each mismatch of a peered VPC is reported at its field, and nothing else.
func TestPeers(t *testing.T) {
	peer := func(cidr, table string, routes ...unmanaged.OwnedRange) map[string]unmanaged.PeerVPC {
		return map[string]unmanaged.PeerVPC{"vpc-2": {CIDRs: []string{cidr}, RouteTables: map[string][]unmanaged.OwnedRange{table: routes}}}
	}
	for want, peers := range map[string]map[string]unmanaged.PeerVPC{
		"": peer("10.200.0.0/16", "rtb-1", unmanaged.OwnedRange{CIDR: "10.200.0.0/16", Owner: "local"}, unmanaged.OwnedRange{CIDR: "0.0.0.0/0", Owner: "igw-9"}),
		`vpcPeerings[0].networkID "vpc-2": is not a VPC`:                       nil,
		`vpcPeerings[0].cidrs[0] "10.200.0.0/16": is not a range of vpc-2`:     peer("10.201.0.0/16", "rtb-1"),
		`vpcPeerings[0].routeTables[0] "rtb-1": is not a route table of vpc-2`: peer("10.200.0.0/16", "rtb-2"),
		`vpcPeerings[0].routeTables[0] "rtb-1": already has a route for 10.90.0.0/16 to pcx-9`: peer("10.200.0.0/16", "rtb-1",
			unmanaged.OwnedRange{CIDR: "10.90.0.0/16", Owner: "pcx-9"}),
		`networkCIDR "10.90.0.0/16": overlaps 10.90.128.0/17`: {"vpc-2": {
			CIDRs: []string{"10.200.0.0/16", "10.90.128.0/17"}, RouteTables: map[string][]unmanaged.OwnedRange{"rtb-1": nil},
		}},
	} {
		c := cluster()
		c.Spec.Networking.VPCPeerings = []v1alpha1.VPCPeering{{Name: "data", NetworkID: "vpc-2", CIDRs: []string{"10.200.0.0/16"}, RouteTables: []string{"rtb-1"}}}
		f := facts()
		f.Peers = peers
		got := unmanaged.Check(c, []v1alpha1.InstanceGroup{{Spec: v1alpha1.InstanceGroupSpec{Subnets: []string{"public-a"}}}}, f)
		if want == "" && len(got) > 0 || want != "" && (len(got) != 1 || !strings.Contains(got[0].String(), want)) {
			t.Errorf("want %q, got: %v", want, got)
		}
	}
}
