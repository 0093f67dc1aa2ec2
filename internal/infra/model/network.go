// SPDX-License-Identifier: Apache-2.0

package model

import (
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

const world = "0.0.0.0/0"

// network adds the VPC, its subnets, and the ways out: an internet gateway, and NAT in public subnets. What the manifest
// names by its id exists, and is referred to only.
func (b *builder) network() {
	n := b.Cluster.Spec.Networking
	b.vpc = graph.ExistingAs[awskind.VPC]("main", n.NetworkID)
	if n.NetworkID == "" {
		b.vpc = graph.Add(b.g, "main", awskind.VPC{
			CIDR: n.NetworkCIDR, DNSHostnames: true, DNSSupport: true, Tags: b.tags(awskind.VPC{}.Kind(), "main", nil),
		})
	}
	igw, attached := b.internet()
	for _, s := range n.Subnets {
		if s.ID != "" {
			b.subnets[s.Name] = graph.ExistingAs[awskind.Subnet](s.Name, s.ID)
			continue
		}
		b.subnets[s.Name] = graph.Add(b.g, s.Name, awskind.Subnet{
			VPC: b.vpc, CIDR: s.CIDR, Zone: s.Zone, MapPublicIP: s.Type == v1alpha1.SubnetPublic && b.holdsMachines(s.Name),
			Tags: b.tags(awskind.Subnet{}.Kind(), s.Name, subnetTags(s.Type)),
		})
	}
	b.publicRoutes(igw, attached)
	nats := b.nats(attached)
	for _, s := range b.made(v1alpha1.SubnetPrivate) {
		table := b.routeTable(s.Name)
		assoc := graph.Add(b.g, s.Name, awskind.RouteTableAssociation{Subnet: b.subnets[s.Name], Table: table})
		b.wayOut[s.Name] = []graph.Pointer{assoc}
		if nat, ok := nats[natOf(n, s)]; ok {
			route := graph.Add(b.g, s.Name, awskind.Route{Table: table, Destination: world, NAT: nat})
			b.wayOut[s.Name] = append(b.wayOut[s.Name], route)
		}
	}
}

// internet adds an internet gateway if a subnet leads to one. That of an existing VPC is there, and attached.
func (b *builder) internet() (graph.Ref[awskind.InternetGateway], graph.Ref[awskind.GatewayAttachment]) {
	if len(b.made(edgeTypes()...)) == 0 {
		return graph.Ref[awskind.InternetGateway]{}, graph.Ref[awskind.GatewayAttachment]{}
	}
	if id := b.Cluster.Spec.Networking.InternetGatewayID; id != "" {
		return graph.ExistingAs[awskind.InternetGateway]("main", id), graph.Ref[awskind.GatewayAttachment]{}
	}
	igw := graph.Add(b.g, "main", awskind.InternetGateway{Tags: b.tags(awskind.InternetGateway{}.Kind(), "main", nil)})
	return igw, graph.Add(b.g, "main", awskind.GatewayAttachment{VPC: b.vpc, Gateway: igw})
}

func (b *builder) publicRoutes(igw graph.Ref[awskind.InternetGateway], attached graph.Pointer) {
	subnets := b.made(edgeTypes()...)
	if len(subnets) == 0 {
		return
	}
	table := b.routeTable("public")
	route := graph.Add(b.g, "public", awskind.Route{Table: table, Destination: world, Gateway: igw}, attached)
	for _, s := range subnets {
		assoc := graph.Add(b.g, s.Name, awskind.RouteTableAssociation{Subnet: b.subnets[s.Name], Table: table})
		b.wayOut[s.Name] = []graph.Pointer{route, assoc}
	}
}

// natOf says which NAT gateway a Private subnet that is made leaves by: that of its zone, the single one, an existing
// one by its id, a new one for an existing address by that one's id; "" for none.
func natOf(n v1alpha1.Networking, s v1alpha1.Subnet) string {
	switch {
	case s.Egress != "":
		return s.Egress // External has no NAT gateway of this name
	case n.NATGateways == "Single":
		return "nat"
	case n.NATGateways == "None":
		return ""
	}
	return "nat-" + s.Zone
}

// nats adds the NAT gateways that the Private subnets leave by, each in the public subnet of its zone.
func (b *builder) nats(attached graph.Pointer) map[string]graph.Ref[awskind.NATGateway] {
	out := map[string]graph.Ref[awskind.NATGateway]{}
	for _, s := range b.made(v1alpha1.SubnetPrivate) {
		name := natOf(b.Cluster.Spec.Networking, s)
		if _, done := out[name]; done || name == "" || name == "External" {
			continue
		}
		if strings.HasPrefix(name, "nat-0") {
			out[name] = graph.Existing[awskind.NATGateway](name)
			continue
		}
		home, ok := b.edgeFor(s.Zone)
		if !ok {
			continue // Validate says so
		}
		eip := graph.Existing[awskind.EIP](name)
		label := name
		if strings.HasPrefix(name, "eipalloc-") {
			label = "nat-" + s.Zone
		} else {
			eip = graph.Add(b.g, name, awskind.EIP{Domain: "vpc", Tags: b.tags(awskind.EIP{}.Kind(), name, nil)}, attached)
		}
		out[name] = graph.Add(b.g, label, awskind.NATGateway{
			Subnet: b.subnets[home.Name], Allocation: eip, Tags: b.tags(awskind.NATGateway{}.Kind(), label, nil),
		}, append([]graph.Pointer{attached}, b.wayOut[home.Name]...)...)
	}
	return out
}

func (b *builder) routeTable(name string) graph.Ref[awskind.RouteTable] {
	table := graph.Add(b.g, name, awskind.RouteTable{VPC: b.vpc, Tags: b.tags(awskind.RouteTable{}.Kind(), name, nil)})
	b.tables = append(b.tables, table)
	return table
}

// subnetTags tell controllers inside the cluster where to put load balancers.
func subnetTags(t v1alpha1.SubnetType) awskind.Tags {
	if t != v1alpha1.SubnetPrivate {
		return awskind.Tags{"kubernetes.io/role/elb": "1"}
	}
	return awskind.Tags{"kubernetes.io/role/internal-elb": "1"}
}
