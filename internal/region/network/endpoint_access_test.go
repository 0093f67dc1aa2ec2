// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/netspec"
	"github.com/slipway-k8s/slipway/internal/region/network"
)

// TestEndpointsAreTheOnlyWay checks that a machine without internet access reaches a service only
// if its VPC has an endpoint for it: a gateway endpoint in its route table, or an interface
// endpoint whose security groups allow it.
func TestEndpointsAreTheOnlyWay(t *testing.T) {
	l := newLab(t, func(o *network.Options) { o.RequestService = func(r *http.Request) string { return r.URL.Path[1:] } })
	l.add("in", "subnet-isolated", "10.9.3.10", nil)
	l.add("out", "subnet-private", "10.9.2.10", nil)
	get := func(machine, service string) string {
		t.Helper()
		if service == "ecr.dkr" {
			return l.get(machine, "http://198.18.0.1:5000/")
		}
		return l.get(machine, "http://198.18.0.1/"+service)
	}
	expect := func(step string, want map[string]bool) {
		t.Helper()
		l.sync()
		for service, reached := range want {
			got := get("in", service)
			if (got == "api vpc-0a 10.9.3.10 true" || got == "registry vpc-0a 10.9.3.10 true") != reached {
				t.Errorf("%s: %s reached is not %v: %q", step, service, reached, got)
			}
		}
		if got := get("out", "kms"); got != "api vpc-0a 10.9.2.10 true" {
			t.Errorf("%s: the machine with a way out: %q", step, got)
		}
	}
	expect("no endpoint", map[string]bool{"ec2": false, "s3": false, "ecr.dkr": false})
	https := []netspec.Rule{{Protocol: "tcp", From: 443, To: 443, Peers: prefixes("10.9.3.10/32")}}
	l.vpc.Endpoints = []netspec.VPCEndpoint{{Service: "ec2", Ingress: https}, {Service: "s3", Subnets: []string{"subnet-isolated"}}}
	expect("ec2 and s3", map[string]bool{"ec2": true, "s3": true, "kms": false, "ecr.dkr": false})
	l.vpc.Endpoints = []netspec.VPCEndpoint{
		{Service: "ec2", Ingress: []netspec.Rule{{Protocol: "tcp", From: 80, To: 80, Peers: prefixes("0.0.0.0/0")}}},
		{Service: "kms", Ingress: []netspec.Rule{{Protocol: "tcp", From: 443, To: 443, Peers: prefixes("10.9.2.0/24")}}},
		{Service: "s3", Subnets: []string{"subnet-private"}},
		{Service: "ecr.dkr", Ingress: https},
	}
	expect("others' rules and tables", map[string]bool{"ec2": false, "kms": false, "s3": false, "ecr.dkr": true})
}

// TestHostReachesPublicAddresses checks that a machine's public address is open on the host only at
// the single ports that its security groups open to all addresses, and only while it has the
// address.
func TestHostReachesPublicAddresses(t *testing.T) {
	l := newLab(t)
	public := netip.AddrFrom4([4]byte{127, 190, byte(time.Now().UnixNano()), 9})
	world := prefixes("0.0.0.0/0")
	l.add("node", "subnet-public", "10.9.1.10", func(i *netspec.Interface) {
		i.Public = public
		i.Ingress = []netspec.Rule{
			{Protocol: "tcp", From: 6443, To: 6443, Peers: world},
			{Protocol: "tcp", From: 10250, To: 10250, Peers: prefixes("10.9.0.0/16")},
		}
	})
	l.sync()
	l.greet("node", 6443)
	l.greet("node", 10250)
	dial := func(port string) string {
		c, err := net.DialTimeout("tcp", net.JoinHostPort(public.String(), port), time.Second)
		if err != nil {
			return outcome(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(2 * time.Second))
		return greeting(c)
	}
	if got := dial("6443"); got != "node 10.9.1.1" {
		t.Errorf("the open port: %s", got)
	}
	if got := dial("10250"); got != "refused" {
		t.Errorf("the port for the VPC alone: %s", got)
	}
	l.iface("node").Public = netip.Addr{}
	l.sync()
	if got := dial("6443"); got != "refused" {
		t.Errorf("without the address: %s", got)
	}
}
