// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/slipway-k8s/slipway/internal/machine/imdsguard"
	"github.com/slipway-k8s/slipway/internal/machine/join"
)

// The addresses of the world: the load balancer of the join endpoint is where the metadata service is. The machine is one of the
// control plane too: it has an endpoint of its own.
const (
	podNetwork     = "10.244.0.0/16"
	balancer       = "198.51.100.2"
	ownMachine     = "198.51.100.1"
	ownGateway     = "10.244.1.1"
	otherPod       = "10.244.2.2"
	serviceAddress = "10.96.0.9"
	linkLocal      = "fe80::1%eth0"
)

// joinPortWorld is a world whose machine has a pod with a network of its own.
type joinPortWorld struct {
	*world
	pod string
}

func newJoinPortWorld(t *testing.T) *joinPortWorld {
	t.Helper()
	w := &joinPortWorld{world: newWorld(t, "unified")}
	w.guard.Port = join.Port
	service := strings.TrimSuffix(w.machine, "m") + "s"
	w.pod = strings.TrimSuffix(w.machine, "m") + "p"
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", w.pod).Run() })
	for _, line := range []string{
		"netns add " + w.pod,
		"-n " + w.machine + " link add cni0 type veth peer name eth0 netns " + w.pod,
		"-n " + w.machine + " addr add " + ownGateway + "/24 dev cni0",
		"-n " + w.machine + " addr add " + strings.TrimSuffix(linkLocal, "%eth0") + "/64 dev cni0 nodad",
		"-n " + w.machine + " link set cni0 up",
		"-n " + w.pod + " addr add 10.244.1.2/24 dev eth0",
		"-n " + w.pod + " addr add fe80::2/64 dev eth0 nodad",
		"-n " + w.pod + " link set eth0 up",
		"-n " + w.pod + " route add default via " + ownGateway,
		"-n " + service + " addr add " + otherPod + "/32 dev slwts",
		"-n " + service + " route add 10.244.1.0/24 via " + ownMachine,
		"-n " + w.machine + " route add 10.244.2.0/24 via " + balancer,
		"-n " + w.machine + " route add 10.96.0.0/16 via " + balancer,
	} {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v\n%s", line, err, out)
		}
	}

	w.run(w.machine, "sysctl", "-qw", "net.ipv4.ip_forward=1")
	w.addService()
	listen(t, service, join.Port, balancer, otherPod)
	listen(t, w.machine, join.Port, "0.0.0.0", "::")

	return w
}

// addService makes a Service whose endpoint is the load balancer, as kube-proxy does.
func (w *joinPortWorld) addService() {
	w.Helper()
	target := " tcp dport 80 dnat to " + balancer + ":" + join.Port
	w.nft("add table ip nat;" +
		"add chain ip nat pre { type nat hook prerouting priority -100; };" +
		"add chain ip nat out { type nat hook output priority -100; };" +
		"add rule ip nat pre ip daddr " + serviceAddress + target + ";" +
		"add rule ip nat out ip daddr " + serviceAddress + target)
}

// run runs a program in a network namespace.
func (w *joinPortWorld) run(namespace string, args ...string) {
	w.Helper()
	if out, err := exec.Command("ip", append([]string{"netns", "exec", namespace}, args...)...).CombinedOutput(); err != nil {
		w.Fatalf("%s: %v\n%s", args, err, out)
	}
}

// dial connects from a network namespace; ECONNREFUSED if the rules refuse it.
func dial(namespace, address, port string) error {
	script := fmt.Sprintf("exec 3<>/dev/tcp/%s/%s", address, port)
	out, err := exec.Command("ip", "netns", "exec", namespace, "timeout", "2", "bash", "-c", script).CombinedOutput()
	if strings.Contains(string(out), "refused") {
		return syscall.ECONNREFUSED
	}

	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}

	return nil
}

// attempts returns what attackers try, by name.
func (w *joinPortWorld) attempts() map[string]error {
	service := strings.TrimSuffix(w.machine, "m") + "s"

	return map[string]error{
		"a pod, through the load balancer":                     dial(w.pod, balancer, join.Port),
		"a pod, through a Service that leads there":            dial(w.pod, serviceAddress, "80"),
		"a pod, at the address of its machine":                 dial(w.pod, ownMachine, join.Port),
		"a pod, at its gateway":                                dial(w.pod, ownGateway, join.Port),
		"a pod, at its gateway with IPv6":                      dial(w.pod, linkLocal, join.Port),
		"another machine, through the network of the pods":     dial(service, ownGateway, join.Port),
		"a container in the network of the host":               w.connectTo("kubepods/pod1", balancer, join.Port),
		"a container in the network of the host, by a Service": w.connectTo("kubepods/pod1", serviceAddress, "80"),
		"a program that may use the instance metadata service": w.connectTo("allowed.service", balancer, join.Port),
	}
}

// TestOnlyAgentsReachTheJoinEndpoint: pods and containers in the network of the host send requests to the join endpoint, with which they
// can block the joins of machines. Seen to succeed without the rules. The agent joins, the load balancer reaches the endpoint of the
// machine, the API server that of its own, and pods use the same port among themselves.
func TestOnlyAgentsReachTheJoinEndpoint(t *testing.T) {
	w := newJoinPortWorld(t)
	for name, err := range w.attempts() {
		if err != nil {
			t.Errorf("without the rules, %s connects with %v", name, err)
		}
	}

	allowed := imdsguard.Allowed{Cgroups: []string{w.group + "/allowed.service"}, PodNetwork: podNetwork}
	for _, change := range [][]string{nil, {"flush", "ruleset"}, {"insert", "rule", "inet", "slipway_metadata", "join", "accept"}} {
		if change != nil { // as root on the machine can
			w.nft(change...)
		}

		for range 2 {
			if err := w.guard.Apply(t.Context(), allowed); err != nil {
				t.Fatal(err)
			}
		}

		w.checkJoinPort(change)
	}

	// A kernel that cannot tell cgroups apart keeps pods out nevertheless.
	w.guard.Reach = func(context.Context) error { return fmt.Errorf("connect: %w", syscall.ECONNREFUSED) }
	w.nft("flush", "ruleset")
	if err := w.guard.Apply(t.Context(), allowed); !errors.Is(err, imdsguard.ErrUnsupported) {
		t.Error(err)
	}

	if err := dial(w.pod, balancer, join.Port); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("without cgroups, a pod connects with %v", err)
	}

	if err := w.connectTo("agent.service", balancer, join.Port); err != nil {
		t.Errorf("without cgroups, the agent connects with %v", err)
	}
}

// checkJoinPort checks who reaches the endpoint while the rules are loaded.
func (w *joinPortWorld) checkJoinPort(change []string) {
	w.Helper()
	if len(change) > 0 && change[0] == "flush" { // Services too
		w.addService()
	}

	for name, err := range w.attempts() {
		if err == nil || !errors.Is(err, syscall.ECONNREFUSED) && !strings.Contains(name, "IPv6") {
			w.Errorf("after %s, %s connects with %v", change, name, err)
		}
	}

	service := strings.TrimSuffix(w.machine, "m") + "s"
	for name, err := range map[string]error{
		"the agent":                              w.connectTo("agent.service", balancer, join.Port),
		"the agent, by its own address":          w.connectTo("agent.service", ownMachine, join.Port),
		"the API server, at its machine":         w.connectTo("kubepods/pod1", ownMachine, join.Port),
		"the load balancer":                      dial(service, ownMachine, join.Port),
		"a pod to another one":                   dial(w.pod, otherPod, join.Port),
		"a container of the host to another pod": w.connectTo("kubepods/pod1", otherPod, join.Port),
		"an allowed program, to the metadata":    w.connect("allowed.service", imdsguard.AddressIPv4),
	} {
		if err != nil {
			w.Errorf("after %s, %s connects with %v", change, name, err)
		}
	}
}

// TestOnlyAgentsReachTheJoinEndpointByLink: where pods have addresses of machines' range, the rules tell them apart by their links. Seen to
// succeed without the rules. Pods reach the port of pods on their own machine alone.
func TestOnlyAgentsReachTheJoinEndpointByLink(t *testing.T) {
	w := newJoinPortWorld(t)
	const fromOutside = "another machine, through the network of the pods" // there is no such network
	attempts := func() map[string]error {
		all := w.attempts()
		delete(all, fromOutside)
		all["a pod to one of another machine"] = dial(w.pod, otherPod, join.Port)

		return all
	}
	for name, err := range attempts() {
		if err != nil {
			t.Errorf("without the rules, %s connects with %v", name, err)
		}
	}

	if err := w.guard.Apply(t.Context(), imdsguard.Allowed{Cgroups: []string{w.group + "/allowed.service"}, PodLinks: "cni*"}); err != nil {
		t.Fatal(err)
	}

	for name, err := range attempts() {
		if err == nil || !errors.Is(err, syscall.ECONNREFUSED) && !strings.Contains(name, "IPv6") {
			t.Errorf("%s connects with %v", name, err)
		}
	}

	service := strings.TrimSuffix(w.machine, "m") + "s"
	listen(t, w.pod, join.Port, "10.244.1.2")
	for name, err := range map[string]error{
		"the agent":                           w.connectTo("agent.service", balancer, join.Port),
		"the agent, by its own address":       w.connectTo("agent.service", ownMachine, join.Port),
		"the API server, at its machine":      w.connectTo("kubepods/pod1", ownMachine, join.Port),
		"the load balancer":                   dial(service, ownMachine, join.Port),
		"a program of the host to a pod here": w.connectTo("kubepods/pod1", "10.244.1.2", join.Port),
		"another machine to a pod here":       dial(service, "10.244.1.2", join.Port),
		"an allowed program, to the metadata": w.connect("allowed.service", imdsguard.AddressIPv4),
	} {
		if err != nil {
			t.Errorf("%s connects with %v", name, err)
		}
	}
}
