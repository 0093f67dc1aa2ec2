// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/netspec"
)

func TestSecurityGroupsDecideWhoReachesWhom(t *testing.T) {
	l := newLab(t)
	web := func(i *netspec.Interface) {
		i.Ingress = []netspec.Rule{
			{Protocol: "tcp", From: 80, To: 81, Peers: prefixes("10.9.1.10/32", "10.9.1.0/28", "10.9.2.0/24")},
			{Protocol: "icmp", Peers: prefixes("10.9.1.10/32")},
			{Protocol: "tcp", From: 90, To: 90}, // names a group without members
		}
	}
	l.add("a", "subnet-public", "10.9.1.10", nil)
	l.add("b", "subnet-public", "10.9.1.20", web)
	l.add("c", "subnet-private", "10.9.2.10", func(i *netspec.Interface) {
		i.Egress = []netspec.Rule{{Protocol: "tcp", From: 81, To: 81, Peers: prefixes("10.9.1.0/24")}}
	})
	l.add("d", "subnet-isolated", "10.9.3.10", nil)
	l.sync()
	for _, port := range []int{79, 80, 81, 82, 90} {
		l.greet("b", port)
	}
	l.greet("a", 80)
	for _, tt := range []struct{ what, from, to, want string }{
		{"same subnet, admitted port", "a", "10.9.1.20:80", "b 10.9.1.10"},
		{"upper end of the port range", "a", "10.9.1.20:81", "b 10.9.1.10"},
		{"below the range", "a", "10.9.1.20:79", "timeout"},
		{"above the range", "a", "10.9.1.20:82", "timeout"},
		{"a rule without peers allows nothing", "a", "10.9.1.20:90", "timeout"},
		{"receiver without rules", "b", "10.9.1.10:80", "timeout"},
		{"other subnet, both sides admit", "c", "10.9.1.20:81", "b 10.9.2.10"},
		{"the sender's own egress forbids", "c", "10.9.1.20:80", "timeout"},
		{"no rule names the sender", "d", "10.9.1.20:80", "timeout"},
		{"unused address", "a", "10.9.1.99:80", "timeout"},
		{"there is no internet", "a", "203.0.113.1:80", "unreachable"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			if got := l.call(tt.from, tt.to); got != tt.want {
				t.Errorf("%s to %s: got %q, want %q", tt.from, tt.to, got, tt.want)
			}
		})
	}
	t.Run("a rule that is added admits at once", func(t *testing.T) {
		l.iface("b").Ingress = append(l.iface("b").Ingress, netspec.Rule{Protocol: "tcp", From: 82, To: 82, Peers: prefixes("10.9.3.10/32")})
		l.sync()
		if got := l.call("d", "10.9.1.20:82"); got != "b 10.9.3.10" {
			t.Errorf("got %q", got)
		}
	})
}

func TestOutsideNeedsARouteAndAnAddress(t *testing.T) {
	l := newLab(t)
	l.add("public", "subnet-public", "10.9.1.10", func(i *netspec.Interface) { i.Public = netip.MustParseAddr("203.0.113.5") })
	l.add("noaddress", "subnet-public", "10.9.1.11", nil)
	l.add("nat", "subnet-private", "10.9.2.10", nil)
	l.add("isolated", "subnet-isolated", "10.9.3.10", nil)
	l.add("closed", "subnet-private", "10.9.2.11", func(i *netspec.Interface) { i.Egress = nil })
	l.sync()
	for _, tt := range []struct{ from, url, want string }{
		{"public", "http://198.18.0.1/", "api vpc-0a 10.9.1.10 true"},
		{"public", "http://198.18.0.1:5000/", "registry vpc-0a 10.9.1.10 true"},
		{"noaddress", "http://198.18.0.1/", "timeout"},
		{"nat", "http://198.18.0.1/", "api vpc-0a 10.9.2.10 true"},
		{"nat", "http://198.18.0.1:5000/", "registry vpc-0a 10.9.2.10 true"},
		{"isolated", "http://198.18.0.1/", "timeout"},
		{"closed", "http://198.18.0.1/", "timeout"},
		{"isolated", "http://169.254.169.254/", "metadata vpc-0a 10.9.3.10 true"},
		{"closed", "http://169.254.169.254/", "metadata vpc-0a 10.9.2.11 true"},
	} {
		t.Run(tt.from+" "+tt.url, func(t *testing.T) {
			if got := l.get(tt.from, tt.url); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestChangingRulesLosesNoPacket(t *testing.T) {
	l := newLab(t)
	for i, name := range []string{"a", "b"} {
		l.add(name, "subnet-private", fmt.Sprintf("10.9.2.1%d", i), func(i *netspec.Interface) { i.Ingress = anyRule() })
	}
	l.sync()
	var sink net.PacketConn
	err := inside(t, l.paths["b"], func() error {
		var err error
		sink, err = net.ListenPacket("udp4", "0.0.0.0:999")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	_ = sink.(*net.UDPConn).SetReadBuffer(16 << 20)
	c := must(dialFrom(t, l.paths["a"], "udp4", "10.9.2.11:999", answerTimeout))(t)
	defer c.Close()
	stop, sent := make(chan struct{}), make(chan int)
	go func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				sent <- n
				return
			default:
				_, _ = c.Write([]byte("x"))
				time.Sleep(20 * time.Microsecond)
			}
		}
	}()
	for port := range 30 {
		l.iface("b").Ingress = append(anyRule(), netspec.Rule{Protocol: "tcp", From: port, To: port, Peers: prefixes("10.0.0.0/8")})
		l.sync()
	}
	close(stop)
	want, got := <-sent, 0
	for buf := make([]byte, 10); ; got++ {
		_ = sink.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		if _, _, err := sink.ReadFrom(buf); err != nil {
			break
		}
	}
	if got != want {
		t.Errorf("%d of %d packets arrived while rules were replaced 30 times", got, want)
	}
}

// Ten machines, with rules that change each time. A Sync must take far less time than a user or a
// controller would wait.
func BenchmarkSync(b *testing.B) {
	for _, changing := range []bool{true, false} {
		b.Run(fmt.Sprintf("changing=%v", changing), func(b *testing.B) {
			l := newLab(b)
			for i := range 10 {
				l.add(strconv.Itoa(i), "subnet-private", fmt.Sprintf("10.9.2.%d", 10+i), func(i *netspec.Interface) { i.Ingress = anyRule() })
			}
			l.sync()
			for n := 0; b.Loop(); n++ {
				if changing {
					l.vpc.Interfaces[0].Ingress = []netspec.Rule{{Protocol: "tcp", From: n % 60000, To: 65535, Peers: prefixes("10.0.0.0/8")}}
				}
				l.sync()
			}
		})
	}
}

func BenchmarkNamespaceAndRelease(b *testing.B) {
	l := newLab(b)
	l.add("0", "subnet-private", "10.9.2.10", nil)
	for b.Loop() {
		if err := l.net.Release(b.Context(), "i-01"); err != nil {
			b.Fatal(err)
		}
		must(l.net.EnsureNamespace(b.Context(), l.machine(l.vpc.Interfaces[0])))(b)
	}
}
