// SPDX-License-Identifier: Apache-2.0

package model

import (
	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/awskind"
	"github.com/slipway-k8s/slipway/internal/graph"
)

const world = "0.0.0.0/0"

// network adds the VPC, its subnets, and the ways out: one internet gateway, and NAT in public subnets.
func (b *builder) network() {
	b.vpc = graph.Add(b.g, "main", awskind.VPC{
		CIDR: b.Cluster.Spec.Networking.NetworkCIDR, DNSHostnames: true, DNSSupport: true,
		Tags: b.tags(awskind.VPC{}.Kind(), "main", nil),
	})
	igw := graph.Add(b.g, "main", awskind.InternetGateway{Tags: b.tags(awskind.InternetGateway{}.Kind(), "main", nil)})
	attached := graph.Add(b.g, "main", awskind.GatewayAttachment{VPC: b.vpc, Gateway: igw})
	for _, s := range b.Cluster.Spec.Networking.Subnets {
		b.subnets[s.Name] = graph.Add(b.g, s.Name, awskind.Subnet{
			VPC: b.vpc, CIDR: s.CIDR, Zone: s.Zone, Tags: b.tags(awskind.Subnet{}.Kind(), s.Name, subnetTags(s.Type)),
		})
	}
	b.publicRoutes(igw, attached)
	nats := b.nats(attached)
	for _, s := range b.subnetsOf(v1alpha1.SubnetPrivate) {
		nat, ok := nats[s.Zone]
		if !ok {
			nat = nats[""]
		}
		table := b.routeTable(s.Name)
		route := graph.Add(b.g, s.Name, awskind.Route{Table: table, Destination: world, NAT: nat})
		assoc := graph.Add(b.g, s.Name, awskind.RouteTableAssociation{Subnet: b.subnets[s.Name], Table: table})
		b.wayOut[s.Name] = []graph.Pointer{route, assoc}
	}
}

func (b *builder) publicRoutes(igw graph.Ref[awskind.InternetGateway], attached graph.Pointer) {
	table := b.routeTable("public")
	route := graph.Add(b.g, "public", awskind.Route{Table: table, Destination: world, Gateway: igw}, attached)
	for _, s := range b.subnetsOf(v1alpha1.SubnetPublic) {
		assoc := graph.Add(b.g, s.Name, awskind.RouteTableAssociation{Subnet: b.subnets[s.Name], Table: table})
		b.wayOut[s.Name] = []graph.Pointer{route, assoc}
	}
}

// nats adds a NAT gateway for each zone, or a single one, under zone "".
func (b *builder) nats(attached graph.Pointer) map[string]graph.Ref[awskind.NATGateway] {
	out := map[string]graph.Ref[awskind.NATGateway]{}
	for _, s := range b.subnetsOf(v1alpha1.SubnetPublic) {
		name, zone := "nat-"+s.Zone, s.Zone
		if b.Cluster.Spec.Networking.NATGateways == "Single" {
			name, zone = "nat", ""
		}
		if _, done := out[zone]; done {
			continue
		}
		eip := graph.Add(b.g, name, awskind.EIP{Domain: "vpc", Tags: b.tags(awskind.EIP{}.Kind(), name, nil)}, attached)
		out[zone] = graph.Add(b.g, name, awskind.NATGateway{
			Subnet: b.subnets[s.Name], Allocation: eip, Tags: b.tags(awskind.NATGateway{}.Kind(), name, nil),
		}, append([]graph.Pointer{attached}, b.wayOut[s.Name]...)...)
	}
	return out
}

func (b *builder) routeTable(name string) graph.Ref[awskind.RouteTable] {
	return graph.Add(b.g, name, awskind.RouteTable{VPC: b.vpc, Tags: b.tags(awskind.RouteTable{}.Kind(), name, nil)})
}

// subnetTags tell controllers inside the cluster where to put load balancers.
func subnetTags(t v1alpha1.SubnetType) awskind.Tags {
	if t == v1alpha1.SubnetPublic {
		return awskind.Tags{"kubernetes.io/role/elb": "1"}
	}
	return awskind.Tags{"kubernetes.io/role/internal-elb": "1"}
}
