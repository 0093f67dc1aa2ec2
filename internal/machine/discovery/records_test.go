// SPDX-License-Identifier: Apache-2.0

package discovery_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/machine/discovery"
)

// machine returns a machine of a slot that was launched at a minute.
func machine(id, slot, address string, minute int) discovery.Machine {
	return discovery.Machine{
		ID:       id,
		Slot:     slot,
		Address:  address,
		Launched: time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC),
	}
}

func address(slot, value string) discovery.Record {
	return discovery.Record{
		Name:   "etcd-" + slot + ".demo.internal",
		Type:   "A",
		TTL:    10,
		Values: []string{value},
	}
}

// services returns both service records for the members of slots.
func services(slots ...string) []discovery.Record {
	clients := discovery.Record{Name: "_etcd-client-ssl._tcp.demo.internal", Type: "SRV", TTL: 60}
	peers := discovery.Record{Name: "_etcd-server-ssl._tcp.demo.internal", Type: "SRV", TTL: 60}
	for _, s := range slots {
		clients.Values = append(clients.Values, "0 0 2379 etcd-"+s+".demo.internal.")
		peers.Values = append(peers.Values, "0 0 2380 etcd-"+s+".demo.internal.")
	}

	return []discovery.Record{clients, peers}
}

func set(records ...discovery.Record) []discovery.Change {
	var out []discovery.Change
	for _, r := range records {
		out = append(out, discovery.Change{Record: r})
	}

	return out
}

func TestPlanChanges(t *testing.T) {
	t.Parallel()

	withVolume := machine("i-1", "a", "10.0.0.1", 1)
	withVolume.HasVolume = true

	foreign := []discovery.Record{
		{Name: "demo.internal", Type: "SOA", TTL: 900, Values: []string{"ns. host. 1 7200 900 1209600 86400"}},
		{Name: "etcd-a.demo.internal", Type: "TXT", TTL: 60, Values: []string{`"note"`}},
		{Name: "etcd-a.other.internal", Type: "A", TTL: 10, Values: []string{"10.9.9.9"}},
		{Name: "etcd-z.demo.internal", Type: "A", TTL: 10, Values: []string{"10.9.9.9"}},
		{Name: "_etcd-server._tcp.demo.internal", Type: "SRV", TTL: 60, Values: []string{"0 0 2380 x."}},
	}
	complete := append(services("a", "b"), address("a", "10.0.0.1"), address("b", "10.0.0.2"))
	both := []discovery.Machine{machine("i-1", "a", "10.0.0.1", 1), machine("i-2", "b", "10.0.0.2", 1)}

	longer := services("a", "b")[0]
	longer.TTL = 300

	for name, test := range map[string]struct {
		machines []discovery.Machine
		present  []discovery.Record
		want     []discovery.Change
	}{
		"an empty zone": {
			machines: both,
			want:     set(append(services("a", "b"), address("a", "10.0.0.1"), address("b", "10.0.0.2"))...),
		},
		"nothing to do":          {machines: both, present: append(complete, foreign...)},
		"no machine runs":        {present: complete},
		"nothing runs and is":    {},
		"no machine has a slot":  {machines: []discovery.Machine{machine("i-1", "", "10.0.0.1", 1)}, present: complete},
		"no slot of this name":   {machines: []discovery.Machine{machine("i-1", "f", "10.0.0.1", 1)}, present: complete},
		"not even an address":    {machines: []discovery.Machine{machine("i-1", "a", "", 1)}, present: complete},
		"an address changed":     {machines: both, present: append(services("a", "b"), address("a", "10.0.0.7"), address("b", "10.0.0.2")), want: set(address("a", "10.0.0.1"))},
		"somebody changed a TTL": {machines: both, present: append([]discovery.Record{longer}, complete[1:]...), want: set(services("a", "b")[0])},
		"a slot has no machine": {
			machines: both[:1],
			present:  append(complete, foreign...),
			want:     append(set(services("a")...), discovery.Change{Delete: true, Record: address("b", "10.0.0.2")}),
		},
		"the newest machine of a slot wins": {
			machines: []discovery.Machine{machine("i-2", "a", "10.0.0.2", 2), machine("i-1", "a", "10.0.0.1", 1)},
			present:  services("a"),
			want:     set(address("a", "10.0.0.2")),
		},
		"the machine with the volume wins": {
			machines: []discovery.Machine{withVolume, machine("i-2", "a", "10.0.0.2", 2)},
			present:  services("a"),
			want:     set(address("a", "10.0.0.1")),
		},
		"a machine without an address does not win": {
			machines: []discovery.Machine{machine("i-1", "a", "10.0.0.1", 1), machine("i-2", "a", "", 2)},
			present:  services("a"),
			want:     set(address("a", "10.0.0.1")),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			have := discovery.PlanChanges("demo", test.machines, test.present)
			if diff := cmp.Diff(test.want, have); diff != "" {
				t.Errorf("changes (-want +have):\n%s", diff)
			}
		})
	}
}
