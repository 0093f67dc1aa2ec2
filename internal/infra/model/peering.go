// SPDX-License-Identifier: Apache-2.0

package model

import (
	"strconv"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// peer connects the VPC with existing ones, with a route to each in every route table that is made, and one back in
// those tables of theirs that the manifest names (S4.12).
func (b *builder) peer() {
	n := b.Cluster.Spec.Networking
	for _, p := range n.VPCPeerings {
		pcx := graph.Add(b.g, p.Name, awskind.Peering{
			VPC: b.vpc, Peer: graph.Existing[awskind.VPC](p.NetworkID), Accepted: true, Tags: b.tags(awskind.Peering{}.Kind(), p.Name, nil),
		})
		for i, cidr := range p.CIDRs {
			for _, t := range b.tables {
				name := b.g.Node(t.Addr()).Name + "-to-" + p.Name + "-" + strconv.Itoa(i)
				graph.Add(b.g, name, awskind.Route{Table: t, Destination: cidr, Peering: pcx})
			}
		}
		for i, id := range p.RouteTables {
			graph.Add(b.g, "from-"+p.Name+"-"+strconv.Itoa(i), awskind.Route{
				Table: graph.Existing[awskind.RouteTable](id), Destination: n.NetworkCIDR, Peering: pcx,
			})
		}
	}
}
