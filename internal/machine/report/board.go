// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// Board holds the current conditions of a machine. Tasks of the agent set the conditions of what they
// maintain; the reporter sets those that follow from its measurements. The zero value is ready to use. It is
// safe for concurrent use.
type Board struct {
	mu         sync.Mutex
	conditions map[Component]Condition
}

// Set replaces the condition of c.Component. It ignores c.Since: a condition is in its state since the time
// at which a Set changed the state.
func (b *Board) Set(c Condition, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conditions == nil {
		b.conditions = map[Component]Condition{}
	}

	c.Since = now.UTC().Truncate(time.Second)
	if before, ok := b.conditions[c.Component]; ok && before.State == c.State {
		c.Since = before.Since
	}

	b.conditions[c.Component] = c
}

// Clear removes the condition of a component, which has nothing to report any more.
func (b *Board) Clear(component Component) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.conditions, component)
}

// Conditions returns a copy of all conditions, sorted by component.
func (b *Board) Conditions() []Condition {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]Condition, 0, len(b.conditions))
	for _, c := range b.conditions {
		out = append(out, c)
	}

	slices.SortFunc(out, func(x, y Condition) int { return cmp.Compare(x.Component, y.Component) })

	return out
}

// HaveSameState reports whether two reports say the same about the machine's state: they differ at most in
// times and in measurements that change all the time, such as sizes.
func HaveSameState(a, b Report) bool {
	sameMachine := a.Versions == b.Versions && a.Heartbeats == b.Heartbeats &&
		haveSameRevision(a.Revision, b.Revision)

	return sameMachine && slices.EqualFunc(a.Conditions, b.Conditions, func(x, y Condition) bool {
		return x.Component == y.Component && x.State == y.State && x.Cause == y.Cause
	}) && slices.EqualFunc(a.Certificates, b.Certificates, func(x, y Certificate) bool {
		return x.Name == y.Name && x.NotAfter.Equal(y.NotAfter)
	})
}

func haveSameRevision(a, b Revision) bool {
	return a.State == b.State && a.Serial == b.Serial && a.Followed == b.Followed && a.Desired == b.Desired &&
		a.Cause == b.Cause && slices.Equal(a.Pending, b.Pending)
}
