// SPDX-License-Identifier: Apache-2.0

// Package netbuilder computes the desired network (a netspec.Network) from the records of EC2, load
// balancing, and Route 53: it follows routes to their end and resolves references to security
// groups. Build is a pure function; it knows neither how records change nor how the network is
// created.
package netbuilder

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go/aws"
	"github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/netspec"
)

// Input holds the records that determine the network, by id. Build does not change them.
type Input struct {
	// VPCs by id.
	VPCs map[string]*ec2.Vpc
	// Subnets by id.
	Subnets map[string]*ec2.Subnet
	// RouteTables by id.
	RouteTables map[string]*ec2.RouteTable
	// NATGateways by id.
	NATGateways map[string]*ec2.NatGateway
	// InternetGateways by id.
	InternetGateways map[string]*ec2.InternetGateway
	// SecurityGroupRules by id.
	SecurityGroupRules map[string]*ec2.SecurityGroupRule
	// Interfaces by id.
	Interfaces map[string]*ec2.NetworkInterface
	// Instances by id.
	Instances map[string]*ec2.Instance
	// VPCEndpoints by id.
	VPCEndpoints map[string]*ec2.VpcEndpoint
	// LoadBalancers in any order.
	LoadBalancers []LoadBalancer
	// HostedZones in any order.
	HostedZones []HostedZone
}

// LoadBalancer is a network load balancer whose security groups and targets are not resolved yet.
type LoadBalancer struct {
	// VPC is the id of the VPC.
	VPC string
	// DNSName of the load balancer.
	DNSName string
	// SecurityGroups are the ids of its security groups; none means that all traffic is allowed.
	SecurityGroups []string
	// LoadBalancer is the specification; Build fills in rules, AdmitAll, and the targets'
	// addresses.
	netspec.LoadBalancer
}

// Build returns the desired network. The same input gives the same result, in a stable order.
func Build(in Input) netspec.Network {
	b := newBuilder(in)
	var out netspec.Network
	for _, id := range sortedKeys(in.VPCs) {
		v := b.buildVPC(id)
		if aws.BoolValue(in.VPCs[id].IsDefault) && isUnused(v) {
			continue
		}

		out.VPCs = append(out.VPCs, v)
	}

	return out
}

// isUnused reports whether a VPC has nothing that sends or receives packets. The default VPC of an account is
// usually unused, and needs no router then.
func isUnused(v netspec.VPC) bool {
	return len(v.Interfaces) == 0 && len(v.LoadBalancers) == 0 && len(v.Endpoints) == 0
}

// BuildInterface returns the specification of one network interface.
func BuildInterface(in Input, n *ec2.NetworkInterface) netspec.Interface {
	return newBuilder(in).buildInterface(n)
}

type builder struct {
	in Input
	// addrsByGroup are the interfaces' addresses by security group.
	addrsByGroup map[string][]netip.Prefix
	// balancersByGroup are the lowest addresses of load balancers by security group.
	balancersByGroup map[string][]netip.Addr
	rulesByGroup     map[string][]*ec2.SecurityGroupRule
	// routeTables by subnet id, and the main route tables by VPC id.
	routeTables map[string]*ec2.RouteTable
}

func newBuilder(in Input) *builder {
	b := &builder{
		in:               in,
		addrsByGroup:     map[string][]netip.Prefix{},
		balancersByGroup: map[string][]netip.Addr{},
		rulesByGroup:     map[string][]*ec2.SecurityGroupRule{},
		routeTables:      map[string]*ec2.RouteTable{},
	}

	for _, id := range sortedKeys(in.Interfaces) {
		n := in.Interfaces[id]
		addr := netip.MustParseAddr(stringValue(n.PrivateIpAddress))
		all := append([]netip.Prefix{netip.PrefixFrom(addr, 32)}, secondaryAddresses(n)...)
		for _, g := range n.Groups {
			id := stringValue(g.GroupId)
			b.addrsByGroup[id] = append(b.addrsByGroup[id], all...)
		}
	}

	for _, m := range b.addrsByGroup {
		slices.SortFunc(m, comparePrefix)
	}

	for _, l := range in.LoadBalancers {
		addrs := balancerAddrs(l)
		for _, g := range l.SecurityGroups {
			b.balancersByGroup[g] = append(b.balancersByGroup[g], addrs[:min(len(addrs), 1)]...)
		}
	}

	for _, m := range b.balancersByGroup {
		slices.SortFunc(m, netip.Addr.Compare)
	}

	for _, id := range sortedKeys(in.SecurityGroupRules) {
		r := in.SecurityGroupRules[id]
		b.rulesByGroup[stringValue(r.GroupId)] = append(b.rulesByGroup[stringValue(r.GroupId)], r)
	}

	for _, id := range sortedKeys(in.RouteTables) {
		for _, a := range in.RouteTables[id].Associations {
			if aws.BoolValue(a.Main) {
				b.routeTables[stringValue(in.RouteTables[id].VpcId)] = in.RouteTables[id]
			} else {
				b.routeTables[stringValue(a.SubnetId)] = in.RouteTables[id]
			}
		}
	}

	return b
}

func (b *builder) buildVPC(id string) netspec.VPC {
	v := netspec.VPC{
		ID:            id,
		DNSNames:      map[string][]netip.Addr{},
		BalancerNames: map[string][]string{},
		DNSServices:   map[string][]netspec.DNSService{},
		DNSTimes:      map[string]uint32{},
	}
	for _, a := range b.in.VPCs[id].CidrBlockAssociationSet {
		v.CIDRs = append(v.CIDRs, netip.MustParsePrefix(stringValue(a.CidrBlock)))
	}

	for _, n := range sortedKeys(b.in.Subnets) {
		s := b.in.Subnets[n]
		if stringValue(s.VpcId) == id {
			v.Subnets = append(v.Subnets, netspec.Subnet{
				ID:           n,
				Zone:         stringValue(s.AvailabilityZone),
				CIDR:         netip.MustParsePrefix(stringValue(s.CidrBlock)),
				DefaultRoute: b.defaultRoute(s, 0),
			})
		}
	}

	for _, n := range sortedKeys(b.in.Interfaces) {
		i := b.in.Interfaces[n]
		if stringValue(i.VpcId) != id || !isPlugged(i) {
			continue
		}

		instance := b.in.Instances[stringValue(i.Attachment.InstanceId)]
		if instance == nil {
			continue
		}

		f := b.buildInterface(i)
		v.Interfaces = append(v.Interfaces, f)
		v.DNSNames[stringValue(i.PrivateDnsName)] = []netip.Addr{f.Addr}
		if f.Device == 0 && answersResourceName(instance) {
			v.DNSNames[stringValue(instance.PrivateDnsName)] = []netip.Addr{f.Addr}
		}
	}

	v.Endpoints = b.buildEndpoints(id)
	b.addLoadBalancers(&v)
	b.addZoneNames(&v)

	return v
}

// isPlugged reports whether an interface is attached, and stays so.
func isPlugged(i *ec2.NetworkInterface) bool {
	return i.Attachment != nil && stringValue(i.Attachment.Status) != ec2.AttachmentStatusDetaching
}

// answersResourceName reports whether the resolver answers queries for the instance's name that is made of its id. Unlike
// the name made of the address, it has a record only if the instance asks for it.
func answersResourceName(i *ec2.Instance) bool {
	o := i.PrivateDnsNameOptions
	return o != nil && stringValue(o.HostnameType) == ec2.HostnameTypeResourceName &&
		o.EnableResourceNameDnsARecord != nil && *o.EnableResourceNameDnsARecord
}

// defaultRoute follows a subnet's default route. At depth 1 (the subnet of a NAT gateway) it
// ignores NAT gateways.
func (b *builder) defaultRoute(s *ec2.Subnet, depth int) netspec.DefaultRoute {
	t := b.routeTables[stringValue(s.SubnetId)]
	if t == nil {
		t = b.routeTables[stringValue(s.VpcId)]
	}

	if t == nil {
		return netspec.RouteNone
	}

	for _, r := range t.Routes {
		if stringValue(r.DestinationCidrBlock) != "0.0.0.0/0" ||
			stringValue(r.State) != ec2.RouteStateActive {
			continue
		}

		if g := b.in.InternetGateways[stringValue(r.GatewayId)]; g != nil && len(g.Attachments) > 0 &&
			stringValue(g.Attachments[0].VpcId) == stringValue(s.VpcId) {
			return netspec.RouteInternet
		}

		if depth == 0 && b.natReachesInternet(b.in.NATGateways[stringValue(r.NatGatewayId)]) {
			return netspec.RouteNAT
		}
	}

	return netspec.RouteNone
}

// natReachesInternet reports whether a NAT gateway works: it is available, public, and its subnet
// has a route to an internet gateway.
func (b *builder) natReachesInternet(n *ec2.NatGateway) bool {
	if n == nil || stringValue(n.State) != ec2.NatGatewayStateAvailable ||
		stringValue(n.ConnectivityType) == ec2.ConnectivityTypePrivate {
		return false
	}

	home := b.in.Subnets[stringValue(n.SubnetId)]
	return home != nil && b.defaultRoute(home, 1) == netspec.RouteInternet
}

// secondaryAddresses returns the addresses of an interface besides the primary one, and its prefixes.
func secondaryAddresses(n *ec2.NetworkInterface) []netip.Prefix {
	var out []netip.Prefix
	for _, a := range n.PrivateIpAddresses {
		if !aws.BoolValue(a.Primary) {
			out = append(out, netip.PrefixFrom(netip.MustParseAddr(stringValue(a.PrivateIpAddress)), 32))
		}
	}

	for _, p := range n.Ipv4Prefixes {
		out = append(out, netip.MustParsePrefix(stringValue(p.Ipv4Prefix)))
	}

	return out
}

func (b *builder) buildInterface(n *ec2.NetworkInterface) netspec.Interface {
	f := netspec.Interface{
		ID:              stringValue(n.NetworkInterfaceId),
		Subnet:          stringValue(n.SubnetId),
		Addr:            netip.MustParseAddr(stringValue(n.PrivateIpAddress)),
		Secondary:       secondaryAddresses(n),
		MAC:             stringValue(n.MacAddress),
		SourceDestCheck: aws.BoolValue(n.SourceDestCheck),
		MetadataHops:    1,
	}
	if n.Attachment != nil {
		f.InstanceID = stringValue(n.Attachment.InstanceId)
		f.Device = int(aws.Int64Value(n.Attachment.DeviceIndex))
	}

	if n.Association != nil {
		f.Public = netip.MustParseAddr(stringValue(n.Association.PublicIp))
	}

	if i := b.in.Instances[f.InstanceID]; i != nil && i.MetadataOptions != nil &&
		i.MetadataOptions.HttpPutResponseHopLimit != nil {
		f.MetadataHops = int(*i.MetadataOptions.HttpPutResponseHopLimit)
	}

	var groups []string
	for _, g := range n.Groups {
		groups = append(groups, stringValue(g.GroupId))
	}

	f.Ingress, f.Egress = b.groupRules(groups)

	return f
}

// groupRules resolves the rules of security groups. It omits rules without peers.
func (b *builder) groupRules(groups []string) (ingress, egress []netspec.Rule) {
	for _, g := range slices.Sorted(slices.Values(groups)) {
		for _, r := range b.rulesByGroup[g] {
			rule, ok := b.resolveRule(r)
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

func (b *builder) resolveRule(r *ec2.SecurityGroupRule) (netspec.Rule, bool) {
	out := netspec.Rule{From: 0, To: 65535}
	switch p := stringValue(r.IpProtocol); p {
	case "-1":
	case "tcp", "udp":
		out.Protocol = p
		out.From = int(aws.Int64Value(r.FromPort))
		out.To = int(aws.Int64Value(r.ToPort))
	case "icmp":
		out.Protocol = p
		out.ICMPType = icmpValue(r.FromPort)
		out.ICMPCode = icmpValue(r.ToPort)
	default:
		return out, false // a protocol that the network does not support, such as ICMPv6
	}

	switch {
	case r.CidrIpv4 != nil:
		out.Peers = []netip.Prefix{netip.MustParsePrefix(*r.CidrIpv4)}
	case r.ReferencedGroupInfo != nil:
		group := stringValue(r.ReferencedGroupInfo.GroupId)
		out.Peers = slices.Clone(b.addrsByGroup[group])
		out.Balancers = slices.Clone(b.balancersByGroup[group])
	}

	return out, len(out.Peers) > 0
}

// icmpValue returns the type or code of a rule, or nil if EC2 has -1 for any.
func icmpValue(v *int64) *int {
	n := int(aws.Int64Value(v))
	if v == nil || n < 0 {
		return nil
	}

	return &n
}

func (b *builder) addLoadBalancers(v *netspec.VPC) {
	all := slices.Clone(b.in.LoadBalancers)
	slices.SortFunc(all, func(x, y LoadBalancer) int { return cmp.Compare(x.ARN, y.ARN) })
	for _, l := range all {
		if l.VPC != v.ID {
			continue
		}

		out := l.LoadBalancer
		out.AdmitAll = len(l.SecurityGroups) == 0
		out.Ingress, out.Egress = b.groupRules(l.SecurityGroups)
		out.Listeners = b.resolveListeners(v, l)
		v.LoadBalancers = append(v.LoadBalancers, out)
		if l.Internal {
			v.BalancerNames[strings.TrimSuffix(l.DNSName, ".")] = []string{l.ARN}
		}
	}
}

func balancerAddrs(l LoadBalancer) []netip.Addr {
	return slices.SortedFunc(maps.Values(l.Addrs), netip.Addr.Compare)
}

// resolveListeners fills in the addresses and zones of a load balancer's targets.
func (b *builder) resolveListeners(v *netspec.VPC, l LoadBalancer) []netspec.Listener {
	zones := map[string]bool{}
	for subnet := range l.Addrs {
		if s := b.in.Subnets[subnet]; s != nil {
			zones[stringValue(s.AvailabilityZone)] = true
		}
	}

	var out []netspec.Listener
	for _, listener := range l.Listeners {
		g := listener.TargetGroup
		g.Targets = b.resolveTargets(v, g.Targets, zones)
		g.Draining = b.resolveTargets(v, g.Draining, zones)
		listener.TargetGroup = g
		out = append(out, listener)
	}

	return out
}

// resolveTargets omits targets without an address, which are terminated, and those in zones in which the load
// balancer has no subnet: they get no connections.
func (b *builder) resolveTargets(v *netspec.VPC, in []netspec.Target, zones map[string]bool) []netspec.Target {
	var out []netspec.Target
	for _, t := range in {
		if i := b.in.Instances[t.ID]; i != nil && i.PrivateIpAddress != nil {
			t.Addr = netip.MustParseAddr(*i.PrivateIpAddress)
		}

		if !t.Addr.IsValid() {
			continue
		}

		for _, s := range v.Subnets {
			if s.CIDR.Contains(t.Addr) {
				t.Zone = s.Zone
			}
		}

		if t.Zone == "" || zones[t.Zone] {
			out = append(out, t)
		}
	}

	return out
}

func comparePrefix(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func stringValue(p *string) string { return aws.StringValue(p) }
