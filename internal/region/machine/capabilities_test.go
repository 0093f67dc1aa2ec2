// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestHostCapabilitiesAreMissing: the root of a machine may not do what acts on the host, such as loading a module or setting
// the clock. It was seen to have every capability.
func TestHostCapabilitiesAreMissing(t *testing.T) {
	b := newBench(t, "#!/bin/sh\n")
	m := b.launch(1)
	b.awaitRunning(m.ID)
	line := b.mustRun(m.ID, "grep ^CapBnd /proc/1/status")
	_, text, _ := strings.Cut(line, "\t")
	set, err := strconv.ParseUint(text, 16, 64)
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	for name, number := range map[string]int{
		"SYS_MODULE": 16, "SYS_RAWIO": 17, "SYS_PACCT": 20, "SYS_TIME": 25, "MAC_OVERRIDE": 32, "MAC_ADMIN": 33, "SYSLOG": 34, "WAKE_ALARM": 35, "BLOCK_SUSPEND": 36,
	} {
		if set&(1<<number) != 0 {
			t.Errorf("systemd may have %s: %s", name, line)
		}
	}
	for name, number := range map[string]int{"NET_ADMIN": 12, "SYS_ADMIN": 21, "SYS_BOOT": 22, "MKNOD": 27} {
		if set&(1<<number) == 0 {
			t.Errorf("systemd may not have %s, which a machine needs: %s", name, line)
		}
	}
}

// TestHostSettingsAreReadOnly: a machine reads the kernel settings of its host, and writes those of its own network alone. It
// was seen to write all of them.
func TestHostSettingsAreReadOnly(t *testing.T) {
	b := newBench(t, "#!/bin/sh\n")
	m := b.launch(1)
	b.awaitRunning(m.ID)
	write := func(path string) string {
		return strings.TrimSpace(b.mustRun(m.ID, "v=$(cat "+path+"); if (echo $v >"+path+") 2>/dev/null; then echo written; else echo refused; fi"))
	}
	for _, path := range []string{"/proc/sys/kernel/panic", "/proc/sys/vm/overcommit_memory", "/proc/sys/fs/inotify/max_user_watches"} {
		if got := write(path); got != "refused" {
			t.Errorf("%s: %s", path, got)
		}
	}
	if got := write("/proc/sys/net/ipv4/ip_forward"); got != "written" {
		t.Errorf("the setting of the machine's own network: %s", got)
	}
	for path, want := range map[string]string{"/proc/sys/vm/overcommit_memory": "1", "/proc/sys/kernel/panic": "10"} {
		if got := strings.TrimSpace(b.mustRun(m.ID, "cat "+path)); got != want {
			t.Errorf("%s is %s, and a kubelet requires %s", path, got, want)
		}
	}
}

// TestDevicesOfTheHostAreDenied: the root of a machine opens no device of the host, and those of machines. It was seen to open
// all that the host can.
func TestDevicesOfTheHostAreDenied(t *testing.T) {
	devices := hostDevices(t)
	b := newBench(t, "#!/bin/sh\n")
	m := b.launch(1)
	b.awaitRunning(m.ID)
	// The shell of this test is not in the machine's cgroup.
	const enter = "for at in /sys/fs/cgroup /sys/fs/cgroup/unified; do [ -e $at/cgroup.procs ] && echo $$ >$at/cgroup.procs; done; "
	open := func(path string) string {
		return strings.TrimSpace(b.mustRun(m.ID, enter+"if (: <"+path+") 2>/dev/null; then echo opened; else echo refused; fi"))
	}
	for name, numbers := range devices {
		b.mustRun(m.ID, "rm -f /dev/host && mknod /dev/host "+numbers)
		if got := open("/dev/host"); got != "refused" {
			t.Errorf("%s (%s) of the host: %s", name, numbers, got)
		}
	}
	for _, name := range []string{"null", "zero", "urandom", "ptmx", "net/tun"} {
		if got := open("/dev/" + name); got != "opened" {
			t.Errorf("%s of the machine: %s", name, got)
		}
	}
}

// hostDevices returns the devices of the host that this process can open, with their numbers for mknod.
func hostDevices(t *testing.T) map[string]string {
	t.Helper()
	names := []string{"zram0", "cpu/0/cpuid", "hwrng"}
	list, err := os.ReadFile("/proc/partitions")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(list)) {
		if f := strings.Fields(line); len(f) == 4 && f[0] != "major" && f[0] != "7" {
			names = append(names, f[3])
		}
	}
	out := map[string]string{}
	for _, name := range names {
		f, err := os.Open("/dev/" + name)
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
		out[name] = fmt.Sprintf("%s %d %d", kind, unix.Major(stat.Rdev), unix.Minor(stat.Rdev))
	}
	if len(out) == 0 {
		t.Skip("SKIPPED: this process can open no device of the host")
	}
	return out
}
