// SPDX-License-Identifier: Apache-2.0

package network

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"

	"github.com/slipway-k8s/slipway/internal/region/netspec"
)

// dnsZone holds all names of a VPC's resolver. The resolver never forwards queries, so unknown
// names are answered at once.
type dnsZone struct {
	names     map[string][]netip.Addr         // by name in lower case with the final dot
	balancers map[string][]string             // ARNs of load balancers by name, likewise
	services  map[string][]netspec.DNSService // SRV records, by name
	times     map[string]uint32               // how long a name may be cached, in seconds
	ptr       map[string]string               // reverse name to name

	// namedAddrs returns the addresses that the name of a load balancer has at the moment.
	namedAddrs func(arn string) []netip.Addr
}

const (
	answerTTL   = 60 // seconds, as for an instance's private name in a VPC
	negativeTTL = 5  // seconds; short, because a new machine's name is queried before it exists
)

func newDNSZone(vpc netspec.VPC, namedAddrs func(arn string) []netip.Addr) *dnsZone {
	z := &dnsZone{
		names:      map[string][]netip.Addr{},
		balancers:  map[string][]string{},
		services:   map[string][]netspec.DNSService{},
		times:      map[string]uint32{},
		ptr:        map[string]string{},
		namedAddrs: namedAddrs,
	}
	for name, list := range vpc.DNSServices {
		z.services[dns.CanonicalName(name)] = slices.Clone(list)
	}

	for name, seconds := range vpc.DNSTimes {
		z.times[dns.CanonicalName(name)] = seconds
	}

	z.names["instance-data.ec2.internal."] = []netip.Addr{metadataAddr()}
	z.names["localhost."] = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}

	for _, name := range sortedKeys(vpc.DNSNames) {
		full := dns.CanonicalName(name)
		z.names[full] = slices.Clone(vpc.DNSNames[name])
		z.addReverse(full, vpc.DNSNames[name])
	}

	addrs := map[string][]netip.Addr{}
	for _, lb := range vpc.LoadBalancers {
		addrs[lb.ARN] = sortedAddrs(lb.Addrs)
	}

	for _, name := range sortedKeys(vpc.BalancerNames) {
		full := dns.CanonicalName(name)
		z.balancers[full] = slices.Clone(vpc.BalancerNames[name])
		for _, arn := range vpc.BalancerNames[name] {
			z.addReverse(full, addrs[arn])
		}
	}

	return z
}

// addServices adds the host names of the region's services.
func (z *dnsZone) addServices(names []string) {
	for _, name := range names {
		z.names[dns.CanonicalName(name)] = []netip.Addr{serviceAddr()}
	}
}

// addReverse adds the reverse names of addresses. An instance's private name takes precedence over load balancers
// and aliases.
func (z *dnsZone) addReverse(full string, addrs []netip.Addr) {
	for _, addr := range addrs {
		reverse, err := dns.ReverseAddr(addr.String())
		if err != nil {
			continue
		}

		current := z.ptr[reverse]
		if current == "" || strings.HasPrefix(full, "ip-") && !strings.HasPrefix(current, "ip-") {
			z.ptr[reverse] = full
		}
	}
}

// answerQuery returns the response to a query. An unsupported query gets NOTIMP.
func (z *dnsZone) answerQuery(req *dns.Msg) *dns.Msg {
	out := new(dns.Msg)
	out.SetReply(req)
	out.RecursionAvailable = true
	if req.IsEdns0() != nil {
		out.SetEdns0(1232, false)
	}

	if len(req.Question) != 1 || req.Opcode != dns.OpcodeQuery {
		out.Rcode = dns.RcodeNotImplemented
		return out
	}

	records, known := z.lookupRecords(req.Question[0].Name)
	if !known {
		out.Rcode = dns.RcodeNameError
	}

	for _, rr := range records {
		if kind := req.Question[0].Qtype; kind == rr.Header().Rrtype || kind == dns.TypeANY {
			out.Answer = append(out.Answer, rr)
		}
	}

	if len(out.Answer) == 0 {
		out.Ns = append(out.Ns, negativeSOA())
	}

	return out
}

// lookupRecords returns all records of a name. The records repeat the name as it was queried. The
// second result is false if the name is unknown.
func (z *dnsZone) lookupRecords(asked string) ([]dns.RR, bool) {
	name := dns.CanonicalName(asked)
	static, known := z.names[name]
	addrs := slices.Clone(static)
	arns, isBalancer := z.balancers[name]
	for _, arn := range arns {
		addrs = append(addrs, z.namedAddrs(arn)...)
	}

	var out []dns.RR
	for _, a := range addrs {
		out = append(out, &dns.A{Hdr: z.recordHeader(asked, dns.TypeA), A: a.AsSlice()})
	}

	for _, s := range z.services[name] {
		out = append(out, &dns.SRV{
			Hdr:      z.recordHeader(asked, dns.TypeSRV),
			Priority: s.Priority,
			Weight:   s.Weight,
			Port:     s.Port,
			Target:   dns.Fqdn(s.Target),
		})
	}

	target, isReverse := z.ptr[name]
	if isReverse {
		out = append(out, &dns.PTR{Hdr: z.recordHeader(asked, dns.TypePTR), Ptr: target})
	}

	return out, known || isBalancer || isReverse || len(z.services[name]) > 0
}

func (z *dnsZone) recordHeader(name string, kind uint16) dns.RR_Header {
	ttl := uint32(answerTTL)
	if t, ok := z.times[dns.CanonicalName(name)]; ok {
		ttl = t
	}

	return dns.RR_Header{
		Name:   name,
		Rrtype: kind,
		Class:  dns.ClassINET,
		Ttl:    ttl,
	}
}

// negativeSOA limits how long resolvers on machines cache negative responses.
func negativeSOA() dns.RR {
	return &dns.SOA{
		Hdr: dns.RR_Header{
			Name:   ".",
			Rrtype: dns.TypeSOA,
			Class:  dns.ClassINET,
			Ttl:    negativeTTL,
		},
		Ns:      "ns.slipway.internal.",
		Mbox:    "hostmaster.slipway.internal.",
		Serial:  1,
		Refresh: 7200,
		Retry:   900,
		Expire:  1209600,
		Minttl:  negativeTTL,
	}
}
