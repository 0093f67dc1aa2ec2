// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
	"github.com/vishvananda/netns"

	"github.com/slipway-k8s/slipway/internal/region/netspec"
)

// RequestSource is the origin of a request inside a VPC. VPCs may have overlapping address ranges,
// so both fields are needed.
type RequestSource struct {
	// VPC is the id of the VPC.
	VPC string
	// Addr is the caller's private address.
	Addr netip.Addr
}

type sourceKey struct{}

// RequestSourceFrom returns the origin of a request that a server of this package received. The
// second result is false for other requests.
func RequestSourceFrom(ctx context.Context) (s RequestSource, ok bool) {
	s, ok = ctx.Value(sourceKey{}).(RequestSource)
	return s, ok
}

// vpcServices are the servers inside one VPC's router.
type vpcServices struct {
	http    []*http.Server
	dns     map[string]*dns.Server // by transport and address, such as "udp 10.0.0.2"
	zone    atomic.Pointer[dnsZone]
	access  atomic.Pointer[endpointAccess]
	started bool
}

// syncServices starts servers that do not run yet and updates the resolver's names and the
// endpoints' access rules.
func (r *router) syncServices(ctx context.Context, opts Options, vpc netspec.VPC) error {
	s := r.services
	zone := newDNSZone(vpc, r.namedAddrs)
	zone.addServices(opts.ServiceNames)
	s.zone.Store(zone)
	at := newEndpointAccess(vpc)
	s.access.Store(&at)

	return errors.Join(s.serveHTTP(ctx, r, opts), s.serveDNS(ctx, r.ns, vpc.CIDRs))
}

func (s *vpcServices) serveHTTP(ctx context.Context, r *router, opts Options) error {
	if s.started {
		return nil
	}

	registry := func(*http.Request) string { return registryService }
	for _, at := range []struct {
		addr    netip.AddrPort
		handler http.Handler
		service func(*http.Request) string
	}{
		{netip.AddrPortFrom(metadataAddr(), 80), opts.Metadata, nil},
		{netip.AddrPortFrom(serviceAddr(), 80), opts.API, opts.RequestService},
		{netip.AddrPortFrom(serviceAddr(), 5000), opts.Registry, registry},
	} {
		if at.handler == nil {
			continue
		}

		ln, err := listenTCP(ctx, r.ns, at.addr.String())
		if err != nil {
			s.closeHTTP()
			return err
		}

		if at.service != nil {
			at.handler = s.guardEndpoints(at.handler, at.service)
		}

		srv := newHTTPServer(context.WithoutCancel(ctx), r.vpc, at.handler)
		s.http = append(s.http, srv)
		go func() { _ = srv.Serve(ln) }() // returns after Close; net/http retries Accept until then
	}

	s.started = true

	return nil
}

func newHTTPServer(ctx context.Context, vpc string, handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			peer, err := netip.ParseAddrPort(c.RemoteAddr().String())
			if err != nil {
				return ctx
			}

			return context.WithValue(ctx, sourceKey{}, RequestSource{VPC: vpc, Addr: peer.Addr().Unmap()})
		},
	}
}

func (s *vpcServices) serveDNS(ctx context.Context, ns netns.NsHandle, ranges []netip.Prefix) error {
	want := map[string]bool{resolverAddr().String(): true}
	for _, c := range ranges {
		want[nthAddr(c, 2).String()] = true
	}

	if s.dns == nil {
		s.dns = map[string]*dns.Server{}
	}

	for key, srv := range s.dns {
		if !want[key[len("udp "):]] {
			_ = srv.Shutdown()
			delete(s.dns, key)
		}
	}

	var errs []error
	for addr := range want {
		errs = append(errs, s.serveResolver(ctx, ns, addr))
	}

	return errors.Join(errs...)
}

// serveResolver serves DNS on one address over UDP and TCP.
func (s *vpcServices) serveResolver(ctx context.Context, ns netns.NsHandle, addr string) error {
	at := net.JoinHostPort(addr, "53")
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, req *dns.Msg) {
		_ = w.WriteMsg(s.zone.Load().answerQuery(req)) // the client has disconnected or retries
	})
	if s.dns["udp "+addr] == nil {
		pc, err := listenUDP(ctx, ns, at)
		if err != nil {
			return fmt.Errorf("serve DNS: %w", err)
		}

		s.dns["udp "+addr] = startDNS(&dns.Server{PacketConn: pc, Handler: handler})
	}

	if s.dns["tcp "+addr] == nil {
		ln, err := listenTCP(ctx, ns, at)
		if err != nil {
			return fmt.Errorf("serve DNS: %w", err)
		}

		s.dns["tcp "+addr] = startDNS(&dns.Server{Listener: ln, Handler: handler})
	}

	return nil
}

// startDNS returns when the server runs, because Shutdown does nothing before that.
func startDNS(srv *dns.Server) *dns.Server {
	up := make(chan struct{})
	srv.NotifyStartedFunc = func() { close(up) }
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.ActivateAndServe() // returns after Shutdown
	}()

	select {
	case <-up:
	case <-done:
	}

	return srv
}

func (s *vpcServices) closeHTTP() {
	for _, srv := range s.http {
		_ = srv.Close()
	}

	s.http = nil
	s.started = false
}

func (s *vpcServices) close() {
	s.closeHTTP()
	for key, srv := range s.dns {
		_ = srv.Shutdown() // fails only if it does not run
		delete(s.dns, key)
	}
}
