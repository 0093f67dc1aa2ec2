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

// The states of a target.
const (
	stateInitial   = "initial"
	stateHealthy   = "healthy"
	stateUnhealthy = "unhealthy"
)

type dialFunc func(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error)

// targetGroup is a target group at work: it probes its members and hands connections to them.
type targetGroup struct {
	dial  dialFunc
	clock func() time.Time

	mu         sync.Mutex // guards what follows
	check      netspec.HealthCheck
	targets    map[netspec.Target]*targetState
	nextTarget int
	done       chan struct{} // closed with the group
}

// targetState is one target.
type targetState struct {
	target      netspec.Target
	state       string
	streak      int       // answers in a row that speak against state
	refusedAt   time.Time // when a connection to it last failed
	sessions    map[*proxySession]struct{}
	stopProbing context.CancelFunc // of its prober
}

func newTargetGroup(dial dialFunc, clock func() time.Time) *targetGroup {
	return &targetGroup{
		dial:    dial,
		clock:   clock,
		targets: map[netspec.Target]*targetState{},
		done:    make(chan struct{}),
	}
}

// applySpec adds and removes targets. A member that stays keeps its state and its connections.
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

// removeTarget ends a member with its connections: AWS resets those of a target that was removed.
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

// targetHealth reports by instance; of an instance behind several ports, the worst one counts.
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

// refusedPenalty is how long a target that did not take a connection is tried last. Health checks take longer than
// that to notice; AWS has nothing like it.
const refusedPenalty = 10 * time.Second

// orderTargets says which targets a new connection tries, one after the other: healthy ones in turn, then the rest. When
// none is healthy all count as healthy, as with AWS ("fail open").
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
