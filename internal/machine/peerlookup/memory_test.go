// SPDX-License-Identifier: Apache-2.0

package peerlookup_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/machine/peerlookup"
)

// addresses is an address for each slot.
type addresses map[string]string

// lookupView returns what machine a of three sees.
func lookupView(now time.Time, records, known addresses) peerlookup.View {
	v := peerlookup.View{
		Now:         now,
		Cluster:     "demo",
		Self:        "a",
		SelfAddress: "10.0.0.1",
		Slots:       []string{"a", "b", "c"},
		Known:       known,
		Records:     peerlookup.Records{Addresses: records},
	}

	for _, slot := range v.Slots {
		if _, listed := records[slot]; listed {
			v.Records.Peers = append(v.Records.Peers, slot)
		}
	}

	return v
}

func start() time.Time { return time.Date(2026, 11, 26, 8, 0, 0, 0, time.UTC) }

// TestChooseRecords: without a fault the records say it all, and EC2 is not asked.
func TestChooseRecords(t *testing.T) {
	t.Parallel()

	var m peerlookup.Memory
	v := lookupView(start(), addresses{"a": "10.0.0.9", "b": "10.0.0.2", "c": ""}, addresses{"c": "10.0.0.3", "d": "10.0.0.4"})
	v.Answering = true
	if m.NeedsMachines(v) {
		t.Error("EC2 is asked")
	}

	have, err := m.Choose(v)
	want := map[string]string{"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.3"}
	if diff := cmp.Diff(want, have); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

// TestRecordsCannotBeRead: the addresses stay, and the error says so. A machine that knows nobody asks EC2 at once.
func TestRecordsCannotBeRead(t *testing.T) {
	t.Parallel()

	var m peerlookup.Memory
	v := lookupView(start(), nil, addresses{"b": "10.0.0.2", "c": "10.0.0.3"})
	v.Err = errors.New("there are no such records")
	v.Answering = true
	if m.NeedsMachines(v) {
		t.Error("EC2 is asked although everybody answers")
	}

	have, err := m.Choose(v)
	if diff := cmp.Diff(map[string]string{"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.3"}, have); diff != "" {
		t.Error(diff)
	}

	const text = "find the members of etcd by DNS: there are no such records; using the addresses "
	if err == nil || err.Error() != text+"of before" {
		t.Error(err)
	}

	var fresh peerlookup.Memory
	v.Known = nil
	v.Answering = false
	if !fresh.NeedsMachines(v) || fresh.NeedsMachines(v) {
		t.Error("EC2 is not asked once")
	}

	v.Machines = map[string]string{"a": "10.0.0.1", "b": "10.0.0.2"}
	have, err = fresh.Choose(v)
	if diff := cmp.Diff(map[string]string{"a": "10.0.0.1", "b": "10.0.0.2"}, have); diff != "" || err == nil || err.Error() != text+"that EC2 lists" {
		t.Error(diff, err)
	}
}

// TestStaleRecord: a record of a machine that was replaced is not used after EC2 has listed another one. It stays unused while
// it does not change, also when everybody answers again, and it is reported after a while.
func TestStaleRecord(t *testing.T) {
	t.Parallel()

	var m peerlookup.Memory
	records := addresses{"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.3"}
	for _, c := range []struct {
		after     time.Duration
		answering bool
		asks      bool
		machines  addresses
		record    string
		want      string
		problem   string
	}{
		{after: 0, record: "10.0.0.2", want: "10.0.0.2"},
		{after: 10 * time.Second, record: "10.0.0.2", want: "10.0.0.2"},
		{after: 15 * time.Second, asks: true, machines: addresses{"b": "10.0.0.8", "c": "10.0.0.3"}, record: "10.0.0.2", want: "10.0.0.8"},
		{after: 20 * time.Second, record: "10.0.0.2", want: "10.0.0.8"},
		{after: 25 * time.Second, answering: true, record: "10.0.0.2", want: "10.0.0.8"},
		{after: 11 * time.Minute, answering: true, record: "10.0.0.2", want: "10.0.0.8", problem: "etcd-b.demo.internal has 10.0.0.2, and its machine in EC2 10.0.0.8"},
		{after: 12 * time.Minute, answering: true, record: "10.0.0.8", want: "10.0.0.8"},
		{after: 13 * time.Minute, answering: true, record: "10.0.0.7", want: "10.0.0.7"},
	} {
		records["b"] = c.record
		v := lookupView(start().Add(c.after), records, nil)
		v.Answering = c.answering
		if asks := m.NeedsMachines(v); asks != c.asks {
			t.Errorf("after %v: asks EC2: %v", c.after, asks)
		}

		v.Machines = c.machines
		have, err := m.Choose(v)
		isReported := err != nil && strings.Contains(err.Error(), c.problem) && strings.Contains(err.Error(), "zone demo.internal")
		if have["b"] != c.want || (c.problem == "") != (err == nil) || c.problem != "" && !isReported {
			t.Errorf("after %v: %v, %v", c.after, have, err)
		}
	}
}

// TestMissingRecord: a machine whose record is missing is found in EC2.
func TestMissingRecord(t *testing.T) {
	t.Parallel()

	var m peerlookup.Memory
	v := lookupView(start(), addresses{"a": "10.0.0.1", "c": "10.0.0.3"}, nil)
	if have, err := m.Choose(v); have["b"] != "" || err != nil || m.NeedsMachines(v) {
		t.Error(have, err)
	}

	v.Now = start().Add(15 * time.Second)
	if !m.NeedsMachines(v) {
		t.Error("EC2 is not asked")
	}

	v.Machines = addresses{"b": "10.0.0.2", "c": "10.0.0.3"}
	if have, err := m.Choose(v); have["b"] != "10.0.0.2" || err != nil {
		t.Error(have, err)
	}

	v = lookupView(start().Add(time.Hour), addresses{"a": "10.0.0.1", "c": "10.0.0.3"}, nil)
	v.Answering = true
	if have, err := m.Choose(v); have["b"] != "10.0.0.2" || err == nil || !strings.Contains(err.Error(), "etcd-b.demo.internal has no record") {
		t.Error(have, err)
	}
}
