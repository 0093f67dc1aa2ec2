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

// proxySession is one connection through a load balancer.
type proxySession struct {
	client, server *net.TCPConn
	once           sync.Once
}

// dialTimeout limits the connection attempt to one target. A live target in the same region accepts
// within milliseconds, and the client should reach the next target before its own timeout.
const dialTimeout = 2 * time.Second

// proxyClient connects the client to the first target that accepts. AWS does not try a second
// target; this proxy does, so that a dead machine causes a delay instead of a failure until health
// checks notice it.
func (g *targetGroup) proxyClient(ctx context.Context, client *net.TCPConn) {
	for _, m := range g.orderTargets() {
		dialCtx, cancel := context.WithTimeout(ctx, dialTimeout)
		server, err := g.dial(dialCtx, netip.AddrPortFrom(m.target.Addr, uint16(m.target.Port)))
		cancel()
		if err != nil {
			g.mu.Lock()
			m.refusedAt = g.clock()
			g.mu.Unlock()
			continue
		}

		s := &proxySession{client: client, server: server}
		if !g.addSession(m, s) {
			_ = server.Close() // the target was removed meanwhile
			continue
		}

		s.copyBothWays()
		g.removeSession(m, s)

		return
	}

	resetConn(client)
}

func (g *targetGroup) addSession(m *targetState, s *proxySession) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.targets[m.target] != m {
		return false
	}

	m.sessions[s] = struct{}{}

	return true
}

func (g *targetGroup) removeSession(m *targetState, s *proxySession) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(m.sessions, s)
}

// copyBothWays copies in both directions (the kernel splices between TCP sockets) and returns when
// both have ended. It forwards the end of each direction; an error in one ends both.
func (s *proxySession) copyBothWays() {
	var wg sync.WaitGroup
	pipe := func(to, from *net.TCPConn) {
		if _, err := io.Copy(to, from); err != nil || to.CloseWrite() != nil {
			s.resetBoth()
		}
	}

	wg.Go(func() { pipe(s.server, s.client) })
	wg.Go(func() { pipe(s.client, s.server) })
	wg.Wait()
	_ = s.client.Close()
	_ = s.server.Close()
}

// resetBoth resets both connections.
func (s *proxySession) resetBoth() {
	s.once.Do(func() {
		resetConn(s.client)
		resetConn(s.server)
	})
}

func resetConn(c *net.TCPConn) {
	_ = c.SetLinger(0) // fails only on a closed socket
	_ = c.Close()
}

// reapIdle resets sessions on which neither side has sent data for the idle time, until the group
// is closed.
func (g *targetGroup) reapIdle(ctx context.Context, idle time.Duration) {
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

		for _, s := range g.listSessions() {
			if min(idleTime(s.client), idleTime(s.server)) >= idle {
				s.resetBoth()
			}
		}
	}
}

func (g *targetGroup) listSessions() []*proxySession {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []*proxySession

	for _, m := range g.targets {
		for s := range m.sessions {
			out = append(out, s)
		}
	}

	return out
}

// idleTime returns how long ago the socket last received data, as counted by the kernel.
func idleTime(c *net.TCPConn) time.Duration {
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
		return 0 // the connection was closed
	}

	return last
}
