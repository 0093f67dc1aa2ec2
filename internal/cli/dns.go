// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/aws"
	"github.com/slipway-k8s/slipway/internal/infra/aws/discovery"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// Resolver asks the DNS. [net.Resolver] is one.
type Resolver interface {
	LookupHost(ctx context.Context, host string) ([]string, error)
	LookupNS(ctx context.Context, name string) ([]*net.NS, error)
}

// dnsTimeout is how long a question to the DNS may take.
const dnsTimeout = 5 * time.Second

func (a *app) dnsResolver() Resolver {
	if a.Resolver != nil {
		return a.Resolver
	}

	return net.DefaultResolver
}

// preferDNSName is the API's URL by its DNS name, if it has one that this machine resolves; else server.
func (a *app) preferDNSName(ctx context.Context, spec v1alpha1.ClusterSpec, server string) string {
	u, err := url.Parse(server)
	if !manifest.HasDNS(spec) || err != nil {
		return server
	}

	name := spec.API.PublicName
	ctx, cancel := context.WithTimeout(ctx, dnsTimeout)
	defer cancel()
	if _, err := a.dnsResolver().LookupHost(ctx, name); err != nil {
		a.printMessage("%s does not resolve here yet; the kubeconfig has %s instead", name, u.Hostname())
		return server
	}

	port := u.Port()
	if spec.Topology.DNS.Type == manifest.DNSPrivate &&
		spec.API.LoadBalancer.Type == manifest.LoadBalancerPublic {
		port = kube.APIPort // the name leads to the internal load balancer, which has no other
	}

	return "https://" + net.JoinHostPort(name, port)
}

// withRecordZones tells the cloud where records of the cluster may be: in the existing zones of the manifest, and in those that
// manifests named before.
func (t *clusterSession) withRecordZones(ctx context.Context, s store.Store, set manifest.Set) *aws.Cloud {
	t.cloud.AddRecordZones(model.UnmanagedZones(set.Cluster.Spec)...)
	if zones, _, err := readZones(ctx, s, t.name); err == nil { // else apply writes it anew
		t.cloud.AddRecordZones(zones...)
	}

	return t.cloud
}

// checkDelegation asks the DNS whether the zone above leads to the cluster's public zone (S1.20).
func (t *clusterSession) checkDelegation(ctx context.Context, d *desiredState) (fs diag.Findings) {
	c := d.manifests.Cluster
	if c.Spec.Topology.DNS.Type != manifest.DNSPublic {
		return nil
	}

	at := "cluster/" + c.Metadata.Name + ": spec.dnsZone"
	zone, servers, err := discovery.ReadNameServers(ctx, t.cfg, c)

	switch {
	case err != nil:
		fs.Warnf(
			at,
			c.Spec.DNSZone,
			"allow route53:ListHostedZones and route53:GetHostedZone",
			"could not be looked at: %s",
			err,
		)

		return fs

	case len(servers) == 0:
		fs.Warnf(
			at,
			c.Spec.DNSZone,
			"run preflight again after the first apply: it names the name servers",
			"is not made yet, so nothing can be delegated to it",
		)

		return fs
	}

	ctx, cancel := context.WithTimeout(ctx, dnsTimeout)
	defer cancel()
	hint := "let the zone above delegate it by NS records: " + strings.Join(servers, ", ")
	found, err := t.app.dnsResolver().LookupNS(ctx, zone)
	if err != nil {
		fs.Warnf(at, zone, hint, "is not delegated: the DNS knows no name servers of it")
		return fs
	}

	var wrong []string

	for _, ns := range found {
		if host := strings.ToLower(strings.TrimSuffix(ns.Host, ".")); !slices.Contains(servers, host) {
			wrong = append(wrong, host)
		}
	}

	if len(wrong) > 0 {
		fs.Warnf(
			at,
			zone,
			hint,
			"is delegated to %s, which are not its name servers",
			strings.Join(wrong, ", "),
		)
	}

	return fs
}
