// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// device is a device that machines may read and write, or all of a major number.
type device struct {
	kind         int32
	major, minor int32
}

// The kinds of devices as a program for the kernel sees them, and all minor numbers.
const (
	blockDevice = 1
	charDevice  = 2
	anyMinor    = -1
)

// ownDevices are the devices of machines. All others belong to the host: its disks, its memory, its ports, its consoles.
func ownDevices() []device {
	const (
		memory    = 1
		terminals = 5
		misc      = 10
		masters   = 128
		slaves    = 136
		loop      = 7
	)

	return []device{
		{charDevice, memory, 3}, // null
		{charDevice, memory, 5}, // zero
		{charDevice, memory, 7}, // full
		{charDevice, memory, 8}, // random
		{charDevice, memory, 9}, // urandom
		{charDevice, terminals, anyMinor},
		{charDevice, misc, 200}, // net/tun
		{charDevice, misc, 229}, // fuse
		{charDevice, misc, 237}, // loop-control
		{charDevice, masters, anyMinor},
		{charDevice, slaves, anyMinor},
		{blockDevice, loop, anyMinor}, // the disks and volumes of machines
	}
}

// instruction is one of a program for the kernel.
type instruction struct {
	code      uint8
	registers uint8 // the destination in the low half, the source in the high one
	offset    int16
	immediate int32
}

// The operations of [deviceProgram].
const (
	opLoadWord    = unix.BPF_LDX | unix.BPF_MEM | unix.BPF_W
	opMoveValue   = unix.BPF_ALU64 | unix.BPF_MOV | unix.BPF_K
	opAndValue    = unix.BPF_ALU64 | unix.BPF_AND | unix.BPF_K
	opShiftRight  = unix.BPF_ALU64 | unix.BPF_RSH | unix.BPF_K
	opMoveFrom    = unix.BPF_ALU64 | unix.BPF_MOV | unix.BPF_X
	opJumpUnequal = unix.BPF_JMP | unix.BPF_JNE | unix.BPF_K
	opExit        = unix.BPF_JMP | unix.BPF_EXIT
)

// The registers of [deviceProgram].
const (
	registerResult  = 0
	registerContext = 1 // the access in question
	registerKind    = 2
	registerMajor   = 3
	registerMinor   = 4
	registerAccess  = 5
)

// answer returns the instructions that end a program with a result: 1 allows the access.
func answer(value int32) []instruction {
	return []instruction{
		{code: opMoveValue, registers: registerResult, immediate: value},
		{code: opExit},
	}
}

// deviceProgram returns the program that decides whether a machine may open a device. Making a node is always allowed, as
// container runtimes do.
func deviceProgram(allowed []device) []instruction {
	const (
		isRead  = 2
		isWrite = 4
		fields  = 16 // the access is in the high half of the first word, the kind in the low one
	)

	out := []instruction{
		{code: opLoadWord, registers: registerKind | registerContext<<4},
		{code: opLoadWord, registers: registerMajor | registerContext<<4, offset: 4},
		{code: opLoadWord, registers: registerMinor | registerContext<<4, offset: 8},
		{code: opMoveFrom, registers: registerAccess | registerKind<<4},
		{code: opShiftRight, registers: registerAccess, immediate: fields},
		{code: opAndValue, registers: registerAccess, immediate: isRead | isWrite},
		{code: opJumpUnequal, registers: registerAccess, offset: int16(len(answer(1)))},
	}

	out = append(out, answer(1)...)
	out = append(out, instruction{code: opAndValue, registers: registerKind, immediate: 1<<fields - 1})

	for _, d := range allowed {
		out = append(out, allowDevice(d)...)
	}

	return append(out, answer(0)...)
}

// allowDevice returns the instructions that allow one device, and go on for another one.
func allowDevice(d device) []instruction {
	checks := []instruction{
		{code: opJumpUnequal, registers: registerKind, immediate: d.kind},
		{code: opJumpUnequal, registers: registerMajor, immediate: d.major},
	}
	if d.minor != anyMinor {
		checks = append(checks, instruction{code: opJumpUnequal, registers: registerMinor, immediate: d.minor})
	}

	out := slices.Concat(checks, answer(1))
	for i := range checks {
		out[i].offset = int16(len(out) - i - 1)
	}

	return out
}

// hasDevices reports whether the hierarchy is of version 1 and has the controller of devices.
func (h cgroupHierarchy) hasDevices() bool {
	return slices.Contains(strings.Split(h.Options, ","), "devices")
}

// denyHostDevices denies the processes in a machine's cgroup all devices but those of machines: with a program for the cgroup
// of version 2, which must exist, or with the controller of version 1, if the kernel refuses the program. It creates the
// cgroup in the hierarchy of that controller. A machine whose root could open the disks of the host is not started.
func denyHostDevices(groups []cgroupHierarchy, path string) error {
	byProgram := errors.New("no hierarchy of it is mounted")
	byController := errors.New("no hierarchy with it is mounted")
	for _, h := range groups {
		if h.V2 {
			byProgram = attachDeviceProgram(filepath.Join(h.Mount, path))
		}
	}

	for _, h := range groups {
		if !h.hasDevices() {
			continue
		}

		if byProgram == nil {
			return h.createCgroup(path, nil)
		}

		byController = h.restrictDevices(path)
	}

	if byProgram == nil || byController == nil {
		return nil
	}

	return fmt.Errorf("deny the devices of the host to the machine, whose root could otherwise change the host's disks: "+
		"by a program for cgroup version 2: %w; by the controller devices of version 1: %w; "+
		"run the region on a kernel with CONFIG_CGROUP_BPF, and not in a container that forbids bpf(2)",
		byProgram, byController)
}

// attachDeviceProgram has the kernel ask the program of machines about devices for a cgroup of version 2.
func attachDeviceProgram(cgroup string) error {
	return attachProgram(cgroup, cgroupProgram{
		kind:         unix.BPF_PROG_TYPE_CGROUP_DEVICE,
		event:        unix.BPF_CGROUP_DEVICE,
		instructions: deviceProgram(ownDevices()),
	})
}

// cgroupProgram is a program that the kernel asks about what the processes of a cgroup do.
type cgroupProgram struct {
	// kind is that of the program, and event what it is asked about.
	kind, event uint32
	// instructions of the program.
	instructions []instruction
}

// attachProgram has the kernel ask a program for a cgroup of version 2.
func attachProgram(cgroup string, p cgroupProgram) error {
	program, err := loadProgram(p.kind, p.instructions)
	if err != nil {
		return fmt.Errorf("load it: %w", err)
	}

	defer func() { _ = unix.Close(program) }() // the cgroup keeps it
	folder, err := os.Open(cgroup)
	if err != nil {
		return fmt.Errorf("attach it: %w", err)
	}

	defer func() { _ = folder.Close() }()
	attributes := struct{ target, program, kind, flags uint32 }{
		target:  uint32(folder.Fd()),
		program: uint32(program),
		kind:    p.event,
		flags:   unix.BPF_F_ALLOW_MULTI, // container runtimes add their own
	}

	//nolint:gosec // the kernel reads the attributes during the call
	_, err = callBPF(unix.BPF_PROG_ATTACH, unsafe.Pointer(&attributes), unsafe.Sizeof(attributes))
	if err != nil {
		return fmt.Errorf("attach it to cgroup %s: %w", cgroup, err)
	}

	return nil
}

// restrictDevices creates a cgroup of version 1 that may use the devices of machines only. Root in a machine may write to the
// rules of its own cgroup, but never allows what those above deny: they are restricted too. One that an older slipway has
// created, and that has others in it, stays as it is.
func (h cgroupHierarchy) restrictDevices(path string) error {
	return h.createCgroup(path, func(cgroup string) error {
		list, err := os.ReadFile(filepath.Join(cgroup, "devices.list"))
		if err != nil || !strings.Contains(string(list), unrestricted) {
			return err
		}

		err = writeDeviceRules(cgroup)
		if errors.Is(err, unix.EINVAL) && cgroup != filepath.Join(h.Mount, path) {
			return nil
		}

		return err
	})
}

// unrestricted is the list of devices of a cgroup that may use all.
const unrestricted = "a *:* rwm"

// writeDeviceRules denies a cgroup of version 1 all devices but those of machines. The kernel returns EINVAL if it has
// cgroups in it.
func writeDeviceRules(cgroup string) error {
	if err := os.WriteFile(filepath.Join(cgroup, "devices.deny"), []byte("a"), 0o600); err != nil {
		return err
	}

	rules := []string{"c *:* m", "b *:* m"} // as container runtimes make nodes
	for _, d := range ownDevices() {
		rules = append(rules, d.rule())
	}

	for _, rule := range rules {
		if err := os.WriteFile(filepath.Join(cgroup, "devices.allow"), []byte(rule), 0o600); err != nil {
			return fmt.Errorf("%s: %w", rule, err)
		}
	}

	return nil
}

// rule returns the rule of version 1 that allows a device.
func (d device) rule() string {
	kind := "c"
	if d.kind == blockDevice {
		kind = "b"
	}

	minor := "*"
	if d.minor != anyMinor {
		minor = strconv.Itoa(int(d.minor))
	}

	return fmt.Sprintf("%s %d:%s rwm", kind, d.major, minor)
}

// loadProgram loads a program of a kind into the kernel, and returns its file descriptor.
func loadProgram(kind uint32, program []instruction) (int, error) {
	license := []byte("Apache-2.0\x00")

	var pinned runtime.Pinner
	defer pinned.Unpin()

	pinned.Pin(&program[0])
	pinned.Pin(&license[0])
	attributes := struct {
		kind, count           uint32
		instructions, license uint64
	}{
		kind:         kind,
		count:        uint32(len(program)),
		instructions: uint64(uintptr(unsafe.Pointer(&program[0]))), //nolint:gosec // it is pinned
		license:      uint64(uintptr(unsafe.Pointer(&license[0]))), //nolint:gosec // it is pinned
	}

	//nolint:gosec // the kernel reads the attributes during the call
	return callBPF(unix.BPF_PROG_LOAD, unsafe.Pointer(&attributes), unsafe.Sizeof(attributes))
}

func callBPF(command uintptr, attributes unsafe.Pointer, size uintptr) (int, error) {
	fd, _, errno := unix.Syscall(unix.SYS_BPF, command, uintptr(attributes), size)
	if errno != 0 {
		return 0, errno
	}

	return int(fd), nil
}
