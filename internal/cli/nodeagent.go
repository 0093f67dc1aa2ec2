// SPDX-License-Identifier: Apache-2.0

package cli

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

	"github.com/slipway-k8s/slipway/internal/lib/filesum"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// findAgents finds the agent for each architecture: --node-binary, else slipway-node beside slipway, else slipway-node-ARCH.
// It is read only when it is published; its hash is remembered for as long as the file is the same.
func (t *clusterSession) findAgents(arches map[string]string) (map[string]node.AgentBinary, error) {
	out := map[string]node.AgentBinary{}
	for _, arch := range arches {
		if out[arch].SHA256 != "" {
			continue
		}

		path, err := t.findAgentPath(arch)
		if err != nil {
			return nil, err
		}

		sum, err := t.app.newSumCache().Sum(path)
		if err != nil {
			hint := "make build, or give --node-binary or SLIPWAY_NODE_BINARY"
			if errors.Is(err, fs.ErrNotExist) {
				return nil, withHint(fmt.Errorf("there is no agent for %s machines at %s", arch, path), hint)
			}

			return nil, withHint(fmt.Errorf("read the agent: %w", err), hint)
		}

		if is, err := readELFArch(path); err != nil || is != arch {
			return nil, withHint(
				fmt.Errorf("%s is no program for %s machines", path, arch),
				"give the right one by --node-binary",
			)
		}

		out[arch] = node.AgentBinary{SHA256: sum, Read: func() ([]byte, error) { return os.ReadFile(path) }}
	}

	return out, nil
}

// newSumCache remembers the hashes of large files in the cache folder, or nowhere if there is none.
func (a *app) newSumCache() filesum.Cache {
	m := filesum.Cache{Now: a.Now}
	if cache, err := a.cacheDir(); err == nil {
		m.File = filepath.Join(cache, "sums.json")
	}

	return m
}

func (t *clusterSession) findAgentPath(arch string) (string, error) {
	if given := t.app.flagOrEnv(t.options.nodeBinary, "SLIPWAY_NODE_BINARY"); given != "" {
		return filepath.Abs(given)
	}

	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find slipway's own program: %w", err)
	}

	name := "slipway-node"
	if arch != runtime.GOARCH {
		name += "-" + arch
	}

	return filepath.Join(filepath.Dir(self), name), nil
}

// readELFArch reads the architecture from an ELF program's header: of its first bytes, since nothing else is asked.
func readELFArch(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}

	defer f.Close() //nolint:errcheck // only read
	const machineAt = 18
	var head [machineAt + 2]byte
	if _, err := io.ReadFull(f, head[:]); err != nil {
		return "", fmt.Errorf("read the head of %s: %w", path, err)
	}

	if string(head[:len(elf.ELFMAG)]) != elf.ELFMAG {
		return "", fmt.Errorf("%s is no ELF program", path)
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
