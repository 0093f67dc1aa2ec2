// SPDX-License-Identifier: Apache-2.0

package agent

import (
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
	"time"

	"github.com/vishvananda/netns"

	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// TestGateInTheKernel loads the rulesets into a network namespace with a listener: while the gate is closed,
// other machines are refused at once, programs of the machine connect, and open connections go on.
func TestGateInTheKernel(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: network namespaces need root")
	}
	name := fmt.Sprintf("slwt-gate-%d", os.Getpid())
	for _, line := range []string{
		"netns add " + name, "netns exec " + name + " ip link set lo up",
		"link add slwtg0 type veth peer name slwtg1 netns " + name, "addr add 198.51.100.1/30 dev slwtg0", "link set slwtg0 up",
		"netns exec " + name + " ip addr add 198.51.100.2/30 dev slwtg1", "netns exec " + name + " ip link set slwtg1 up",
	} {
		if line == "netns exec "+name+" ip link set lo up" {
			t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
		}
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v\n%s", line, err, out)
		}
	}
	runtime.LockOSThread() // for the rest of the test: the thread is not reused
	outside, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = outside.Close() }()
	inside, err := netns.GetFromName(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = inside.Close() }()
	enter := func(ns netns.NsHandle) {
		t.Helper()
		if err := netns.Set(ns); err != nil {
			t.Fatal(err)
		}
	}
	enter(inside)
	l, err := net.Listen("tcp", ":"+kube.APIPort)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	root := &HostFS{Dir: t.TempDir()}
	if err := errors.Join(os.Mkdir(root.Path("/proc"), 0o755), os.Symlink("/proc/thread-self/net", root.Path("/proc/net"))); err != nil {
		t.Fatal(err)
	}
	if inode := findAPIListener(root); inode == "" {
		t.Error("the listener was not found in /proc/net")
	}
	enter(outside)
	connect := func(ns netns.NsHandle, address string) (net.Conn, error) {
		enter(ns)
		defer enter(outside)
		fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		to := &syscall.SockaddrInet4{Port: 6443, Addr: [4]byte(net.ParseIP(address).To4())}
		if err := syscall.Connect(fd, to); err != nil { // blocks: a dropped packet would take minutes
			return nil, errors.Join(err, syscall.Close(fd))
		}
		f := os.NewFile(uintptr(fd), "connection")
		defer func() { _ = f.Close() }()
		return net.FileConn(f)
	}
	load := func(ruleset string) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "gate.nft")
		if err := os.WriteFile(file, []byte(ruleset), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("ip", "netns", "exec", name, "nft", "-f", file).CombinedOutput(); err != nil {
			t.Fatalf("nft: %v\n%s", err, out)
		}
	}

	early, err := connect(outside, "198.51.100.2")
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // loading it again changes nothing
		load(closedRuleset)
		begin := time.Now()
		if _, err := connect(outside, "198.51.100.2"); !errors.Is(err, syscall.ECONNREFUSED) || time.Since(begin) > time.Second {
			t.Errorf("closed: another machine connects with %v after %s, want a refusal at once", err, time.Since(begin))
		}
		for _, address := range []string{"127.0.0.1", "198.51.100.2"} {
			if _, err := connect(inside, address); err != nil {
				t.Errorf("closed: a program of the machine at %s: %v", address, err)
			}
		}
	}
	if _, err := early.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	if n, err := accepted.Read(make([]byte, 1)); n != 1 {
		t.Errorf("closed: an open connection transfers nothing: %v", err)
	}
	for range 2 {
		load(openRuleset)
		if _, err := connect(outside, "198.51.100.2"); err != nil {
			t.Errorf("open: %v", err)
		}
	}
}
