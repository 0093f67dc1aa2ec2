// SPDX-License-Identifier: Apache-2.0

package network

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/slipway-k8s/slipway/internal/region/netspec"
)

// States of a target, as on AWS.
const (
	stateInitial   = "initial"
	stateHealthy   = "healthy"
	stateUnhealthy = "unhealthy"
)

// targetGroup probes its targets and distributes connections to them.
type targetGroup struct {
	balancer *loadBalancer

	mu         sync.Mutex // guards what follows
	spec       netspec.TargetGroup
	check      netspec.HealthCheck // that of spec, with defaults
	targets    map[netspec.Target]*targetState
	sessions   map[*proxySession]struct{} // also those of targets that were removed
	nextTarget int
	done       chan struct{} // closed by close
}

// targetState is the state of one target.
type targetState struct {
	target      netspec.Target
	state       string
	draining    bool // deregistered: no new connections
	streak      int  // consecutive probe results that contradict state
	stopProbing context.CancelFunc
}

func newTargetGroup(balancer *loadBalancer) *targetGroup {
	return &targetGroup{
		balancer: balancer,
		targets:  map[netspec.Target]*targetState{},
		sessions: map[*proxySession]struct{}{},
		done:     make(chan struct{}),
	}
}

// applySpec adds and removes targets. Targets that remain keep their state and connections.
func (g *targetGroup) applySpec(ctx context.Context, want netspec.TargetGroup) {
	g.mu.Lock()
	defer g.mu.Unlock()
	check := healthCheckDefaults(want.HealthCheck)
	changed := check != g.check
	g.spec = want
	g.check = check
	keep := map[netspec.Target]bool{}

	for _, t := range want.Targets {
		keep[t] = true
		g.ensureTarget(ctx, t, false, changed)
	}

	for _, t := range want.Draining {
		keep[t] = true
		g.ensureTarget(ctx, t, true, changed)
	}

	for t, m := range g.targets {
		if !keep[t] {
			g.removeTarget(m)
		}
	}
}

// ensureTarget adds a target, or changes whether it is draining. A target that is registered again starts anew.
func (g *targetGroup) ensureTarget(ctx context.Context, t netspec.Target, draining, restart bool) {
	m := g.targets[t]
	if m == nil {
		m = &targetState{target: t, state: stateInitial}
		g.targets[t] = m
	}

	if m.draining && !draining {
		m.state = stateInitial
		m.streak = 0
	}

	m.draining = draining
	if m.stopProbing == nil || restart {
		g.startProbing(ctx, m)
	}
}

func (g *targetGroup) startProbing(ctx context.Context, m *targetState) {
	if m.stopProbing != nil {
		m.stopProbing()
	}

	ctx, m.stopProbing = context.WithCancel(context.WithoutCancel(ctx))
	go g.probeLoop(ctx, m, g.check)
}

// removeTarget removes a target at the end of its deregistration delay. As at AWS, its connections remain unless
// the group ends them.
func (g *targetGroup) removeTarget(m *targetState) {
	if m.stopProbing != nil {
		m.stopProbing()
	}

	if g.spec.EndDeregistered {
		g.resetSessions(m)
	}

	delete(g.targets, m.target)
}

// resetSessions resets the connections to a target.
func (g *targetGroup) resetSessions(m *targetState) {
	for s := range g.sessions {
		if s.target == m {
			s.resetBoth()
		}
	}
}

func (g *targetGroup) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range g.targets {
		g.removeTarget(m)
	}

	for s := range g.sessions {
		s.resetBoth()
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

// hasHealthyTarget reports whether a zone's node has a healthy target.
func (g *targetGroup) hasHealthyTarget(zone string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()

	return slices.ContainsFunc(
		g.listTargets(zone),
		func(m *targetState) bool { return m.state == stateHealthy },
	)
}

// pickTarget returns the target of the next connection to a zone's node: the healthy ones take turns. If none is
// healthy, all are used, as on AWS ("fail open"). It returns nil if there is no target. The caller holds g.mu.
func (g *targetGroup) pickTarget(zone string) *targetState {
	all := g.listTargets(zone)
	healthy := slices.DeleteFunc(
		slices.Clone(all),
		func(m *targetState) bool { return m.state != stateHealthy },
	)
	if len(healthy) > 0 {
		all = healthy
	}

	if len(all) == 0 {
		return nil
	}

	g.nextTarget++

	return all[g.nextTarget%len(all)]
}

// listTargets returns the targets to which a zone's node can send new connections, sorted. The caller holds g.mu.
func (g *targetGroup) listTargets(zone string) []*targetState {
	var out []*targetState
	for _, m := range g.targets {
		if !m.draining && (g.spec.CrossZone || m.target.Zone == zone) {
			out = append(out, m)
		}
	}

	slices.SortFunc(out, func(a, b *targetState) int {
		return cmp.Or(a.target.Addr.Compare(b.target.Addr), cmp.Compare(a.target.Port, b.target.Port))
	})

	return out
}
