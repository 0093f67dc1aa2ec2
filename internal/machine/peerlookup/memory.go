// SPDX-License-Identifier: Apache-2.0

package peerlookup

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

const (
	// patience is how long members may be missing before EC2 is asked, and the pause between two questions. A record follows
	// the start of a machine within seconds.
	patience = 15 * time.Second
	// reportedAge is the age of a difference between the records and EC2 that is reported. A slot that is handed over from one
	// running machine to the next one keeps the record of the first until that is terminated.
	reportedAge = 10 * time.Minute
)

// View is what a machine sees at one time.
type View struct {
	// Now is the time.
	Now time.Time
	// Cluster is the cluster's name.
	Cluster string
	// Self is the slot of this machine, and SelfAddress its address.
	Self        string
	SelfAddress string
	// Slots of the machine's document.
	Slots []string
	// Known are the addresses that the machine uses now, by slot.
	Known map[string]string
	// Answering is set while the members of all other slots answer.
	Answering bool
	// Records of the zone, or Err why they could not be read.
	Records Records
	Err     error
	// Machines are the addresses of the slots' machines as EC2 lists them now; nil if EC2 was not asked.
	Machines map[string]string
}

// override is an address of EC2 that is used instead of a record.
type override struct {
	record  string // the address in the record; empty if there is none
	address string
	since   time.Time
}

// Memory is what a machine remembers between two views. The zero value is ready to use. It may not be used concurrently.
type Memory struct {
	silentSince time.Time // since when not all members answer; zero while they do
	askedAt     time.Time // when EC2 was asked last
	asked       bool      // whether it was asked for the present view
	overrides   map[string]override
}

// NeedsMachines reports whether EC2 has to be asked for the machines: if nobody else knows the address of a member, or if
// members do not answer at the addresses that are known.
func (m *Memory) NeedsMachines(v View) bool {
	m.asked = false
	if v.Answering {
		m.silentSince = time.Time{}
		return false
	}

	if m.silentSince.IsZero() {
		m.silentSince = v.Now
	}

	nothingKnown := v.Err != nil && len(v.missing(v.Known)) > 0
	isDue := nothingKnown || v.Now.Sub(m.silentSince) >= patience
	if !isDue || !m.askedAt.IsZero() && v.Now.Sub(m.askedAt) < patience {
		return false
	}

	m.askedAt = v.Now
	m.asked = true

	return true
}

// missing returns the slots of the document, except the machine's own, that have no address.
func (v View) missing(addresses map[string]string) []string {
	var out []string
	for _, slot := range v.Slots {
		if slot != v.Self && addresses[slot] == "" {
			out = append(out, slot)
		}
	}

	return out
}

// Choose returns the address of each slot, and what an operator should know. The addresses are those of the records. A record
// that differs from what EC2 listed while members did not answer is not used until it changes, or until members do not answer
// and neither does EC2. If the records cannot be read, the addresses stay what they are, and those that EC2 lists are added.
// NeedsMachines is called before.
func (m *Memory) Choose(v View) (map[string]string, error) {
	out := v.recorded()
	m.note(v, out)
	for slot, o := range m.overrides {
		out[slot] = o.address
	}

	out[v.Self] = v.SelfAddress
	if v.Err != nil {
		return out, fmt.Errorf("find the members of etcd by DNS: %w; %s", v.Err, m.describeFallback())
	}

	return out, m.staleRecords(v)
}

// recorded returns the addresses of the records. A slot that is listed without an address keeps the one that is known.
func (v View) recorded() map[string]string {
	if v.Err != nil {
		return maps.Clone(v.orNone())
	}

	out := map[string]string{}
	for _, slot := range v.Records.Slots() {
		if address := v.Records.Addresses[slot]; address != "" {
			out[slot] = address
		} else if v.Known[slot] != "" {
			out[slot] = v.Known[slot]
		}
	}

	return out
}

// orNone returns the known addresses, never nil.
func (v View) orNone() map[string]string {
	if v.Known == nil {
		return map[string]string{}
	}

	return v.Known
}

// note updates the overrides: one ends when its record changes, and begins or changes when EC2 lists another address than the
// record.
func (m *Memory) note(v View, recorded map[string]string) {
	if m.overrides == nil || m.asked && v.Machines == nil {
		m.overrides = map[string]override{}
	}

	m.asked = false
	if v.Err == nil {
		maps.DeleteFunc(m.overrides, func(slot string, o override) bool { return o.record != v.Records.Addresses[slot] })
	}

	for slot, address := range v.Machines {
		if slot != v.Self && address != "" {
			m.noteMachine(v, slot, address, recorded[slot])
		}
	}
}

// noteMachine updates the override of one slot, whose machine has an address.
func (m *Memory) noteMachine(v View, slot, address, recorded string) {
	before, exists := m.overrides[slot]

	switch {
	case recorded == address && !exists:
	case v.Err == nil && v.Records.Addresses[slot] == address:
		delete(m.overrides, slot)
	case exists:
		before.address = address
		m.overrides[slot] = before
	default:
		m.overrides[slot] = override{record: v.Records.Addresses[slot], address: address, since: v.Now}
	}
}

// describeFallback says which addresses are used while the records cannot be read. The text is the same until that changes.
func (m *Memory) describeFallback() string {
	if len(m.overrides) > 0 {
		return "using the addresses that EC2 lists"
	}

	return "using the addresses of before"
}

// staleRecords returns an error if records have differed from EC2 for long.
func (m *Memory) staleRecords(v View) error {
	var stale []string
	for _, slot := range slices.Sorted(maps.Keys(m.overrides)) {
		o := m.overrides[slot]
		if v.Now.Sub(o.since) < reportedAge {
			continue
		}

		record := o.record
		if record == "" {
			record = "no record"
		}

		host := node.NewSlot(v.Cluster, slot).Host
		stale = append(stale, fmt.Sprintf("%s has %s, and its machine in EC2 %s", host, record, o.address))
	}

	if len(stale) == 0 {
		return nil
	}

	return fmt.Errorf(
		"the records of zone %s are not up to date: %s; using the addresses that EC2 lists; read the log of the function that keeps them",
		v1alpha1.EtcdZone(v.Cluster), strings.Join(stale, "; "),
	)
}
