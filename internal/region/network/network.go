// SPDX-License-Identifier: Apache-2.0

// Package network applies the desired network of a region (netspec.Network) to one Linux machine.
//
// Each VPC is a network namespace with a router. Each machine is a namespace connected to its
// router by a veth pair. Security groups are nftables rules in the router, load balancers are TCP
// proxies in this process, and a DNS resolver answers for each VPC's names. Names of namespaces and
// links follow from ids, so that a new process can adopt the network of an old one.
//
// The package knows neither how the desired network is computed nor what runs inside machines.
package network

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"regexp"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/netspec"
)

// Options configures a Network.
type Options struct {
	// RegionID distinguishes this region's namespaces from those of others: lower-case letters,
	// digits, and hyphens. Required.
	RegionID string
	// API is served at 198.18.0.1:80 inside every VPC; nil means not served. Handlers find the
	// caller with RequestSourceFrom.
	API http.Handler
	// Registry is served at 198.18.0.1:5000 inside every VPC; nil means not served.
	Registry http.Handler
	// ServiceNames are host names of the region's services that the resolver of every VPC knows: 198.18.0.1.
	ServiceNames []string
	// Metadata is served at 169.254.169.254:80 inside every VPC; nil means not served.
	Metadata http.Handler
	// RequestService returns the service that a request to API is for, such as ec2. Machines
	// without internet access reach only services that have an endpoint in their VPC. Nil means
	// that any endpoint gives access to all services.
	RequestService func(*http.Request) string
	// Log receives errors that no caller waits for; nil means no log.
	Log *slog.Logger
	// NamespaceDir is the directory of named network namespaces. Default /run/netns, where
	// ip-netns(8) finds them.
	NamespaceDir string
	// IdleTimeout closes a proxied connection that has received nothing for this time. Default 350
	// s, as on AWS.
	IdleTimeout time.Duration
}

// Network is the network of a region. It is safe for concurrent use.
type Network struct {
	opts  Options
	names namespaceNames

	syncMu  sync.Mutex // serialises changes of namespaces and routers; held while nft and netlink run
	mu      sync.Mutex // guards routers; held briefly, so that Health does not wait for a Sync
	routers map[string]*router
}

const (
	defaultNamespaceDir = "/run/netns"
	defaultIdleTimeout  = 350 * time.Second // AWS's default for network load balancers
)

// New validates the options and returns a network. It changes nothing; the first Sync adopts
// existing namespaces.
func New(opts Options) (*Network, error) {
	if !regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`).MatchString(opts.RegionID) {
		return nil, fmt.Errorf(
			"invalid region id %q: must be 1 to 32 lower-case letters, digits and hyphens",
			opts.RegionID,
		)
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

// Sync changes the network to match want and removes VPCs that are not in it. It does not touch
// what already matches, so traffic continues. It continues after an error of one VPC and returns
// all errors joined.
func (n *Network) Sync(ctx context.Context, want netspec.Network) error {
	n.syncMu.Lock()
	defer n.syncMu.Unlock()
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

	// Rules first: an address without rules would be open to all.
	if err := r.loadRules(ctx, renderRuleset(vpc)); err != nil {
		return err
	}

	if err := r.syncAddresses(vpc); err != nil {
		return err
	}

	if err := n.syncInterfaces(r, vpc); err != nil {
		return err
	}

	return errors.Join(r.syncServices(ctx, n.opts, vpc), r.syncBalancers(ctx, n.opts, vpc))
}

// removeStaleRouters removes the routers of all other VPCs, including those created by an earlier
// process.
func (n *Network) removeStaleRouters(keep map[string]bool) error {
	var errs []error
	for id := range n.listRouters() {
		if !keep[id] {
			n.dropRouter(id)
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

// Health returns the current state of each target as determined by the load balancers' health
// checks. It does not wait for a Sync.
func (n *Network) Health() netspec.TargetHealth {
	out := netspec.TargetHealth{}
	for _, r := range n.listRouters() {
		for _, b := range r.listBalancers() {
			b.collectHealth(out)
		}
	}

	return out
}

// Close stops all servers and proxies of this process. Namespaces, links, and rules remain, so that
// machines keep their connections to each other and a later process can adopt them.
func (n *Network) Close() {
	n.syncMu.Lock()
	defer n.syncMu.Unlock()
	for id := range n.listRouters() {
		n.dropRouter(id)
	}
}

// listRouters returns a copy of the routers by VPC id.
func (n *Network) listRouters() map[string]*router {
	n.mu.Lock()
	defer n.mu.Unlock()

	return maps.Clone(n.routers)
}

// dropRouter closes a router and forgets it.
func (n *Network) dropRouter(vpc string) {
	n.mu.Lock()
	r := n.routers[vpc]
	delete(n.routers, vpc)
	n.mu.Unlock()
	r.close()
}

// Destroy removes all namespaces with this region's prefix, and with them their links. It needs no
// state, so it also works after the region's process was killed. The machines' processes must have
// exited.
func (n *Network) Destroy(ctx context.Context) error {
	n.Close()
	n.syncMu.Lock()
	defer n.syncMu.Unlock()
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
