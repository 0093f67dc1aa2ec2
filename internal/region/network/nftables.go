// SPDX-License-Identifier: Apache-2.0

package network

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/netspec"
)

// Verdicts of a matching rule. A packet must pass the sender's chain (return) and then the
// receiver's chain (accept).
const (
	verdictAccept = "accept"
	verdictReturn = "return"
)

// Sides of a packet that the peers of a rule are compared with.
const (
	fromPeer = "ip saddr"
	toPeer   = "ip daddr"
)

const anyProtocol = "-1" // as in EC2's API

// renderRuleset renders a VPC's ruleset as one transaction for nft(8). The same input gives the
// same bytes.
func renderRuleset(vpc netspec.VPC) string {
	s := &ruleset{subnets: map[string]netspec.Subnet{}}
	for _, sub := range vpc.Subnets {
		s.subnets[sub.ID] = sub
	}

	ifaces := slices.SortedFunc(
		slices.Values(vpc.Interfaces),
		func(a, b netspec.Interface) int { return a.Addr.Compare(b.Addr) },
	)

	s.writeLine("table inet slw")
	// Chains remain and only their rules are replaced: replacing the whole table lost packets in
	// tests.
	s.writeLine("flush table inet slw")
	s.writeSets(vpc, ifaces)
	s.writeLine("table inet slw {")
	s.writeHooks(vpc, ifaces)
	for _, i := range ifaces {
		s.writeRuleChain("out_"+linkName(i.Addr), verdictReturn, toPeer, i.Egress)
		s.writeRuleChain("in_"+linkName(i.Addr), verdictAccept, fromPeer, i.Ingress)
	}

	for _, lb := range sortedBalancers(vpc.LoadBalancers) {
		ingress := lb.Ingress
		egress := lb.Egress
		if lb.AdmitAll {
			ingress = anyRules()
			egress = anyRules()
		}

		s.writeRuleChain("lbout_"+balancerKey(lb), verdictReturn, toPeer, egress)
		s.writeRuleChain("lbin_"+balancerKey(lb), verdictAccept, fromPeer, ingress)
	}

	s.writeLine("}")

	return s.out.String()
}

func anyRules() []netspec.Rule {
	return []netspec.Rule{{Peers: []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0)}}}
}

type ruleset struct {
	out     strings.Builder
	subnets map[string]netspec.Subnet
}

func (s *ruleset) writeLine(text string) { s.out.WriteString(text + "\n") }

func (s *ruleset) writeSets(vpc netspec.VPC, ifaces []netspec.Interface) {
	var own, checked, outward []string
	for _, i := range ifaces {
		name := strconv.Quote(linkName(i.Addr))
		if i.SourceDestCheck {
			checked = append(checked, name)
			for _, addr := range addressesOf(i) {
				own = append(own, name+" . "+addr.String())
			}
		}

		if s.reachesOutside(i) || len(endpointsOf(vpc, i)) > 0 {
			outward = append(outward, name) // guardEndpoints limits the services
		}
	}

	s.writeSet("own", "ifname . ipv4_addr", own)
	s.writeSet("checked", "ifname", checked)
	s.writeSet("outward", "ifname", outward)
}

// addressesOf returns all addresses of an interface.
func addressesOf(i netspec.Interface) []netip.Addr {
	out := []netip.Addr{i.Addr}
	for _, p := range i.Secondary {
		for a := p.Addr(); p.Contains(a); a = a.Next() {
			out = append(out, a)
		}
	}

	return out
}

// reachesOutside reports whether the interface can reach addresses outside the VPC.
func (s *ruleset) reachesOutside(i netspec.Interface) bool {
	route := s.subnets[i.Subnet].DefaultRoute
	return route == netspec.RouteNAT || route == netspec.RouteInternet && i.Public.IsValid()
}

func (s *ruleset) writeSet(name, kind string, elements []string) {
	s.writeLine("add set inet slw " + name + " { type " + kind + "; }")
	s.writeLine("flush set inet slw " + name)
	if len(elements) > 0 {
		s.writeLine("add element inet slw " + name + " { " + strings.Join(elements, ", ") + " }")
	}
}

// writeHooks renders the base chains: packets from machines (forward), to the router's servers
// (input), and from the router (output).
func (s *ruleset) writeHooks(vpc netspec.VPC, ifaces []netspec.Interface) {
	var egress, ingress, toLB, forwarded []string
	for _, i := range ifaces {
		name := linkName(i.Addr)
		egress = append(egress, strconv.Quote(name)+" : jump out_"+name)
		ingress = append(ingress, strconv.Quote(name)+" : goto in_"+name)
	}

	for _, lb := range sortedBalancers(vpc.LoadBalancers) {
		for _, addr := range sortedAddrs(lb.Addrs) {
			toLB = append(toLB, addr.String()+" : goto lbin_"+balancerKey(lb))
		}

		forwarded = append(forwarded, formatMark(sortedAddrs(lb.Addrs)[0])+" : jump lbout_"+balancerKey(lb))
	}

	s.writeLine("\tchain prerouting { type filter hook prerouting priority raw; policy accept;")
	s.writeLine("\t\tmeta nfproto ipv6 drop")
	s.writeLine("\t\tiifname @checked iifname . ip saddr != @own drop")
	// Responses of targets that see the client's address belong to the load balancer's sockets.
	s.writeLine(fmt.Sprintf("\t\tsocket transparent 1 meta mark set 0x%08x", localMark))
	s.writeLine("\t}")
	s.writeLine("\tchain forward { type filter hook forward priority filter; policy drop;")
	s.writeLine("\t\toifname \"" + blackholeLink + "\" drop")
	s.writeLine("\t\tct state established,related accept")
	s.writeVerdictMap("iifname", egress)
	s.writeVerdictMap("oifname", ingress)
	s.writeLine("\t}")
	s.writeInputChain(vpc, egress, toLB)
	s.writeOutputChain(ifaces, ingress, forwarded)
}

// writeInputChain renders the rules for the router's own servers. Metadata and DNS are reachable
// regardless of security groups.
func (s *ruleset) writeInputChain(vpc netspec.VPC, egress, toLB []string) {
	resolvers := []string{resolverAddr().String()}
	for _, c := range vpc.CIDRs {
		resolvers = append(resolvers, nthAddr(c, 2).String())
	}

	s.writeLine("\tchain input { type filter hook input priority filter; policy drop;")
	s.writeLine("\t\tiifname \"lo\" accept")
	s.writeLine("\t\tct state established,related accept")
	s.writeLine("\t\tip daddr " + metadataAddr().String() + " tcp dport 80 accept")
	s.writeLine(
		"\t\tip daddr { " + strings.Join(resolvers, ", ") + " } meta l4proto { tcp, udp } th dport 53 accept",
	)
	s.writeLine("\t\tip daddr " + serviceAddr().String() + " iifname != @outward drop")
	s.writeVerdictMap("iifname", egress)
	s.writeLine("\t\tip daddr " + serviceAddr().String() + " tcp dport { 80, 5000 } accept")
	s.writeVerdictMap("ip daddr", toLB)
	s.writeLine("\t}")
}

// writeOutputChain renders the rules for packets from the router: responses of its servers, and
// load balancers' connections to targets, which have the load balancer's mark. Responses of the
// metadata service have the TTL of the instance's hop limit. Packets to terminated machines are
// dropped.
func (s *ruleset) writeOutputChain(ifaces []netspec.Interface, ingress, forwarded []string) {
	hops := map[int][]string{}
	for _, i := range ifaces {
		hops[max(i.MetadataHops, 1)] = append(hops[max(i.MetadataHops, 1)], i.Addr.String())
	}

	s.writeLine("\tchain output { type filter hook output priority filter; policy accept;")

	for _, n := range sortedKeys(hops) {
		s.writeLine(
			fmt.Sprintf(
				"\t\tip saddr %s ip daddr { %s } ip ttl set %d",
				metadataAddr(),
				strings.Join(hops[n], ", "),
				n,
			),
		)
	}

	s.writeLine("\t\toifname \"" + blackholeLink + "\" drop")
	s.writeLine("\t\tct state established,related accept")
	s.writeLine("\t\ticmp type { destination-unreachable, time-exceeded, parameter-problem } accept")
	s.writeLine("\t\toifname \"lo\" accept")
	s.writeVerdictMap("meta mark", forwarded)
	s.writeVerdictMap("oifname", ingress)
	s.writeLine("\t}")
}

func (s *ruleset) writeVerdictMap(key string, elements []string) {
	if len(elements) > 0 {
		s.writeLine("\t\t" + key + " vmap { " + strings.Join(elements, ", ") + " }")
	}
}

// writeRuleChain renders the rules of one direction. Packets that match no rule are dropped without
// a response.
func (s *ruleset) writeRuleChain(name, verdict, peer string, rules []netspec.Rule) {
	s.writeLine("\tchain " + name + " {")
	for _, r := range rules {
		if cond, ok := ruleCondition(r, peer); ok {
			s.writeLine("\t\t" + cond + verdict)
		}

		if len(r.Balancers) > 0 && peer == fromPeer {
			s.writeLine("\t\t" + balancerCondition(r) + verdict)
		}
	}

	s.writeLine("\t\tdrop")
	s.writeLine("\t}")
}

// ruleCondition renders a rule's match. The second result is false for a rule without peers, such
// as one that refers to an empty security group.
func ruleCondition(r netspec.Rule, peer string) (string, bool) {
	peers := dropContainedPrefixes(r.Peers)
	if len(peers) == 0 {
		return "", false
	}

	var out strings.Builder
	if peers[0].Bits() > 0 {
		list := make([]string, len(peers))
		for i, p := range peers {
			list[i] = p.String()
		}

		out.WriteString(peer + " { " + strings.Join(list, ", ") + " } ")
	}

	out.WriteString(protocolCondition(r))

	return out.String(), true
}

// balancerCondition renders the match of what load balancers forward, whatever its source address is.
func balancerCondition(r netspec.Rule) string {
	var marks []string
	for _, addr := range r.Balancers {
		marks = append(marks, formatMark(addr))
	}

	return "meta mark { " + strings.Join(marks, ", ") + " } " + protocolCondition(r)
}

func formatMark(addr netip.Addr) string { return fmt.Sprintf("0x%08x", markOf(addr)) }

// protocolCondition renders a rule's match of the protocol, of ports, and of the type and code of ICMP.
func protocolCondition(r netspec.Rule) string {
	switch {
	case r.Protocol == "" || r.Protocol == anyProtocol:
		return ""
	case (r.Protocol == "tcp" || r.Protocol == "udp") && (r.From > 0 || r.To < 65535):
		return fmt.Sprintf("%s dport %d-%d ", r.Protocol, r.From, r.To)
	case r.Protocol == "icmp" && r.ICMPType != nil && r.ICMPCode != nil:
		return fmt.Sprintf("icmp type %d icmp code %d ", *r.ICMPType, *r.ICMPCode)
	case r.Protocol == "icmp" && r.ICMPType != nil:
		return fmt.Sprintf("icmp type %d ", *r.ICMPType)
	}

	return fmt.Sprintf("meta l4proto %s ", r.Protocol)
}

// dropContainedPrefixes sorts prefixes and removes those contained in others, because nft rejects
// sets with overlapping ranges.
func dropContainedPrefixes(prefixes []netip.Prefix) []netip.Prefix {
	sorted := slices.Clone(prefixes)
	slices.SortFunc(sorted, func(a, b netip.Prefix) int { return a.Masked().Compare(b.Masked()) })
	var out []netip.Prefix

	for _, p := range sorted {
		if !p.Addr().Is4() ||
			len(out) > 0 && out[len(out)-1].Contains(p.Addr()) && out[len(out)-1].Bits() <= p.Bits() {
			continue
		}

		out = append(out, p.Masked())
	}

	return out
}

func sortedBalancers(lbs []netspec.LoadBalancer) []netspec.LoadBalancer {
	out := slices.DeleteFunc(
		slices.Clone(lbs),
		func(lb netspec.LoadBalancer) bool { return len(lb.Addrs) == 0 },
	)

	slices.SortFunc(
		out,
		func(a, b netspec.LoadBalancer) int { return strings.Compare(balancerKey(a), balancerKey(b)) },
	)

	return out
}

// balancerKey returns the load balancer's lowest address in hex, for the names of its chains.
func balancerKey(lb netspec.LoadBalancer) string { return hexAddr(sortedAddrs(lb.Addrs)[0]) }

func sortedAddrs(m map[string]netip.Addr) []netip.Addr {
	out := make([]netip.Addr, 0, len(m))
	for _, a := range m {
		out = append(out, a)
	}

	slices.SortFunc(out, netip.Addr.Compare)

	return out
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// deleteStaleChains appends deletions of chains that are in the previous ruleset but not in text.
// Chains of an earlier process remain; they are empty and unused.
func deleteStaleChains(text, before string) string {
	var out strings.Builder
	out.WriteString(text)
	for line := range strings.Lines(before) {
		name, is := strings.CutPrefix(line, "\tchain ")
		if is && !strings.Contains(text, line) {
			out.WriteString("delete chain inet slw " + strings.TrimSuffix(name, " {\n") + "\n")
		}
	}

	return out.String()
}
