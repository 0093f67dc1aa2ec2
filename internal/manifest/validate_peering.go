// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// checkPeerings checks the VPC peerings. The ranges of the other VPCs must not overlap each other
// or own, the cluster's ranges: network, pods and Services, in this order.
func (v validator) checkPeerings(n v1alpha1.Networking, own []fieldCIDR) {
	names := map[string]int{}
	for i, p := range n.VPCPeerings {
		at := fmt.Sprintf("spec.networking.vpcPeerings[%d]", i)
		v.checkUnique(at+".name", p.Name, names, i, "is also the name of vpcPeerings[%d]")
		if !ValidName(p.Name) {
			v.errorf(at+".name", p.Name, "write it as databases", "is not a DNS label")
		}

		if !isResourceID(p.NetworkID, "vpc") || p.NetworkID == n.NetworkID {
			v.errorf(
				at+".networkID",
				p.NetworkID,
				"write it as vpc-0123456789abcdef0",
				"is not a valid ID of another VPC",
			)
		}

		if len(p.CIDRs) == 0 {
			v.errorf(at+".cidrs", "", "list the CIDRs of "+p.NetworkID, "must not be empty")
		}

		for j, c := range p.CIDRs {
			path := fmt.Sprintf("%s.cidrs[%d]", at, j)
			own = append(own, fieldCIDR{path, v.parsePrefix(path, c)})
		}

		for j, id := range p.RouteTables {
			if !isResourceID(id, "rtb") {
				v.errorf(
					fmt.Sprintf("%s.routeTables[%d]", at, j),
					id,
					"write it as rtb-0123456789abcdef0",
					"is not a valid route table ID",
				)
			}
		}
	}

	if len(n.VPCPeerings) > 0 {
		// checkNetworking has compared the cluster's own three ranges. Compare the ranges of peers
		// with each other and with the Service range here, and with the other two ranges below.
		v.checkOverlaps(own[2:])

		for _, peerRange := range own[3:] {
			for _, ownRange := range own[:2] {
				v.checkOverlaps([]fieldCIDR{ownRange, peerRange})
			}
		}
	}
}
