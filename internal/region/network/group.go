// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/fabric"
)

// The states of a target.
const (
	stateInitial   = "initial"
	stateHealthy   = "healthy"
	stateUnhealthy = "unhealthy"
)

type dialer func(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error)

// group is a target group at work: it probes its members and hands connections to them.
type group struct {
	dial  dialer
	clock func() time.Time

	mu      sync.Mutex // guards what follows
	check   fabric.HealthCheck
	members map[fabric.Target]*member
	turn    int
	done    chan struct{} // closed with the group
}

// member is one target.
type member struct {
	target  fabric.Target
	state   string
	streak  int       // answers in a row that speak against state
	refused time.Time // when a connection to it last failed
	conns   map[*session]struct{}
	stop    context.CancelFunc // of its prober
}

func newGroup(dial dialer, clock func() time.Time) *group {
	return &group{dial: dial, clock: clock, members: map[fabric.Target]*member{}, done: make(chan struct{})}
}

// sync adds and removes targets. A member that stays keeps its state and its connections.
func (g *group) sync(ctx context.Context, want fabric.TargetGroup) {
	g.mu.Lock()
	defer g.mu.Unlock()
	check := withDefaults(want.Check)
	changed := check != g.check
	g.check = check
	keep := map[fabric.Target]bool{}
	for _, t := range want.Targets {
		keep[t] = true
		m := g.members[t]
		if m == nil {
			m = &member{target: t, state: stateInitial, conns: map[*session]struct{}{}}
			g.members[t] = m
		}
		if m.stop == nil || changed {
			g.startProbing(ctx, m)
		}
	}
	for t, m := range g.members {
		if !keep[t] {
			g.drop(m)
		}
	}
}

func (g *group) startProbing(ctx context.Context, m *member) {
	if m.stop != nil {
		m.stop()
	}
	ctx, m.stop = context.WithCancel(context.WithoutCancel(ctx))
	go g.probeForever(ctx, m, g.check)
}

// drop ends a member with its connections: AWS resets those of a target that was removed.
func (g *group) drop(m *member) {
	if m.stop != nil {
		m.stop()
	}
	m.reset()
	delete(g.members, m.target)
}

func (m *member) reset() {
	for s := range m.conns {
		s.reset()
	}
	clear(m.conns)
}

func (g *group) endConnections(instanceID string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range g.members {
		if m.target.ID == instanceID {
			m.reset()
		}
	}
}

func (g *group) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range g.members {
		g.drop(m)
	}
	close(g.done)
}

// health reports by instance; of an instance behind several ports, the worst one counts.
func (g *group) health() map[string]string {
	g.mu.Lock()
	defer g.mu.Unlock()
	rank := map[string]int{"": 0, stateHealthy: 1, stateInitial: 2, stateUnhealthy: 3}
	out := map[string]string{}
	for t, m := range g.members {
		if rank[m.state] > rank[out[t.ID]] {
			out[t.ID] = m.state
		}
	}
	return out
}

// recentlyRefused is how long a target that did not take a connection is tried last. Health checks take longer than
// that to notice; AWS has nothing like it.
const recentlyRefused = 10 * time.Second

// order says which targets a new connection tries, one after the other: healthy ones in turn, then the rest. When
// none is healthy all count as healthy, as with AWS ("fail open").
func (g *group) order() []*member {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make([]*member, 0, len(g.members))
	for _, m := range g.members {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *member) int {
		return a.target.Addr.Compare(b.target.Addr)*2 + sign(a.target.Port-b.target.Port)
	})
	if len(all) > 0 {
		at := g.turn % len(all)
		all = slices.Concat(all[at:], all[:at])
		g.turn++
	}
	now := g.clock()
	rank := func(m *member) int {
		out := 0
		if m.state != stateHealthy {
			out += 2
		}
		if now.Sub(m.refused) < recentlyRefused {
			out++
		}
		return out
	}
	slices.SortStableFunc(all, func(a, b *member) int { return rank(a) - rank(b) })
	return all
}

func sign(n int) int { return min(max(n, -1), 1) }
