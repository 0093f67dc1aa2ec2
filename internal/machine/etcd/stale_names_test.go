// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/peerlookup"
)

// lookupMachine is the machine of a slot.
type lookupMachine struct {
	address string
	memory  peerlookup.Memory
	hosts   map[string]string // the addresses that it uses
}

// lookups is a world in which the machines find each other by DNS records, which may be of any time.
type lookups struct {
	*world
	t        *rapid.T
	now      time.Time
	machines map[string]*lookupMachine
	count    int                 // machines that have existed
	records  []map[string]string // all records that the zone has had
}

func newLookups(t *rapid.T) *lookups {
	l := &lookups{
		world:    newWorld(),
		t:        t,
		now:      time.Date(2026, 11, 26, 8, 0, 0, 0, time.UTC),
		machines: map[string]*lookupMachine{},
		records:  []map[string]string{{}},
	}
	l.sees = func(from, to string) bool { return l.machines[from].hosts[to] == l.machines[to].address }
	for _, slot := range slots() {
		l.replace(slot)
	}

	return l
}

// replace gives a slot a new machine with another address.
func (l *lookups) replace(slot string) {
	l.count++
	l.up[slot] = false
	l.machines[slot] = &lookupMachine{address: fmt.Sprintf("10.0.0.%d", l.count), hosts: map[string]string{}}
}

// listed returns the addresses as EC2 lists them.
func (l *lookups) listed() map[string]string {
	out := map[string]string{}
	for slot, m := range l.machines {
		out[slot] = m.address
	}

	return out
}

// lookUp lets a machine look for the others, with these records and what EC2 lists; nil: EC2 does not answer.
func (l *lookups) lookUp(slot string, records map[string]string, err error, listed map[string]string) {
	m := l.machines[slot]
	v := peerlookup.View{
		Now:         l.now,
		Cluster:     "demo",
		Self:        slot,
		SelfAddress: m.address,
		Slots:       slots(),
		Known:       m.hosts,
		Answering:   true,
		Err:         err,
	}

	for _, other := range slots() {
		v.Answering = v.Answering && l.up[other] && l.reaches(slot, other)
		if _, exists := records[other]; exists && err == nil {
			v.Records.Peers = append(v.Records.Peers, other)
		}
	}

	if err == nil {
		v.Records.Addresses = records
	}

	if m.memory.NeedsMachines(v) {
		v.Machines = listed
	}

	m.hosts, _ = m.memory.Choose(v)
}

// lookUpFaulty draws what the zone and EC2 answer: records of any time, an answer without one of them, or no answer.
func (l *lookups) lookUpFaulty(slot string) {
	records := maps.Clone(rapid.SampledFrom(l.records).Draw(l.t, "records"))
	delete(records, rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(l.t, "missing"))

	var err error
	if rapid.IntRange(0, 3).Draw(l.t, "no answer") == 0 {
		err = errors.New("no answer")
	}

	listed := l.listed()
	switch rapid.IntRange(0, 3).Draw(l.t, "EC2") {
	case 0:
		listed = nil
	case 1:
		listed[rapid.SampledFrom(slots()).Draw(l.t, "old")] = "10.0.0.1"
	}

	l.lookUp(slot, records, err, listed)
}

// TestStaleRecordsNeverHarm: whatever the DNS records of the members say, there is one cluster, and no removal costs its quorum.
// Once machines run, they find each other if the zone or EC2 lists the present machines.
func TestStaleRecordsNeverHarm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLookups(t)
		slot := rapid.SampledFrom(slots())
		t.Repeat(map[string]func(*rapid.T){
			"agent": func(t *rapid.T) {
				if s := slot.Draw(t, "slot"); !l.up[s] {
					l.act(t, s)
				}
			},
			"note joined": func(t *rapid.T) {
				if s := slot.Draw(t, "slot"); l.up[s] {
					l.joined[s] = true
				}
			},
			"promote": func(t *rapid.T) { l.promote(slot.Draw(t, "slot")) },
			"replace": func(t *rapid.T) { l.replace(slot.Draw(t, "slot")) },
			"lose volume": func(t *rapid.T) {
				s := slot.Draw(t, "slot")
				if l.survives(s) {
					l.made++
					l.volume[s] = fmt.Sprintf("vol-%s%d", s, l.made)
					l.replace(s)
				}
			},
			"function": func(*rapid.T) { l.records = append(l.records, l.listed()) },
			"look up":  func(t *rapid.T) { l.lookUpFaulty(slot.Draw(t, "slot")) },
			"wait":     func(*rapid.T) { l.now = l.now.Add(5 * time.Second) },
			"": func(t *rapid.T) {
				if len(l.bootstraps) > 1 {
					t.Fatalf("bootstrapped twice: %v", l.bootstraps)
				}
				for s, n := range l.founded {
					if n > 1 {
						t.Fatalf("slot %s bootstrapped %d times", s, n)
					}
				}
			},
		})
		l.settle(t)
	})
}

// survives reports whether a majority of the voters has data if a slot loses its volume. What a machine that is replaced has not
// noted yet counts as lost.
func (l *lookups) survives(slot string) bool {
	voters := 0
	left := 0
	for _, m := range l.members {
		if m.Learner {
			continue
		}

		voters++
		if m.Slot != slot && l.data[l.volume[m.Slot]] {
			left++
		}
	}

	return left > voters/2
}

func (l *lookups) promote(slot string) {
	if i := l.find(slot); i >= 0 && l.up[slot] && l.answersSomeone(slot) {
		l.members[i].Learner = false
	}
}

// answersSomeone reports whether a member works with a quorum.
func (l *lookups) answersSomeone(slot string) bool { return l.answers(slot, slot) }

// settle ends the faults of the zone, or of EC2, and expects that all members come up and see each other.
func (l *lookups) settle(t *rapid.T) {
	zoneWorks := rapid.Bool().Draw(t, "zone works")
	last := rapid.SampledFrom(l.records).Draw(t, "last records")
	for range 40 {
		l.now = l.now.Add(5 * time.Second)
		for _, s := range slots() {
			if zoneWorks {
				l.lookUp(s, l.listed(), nil, nil)
			} else {
				l.lookUp(s, last, nil, l.listed())
			}

			if !l.up[s] {
				l.act(t, s)
				continue
			}

			l.joined[s] = true
			l.promote(s)
		}
	}

	for _, s := range slots() {
		if !l.up[s] {
			t.Fatalf("slot %s never starts: %+v", s, etcd.Decide(l.facts(s)))
		}

		for _, other := range slots() {
			if !l.reaches(s, other) {
				t.Fatalf("slot %s does not find slot %s: it has %v", s, other, l.machines[s].hosts)
			}
		}
	}
}
