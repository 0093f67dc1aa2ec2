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
	minVPCPrefix     = 16
	maxVPCPrefix     = 28
	minServicePrefix = 12
	maxServicePrefix = 27
	nodePodPrefix    = 24
)

// dockerRange is where Docker puts its bridge; a VPC that overlaps it cannot be reached from containers of an
// operator's machine, and AWS services such as Cloud9 and SageMaker cannot use it (S5.10).
func dockerRange() netip.Prefix { return netip.MustParsePrefix("172.17.0.0/16") }

// fieldCIDR is a range with the field that it comes from.
type fieldCIDR struct {
	path   string
	prefix netip.Prefix
}

func (v validator) checkNetworking(n v1alpha1.Networking, region string) {
	v.checkChoice("spec.networking.cni", n.CNI, "flannel")
	v.checkChoice("spec.networking.natGateways", n.NATGateways, NATPerZone, NATSingle, NATNone)
	if len(validation.IsDNS1123Subdomain(n.DNSDomain)) > 0 {
		v.errorf("spec.networking.dnsDomain", n.DNSDomain, "write it as cluster.local", "is not a DNS domain")
	}

	network := v.parseSizedPrefix("spec.networking.networkCIDR", n.NetworkCIDR, minVPCPrefix, maxVPCPrefix)
	pods := v.parseSizedPrefix("spec.networking.podCIDR", n.PodCIDR, 8, nodePodPrefix)
	services := v.parseSizedPrefix(
		"spec.networking.serviceClusterIPRange",
		n.ServiceClusterIPRange,
		minServicePrefix,
		maxServicePrefix,
	)

	v.checkOverlaps([]fieldCIDR{
		{"spec.networking.networkCIDR", network},
		{"spec.networking.podCIDR", pods},
		{"spec.networking.serviceClusterIPRange", services},
	})

	for _, r := range []fieldCIDR{{"spec.networking.networkCIDR", network}, {"spec.networking.podCIDR", pods}} {
		if r.prefix.IsValid() && r.prefix.Overlaps(dockerRange()) {
			v.warnf(r.path, r.prefix.String(), "prefer 10.80.0.0/16", "overlaps Docker's %s", dockerRange())
		}
	}

	if network.IsValid() && !network.Addr().IsPrivate() {
		v.warnf(
			"spec.networking.networkCIDR",
			n.NetworkCIDR,
			"prefer a range of RFC 1918",
			"is not a private range: machines cannot reach its owners",
		)
	}

	v.checkSubnets(n, network, region)
	v.checkExistingIDs(n)
	v.checkVPCEndpoints(n)
	v.checkPeerings(n, []fieldCIDR{
		{
			"spec.networking.networkCIDR",
			network,
		}, {"spec.networking.podCIDR", pods}, {"spec.networking.serviceClusterIPRange", services},
	})
}

// parsePrefix parses a range in its canonical form; what is wrong is reported.
func (v validator) parsePrefix(path, cidr string) netip.Prefix {
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

// parseSizedPrefix parses a range whose prefix length has limits.
func (v validator) parseSizedPrefix(path, cidr string, shortest, longest int) netip.Prefix {
	p := v.parsePrefix(path, cidr)
	if p.IsValid() && (p.Bits() < shortest || p.Bits() > longest) {
		v.errorf(
			path,
			cidr,
			fmt.Sprintf("use a /%d to a /%d", shortest, longest),
			"is too large or too small",
		)
	}

	return p
}

// checkOverlaps reports each pair of ranges that overlap, at the later one.
func (v validator) checkOverlaps(rs []fieldCIDR) {
	for i, r := range rs {
		for _, earlier := range rs[:i] {
			if r.prefix.IsValid() && earlier.prefix.IsValid() && r.prefix.Overlaps(earlier.prefix) {
				v.errorf(
					r.path,
					r.prefix.String(),
					"choose ranges that do not overlap",
					"overlaps %s %s",
					earlier.path,
					earlier.prefix,
				)
			}
		}
	}
}

// checkUnique reports a value that an earlier item had.
func (v validator) checkUnique(path, value string, seen map[string]int, i int, format string) {
	if value == "" {
		return
	}

	if first, ok := seen[value]; ok {
		v.errorf(path, value, "use each once", format, first)
		return
	}

	seen[value] = i
}
