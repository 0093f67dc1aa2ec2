// SPDX-License-Identifier: Apache-2.0

// Package picture computes the network that should exist, a fabric.Picture, from EC2's and load balancing's records:
// routes followed to their end, security group references resolved to addresses. It is a pure function and knows
// neither how the records change nor how the network is made.
package picture

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go/aws"
	"github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/fabric"
)

// Input is the records that matter to the network, by id. Build changes none of them.
type Input struct {
	VPCs       map[string]*ec2.Vpc
	Subnets    map[string]*ec2.Subnet
	Tables     map[string]*ec2.RouteTable
	NATs       map[string]*ec2.NatGateway
	Internet   map[string]*ec2.InternetGateway
	Rules      map[string]*ec2.SecurityGroupRule
	Interfaces map[string]*ec2.NetworkInterface
	Instances  map[string]*ec2.Instance
	Endpoints  map[string]*ec2.VpcEndpoint
	Balancers  []Balancer
	Zones      []Zone
}

// Balancer is a network load balancer with its groups still to be resolved.
type Balancer struct {
	VPC    string
	Name   string   // DNS name
	Groups []string // security groups
	fabric.LoadBalancer
}

// Build computes the picture. The same input gives the same picture, in a stable order.
func Build(in Input) fabric.Picture {
	b := newBuilder(in)
	var out fabric.Picture
	for _, id := range keys(in.VPCs) {
		out.VPCs = append(out.VPCs, b.vpc(id))
	}
	return out
}

// Interface is one instance's interface as the picture shows it.
func Interface(in Input, n *ec2.NetworkInterface) fabric.Interface { return newBuilder(in).face(n) }

type builder struct {
	in      Input
	members map[string][]netip.Prefix // by security group: its interfaces' addresses
	rules   map[string][]*ec2.SecurityGroupRule
	tables  map[string]*ec2.RouteTable // by subnet, and by VPC for its main table
}

func newBuilder(in Input) *builder {
	b := &builder{in: in, members: map[string][]netip.Prefix{}, rules: map[string][]*ec2.SecurityGroupRule{}, tables: map[string]*ec2.RouteTable{}}
	for _, id := range keys(in.Interfaces) {
		n := in.Interfaces[id]
		addr := netip.MustParseAddr(str(n.PrivateIpAddress))
		for _, g := range n.Groups {
			b.members[str(g.GroupId)] = append(b.members[str(g.GroupId)], netip.PrefixFrom(addr, 32))
		}
	}
	for _, m := range b.members {
		slices.SortFunc(m, comparePrefix)
	}
	for _, id := range keys(in.Rules) {
		r := in.Rules[id]
		b.rules[str(r.GroupId)] = append(b.rules[str(r.GroupId)], r)
	}
	for _, id := range keys(in.Tables) {
		for _, a := range in.Tables[id].Associations {
			if aws.BoolValue(a.Main) {
				b.tables[str(in.Tables[id].VpcId)] = in.Tables[id]
			} else {
				b.tables[str(a.SubnetId)] = in.Tables[id]
			}
		}
	}
	return b
}

func (b *builder) vpc(id string) fabric.VPC {
	v := fabric.VPC{ID: id, Names: map[string][]netip.Addr{}}
	for _, a := range b.in.VPCs[id].CidrBlockAssociationSet {
		v.CIDRs = append(v.CIDRs, netip.MustParsePrefix(str(a.CidrBlock)))
	}
	for _, n := range keys(b.in.Subnets) {
		s := b.in.Subnets[n]
		if str(s.VpcId) == id {
			v.Subnets = append(v.Subnets, fabric.Subnet{
				ID: n, Zone: str(s.AvailabilityZone), CIDR: netip.MustParsePrefix(str(s.CidrBlock)), Default: b.way(s, 0),
			})
		}
	}
	for _, n := range keys(b.in.Interfaces) {
		i := b.in.Interfaces[n]
		if str(i.VpcId) != id || i.Attachment == nil || b.in.Instances[str(i.Attachment.InstanceId)] == nil {
			continue
		}
		f := b.face(i)
		v.Interfaces = append(v.Interfaces, f)
		v.Names[str(i.PrivateDnsName)] = []netip.Addr{f.Addr}
	}
	v.Endpoints = b.endpoints(id)
	b.balancers(&v)
	b.zones(&v)
	return v
}

// way follows a subnet's default route. At depth 1, a NAT gateway's own subnet, NAT gateways do not count.
func (b *builder) way(s *ec2.Subnet, depth int) fabric.Route {
	t := b.tables[str(s.SubnetId)]
	if t == nil {
		t = b.tables[str(s.VpcId)]
	}
	if t == nil {
		return fabric.RouteNone
	}
	for _, r := range t.Routes {
		if str(r.DestinationCidrBlock) != "0.0.0.0/0" || str(r.State) != ec2.RouteStateActive {
			continue
		}
		if g := b.in.Internet[str(r.GatewayId)]; g != nil && len(g.Attachments) > 0 && str(g.Attachments[0].VpcId) == str(s.VpcId) {
			return fabric.RouteInternet
		}
		if depth == 0 && b.leadsOut(b.in.NATs[str(r.NatGatewayId)]) {
			return fabric.RouteNAT
		}
	}
	return fabric.RouteNone
}

// leadsOut says whether a NAT gateway works: it is there, it is public, and its own subnet leads to the internet.
func (b *builder) leadsOut(n *ec2.NatGateway) bool {
	if n == nil || str(n.State) != ec2.NatGatewayStateAvailable || str(n.ConnectivityType) == ec2.ConnectivityTypePrivate {
		return false
	}
	home := b.in.Subnets[str(n.SubnetId)]
	return home != nil && b.way(home, 1) == fabric.RouteInternet
}

func (b *builder) face(n *ec2.NetworkInterface) fabric.Interface {
	f := fabric.Interface{
		ID: str(n.NetworkInterfaceId), Subnet: str(n.SubnetId), Addr: netip.MustParseAddr(str(n.PrivateIpAddress)), MAC: str(n.MacAddress),
		SourceDestCheck: aws.BoolValue(n.SourceDestCheck), MetadataHops: 1,
	}
	if n.Attachment != nil {
		f.InstanceID = str(n.Attachment.InstanceId)
	}
	if n.Association != nil {
		f.Public = netip.MustParseAddr(str(n.Association.PublicIp))
	}
	if i := b.in.Instances[f.InstanceID]; i != nil && i.MetadataOptions != nil && i.MetadataOptions.HttpPutResponseHopLimit != nil {
		f.MetadataHops = int(*i.MetadataOptions.HttpPutResponseHopLimit)
	}
	var groups []string
	for _, g := range n.Groups {
		groups = append(groups, str(g.GroupId))
	}
	f.Ingress, f.Egress = b.admit(groups)
	return f
}

// admit resolves the rules of some groups; rules that admit nobody are left out.
func (b *builder) admit(groups []string) (ingress, egress []fabric.Rule) {
	for _, g := range slices.Sorted(slices.Values(groups)) {
		for _, r := range b.rules[g] {
			rule, ok := b.resolve(r)
			switch {
			case !ok:
			case aws.BoolValue(r.IsEgress):
				egress = append(egress, rule)
			default:
				ingress = append(ingress, rule)
			}
		}
	}
	return ingress, egress
}

func (b *builder) resolve(r *ec2.SecurityGroupRule) (fabric.Rule, bool) {
	out := fabric.Rule{From: 0, To: 65535}
	switch p := str(r.IpProtocol); p {
	case "-1":
	case "tcp", "udp":
		out.Protocol, out.From, out.To = p, int(aws.Int64Value(r.FromPort)), int(aws.Int64Value(r.ToPort))
	case "icmp":
		out.Protocol = p
	default:
		return out, false // protocols that the fabric does not carry, such as IPv6's
	}
	switch {
	case r.CidrIpv4 != nil:
		out.Peers = []netip.Prefix{netip.MustParsePrefix(*r.CidrIpv4)}
	case r.ReferencedGroupInfo != nil:
		out.Peers = slices.Clone(b.members[str(r.ReferencedGroupInfo.GroupId)])
	}
	return out, len(out.Peers) > 0
}

func (b *builder) balancers(v *fabric.VPC) {
	all := slices.Clone(b.in.Balancers)
	slices.SortFunc(all, func(x, y Balancer) int { return cmp.Compare(x.ARN, y.ARN) })
	for _, l := range all {
		if l.VPC != v.ID {
			continue
		}
		out := l.LoadBalancer
		out.Open = len(l.Groups) == 0
		out.Ingress, out.Egress = b.admit(l.Groups)
		out.Listeners = b.listeners(l.Listeners)
		v.LoadBalancers = append(v.LoadBalancers, out)
		if !l.Internal {
			continue
		}
		addrs := slices.SortedFunc(maps.Values(l.Addrs), netip.Addr.Compare)
		v.Names[strings.TrimSuffix(l.Name, ".")] = addrs
	}
}

// listeners gives targets that are instances their addresses; those without one are gone, and left out.
func (b *builder) listeners(in []fabric.Listener) []fabric.Listener {
	var out []fabric.Listener
	for _, l := range in {
		var targets []fabric.Target
		for _, t := range l.Group.Targets {
			if i := b.in.Instances[t.ID]; i != nil && i.PrivateIpAddress != nil {
				t.Addr = netip.MustParseAddr(*i.PrivateIpAddress)
			}
			if t.Addr.IsValid() {
				targets = append(targets, t)
			}
		}
		l.Group.Targets = targets
		out = append(out, l)
	}
	return out
}

func comparePrefix(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) }

func keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func str(p *string) string { return aws.StringValue(p) }
