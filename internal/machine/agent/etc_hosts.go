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
	hostsPath  = "/etc/hosts"
	hostsBegin = "# slipway: begin. The addresses of etcd's members, kept by slipway-node."
	hostsEnd   = "# slipway: end"
)

// SlotAddresses returns the address of each slot: that of its pending or running machine, and if there are several, of
// the one to which the slot's volume is attached, else of the newest. For the slot self it is the given address.
func SlotAddresses(machines []Machine, volumes []Volume, self, address string) map[string]string {
	out := map[string]string{}
	for _, m := range machines {
		if isSlotMachine(m) {
			out[m.Slot] = m.Address
		}
	}

	for _, v := range volumes {
		for _, m := range machines {
			if isSlotMachine(m) && m.Slot == v.Slot && m.ID == v.AttachedTo {
				out[m.Slot] = m.Address
			}
		}
	}

	out[self] = address

	return out
}

// isSlotMachine reports whether a machine has a slot and an address and runs or starts.
func isSlotMachine(m Machine) bool {
	return m.Slot != "" && m.Address != "" && (m.State == "running" || m.State == "pending")
}

// hasSlotTwice reports whether a slot has several machines, as while one takes it over from another.
func hasSlotTwice(machines []Machine) bool {
	seen := map[string]bool{}
	for _, m := range machines {
		if !isSlotMachine(m) {
			continue
		}

		if seen[m.Slot] {
			return true
		}

		seen[m.Slot] = true
	}

	return false
}

// WriteHostsFile updates the members' names in /etc/hosts and reports whether the file changed. A
// slot without a machine has no entry, so that etcd waits for the new machine.
func WriteHostsFile(root *HostFS, slots []node.Slot, addresses map[string]string) (bool, error) {
	body, err := os.ReadFile(root.Path(hostsPath))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("read %s: %w", hostsPath, err)
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
		Path:   hostsPath,
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
