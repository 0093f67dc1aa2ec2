// SPDX-License-Identifier: Apache-2.0

package kms

import (
	"maps"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/visibility"
)

// keyMarks are the tags and aliases of a key, by which policies can decide who may use it.
type keyMarks struct {
	tags    map[string]string
	aliases []string // sorted
}

// formerMarks are the marks of a key before a change.
type formerMarks struct {
	pending *visibility.Pending // until decisions are made with the new ones
	marks   keyMarks
}

// staleMarks delays the effect of changed tags and aliases on decisions, which takes up to five minutes in AWS. Operations
// show them at once. Its zero value delays nothing. The store's lock guards it; it is not saved.
type staleMarks struct {
	now    func() time.Time
	delay  visibility.Delay
	former map[string]formerMarks // by id of the key
}

// setDelay sets for how long changes that are made from now on have no effect.
func (m *staleMarks) setDelay(now func() time.Time, d visibility.Delay) {
	m.now = now
	m.delay = d
	m.former = map[string]formerMarks{}
}

// keep starts the delay of a change of the marks of a key, which are still the present ones. During the delay of an earlier
// change, those before it count.
func (m *staleMarks) keep(id string, present keyMarks) {
	if m.delay.IsZero() {
		return
	}

	now := m.now()
	maps.DeleteFunc(m.former, func(_ string, f formerMarks) bool { return f.pending.HasEnded(now) })
	if earlier, ok := m.former[id]; ok {
		present = earlier.marks
	}

	m.former[id] = formerMarks{pending: m.delay.Begin(now), marks: present}
}

// effective returns the marks of a key that a decision is made with, and counts the decision.
func (m *staleMarks) effective(id string, present keyMarks) keyMarks {
	former, ok := m.former[id]
	if ok && former.pending.Hides(m.now()) {
		return former.marks
	}

	return present
}

// marksOf returns a copy of the tags and aliases of a key. The caller holds the store's lock.
func (s *Service) marksOf(k *key) keyMarks {
	marks := keyMarks{tags: maps.Clone(k.Tags)}
	for _, name := range slices.Sorted(maps.Keys(s.st.Aliases)) {
		if s.st.Aliases[name].Key == k.ID {
			marks.aliases = append(marks.aliases, name)
		}
	}

	return marks
}

// keepMarks is called before the tags or aliases of a key change. The caller holds the store's lock.
func (s *Service) keepMarks(k *key) { s.stale.keep(k.ID, s.marksOf(k)) }
