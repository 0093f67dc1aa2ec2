// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netns"

	"github.com/slipway-k8s/slipway/internal/region/netspec"
)

// loadBalancer is one network load balancer: its nodes, its listening ports and their target groups.
type loadBalancer struct {
	arn  string
	ns   netns.NsHandle // owned by the router
	opts Options

	mu        sync.Mutex     // guards what follows
	nodes     []balancerNode // by address
	nextNode  int            // the node of the next connection from the host
	frontends map[netip.AddrPort]*frontend
	groups    map[string]*targetGroup
}

// frontend is one listening port. Its target group may change while it is open.
type frontend struct {
	listener net.Listener
	addr     netip.Addr // a node's address, or a loopback address of the host
	group    atomic.Pointer[targetGroup]
}

// syncBalancers starts, updates, and stops the VPC's load balancers. The caller holds the network's
// syncMu; r.mu is held only while the map changes.
func (r *router) syncBalancers(ctx context.Context, opts Options, vpc netspec.VPC) error {
	var errs []error
	keep := map[string]bool{}
	zones := zonesBySubnet(vpc)

	for _, lb := range slices.Concat(vpc.LoadBalancers, publicAddressBalancers(vpc)) {
		keep[lb.ARN] = true
		if err := r.ensureBalancer(lb.ARN, opts).applySpec(ctx, lb, zones); err != nil {
			errs = append(errs, fmt.Errorf("load balancer %s: %w", lb.ARN, err))
		}
	}

	for _, b := range r.removeBalancers(keep) {
		b.close()
	}

	return errors.Join(errs...)
}

// ensureBalancer returns the load balancer with this ARN. It adds one that has no ports yet if
// there is none.
func (r *router) ensureBalancer(arn string, opts Options) *loadBalancer {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.balancers[arn]
	if b == nil {
		b = &loadBalancer{
			arn:       arn,
			ns:        r.ns,
			opts:      opts,
			frontends: map[netip.AddrPort]*frontend{},
			groups:    map[string]*targetGroup{},
		}

		r.balancers[arn] = b
	}

	return b
}

// removeBalancers removes all load balancers except those in keep, and returns the removed ones.
func (r *router) removeBalancers(keep map[string]bool) []*loadBalancer {
	r.mu.Lock()
	defer r.mu.Unlock()
	var removed []*loadBalancer

	for arn, b := range r.balancers {
		if !keep[arn] {
			removed = append(removed, b)
			delete(r.balancers, arn)
		}
	}

	return removed
}

func (b *loadBalancer) applySpec(
	ctx context.Context,
	lb netspec.LoadBalancer,
	zones map[string]string,
) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nodes = listNodes(lb, zones)
	b.syncGroups(ctx, lb)
	want := openPorts(lb)

	for at, f := range b.frontends {
		if _, ok := want[at]; !ok {
			_ = f.listener.Close() // accepts no new connections; established ones continue, as on AWS
			delete(b.frontends, at)
		}
	}

	var errs []error

	for _, at := range slices.SortedFunc(maps.Keys(want), netip.AddrPort.Compare) {
		f := b.frontends[at]
		if f == nil {
			var err error
			if f, err = b.openFrontend(ctx, at); err != nil {
				errs = append(errs, err)
				continue
			}

			b.frontends[at] = f
			f.group.Store(b.groups[want[at]])
			go b.acceptLoop(context.WithoutCancel(ctx), f)
		}

		f.group.Store(b.groups[want[at]])
	}

	return errors.Join(errs...)
}

func (b *loadBalancer) syncGroups(ctx context.Context, lb netspec.LoadBalancer) {
	keep := map[string]bool{}
	for _, l := range lb.Listeners {
		keep[l.TargetGroup.ARN] = true
		g := b.groups[l.TargetGroup.ARN]
		if g == nil {
			g = newTargetGroup(b)
			b.groups[l.TargetGroup.ARN] = g
			go g.reapIdle(context.WithoutCancel(ctx), b.opts.IdleTimeout)
		}

		g.applySpec(ctx, l.TargetGroup)
	}

	for arn, g := range b.groups {
		if !keep[arn] {
			g.close()
			delete(b.groups, arn)
		}
	}
}

// openPorts returns the addresses and ports that the load balancer listens on, each with the ARN of
// its target group.
func openPorts(lb netspec.LoadBalancer) map[netip.AddrPort]string {
	out := map[netip.AddrPort]string{}
	for _, l := range lb.Listeners {
		for _, addr := range lb.Addrs {
			if lb.HostOnly {
				break
			}

			out[netip.AddrPortFrom(addr, uint16(l.Port))] = l.TargetGroup.ARN
		}

		if !lb.Internal && lb.PublicAddr.IsValid() && admitsWorld(lb, l.Port) {
			out[netip.AddrPortFrom(lb.PublicAddr, uint16(l.Port))] = l.TargetGroup.ARN
		}
	}

	return out
}

// admitsWorld reports whether the load balancer's security groups allow a port from all addresses.
// The operator's computer counts as the internet, so the port is opened on the host only then.
func admitsWorld(lb netspec.LoadBalancer, port int) bool {
	return lb.AdmitAll || slices.ContainsFunc(lb.Ingress, func(r netspec.Rule) bool {
		world := slices.ContainsFunc(
			r.Peers,
			func(p netip.Prefix) bool { return p.Bits() == 0 && p.Addr().Is4() },
		)

		whole := r.Protocol == "" || r.Protocol == anyProtocol
		return world && (whole || r.Protocol == "tcp" && r.From <= port && port <= r.To)
	})
}

// openFrontend listens on the host for a loopback address, and inside the VPC for any other.
func (b *loadBalancer) openFrontend(ctx context.Context, at netip.AddrPort) (*frontend, error) {
	if !at.Addr().IsLoopback() {
		ln, err := listenTCP(ctx, b.ns, at.String())
		return &frontend{listener: ln, addr: at.Addr()}, err
	}

	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp4", at.String())
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", at, err)
	}

	return &frontend{listener: ln, addr: at.Addr()}, nil
}

func (b *loadBalancer) acceptLoop(ctx context.Context, f *frontend) {
	for {
		c, err := f.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}

		if err != nil { // out of descriptors, or the client disconnected
			b.opts.Log.LogAttrs(
				ctx,
				slog.LevelWarn,
				"load balancer cannot accept connection",
				slog.String("arn", b.arn),
				slog.Any("error", err),
			)

			sleepContext(ctx, 50*time.Millisecond)
			continue
		}

		client, ok := c.(*net.TCPConn)
		if !ok {
			_ = c.Close() // unreachable: a TCP listener returns TCP connections
			continue
		}

		go b.forward(ctx, f, client)
	}
}

func (b *loadBalancer) collectHealth(out netspec.TargetHealth) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for arn, g := range b.groups {
		out[arn] = g.targetHealth()
	}
}

func (b *loadBalancer) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for at, f := range b.frontends {
		_ = f.listener.Close()
		delete(b.frontends, at)
	}

	for arn, g := range b.groups {
		g.close()
		delete(b.groups, arn)
	}
}

func sleepContext(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
