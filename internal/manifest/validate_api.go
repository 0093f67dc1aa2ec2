// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"slices"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// apiSubnets checks that a public load balancer has somewhere to be.
func (v validator) apiSubnets(spec v1alpha1.ClusterSpec) {
	edge := slices.ContainsFunc(spec.Networking.Subnets, func(s v1alpha1.Subnet) bool { return s.Type != v1alpha1.SubnetPrivate })
	if spec.API.LoadBalancer.Type == LoadBalancerPublic && len(spec.Networking.Subnets) > 0 && !edge {
		v.errorf("spec.api.loadBalancer.type", LoadBalancerPublic, "add a Utility or Public subnet in each zone, or set it to Internal",
			"needs a subnet that leads to the internet")
	}
}
