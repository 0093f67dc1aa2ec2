// SPDX-License-Identifier: Apache-2.0

package existing

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// Peer is a VPC that the cluster's own is to be connected with.
type Peer struct {
	// CIDRs of the VPC.
	CIDRs []string
	// Tables are its route tables by id, each with its routes that a peering of the cluster's has not made.
	Tables map[string][]Range
}

// peers checks the other VPCs of peerings: their ranges, and that a route back takes the place of no other.
func (k *checker) peers(n v1alpha1.Networking) {
	for i, p := range n.VPCPeerings {
		at := fmt.Sprintf("spec.networking.vpcPeerings[%d]", i)
		have, found := k.facts.Peers[p.NetworkID]
		if !found {
			k.errorf(at+".networkID", p.NetworkID, "see aws ec2 describe-vpcs", "is no VPC of this account and region")
			continue
		}
		for j, c := range p.CIDRs {
			if !slices.Contains(have.CIDRs, c) {
				k.errorf(fmt.Sprintf("%s.cidrs[%d]", at, j), c, "use "+strings.Join(have.CIDRs, " or "), "is not a range of %s", p.NetworkID)
			}
		}
		for _, theirs := range have.CIDRs {
			// EC2 peers no VPCs that share a range, wherever the routes lead.
			if r := Overlapping(theirs, []Range{{CIDR: n.NetworkCIDR}}); len(r) > 0 {
				k.errorf("spec.networking.networkCIDR", n.NetworkCIDR, "choose another range", "overlaps %s, a range of %s", theirs, p.NetworkID)
			}
		}
		k.routesBack(at, n, p, have)
	}
}

func (k *checker) routesBack(at string, n v1alpha1.Networking, p v1alpha1.VPCPeering, have Peer) {
	for j, id := range p.RouteTables {
		routes, found := have.Tables[id]
		if !found {
			k.errorf(fmt.Sprintf("%s.routeTables[%d]", at, j), id, "see aws ec2 describe-route-tables", "is no route table of %s", p.NetworkID)
		}
		for _, r := range routes {
			if r.CIDR == n.NetworkCIDR {
				k.errorf(fmt.Sprintf("%s.routeTables[%d]", at, j), id, "delete that route, or leave the table out",
					"leads %s to %s already", r.CIDR, r.Of)
			}
		}
	}
}
