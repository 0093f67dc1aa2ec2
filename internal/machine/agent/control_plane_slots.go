// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"maps"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// slotsOf returns the slots of the running machines of the control plane, sorted.
func slotsOf(machines []Machine) []string {
	seen := map[string]bool{}
	for _, m := range machines {
		if isSlotMachine(m) && m.Role == node.RoleTagControlPlane && node.IsSlotName(m.Slot) {
			seen[m.Slot] = true
		}
	}

	return slices.Sorted(maps.Keys(seen))
}

// noteSlots remembers the slots that have a machine. A machine of a slot that is being added may join etcd before this machine
// has the document with that slot, and one whose slot is being removed may still be a member.
func noteSlots(a *Agent, names []string) { a.seenSlots.Store(&names) }

// knownSlots returns the slots of the document and those of other running machines of the control plane, sorted.
func knownSlots(a *Agent) []node.Slot {
	out := slices.Clone(a.doc.Slots)
	if seen := a.seenSlots.Load(); seen != nil {
		for _, name := range *seen {
			if _, known := a.doc.Slot(name); !known {
				out = append(out, node.NewSlot(a.doc.Cluster, name))
			}
		}
	}

	slices.SortFunc(out, func(x, y node.Slot) int { return strings.Compare(x.Name, y.Name) })

	return out
}

// slotNamed returns the slot with a name, also if the document does not have it.
func slotNamed(a *Agent, name string) node.Slot {
	if s, known := a.doc.Slot(name); known {
		return s
	}

	return node.NewSlot(a.doc.Cluster, name)
}

// peerHosts returns the names that certificates of etcd's peers may have: those of all slots that the control plane can have,
// so that etcd need not restart when its size changes. A member that was removed is rejected by its id.
func peerHosts(doc node.Document) []string {
	var out []string
	for _, s := range slices.Concat(doc.Slots, node.PossibleSlots(doc.Cluster)) {
		if !slices.Contains(out, s.Host) {
			out = append(out, s.Host)
		}
	}

	slices.Sort(out)

	return out
}

// founders returns the initial members of the cluster: those of the marker, whatever size the control plane has now.
func (m *etcdMember) founders(marker etcd.BootstrapMarker) map[string]string {
	out := map[string]string{}
	for name := range marker.Volumes {
		s := slotNamed(m.agent, name)
		out[s.Member] = s.PeerURL
	}

	return out
}

// foundingVolumes returns the volumes of the slots of the document, which found the cluster.
func foundingVolumes(f etcd.Facts) map[string]string {
	out := maps.Clone(f.Visible)
	maps.DeleteFunc(out, func(slot, _ string) bool { return !slices.Contains(f.Slots, slot) })

	return out
}
