// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"github.com/slipway-k8s/slipway/internal/region/netspec"
	"github.com/slipway-k8s/slipway/internal/region/network"
)

// lab is a separate region with one VPC. Tests change the desired network and apply it with sync.
type lab struct {
	t      testing.TB
	region string
	opts   network.Options
	net    *network.Network
	vpc    netspec.VPC
	paths  map[string]string // machine's name to its namespace
	count  int
}

const vpcID = "vpc-0a"

func newLab(tb testing.TB, change ...func(*network.Options)) *lab {
	tb.Helper()
	if os.Getuid() != 0 {
		tb.Skip("SKIPPED, NOT TESTED: network namespaces need root")
	}
	if _, err := exec.LookPath("nft"); err != nil {
		tb.Skip("SKIPPED, NOT TESTED: nft is missing (package nftables)")
	}
	raw := make([]byte, 4)
	_, _ = rand.Read(raw)
	l := &lab{t: tb, region: "test" + hex.EncodeToString(raw), paths: map[string]string{}}
	say := func(what string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s, ok := network.RequestSourceFrom(r.Context())
			fmt.Fprintf(w, "%s %s %s %v", what, s.VPC, s.Addr, ok)
		})
	}
	l.opts = network.Options{RegionID: l.region, API: say("api"), Registry: say("registry"), Metadata: say("metadata")}
	for _, f := range change {
		f(&l.opts)
	}
	l.net = must(network.New(l.opts))(tb)
	tb.Cleanup(func() {
		if err := l.net.Destroy(context.Background()); err != nil {
			tb.Errorf("destroy: %v", err)
		}
		if left, _ := filepath.Glob("/run/netns/slw-" + l.region + "-*"); len(left) > 0 {
			tb.Errorf("namespaces left: %v", left)
		}
	})
	l.vpc = netspec.VPC{
		ID: vpcID, CIDRs: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")},
		Subnets: []netspec.Subnet{
			{ID: "subnet-public", CIDR: netip.MustParsePrefix("10.9.1.0/24"), DefaultRoute: netspec.RouteInternet},
			{ID: "subnet-private", CIDR: netip.MustParsePrefix("10.9.2.0/24"), DefaultRoute: netspec.RouteNAT},
			{ID: "subnet-isolated", CIDR: netip.MustParsePrefix("10.9.3.0/24"), DefaultRoute: netspec.RouteNone},
		},
		DNSNames: map[string][]netip.Addr{},
	}
	return l
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return v
	}
}

func prefixes(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// anyRule allows everything, like the default egress rule of a security group.
func anyRule() []netspec.Rule { return []netspec.Rule{{Peers: prefixes("0.0.0.0/0")}} }

// add adds a machine to the desired network and creates its namespace.
func (l *lab) add(name, subnet, addr string, change func(*netspec.Interface)) {
	l.t.Helper()
	l.count++
	i := netspec.Interface{
		ID: "eni-" + name, InstanceID: fmt.Sprintf("i-%02x", l.count), Subnet: subnet, Addr: netip.MustParseAddr(addr),
		MAC: fmt.Sprintf("02:00:00:00:00:%02x", l.count), SourceDestCheck: true, Egress: anyRule(),
	}
	if change != nil {
		change(&i)
	}
	l.vpc.Interfaces = append(l.vpc.Interfaces, i)
	l.paths[name] = must(l.net.EnsureNamespace(l.t.Context(), l.machine(i)))(l.t)
}

func (l *lab) machine(i netspec.Interface) netspec.Machine {
	for _, s := range l.vpc.Subnets {
		if s.ID == i.Subnet {
			return netspec.Machine{ID: i.InstanceID, VPC: l.vpc.ID, Iface: i, Subnet: s.CIDR, Gateway: s.CIDR.Masked().Addr().Next()}
		}
	}
	l.t.Fatalf("no subnet %s", i.Subnet)
	return netspec.Machine{}
}

func (l *lab) iface(name string) *netspec.Interface {
	for i := range l.vpc.Interfaces {
		if l.vpc.Interfaces[i].ID == "eni-"+name {
			return &l.vpc.Interfaces[i]
		}
	}
	l.t.Fatalf("no machine %s", name)
	return nil
}

func (l *lab) sync() {
	l.t.Helper()
	if err := l.net.Sync(l.t.Context(), netspec.Network{VPCs: []netspec.VPC{l.vpc}}); err != nil {
		l.t.Fatalf("sync: %v", err)
	}
}

// run runs a command inside a machine.
func (l *lab) run(name string, args ...string) string {
	l.t.Helper()
	out, err := exec.Command("nsenter", append([]string{"--net=" + l.paths[name]}, args...)...).CombinedOutput()
	if err != nil {
		l.t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// A link is one network interface of a machine, without what the kernel changes later by itself, such
// as the state of its carrier.
type link struct {
	Index   int    `json:"ifindex"`
	Name    string `json:"ifname"`
	Address string `json:"address"`
	Peer    int    `json:"link_index"`
}

func (l *lab) links(names ...string) [][]link {
	l.t.Helper()
	var all [][]link
	for _, name := range names {
		var links []link
		if err := json.Unmarshal([]byte(l.run(name, "ip", "-json", "link")), &links); err != nil {
			l.t.Fatal(err)
		}
		all = append(all, links)
	}
	return all
}

// inside runs f on a thread in the namespace at path.
func inside(tb testing.TB, path string, f func() error) error {
	tb.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		ns, err := netns.GetFromPath(path)
		if err != nil {
			done <- err
			return
		}
		defer ns.Close()
		if err := netns.Set(ns); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

// answerTimeout is how long a test waits for an answer that it expects. The kernel sends a lost packet
// again after 1 s, and CI's machines have two busy cores.
const answerTimeout = 10 * time.Second

func dialFrom(tb testing.TB, path, transport, addr string, wait time.Duration) (net.Conn, error) {
	tb.Helper()
	var c net.Conn
	err := inside(tb, path, func() error {
		var err error
		c, err = net.DialTimeout(transport, addr, wait)
		return err
	})
	return c, err
}

// greet serves TCP inside a machine. Each client receives the machine's name and the client's
// address.
func (l *lab) greet(name string, port int) net.Listener {
	l.t.Helper()
	ln := must(network.Listen(l.t.Context(), l.paths[name], fmt.Sprintf("0.0.0.0:%d", port)))(l.t)
	l.t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
				fmt.Fprintf(c, "%s %s\n", name, host)
				_, _ = io.Copy(c, c) // echoes until the caller closes its side
			}()
		}
	}()
	return ln
}

// call returns the result of a TCP connection: the greeting, timeout, unreachable, or refused.
func (l *lab) call(from, addr string) string {
	l.t.Helper()
	c, err := dialFrom(l.t, l.paths[from], "tcp4", addr, 400*time.Millisecond)
	if err != nil && outcome(err) == "timeout" { // see get
		c, err = dialFrom(l.t, l.paths[from], "tcp4", addr, 1500*time.Millisecond)
	}
	if err != nil {
		return outcome(err)
	}
	defer c.Close()
	return greetingWithin(c, 2*time.Second)
}

func greeting(c net.Conn) string { return greetingWithin(c, answerTimeout) }

func greetingWithin(c net.Conn, timeout time.Duration) string {
	_ = c.SetReadDeadline(time.Now().Add(timeout))
	buf := make([]byte, 100)
	n, err := c.Read(buf)
	if err != nil {
		return outcome(err)
	}
	return strings.TrimSpace(string(buf[:n]))
}

func outcome(err error) string {
	var ne net.Error
	switch {
	case errors.Is(err, syscall.ENETUNREACH):
		return "unreachable"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF):
		return "closed"
	case errors.As(err, &ne) && ne.Timeout():
		return "timeout"
	default:
		return err.Error()
	}
}

// get sends an HTTP request from inside a machine.
func (l *lab) get(from, url string) string {
	l.t.Helper()
	got := l.getWithin(from, url, 500*time.Millisecond)
	if got == "timeout" { // a lost first packet is sent again after 1 s, and a busy machine is slow
		got = l.getWithin(from, url, 2*time.Second)
	}
	return got
}

func (l *lab) getWithin(from, url string, timeout time.Duration) string {
	l.t.Helper()
	client := http.Client{Timeout: 2 * timeout, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(_ context.Context, transport, addr string) (net.Conn, error) {
			return dialFrom(l.t, l.paths[from], transport, addr, timeout)
		},
	}}
	resp, err := client.Get(url)
	if err != nil {
		return outcome(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return string(body)
}
