// SPDX-License-Identifier: Apache-2.0

// Package fabric is the contract between the region's control plane (EC2, Auto Scaling, load balancing) and what
// makes it real (namespaces, nftables, proxies, loop devices). It is plain data: a picture of the network that is
// wanted, and a machine's specification. It knows no AWS wire shape and does no I/O.
package netspec

import "net/netip"

// Network is the whole network that should exist. Applying the same picture twice changes nothing.
type Network struct {
	VPCs []VPC
}

// VPC is one virtual private cloud: a router of its own.
type VPC struct {
	ID            string
	CIDRs         []netip.Prefix
	Subnets       []Subnet
	Interfaces    []Interface
	LoadBalancers []LoadBalancer
	Endpoints     []VPCEndpoint
	DNSNames      map[string][]netip.Addr // what the VPC's resolver answers: instances' private names, internal load balancers
}

// DefaultRoute is the way out of a subnet.
type DefaultRoute string

// The ways out of a subnet for its default route.
const (
	RouteNone     DefaultRoute = "none"
	RouteInternet DefaultRoute = "internet" // an internet gateway: only interfaces with a public address get out
	RouteNAT      DefaultRoute = "nat"      // a NAT gateway in a subnet that itself leads to the internet
)

// Subnet is a range of addresses in one zone.
type Subnet struct {
	ID           string
	Zone         string
	CIDR         netip.Prefix
	DefaultRoute DefaultRoute
}

// VPCEndpoint leads machines that have no way out to one service.
type VPCEndpoint struct {
	Service string   // such as ec2, s3 or ecr.dkr, the registry
	Subnets []string // of a gateway: those whose route table has it; of an interface: nil, which means all
	Ingress []Rule   // of an interface: its security groups
}

// Rule admits traffic. An empty protocol means any; ports are inclusive, 0-65535 where they mean nothing.
type Rule struct {
	Protocol string // tcp, udp, icmp or empty
	From, To int
	Peers    []netip.Prefix // group references are resolved to addresses by EC2
}

// Interface is the primary network interface of a machine.
type Interface struct {
	ID              string // eni-…
	InstanceID      string
	Subnet          string
	Addr            netip.Addr // private address
	MAC             string
	Public          netip.Addr // zero where it has none
	SourceDestCheck bool
	Ingress         []Rule
	Egress          []Rule
	MetadataHops    int // the metadata service's hop limit, 1-64
}

// LoadBalancer is a network load balancer.
type LoadBalancer struct {
	ARN        string
	Internal   bool
	PublicAddr netip.Addr            // loopback address on the host; zero for an internal one
	Addrs      map[string]netip.Addr // by subnet: its address inside the VPC
	Ingress    []Rule
	Egress     []Rule
	HostOnly   bool // nobody inside the VPC reaches it: it stands for a machine's own public address
	AdmitAll   bool // no security groups: everything is admitted
	Listeners  []Listener
}

// Listener forwards a port to a target group.
type Listener struct {
	Port        int
	TargetGroup TargetGroup
}

// TargetGroup is where a listener forwards to.
type TargetGroup struct {
	ARN         string
	Targets     []Target
	HealthCheck HealthCheck
}

// Target is one machine behind a load balancer.
type Target struct {
	ID   string // instance id
	Addr netip.Addr
	Port int
}

// HealthCheck says how a target is probed. Times are in seconds.
type HealthCheck struct {
	Protocol           string // TCP, HTTP, HTTPS
	Port               int    // 0 means the target's own
	Path               string
	Interval           int
	Timeout            int
	HealthyThreshold   int // successes in a row that make a target healthy
	UnhealthyThreshold int // failures in a row that make it unhealthy
}

// TargetHealth is a target's state as the proxies see it: by target group ARN, then target id.
// Values are initial, healthy, unhealthy or draining.
type TargetHealth map[string]map[string]string

// Machine is what it takes to boot one instance. All of it is fixed for the instance's life.
type Machine struct {
	ID       string // i-…
	Image    string // ami-…
	Hostname string // private DNS name's first label
	Domain   string // such as ec2.internal
	VPC      string
	Iface    Interface
	Gateway  netip.Addr   // the subnet's router (base + 1)
	Subnet   netip.Prefix // of the subnet
	Resolver netip.Addr   // the VPC's resolver (base + 2)
	VCPUs    int
	MemoryMB int
}

// Volume is a block device. Size is in GiB.
type Volume struct {
	ID   string // vol-…
	Size int
}
