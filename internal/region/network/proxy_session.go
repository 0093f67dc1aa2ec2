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
	client *net.TCPConn
	target *targetState
	cancel context.CancelFunc // ends the attempt to connect to the target

	mu     sync.Mutex   // guards what follows
	server *net.TCPConn // nil until the target has accepted
	reset  bool
}

// forward connects a client to one target. As at AWS, there is no second one: a refusal is passed on, and the
// client waits for a target that does not answer until it gives up or the health checks fail.
func (b *loadBalancer) forward(ctx context.Context, f *frontend, client *net.TCPConn) {
	node, ok := b.nodeAt(f.addr)
	if !ok {
		resetConn(client)
		return
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g := f.group.Load()
	s, keepAddr := g.startSession(node.zone, client, cancel)
	if s == nil {
		resetConn(client)
		return
	}

	defer g.removeSession(s)
	from := node.addr
	var err error
	if keepAddr {
		from, err = clientAddr(client)
	}

	var server *net.TCPConn
	if err == nil {
		to := s.target.target
		server, err = b.dialTarget(ctx, from, netip.AddrPortFrom(to.Addr, uint16(to.Port)))
	}

	if err != nil {
		s.resetBoth()
		return
	}

	if !s.attach(server) {
		resetConn(server)
		return
	}

	s.copyBothWays()
}

// startSession chooses a target for a client of a zone's node. The session is nil if there is none. The second
// result is whether the target sees the client's address.
func (g *targetGroup) startSession(
	zone string,
	client *net.TCPConn,
	cancel context.CancelFunc,
) (*proxySession, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.pickTarget(zone)
	if m == nil {
		return nil, false
	}

	s := &proxySession{client: client, target: m, cancel: cancel}
	g.sessions[s] = struct{}{}

	return s, g.spec.PreserveClientIP
}

func (g *targetGroup) removeSession(s *proxySession) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.sessions, s)
}

// attach sets the connection to the target. It returns false if the session was reset meanwhile.
func (s *proxySession) attach(server *net.TCPConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reset {
		return false
	}

	s.server = server

	return true
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

// resetBoth resets both connections, or ends the attempt to connect to the target.
func (s *proxySession) resetBoth() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reset {
		return
	}

	s.reset = true
	s.cancel()
	resetConn(s.client)
	if s.server != nil {
		resetConn(s.server)
	}
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
			if s.idleTime() >= idle {
				s.resetBoth()
			}
		}
	}
}

func (g *targetGroup) listSessions() []*proxySession {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]*proxySession, 0, len(g.sessions))
	for s := range g.sessions {
		out = append(out, s)
	}

	return out
}

// idleTime returns how long neither side has sent data; 0 while the target has not accepted.
func (s *proxySession) idleTime() time.Duration {
	s.mu.Lock()
	server := s.server
	s.mu.Unlock()
	if server == nil {
		return 0
	}

	return min(idleTime(s.client), idleTime(server))
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
