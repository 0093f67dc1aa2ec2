// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// balancerOf is a load balancer with machines of one role as targets.
type balancerOf struct {
	name  string                // for findings
	role  v1alpha1.Role         // of its targets
	types []v1alpha1.SubnetType // of its subnets
}

// checkBalancerZones checks that load balancers have subnets in the zones of their targets. A Network Load
// Balancer sends nothing to targets in other zones, also with cross-zone load balancing.
func checkBalancerZones(v validator, s Set) {
	for _, b := range listBalancers(s) {
		served := map[string]bool{}
		zones := map[string]string{} // by subnet
		for _, n := range s.Cluster.Spec.Networking.Subnets {
			zones[n.Name] = n.Zone
			served[n.Zone] = served[n.Zone] || slices.Contains(b.types, n.Type)
		}

		for _, g := range s.Groups {
			if g.Spec.Role == b.role {
				gv := validator{fs: v.fs, pathPrefix: "instancegroup/" + g.Metadata.Name + ": "}
				checkServedZones(gv, g.Spec.Subnets, b, zones, served)
			}
		}
	}
}

// checkServedZones checks the zones of one group. It warns if the load balancer reaches some of the machines.
func checkServedZones(
	v validator,
	subnets []string,
	b balancerOf,
	zones map[string]string,
	served map[string]bool,
) {
	var missing []string
	reached := false
	for _, name := range subnets {
		zone := zones[name]
		switch {
		case zone == "": // another finding says that the subnet is unknown
		case served[zone]:
			reached = true
		default:
			missing = append(missing, zone)
		}
	}

	if len(missing) == 0 {
		return
	}

	report := v.errorf
	if reached {
		report = v.warnf
	}

	slices.Sort(missing)
	var types []string
	for _, t := range b.types {
		types = append(types, string(t))
	}

	report(
		"spec.subnets",
		strings.Join(subnets, ", "),
		"add a "+strings.Join(types, " or ")+" subnet in each of these zones, or use other subnets for the group",
		"are in zones without a subnet of %s: it sends no connections to machines in %s",
		b.name,
		strings.Join(slices.Compact(missing), ", "),
	)
}

// listBalancers returns the load balancers of a cluster. Internal ones are in the Private subnets, or in the
// Public ones if there are no Private ones.
func listBalancers(s Set) []balancerOf {
	spec := s.Cluster.Spec
	edge := []v1alpha1.SubnetType{v1alpha1.SubnetUtility, v1alpha1.SubnetPublic}
	internal := []v1alpha1.SubnetType{v1alpha1.SubnetPublic}
	if hasPrivate(spec.Networking.Subnets) {
		internal = []v1alpha1.SubnetType{v1alpha1.SubnetPrivate}
	}

	var out []balancerOf
	hasWorkers := slices.ContainsFunc(
		s.Groups,
		func(g v1alpha1.InstanceGroup) bool { return g.Spec.Role == v1alpha1.RoleWorker },
	)
	if spec.API.LoadBalancer.Type != LoadBalancerElasticIP || hasWorkers {
		out = append(out, balancerOf{"the internal load balancer of the API", v1alpha1.RoleControlPlane, internal})
	}

	if spec.API.LoadBalancer.Type == LoadBalancerPublic {
		out = append(out, balancerOf{"the load balancer of the API", v1alpha1.RoleControlPlane, edge})
	}

	switch spec.Topology.Bastion.LoadBalancer.Type {
	case LoadBalancerPublic:
		out = append(out, balancerOf{"the load balancer of the bastions", v1alpha1.RoleBastion, edge})
	case LoadBalancerInternal:
		out = append(out, balancerOf{"the load balancer of the bastions", v1alpha1.RoleBastion, internal})
	}

	return out
}
