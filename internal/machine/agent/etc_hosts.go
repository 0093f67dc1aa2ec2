// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/slipway-k8s/slipway/internal/machine/node"
)

const (
	hostsBegin = "# slipway: begin. The addresses of etcd's members, kept by slipway-node."
	hostsEnd   = "# slipway: end"
)

// SlotAddresses returns the address of each slot: that of its newest pending or running machine.
// For the slot self it is the given address.
func SlotAddresses(machines []Machine, self, address string) map[string]string {
	out := map[string]string{}
	for _, m := range machines {
		if m.Slot != "" && m.Address != "" && (m.State == "running" || m.State == "pending") {
			out[m.Slot] = m.Address
		}
	}

	out[self] = address

	return out
}

// WriteHostsFile updates the members' names in /etc/hosts and reports whether the file changed. A
// slot without a machine has no entry, so that etcd waits for the new machine.
func WriteHostsFile(root *HostFS, slots []node.Slot, addresses map[string]string) (bool, error) {
	const path = "/etc/hosts"
	body, err := os.ReadFile(root.Path(path))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("read %s: %w", path, err)
	}

	var b strings.Builder
	b.WriteString(hostsBegin + "\n")

	for _, s := range slots {
		if a := addresses[s.Name]; a != "" {
			b.WriteString(a + " " + s.Host + "\n")
		}
	}

	b.WriteString(hostsEnd + "\n")

	return root.Write(File{
		Path:   path,
		Body:   []byte(replaceBlock(string(body), b.String())),
		Mode:   0o644,
		Shared: true,
	})
}

// replaceBlock replaces Slipway's block in text, or appends it.
func replaceBlock(text, block string) string {
	before, rest, found := strings.Cut(text, hostsBegin)
	if !found {
		if text != "" && !strings.HasSuffix(text, "\n") {
			text += "\n"
		}

		return text + block
	}

	_, after, _ := strings.Cut(rest, hostsEnd+"\n")

	return before + block + after
}
