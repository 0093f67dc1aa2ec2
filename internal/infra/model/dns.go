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

// dns adds the API's name: a record in a zone that is made, or in one that exists (S1.20, S4.15).
func (b *builder) dns() {
	spec := b.Cluster.Spec
	if !manifest.HasDNS(spec) {
		return
	}
	zone := graph.Existing[awskind.HostedZone](spec.DNSZone)
	if !manifest.IsZoneID(spec.DNSZone) {
		z := awskind.HostedZone{
			Name: spec.DNSZone, Config: awskind.ZoneConfig{Comment: awskind.RecordMark(b.name())},
			Tags: b.tags(awskind.HostedZone{}.Kind(), awskind.ZoneLabel, nil),
		}
		if spec.Topology.DNS.Type == manifest.DNSPrivate {
			z.VPCs = []awskind.ZoneVPC{{VPC: b.vpc, Region: b.Region}}
		}
		zone = graph.Add(b.g, awskind.ZoneLabel, z)
	}
	r := awskind.Record{Zone: zone, Name: spec.API.PublicName, Type: "A", SetID: awskind.RecordMark(b.name()), Weight: 1}
	lb := b.lb.internal
	if spec.Topology.DNS.Type == manifest.DNSPublic && b.public() {
		lb = b.lb.public
	}
	if b.elastic() && (spec.Topology.DNS.Type == manifest.DNSPublic || !b.balanced()) {
		r.TTL, r.Values = recordTTL, []graph.Text{b.address.Attr("PublicIp")}
	} else {
		r.Alias = awskind.AliasTarget{DNSName: lb.Attr("DNSName"), Zone: lb.Attr("CanonicalHostedZoneID")}
	}
	graph.Add(b.g, "api", r)
}

// ExistingZones are the hosted zones of a manifest that exist already: a cluster's records in them are found there.
func ExistingZones(c v1alpha1.ClusterSpec) []string {
	if !manifest.HasDNS(c) || !manifest.IsZoneID(c.DNSZone) {
		return nil
	}
	return []string{c.DNSZone}
}
