// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	m.opensNoDevices()
	m.changesNoSettings()
	m.remountsChangeNoSettings()
	m.hasNoHostCapabilities()
}

// openDevice makes a device with these numbers, as root of the machine, and reports what happens when it is opened.
func (m *regionMachine) openDevice(numbers string) string {
	m.Helper()

	return m.asRoot("rm -f /dev/host; mknod /dev/host " + numbers + " || { echo no device; exit 0; }; " +
		"if e=$( (: </dev/host) 2>&1); then echo opened; else echo \"$e\"; fi")
}

// opensNoDevices tries devices of the host. The kernel refuses each before it looks for its driver, so a device needs not
// exist for this test to see that a machine may not open it.
func (m *regionMachine) opensNoDevices() {
	m.Helper()
	if got := m.openDevice("c 1 3"); got != "opened" { // else a refusal would mean nothing
		m.Fatalf("/dev/null of the machine: %s", got)
	}

	devices := map[string]string{
		"kernel log": "c 1 11", "memory": "c 1 1", "ports": "c 1 4", "random numbers": "c 10 183",
		"virtual machines": "c 10 232", "first SCSI disk": "b 8 0", "first virtio disk": "b 254 0", "first NVMe disk": "b 259 0",
		"first zram disk": "b 252 0", "watchdog": "c 10 130", "device mapper": "c 10 236",
	}
	found := hostDevices(m.T)
	m.Logf("COUNT devices of the host: %d by their numbers, %d that exist and this process can open", len(devices), len(found))
	maps.Copy(devices, found)

	for name, numbers := range devices {
		if got := m.openDevice(numbers); !strings.HasSuffix(got, "Operation not permitted") {
			m.Errorf("%s (%s) of the host: %s", name, numbers, got)
		}
	}
}

// writeSetting writes the value that a setting has, as root of the machine, and reports what happens. prepare sets $at to the
// directory of the settings.
func (m *regionMachine) writeSetting(prepare, name string) string {
	m.Helper()

	return m.asRoot(prepare + " || { echo not mounted; exit 0; }; f=$at/" + name + "; v=$(cat $f) || { echo unreadable; exit 0; }; " +
		"if (echo \"$v\" >$f) 2>/dev/null; then echo written; else echo refused; fi")
}

// hostSettings are settings of the kernel that belong to no namespace.
func hostSettings() []string {
	return []string{"kernel/panic", "vm/overcommit_memory", "kernel/core_pattern", "fs/file-max", "kernel/randomize_va_space"}
}

// changesNoSettings tries the settings where the machine sees them.
func (m *regionMachine) changesNoSettings() {
	m.Helper()
	m.checkSettings("at=/proc/sys")
}

// remountsChangeNoSettings mounts /proc again and makes what is mounted of it writable, as root of the machine, and then
// changes settings of the host. Seen to succeed while only the mounts of the machine protected these settings.
func (m *regionMachine) remountsChangeNoSettings() {
	m.Helper()
	m.checkSettings("d=$(mktemp -d) && mount -t proc proc $d && at=$d/sys")
	m.checkSettings("mount -o remount,bind,rw /proc/sys && at=/proc/sys")
}

// checkSettings checks that the machine writes no setting of its host, and that it writes those of its own network.
func (m *regionMachine) checkSettings(prepare string) {
	m.Helper()
	if got := m.writeSetting(prepare, "net/ipv4/ip_forward"); got != "written" { // else a refusal would mean nothing
		m.Fatalf("%s: a setting of the machine's own network: %s", prepare, got)
	}

	for _, name := range hostSettings() {
		if got := m.writeSetting(prepare, name); got != "refused" {
			m.Errorf("%s: %s of the host: %s", prepare, name, got)
		}
	}
}

// hasNoHostCapabilities reads the capabilities that the machine's first process, and so every other one, may ever have.
func (m *regionMachine) hasNoHostCapabilities() {
	m.Helper()
	line := m.asRoot("grep ^CapBnd /proc/1/status") // this test's own are those of the host
	_, text, _ := strings.Cut(line, "\t")
	set, err := strconv.ParseUint(text, 16, 64)
	if err != nil {
		m.Fatal(err)
	}

	if set&(1<<unix.CAP_SYS_ADMIN) == 0 {
		m.Errorf("a machine needs to mount: %s", line)
	}

	for name, capability := range map[string]int{
		"load modules":           unix.CAP_SYS_MODULE,
		"use ports and memory":   unix.CAP_SYS_RAWIO,
		"set the clock":          unix.CAP_SYS_TIME,
		"clear the kernel's log": unix.CAP_SYSLOG,
		"write accounts":         unix.CAP_SYS_PACCT,
		"change policies":        unix.CAP_MAC_ADMIN,
		"ignore policies":        unix.CAP_MAC_OVERRIDE,
		"wake":                   unix.CAP_WAKE_ALARM,
		"prevent the sleep":      unix.CAP_BLOCK_SUSPEND,
	} {
		if set&(1<<capability) != 0 {
			m.Errorf("root of a machine may %s of the host: %s", name, line)
		}
	}
}

// hostDevices returns devices of the host that this process can open, with their numbers for mknod. There may be none.
func hostDevices(t *testing.T) map[string]string {
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
		if numbers := deviceNumbers(t, path); numbers != "" {
			out[path] = numbers
		}
	}

	return out
}

// deviceNumbers returns the type and the numbers of a device for mknod; empty if this process cannot open it.
func deviceNumbers(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		return ""
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

	return fmt.Sprintf("%s %d %d", kind, unix.Major(stat.Rdev), unix.Minor(stat.Rdev))
}
