// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// checkPeerings checks the VPCs that the cluster's own is connected with: no range of theirs may be one of the cluster's.
func (v validator) checkPeerings(n v1alpha1.Networking, own []fieldCIDR) {
	names := map[string]int{}
	for i, p := range n.VPCPeerings {
		at := fmt.Sprintf("spec.networking.vpcPeerings[%d]", i)
		v.checkUnique(at+".name", p.Name, names, i, "is the name of vpcPeerings[%d] too")
		if !ValidName(p.Name) {
			v.errorf(at+".name", p.Name, "write it as databases", "is not a DNS label")
		}

		if !isResourceID(p.NetworkID, "vpc") || p.NetworkID == n.NetworkID {
			v.errorf(
				at+".networkID",
				p.NetworkID,
				"write it as vpc-0123456789abcdef0",
				"is not the id of another VPC",
			)
		}

		if len(p.CIDRs) == 0 {
			v.errorf(at+".cidrs", "", "give the ranges of "+p.NetworkID, "must not be empty")
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
					"is not the id of a route table",
				)
			}
		}
	}

	if len(n.VPCPeerings) > 0 {
		v.checkOverlaps(
			own[2:],
		) // the first three are compared already; those of peers with all of them below
		for _, theirs := range own[3:] {
			for _, ours := range own[:2] {
				v.checkOverlaps([]fieldCIDR{ours, theirs})
			}
		}
	}
}
