// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// The operations of [settingProgram] that [deviceProgram] does not have.
const (
	opLoadByte    = unix.BPF_LDX | unix.BPF_MEM | unix.BPF_B
	opStoreDouble = unix.BPF_ST | unix.BPF_MEM | unix.BPF_DW
	opAddValue    = unix.BPF_ALU64 | unix.BPF_ADD | unix.BPF_K
	opCall        = unix.BPF_JMP | unix.BPF_CALL
)

// The registers of [settingProgram]. Those of the arguments of a call are lost by it.
const (
	registerArgument2 = 2
	registerArgument3 = 3
	registerArgument4 = 4
	registerByte      = 7
	registerFrame     = 10
)

// settingNameSize is the space for the beginning of a setting's name.
const settingNameSize = 24

// ownSettings are the beginnings of the kernel settings that belong to a machine's own namespaces: of its network, its names, and its
// interprocess communication. All others are the host's.
func ownSettings() []string {
	return []string{
		"net/",
		"kernel/hostname",
		"kernel/domainname",
		"kernel/shm",
		"kernel/msg",
		"kernel/sem",
		"fs/mqueue/",
	}
}

// settingProgram returns the program that decides whether a machine may use a kernel setting: it reads all, and writes its own.
func settingProgram(own []string) []instruction {
	const getName = 101 // bpf_sysctl_get_name

	out := []instruction{{code: opLoadWord, registers: registerKind | registerContext<<4}} // not 0: a write
	out = append(out, instruction{code: opJumpUnequal, registers: registerKind, offset: int16(len(answer(1)))})
	out = append(out, answer(1)...)
	for at := -settingNameSize; at < 0; at += 8 {
		out = append(out, instruction{code: opStoreDouble, registers: registerFrame, offset: int16(at)})
	}

	out = append(out,
		instruction{code: opMoveFrom, registers: registerArgument2 | registerFrame<<4},
		instruction{code: opAddValue, registers: registerArgument2, immediate: -settingNameSize},
		instruction{code: opMoveValue, registers: registerArgument3, immediate: settingNameSize},
		instruction{code: opMoveValue, registers: registerArgument4},
		instruction{code: opCall, immediate: getName},
	)
	for _, beginning := range own {
		out = append(out, allowSetting(beginning)...)
	}

	return append(out, answer(0)...)
}

// allowSetting returns the instructions that allow settings whose names begin like this, and go on for others.
func allowSetting(beginning string) []instruction {
	var checks []instruction
	for i, char := range []byte(beginning) {
		checks = append(checks,
			instruction{code: opLoadByte, registers: registerByte | registerFrame<<4, offset: int16(i - settingNameSize)},
			instruction{code: opJumpUnequal, registers: registerByte, immediate: int32(char)},
		)
	}

	out := slices.Concat(checks, answer(1))
	for i := range checks {
		if checks[i].code == opJumpUnequal {
			out[i].offset = int16(len(out) - i - 1)
		}
	}

	return out
}

// denyHostSettings keeps a machine's root, which may mount /proc again, from changing kernel settings of the host: by a program for the
// cgroup of version 2, where the kernel takes one. Elsewhere only the read-only mounts protect them.
func denyHostSettings(groups []cgroupHierarchy, path string) {
	for _, h := range groups {
		if h.V2 {
			_ = attachProgram(filepath.Join(h.Mount, path), cgroupProgram{
				kind:         unix.BPF_PROG_TYPE_CGROUP_SYSCTL,
				event:        unix.BPF_CGROUP_SYSCTL,
				instructions: settingProgram(ownSettings()),
			})
		}
	}
}
