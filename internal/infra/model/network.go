// SPDX-License-Identifier: Apache-2.0

package model

import (
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

const anyIPv4 = "0.0.0.0/0"

// addNetwork adds the VPC, its subnets and their routes to the internet: an internet gateway, and NAT
// gateways in public subnets. A resource that the manifest names by its id exists; the graph only refers to
// it.
func (b *builder) addNetwork() {
	n := b.Cluster.Spec.Networking
	b.vpc = graph.NamedUnmanagedRef[awskind.VPC]("main", n.NetworkID)
	if n.NetworkID == "" {
		b.vpc = graph.Add(b.graph, "main", awskind.VPC{
			CIDR:         n.NetworkCIDR,
			DNSHostnames: true,
			DNSSupport:   true,
			Tags:         b.resourceTags(awskind.VPC{}.Kind(), "main", nil),
		})
	}

	igw, attached := b.addInternetGateway()

	for _, s := range n.Subnets {
		if s.ID != "" {
			b.subnets[s.Name] = graph.NamedUnmanagedRef[awskind.Subnet](s.Name, s.ID)
			continue
		}

		b.subnets[s.Name] = graph.Add(b.graph, s.Name, awskind.Subnet{
			VPC:         b.vpc,
			CIDR:        s.CIDR,
			Zone:        s.Zone,
			MapPublicIP: s.Type == v1alpha1.SubnetPublic && b.hasMachines(s.Name),
			Tags:        b.resourceTags(awskind.Subnet{}.Kind(), s.Name, subnetTags(s.Type)),
		})
	}

	b.addPublicRoutes(igw, attached)
	nats := b.addNATGateways(attached)

	for _, s := range b.newSubnets(v1alpha1.SubnetPrivate) {
		table := b.addRouteTable(s.Name)
		assoc := graph.Add(
			b.graph,
			s.Name,
			awskind.RouteTableAssociation{Subnet: b.subnets[s.Name], Table: table},
		)

		b.egressDeps[s.Name] = []graph.Reference{assoc}
		if nat, ok := nats[natGatewayName(n, s)]; ok {
			route := graph.Add(b.graph, s.Name, awskind.Route{Table: table, Destination: anyIPv4, NAT: nat})
			b.egressDeps[s.Name] = append(b.egressDeps[s.Name], route)
		}
	}
}

// addInternetGateway adds an internet gateway if a new subnet needs one. An existing gateway is already
// attached.
func (b *builder) addInternetGateway() (
	graph.Ref[awskind.InternetGateway],
	graph.Ref[awskind.GatewayAttachment],
) {
	if len(b.newSubnets(internetSubnetTypes()...)) == 0 {
		return graph.Ref[awskind.InternetGateway]{}, graph.Ref[awskind.GatewayAttachment]{}
	}

	if id := b.Cluster.Spec.Networking.InternetGatewayID; id != "" {
		igw := graph.NamedUnmanagedRef[awskind.InternetGateway]("main", id)
		return igw, graph.Ref[awskind.GatewayAttachment]{}
	}

	igw := graph.Add(
		b.graph,
		"main",
		awskind.InternetGateway{Tags: b.resourceTags(awskind.InternetGateway{}.Kind(), "main", nil)},
	)

	return igw, graph.Add(b.graph, "main", awskind.GatewayAttachment{VPC: b.vpc, Gateway: igw})
}

func (b *builder) addPublicRoutes(igw graph.Ref[awskind.InternetGateway], attached graph.Reference) {
	subnets := b.newSubnets(internetSubnetTypes()...)
	if len(subnets) == 0 {
		return
	}

	table := b.addRouteTable("public")
	route := graph.Add(
		b.graph,
		"public",
		awskind.Route{Table: table, Destination: anyIPv4, Gateway: igw},
		attached,
	)

	for _, s := range subnets {
		assoc := graph.Add(
			b.graph,
			s.Name,
			awskind.RouteTableAssociation{Subnet: b.subnets[s.Name], Table: table},
		)

		b.egressDeps[s.Name] = []graph.Reference{route, assoc}
	}
}

// natGatewayName returns the NAT gateway of a new private subnet: the one of its zone (nat-ZONE), the single
// one (nat), an existing one by its id, or a new one for an existing address by the address's id; "" for
// none.
func natGatewayName(n v1alpha1.Networking, s v1alpha1.Subnet) string {
	switch {
	case s.Egress != "":
		return s.Egress // "External" is not the name of a NAT gateway
	case n.NATGateways == "Single":
		return "nat"
	case n.NATGateways == "None":
		return ""
	}

	return "nat-" + s.Zone
}

// addNATGateways adds the NAT gateways of the private subnets, each in the public subnet of its zone.
func (b *builder) addNATGateways(attached graph.Reference) map[string]graph.Ref[awskind.NATGateway] {
	out := map[string]graph.Ref[awskind.NATGateway]{}
	for _, s := range b.newSubnets(v1alpha1.SubnetPrivate) {
		name := natGatewayName(b.Cluster.Spec.Networking, s)
		if _, done := out[name]; done || name == "" || name == "External" {
			continue
		}

		if strings.HasPrefix(name, "nat-0") {
			out[name] = graph.UnmanagedRef[awskind.NATGateway](name)
			continue
		}

		home, ok := b.natSubnet(s.Zone)
		if !ok {
			continue // package manifest reports it
		}

		eip := graph.UnmanagedRef[awskind.EIP](name)
		label := name
		if strings.HasPrefix(name, "eipalloc-") {
			label = "nat-" + s.Zone
		} else {
			tags := b.resourceTags(awskind.EIP{}.Kind(), name, nil)
			eip = graph.Add(b.graph, name, awskind.EIP{Domain: "vpc", Tags: tags}, attached)
		}

		out[name] = graph.Add(b.graph, label, awskind.NATGateway{
			Subnet:     b.subnets[home.Name],
			Allocation: eip,
			Tags:       b.resourceTags(awskind.NATGateway{}.Kind(), label, nil),
		}, append([]graph.Reference{attached}, b.egressDeps[home.Name]...)...)
	}

	return out
}

func (b *builder) addRouteTable(name string) graph.Ref[awskind.RouteTable] {
	table := graph.Add(
		b.graph,
		name,
		awskind.RouteTable{VPC: b.vpc, Tags: b.resourceTags(awskind.RouteTable{}.Kind(), name, nil)},
	)

	b.routeTables = append(b.routeTables, table)
	return table
}

// subnetTags returns the tags by which controllers in the cluster choose subnets for load balancers.
func subnetTags(t v1alpha1.SubnetType) awskind.Tags {
	if t != v1alpha1.SubnetPrivate {
		return awskind.Tags{"kubernetes.io/role/elb": "1"}
	}

	return awskind.Tags{"kubernetes.io/role/internal-elb": "1"}
}
