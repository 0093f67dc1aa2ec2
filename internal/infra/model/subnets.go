// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"slices"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// internetSubnetTypes returns the types of subnets with a route to the internet gateway.
func internetSubnetTypes() []v1alpha1.SubnetType {
	return []v1alpha1.SubnetType{v1alpha1.SubnetPublic, v1alpha1.SubnetUtility}
}

// subnetsOf returns the subnets of some types, in the manifest's order.
func (b *builder) subnetsOf(types ...v1alpha1.SubnetType) []v1alpha1.Subnet {
	var out []v1alpha1.Subnet
	for _, s := range b.Cluster.Spec.Networking.Subnets {
		if slices.Contains(types, s.Type) {
			out = append(out, s)
		}
	}

	return out
}

// newSubnets returns the subnets of some types that Slipway creates.
func (b *builder) newSubnets(types ...v1alpha1.SubnetType) []v1alpha1.Subnet {
	return slices.DeleteFunc(b.subnetsOf(types...), func(s v1alpha1.Subnet) bool { return s.ID != "" })
}

// edgeSubnets returns the subnets of internet-facing resources, one for each zone: Utility is preferred to
// Public.
func (b *builder) edgeSubnets() []v1alpha1.Subnet {
	all := b.subnetsOf(internetSubnetTypes()...)
	return slices.DeleteFunc(slices.Clone(all), func(s v1alpha1.Subnet) bool {
		return s.Type == v1alpha1.SubnetPublic && slices.ContainsFunc(all, func(o v1alpha1.Subnet) bool {
			return o.Zone == s.Zone && o.Type == v1alpha1.SubnetUtility
		})
	})
}

// natSubnet returns the subnet of the NAT gateway of a zone; a single NAT gateway is in the first zone.
func (b *builder) natSubnet(zone string) (v1alpha1.Subnet, bool) {
	edges := b.edgeSubnets()
	at := slices.IndexFunc(edges, func(s v1alpha1.Subnet) bool { return s.Zone == zone })
	if b.Cluster.Spec.Networking.NATGateways == "Single" {
		at = 0
	}

	if at < 0 || at >= len(edges) {
		return v1alpha1.Subnet{}, false
	}

	return edges[at], true
}

// internalSubnets returns the subnets of internal load balancers and endpoints: the private subnets, or the
// public ones if there are none.
func (b *builder) internalSubnets() []v1alpha1.Subnet {
	if private := b.subnetsOf(v1alpha1.SubnetPrivate); len(private) > 0 {
		return private
	}

	return b.subnetsOf(v1alpha1.SubnetPublic)
}

func (b *builder) subnetRefs(subnets []v1alpha1.Subnet) []graph.Ref[awskind.Subnet] {
	var out []graph.Ref[awskind.Subnet]
	for _, s := range subnets {
		out = append(out, b.subnets[s.Name])
	}

	return out
}

// hasMachines reports whether a group has machines in a subnet.
func (b *builder) hasMachines(subnet string) bool {
	return slices.ContainsFunc(
		b.Groups,
		func(g v1alpha1.InstanceGroup) bool { return slices.Contains(g.Spec.Subnets, subnet) },
	)
}

func (b *builder) zoneOf(subnet string) string {
	for _, s := range b.Cluster.Spec.Networking.Subnets {
		if s.Name == subnet {
			return s.Zone
		}
	}

	panic(fmt.Sprintf("model: no subnet %s: the manifest was not validated", subnet))
}
