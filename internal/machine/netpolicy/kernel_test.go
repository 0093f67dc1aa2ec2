// SPDX-License-Identifier: Apache-2.0

package netpolicy_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"github.com/slipway-k8s/slipway/internal/machine/netpolicy"
)

// lab has a node and pods in network namespaces of their own. The node forwards between them, as with flannel on one node.
type lab struct {
	t      *testing.T
	prefix string
}

// labPods returns the addresses of the pods of the lab by the names of their network namespaces.
func labPods() map[string]string {
	return map[string]string{
		"web": "10.0.1.2",
		"db":  "10.0.1.10",
		"any": "10.0.1.30",
	}
}

func newLab(t *testing.T) *lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: network namespaces need root")
	}

	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("SKIPPED: no program nft (make deps)")
	}

	l := &lab{t: t, prefix: fmt.Sprintf("slwt-np-%d-", os.Getpid())}
	l.addNamespace("node")
	l.ip("netns", "exec", l.prefix+"node", "sysctl", "-qw", "net.ipv4.ip_forward=1")
	number := 0
	for name, address := range labPods() {
		number++
		l.addNamespace(name)
		inside := []string{"netns", "exec", l.prefix + name, "ip"}
		device := fmt.Sprintf("pod%d", number)
		l.ip("-n", l.prefix+"node", "link", "add", device, "type", "veth", "peer", "name", "eth0", "netns", l.prefix+name)
		l.ip("-n", l.prefix+"node", "addr", "add", "10.0.1.1/32", "dev", device)
		l.ip("-n", l.prefix+"node", "link", "set", device, "up")
		l.ip("-n", l.prefix+"node", "route", "add", address+"/32", "dev", device)
		l.ip(append(inside, "addr", "add", address+"/32", "dev", "eth0")...)
		l.ip(append(inside, "link", "set", "eth0", "up")...)
		l.ip(append(inside, "route", "add", "10.0.1.1/32", "dev", "eth0")...)
		l.ip(append(inside, "route", "add", "default", "via", "10.0.1.1")...)
	}

	return l
}

func (l *lab) addNamespace(name string) {
	l.t.Helper()
	l.ip("netns", "add", l.prefix+name)
	l.t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", l.prefix+name).Run() })
	l.ip("-n", l.prefix+name, "link", "set", "lo", "up")
}

func (l *lab) ip(args ...string) {
	l.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		l.t.Fatalf("ip %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// load loads rules on the node.
func (l *lab) load(ruleset string) {
	l.t.Helper()
	cmd := exec.Command("ip", "netns", "exec", l.prefix+"node", "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(ruleset)
	if out, err := cmd.CombinedOutput(); err != nil {
		l.t.Fatalf("nft: %v\n%s\n%s", err, out, ruleset)
	}
}

// in runs a function in the network namespace of a pod or of the node.
func (l *lab) in(name string, do func()) {
	l.t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		ns, err := netns.GetFromName(l.prefix + name)
		if err == nil {
			err = netns.Set(ns)
			_ = ns.Close()
		}

		if err == nil {
			do()
		}

		done <- err
	}()
	if err := <-done; err != nil {
		l.t.Fatal(err)
	}
}

// listen accepts connections of a pod at a port and echoes what they send.
func (l *lab) listen(name string, port int) {
	l.t.Helper()
	l.in(name, func() {
		listener, err := net.Listen("tcp4", fmt.Sprintf(":%d", port))
		if err != nil {
			l.t.Error(err)
			return
		}

		l.t.Cleanup(func() { _ = listener.Close() })
		go func() {
			for {
				connection, err := listener.Accept()
				if err != nil {
					return
				}

				go func() { _, _ = io.Copy(connection, connection) }()
			}
		}()
	})
}

// dial connects from one pod to an address. It returns nil if the packets are dropped.
func (l *lab) dial(from, address string, port int) net.Conn {
	l.t.Helper()
	var out net.Conn
	l.in(from, func() {
		const patience = 300 * time.Millisecond // an open connection takes less than one millisecond
		connection, err := net.DialTimeout("tcp4", net.JoinHostPort(address, strconv.Itoa(port)), patience)
		var timeout net.Error

		switch {
		case err == nil:
			out = connection
			l.t.Cleanup(func() { _ = connection.Close() })
		case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, syscall.EAGAIN):
		default:
			l.t.Errorf("from %s to %s:%d: %v", from, address, port, err)
		}
	})

	return out
}

// TestRulesInTheKernel loads compiled rules and connects.
func TestRulesInTheKernel(t *testing.T) {
	l := newLab(t)
	pods := labPods()
	for name := range labPods() {
		l.listen(name, 8080)
		l.listen(name, 9000)
	}

	l.listen("node", 8080)
	rules, err := netpolicy.Compile(parseCluster(t, kernelCluster))
	if err != nil {
		t.Fatal(err)
	}

	// As with kube-proxy, connections are tracked before there are policies.
	l.load("table inet tracked { chain c { type filter hook forward priority filter; ct state new accept; }; }")
	before := l.dial("any", pods["db"], 8080)
	if before == nil {
		t.Fatal("without rules, a pod does not reach another one")
	}

	l.load(rules["a"].Ruleset())
	for _, c := range []struct {
		from, to string
		port     int
		want     bool
	}{
		{"web", pods["db"], 8080, true},  // allowed by name of the port
		{"web", pods["db"], 9000, false}, // another port
		{"any", pods["db"], 8080, false}, // another pod
		{"any", pods["web"], 9000, true}, // web accepts everything
		{"web", pods["any"], 8080, false},
		{"db", pods["any"], 9000, true},  // db may connect to everything
		{"db", pods["db"], 9000, true},   // itself
		{"node", pods["db"], 9000, true}, // its node
		{"web", "10.0.1.1", 8080, true},  // to its node
	} {
		if got := l.dial(c.from, c.to, c.port) != nil; got != c.want {
			t.Errorf("from %s to %s:%d: connected %v, want %v", c.from, c.to, c.port, got, c.want)
		}
	}

	checkOpenConnection(t, before)

	// The same rules again, then none.
	l.load(rules["a"].Ruleset())
	l.load(netpolicy.NodeRules{}.Ruleset())
	l.load(netpolicy.NodeRules{}.Ruleset())
	if l.dial("any", pods["db"], 9000) == nil {
		t.Error("the rules are still there")
	}
}

// checkOpenConnection: connections that were open before the rules go on.
func checkOpenConnection(t *testing.T, c net.Conn) {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}

	if _, err := c.Write([]byte("x")); err != nil {
		t.Error(err)
	}

	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Errorf("an open connection was cut: %v", err)
	}
}

const kernelCluster = `kind: Namespace
metadata: {name: shop}
---
kind: Pod
metadata: {name: web, namespace: shop, labels: {app: web}}
spec: {nodeName: a}
status: {podIP: 10.0.1.2}
---
kind: Pod
metadata: {name: db, namespace: shop, labels: {app: db}}
spec: {nodeName: a, containers: [{ports: [{name: sql, containerPort: 8080}]}]}
status: {podIP: 10.0.1.10}
---
kind: Pod
metadata: {name: any, namespace: shop}
spec: {nodeName: a}
status: {podIP: 10.0.1.30}
---
kind: NetworkPolicy
metadata: {name: db, namespace: shop}
spec:
  podSelector: {matchLabels: {app: db}}
  policyTypes: [Ingress, Egress]
  ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: sql}]}]
  egress: [{}]
---
kind: NetworkPolicy
metadata: {name: web, namespace: shop}
spec:
  podSelector: {matchLabels: {app: web}}
  policyTypes: [Egress]
  egress: [{to: [{podSelector: {matchLabels: {app: db}}}, {ipBlock: {cidr: 10.0.0.0/8, except: [10.0.1.0/24, 10.0.0.0/16]}}]}]
`
