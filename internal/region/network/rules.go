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

	"github.com/slipway-k8s/slipway/internal/region/fabric"
)

// The verdicts of a matching rule: a packet must pass its sender's chain (return) and then its receiver's (accept).
const (
	admit = "accept"
	pass  = "return"
)

const anyProtocol = "-1" // EC2's own word for it

// script renders a VPC's whole rule set as one transaction for nft(8). The same picture gives the same bytes.
func script(vpc fabric.VPC) string {
	s := &ruleset{subnets: map[string]fabric.Subnet{}}
	for _, sub := range vpc.Subnets {
		s.subnets[sub.ID] = sub
	}
	ifaces := slices.SortedFunc(slices.Values(vpc.Interfaces), func(a, b fabric.Interface) int { return a.Addr.Compare(b.Addr) })
	s.line("table inet slw")
	// The chains stay and only their rules are exchanged: replacing the table as a whole was seen to lose packets.
	s.line("flush table inet slw")
	s.sets(vpc, ifaces)
	s.line("table inet slw {")
	s.hooks(vpc, ifaces)
	for _, i := range ifaces {
		s.chain("out_"+linkName(i.Addr), pass, "ip daddr", i.Egress)
		s.chain("in_"+linkName(i.Addr), admit, "ip saddr", i.Ingress)
	}
	for _, lb := range sortedBalancers(vpc.LoadBalancers) {
		ingress, egress := lb.Ingress, lb.Egress
		if lb.Open {
			ingress, egress = anything(), anything()
		}
		s.chain("lbout_"+lbKey(lb), pass, "ip daddr", egress)
		s.chain("lbin_"+lbKey(lb), admit, "ip saddr", ingress)
	}
	s.line("}")
	return s.out.String()
}

func anything() []fabric.Rule {
	return []fabric.Rule{{Peers: []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0)}}}
}

type ruleset struct {
	out     strings.Builder
	subnets map[string]fabric.Subnet
}

func (s *ruleset) line(text string) { s.out.WriteString(text + "\n") }

func (s *ruleset) sets(vpc fabric.VPC, ifaces []fabric.Interface) {
	var own, checked, outward []string
	for _, i := range ifaces {
		name := strconv.Quote(linkName(i.Addr))
		if i.SourceDestCheck {
			checked = append(checked, name)
			own = append(own, name+" . "+i.Addr.String())
		}
		if s.outward(i) || len(endpointsOf(vpc, i)) > 0 {
			outward = append(outward, name) // which of the services it gets, see guard
		}
	}
	s.set("own", "ifname . ipv4_addr", own)
	s.set("checked", "ifname", checked)
	s.set("outward", "ifname", outward)
}

// outward says whether the interface reaches what lies outside the VPC.
func (s *ruleset) outward(i fabric.Interface) bool {
	way := s.subnets[i.Subnet].Default
	return way == fabric.RouteNAT || way == fabric.RouteInternet && i.Public.IsValid()
}

func (s *ruleset) set(name, kind string, elements []string) {
	s.line("add set inet slw " + name + " { type " + kind + "; }")
	s.line("flush set inet slw " + name)
	if len(elements) > 0 {
		s.line("add element inet slw " + name + " { " + strings.Join(elements, ", ") + " }")
	}
}

// hooks renders where packets enter: from machines (forward), to the router's own services (input), and from them
// (output).
func (s *ruleset) hooks(vpc fabric.VPC, ifaces []fabric.Interface) {
	var egress, ingress, toLB, fromLB []string
	for _, i := range ifaces {
		name := linkName(i.Addr)
		egress = append(egress, strconv.Quote(name)+" : jump out_"+name)
		ingress = append(ingress, strconv.Quote(name)+" : goto in_"+name)
	}
	for _, lb := range sortedBalancers(vpc.LoadBalancers) {
		for _, addr := range sortedAddrs(lb.Addrs) {
			toLB = append(toLB, addr.String()+" : goto lbin_"+lbKey(lb))
			fromLB = append(fromLB, addr.String()+" : jump lbout_"+lbKey(lb))
		}
	}
	s.line("\tchain prerouting { type filter hook prerouting priority raw; policy accept;")
	s.line("\t\tmeta nfproto ipv6 drop")
	s.line("\t\tiifname @checked iifname . ip saddr != @own drop")
	s.line("\t}")
	s.line("\tchain forward { type filter hook forward priority filter; policy drop;")
	s.line("\t\toifname \"" + voidLink + "\" drop")
	s.line("\t\tct state established,related accept")
	s.vmap("iifname", egress)
	s.vmap("oifname", ingress)
	s.line("\t}")
	s.input(vpc, egress, toLB)
	s.output(ifaces, ingress, fromLB)
}

// input decides what the router's own services take. Metadata and names are reachable whatever security groups say.
func (s *ruleset) input(vpc fabric.VPC, egress, toLB []string) {
	resolvers := []string{resolverAddr().String()}
	for _, c := range vpc.CIDRs {
		resolvers = append(resolvers, nth(c, 2).String())
	}
	s.line("\tchain input { type filter hook input priority filter; policy drop;")
	s.line("\t\tiifname \"lo\" accept")
	s.line("\t\tct state established,related accept")
	s.line("\t\tip daddr " + metadataAddr().String() + " tcp dport 80 accept")
	s.line("\t\tip daddr { " + strings.Join(resolvers, ", ") + " } meta l4proto { tcp, udp } th dport 53 accept")
	s.line("\t\tip daddr " + serviceAddr().String() + " iifname != @outward drop")
	s.vmap("iifname", egress)
	s.line("\t\tip daddr " + serviceAddr().String() + " tcp dport { 80, 5000 } accept")
	s.vmap("ip daddr", toLB)
	s.line("\t}")
}

// output decides what the router itself sends: answers of its services, and load balancers calling their targets.
// An answer of the metadata service dies after as many hops as its instance allows. The router itself learns at once
// that a machine is gone, so that its load balancers turn to another; machines meet silence there.
func (s *ruleset) output(ifaces []fabric.Interface, ingress, fromLB []string) {
	hops := map[int][]string{}
	for _, i := range ifaces {
		hops[max(i.MetadataHops, 1)] = append(hops[max(i.MetadataHops, 1)], i.Addr.String())
	}
	s.line("\tchain output { type filter hook output priority filter; policy accept;")
	for _, n := range sortedKeys(hops) {
		s.line(fmt.Sprintf("\t\tip saddr %s ip daddr { %s } ip ttl set %d", metadataAddr(), strings.Join(hops[n], ", "), n))
	}
	s.line("\t\toifname \"" + voidLink + "\" meta l4proto tcp reject with tcp reset")
	s.line("\t\toifname \"" + voidLink + "\" drop")
	s.line("\t\tct state established,related accept")
	s.line("\t\ticmp type { destination-unreachable, time-exceeded, parameter-problem } accept")
	s.line("\t\toifname \"lo\" accept")
	s.vmap("ip saddr", fromLB)
	s.vmap("oifname", ingress)
	s.line("\t}")
}

func (s *ruleset) vmap(key string, elements []string) {
	if len(elements) > 0 {
		s.line("\t\t" + key + " vmap { " + strings.Join(elements, ", ") + " }")
	}
}

// chain renders one direction of a security group's rules; what no rule admits is dropped without a word.
func (s *ruleset) chain(name, verdict, peer string, rules []fabric.Rule) {
	s.line("\tchain " + name + " {")
	for _, r := range rules {
		if cond, ok := condition(r, peer); ok {
			s.line("\t\t" + cond + verdict)
		}
	}
	s.line("\t\tdrop")
	s.line("\t}")
}

// condition renders a rule's match. A rule without peers, such as one that names an empty group, admits nobody.
func condition(r fabric.Rule, peer string) (string, bool) {
	peers := disjoint(r.Peers)
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

// disjoint sorts prefixes and leaves out those that another one contains: nft refuses sets whose ranges overlap.
func disjoint(prefixes []netip.Prefix) []netip.Prefix {
	sorted := slices.Clone(prefixes)
	slices.SortFunc(sorted, func(a, b netip.Prefix) int { return a.Masked().Compare(b.Masked()) })
	var out []netip.Prefix
	for _, p := range sorted {
		if !p.Addr().Is4() || len(out) > 0 && out[len(out)-1].Contains(p.Addr()) && out[len(out)-1].Bits() <= p.Bits() {
			continue
		}
		out = append(out, p.Masked())
	}
	return out
}

func sortedBalancers(lbs []fabric.LoadBalancer) []fabric.LoadBalancer {
	with := slices.DeleteFunc(slices.Clone(lbs), func(lb fabric.LoadBalancer) bool { return len(lb.Addrs) == 0 })
	slices.SortFunc(with, func(a, b fabric.LoadBalancer) int { return strings.Compare(lbKey(a), lbKey(b)) })
	return with
}

// lbKey names a load balancer's chains by its lowest address.
func lbKey(lb fabric.LoadBalancer) string { return hexAddr(sortedAddrs(lb.Addrs)[0]) }

func sortedAddrs(m map[string]netip.Addr) []netip.Addr {
	out := make([]netip.Addr, 0, len(m))
	for _, a := range m {
		out = append(out, a)
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// withoutStale adds the removal of chains that the script loaded before has and this one has not. Chains that an
// earlier process left stay: they are empty and nothing leads to them.
func withoutStale(text, before string) string {
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
