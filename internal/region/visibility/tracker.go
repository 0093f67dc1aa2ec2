// SPDX-License-Identifier: Apache-2.0

package visibility

import (
	"maps"
	"sync"
	"time"
)

// Tracker knows the new resources of a service that calls do not see yet. The zero value hides nothing. It is not saved:
// after a restart everything is visible. Its methods may be called concurrently.
type Tracker struct {
	mu      sync.Mutex
	now     func() time.Time
	delay   Delay
	pending map[string]*Pending // by id
}

// SetDelay sets for how long resources that are created from now on are not seen. now is the clock of the region.
// Everything that exists is visible then.
func (t *Tracker) SetDelay(now func() time.Time, d Delay) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now = now
	t.delay = d
	t.pending = map[string]*Pending{}
}

// Track starts the delay of a new resource. ids are all that calls name it by, such as its ARN and its name. A service puts
// the type of the resource in front of names, so that those of two types differ.
func (t *Tracker) Track(ids ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.delay.IsZero() {
		return
	}

	t.removeVisible()
	begun := t.delay.Begin(t.now())
	for _, id := range ids {
		t.pending[id] = begun
	}
}

// Hides reports whether a call comes too early to see the resource with id, and counts the call.
func (t *Tracker) Hides(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	pending := t.pending[id]

	return pending != nil && pending.Hides(t.now())
}

// HidesNothing reports whether every resource is visible.
func (t *Tracker) HidesNothing() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.pending) > 0 {
		t.removeVisible()
	}

	return len(t.pending) == 0
}

// removeVisible forgets the resources whose delay has ended. The caller holds the lock.
func (t *Tracker) removeVisible() {
	now := t.now()
	maps.DeleteFunc(t.pending, func(_ string, p *Pending) bool { return p.HasEnded(now) })
}
