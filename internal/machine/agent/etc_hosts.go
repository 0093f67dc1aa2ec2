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

// SlotAddresses says where each slot is: the newest running machine that has it. Our own slot is here.
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

// WriteHostsFile keeps the members' names in /etc/hosts in step and says whether anything changed. A slot whose machine
// is gone keeps no stale address: etcd then waits for the new one.
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

	return root.Write(File{Path: path, Body: []byte(replaceBlock(string(body), b.String())), Mode: 0o644})
}

// replaceBlock replaces our lines in text, or adds them.
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
