// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/region/netspec"
	"github.com/slipway-k8s/slipway/internal/region/network"
)

const groupARN = "arn:group"

// balanced returns a lab with a client, and three targets of a load balancer on port 443. Its
// security group allows the port from all addresses; the targets allow only the load balancer.
func balanced(t *testing.T, change func(*netspec.LoadBalancer)) (*lab, *netspec.LoadBalancer) {
	t.Helper()
	l := newLab(t)
	raw := make([]byte, 3)
	_, _ = rand.Read(raw)
	lb := netspec.LoadBalancer{
		ARN: "arn:lb", PublicAddr: netip.AddrFrom4([4]byte{127, 64 + raw[0]%128, raw[1], 1 + raw[2]%250}),
		Addrs:   map[string]netip.Addr{"subnet-public": netip.MustParseAddr("10.9.1.200"), "subnet-private": netip.MustParseAddr("10.9.2.200")},
		Ingress: []netspec.Rule{{Protocol: "tcp", From: 443, To: 443, Peers: prefixes("0.0.0.0/0")}},
		Egress:  []netspec.Rule{{Protocol: "tcp", From: 6443, To: 6444, Peers: prefixes("10.9.0.0/16")}},
		Listeners: []netspec.Listener{{Port: 443, TargetGroup: netspec.TargetGroup{
			ARN: groupARN, HealthCheck: netspec.HealthCheck{Protocol: "TCP", Interval: 1, Timeout: 1, HealthyThreshold: 2, UnhealthyThreshold: 2},
		}}},
	}
	l.add("client", "subnet-private", "10.9.2.100", nil)
	for i := range 3 {
		name := string(rune('a' + i))
		l.add(name, "subnet-private", fmt.Sprintf("10.9.2.1%d", i), func(i *netspec.Interface) {
			i.Ingress = []netspec.Rule{{Protocol: "tcp", From: 6443, To: 6444, Peers: prefixes("10.9.1.200/32", "10.9.2.200/32")}}
		})
		lb.Listeners[0].TargetGroup.Targets = append(lb.Listeners[0].TargetGroup.Targets,
			netspec.Target{ID: l.iface(name).InstanceID, Addr: l.iface(name).Addr, Port: 6443})
	}
	if change != nil {
		change(&lb)
	}
	l.vpc.LoadBalancers = []netspec.LoadBalancer{lb}
	return l, &l.vpc.LoadBalancers[0]
}

func (l *lab) waitHealth(want ...string) {
	l.t.Helper()
	var got []string
	for deadline := time.Now().Add(8 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		got = nil
		for _, name := range []string{"a", "b", "c"}[:len(want)] {
			got = append(got, l.net.Health()[groupARN][l.iface(name).InstanceID])
		}
		if cmp.Equal(want, got) {
			return
		}
	}
	l.t.Fatalf("health of the targets: got %v, want %v", got, want)
}

func public(lb *netspec.LoadBalancer) string { return lb.PublicAddr.String() + ":443" }

// knock returns the name of the target that answers at the load balancer's public address.
func knock(addr string) string {
	c, err := net.DialTimeout("tcp4", addr, time.Second)
	if err != nil {
		return outcome(err)
	}
	defer c.Close()
	return greeting(c)
}

func TestBalancerSpreadsAndFailsOver(t *testing.T) {
	l, lb := balanced(t, nil)
	listeners := map[string]net.Listener{}
	for _, name := range []string{"a", "b", "c"} {
		listeners[name] = l.greet(name, 6443)
	}
	l.sync()
	l.waitHealth("healthy", "healthy", "healthy")
	targets := map[string]int{}
	nodes := map[string]int{}
	for range 12 {
		name, node, _ := strings.Cut(knock(public(lb)), " ")
		targets[name]++
		nodes[node]++
	}
	if diff := cmp.Diff(map[string]int{"a": 4, "b": 4, "c": 4}, targets); diff != "" {
		t.Errorf("spread over the targets: %s", diff)
	}
	if diff := cmp.Diff(map[string]int{"10.9.1.200": 6, "10.9.2.200": 6}, nodes); diff != "" {
		t.Errorf("spread over the addresses: %s", diff)
	}
	for _, addr := range []string{"10.9.1.200", "10.9.2.200"} {
		if got := l.call("client", addr+":443"); !strings.HasSuffix(got, " "+addr) {
			t.Errorf("inside the VPC on %s: %q", addr, got)
		}
	}
	if got := l.call("client", "10.9.2.10:6443"); got != "timeout" {
		t.Errorf("past the load balancer: %q", got)
	}

	conns := map[string]net.Conn{}
	for len(conns) < 3 {
		c := must(net.DialTimeout("tcp4", public(lb), answerTimeout))(t)
		defer c.Close()
		conns[greeting(c)[:1]] = c
	}
	listeners["a"].Close() // its health checks fail from now on, but open connections would continue
	l.waitHealth("unhealthy", "healthy", "healthy")
	for name, want := range map[string]string{"a": "closed", "b": "still", "c": "still"} {
		_, _ = fmt.Fprintln(conns[name], "still")
		if got := greeting(conns[name]); got != want {
			t.Errorf("connection to %s: %q, want %q", name, got, want)
		}
	}
	l.greet("a", 6443)
	l.waitHealth("healthy", "healthy", "healthy")

	lb.Listeners[0].TargetGroup.Targets = lb.Listeners[0].TargetGroup.Targets[:2]
	lb.Listeners[0].TargetGroup.EndDeregistered = true
	l.sync()
	if got := greeting(conns["c"]); got != "closed" {
		t.Errorf("connection to a target that was deregistered: %q", got)
	}
	_, _ = fmt.Fprintln(conns["b"], "untouched")
	if got := greeting(conns["b"]); got != "untouched" {
		t.Errorf("connection to a target that stays: %q", got)
	}
	if err := l.net.Release(t.Context(), l.iface("b").InstanceID); err != nil {
		t.Fatal(err)
	}
	if got := greeting(conns["b"]); got != "closed" {
		t.Errorf("connection to a terminated machine: %q", got)
	}
	l.waitHealth("healthy", "unhealthy")
	for range 4 {
		if got := knock(public(lb)); !strings.HasPrefix(got, "a 10.9.") {
			t.Errorf("after a machine was terminated: %q", got)
		}
	}
}

func TestBalancerFailsOpen(t *testing.T) {
	l, lb := balanced(t, func(lb *netspec.LoadBalancer) { lb.Listeners[0].TargetGroup.HealthCheck.Port = 6444 }) // no process listens there
	for _, name := range []string{"a", "b", "c"} {
		l.greet(name, 6443)
	}
	l.sync()
	l.waitHealth("unhealthy", "unhealthy", "unhealthy")
	targets := map[string]int{}
	for range 6 {
		name, _, _ := strings.Cut(knock(public(lb)), " ")
		targets[name]++
	}
	if diff := cmp.Diff(map[string]int{"a": 2, "b": 2, "c": 2}, targets); diff != "" {
		t.Errorf("no healthy target: %s", diff)
	}
}

func TestBalancerObeysItsSecurityGroups(t *testing.T) {
	l, lb := balanced(t, nil)
	for _, name := range []string{"a", "b", "c"} {
		l.greet(name, 6443)
	}
	lb.Ingress[0].Peers = prefixes("10.9.2.100/32")
	l.sync()
	if got := knock(public(lb)); got != "refused" {
		t.Errorf("the world where only one address is admitted: %q", got)
	}
	if got := l.call("client", "10.9.2.200:443"); !strings.HasSuffix(got, "10.9.2.200") {
		t.Errorf("the admitted client: %q", got)
	}
	if got := l.call("a", "10.9.2.200:443"); got != "timeout" {
		t.Errorf("another client: %q", got)
	}
	lb.AdmitAll = true
	l.sync()
	if got := knock(public(lb)); !strings.HasSuffix(got, ".200") {
		t.Errorf("the world without security groups: %q", got)
	}
	lb.AdmitAll = false
	lb.Egress = nil
	l.sync()
	l.waitHealth("unhealthy", "unhealthy", "unhealthy")
	if got := l.call("client", "10.9.2.200:443"); got != "timeout" {
		t.Errorf("without egress to the targets: %q", got)
	}
	l.vpc.LoadBalancers = nil
	l.sync()
	if got := l.call("client", "10.9.2.200:443"); got != "timeout" {
		t.Errorf("load balancer removed: %q", got)
	}
}

func TestHTTPSHealthChecks(t *testing.T) {
	l, _ := balanced(t, func(lb *netspec.LoadBalancer) {
		lb.Listeners[0].TargetGroup.HealthCheck.Protocol = "HTTPS"
		lb.Listeners[0].TargetGroup.HealthCheck.Path = "/readyz"
	})
	var status atomic.Int32
	status.Store(200)
	for i, name := range []string{"a", "b"} {
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if i == 0 && r.URL.Path == "/readyz" {
				w.WriteHeader(int(status.Load()))
				return
			}
			w.WriteHeader(http.StatusServiceUnavailable)
		}))
		srv.Listener.Close()
		srv.Listener = must(network.Listen(t.Context(), l.paths[name], "0.0.0.0:6443"))(t)
		srv.StartTLS()
		defer srv.Close()
	}
	l.sync()
	l.waitHealth("healthy", "unhealthy", "unhealthy")
	status.Store(500)
	l.waitHealth("unhealthy", "unhealthy", "unhealthy")
	status.Store(302)
	l.waitHealth("healthy", "unhealthy", "unhealthy")
}

// TestHealthChecksCannotSpeakTLS13: a target that supports only TLS 1.3 fails AWS's health checks.
func TestHealthChecksCannotSpeakTLS13(t *testing.T) {
	l, _ := balanced(t, func(lb *netspec.LoadBalancer) {
		lb.Listeners[0].TargetGroup.HealthCheck.Protocol = "HTTPS"
	})
	for name, version := range map[string]uint16{"a": tls.VersionTLS13, "b": tls.VersionTLS12} {
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		srv.Listener.Close()
		srv.Listener = must(network.Listen(t.Context(), l.paths[name], "0.0.0.0:6443"))(t)
		srv.TLS = &tls.Config{MinVersion: version}
		srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		srv.StartTLS()
		defer srv.Close()
	}
	l.sync()
	l.waitHealth("unhealthy", "healthy")
}

func TestHalfClosedConnectionsAndLargeAmounts(t *testing.T) {
	l, lb := balanced(t, nil)
	l.greet("a", 6443)
	l.sync()
	l.waitHealth("healthy")
	c := must(net.DialTimeout("tcp4", public(lb), answerTimeout))(t)
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	sent := make([]byte, 32<<20)
	_, _ = rand.Read(sent)
	go func() {
		_, _ = c.Write(sent)
		_ = c.(*net.TCPConn).CloseWrite() // the echo must still arrive
	}()
	began := time.Now()
	got := must(io.ReadAll(c))(t)
	t.Logf("%d MiB there and back in %v", len(sent)>>20, time.Since(began).Round(time.Millisecond))
	_, echo, _ := bytes.Cut(got, []byte("\n"))
	if !bytes.Equal(echo, sent) {
		t.Errorf("%d bytes came back of %d, or others", len(echo), len(sent))
	}
}

func TestIdleConnectionsEnd(t *testing.T) {
	l, lb := balanced(t, nil)
	l.opts.IdleTimeout = 600 * time.Millisecond
	l.net.Close()
	l.net = must(network.New(l.opts))(t)
	l.greet("a", 6443)
	l.sync()
	l.waitHealth("healthy")
	busy := must(net.DialTimeout("tcp4", public(lb), answerTimeout))(t)
	defer busy.Close()
	idle := must(net.DialTimeout("tcp4", public(lb), answerTimeout))(t)
	defer idle.Close()
	greeting(busy)
	greeting(idle)
	for range 12 {
		time.Sleep(100 * time.Millisecond)
		_, _ = fmt.Fprintln(busy, "tick")
		if got := greeting(busy); got != "tick" {
			t.Fatalf("busy connection: %q", got)
		}
	}
	if got := greeting(idle); got != "closed" {
		t.Errorf("idle connection: %q", got)
	}
}

// TestHealthDoesNotWaitForSync asks for the targets' health while a Sync waits for nft.
func TestHealthDoesNotWaitForSync(t *testing.T) {
	l := newLab(t)
	l.sync()
	dir := t.TempDir()
	started := filepath.Join(dir, "started")
	proceed := filepath.Join(dir, "proceed")
	nft := must(exec.LookPath("nft"))(t)
	script := "#!/bin/sh\ntouch " + started + "\nwhile [ ! -e " + proceed + " ]; do sleep 0.01; done\nexec " + nft + " \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "nft"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	l.vpc.CIDRs = append(l.vpc.CIDRs, netip.MustParsePrefix("10.10.0.0/16")) // another range changes the rules

	synced := make(chan error, 1)
	go func() { synced <- l.net.Sync(t.Context(), netspec.Network{VPCs: []netspec.VPC{l.vpc}}) }()
	for deadline := time.Now().Add(8 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(started); err == nil {
			break
		}
	}
	answered := make(chan struct{})
	go func() {
		l.net.Health()
		close(answered)
	}()
	select {
	case <-answered:
	case <-time.After(2 * time.Second):
		t.Error("Health waits for the Sync")
	}
	if err := os.WriteFile(proceed, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-synced; err != nil {
		t.Error(err)
	}
	<-answered
}
