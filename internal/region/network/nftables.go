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

// The verdicts of a matching rule: a packet must pass its sender's chain (return) and then its receiver's (accept).
const (
	verdictAccept = "accept"
	verdictReturn = "return"
)

const anyProtocol = "-1" // EC2's own word for it

// renderRuleset renders a VPC's whole rule set as one transaction for nft(8). The same picture gives the same bytes.
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
	// The chains stay and only their rules are exchanged: replacing the table as a whole was seen to lose packets.
	s.writeLine("flush table inet slw")
	s.writeSets(vpc, ifaces)
	s.writeLine("table inet slw {")
	s.writeHooks(vpc, ifaces)
	for _, i := range ifaces {
		s.writeRuleChain("out_"+linkName(i.Addr), verdictReturn, "ip daddr", i.Egress)
		s.writeRuleChain("in_"+linkName(i.Addr), verdictAccept, "ip saddr", i.Ingress)
	}

	for _, lb := range sortedBalancers(vpc.LoadBalancers) {
		ingress := lb.Ingress
		egress := lb.Egress
		if lb.AdmitAll {
			ingress = anyRules()
			egress = anyRules()
		}

		s.writeRuleChain("lbout_"+balancerKey(lb), verdictReturn, "ip daddr", egress)
		s.writeRuleChain("lbin_"+balancerKey(lb), verdictAccept, "ip saddr", ingress)
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
			own = append(own, name+" . "+i.Addr.String())
		}

		if s.reachesOutside(i) || len(endpointsOf(vpc, i)) > 0 {
			outward = append(outward, name) // which of the services it gets, see guard
		}
	}

	s.writeSet("own", "ifname . ipv4_addr", own)
	s.writeSet("checked", "ifname", checked)
	s.writeSet("outward", "ifname", outward)
}

// reachesOutside says whether the interface reaches what lies outside the VPC.
func (s *ruleset) reachesOutside(i netspec.Interface) bool {
	way := s.subnets[i.Subnet].DefaultRoute
	return way == netspec.RouteNAT || way == netspec.RouteInternet && i.Public.IsValid()
}

func (s *ruleset) writeSet(name, kind string, elements []string) {
	s.writeLine("add set inet slw " + name + " { type " + kind + "; }")
	s.writeLine("flush set inet slw " + name)
	if len(elements) > 0 {
		s.writeLine("add element inet slw " + name + " { " + strings.Join(elements, ", ") + " }")
	}
}

// writeHooks renders where packets enter: from machines (forward), to the router's own services (input), and from them
// (output).
func (s *ruleset) writeHooks(vpc netspec.VPC, ifaces []netspec.Interface) {
	var egress, ingress, toLB, fromLB []string
	for _, i := range ifaces {
		name := linkName(i.Addr)
		egress = append(egress, strconv.Quote(name)+" : jump out_"+name)
		ingress = append(ingress, strconv.Quote(name)+" : goto in_"+name)
	}

	for _, lb := range sortedBalancers(vpc.LoadBalancers) {
		for _, addr := range sortedAddrs(lb.Addrs) {
			toLB = append(toLB, addr.String()+" : goto lbin_"+balancerKey(lb))
			fromLB = append(fromLB, addr.String()+" : jump lbout_"+balancerKey(lb))
		}
	}

	s.writeLine("\tchain prerouting { type filter hook prerouting priority raw; policy accept;")
	s.writeLine("\t\tmeta nfproto ipv6 drop")
	s.writeLine("\t\tiifname @checked iifname . ip saddr != @own drop")
	s.writeLine("\t}")
	s.writeLine("\tchain forward { type filter hook forward priority filter; policy drop;")
	s.writeLine("\t\toifname \"" + blackholeLink + "\" drop")
	s.writeLine("\t\tct state established,related accept")
	s.writeVerdictMap("iifname", egress)
	s.writeVerdictMap("oifname", ingress)
	s.writeLine("\t}")
	s.writeInputChain(vpc, egress, toLB)
	s.writeOutputChain(ifaces, ingress, fromLB)
}

// writeInputChain decides what the router's own services take. Metadata and names are reachable whatever security groups say.
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

// writeOutputChain decides what the router itself sends: answers of its services, and load balancers calling their targets.
// An answer of the metadata service dies after as many hops as its instance allows. The router itself learns at once
// that a machine is gone, so that its load balancers turn to another; machines meet silence there.
func (s *ruleset) writeOutputChain(ifaces []netspec.Interface, ingress, fromLB []string) {
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

	s.writeLine("\t\toifname \"" + blackholeLink + "\" meta l4proto tcp reject with tcp reset")
	s.writeLine("\t\toifname \"" + blackholeLink + "\" drop")
	s.writeLine("\t\tct state established,related accept")
	s.writeLine("\t\ticmp type { destination-unreachable, time-exceeded, parameter-problem } accept")
	s.writeLine("\t\toifname \"lo\" accept")
	s.writeVerdictMap("ip saddr", fromLB)
	s.writeVerdictMap("oifname", ingress)
	s.writeLine("\t}")
}

func (s *ruleset) writeVerdictMap(key string, elements []string) {
	if len(elements) > 0 {
		s.writeLine("\t\t" + key + " vmap { " + strings.Join(elements, ", ") + " }")
	}
}

// writeRuleChain renders one direction of a security group's rules; what no rule admits is dropped without a word.
func (s *ruleset) writeRuleChain(name, verdict, peer string, rules []netspec.Rule) {
	s.writeLine("\tchain " + name + " {")
	for _, r := range rules {
		if cond, ok := ruleCondition(r, peer); ok {
			s.writeLine("\t\t" + cond + verdict)
		}
	}

	s.writeLine("\t\tdrop")
	s.writeLine("\t}")
}

// ruleCondition renders a rule's match. A rule without peers, such as one that names an empty group, admits nobody.
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

	switch {
	case r.Protocol == "" || r.Protocol == anyProtocol:
	case (r.Protocol == "tcp" || r.Protocol == "udp") && (r.From > 0 || r.To < 65535):
		fmt.Fprintf(&out, "%s dport %d-%d ", r.Protocol, r.From, r.To)
	default:
		fmt.Fprintf(&out, "meta l4proto %s ", r.Protocol)
	}

	return out.String(), true
}

// dropContainedPrefixes sorts prefixes and leaves out those that another one contains: nft refuses sets whose ranges overlap.
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
	with := slices.DeleteFunc(
		slices.Clone(lbs),
		func(lb netspec.LoadBalancer) bool { return len(lb.Addrs) == 0 },
	)

	slices.SortFunc(
		with,
		func(a, b netspec.LoadBalancer) int { return strings.Compare(balancerKey(a), balancerKey(b)) },
	)

	return with
}

// balancerKey names a load balancer's chains by its lowest address.
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

// deleteStaleChains adds the removal of chains that the script loaded before has and this one has not. Chains that an
// earlier process left stay: they are empty and nothing leads to them.
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
