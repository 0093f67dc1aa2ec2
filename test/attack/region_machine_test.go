// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/region/image"
	"github.com/slipway-k8s/slipway/internal/region/machine"
	"github.com/slipway-k8s/slipway/internal/region/netspec"
)

// The test program is also the supervisor of machines, like the slipway program.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == machine.SupervisorCommand {
		os.Exit(machine.Main(os.Args[2:], os.Stderr))
	}

	os.Exit(m.Run())
}

// regionMachine is a machine of a local region, with a network of its own.
type regionMachine struct {
	*testing.T
	name string
	host *machine.Host
	dir  string
	id   string
}

// EnsureNamespace creates the network of the machine.
func (m *regionMachine) EnsureNamespace(ctx context.Context, _ netspec.Machine) (string, error) {
	path := "/run/netns/" + m.name
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}

	out, err := exec.CommandContext(ctx, "ip", "netns", "add", m.name).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ip netns add: %w: %s", err, out)
	}

	return path, nil
}

func launchRegionMachine(t *testing.T) *regionMachine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: real machines need root")
	}

	base := os.Getenv("SLIPWAY_CACHE")
	if base == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}

		base = filepath.Join(cache, "slipway")
	}

	img, err := image.Build(t.Context(), image.Options{CacheDir: filepath.Join(base, "image"), Arch: runtime.GOARCH})
	if err != nil {
		t.Fatal(err)
	}

	dir, err := os.MkdirTemp(base, "test-attack-") //nolint:usetesting // overlays need a real disk; /tmp may be a tmpfs
	if err != nil {
		t.Fatal(err)
	}

	m := &regionMachine{T: t, name: fmt.Sprintf("slwtattack%d", os.Getpid()), dir: dir, id: "i-0000000000000000a"}
	m.host, err = machine.New(machine.Config{
		Region:     "attack" + strconv.Itoa(os.Getpid()),
		Dir:        filepath.Join(dir, "region"),
		Namespaces: m,
		ImageRoot:  func(string) (string, error) { return img.Root, nil },
	})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(m.clean)
	err = m.host.Launch(t.Context(), netspec.Machine{
		ID:       m.id,
		Image:    img.ID,
		Hostname: "attack",
		Domain:   "ec2.internal",
		Iface:    netspec.Interface{Addr: netip.MustParseAddr("10.0.0.10")},
		Resolver: netip.MustParseAddr("127.0.0.1"),
		VCPUs:    1,
		MemoryMB: 1024,
	})
	if err != nil {
		t.Fatal(err)
	}

	return m
}

func (m *regionMachine) clean() {
	err := errors.Join(m.host.Destroy(context.Background()), os.RemoveAll(m.dir))
	if err != nil {
		m.Error(err)
	}

	_ = exec.CommandContext(context.Background(), "ip", "netns", "del", m.name).Run()
}

// asRoot runs a script in the machine, in the cgroup of its systemd.
func (m *regionMachine) asRoot(script string) string {
	m.Helper()
	const enter = "for at in /sys/fs/cgroup /sys/fs/cgroup/unified; do [ -e $at/cgroup.procs ] && echo $$ >$at/cgroup.procs; done; "
	data, err := os.ReadFile(filepath.Join(m.dir, "region/instances", m.id, "pid.json"))
	if err != nil {
		m.Fatal(err)
	}

	_, rest, _ := strings.Cut(string(data), `"pid": `)
	pid, _, _ := strings.Cut(rest, ",")
	ctx, cancel := context.WithTimeout(m.Context(), time.Minute)
	defer cancel()

	for {
		out, err := exec.CommandContext(ctx, "nsenter", "-t", pid, "-m", "-u", "-i", "-n", "-p", "-C", "-r", "-w",
			"/bin/sh", "-c", enter+script).CombinedOutput()
		if err == nil {
			return strings.TrimSpace(string(out))
		}

		select {
		case <-ctx.Done():
			m.Fatalf("%s: %v\n%s", script, err, out)
		case <-time.After(200 * time.Millisecond): // systemd is starting
		}
	}
}

// TestMachinesOfTheRegionSpareTheirHost: root of a machine of the local region opens the host's disks and its kernel log,
// changes its settings, and looks for capabilities that act on the host. Seen to succeed while machines had all of them.
func TestMachinesOfTheRegionSpareTheirHost(t *testing.T) {
	m := launchRegionMachine(t)
	for name, numbers := range openDevices(t) {
		got := m.asRoot("rm -f /dev/host && mknod /dev/host " + numbers + "; if (: </dev/host) 2>/dev/null; then echo opened; else echo refused; fi")
		if got != "refused" {
			t.Errorf("%s of the host: %s", name, got)
		}
	}

	for _, path := range []string{"/proc/sys/kernel/panic", "/proc/sys/vm/overcommit_memory"} {
		got := m.asRoot("v=$(cat " + path + "); if (echo $v >" + path + ") 2>/dev/null; then echo written; else echo refused; fi")
		if got != "refused" {
			t.Errorf("%s of the host: %s", path, got)
		}
	}

	m.remountsChangeNoSettings()

	line := m.asRoot("grep ^CapBnd /proc/1/status") // this test's own are those of the host
	_, text, _ := strings.Cut(line, "\t")
	set, err := strconv.ParseUint(text, 16, 64)
	if err != nil {
		t.Fatal(err)
	}

	for name, capability := range map[string]int{
		"load modules":           unix.CAP_SYS_MODULE,
		"use ports and memory":   unix.CAP_SYS_RAWIO,
		"set the clock":          unix.CAP_SYS_TIME,
		"clear the kernel's log": unix.CAP_SYSLOG,
	} {
		if set&(1<<capability) != 0 {
			t.Errorf("root of a machine may %s of the host: %s", name, line)
		}
	}
}

// remountsChangeNoSettings mounts /proc again and makes what is mounted of it writable, as root of the machine, and then changes settings of
// the host. Seen to succeed while only the mounts of the machine protected these settings.
func (m *regionMachine) remountsChangeNoSettings() {
	m.Helper()
	const again = "d=$(mktemp -d) && mount -t proc proc $d && "
	for name, at := range map[string]string{
		"a new mount":     again + "at=$d/sys",
		"a writable bind": "mount -o remount,bind,rw /proc/sys && at=/proc/sys",
	} {
		for _, setting := range []string{"kernel/panic", "vm/overcommit_memory", "kernel/core_pattern"} {
			got := m.asRoot(at + "; v=$(cat $at/" + setting + "); " +
				"if (echo \"$v\" >$at/" + setting + ") 2>/dev/null; then echo written; else echo refused; fi")
			if got != "refused" {
				m.Errorf("%s of the host by %s: %s", setting, name, got)
			}
		}
	}
}

// openDevices returns devices of the host that this process can open, with their numbers for mknod.
func openDevices(t *testing.T) map[string]string {
	t.Helper()
	paths := []string{"/dev/kmsg"}
	for _, pattern := range []string{"/dev/vd?", "/dev/sd?", "/dev/nvme?n?", "/dev/zram?"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}

		paths = append(paths, found...)
	}

	out := map[string]string{}
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			continue
		}

		var stat unix.Stat_t
		err = unix.Fstat(int(f.Fd()), &stat)
		_ = f.Close()
		if err != nil {
			t.Fatal(err)
		}

		kind := "c"
		if stat.Mode&unix.S_IFMT == unix.S_IFBLK {
			kind = "b"
		}

		out[path] = fmt.Sprintf("%s %d %d", kind, unix.Major(stat.Rdev), unix.Minor(stat.Rdev))
	}

	if len(out) == 0 {
		t.Skip("SKIPPED: this process can open no device of the host")
	}

	return out
}
