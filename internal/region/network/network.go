// SPDX-License-Identifier: Apache-2.0

// Package network makes a picture of the region's network real on one Linux machine: a router namespace for each VPC,
// a veth for each machine, nftables for security groups, TCP proxies for load balancers and a resolver for names.
// It does not know how EC2 arrived at the picture, nor what runs inside the machines.
package network

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/netspec"
)

// Options is what a network needs from outside.
type Options struct {
	// RegionID sets this region's namespaces apart from any other's: lower-case letters, digits and hyphens.
	RegionID string
	// API answers at 198.18.0.1:80 inside every VPC, Registry at 198.18.0.1:5000, Metadata at 169.254.169.254:80.
	// A nil handler is not served. The caller's address is found by RequestSourceFrom.
	API, Registry, Metadata http.Handler
	// RequestService names the service that a request to API is for, such as ec2. Machines without a way out reach only
	// services that have an endpoint in their VPC; nil lets them reach all, if there is any endpoint.
	RequestService func(*http.Request) string
	// Clock tells the time; required.
	Clock func() time.Time
	// Log takes what nobody is waiting for; nil means silence.
	Log *slog.Logger
	// NamespaceDir holds the named namespaces; empty means /run/netns, where ip-netns(8) finds them.
	NamespaceDir string
	// IdleTimeout ends a proxied connection on which nothing was received for so long; 0 means 350 s, as AWS has it.
	IdleTimeout time.Duration
}

// Network is the region's network. Its methods may be called from several goroutines.
type Network struct {
	opts  Options
	names namespaceNames

	mu      sync.Mutex // guards routers and every change of namespaces
	routers map[string]*router
}

const (
	defaultNamespaceDir = "/run/netns"
	defaultIdleTimeout  = 350 * time.Second // docs: "Network Load Balancers, connection idle timeout"
)

// New returns a network without touching the machine; the first Sync adopts what is there.
func New(opts Options) (*Network, error) {
	if !regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`).MatchString(opts.RegionID) {
		return nil, fmt.Errorf(
			"region id %q: want 1 to 32 lower-case letters, digits and hyphens",
			opts.RegionID,
		)
	}

	if opts.Clock == nil {
		return nil, errors.New("network of region " + opts.RegionID + ": a clock is required")
	}

	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}

	if opts.NamespaceDir == "" {
		opts.NamespaceDir = defaultNamespaceDir
	}

	if opts.IdleTimeout == 0 {
		opts.IdleTimeout = defaultIdleTimeout
	}

	return &Network{
		opts:    opts,
		names:   namespaceNames{region: opts.RegionID, folder: opts.NamespaceDir},
		routers: map[string]*router{},
	}, nil
}

// Sync makes the network match the picture. What already matches is left alone, so traffic passes undisturbed.
// VPCs that are not in the picture are removed. Errors of several VPCs are joined; the others are still brought in step.
func (n *Network) Sync(ctx context.Context, want netspec.Network) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var errs []error
	keep := map[string]bool{}

	for _, vpc := range want.VPCs {
		keep[vpc.ID] = true
		if err := n.syncVPC(ctx, vpc); err != nil {
			errs = append(errs, fmt.Errorf("sync network of %s: %w", vpc.ID, err))
		}
	}

	errs = append(errs, n.removeStaleRouters(keep))

	return errors.Join(errs...)
}

func (n *Network) syncVPC(ctx context.Context, vpc netspec.VPC) error {
	if err := validateVPC(vpc); err != nil {
		return err
	}

	r, err := n.ensureRouter(ctx, vpc.ID)
	if err != nil {
		return err
	}

	// Rules come first: an address that answers before its rules exist would be open to all.
	if err := r.loadRules(ctx, renderRuleset(vpc)); err != nil {
		return err
	}

	if err := r.syncAddresses(vpc); err != nil {
		return err
	}

	return errors.Join(r.syncServices(ctx, n.opts, vpc), r.syncBalancers(ctx, n.opts, vpc))
}

// removeStaleRouters removes the routers of VPCs that are gone, also those an earlier process left.
func (n *Network) removeStaleRouters(keep map[string]bool) error {
	var errs []error
	for id, r := range n.routers {
		if !keep[id] {
			r.close()
			delete(n.routers, id)
		}
	}

	found, err := n.names.listIDs()
	errs = append(errs, err)

	for _, id := range found {
		if isVPC(id) && !keep[id] {
			errs = append(errs, removeNamespace(n.names.namespacePath(id)))
		}
	}

	return errors.Join(errs...)
}

// Health returns each target's state as the load balancers see it now.
func (n *Network) Health() netspec.TargetHealth {
	n.mu.Lock()
	routers := make([]*router, 0, len(n.routers))
	for _, r := range n.routers {
		routers = append(routers, r)
	}

	n.mu.Unlock()
	out := netspec.TargetHealth{}

	for _, r := range routers {
		for _, b := range r.listBalancers() {
			b.collectHealth(out)
		}
	}

	return out
}

// Close stops everything this process serves and leaves namespaces, links and rules in place, so that machines
// keep talking to each other and a later process can adopt them.
func (n *Network) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for id, r := range n.routers {
		r.close()
		delete(n.routers, id)
	}
}

// Destroy removes every namespace, and with it every link, that carries this region's prefix; nothing else.
// It needs no state: a region whose process was killed is removed as well. Machines' processes must be ended first.
func (n *Network) Destroy(ctx context.Context) error {
	n.Close()
	n.mu.Lock()
	defer n.mu.Unlock()
	found, err := n.names.listIDs()
	errs := []error{err}

	for _, id := range found {
		if ctx.Err() != nil {
			return errors.Join(append(errs, ctx.Err())...)
		}

		errs = append(errs, removeNamespace(n.names.namespacePath(id)))
	}

	return errors.Join(errs...)
}
