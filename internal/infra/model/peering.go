// SPDX-License-Identifier: Apache-2.0

package model

import (
	"strconv"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// addPeerings peers the VPC with existing VPCs. Every managed route table gets a route to each, and the route
// tables of theirs that the manifest names get a route back (requirement S4.12).
func (b *builder) addPeerings() {
	n := b.Cluster.Spec.Networking
	for _, p := range n.VPCPeerings {
		pcx := graph.Add(b.graph, p.Name, awskind.VPCPeering{
			VPC:      b.vpc,
			Peer:     graph.UnmanagedRef[awskind.VPC](p.NetworkID),
			Accepted: true,
			Tags:     b.resourceTags(awskind.VPCPeering{}.Kind(), p.Name, nil),
		})

		for i, cidr := range p.CIDRs {
			for _, t := range b.routeTables {
				name := b.graph.Node(t.Addr()).Name + "-to-" + p.Name + "-" + strconv.Itoa(i)
				graph.Add(b.graph, name, awskind.Route{Table: t, Destination: cidr, Peering: pcx})
			}
		}

		for i, id := range p.RouteTables {
			graph.Add(b.graph, "from-"+p.Name+"-"+strconv.Itoa(i), awskind.Route{
				Table: graph.UnmanagedRef[awskind.RouteTable](id), Destination: n.NetworkCIDR, Peering: pcx,
			})
		}
	}
}
