// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/machine/imdsguard"
	"github.com/slipway-k8s/slipway/internal/machine/join"
)

// world is a machine and a metadata service, each in a network namespace, and cgroups of the machine's programs.
type world struct {
	*testing.T
	machine string
	// top is the hierarchy whose cgroups the programs are in, and group the one that contains theirs.
	top, group string
	guard      *imdsguard.Guard
}

// newWorld starts the service. Hierarchy is unified or systemd below /sys/fs/cgroup.
func newWorld(t *testing.T, hierarchy string) *world {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: network namespaces and cgroups need root")
	}
	top := filepath.Join("/sys/fs/cgroup", hierarchy)
	if _, err := os.Stat(filepath.Join(top, "cgroup.procs")); err != nil {
		t.Skip("SKIPPED: this machine has no cgroups in " + top)
	}
	id := fmt.Sprintf("slwt%d%s", os.Getpid(), hierarchy[:1])
	w := &world{T: t, machine: id + "m", top: top, group: id}
	for _, line := range []string{
		"netns add " + w.machine, "netns add " + id + "s",
		"link add slwtm netns " + w.machine + " type veth peer name slwts netns " + id + "s",
		"-n " + w.machine + " addr add 198.51.100.1/30 dev slwtm", "-n " + w.machine + " addr add fd00:9::1/64 dev slwtm nodad",
		"-n " + w.machine + " link set slwtm up", "-n " + id + "s link set slwts up", "-n " + w.machine + " link set lo up",
		"-n " + id + "s addr add 198.51.100.2/30 dev slwts", "-n " + id + "s addr add fd00:9::2/64 dev slwts nodad",
		"-n " + id + "s addr add " + imdsguard.AddressIPv4 + "/32 dev slwts", "-n " + id + "s addr add " + imdsguard.AddressIPv6 + "/128 dev slwts nodad",
		"-n " + w.machine + " route add " + imdsguard.AddressIPv4 + " via 198.51.100.2", "-n " + w.machine + " route add " + imdsguard.AddressIPv6 + " via fd00:9::2",
	} {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v\n%s", line, err, out)
		}
	}
	t.Cleanup(func() {
		for _, name := range []string{w.machine, id + "s"} {
			_ = exec.Command("ip", "netns", "del", name).Run()
		}
		for _, name := range []string{"/agent.service", "/allowed.service", "/kubepods/pod1", "/kubepods", ""} {
			_ = os.Remove(filepath.Join(top, w.group+name))
		}
	})
	for _, name := range []string{"/agent.service", "/allowed.service", "/kubepods/pod1"} {
		if err := os.MkdirAll(filepath.Join(top, w.group+name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	listen(t, id+"s", "80", imdsguard.AddressIPv4, imdsguard.AddressIPv6)
	root := t.TempDir()
	own := "0::/" + id + "/agent.service\n1:name=systemd:/" + id + "/agent.service\n"
	err := errors.Join(
		os.MkdirAll(filepath.Join(root, "proc/self"), 0o755),
		os.MkdirAll(filepath.Join(root, "sys/fs/cgroup"), 0o755),
		os.WriteFile(filepath.Join(root, "proc/self/cgroup"), []byte(own), 0o600),
		os.Symlink(top, filepath.Join(root, "sys/fs/cgroup", hierarchy)),
	)
	if err != nil {
		t.Fatal(err)
	}
	w.guard = &imdsguard.Guard{Root: root, Load: w.load, List: w.list, Reach: func(context.Context) error { return w.connect("agent.service", imdsguard.AddressIPv4) }}
	return w
}

// inNamespace runs f in a network namespace.
func inNamespace(t *testing.T, name string, f func()) {
	t.Helper()
	runtime.LockOSThread() // for the rest of the test: the thread is not reused
	outside, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	inside, err := netns.GetFromName(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := netns.Set(inside); err != nil {
		t.Fatal(err)
	}
	f()
	if err := errors.Join(netns.Set(outside), outside.Close(), inside.Close()); err != nil {
		t.Fatal(err)
	}
}

// listen accepts connections at a port of addresses in a network namespace.
func listen(t *testing.T, name, port string, addresses ...string) {
	t.Helper()
	inNamespace(t, name, func() {
		for _, address := range addresses {
			network := "tcp4"
			if strings.Contains(address, ":") {
				network = "tcp6"
			}
			acceptAt(t, network, net.JoinHostPort(address, port), func(c net.Conn) { _ = c.Close() })
		}
	})
}

// acceptAt serves connections to an address until the test ends.
func acceptAt(t *testing.T, network, address string, serve func(net.Conn)) {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serve(c)
		}
	}()
}

func (w *world) load(_ context.Context, ruleset string) error {
	file := filepath.Join(w.TempDir(), "rules.nft")
	if err := os.WriteFile(file, []byte(ruleset), 0o600); err != nil {
		return err
	}
	out, err := exec.Command("nsenter", "--net=/run/netns/"+w.machine, "nft", "-f", file).CombinedOutput()
	if err != nil {
		return fmt.Errorf("nft: %w\n%s\n%s", err, out, ruleset)
	}
	return nil
}

func (w *world) list(context.Context) (string, error) {
	out, err := exec.Command("nsenter", "--net=/run/netns/"+w.machine, "nft", "--stateless", "list", "table", "inet", "slipway_metadata").Output()
	return string(out), err
}

// nft runs a command of nft on the machine, as root there can.
func (w *world) nft(args ...string) {
	w.Helper()
	out, err := exec.Command("nsenter", append([]string{"--net=/run/netns/" + w.machine, "nft"}, args...)...).CombinedOutput()
	if err != nil {
		w.Fatalf("nft %s: %v\n%s", args, err, out)
	}
}

// connect connects to the service from a cgroup of the machine. It returns ECONNREFUSED if the rules refuse it.
func (w *world) connect(cgroup, address string) error { return w.connectTo(cgroup, address, "80") }

// connectTo connects to a port from a cgroup of the machine. It returns ECONNREFUSED if the rules refuse it.
func (w *world) connectTo(cgroup, address, port string) error {
	script := fmt.Sprintf("echo $$ >%s/cgroup.procs && exec nsenter --net=/run/netns/%s timeout 5 bash -c 'exec 3<>/dev/tcp/%s/%s'",
		filepath.Join(w.top, w.group, cgroup), w.machine, address, port)
	out, err := exec.Command("bash", "-c", script).CombinedOutput()
	if strings.Contains(string(out), "refused") {
		return syscall.ECONNREFUSED
	}
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// attack checks that a container in the network of the host reaches the service, or does not.
func (w *world) attack(reaches bool) {
	w.Helper()
	for _, address := range []string{imdsguard.AddressIPv4, imdsguard.AddressIPv6} {
		err := w.connect("kubepods/pod1", address)
		if reaches && err != nil || !reaches && !errors.Is(err, syscall.ECONNREFUSED) {
			w.Errorf("a container connects to %s with %v", address, err)
		}
	}
}

func (w *world) check() {
	w.Helper()
	w.attack(true) // without the guard
	allowed := w.group + "/allowed.service"
	for range 2 {
		if err := w.guard.Apply(w.Context(), imdsguard.Allowed{Cgroups: []string{"missing.slice/x.service", allowed}}); err != nil {
			w.Fatal(err)
		}
	}
	w.attack(false)
	for _, name := range []string{"agent.service", "allowed.service"} {
		for _, address := range []string{imdsguard.AddressIPv4, imdsguard.AddressIPv6} {
			if err := w.connect(name, address); err != nil {
				w.Errorf("%s connects to %s with %v", name, address, err)
			}
		}
	}
}

// TestContainersReachNoMetadata: a container in the network of its host reaches the service until the guard is applied.
// The agent and the allowed cgroup always reach it. Seen to succeed in each run, until then.
func TestContainersReachNoMetadata(t *testing.T) {
	w := newWorld(t, "unified")
	w.check()

	// Root removes or changes the rules, as a privileged container can. Seen to succeed for ever before the guard
	// listed the rules of the kernel.
	for _, args := range [][]string{
		{"delete", "table", "inet", "slipway_metadata"},
		{"flush", "ruleset"},
		{"flush", "chain", "inet", "slipway_metadata", "guard"},
		{"insert", "rule", "inet", "slipway_metadata", "guard", "accept"},
	} {
		w.nft(args...)
		w.attack(true)
		if err := w.guard.Apply(t.Context(), imdsguard.Allowed{Cgroups: []string{w.group + "/allowed.service"}}); err != nil {
			t.Fatal(err)
		}
		w.attack(false)
	}

	// A restarted unit has a new cgroup of the same name.
	agent := filepath.Join(w.top, w.group, "agent.service")
	if err := errors.Join(os.Remove(agent), os.Mkdir(agent, 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := w.connect("agent.service", imdsguard.AddressIPv4); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the new cgroup connects with %v before the rules are loaded again", err)
	}
	if err := w.guard.Apply(t.Context(), imdsguard.Allowed{Cgroups: []string{w.group + "/kubepods"}}); err != nil {
		t.Fatal(err)
	}
	if err := w.connect("agent.service", imdsguard.AddressIPv4); err != nil {
		t.Errorf("the agent after a restart: %v", err)
	}
	w.attack(true) // the manifest may allow all pods
}

// TestContainersReachNoMetadataOnVersion1: the same on a machine that has cgroup version 1 alone. A process gets its
// class when the guard is applied, so programs of an allowed cgroup are classified with each call. Seen to succeed in each run, until
// then.
func TestContainersReachNoMetadataOnVersion1(t *testing.T) {
	w := newWorld(t, "systemd")
	classes := filepath.Join(w.guard.Root, "sys/fs/cgroup/net_cls")
	if err := os.Mkdir(classes, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("cgroup", classes, "cgroup", 0, "net_cls"); err != nil {
		t.Skipf("SKIPPED: the kernel has no net_cls: %v", err)
	}
	t.Cleanup(func() {
		_ = os.Remove(filepath.Join(classes, "slipway-metadata"))
		_ = os.Remove(filepath.Join(classes, "slipway-agent"))
		_ = unix.Unmount(classes, unix.MNT_DETACH)
	})
	agent := w.idle("agent.service")
	allowed := imdsguard.Allowed{Cgroups: []string{w.group + "/allowed.service"}, PodNetwork: podNetwork}
	w.guard.Port = join.Port
	w.attack(true)
	listen(t, strings.TrimSuffix(w.machine, "m")+"s", join.Port, balancer)
	w.guard.Reach = func(context.Context) error { return w.connectAs(agent, classes, imdsguard.AddressIPv4, "80") }
	for range 2 {
		if err := w.guard.Apply(t.Context(), allowed); err != nil {
			t.Fatal(err)
		}
	}
	w.attack(false)
	if err := w.guard.Reach(t.Context()); err != nil {
		t.Errorf("the agent connects with %v", err)
	}
	if err := w.connectAs(agent, classes, balancer, join.Port); err != nil {
		t.Errorf("the agent connects to the join endpoint with %v", err)
	}
	if err := w.connectTo("kubepods/pod1", balancer, join.Port); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a container connects to the join endpoint with %v", err)
	}

	later := w.idle("allowed.service") // a program that systemd starts later
	if err := w.connectAs(later, classes, imdsguard.AddressIPv4, "80"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a program without a class connects with %v", err)
	}
	if err := w.guard.Apply(t.Context(), allowed); err != nil {
		t.Fatal(err)
	}
	if err := w.connectAs(later, classes, imdsguard.AddressIPv4, "80"); err != nil {
		t.Errorf("a program of an allowed unit that started later connects with %v after the next round", err)
	}
	if err := w.connectAs(later, classes, balancer, join.Port); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a program of an allowed unit connects to the join endpoint with %v", err)
	}
}

// idle starts a process in a cgroup, and returns its id.
func (w *world) idle(cgroup string) int {
	w.Helper()
	c := exec.Command("bash", "-c", "echo $$ >"+filepath.Join(w.top, w.group, cgroup, "cgroup.procs")+" && exec sleep 60")
	if err := c.Start(); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = errors.Join(c.Process.Kill(), c.Wait()) })
	for range 200 {
		if body, err := os.ReadFile(filepath.Join(w.top, w.group, cgroup, "cgroup.procs")); err == nil && len(body) > 0 {
			return c.Process.Pid
		}
		_ = exec.Command("sleep", "0.05").Run()
	}
	w.Fatal("the process has not moved")
	return 0
}

// connectAs connects from the class that a process has.
func (w *world) connectAs(pid int, classes, address, port string) error {
	body, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(body)) {
		if _, group, ok := strings.Cut(strings.TrimSpace(line), "net_cls:"); ok {
			script := fmt.Sprintf("echo $$ >%s/cgroup.procs && exec nsenter --net=/run/netns/%s timeout 5 bash -c 'exec 3<>/dev/tcp/%s/%s'",
				filepath.Join(classes, group), w.machine, address, port)
			out, err := exec.Command("bash", "-c", script).CombinedOutput()
			if strings.Contains(string(out), "refused") {
				return syscall.ECONNREFUSED
			}
			return err
		}
	}
	return errors.New("the process is in no class")
}
