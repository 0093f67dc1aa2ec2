// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// slotLetters are the names of the slots that a control plane can have: manifests allow 1, 3 or 5 machines.
const slotLetters = "abcde"

// The ports of etcd's members.
const (
	EtcdPeerPort   = 2380
	EtcdClientPort = 2379
)

// PeerService returns the name of the SRV records that list a cluster's members for each other.
func PeerService(cluster string) string { return "_etcd-server-ssl._tcp." + v1alpha1.EtcdZone(cluster) }

// ClientService returns the name of the SRV records that list a cluster's members for clients.
func ClientService(cluster string) string {
	return "_etcd-client-ssl._tcp." + v1alpha1.EtcdZone(cluster)
}

// NewSlot returns the slot of a cluster with a name. All names are constant, so that a slot that is added later is known
// to machines whose document does not have it yet.
func NewSlot(cluster, name string) Slot {
	host := "etcd-" + name + "." + v1alpha1.EtcdZone(cluster)

	return Slot{
		Name:    name,
		Member:  "etcd-" + name,
		Host:    host,
		PeerURL: "https://" + host + ":" + strconv.Itoa(EtcdPeerPort),
	}
}

// PossibleSlots returns the slots that the control plane of a cluster can have at its largest size.
func PossibleSlots(cluster string) []Slot {
	out := make([]Slot, 0, len(slotLetters))
	for name := range strings.SplitSeq(slotLetters, "") {
		out = append(out, NewSlot(cluster, name))
	}

	return out
}

// IsSlotName reports whether a control plane can have a slot with this name.
func IsSlotName(name string) bool { return len(name) == 1 && strings.Contains(slotLetters, name) }

// checkSlotNames returns an error if a slot of both documents has other names in one of them: etcd would know the member
// by the former ones.
func checkSlotNames(current, desired Document) error {
	for _, s := range desired.Slots {
		i := slices.IndexFunc(current.Slots, func(other Slot) bool { return other.Name == s.Name })
		if i >= 0 && current.Slots[i] != s {
			return fmt.Errorf("slots.%s: the names of a slot cannot change", s.Name)
		}
	}

	return nil
}
