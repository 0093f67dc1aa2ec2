// SPDX-License-Identifier: Apache-2.0

package netbuilder_test

import (
	"net/netip"
	"testing"

	"github.com/aws/aws-sdk-go/service/ec2"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/region/netbuilder"
	"github.com/slipway-k8s/slipway/internal/region/netspec"
)

// TestNamesOfZones checks that a private zone is visible only in its VPC and hides a public one
// there, and that an alias resolves to a load balancer of the same VPC.
func TestNamesOfZones(t *testing.T) {
	a, b := netip.MustParseAddr("10.1.0.9"), netip.MustParseAddr("192.0.2.1")
	vpc := func(id string) *ec2.Vpc { return &ec2.Vpc{VpcId: &id} }
	in := netbuilder.Input{
		VPCs: map[string]*ec2.Vpc{"vpc-1": vpc("vpc-1"), "vpc-2": vpc("vpc-2")},
		LoadBalancers: []netbuilder.LoadBalancer{{
			VPC: "vpc-1", DNSName: "lb.elb.amazonaws.com", LoadBalancer: netspec.LoadBalancer{ARN: "lb", Internal: true, Addrs: map[string]netip.Addr{"subnet-1": a}},
		}},
		HostedZones: []netbuilder.HostedZone{
			{Name: "example.com", Records: []netbuilder.DNSRecord{
				{Name: "api.example.com", Addrs: []netip.Addr{b}}, {Name: "www.example.com", Addrs: []netip.Addr{b}}, {Name: "api.in.example.com", Addrs: []netip.Addr{b}},
			}},
			{Name: "in.example.com", VPCs: []string{"vpc-1"}, Records: []netbuilder.DNSRecord{
				{Name: "api.in.example.com", AliasTarget: "lb.elb.amazonaws.com"},
				{Name: "_etcd._tcp.in.example.com", TTL: 60, Services: []netspec.DNSService{{Port: 2380, Target: "etcd-a.in.example.com"}}},
			}},
		},
	}
	got := map[string]map[string][]netip.Addr{}
	aliases := map[string]map[string][]string{}
	for _, v := range netbuilder.Build(in).VPCs {
		got[v.ID] = v.DNSNames
		aliases[v.ID] = v.BalancerNames
		if here := v.ID == "vpc-1"; here != (len(v.DNSServices["_etcd._tcp.in.example.com"]) == 1) || here != (v.DNSTimes["_etcd._tcp.in.example.com"] == 60) {
			t.Errorf("%s has the services %v for %v s", v.ID, v.DNSServices, v.DNSTimes)
		}
	}
	public := map[string][]netip.Addr{"api.example.com": {b}, "www.example.com": {b}, "api.in.example.com": {b}}
	want := map[string]map[string][]netip.Addr{"vpc-1": {"api.example.com": {b}, "www.example.com": {b}}, "vpc-2": public}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(x, y netip.Addr) bool { return x == y })); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	balancer := []string{"lb"}
	wantAliases := map[string]map[string][]string{"vpc-1": {"lb.elb.amazonaws.com": balancer, "api.in.example.com": balancer}, "vpc-2": {}}
	if diff := cmp.Diff(wantAliases, aliases); diff != "" {
		t.Errorf("aliases (-want +got):\n%s", diff)
	}
}
