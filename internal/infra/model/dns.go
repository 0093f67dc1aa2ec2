// SPDX-License-Identifier: Apache-2.0

package model

import (
	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// recordTTL is how long resolvers keep an address that may move (kops has 60 s too).
const recordTTL = 60

// addDNSRecord adds the API's name: a record in a zone that is made, or in one that exists (S1.20, S4.15).
func (b *builder) addDNSRecord() {
	spec := b.Cluster.Spec
	if !manifest.HasDNS(spec) {
		return
	}

	zone := graph.UnmanagedRef[awskind.HostedZone](spec.DNSZone)
	if !manifest.IsZoneID(spec.DNSZone) {
		z := awskind.HostedZone{
			Name: spec.DNSZone, Config: awskind.HostedZoneConfig{Comment: awskind.RecordSetID(b.clusterName())},
			Tags: b.resourceTags(awskind.HostedZone{}.Kind(), awskind.ZoneName, nil),
		}
		if spec.Topology.DNS.Type == manifest.DNSPrivate {
			z.VPCs = []awskind.ZoneVPC{{VPC: b.vpc, Region: b.Region}}
		}

		zone = graph.Add(b.graph, awskind.ZoneName, z)
	}

	r := awskind.DNSRecord{
		Zone:   zone,
		Name:   spec.API.PublicName,
		Type:   "A",
		SetID:  awskind.RecordSetID(b.clusterName()),
		Weight: 1,
	}

	lb := b.balancers.internal
	if spec.Topology.DNS.Type == manifest.DNSPublic && b.hasPublicBalancer() {
		lb = b.balancers.public
	}

	if b.usesElasticIP() && (spec.Topology.DNS.Type == manifest.DNSPublic || !b.hasInternalBalancer()) {
		r.TTL, r.Values = recordTTL, []graph.Text{b.apiElasticIP.Attr("PublicIp")}
	} else {
		r.Alias = awskind.AliasTarget{DNSName: lb.Attr("DNSName"), Zone: lb.Attr("CanonicalHostedZoneID")}
	}

	graph.Add(b.graph, "api", r)
}

// UnmanagedZones are the hosted zones of a manifest that exist already: a cluster's records in them are found there.
func UnmanagedZones(c v1alpha1.ClusterSpec) []string {
	if !manifest.HasDNS(c) || !manifest.IsZoneID(c.DNSZone) {
		return nil
	}

	return []string{c.DNSZone}
}
