// SPDX-License-Identifier: Apache-2.0

package unmanaged

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// PeerVPC is an existing VPC that the manifest peers with the cluster's.
type PeerVPC struct {
	// CIDRs lists the address ranges of the VPC.
	CIDRs []string
	// RouteTables has its route tables by id, each with the routes that the cluster's peerings did not
	// create.
	RouteTables map[string][]OwnedRange
}

// checkPeerings checks the other VPCs of peerings: their ranges, and that a route to the cluster does not
// exist yet.
func (k *checker) checkPeerings(n v1alpha1.Networking) {
	for i, p := range n.VPCPeerings {
		at := fmt.Sprintf("spec.networking.vpcPeerings[%d]", i)
		have, found := k.facts.Peers[p.NetworkID]
		if !found {
			k.addErrorf(
				at+".networkID",
				p.NetworkID,
				"see: aws ec2 describe-vpcs",
				"is not a VPC of this account and region",
			)

			continue
		}

		for j, c := range p.CIDRs {
			if !slices.Contains(have.CIDRs, c) {
				k.addErrorf(
					fmt.Sprintf("%s.cidrs[%d]", at, j),
					c,
					"use "+strings.Join(have.CIDRs, " or "),
					"is not a range of %s",
					p.NetworkID,
				)
			}
		}

		for _, theirs := range have.CIDRs {
			// EC2 does not peer VPCs with overlapping ranges, whatever their routes are.
			if r := FindOverlaps(theirs, []OwnedRange{{CIDR: n.NetworkCIDR}}); len(r) > 0 {
				k.addErrorf(
					"spec.networking.networkCIDR",
					n.NetworkCIDR,
					"choose another range",
					"overlaps %s, a range of %s",
					theirs,
					p.NetworkID,
				)
			}
		}

		k.checkReturnRoutes(at, n, p, have)
	}
}

func (k *checker) checkReturnRoutes(at string, n v1alpha1.Networking, p v1alpha1.VPCPeering, have PeerVPC) {
	for j, id := range p.RouteTables {
		routes, found := have.RouteTables[id]
		if !found {
			k.addErrorf(
				fmt.Sprintf("%s.routeTables[%d]", at, j),
				id,
				"see: aws ec2 describe-route-tables",
				"is not a route table of %s",
				p.NetworkID,
			)
		}

		for _, r := range routes {
			if r.CIDR == n.NetworkCIDR {
				k.addErrorf(
					fmt.Sprintf("%s.routeTables[%d]", at, j),
					id,
					"delete that route, or remove the table",
					"already has a route for %s to %s",
					r.CIDR,
					r.Owner,
				)
			}
		}
	}
}
