// SPDX-License-Identifier: Apache-2.0

package model

import (
	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// recordTTL is how long resolvers cache an address that can change, in seconds. kops uses 60 s too.
const recordTTL = 60

// addDNSRecord adds the DNS record of the API: in a new hosted zone (requirement S1.20) or an existing one
// (S4.15).
func (b *builder) addDNSRecord() {
	spec := b.Cluster.Spec
	if !manifest.HasDNS(spec) {
		return
	}

	zone := graph.UnmanagedRef[awskind.HostedZone](spec.DNSZone)
	if !manifest.IsZoneID(spec.DNSZone) {
		z := awskind.HostedZone{
			Name:   spec.DNSZone,
			Config: awskind.HostedZoneConfig{Comment: awskind.ZoneComment(b.clusterName())},
			Tags:   b.resourceTags(awskind.HostedZone{}.Kind(), awskind.ZoneName, nil),
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
		SetID:  awskind.RecordSetID(b.clusterName(), b.ClusterID),
		Weight: 1,
	}

	lb := b.balancers.internal
	if spec.Topology.DNS.Type == manifest.DNSPublic && b.hasPublicBalancer() {
		lb = b.balancers.public
	}

	if b.usesElasticIP() && (spec.Topology.DNS.Type == manifest.DNSPublic || !b.hasInternalBalancer()) {
		r.TTL = recordTTL
		r.Values = []graph.Text{b.apiElasticIP.Attr("PublicIp")}
	} else {
		r.Alias = awskind.AliasTarget{DNSName: lb.Attr("DNSName"), Zone: lb.Attr("CanonicalHostedZoneID")}
	}

	graph.Add(b.graph, "api", r)
}

// UnmanagedZones returns the ids of the existing hosted zones in which a cluster has records.
func UnmanagedZones(c v1alpha1.ClusterSpec) []string {
	if !manifest.HasDNS(c) || !manifest.IsZoneID(c.DNSZone) {
		return nil
	}

	return []string{c.DNSZone}
}
