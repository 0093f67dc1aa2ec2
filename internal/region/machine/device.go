// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
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

// denyHostDevices denies the processes in a machine's cgroup, of version 2, all devices but those of machines. A kernel that
// refuses the program leaves them allowed: the region is a test bed.
func denyHostDevices(cgroup string) error {
	program, err := loadProgram(deviceProgram(ownDevices()))
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) {
		return nil
	}

	if err != nil {
		return fmt.Errorf("deny the devices of the host: %w", err)
	}

	defer func() { _ = unix.Close(program) }() // the cgroup keeps it
	folder, err := os.Open(cgroup)
	if err != nil {
		return fmt.Errorf("deny the devices of the host: %w", err)
	}

	defer func() { _ = folder.Close() }()
	attributes := struct{ target, program, kind, flags uint32 }{
		target:  uint32(folder.Fd()),
		program: uint32(program),
		kind:    unix.BPF_CGROUP_DEVICE,
		flags:   unix.BPF_F_ALLOW_MULTI, // container runtimes add their own
	}

	//nolint:gosec // the kernel reads the attributes during the call
	_, err = callBPF(unix.BPF_PROG_ATTACH, unsafe.Pointer(&attributes), unsafe.Sizeof(attributes))
	if err != nil {
		return fmt.Errorf("deny the devices of the host in cgroup %s: %w", cgroup, err)
	}

	return nil
}

// loadProgram loads a program for a cgroup's devices into the kernel, and returns its file descriptor.
func loadProgram(program []instruction) (int, error) {
	license := []byte("Apache-2.0\x00")

	var pinned runtime.Pinner
	defer pinned.Unpin()

	pinned.Pin(&program[0])
	pinned.Pin(&license[0])
	attributes := struct {
		kind, count           uint32
		instructions, license uint64
	}{
		kind:         unix.BPF_PROG_TYPE_CGROUP_DEVICE,
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
