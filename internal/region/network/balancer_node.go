// SPDX-License-Identifier: Apache-2.0

package network

import (
	"net/netip"
	"slices"

	"github.com/slipway-k8s/slipway/internal/region/netspec"
)

// balancerNode is the part of a load balancer in one zone. As at AWS, it has an address of its own and connects
// to targets from there.
type balancerNode struct {
	addr netip.Addr
	zone string
}

// zonesBySubnet returns the availability zones of a VPC's subnets.
func zonesBySubnet(vpc netspec.VPC) map[string]string {
	out := map[string]string{}
	for _, s := range vpc.Subnets {
		out[s.ID] = s.Zone
	}

	return out
}

// listNodes returns a load balancer's nodes by address.
func listNodes(lb netspec.LoadBalancer, zones map[string]string) []balancerNode {
	var out []balancerNode
	for subnet, addr := range lb.Addrs {
		out = append(out, balancerNode{addr: addr, zone: zones[subnet]})
	}

	slices.SortFunc(out, func(a, b balancerNode) int { return a.addr.Compare(b.addr) })

	return out
}

// nodeAt returns the node that serves a port: the one with the port's address, or for an address of the host one
// of those that the load balancer's DNS name has. The second result is false if the load balancer has no node.
func (b *loadBalancer) nodeAt(addr netip.Addr) (balancerNode, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	nodes := b.nodes
	if addr.IsLoopback() {
		nodes = b.namedNodes()
	} else {
		nodes = slices.DeleteFunc(
			slices.Clone(nodes),
			func(n balancerNode) bool { return n.addr != addr },
		)
	}

	if len(nodes) == 0 {
		return balancerNode{}, false
	}

	b.nextNode++

	return nodes[b.nextNode%len(nodes)], true
}

// probeSource returns the address from which targets in a zone are probed: that of the zone's node, or of any if
// the zone has none.
func (b *loadBalancer) probeSource(zone string) netip.Addr {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.nodes {
		if n.zone == zone {
			return n.addr
		}
	}

	if len(b.nodes) == 0 {
		return netip.Addr{}
	}

	return b.nodes[0].addr
}

// namedAddrs returns the addresses that the load balancer's DNS name has.
func (b *loadBalancer) namedAddrs() []netip.Addr {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []netip.Addr
	for _, n := range b.namedNodes() {
		out = append(out, n.addr)
	}

	return out
}

// namedNodes returns the nodes whose addresses the DNS name has: those for which each target group has a healthy
// target. If there are none, it returns all nodes, as AWS does ("fail open"). The caller holds b.mu.
func (b *loadBalancer) namedNodes() []balancerNode {
	var out []balancerNode
	for _, n := range b.nodes {
		healthy := true
		for _, g := range b.groups {
			healthy = healthy && g.hasHealthyTarget(n.zone)
		}

		if healthy {
			out = append(out, n)
		}
	}

	if len(out) == 0 {
		return b.nodes
	}

	return out
}

// markOf identifies the load balancer with the lowest address addr in the router's rules, where packets to targets
// may have a client's address. The address is unique in the VPC.
func markOf(addr netip.Addr) uint32 {
	a := addr.As4()
	return uint32(a[0])<<24 | uint32(a[1])<<16 | uint32(a[2])<<8 | uint32(a[3])
}

// mark returns the load balancer's mark; 0 without nodes.
func (b *loadBalancer) mark() uint32 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.nodes) == 0 {
		return 0
	}

	return markOf(b.nodes[0].addr)
}
