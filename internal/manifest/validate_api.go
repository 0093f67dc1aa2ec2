// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"slices"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// checkElasticIP checks that a cluster with an elastic IP address for the API has one control-plane
// machine, in a Public subnet.
func (v validator) checkElasticIP(s Set) {
	if s.Cluster.Spec.API.LoadBalancer.Type != LoadBalancerElasticIP {
		return
	}

	public := map[string]bool{}
	for _, n := range s.Cluster.Spec.Networking.Subnets {
		public[n.Name] = n.Type == v1alpha1.SubnetPublic
	}

	for _, g := range s.Groups {
		if g.Spec.Role != v1alpha1.RoleControlPlane {
			continue
		}

		if g.Spec.MinMachines() != 1 {
			v.errorf(
				"spec.api.loadBalancer.type",
				LoadBalancerElasticIP,
				"use Public, or one control-plane machine",
				"requires exactly one control-plane machine, not %d",
				g.Spec.MinMachines(),
			)
		}

		for _, name := range g.Spec.Subnets {
			if !public[name] {
				v.errorf(
					"spec.api.loadBalancer.type",
					LoadBalancerElasticIP,
					"use a Public subnet for the control plane",
					"requires the control plane in Public subnets: %s is not Public",
					name,
				)
			}
		}
	}
}

// checkAPISubnets checks that a public load balancer has a Public or Utility subnet.
func (v validator) checkAPISubnets(spec v1alpha1.ClusterSpec) {
	hasEdge := slices.ContainsFunc(
		spec.Networking.Subnets,
		func(s v1alpha1.Subnet) bool { return s.Type != v1alpha1.SubnetPrivate },
	)
	if spec.API.LoadBalancer.Type == LoadBalancerPublic && len(spec.Networking.Subnets) > 0 && !hasEdge {
		v.errorf(
			"spec.api.loadBalancer.type",
			LoadBalancerPublic,
			"add a Utility or Public subnet in each zone, or set it to Internal",
			"needs a subnet with a route to the internet",
		)
	}
}
