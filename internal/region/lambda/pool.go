// SPDX-License-Identifier: Apache-2.0

package lambda

import (
	"sync"
	"time"
)

// environmentPool keeps the environments that wait for their next event.
type environmentPool struct {
	service *Service

	mu         sync.Mutex
	idle       []*environment
	busy       map[*environment]bool
	generation map[string]int // how often a function was changed, by name
	closed     bool
}

func newEnvironmentPool(s *Service) *environmentPool {
	return &environmentPool{service: s, busy: map[*environment]bool{}, generation: map[string]int{}}
}

// acquire returns an environment of a function that waits, or a new one.
func (p *environmentPool) acquire(name string, f function) (*environment, error) {
	p.mu.Lock()
	generation := p.generation[name]
	for i, e := range p.idle {
		if e.function != name || e.generation != generation || !e.isAlive() {
			continue
		}

		p.idle = append(p.idle[:i:i], p.idle[i+1:]...)
		p.busy[e] = true
		p.mu.Unlock()

		return e, nil
	}

	p.mu.Unlock()

	e, err := p.service.startEnvironment(name, f)
	if err != nil {
		return nil, err
	}

	p.mu.Lock()
	e.generation = generation
	p.busy[e] = true
	closed := p.closed
	p.mu.Unlock()

	if closed {
		e.kill()
	}

	return e, nil
}

// release takes an environment back after an event. One of a function that was changed meanwhile ends.
func (p *environmentPool) release(e *environment) {
	now := p.service.cfg.Now()
	p.mu.Lock()
	delete(p.busy, e)
	keep := !p.closed && e.isAlive() && e.generation == p.generation[e.function] &&
		now.Sub(e.startedAt) < maxEnvironmentAge
	if keep {
		e.idleSince = now
		p.idle = append(p.idle, e)
	}

	p.mu.Unlock()

	if !keep {
		e.kill()
	}
}

// retire makes the environments of a function end: those that wait now, the others after their event. It does not wait.
func (p *environmentPool) retire(name string) {
	p.mu.Lock()
	p.generation[name]++
	p.mu.Unlock()
	go p.reap(p.service.cfg.Now())
}

// reap ends the environments that waited too long or whose function was changed.
func (p *environmentPool) reap(now time.Time) {
	var ended []*environment
	p.mu.Lock()
	var kept []*environment
	for _, e := range p.idle {
		if p.closed || !e.isAlive() || e.generation != p.generation[e.function] || now.Sub(e.idleSince) >= maxIdleTime {
			ended = append(ended, e)
		} else {
			kept = append(kept, e)
		}
	}

	p.idle = kept
	p.mu.Unlock()

	for _, e := range ended {
		e.kill()
	}
}

// close ends all environments.
func (p *environmentPool) close() {
	p.mu.Lock()
	p.closed = true
	var busy []*environment
	for e := range p.busy {
		busy = append(busy, e)
	}

	p.mu.Unlock()
	p.reap(p.service.cfg.Now())

	for _, e := range busy {
		e.kill()
	}
}
