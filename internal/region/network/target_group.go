// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/netspec"
)

// States of a target, as on AWS.
const (
	stateInitial   = "initial"
	stateHealthy   = "healthy"
	stateUnhealthy = "unhealthy"
)

type dialFunc func(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error)

// targetGroup probes its targets and distributes connections to them.
type targetGroup struct {
	dial  dialFunc
	clock func() time.Time

	mu         sync.Mutex // guards what follows
	check      netspec.HealthCheck
	targets    map[netspec.Target]*targetState
	nextTarget int
	done       chan struct{} // closed by close
}

// targetState is the state of one target.
type targetState struct {
	target      netspec.Target
	state       string
	streak      int       // consecutive probe results that contradict state
	refusedAt   time.Time // time of the last failed connection
	sessions    map[*proxySession]struct{}
	stopProbing context.CancelFunc
}

func newTargetGroup(dial dialFunc, clock func() time.Time) *targetGroup {
	return &targetGroup{
		dial:    dial,
		clock:   clock,
		targets: map[netspec.Target]*targetState{},
		done:    make(chan struct{}),
	}
}

// applySpec adds and removes targets. Targets that remain keep their state and connections.
func (g *targetGroup) applySpec(ctx context.Context, want netspec.TargetGroup) {
	g.mu.Lock()
	defer g.mu.Unlock()
	check := healthCheckDefaults(want.HealthCheck)
	changed := check != g.check
	g.check = check
	keep := map[netspec.Target]bool{}

	for _, t := range want.Targets {
		keep[t] = true
		m := g.targets[t]
		if m == nil {
			m = &targetState{target: t, state: stateInitial, sessions: map[*proxySession]struct{}{}}
			g.targets[t] = m
		}

		if m.stopProbing == nil || changed {
			g.startProbing(ctx, m)
		}
	}

	for t, m := range g.targets {
		if !keep[t] {
			g.removeTarget(m)
		}
	}
}

func (g *targetGroup) startProbing(ctx context.Context, m *targetState) {
	if m.stopProbing != nil {
		m.stopProbing()
	}

	ctx, m.stopProbing = context.WithCancel(context.WithoutCancel(ctx))
	go g.probeLoop(ctx, m, g.check)
}

// removeTarget removes a target and resets its connections, as AWS does when a target is
// deregistered.
func (g *targetGroup) removeTarget(m *targetState) {
	if m.stopProbing != nil {
		m.stopProbing()
	}

	m.resetSessions()
	delete(g.targets, m.target)
}

func (m *targetState) resetSessions() {
	for s := range m.sessions {
		s.resetBoth()
	}

	clear(m.sessions)
}

func (g *targetGroup) endConnections(instanceID string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range g.targets {
		if m.target.ID == instanceID {
			m.resetSessions()
		}
	}
}

func (g *targetGroup) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range g.targets {
		g.removeTarget(m)
	}

	close(g.done)
}

// targetHealth returns the state by instance id. For an instance with several ports, it is the
// worst state.
func (g *targetGroup) targetHealth() map[string]string {
	g.mu.Lock()
	defer g.mu.Unlock()
	rank := map[string]int{"": 0, stateHealthy: 1, stateInitial: 2, stateUnhealthy: 3}
	out := map[string]string{}

	for t, m := range g.targets {
		if rank[m.state] > rank[out[t.ID]] {
			out[t.ID] = m.state
		}
	}

	return out
}

// refusedPenalty is how long a target that refused a connection is tried last. It bridges the time
// until health checks notice; AWS has no such mechanism.
const refusedPenalty = 10 * time.Second

// orderTargets returns the targets in the order in which a new connection tries them: healthy ones
// in rotation, then the rest. If none is healthy, all are used, as on AWS ("fail open").
func (g *targetGroup) orderTargets() []*targetState {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make([]*targetState, 0, len(g.targets))
	for _, m := range g.targets {
		all = append(all, m)
	}

	slices.SortFunc(all, func(a, b *targetState) int {
		return a.target.Addr.Compare(b.target.Addr)*2 + signOf(a.target.Port-b.target.Port)
	})
	if len(all) > 0 {
		at := g.nextTarget % len(all)
		all = slices.Concat(all[at:], all[:at])
		g.nextTarget++
	}

	now := g.clock()
	rank := func(m *targetState) int {
		out := 0
		if m.state != stateHealthy {
			out += 2
		}

		if now.Sub(m.refusedAt) < refusedPenalty {
			out++
		}

		return out
	}

	slices.SortStableFunc(all, func(a, b *targetState) int { return rank(a) - rank(b) })

	return all
}

func signOf(n int) int { return min(max(n, -1), 1) }
