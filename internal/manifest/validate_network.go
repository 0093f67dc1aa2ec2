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
	v.oneOf("spec.networking.natGateways", n.NATGateways, NATPerZone, NATSingle, NATNone)
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
	v.existing(n)
	v.endpoints(n)
	v.peerings(n, []ranged{
		{"spec.networking.networkCIDR", network}, {"spec.networking.podCIDR", pods}, {"spec.networking.serviceClusterIPRange", services},
	})
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
