// SPDX-License-Identifier: Apache-2.0

// Package netspec defines the desired state of the region's data plane as plain data: the network
// that should exist (VPCs, subnets, interfaces, load balancers), and the specifications of machines
// and volumes.
//
// EC2, Auto Scaling, and load balancing produce these values; packages network and machine apply
// them with namespaces, nftables, proxies, and loop devices. The package contains no AWS wire types
// and does no I/O.
package netspec

import (
	"errors"
	"net/netip"
)

// ErrVolumeBusy is returned if a volume cannot be detached because a file system on it is mounted.
var ErrVolumeBusy = errors.New("volume is in use inside the machine")

// Network is the desired state of all VPCs. Applying the same Network twice changes nothing.
type Network struct {
	// VPCs sorted by id.
	VPCs []VPC
}

// VPC is one virtual private cloud, which has its own router.
type VPC struct {
	// ID of the VPC, vpc-….
	ID string
	// CIDRs are the VPC's address ranges, primary first.
	CIDRs []netip.Prefix
	// Subnets sorted by id.
	Subnets []Subnet
	// Interfaces of instances, sorted by id.
	Interfaces []Interface
	// LoadBalancers sorted by ARN.
	LoadBalancers []LoadBalancer
	// Endpoints are the usable VPC endpoints.
	Endpoints []VPCEndpoint
	// DNSNames are the records of the VPC's resolver: private names of instances, hosted zones.
	DNSNames map[string][]netip.Addr
	// BalancerNames are further records: names of load balancers, and aliases of them in hosted
	// zones, with the ARNs. Their addresses are those of the zones that have healthy targets.
	BalancerNames map[string][]string
	// DNSServices are the service records of hosted zones.
	DNSServices map[string][]DNSService
	// DNSTimes are how long resolvers may cache the records of hosted zones, in seconds, by name. Other names have none.
	DNSTimes map[string]uint32
}

// DNSService is a service record (SRV).
type DNSService struct {
	Priority, Weight, Port uint16
	// Target is the name of the server, without a trailing dot.
	Target string
}

// DefaultRoute is the target of a subnet's default route.
type DefaultRoute string

// Targets of a default route.
const (
	// RouteNone means that the subnet has no route to the internet.
	RouteNone DefaultRoute = "none"
	// RouteInternet is an internet gateway. Only interfaces with a public address reach the
	// internet.
	RouteInternet DefaultRoute = "internet"
	// RouteNAT is a NAT gateway in a subnet with a route to the internet.
	RouteNAT DefaultRoute = "nat"
)

// Subnet is an address range in one availability zone.
type Subnet struct {
	// ID of the subnet, subnet-….
	ID string
	// Zone is the availability zone.
	Zone string
	// CIDR is the address range.
	CIDR netip.Prefix
	// DefaultRoute is the target of the default route.
	DefaultRoute DefaultRoute
}

// VPCEndpoint connects machines without internet access to one service.
type VPCEndpoint struct {
	// Service such as ec2, s3, or ecr.dkr (the registry).
	Service string
	// Subnets of a gateway endpoint are those whose route table contains it. Nil for an interface
	// endpoint, which all subnets can use.
	Subnets []string
	// Ingress are the security group rules of an interface endpoint.
	Ingress []Rule
}

// Rule is a security group rule that allows traffic.
type Rule struct {
	// Protocol is tcp, udp, icmp, or empty for any.
	Protocol string
	// From and To are the inclusive port range; 0-65535 for protocols without ports.
	From, To int
	// ICMPType and ICMPCode limit a rule of protocol icmp to one type, and one code of it; nil: any.
	ICMPType, ICMPCode *int
	// Peers are the allowed addresses. References to security groups are already resolved.
	Peers []netip.Prefix
	// Balancers are the load balancers in the security group that the rule refers to, each by its
	// lowest address. The rule allows what they forward, whatever the client's address is.
	Balancers []netip.Addr
}

// Interface is a network interface of a machine.
type Interface struct {
	// ID of the interface, eni-….
	ID string
	// InstanceID of the machine, i-….
	InstanceID string
	// Subnet is the id of the subnet.
	Subnet string
	// Device is the index of the interface in its machine, whose eth0 is the primary one.
	Device int
	// Addr is the primary private address.
	Addr netip.Addr
	// Secondary are the addresses and prefixes besides Addr.
	Secondary []netip.Prefix
	// MAC address.
	MAC string
	// Public address; the zero Addr if there is none.
	Public netip.Addr
	// SourceDestCheck drops packets from other addresses and for other addresses.
	SourceDestCheck bool
	// Ingress are the rules for incoming connections.
	Ingress []Rule
	// Egress are the rules for outgoing connections.
	Egress []Rule
	// MetadataHops is the hop limit of the metadata service, 1-64.
	MetadataHops int
}

// LoadBalancer is a network load balancer.
type LoadBalancer struct {
	// ARN of the load balancer.
	ARN string
	// Internal is set if clients reach it from inside the VPC only.
	Internal bool
	// PublicAddr is a loopback address on the host; the zero Addr for an internal load balancer.
	PublicAddr netip.Addr
	// Addrs are its addresses inside the VPC by subnet id.
	Addrs map[string]netip.Addr
	// Ingress are the rules for connections from clients.
	Ingress []Rule
	// Egress are the rules for connections to targets.
	Egress []Rule
	// HostOnly is set for the public address of one machine, which cannot be reached from inside
	// the VPC.
	HostOnly bool
	// AdmitAll is set without security groups: all traffic is allowed.
	AdmitAll bool
	// Listeners forward ports to target groups.
	Listeners []Listener
}

// Listener forwards a port to a target group.
type Listener struct {
	// Port of the load balancer.
	Port int
	// TargetGroup receives the connections.
	TargetGroup TargetGroup
}

// TargetGroup is a set of targets with a health check.
type TargetGroup struct {
	// ARN of the target group.
	ARN string
	// Targets sorted as registered.
	Targets []Target
	// Draining are the targets whose deregistration delay has not ended. They get no new
	// connections and keep the established ones.
	Draining []Target
	// CrossZone distributes connections over the targets of all zones, and not only over those in
	// the zone of the address that the client has connected to.
	CrossZone bool
	// PreserveClientIP makes targets see the address of the client, and not the load balancer's.
	PreserveClientIP bool
	// KeepUnhealthy keeps the connections to a target that becomes unhealthy.
	KeepUnhealthy bool
	// EndDeregistered ends the connections to a target at the end of its deregistration delay.
	EndDeregistered bool
	// HealthCheck of all targets.
	HealthCheck HealthCheck
}

// Target is one machine behind a load balancer.
type Target struct {
	// ID is the instance id.
	ID string
	// Addr is the target's private address.
	Addr netip.Addr
	// Zone is the target's availability zone.
	Zone string
	// Port of the target.
	Port int
}

// HealthCheck configures the probes of a target group. Times are in seconds.
type HealthCheck struct {
	// Protocol is TCP, HTTP, or HTTPS.
	Protocol string
	// Port to probe; 0 means the target's own port.
	Port int
	// Path of HTTP and HTTPS probes.
	Path string
	// Interval between probes in seconds.
	Interval int
	// Timeout of a probe in seconds.
	Timeout int
	// HealthyThreshold is the number of consecutive successes that make a target healthy.
	HealthyThreshold int
	// UnhealthyThreshold is the number of consecutive failures that make a target unhealthy.
	UnhealthyThreshold int
}

// TargetHealth maps target group ARN and target id to the state that the load balancer's proxies
// determined: initial, healthy, unhealthy, or draining.
type TargetHealth map[string]map[string]string

// Machine is the specification of an instance to boot. It never changes during the instance's life.
type Machine struct {
	// ID of the instance, i-….
	ID string
	// Image is the image id, ami-….
	Image string
	// Hostname is the first label of the private DNS name.
	Hostname string
	// Domain is the domain name of the VPC's DHCP options, such as ec2.internal. It may be several names, separated
	// by spaces.
	Domain string
	// VPC is the id of the VPC.
	VPC string
	// Iface is the primary network interface.
	Iface Interface
	// More are its other network interfaces.
	More []Interface
	// Gateway is the address of the subnet's router (base + 1).
	Gateway netip.Addr
	// Subnet is the address range of the subnet.
	Subnet netip.Prefix
	// Resolver is the address of the VPC's DNS resolver (base + 2).
	Resolver netip.Addr
	// VCPUs is the number of virtual processors.
	VCPUs int
	// MemoryMB is the memory limit in MiB.
	MemoryMB int
}

// Volume is an EBS volume.
type Volume struct {
	// ID of the volume, vol-….
	ID string
	// Size in GiB.
	Size int
}
