// SPDX-License-Identifier: Apache-2.0

package netbuilder_test

import (
	"net/netip"
	"testing"

	"github.com/aws/aws-sdk-go/service/ec2"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/region/netbuilder"
	"github.com/slipway-k8s/slipway/internal/region/netspec"
)

func route(cidr, igw, nat string) *ec2.Route {
	r := &ec2.Route{DestinationCidrBlock: &cidr, State: new("active")}
	if igw != "" {
		r.GatewayId = &igw
	}
	if nat != "" {
		r.NatGatewayId = &nat
	}
	return r
}

func table(vpc, subnet string, routes ...*ec2.Route) *ec2.RouteTable {
	a := &ec2.RouteTableAssociation{Main: new(subnet == "")}
	if subnet != "" {
		a.SubnetId = &subnet
	}
	return &ec2.RouteTable{VpcId: &vpc, Associations: []*ec2.RouteTableAssociation{a}, Routes: routes}
}

// base returns a VPC with the subnets "pub" and "priv", an internet gateway, and a NAT gateway in
// "pub".
func base() netbuilder.Input {
	subnet := func(id, cidr string) *ec2.Subnet {
		return &ec2.Subnet{SubnetId: &id, VpcId: new("vpc-1"), CidrBlock: &cidr, AvailabilityZone: new("z")}
	}
	return netbuilder.Input{
		VPCs: map[string]*ec2.Vpc{"vpc-1": {CidrBlockAssociationSet: []*ec2.VpcCidrBlockAssociation{{CidrBlock: new("10.0.0.0/16")}}}},
		Subnets: map[string]*ec2.Subnet{
			"pub": subnet("pub", "10.0.0.0/24"), "priv": subnet("priv", "10.0.1.0/24"),
		},
		InternetGateways: map[string]*ec2.InternetGateway{"igw-1": {Attachments: []*ec2.InternetGatewayAttachment{{VpcId: new("vpc-1")}}}},
		NATGateways: map[string]*ec2.NatGateway{"nat-1": {
			SubnetId: new("pub"), State: new("available"), ConnectivityType: new("public"),
		}},
		RouteTables: map[string]*ec2.RouteTable{
			"main": table("vpc-1", ""), "rtb-pub": table("vpc-1", "pub", route("0.0.0.0/0", "igw-1", "")),
			"rtb-priv": table("vpc-1", "priv", route("0.0.0.0/0", "", "nat-1")),
		},
	}
}

func TestRoutesAreFollowed(t *testing.T) {
	for name, c := range map[string]struct {
		change    func(*netbuilder.Input)
		pub, priv netspec.DefaultRoute
	}{
		"all there":             {func(*netbuilder.Input) {}, netspec.RouteInternet, netspec.RouteNAT},
		"gateway detached":      {func(in *netbuilder.Input) { in.InternetGateways["igw-1"].Attachments = nil }, netspec.RouteNone, netspec.RouteNone},
		"NAT pending":           {func(in *netbuilder.Input) { in.NATGateways["nat-1"].State = new("pending") }, netspec.RouteInternet, netspec.RouteNone},
		"NAT deleted":           {func(in *netbuilder.Input) { delete(in.NATGateways, "nat-1") }, netspec.RouteInternet, netspec.RouteNone},
		"NAT private":           {func(in *netbuilder.Input) { in.NATGateways["nat-1"].ConnectivityType = new("private") }, netspec.RouteInternet, netspec.RouteNone},
		"NAT in its own subnet": {func(in *netbuilder.Input) { in.NATGateways["nat-1"].SubnetId = new("priv") }, netspec.RouteInternet, netspec.RouteNone},
		"blackhole":             {func(in *netbuilder.Input) { in.RouteTables["rtb-priv"].Routes[0].State = new("blackhole") }, netspec.RouteInternet, netspec.RouteNone},
		"main table counts": {func(in *netbuilder.Input) {
			delete(in.RouteTables, "rtb-pub")
			in.RouteTables["main"].Routes = []*ec2.Route{route("0.0.0.0/0", "igw-1", "")}
		}, netspec.RouteInternet, netspec.RouteNAT},
		"no association": {func(in *netbuilder.Input) { delete(in.RouteTables, "rtb-priv") }, netspec.RouteInternet, netspec.RouteNone},
		"not a default route": {func(in *netbuilder.Input) {
			in.RouteTables["rtb-pub"].Routes[0].DestinationCidrBlock = new("1.0.0.0/8")
		}, netspec.RouteNone, netspec.RouteNone},
	} {
		t.Run(name, func(t *testing.T) {
			in := base()
			c.change(&in)
			got := map[string]netspec.DefaultRoute{}
			for _, s := range netbuilder.Build(in).VPCs[0].Subnets {
				got[s.ID] = s.DefaultRoute
			}
			if diff := cmp.Diff(map[string]netspec.DefaultRoute{"pub": c.pub, "priv": c.priv}, got); diff != "" {
				t.Errorf("ways out (-want +got):\n%s", diff)
			}
		})
	}
}

func rule(group, protocol string, port int64, peer string) *ec2.SecurityGroupRule {
	r := &ec2.SecurityGroupRule{GroupId: &group, IsEgress: new(false), IpProtocol: &protocol, FromPort: &port, ToPort: &port}
	if _, err := netip.ParsePrefix(peer); err == nil {
		r.CidrIpv4 = &peer
	} else {
		r.ReferencedGroupInfo = &ec2.ReferencedSecurityGroup{GroupId: &peer}
	}
	return r
}

// withMachines adds an instance in group "sg-a", one in "sg-b", and a load balancer's interface in
// "sg-lb".
func withMachines(in netbuilder.Input) netbuilder.Input {
	face := func(id, instance, group, addr string) *ec2.NetworkInterface {
		return &ec2.NetworkInterface{
			NetworkInterfaceId: &id, VpcId: new("vpc-1"), SubnetId: new("priv"), PrivateIpAddress: &addr, MacAddress: new("02:00:00:00:00:01"),
			PrivateDnsName: new("ip-" + id), SourceDestCheck: new(true), Groups: []*ec2.GroupIdentifier{{GroupId: &group}},
			Attachment: &ec2.NetworkInterfaceAttachment{InstanceId: &instance},
		}
	}
	in.Interfaces = map[string]*ec2.NetworkInterface{
		"eni-a": face("eni-a", "i-a", "sg-a", "10.0.1.4"), "eni-b": face("eni-b", "i-b", "sg-b", "10.0.1.5"),
		"eni-lb": face("eni-lb", "", "sg-lb", "10.0.0.9"),
	}
	in.Instances = map[string]*ec2.Instance{
		"i-a": {PrivateIpAddress: new("10.0.1.4"), MetadataOptions: &ec2.InstanceMetadataOptionsResponse{HttpPutResponseHopLimit: new(int64(2))}},
		"i-b": {PrivateIpAddress: new("10.0.1.5")},
	}
	return in
}

// The default VPC has a router only while something in it sends or receives packets.
func TestUnusedDefaultVPCHasNoRouter(t *testing.T) {
	in := base()
	in.VPCs["vpc-1"].IsDefault = new(true)
	if got := netbuilder.Build(in).VPCs; len(got) != 0 {
		t.Errorf("unused: %d VPCs", len(got))
	}
	in.LoadBalancers = []netbuilder.LoadBalancer{{VPC: "vpc-1", LoadBalancer: netspec.LoadBalancer{ARN: "arn"}}}
	if got := netbuilder.Build(in).VPCs; len(got) != 1 {
		t.Errorf("with a load balancer: %d VPCs", len(got))
	}
}

func TestGroupsAreResolved(t *testing.T) {
	p := netip.MustParsePrefix
	for name, c := range map[string]struct {
		rule *ec2.SecurityGroupRule
		want []netspec.Rule
	}{
		"range":         {rule("sg-a", "tcp", 22, "10.0.0.0/8"), []netspec.Rule{{Protocol: "tcp", From: 22, To: 22, Peers: []netip.Prefix{p("10.0.0.0/8")}}}},
		"everything":    {rule("sg-a", "-1", -1, "0.0.0.0/0"), []netspec.Rule{{From: 0, To: 65535, Peers: []netip.Prefix{p("0.0.0.0/0")}}}},
		"ping":          {rule("sg-a", "icmp", -1, "0.0.0.0/0"), []netspec.Rule{{Protocol: "icmp", From: 0, To: 65535, Peers: []netip.Prefix{p("0.0.0.0/0")}}}},
		"one ICMP type": {rule("sg-a", "icmp", 3, "0.0.0.0/0"), []netspec.Rule{{Protocol: "icmp", From: 0, To: 65535, ICMPType: new(3), ICMPCode: new(3), Peers: []netip.Prefix{p("0.0.0.0/0")}}}},
		"group":         {rule("sg-a", "tcp", 1, "sg-b"), []netspec.Rule{{Protocol: "tcp", From: 1, To: 1, Peers: []netip.Prefix{p("10.0.1.5/32")}}}},
		"its own group": {rule("sg-a", "tcp", 1, "sg-a"), []netspec.Rule{{Protocol: "tcp", From: 1, To: 1, Peers: []netip.Prefix{p("10.0.1.4/32")}}}},
		"load balancer": {rule("sg-a", "tcp", 1, "sg-lb"), []netspec.Rule{{Protocol: "tcp", From: 1, To: 1, Peers: []netip.Prefix{p("10.0.0.9/32")}}}},
		"empty group":   {rule("sg-a", "tcp", 1, "sg-none"), nil},
		"other's rule":  {rule("sg-b", "tcp", 1, "0.0.0.0/0"), nil},
		"IPv6's ping":   {rule("sg-a", "icmpv6", -1, "0.0.0.0/0"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			in := withMachines(base())
			in.SecurityGroupRules = map[string]*ec2.SecurityGroupRule{"sgr-1": c.rule}
			got := netbuilder.BuildInterface(in, in.Interfaces["eni-a"])
			if diff := cmp.Diff(c.want, got.Ingress, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
				t.Errorf("admitted (-want +got):\n%s", diff)
			}
			if got.MetadataHops != 2 {
				t.Errorf("metadata has %d hops, want 2", got.MetadataHops)
			}
		})
	}
}

func TestBalancersAreDrawn(t *testing.T) {
	in := withMachines(base())
	in.SecurityGroupRules = map[string]*ec2.SecurityGroupRule{"sgr-1": rule("sg-lb", "tcp", 443, "0.0.0.0/0")}
	in.LoadBalancers = []netbuilder.LoadBalancer{{
		VPC: "vpc-1", DNSName: "api.elb.example.", SecurityGroups: []string{"sg-lb"},
		LoadBalancer: netspec.LoadBalancer{
			ARN: "arn:1", Internal: true, Addrs: map[string]netip.Addr{"pub": netip.MustParseAddr("10.0.0.9")},
			Listeners: []netspec.Listener{{Port: 443, TargetGroup: netspec.TargetGroup{ARN: "tg", Targets: []netspec.Target{{ID: "i-a", Port: 6443}, {ID: "i-gone", Port: 6443}}}}},
		},
	}, {VPC: "vpc-2", DNSName: "elsewhere", LoadBalancer: netspec.LoadBalancer{ARN: "arn:2"}}}
	in.Instances["i-a"].PrivateDnsName = new("i-a.ec2.internal")
	in.Instances["i-b"].PrivateDnsName = new("i-b.ec2.internal")
	byResource := ec2.PrivateDnsNameOptionsResponse{HostnameType: new(ec2.HostnameTypeResourceName)}
	in.Instances["i-b"].PrivateDnsNameOptions = new(byResource) // without a record
	byResource.EnableResourceNameDnsARecord = new(true)
	in.Instances["i-a"].PrivateDnsNameOptions = &byResource
	v := netbuilder.Build(in).VPCs[0]
	if len(v.LoadBalancers) != 1 {
		t.Fatalf("%d load balancers, want 1", len(v.LoadBalancers))
	}
	l := v.LoadBalancers[0]
	targets := l.Listeners[0].TargetGroup.Targets
	if l.AdmitAll || len(l.Ingress) != 1 || len(targets) != 1 || targets[0].Addr != netip.MustParseAddr("10.0.1.4") {
		t.Errorf("drawn: open %v, ingress %v, targets %v", l.AdmitAll, l.Ingress, targets)
	}
	names := map[string]string{}
	for name, addrs := range v.DNSNames {
		names[name] = addrs[0].String()
	}
	if diff := cmp.Diff(map[string]string{
		"ip-eni-a": "10.0.1.4", "i-a.ec2.internal": "10.0.1.4", "ip-eni-b": "10.0.1.5",
	}, names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string][]string{"api.elb.example": {"arn:1"}}, v.BalancerNames); diff != "" {
		t.Errorf("names of load balancers (-want +got):\n%s", diff)
	}
	if len(v.Interfaces) != 2 {
		t.Errorf("%d interfaces of machines, want 2: the load balancer's is none", len(v.Interfaces))
	}
}

// A rule that refers to the security group of a load balancer admits what the load balancer forwards.
func TestRulesNameLoadBalancers(t *testing.T) {
	in := withMachines(base())
	in.SecurityGroupRules = map[string]*ec2.SecurityGroupRule{"sgr-1": rule("sg-a", "tcp", 1, "sg-lb")}
	in.LoadBalancers = []netbuilder.LoadBalancer{{
		VPC: "vpc-1", SecurityGroups: []string{"sg-lb"},
		LoadBalancer: netspec.LoadBalancer{ARN: "arn:1", Addrs: map[string]netip.Addr{
			"priv": netip.MustParseAddr("10.0.1.9"),
			"pub":  netip.MustParseAddr("10.0.0.9"),
		}},
	}}
	got := netbuilder.BuildInterface(in, in.Interfaces["eni-a"]).Ingress[0].Balancers
	if len(got) != 1 || got[0] != netip.MustParseAddr("10.0.0.9") {
		t.Errorf("load balancers of the rule: %v", got)
	}
}

// Targets have the zone of their address. Those in zones that the load balancer does not serve are omitted.
func TestTargetsHaveZones(t *testing.T) {
	in := withMachines(base())
	in.Subnets["pub"].AvailabilityZone = new("y")
	group := netspec.TargetGroup{
		ARN:      "tg",
		Targets:  []netspec.Target{{ID: "i-a", Port: 1}, {ID: "10.0.0.7", Addr: netip.MustParseAddr("10.0.0.7"), Port: 1}},
		Draining: []netspec.Target{{ID: "i-b", Port: 1}},
	}
	in.LoadBalancers = []netbuilder.LoadBalancer{{
		VPC: "vpc-1",
		LoadBalancer: netspec.LoadBalancer{
			ARN:       "arn:1",
			Addrs:     map[string]netip.Addr{"priv": netip.MustParseAddr("10.0.1.9")},
			Listeners: []netspec.Listener{{Port: 1, TargetGroup: group}},
		},
	}}
	drawn := netbuilder.Build(in).VPCs[0].LoadBalancers[0].Listeners[0].TargetGroup
	want := []netspec.Target{
		{ID: "i-a", Addr: netip.MustParseAddr("10.0.1.4"), Zone: "z", Port: 1},
		{ID: "i-b", Addr: netip.MustParseAddr("10.0.1.5"), Zone: "z", Port: 1},
	}
	same := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
	if diff := cmp.Diff(want, append(drawn.Targets, drawn.Draining...), same); diff != "" {
		t.Errorf("targets and draining ones (-want +got):\n%s", diff)
	}
}
