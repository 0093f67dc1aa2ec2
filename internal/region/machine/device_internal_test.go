// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// simulate runs a device program as the kernel does.
func simulate(t *testing.T, program []instruction, access int32, d device) int64 {
	t.Helper()
	var registers [11]int64
	words := map[int16]int64{0: int64(access)<<16 | int64(d.kind), 4: int64(d.major), 8: int64(d.minor)}
	for at := 0; at < len(program); at++ {
		i := program[at]
		to, from := &registers[i.registers&0xf], registers[i.registers>>4]
		switch int(i.code) {
		case opLoadWord:
			*to = words[i.offset]
		case opMoveValue:
			*to = int64(i.immediate)
		case opMoveFrom:
			*to = from
		case opAndValue:
			*to &= int64(i.immediate)
		case opShiftRight:
			*to >>= i.immediate
		case opJumpUnequal:
			if *to != int64(i.immediate) {
				at += int(i.offset)
			}
		case opExit:
			return registers[registerResult]
		default:
			t.Fatalf("instruction %d has code %#x", at, i.code)
		}
	}
	t.Fatal("the program does not end")
	return 0
}

// TestDeviceProgram: the disks, memory and consoles of the host are denied, and the devices of machines are not.
func TestDeviceProgram(t *testing.T) {
	const mknod, read, write = 1, 2, 4
	program := deviceProgram(ownDevices())
	for name, c := range map[string]struct {
		access, kind, major, minor int32
		allowed                    int64
	}{
		"null":                {read | write, charDevice, 1, 3, 1},
		"memory":              {read, charDevice, 1, 1, 0},
		"ports":               {write, charDevice, 1, 4, 0},
		"the kernel's log":    {read, charDevice, 1, 11, 0},
		"a terminal":          {read | write, charDevice, 136, 7, 1},
		"the host's console":  {write, charDevice, 4, 64, 0},
		"a tunnel":            {read | write, charDevice, 10, 200, 1},
		"a watchdog":          {write, charDevice, 10, 130, 0},
		"a volume":            {read | write, blockDevice, 7, 12, 1},
		"a disk of the host":  {read, blockDevice, 8, 0, 0},
		"a disk of a virtio":  {write, blockDevice, 254, 0, 0},
		"a node of a disk":    {mknod, blockDevice, 8, 0, 1},
		"a disk numbered 1:3": {read, blockDevice, 1, 3, 0},
	} {
		if got := simulate(t, program, c.access, device{c.kind, c.major, c.minor}); got != c.allowed {
			t.Errorf("%s: %d, want %d", name, got, c.allowed)
		}
	}
	if _, err := loadProgram(unix.BPF_PROG_TYPE_CGROUP_DEVICE, program); err != nil {
		t.Logf("the kernel refuses the program: %v", err)
	}
}

// TestNoMachineWithHostDevices: a machine is not started if the kernel cannot deny it the devices of the host. Seen to fail: a
// kernel without cgroup version 2, and one that refuses the program, left all of them allowed.
func TestNoMachineWithHostDevices(t *testing.T) {
	for name, groups := range map[string][]cgroupHierarchy{
		"no hierarchy": {{Mount: t.TempDir(), Options: "pids"}},
		"no program":   {{Mount: t.TempDir(), V2: true}}, // a folder to which no program can be attached
		"no rules":     {{Mount: t.TempDir(), Options: "devices"}},
	} {
		err := makeCgroups(groups, "slipway/test/i-1", 0)
		if err == nil || !strings.Contains(err.Error(), "deny the devices of the host") || !strings.Contains(err.Error(), "CONFIG_CGROUP_BPF") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDevicesOfVersion1: where the kernel refuses the program, the controller of version 1 denies the devices of the host to
// a machine, and root in the machine cannot allow them again.
func TestDevicesOfVersion1(t *testing.T) {
	groups, err := listHierarchies()
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(groups, func(h cgroupHierarchy) bool { return h.Options == "devices" })
	if os.Geteuid() != 0 || at < 0 {
		t.Skip("SKIPPED: cgroup version 1 with the controller devices, and root, are needed")
	}
	devices := []cgroupHierarchy{groups[at]}
	top := fmt.Sprintf("slipway-devices-%d", os.Getpid())
	path := top + "/region/i-1"
	t.Cleanup(func() {
		if err := removeCgroups(context.Background(), devices, top); err != nil {
			t.Error(err)
		}
	})
	if err := makeCgroups(devices, path, 0); err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(devices[0].Mount, path)
	if err := os.WriteFile(filepath.Join(own, "devices.allow"), []byte("a"), 0o600); err == nil {
		t.Error("root in a machine allows all devices again")
	}
	const script = `echo $$ >"$0" && for at in null kmsg zero; do if (: <"/dev/$at") 2>/dev/null; then echo opened; else echo refused; fi; done`
	out, err := exec.Command("sh", "-c", script, filepath.Join(own, "cgroup.procs")).CombinedOutput()
	if err != nil || string(out) != "opened\nrefused\nopened\n" {
		t.Errorf("null, kmsg, zero: %q, %v", out, err)
	}
	if err := makeCgroups(devices, top+"/region/i-2", 0); err != nil {
		t.Errorf("a second machine: %v", err)
	}
}
