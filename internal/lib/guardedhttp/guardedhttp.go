// SPDX-License-Identifier: Apache-2.0

// Package guardedhttp makes requests to a server that an operator has chosen and does not control.
// The server can answer with redirects and its name can resolve to any address, so the package
// refuses what a machine can reach and the server must not: the instance metadata service, other
// services of the machine, and, unless the server itself has a private address, private addresses
// of other hosts.
//
// It does not know what is requested.
package guardedhttp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"syscall"
	"time"
)

// maxRedirects is how many redirects of one request are followed: a registry sends its clients to a
// store, and a store perhaps to another region.
const maxRedirects = 5

// The timeouts of one request. Its context limits the whole.
const (
	connectTimeout = 10 * time.Second
	headerTimeout  = 20 * time.Second
	maxConnections = 4
)

// Options are how requests are made.
type Options struct {
	// Origin is the host of the server that the operator has chosen, with its port if the address
	// has one.
	Origin string
	// Proxy returns the proxy for a request, as [http.Transport] has it. Nil: none.
	Proxy func(*http.Request) (*url.URL, error)
	// PlainText also allows requests over HTTP, for a server whose answers are checked in another way.
	PlainText bool
	// MaxBytes limits the body of an answer.
	MaxBytes int64
	// Allowed addresses are reached although they are those of the machine. Nil: none.
	Allowed []netip.Prefix
	// TLS has the settings of connections. Nil: the defaults.
	TLS *tls.Config
}

// NewClient returns a client for requests to one server.
func NewClient(o Options) *http.Client {
	return &http.Client{Transport: NewTransport(o), CheckRedirect: checkRedirect}
}

// NewTransport returns what makes the requests of [NewClient], for libraries with a client of their
// own. Redirects are requests like others.
func NewTransport(o Options) http.RoundTripper {
	g := &guard{options: o, proxies: map[string]bool{}}
	g.next = &http.Transport{
		DialContext:           g.dial,
		Proxy:                 g.proxy,
		TLSClientConfig:       o.TLS,
		ForceAttemptHTTP2:     true,
		DisableCompression:    true, // sizes are those of what the server sends
		TLSHandshakeTimeout:   connectTimeout,
		ResponseHeaderTimeout: headerTimeout,
		IdleConnTimeout:       time.Minute,
		MaxIdleConns:          maxConnections,
	}

	return g
}

// checkRedirect takes the credentials away from a redirect to another host.
func checkRedirect(next *http.Request, before []*http.Request) error {
	if len(before) > maxRedirects {
		return fmt.Errorf("more than %d redirects", maxRedirects)
	}

	if next.URL.Host != before[0].URL.Host {
		next.Header.Del("Authorization")
	}

	return nil
}

// guard decides which addresses are connected to.
type guard struct {
	options Options
	next    *http.Transport

	mu      sync.Mutex
	proxies map[string]bool // host:port
	// isPrivate is set if the server itself has a private address.
	isPrivate bool
}

// RoundTrip implements [http.RoundTripper].
func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	switch {
	case r.URL.Scheme != "https" && (r.URL.Scheme != "http" || !g.options.PlainText):
		return nil, fmt.Errorf("%s is not asked over %s: %w", r.URL.Host, r.URL.Scheme, ErrForbidden)
	case r.URL.User != nil:
		return nil, fmt.Errorf("the address of %s has a user name: %w", r.URL.Host, ErrForbidden)
	}

	response, err := g.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}

	response.Body = &limitedBody{body: response.Body, host: r.URL.Host, limit: g.options.MaxBytes}

	return response, nil
}

// limitedBody fails when a server sends more than a limit.
type limitedBody struct {
	body  io.ReadCloser
	host  string
	limit int64
	read  int64
}

// Read implements [io.Reader].
func (l *limitedBody) Read(p []byte) (int, error) {
	n, err := l.body.Read(p)
	l.read += int64(n)
	if l.read > l.limit {
		return 0, fmt.Errorf("%s sends more than the limit of %d bytes", l.host, l.limit)
	}

	return n, err
}

// Close implements [io.Closer].
func (l *limitedBody) Close() error { return l.body.Close() }

// proxy returns the proxy for a request. A proxy connects to where it is told, so what can be known
// of the target is checked here.
func (g *guard) proxy(r *http.Request) (*url.URL, error) {
	if g.options.Proxy == nil {
		return nil, nil //nolint:nilnil // the interface of net/http: no proxy
	}

	found, err := g.options.Proxy(r)
	if found == nil || err != nil {
		return nil, err
	}

	if err := g.checkName(r.Context(), r.URL.Hostname()); err != nil {
		return nil, err
	}

	g.mu.Lock()
	defer g.mu.Unlock()
	g.proxies[addressOf(found)] = true

	return found, nil
}

// checkName refuses a host whose addresses are known to be those of the machine. A machine behind a
// proxy may not be able to resolve names.
func (g *guard) checkName(ctx context.Context, host string) error {
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil //nolint:nilerr // the proxy resolves it
	}

	for _, address := range addresses {
		if err := g.check(host, address); err != nil {
			return err
		}
	}

	return nil
}

// addressOf returns the host and the port of a URL.
func addressOf(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443", "socks5": "1080"}[u.Scheme]
	}

	return net.JoinHostPort(u.Hostname(), port)
}

// dial connects to a host. Every address that its name resolves to is checked when it is connected
// to.
func (g *guard) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: connectTimeout}

	g.mu.Lock()
	isProxy := g.proxies[address]
	g.mu.Unlock()
	if isProxy {
		return dialer.DialContext(ctx, network, address)
	}

	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}

	dialer.ControlContext = func(_ context.Context, _, resolved string, _ syscall.RawConn) error {
		target, err := netip.ParseAddrPort(resolved)
		if err != nil {
			return err
		}

		return g.check(host, target.Addr())
	}

	return dialer.DialContext(ctx, network, address)
}

// ErrForbidden is the cause of errors of requests to addresses that a server must not reach through
// a machine.
var ErrForbidden = errors.New("the address is refused")

// check returns an error if a host must not be connected to at an address.
func (g *guard) check(host string, address netip.Addr) error {
	address = embedded(address)
	if slices.ContainsFunc(g.options.Allowed, func(p netip.Prefix) bool { return p.Contains(address) }) {
		return nil
	}

	if isOfMachine(address) {
		return fmt.Errorf("%s is at %s, an address of the machine itself or of its metadata: %w", host, address, ErrForbidden)
	}

	g.mu.Lock()
	defer g.mu.Unlock()
	if isOrigin := host == hostOf(g.options.Origin); isOrigin {
		g.isPrivate = g.isPrivate || isPrivate(address)
		return nil
	}

	if isPrivate(address) && !g.isPrivate {
		return fmt.Errorf("%s, to which %s refers, is at the private address %s: %w", host, g.options.Origin, address, ErrForbidden)
	}

	return nil
}

// hostOf returns a host without its port.
func hostOf(host string) string {
	return (&url.URL{Host: host}).Hostname()
}

// embedded returns the IPv4 address that an IPv6 address stands for, or the address itself.
func embedded(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	nat64 := netip.MustParsePrefix("64:ff9b::/96") // RFC 6052
	if !nat64.Contains(a) {
		return a
	}

	b := a.As16()

	return netip.AddrFrom4([4]byte(b[12:]))
}

// isOfMachine reports whether only the machine itself has an address, or AWS answers it for this
// machine alone: the instance metadata service, the time service and the resolver of EC2.
func isOfMachine(a netip.Addr) bool {
	return a.IsLoopback() || a.IsUnspecified() || a.IsLinkLocalUnicast() || a.IsMulticast() ||
		netip.MustParsePrefix("0.0.0.0/8").Contains(a) ||
		netip.MustParsePrefix("240.0.0.0/4").Contains(a) ||
		netip.MustParsePrefix("fd00:ec2::/32").Contains(a)
}

// isPrivate reports whether an address is that of a private network, RFC 6598 included.
func isPrivate(a netip.Addr) bool {
	return a.IsPrivate() || netip.MustParsePrefix("100.64.0.0/10").Contains(a)
}

// Cause returns what an error of a request is about. The error of net/http repeats the address,
// whose query may grant access.
func Cause(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		return wrapped.Err
	}

	return err
}
