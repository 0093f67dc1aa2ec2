// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/region/netspec"
)

// TestSecondaryAddressesAndInterfaces: a machine is reached at all addresses of all its interfaces and at no others, under the rules of
// each. It sees a second interface as a link without an address, also after it has started again, until that is detached.
func TestSecondaryAddressesAndInterfaces(t *testing.T) {
	l := newLab(t)
	web := func(port int) []netspec.Rule {
		return []netspec.Rule{{Protocol: "tcp", From: port, To: port, Peers: prefixes("10.9.0.0/16")}}
	}
	l.add("a", "subnet-public", "10.9.1.10", nil)
	l.add("b", "subnet-public", "10.9.1.20", func(i *netspec.Interface) {
		i.Ingress = web(80)
		i.Secondary = prefixes("10.9.1.21/32", "10.9.1.32/28")
	})
	second := netspec.Interface{
		ID: "eni-b1", InstanceID: l.iface("b").InstanceID, Device: 1, Subnet: "subnet-public", Addr: netip.MustParseAddr("10.9.1.25"),
		Secondary: prefixes("10.9.1.26/32"), MAC: "02:00:00:00:01:01", SourceDestCheck: true, Egress: anyRule(), Ingress: web(81),
	}
	l.vpc.Interfaces = append(l.vpc.Interfaces, second)
	l.sync()

	configure := func() {
		for _, line := range []string{
			"addr add 10.9.1.21/32 dev eth0", "addr add 10.9.1.33/32 dev eth0", "addr add 10.9.1.22/32 dev eth0",
			"link set eth1 up", "addr add 10.9.1.25/32 dev eth1", "addr add 10.9.1.26/32 dev eth1",
			"route add 10.9.1.1 dev eth1 scope link table 2", "route add default via 10.9.1.1 dev eth1 table 2",
			"rule add from 10.9.1.25 table 2", "rule add from 10.9.1.26 table 2",
		} {
			l.run("b", append([]string{"ip"}, strings.Fields(line)...)...)
		}
		l.greet("b", 80)
		l.greet("b", 81)
	}
	expect := func(what string, want map[string]string) {
		t.Helper()
		for to, answer := range want {
			if got := l.call("a", to); got != answer {
				t.Errorf("%s: a to %s: got %q, want %q", what, to, got, answer)
			}
		}
	}
	configure()
	all := map[string]string{
		"10.9.1.20:80": "b 10.9.1.10", "10.9.1.21:80": "b 10.9.1.10", "10.9.1.33:80": "b 10.9.1.10",
		"10.9.1.25:81": "b 10.9.1.10", "10.9.1.26:81": "b 10.9.1.10",
		"10.9.1.22:80": "timeout", "10.9.1.25:80": "timeout", "10.9.1.21:81": "timeout",
	}
	expect("at first", all)

	if err := l.net.Release(t.Context(), second.InstanceID); err != nil {
		t.Fatal(err)
	}
	again := l.machine(*l.iface("b"))
	again.More = []netspec.Interface{second}
	l.paths["b"] = must(l.net.EnsureNamespace(t.Context(), again))(t)
	configure()
	expect("after a start", all)

	l.iface("b").Secondary = prefixes("10.9.1.32/28")
	l.vpc.Interfaces = l.vpc.Interfaces[:2]
	l.sync()
	expect("after removals", map[string]string{"10.9.1.20:80": "b 10.9.1.10", "10.9.1.33:80": "b 10.9.1.10", "10.9.1.21:80": "timeout", "10.9.1.25:81": "timeout"})
	if links := l.run("b", "ip", "-o", "link"); strings.Contains(links, "eth1") {
		t.Errorf("the machine has its detached interface:\n%s", links)
	}
}
