// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"cmp"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// Machine is a pending or running machine of the control plane.
type Machine struct {
	// ID is the instance id.
	ID string
	// Slot is the value of the tag slipway.dev/etcd-slot.
	Slot string
	// Address is the private IPv4 address; empty until EC2 has assigned it.
	Address string
	// Launched is the launch time.
	Launched time.Time
	// HasVolume is set if the slot's volume is attached to the machine. It is known only if a slot has several machines.
	HasVolume bool
}

// isEligible reports whether a machine has a slot that a control plane can have, and an address.
func (m Machine) isEligible() bool { return node.IsSlotName(m.Slot) && m.Address != "" }

// slotAddresses returns the address of each slot: of the machine that has the slot's volume, else of the newest one.
func slotAddresses(machines []Machine) map[string]string {
	ordered := slices.Clone(machines)
	slices.SortFunc(ordered, func(a, b Machine) int {
		return cmp.Or(rank(a)-rank(b), a.Launched.Compare(b.Launched), cmp.Compare(a.ID, b.ID))
	})

	out := map[string]string{}
	for _, m := range ordered {
		if m.isEligible() {
			out[m.Slot] = m.Address // a later one wins
		}
	}

	return out
}

// rank is higher for a machine that is preferred to others of its slot.
func rank(m Machine) int {
	if m.HasVolume {
		return 1
	}

	return 0
}

// hasSlotTwice reports whether a slot has several machines, as while one takes it over from another.
func hasSlotTwice(machines []Machine) bool {
	seen := map[string]bool{}
	for _, m := range machines {
		if m.isEligible() && seen[m.Slot] {
			return true
		}

		seen[m.Slot] = seen[m.Slot] || m.isEligible()
	}

	return false
}
