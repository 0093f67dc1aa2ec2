// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/slipway-k8s/slipway/internal/region/netspec"
)

// The addresses of a load balancer in two zones, and of the host as targets see it.
const (
	nodeA    = "10.9.1.200"
	nodeB    = "10.9.2.200"
	hostAddr = "198.18.0.2"
)

// zoned returns a lab with two zones. Zone A has the machine a, zone B has the machine b and a client that is no
// target. The machines admit the load balancer's security group, and nobody else. Health is checked on port 6444.
func zoned(t *testing.T, change func(*netspec.TargetGroup)) (*lab, *netspec.TargetGroup) {
	t.Helper()
	l, lb := balanced(t, nil)
	l.vpc.Subnets[0].Zone = "A"
	l.vpc.Subnets[1].Zone = "B"
	group := &lb.Listeners[0].TargetGroup
	group.Targets = nil
	group.HealthCheck.Port = 6444
	l.vpc.Interfaces = slices.DeleteFunc(l.vpc.Interfaces, func(i netspec.Interface) bool { return i.ID != "eni-client" })
	for _, m := range []struct{ name, subnet, addr, zone string }{
		{"a", "subnet-public", "10.9.1.10", "A"},
		{"b", "subnet-private", "10.9.2.20", "B"},
	} {
		l.add(m.name, m.subnet, m.addr, func(i *netspec.Interface) {
			i.Ingress = []netspec.Rule{{
				Protocol:  "tcp",
				From:      6443,
				To:        6444,
				Peers:     prefixes(nodeA+"/32", nodeB+"/32"),
				Balancers: []netip.Addr{netip.MustParseAddr(nodeA)},
			}}
		})

		group.Targets = append(group.Targets, netspec.Target{
			ID:   l.iface(m.name).InstanceID,
			Addr: l.iface(m.name).Addr,
			Zone: m.zone,
			Port: 6443,
		})
	}

	l.vpc.BalancerNames = map[string][]string{"api.elb.example.com": {"arn:lb"}, "api.example.com": {"arn:lb"}}
	l.vpc.DNSNames = map[string][]netip.Addr{"fixed.example.com": {netip.MustParseAddr(nodeA)}}
	if change != nil {
		change(group)
	}

	return l, group
}

// serveAll serves the port of the clients and the one of the health checks on machines. It returns the listeners
// of the health checks.
func (l *lab) serveAll(names ...string) map[string]net.Listener {
	l.t.Helper()
	checks := map[string]net.Listener{}
	for _, name := range names {
		l.greet(name, 6443)
		checks[name] = l.greet(name, 6444)
	}

	return checks
}

// answers returns the distinct answers of several connections from a machine to an address, sorted.
func (l *lab) answers(from, addr string) string {
	l.t.Helper()
	var seen []string
	for range 4 {
		seen = append(seen, l.call(from, addr))
	}

	slices.Sort(seen)

	return strings.Join(slices.Compact(seen), ", ")
}

// resolve returns the addresses of a name, sorted, as the client's resolver answers.
func (l *lab) resolve(name string) string {
	l.t.Helper()
	c := must(dialFrom(l.t, l.paths["client"], "udp", "10.9.0.2:53", answerTimeout))(l.t)
	defer c.Close()
	q := new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.TypeA)
	in, _, err := (&dns.Client{Net: "udp"}).ExchangeWithConn(q, &dns.Conn{Conn: c})
	if err != nil {
		return err.Error()
	}

	var out []string
	for _, rr := range in.Answer {
		out = append(out, strings.TrimPrefix(rr.String(), rr.Header().String()))
	}

	slices.Sort(out)

	return strings.Join(out, " ")
}

func TestNodesForwardToTheirZone(t *testing.T) {
	l, group := zoned(t, nil)
	l.serveAll("a", "b")
	l.sync()
	l.waitHealth("healthy", "healthy")
	for _, tt := range []struct{ node, want string }{
		{nodeA, "a " + nodeA},
		{nodeB, "b " + nodeB},
	} {
		if got := l.answers("client", tt.node+":443"); got != tt.want {
			t.Errorf("without cross-zone load balancing, %s: got %q, want %q", tt.node, got, tt.want)
		}
	}

	group.CrossZone = true
	l.sync()
	if got, want := l.answers("client", nodeA+":443"), "a "+nodeA+", b "+nodeA; got != want {
		t.Errorf("with cross-zone load balancing: got %q, want %q", got, want)
	}
}

// A node without a healthy target in its zone sends connections to the unhealthy ones there, and not to another
// zone. A node without any target resets them.
func TestNodesFailOpenInTheirZone(t *testing.T) {
	l, group := zoned(t, nil)
	l.serveAll("a", "b")["a"].Close()
	l.sync()
	l.waitHealth("unhealthy", "healthy")
	if got := l.answers("client", nodeA+":443"); got != "a "+nodeA {
		t.Errorf("zone without healthy targets: got %q", got)
	}

	group.Targets = group.Targets[1:]
	l.sync()
	if got := l.answers("client", nodeA+":443"); got != "closed" {
		t.Errorf("zone without targets: got %q", got)
	}
}

func TestZonesWithoutHealthyTargetsLeaveDNS(t *testing.T) {
	l, group := zoned(t, nil)
	checks := l.serveAll("a", "b")
	l.sync()
	l.waitHealth("healthy", "healthy")
	expect := func(when, want string) {
		t.Helper()
		for _, name := range []string{"api.elb.example.com", "api.example.com"} {
			if got := l.resolve(name); got != want {
				t.Errorf("%s: %s is %q, want %q", when, name, got, want)
			}
		}

		if got := l.resolve("fixed.example.com"); got != nodeA {
			t.Errorf("%s: the record with an address of the load balancer is %q", when, got)
		}
	}

	expect("all are healthy", nodeA+" "+nodeB)
	checks["a"].Close()
	l.waitHealth("unhealthy", "healthy")
	expect("zone A has no healthy target", nodeB)

	group.CrossZone = true
	l.sync()
	expect("zone A uses the targets of zone B", nodeA+" "+nodeB)

	group.CrossZone = false
	checks["b"].Close()
	l.sync()
	l.waitHealth("unhealthy", "unhealthy")
	expect("no target is healthy", nodeA+" "+nodeB)
}

// Each target group of a load balancer needs a healthy target in a zone.
func TestEachTargetGroupCountsForDNS(t *testing.T) {
	l, group := zoned(t, nil)
	l.serveAll("a", "b")
	second := *group
	second.ARN = "arn:second"
	second.Targets = group.Targets[1:]
	lb := &l.vpc.LoadBalancers[0]
	lb.Listeners = append(lb.Listeners, netspec.Listener{Port: 444, TargetGroup: second})
	l.sync()
	l.waitHealth("healthy", "healthy")
	for deadline := time.Now().Add(8 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if l.net.Health()["arn:second"][l.iface("b").InstanceID] == "healthy" {
			break
		}
	}

	if got := l.resolve("api.elb.example.com"); got != nodeB {
		t.Errorf("the second group has targets in zone B only: %q", got)
	}
}

func TestClientAddressesArePreserved(t *testing.T) {
	l, group := zoned(t, func(g *netspec.TargetGroup) {
		g.CrossZone = true
		g.PreserveClientIP = true
	})
	l.serveAll("a", "b")
	l.sync()
	l.waitHealth("healthy", "healthy")
	if got := l.answers("client", nodeB+":443"); got != "a 10.9.2.100, b 10.9.2.100" {
		t.Errorf("a machine of the VPC: %q", got)
	}

	if got := knock(public(&l.vpc.LoadBalancers[0])); !strings.HasSuffix(got, " "+hostAddr) {
		t.Errorf("the host: %q", got)
	}

	if got := l.call("client", "10.9.2.20:6443"); got != "timeout" {
		t.Errorf("past the load balancer: %q", got)
	}

	// Rules for addresses count for the client's address.
	for _, name := range []string{"a", "b"} {
		l.iface(name).Ingress[0].Balancers = nil
	}

	l.sync()
	if got := l.answers("client", nodeB+":443"); got != "timeout" {
		t.Errorf("only the addresses of the load balancer are allowed: %q", got)
	}

	for _, name := range []string{"a", "b"} {
		l.iface(name).Ingress[0].Peers = prefixes(nodeA+"/32", nodeB+"/32", "10.9.2.100/32")
	}

	l.sync()
	if got := l.answers("client", nodeB+":443"); got != "a 10.9.2.100, b 10.9.2.100" {
		t.Errorf("the client's address is allowed: %q", got)
	}

	group.PreserveClientIP = false
	l.sync()
	if got := l.answers("client", nodeB+":443"); got != "a "+nodeB+", b "+nodeB {
		t.Errorf("no preservation: %q", got)
	}
}

// The rules for outgoing traffic of a load balancer count also if targets see the client's address.
func TestEgressCountsWithPreservedAddresses(t *testing.T) {
	l, _ := zoned(t, func(g *netspec.TargetGroup) { g.PreserveClientIP = true })
	l.serveAll("a", "b")
	l.vpc.LoadBalancers[0].Egress = []netspec.Rule{
		{Protocol: "tcp", From: 6444, To: 6444, Peers: prefixes("10.9.0.0/16")},
	}
	l.sync()
	l.waitHealth("healthy", "healthy")
	if got := l.answers("client", nodeB+":443"); got != "timeout" {
		t.Errorf("egress allows health checks only: %q", got)
	}
}

func TestHairpinFailsWithPreservedAddresses(t *testing.T) {
	l, group := zoned(t, func(g *netspec.TargetGroup) { g.PreserveClientIP = true })
	l.serveAll("a", "b")
	l.sync()
	l.waitHealth("healthy", "healthy")
	if got := l.answers("b", nodeB+":443"); got != "timeout" {
		t.Errorf("a target that reaches itself: %q", got)
	}

	if got := l.answers("b", nodeA+":443"); got != "a 10.9.2.20" {
		t.Errorf("a target that reaches another one: %q", got)
	}

	group.PreserveClientIP = false
	l.sync()
	if got := l.answers("b", nodeB+":443"); got != "b "+nodeB {
		t.Errorf("a target that reaches itself, without preservation: %q", got)
	}
}

func TestConnectionsGetOneTarget(t *testing.T) {
	l, _ := zoned(t, func(g *netspec.TargetGroup) {
		g.CrossZone = true
		g.HealthCheck.UnhealthyThreshold = 10
	})
	l.greet("a", 6443)
	l.greet("a", 6444)
	l.greet("b", 6444)
	l.sync()
	l.waitHealth("healthy", "healthy")
	if got, want := l.answers("client", nodeB+":443"), "a "+nodeB+", closed"; got != want {
		t.Errorf("one target refuses: got %q, want %q", got, want)
	}

	if err := l.net.Release(t.Context(), l.iface("b").InstanceID); err != nil {
		t.Fatal(err)
	}

	if got, want := l.answers("client", nodeB+":443"), "a "+nodeB+", timeout"; got != want {
		t.Errorf("one target is gone: got %q, want %q", got, want)
	}
}

// open connects the client to a target, which must be the only one of the node's zone.
func (l *lab) open(node, target string) net.Conn {
	l.t.Helper()
	c := must(dialFrom(l.t, l.paths["client"], "tcp4", node+":443", answerTimeout))(l.t)
	l.t.Cleanup(func() { c.Close() })
	if got := greeting(c); !strings.HasPrefix(got, target+" ") {
		l.t.Fatalf("connection by %s: %q, want %s", node, got, target)
	}

	return c
}

// echo returns what comes back from a target.
func echo(c net.Conn, text string) string {
	_, _ = fmt.Fprintln(c, text)
	return greeting(c)
}

func TestDeregistrationDelay(t *testing.T) {
	for _, ends := range []bool{false, true} {
		t.Run(fmt.Sprintf("connections end %v", ends), func(t *testing.T) {
			l, group := zoned(t, func(g *netspec.TargetGroup) { g.EndDeregistered = ends })
			l.serveAll("a", "b")
			l.sync()
			l.waitHealth("healthy", "healthy")
			c := l.open(nodeA, "a")
			group.Draining = group.Targets[:1]
			group.Targets = group.Targets[1:]
			l.sync()
			if got := echo(c, "during"); got != "during" {
				t.Errorf("during the delay: %q", got)
			}

			if got := l.answers("client", nodeA+":443"); got != "closed" {
				t.Errorf("new connections during the delay: %q", got)
			}

			group.Draining = nil
			l.sync()
			want := "after"
			if ends {
				want = "closed"
			}

			if got := echo(c, "after"); got != want {
				t.Errorf("after the delay: got %q, want %q", got, want)
			}
		})
	}
}

func TestConnectionsToUnhealthyTargets(t *testing.T) {
	l, group := zoned(t, func(g *netspec.TargetGroup) { g.KeepUnhealthy = true })
	checks := l.serveAll("a", "b")
	l.sync()
	l.waitHealth("healthy", "healthy")
	kept := l.open(nodeA, "a")
	checks["a"].Close()
	l.waitHealth("unhealthy", "healthy")
	if got := echo(kept, "still"); got != "still" {
		t.Errorf("connections are kept: %q", got)
	}

	group.KeepUnhealthy = false
	l.sync()
	ended := l.open(nodeB, "b")
	checks["b"].Close()
	l.waitHealth("unhealthy", "unhealthy")
	if got := echo(ended, "still"); got != "closed" {
		t.Errorf("connections are ended: %q", got)
	}
}

// A client waits for a target that does not answer until the health checks fail.
func TestDeadTargetsLetClientsWait(t *testing.T) {
	l, _ := zoned(t, nil)
	l.serveAll("a", "b")
	l.sync()
	l.waitHealth("healthy", "healthy")
	if err := l.net.Release(t.Context(), l.iface("a").InstanceID); err != nil {
		t.Fatal(err)
	}

	c := must(dialFrom(t, l.paths["client"], "tcp4", nodeA+":443", answerTimeout))(t)
	defer c.Close()
	if got := greetingWithin(c, 500*time.Millisecond); got != "timeout" {
		t.Errorf("before the health checks fail: %q", got)
	}

	l.waitHealth("unhealthy", "healthy")
	if got := greeting(c); got != "closed" {
		t.Errorf("after the health checks have failed: %q", got)
	}
}
