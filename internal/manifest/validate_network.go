// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// AWS's limits on the prefix length of a VPC and of a subnet, and Kubernetes's on the Service range: 20 bits at most
// (kube-apiserver's --service-cluster-ip-range), and room for the tenth address, which is CoreDNS's.
const (
	shortestVPC     = 16
	longestVPC      = 28
	shortestService = 12
	longestService  = 27
	nodePodBits     = 24
)

// dockerRange is where Docker puts its bridge; a VPC that overlaps it cannot be reached from containers of an
// operator's machine, and AWS services such as Cloud9 and SageMaker cannot use it (S5.10).
func dockerRange() netip.Prefix { return netip.MustParsePrefix("172.17.0.0/16") }

// ranged is a range with the field that it comes from.
type ranged struct {
	path   string
	prefix netip.Prefix
}

func (v validator) networking(n v1alpha1.Networking, region string) {
	v.oneOf("spec.networking.cni", n.CNI, "flannel")
	v.oneOf("spec.networking.natGateways", n.NATGateways, NATPerZone, NATSingle)
	if len(validation.IsDNS1123Subdomain(n.DNSDomain)) > 0 {
		v.errorf("spec.networking.dnsDomain", n.DNSDomain, "write it as cluster.local", "is not a DNS domain")
	}
	network := v.sized("spec.networking.networkCIDR", n.NetworkCIDR, shortestVPC, longestVPC)
	pods := v.sized("spec.networking.podCIDR", n.PodCIDR, 8, nodePodBits)
	services := v.sized("spec.networking.serviceClusterIPRange", n.ServiceClusterIPRange, shortestService, longestService)
	v.overlaps([]ranged{
		{"spec.networking.networkCIDR", network},
		{"spec.networking.podCIDR", pods},
		{"spec.networking.serviceClusterIPRange", services},
	})
	for _, r := range []ranged{{"spec.networking.networkCIDR", network}, {"spec.networking.podCIDR", pods}} {
		if r.prefix.IsValid() && r.prefix.Overlaps(dockerRange()) {
			v.warnf(r.path, r.prefix.String(), "prefer 10.80.0.0/16", "overlaps Docker's %s", dockerRange())
		}
	}
	if network.IsValid() && !network.Addr().IsPrivate() {
		v.warnf("spec.networking.networkCIDR", n.NetworkCIDR, "prefer a range of RFC 1918", "is not a private range: machines cannot reach its owners")
	}
	v.subnets(n, network, region)
}

// prefix parses a range in its canonical form; what is wrong is reported.
func (v validator) prefix(path, cidr string) netip.Prefix {
	p, err := netip.ParsePrefix(cidr)
	switch {
	case err != nil || !p.Addr().Is4():
		v.errorf(path, cidr, "write it as 10.80.0.0/16", "is not an IPv4 range")
	case p != p.Masked():
		v.errorf(path, cidr, "write "+p.Masked().String(), "has bits set to the right of its prefix")
	default:
		return p
	}
	return netip.Prefix{}
}

// sized parses a range whose prefix length has limits.
func (v validator) sized(path, cidr string, shortest, longest int) netip.Prefix {
	p := v.prefix(path, cidr)
	if p.IsValid() && (p.Bits() < shortest || p.Bits() > longest) {
		v.errorf(path, cidr, fmt.Sprintf("use a /%d to a /%d", shortest, longest), "is too large or too small")
	}
	return p
}

// overlaps reports each pair of ranges that overlap, at the later one.
func (v validator) overlaps(rs []ranged) {
	for i, r := range rs {
		for _, earlier := range rs[:i] {
			if r.prefix.IsValid() && earlier.prefix.IsValid() && r.prefix.Overlaps(earlier.prefix) {
				v.errorf(r.path, r.prefix.String(), "choose ranges that do not overlap", "overlaps %s %s", earlier.path, earlier.prefix)
			}
		}
	}
}

func (v validator) subnets(n v1alpha1.Networking, network netip.Prefix, region string) {
	if len(n.Subnets) == 0 {
		v.errorf("spec.networking.subnets", "", "list a Private and a Public one in each zone", "must not be empty")
	}
	var ranges []ranged
	names := map[string]int{}
	zones := map[v1alpha1.SubnetType]map[string]int{v1alpha1.SubnetPrivate: {}, v1alpha1.SubnetPublic: {}}
	for i, s := range n.Subnets {
		at := fmt.Sprintf("spec.networking.subnets[%d]", i)
		v.subnetFields(at, s, region)
		v.unique(at+".name", s.Name, names, i, "is the name of subnets[%d] too")
		if seen, ok := zones[s.Type]; ok {
			v.unique(at+".zone", s.Zone, seen, i, "has a "+string(s.Type)+" subnet already: subnets[%d]")
		}
		ranges = append(ranges, ranged{at + ".cidr", v.subnetRange(at+".cidr", s, network)})
	}
	v.overlaps(ranges)
	for i, s := range n.Subnets {
		_, public := zones[v1alpha1.SubnetPublic][s.Zone]
		if s.Type == v1alpha1.SubnetPrivate && !public {
			v.errorf(fmt.Sprintf("spec.networking.subnets[%d].zone", i), s.Zone, "add a Public subnet in this zone, for NAT and the load balancer",
				"has a Private subnet and no Public one")
		}
	}
	if len(n.Subnets) > 0 && len(zones[v1alpha1.SubnetPrivate]) == 0 {
		v.errorf("spec.networking.subnets", "", "add a Private subnet in each zone", "has no Private one for machines")
	}
}

func (v validator) subnetFields(at string, s v1alpha1.Subnet, region string) {
	if !ValidName(s.Name) {
		v.errorf(at+".name", s.Name, "write it as private-a", "is not a DNS label")
	}
	if s.Name == "public" && s.Type == v1alpha1.SubnetPrivate {
		v.errorf(at+".name", s.Name, "write it as private-a", "is the name of the public route table")
	}
	v.oneOf(at+".type", string(s.Type), string(v1alpha1.SubnetPrivate), string(v1alpha1.SubnetPublic))
	switch {
	case !zonePattern().MatchString(s.Zone):
		v.errorf(at+".zone", s.Zone, "write it as us-east-1a", "is not an availability zone")
	case s.Zone[:len(s.Zone)-1] != region:
		v.errorf(at+".zone", s.Zone, "use zones of one region", "is not in the cluster's region %s", region)
	}
}

// unique reports a value that an earlier item had.
func (v validator) unique(path, value string, seen map[string]int, i int, format string) {
	if value == "" {
		return
	}
	if first, ok := seen[value]; ok {
		v.errorf(path, value, "use each once", format, first)
		return
	}
	seen[value] = i
}

func (v validator) subnetRange(path string, s v1alpha1.Subnet, network netip.Prefix) netip.Prefix {
	if s.CIDR == "" {
		v.errorf(path, "", "give ranges yourself, or a larger networkCIDR", "has no free range left in the network")
		return netip.Prefix{}
	}
	p := v.sized(path, s.CIDR, shortestVPC, longestVPC)
	if p.IsValid() && network.IsValid() && (p.Bits() < network.Bits() || !network.Contains(p.Addr())) {
		v.errorf(path, s.CIDR, "choose a range within it", "is not within networkCIDR %s", network)
	}
	return p
}
