// SPDX-License-Identifier: Apache-2.0

package network

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/netspec"
)

// healthCheckDefaults fills in AWS's defaults: interval 30 s, timeout 10 s (6 s for HTTP), and
// thresholds 5 and 2.
func healthCheckDefaults(c netspec.HealthCheck) netspec.HealthCheck {
	c.Protocol = cmp.Or(strings.ToUpper(c.Protocol), "TCP")
	c.Path = cmp.Or(c.Path, "/")
	c.Interval = cmp.Or(c.Interval, 30)
	if c.Protocol == "HTTP" {
		c.Timeout = cmp.Or(c.Timeout, 6)
	}

	c.Timeout = cmp.Or(c.Timeout, 10)
	c.HealthyThreshold = cmp.Or(c.HealthyThreshold, 5)
	c.UnhealthyThreshold = cmp.Or(c.UnhealthyThreshold, 2)

	return c
}

// probeLoop probes a target immediately and then at every interval until ctx ends.
func (g *targetGroup) probeLoop(ctx context.Context, m *targetState, check netspec.HealthCheck) {
	tick := time.NewTicker(time.Duration(check.Interval) * time.Second)
	defer tick.Stop()
	for {
		err := g.probeTarget(ctx, m.target, check)
		if ctx.Err() != nil {
			return
		}

		g.recordProbe(m, check, err == nil)

		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// recordProbe updates the target's state. One success makes an initial target healthy; otherwise
// the thresholds apply. A target that becomes unhealthy loses its connections, unless the group
// keeps them.
func (g *targetGroup) recordProbe(m *targetState, check netspec.HealthCheck, healthy bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case healthy && m.state == stateHealthy, !healthy && m.state == stateUnhealthy:
		m.streak = 0
		return
	case healthy && m.state == stateInitial:
		m.state = stateHealthy
		m.streak = 0
		return
	}

	m.streak++

	switch {
	case healthy && m.streak >= check.HealthyThreshold:
		m.state = stateHealthy
		m.streak = 0

	case !healthy && m.streak >= check.UnhealthyThreshold:
		m.state = stateUnhealthy
		m.streak = 0
		if !g.spec.KeepUnhealthy {
			g.resetSessions(m)
		}
	}
}

func (g *targetGroup) probeTarget(ctx context.Context, t netspec.Target, check netspec.HealthCheck) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(check.Timeout)*time.Second)
	defer cancel()
	at := netip.AddrPortFrom(t.Addr, uint16(cmp.Or(check.Port, t.Port)))
	dial := func(ctx context.Context) (*net.TCPConn, error) {
		return g.balancer.dialTarget(ctx, g.balancer.probeSource(t.Zone), at)
	}

	if check.Protocol == "TCP" {
		c, err := dial(ctx)
		if err != nil {
			return err
		}

		return c.Close()
	}

	return probeHTTP(ctx, dial, at, check)
}

// probeHTTP makes one request. dial connects to the target.
func probeHTTP(
	ctx context.Context,
	dial func(context.Context) (*net.TCPConn, error),
	at netip.AddrPort,
	check netspec.HealthCheck,
) error {
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dial(ctx)
		},
		TLSClientConfig: &tls.Config{
			InsecureSkipVerify: true, //nolint:gosec // AWS's health checks do not verify certificates
			// Targets that support only TLS 1.3 fail AWS's health checks.
			MaxVersion: tls.VersionTLS12,
		},
	}

	client := &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}

	url := strings.ToLower(check.Protocol) + "://" + at.String() + check.Path
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return fmt.Errorf("probe %s: %w", url, err)
	}

	req.Header.Set("User-Agent", "ELB-HealthChecker/2.0")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}

	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	if resp.StatusCode < 200 || resp.StatusCode > 399 { // AWS's default matcher for network load balancers
		err = fmt.Errorf("probe %s: status %d", url, resp.StatusCode)
	}

	return errors.Join(err, resp.Body.Close())
}
