// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// findAgents returns the agent binary for each architecture in arches, which maps groups to architectures.
// A binary is read only when it is published; its hash is cached as long as the file does not change.
func (session *Session) findAgents(arches map[string]string) (map[string]node.AgentBinary, error) {
	out := map[string]node.AgentBinary{}
	for _, arch := range arches {
		if out[arch].SHA256 != "" {
			continue
		}

		path, err := FindAgent(session.Env.AgentPath, arch)
		if err != nil {
			return nil, err
		}

		sum, err := session.Env.Sums.Sum(path)
		if err != nil {
			hint := "run make build, or set --node-binary or SLIPWAY_NODE_BINARY"
			if errors.Is(err, fs.ErrNotExist) {
				return nil, diag.WithHint(fmt.Errorf("no agent for %s machines at %s", arch, path), hint)
			}

			return nil, diag.WithHint(fmt.Errorf("read the agent: %w", err), hint)
		}

		if is, err := readELFArch(path); err != nil || is != arch {
			return nil, diag.WithHint(
				fmt.Errorf("%s is not a program for %s machines", path, arch),
				"set --node-binary to a program for that architecture",
			)
		}

		out[arch] = node.AgentBinary{SHA256: sum, Read: func() ([]byte, error) { return os.ReadFile(path) }}
	}

	return out, nil
}

// FindAgent returns the path of the agent for machines of an architecture: given, else slipway-node next to
// the running program, with the suffix -ARCH for a foreign architecture. It does not check that it exists.
func FindAgent(given, arch string) (string, error) { return findProgram(given, "slipway-node", arch) }

// findProgram returns the path of a program for an architecture: given, else the one with a name next to the running
// program, with the suffix -ARCH for a foreign architecture. It does not check that it exists.
func findProgram(given, name, arch string) (string, error) {
	if given != "" {
		return filepath.Abs(given)
	}

	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find slipway's own program: %w", err)
	}

	// Packages have a link to the program in bin, and the agents next to the program itself.
	if resolved, err := filepath.EvalSymlinks(self); err == nil {
		self = resolved
	}

	if arch != runtime.GOARCH {
		name += "-" + arch
	}

	return filepath.Join(filepath.Dir(self), name), nil
}

// readELFArch returns the architecture of the ELF program at path. It reads the header only.
func readELFArch(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}

	defer func() { _ = f.Close() }() // opened for reading
	const machineAt = 18
	var head [machineAt + 2]byte
	if _, err := io.ReadFull(f, head[:]); err != nil {
		return "", fmt.Errorf("read the head of %s: %w", path, err)
	}

	if string(head[:len(elf.ELFMAG)]) != elf.ELFMAG {
		return "", fmt.Errorf("%s is not an ELF program", path)
	}

	switch m := elf.Machine(binary.LittleEndian.Uint16(head[machineAt:])); m {
	case elf.EM_X86_64:
		return "amd64", nil
	case elf.EM_AARCH64:
		return "arm64", nil
	default:
		return m.String(), nil
	}
}
