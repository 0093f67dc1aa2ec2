// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"github.com/slipway-k8s/slipway/internal/region/netspec"
	"github.com/slipway-k8s/slipway/internal/region/network"
)

// pod creates a namespace behind the machine, which forwards and translates its packets like a node
// for its pods.
func (l *lab) pod(machine string) {
	l.t.Helper()
	name := "slwpod-" + l.region
	sh := func(format string, args ...any) {
		l.t.Helper()
		if out, err := exec.Command("sh", "-ec", fmt.Sprintf(format, args...)).CombinedOutput(); err != nil {
			l.t.Fatalf("%v: %s", err, out)
		}
	}
	sh("ip netns add %s", name)
	l.t.Cleanup(func() { sh("ip netns del %s", name) })
	l.paths["pod"] = "/run/netns/" + name
	l.run(machine, "ip", "link", "add", "pod0", "type", "veth", "peer", "name", "eth0", "netns", l.paths["pod"])
	l.run(machine, "sh", "-ec", "ip addr add 10.200.0.1/24 dev pod0; ip link set pod0 up; echo 1 >/proc/sys/net/ipv4/ip_forward")
	l.run("pod", "sh", "-ec", "ip addr add 10.200.0.2/24 dev eth0; ip link set eth0 up; ip route add default via 10.200.0.1")
	l.run(machine, "sh", "-ec", `echo 'table ip nat { chain post { type nat hook postrouting priority srcnat; oifname "eth0" masquerade; }; }' | nft -f -`)
}

func TestMetadataHopLimitKeepsPodsOut(t *testing.T) {
	l := newLab(t)
	l.add("node", "subnet-private", "10.9.2.10", func(i *netspec.Interface) { i.MetadataHops = 1 })
	l.add("other", "subnet-private", "10.9.2.11", func(i *netspec.Interface) { i.MetadataHops = 2 })
	l.sync()
	l.pod("node")
	const url, want = "http://169.254.169.254/", "metadata vpc-0a 10.9.2.10 true"
	if got := l.get("node", url); got != want {
		t.Errorf("machine itself: got %q, want %q", got, want)
	}
	if got := l.get("pod", "http://198.18.0.1/"); got != "api vpc-0a 10.9.2.10 true" {
		t.Errorf("the pod's way out: got %q", got)
	}
	if got := l.get("pod", url); got != "timeout" {
		t.Errorf("pod with hop limit 1: got %q, want a timeout", got)
	}
	l.iface("node").MetadataHops = 2
	l.sync()
	if got := l.get("pod", url); got != want {
		t.Errorf("pod with hop limit 2: got %q, want %q", got, want)
	}
}

func TestSourceCheckStopsForeignAddresses(t *testing.T) {
	l := newLab(t)
	all := func(i *netspec.Interface) { i.Ingress = anyRule() }
	l.add("a", "subnet-public", "10.9.1.10", all)
	l.add("b", "subnet-public", "10.9.1.20", all)
	l.sync()
	l.run("a", "ip", "addr", "add", "10.200.0.1/32", "dev", "lo")
	l.run("b", "ip", "route", "add", "10.200.0.0/24", "via", "10.9.1.1")
	pc := func() net.PacketConn {
		var pc net.PacketConn
		err := inside(t, l.paths["b"], func() error {
			var err error
			pc, err = net.ListenPacket("udp4", "0.0.0.0:999")
			return err
		})
		return must(pc, err)(t)
	}()
	defer pc.Close()
	send := func(from string) string {
		err := inside(t, l.paths["a"], func() error {
			d := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(from)}}
			c, err := d.Dial("udp4", "10.9.1.20:999")
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = c.Write([]byte("x"))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		_ = pc.SetReadDeadline(time.Now().Add(time.Second))
		_, peer, err := pc.ReadFrom(make([]byte, 10))
		if err != nil {
			return outcome(err)
		}
		return peer.(*net.UDPAddr).IP.String()
	}
	if got := send("10.9.1.10"); got != "10.9.1.10" {
		t.Errorf("own address: %s", got)
	}
	if got := send("10.200.0.1"); got != "timeout" {
		t.Errorf("foreign address: %s", got)
	}
	l.iface("a").SourceDestCheck = false
	l.sync()
	if got := send("10.200.0.1"); got != "10.200.0.1" {
		t.Errorf("foreign address without the check: %s", got)
	}
}

// ping sends an ICMP echo request and waits for the reply; the host may not have ping(8).
func (l *lab) ping(from, to string) string {
	l.t.Helper()
	var c net.Conn
	err := inside(l.t, l.paths[from], func() error {
		var err error
		c, err = net.Dial("ip4:icmp", to)
		return err
	})
	if err != nil {
		return outcome(err)
	}
	defer c.Close()
	// Type 8, code 0, checksum, id 1, sequence 1.
	_, _ = c.Write([]byte{8, 0, 0xf7, 0xfd, 0, 1, 0, 1})
	_ = c.SetReadDeadline(time.Now().Add(time.Second))
	buf := make([]byte, 100)
	if _, err := c.Read(buf); err != nil {
		return outcome(err)
	}
	return ""
}

func TestICMPAndVXLANPassUnderRulesThatNameThem(t *testing.T) {
	l := newLab(t)
	node := func(i *netspec.Interface) {
		i.Ingress = []netspec.Rule{
			{Protocol: "udp", From: 8472, To: 8472, Peers: prefixes("10.9.1.10/32", "10.9.2.10/32")},
			{Protocol: "icmp", Peers: prefixes("10.9.1.10/32")},
		}
	}
	l.add("a", "subnet-public", "10.9.1.10", node)
	l.add("b", "subnet-private", "10.9.2.10", node)
	l.sync()
	if got := l.ping("a", "10.9.2.10"); got != "" {
		t.Errorf("ping from a, which the rule names: %s", got)
	}
	if got := l.ping("b", "10.9.1.10"); got != "timeout" {
		t.Errorf("ping from b, which no rule names: %q", got)
	}
	one := netspec.Rule{Protocol: "icmp", ICMPType: new(3), ICMPCode: new(4), Peers: prefixes("0.0.0.0/0")}
	l.iface("a").Ingress = append(l.iface("a").Ingress, one)
	l.sync()
	if got := l.ping("b", "10.9.1.10"); got != "timeout" {
		t.Errorf("ping under a rule for another type: %q", got)
	}
	one.ICMPType, one.ICMPCode = new(8), new(0)
	l.iface("a").Ingress = append(l.iface("a").Ingress, one)
	l.sync()
	if got := l.ping("b", "10.9.1.10"); got != "" {
		t.Errorf("ping under a rule for its type and code: %q", got)
	}
	for me, peer := range map[string]string{"a": "10.9.2.10", "b": "10.9.1.10"} {
		inner := map[string]string{"a": "10.244.0.1", "b": "10.244.0.2"}[me]
		l.run(me, "sh", "-ec", fmt.Sprintf("ip link add vx type vxlan id 1 dstport 8472 remote %s dev eth0; "+
			"ip addr add %s/24 dev vx; ip link set vx up", peer, inner))
	}
	l.greet("b", 80)
	if got := l.call("a", "10.244.0.2:80"); got != "b 10.244.0.1" {
		t.Errorf("inside the tunnel: %q", got)
	}
	if got := l.call("a", "10.9.2.10:80"); got != "timeout" {
		t.Errorf("outside the tunnel: %q", got)
	}
}

func TestResolverAnswersAtOnce(t *testing.T) {
	l := newLab(t)
	l.vpc.DNSNames = map[string][]netip.Addr{
		"ip-10-9-3-10.ec2.internal": {netip.MustParseAddr("10.9.3.10")},
		"API.elb.example.com.":      {netip.MustParseAddr("10.9.3.10"), netip.MustParseAddr("10.9.1.7")},
	}
	l.vpc.DNSServices = map[string][]netspec.DNSService{
		"_etcd._tcp.example.com": {{Port: 2380, Target: "one.example.com"}, {Priority: 1, Weight: 2, Port: 2380, Target: "two.example.com"}},
	}
	l.vpc.DNSTimes = map[string]uint32{"_etcd._tcp.example.com": 10}
	l.add("a", "subnet-isolated", "10.9.3.10", func(i *netspec.Interface) { i.Egress = nil })
	l.sync()
	ask := func(transport, server, name string, kind uint16) string {
		c := must(dialFrom(t, l.paths["a"], transport, server+":53", answerTimeout))(t)
		defer c.Close()
		q := new(dns.Msg).SetQuestion(dns.Fqdn(name), kind)
		began := time.Now()
		in, _, err := (&dns.Client{Net: transport}).ExchangeWithConn(q, &dns.Conn{Conn: c})
		if err != nil {
			return err.Error()
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("%s took %v", name, took)
		}
		out := []string{dns.RcodeToString[in.Rcode]}
		for _, rr := range in.Answer {
			if want := map[uint16]uint32{dns.TypeSRV: 10}[kind]; want != 0 && rr.Header().Ttl != want {
				t.Errorf("%s may be cached for %d s, want %d", name, rr.Header().Ttl, want)
			}

			out = append(out, strings.TrimPrefix(rr.String(), rr.Header().String()))
		}
		return strings.Join(out, " ")
	}
	for _, tt := range []struct {
		transport, server, name string
		kind                    uint16
		want                    string
	}{
		{"udp", "10.9.0.2", "ip-10-9-3-10.ec2.internal", dns.TypeA, "NOERROR 10.9.3.10"},
		{"udp", "169.254.169.253", "IP-10-9-3-10.ec2.internal", dns.TypeA, "NOERROR 10.9.3.10"},
		{"tcp", "10.9.0.2", "api.elb.example.com", dns.TypeA, "NOERROR 10.9.3.10 10.9.1.7"},
		{"tcp", "169.254.169.253", "api.elb.example.com", dns.TypeA, "NOERROR 10.9.3.10 10.9.1.7"},
		{"udp", "10.9.0.2", "api.elb.example.com", dns.TypeAAAA, "NOERROR"},
		{"udp", "10.9.0.2", "_etcd._tcp.example.com", dns.TypeSRV, "NOERROR 0 0 2380 one.example.com. 1 2 2380 two.example.com."},
		{"tcp", "10.9.0.2", "_etcd._tcp.example.com", dns.TypeA, "NOERROR"},
		{"udp", "10.9.0.2", "deb.example.org", dns.TypeA, "NXDOMAIN"},
		{"udp", "10.9.0.2", "deb.example.org", dns.TypeAAAA, "NXDOMAIN"},
		{"udp", "10.9.0.2", "10.3.9.10.in-addr.arpa", dns.TypePTR, "NOERROR ip-10-9-3-10.ec2.internal."},
		{"udp", "10.9.0.2", "9.9.9.10.in-addr.arpa", dns.TypePTR, "NXDOMAIN"},
	} {
		if diff := cmp.Diff(tt.want, ask(tt.transport, tt.server, tt.name, tt.kind)); diff != "" {
			t.Errorf("%s %s %s: %s", tt.transport, tt.server, tt.name, diff)
		}
	}
	l.vpc.DNSNames["new.ec2.internal"] = []netip.Addr{netip.MustParseAddr("10.9.3.77")}
	l.sync()
	if got := ask("udp", "10.9.0.2", "new.ec2.internal", dns.TypeA); got != "NOERROR 10.9.3.77" {
		t.Errorf("a name that was added: %s", got)
	}
}

func TestAdoptionAfterRestartDisturbsNobody(t *testing.T) {
	l := newLab(t)
	for i, name := range []string{"a", "b"} {
		l.add(name, "subnet-private", fmt.Sprintf("10.9.2.1%d", i), func(i *netspec.Interface) { i.Ingress = anyRule() })
	}
	l.sync()
	l.greet("b", 80)
	c := must(dialFrom(t, l.paths["a"], "tcp4", "10.9.2.11:80", answerTimeout))(t)
	defer c.Close()
	if got := greeting(c); got != "b 10.9.2.10" {
		t.Fatalf("greeting: %q", got)
	}
	links := l.links("a", "b")

	l.net.Close()
	if got := l.get("a", "http://198.18.0.1/"); got != "refused" {
		t.Errorf("with the process down: %q", got)
	}
	echo := func(when string) {
		t.Helper()
		_, _ = fmt.Fprintln(c, when)
		if got := greeting(c); got != when {
			t.Errorf("connection %s: %q", when, got)
		}
	}
	echo("while down")
	l.net = must(network.New(l.opts))(t)
	for _, i := range l.vpc.Interfaces {
		must(l.net.EnsureNamespace(t.Context(), l.machine(i)))(t)
	}
	echo("before the first sync")
	l.sync()
	echo("after the restart")
	if diff := cmp.Diff(links, l.links("a", "b")); diff != "" {
		t.Errorf("links changed: %s", diff)
	}
	if got := l.get("a", "http://198.18.0.1/"); got != "api vpc-0a 10.9.2.10 true" {
		t.Errorf("API after the restart: %q", got)
	}
}

func TestReleaseAndSyncRemoveWhatIsGone(t *testing.T) {
	l := newLab(t)
	l.add("a", "subnet-private", "10.9.2.10", func(i *netspec.Interface) { i.Ingress = anyRule() })
	l.add("b", "subnet-private", "10.9.2.11", nil)
	l.sync()
	l.greet("a", 80)
	if err := l.net.Release(t.Context(), l.iface("a").InstanceID); err != nil {
		t.Fatal(err)
	}
	if got := l.call("b", "10.9.2.10:80"); got != "timeout" {
		t.Errorf("address of a released machine: %q, want silence as in a VPC", got)
	}
	if err := l.net.Release(t.Context(), l.iface("a").InstanceID); err != nil {
		t.Errorf("released twice: %v", err)
	}
	l.vpc.Interfaces = l.vpc.Interfaces[1:]
	l.add("c", "subnet-private", "10.9.2.10", func(i *netspec.Interface) { i.Ingress = anyRule() })
	l.sync()
	l.greet("c", 80)
	if got := l.call("b", "10.9.2.10:80"); got != "c 10.9.2.11" {
		t.Errorf("address taken by the next machine: %q", got)
	}
	if err := l.net.Sync(t.Context(), netspec.Network{}); err != nil {
		t.Fatal(err)
	}
	if out, _ := exec.Command("sh", "-c", "ls /run/netns | grep -c "+l.region+"-vpc").Output(); strings.TrimSpace(string(out)) != "0" {
		t.Errorf("routers left after an empty picture: %s", out)
	}
}

func TestDestroyTakesOnlyItsOwn(t *testing.T) {
	l := newLab(t)
	l.add("a", "subnet-private", "10.9.2.10", nil)
	l.sync()
	other := must(network.New(network.Options{RegionID: l.region + "-b"}))(t)
	t.Cleanup(func() { _ = other.Destroy(context.Background()) })
	path := must(other.EnsureNamespace(t.Context(), l.machine(*l.iface("a"))))(t)

	// A second process, without the state of the first.
	fresh := must(network.New(l.opts))(t)
	if err := fresh.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	out, _ := exec.Command("sh", "-c", "ls /run/netns | grep '^slw-"+l.region+"-'").Output()
	want := "slw-" + l.region + "-b-i-01\nslw-" + l.region + "-b-vpc-0a\n"
	if diff := cmp.Diff(want, string(out)); diff != "" {
		t.Error(diff)
	}
	if err := exec.Command("nsenter", "--net="+path, "ip", "link", "show", "eth0").Run(); err != nil {
		t.Errorf("the other region's link: %v", err)
	}
}

func TestBadPicturesAreRefusedWithAllFindings(t *testing.T) {
	l := newLab(t)
	l.vpc.Interfaces = []netspec.Interface{
		{ID: "eni-1", Addr: netip.MustParseAddr("10.9.1.5"), Ingress: []netspec.Rule{{Protocol: "tcp; drop"}}},
		{ID: "eni-2", Addr: netip.MustParseAddr("10.9.1.5")},
		{ID: "eni-3", Addr: netip.MustParseAddr("192.168.0.1"), Egress: []netspec.Rule{{Protocol: "udp", From: 9, To: 8}}},
	}
	err := l.net.Sync(t.Context(), netspec.Network{VPCs: []netspec.VPC{l.vpc}})
	for _, want := range []string{"tcp; drop", "10.9.1.5 is already used by eni-1", "192.168.0.1", "9-8"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: should name %q", err, want)
		}
	}
	if _, err := network.New(network.Options{RegionID: "Up"}); err == nil {
		t.Error("a region id that is no name was taken")
	}
}

func TestListenOpensInsideTheNamespace(t *testing.T) {
	l := newLab(t)
	l.add("a", "subnet-private", "10.9.2.10", nil)
	ln := must(network.Listen(t.Context(), l.paths["a"], "127.0.0.1:7777"))(t)
	defer ln.Close()
	go func() { _ = http.Serve(ln, http.NotFoundHandler()) }()
	if c, err := net.DialTimeout("tcp4", "127.0.0.1:7777", time.Second); err == nil {
		c.Close()
		t.Error("reachable from the host")
	}
	c := must(dialFrom(t, l.paths["a"], "tcp4", "127.0.0.1:7777", answerTimeout))(t)
	c.Close()
}
