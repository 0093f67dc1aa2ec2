// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// session is one connection through a load balancer.
type session struct {
	client, server *net.TCPConn
	once           sync.Once
}

// dialTimeout is how long one target may take to accept: a target in the same region answers in milliseconds or is
// dead, and a client should get to the next one before it gives up itself.
const dialTimeout = 2 * time.Second

// proxy connects the client to the first target that takes it. AWS does not try a second one; we do, so that the
// seconds before a health check notices a dead machine cost a delay and no failure.
func (g *group) proxy(ctx context.Context, client *net.TCPConn) {
	for _, m := range g.order() {
		dctx, cancel := context.WithTimeout(ctx, dialTimeout)
		server, err := g.dial(dctx, netip.AddrPortFrom(m.target.Addr, uint16(m.target.Port))) //nolint:gosec // a port
		cancel()
		if err != nil {
			g.mu.Lock()
			m.refused = g.clock()
			g.mu.Unlock()
			continue
		}
		s := &session{client: client, server: server}
		if !g.enter(m, s) {
			_ = server.Close() // the target went while we were connecting
			continue
		}
		s.run()
		g.leave(m, s)
		return
	}
	reset(client)
}

func (g *group) enter(m *member, s *session) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.members[m.target] != m {
		return false
	}
	m.conns[s] = struct{}{}
	return true
}

func (g *group) leave(m *member, s *session) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(m.conns, s)
}

// run copies both ways (the kernel splices between two TCP sockets) and returns when both directions have ended. The
// end of one direction is passed on; an error in one ends both.
func (s *session) run() {
	var wg sync.WaitGroup
	pipe := func(to, from *net.TCPConn) {
		if _, err := io.Copy(to, from); err != nil || to.CloseWrite() != nil {
			s.reset()
		}
	}
	wg.Go(func() { pipe(s.server, s.client) })
	wg.Go(func() { pipe(s.client, s.server) })
	wg.Wait()
	_, _ = s.client.Close(), s.server.Close() // both directions have ended, nothing is left to lose
}

// reset ends the session at once; both sides see a reset.
func (s *session) reset() {
	s.once.Do(func() {
		reset(s.client)
		reset(s.server)
	})
}

func reset(c *net.TCPConn) {
	_ = c.SetLinger(0) // fails only on a closed socket
	_ = c.Close()
}

// reap ends sessions on which neither side has said anything for so long, until the group is closed.
func (g *group) reap(ctx context.Context, idle time.Duration) {
	tick := time.NewTicker(max(idle/10, 10*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-g.done:
			return
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, s := range g.sessions() {
			if min(silence(s.client), silence(s.server)) >= idle {
				s.reset()
			}
		}
	}
}

func (g *group) sessions() []*session {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []*session
	for _, m := range g.members {
		for s := range m.conns {
			out = append(out, s)
		}
	}
	return out
}

// silence is how long ago the socket last received data. The kernel counts it, so the copying need not.
func silence(c *net.TCPConn) time.Duration {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	var last time.Duration
	err = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			last = time.Duration(info.Last_data_recv) * time.Millisecond
		}
	})
	if err != nil {
		return 0 // closed meanwhile
	}
	return last
}
