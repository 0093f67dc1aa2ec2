// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// Limits of prefix lengths: those of AWS for VPCs and subnets, and those of Kubernetes for the
// Service range. That range has at most 20 host bits (kube-apiserver's --service-cluster-ip-range),
// and contains the tenth address, which CoreDNS has.
const (
	minVPCPrefix     = 16
	maxVPCPrefix     = 28
	minServicePrefix = 12
	maxServicePrefix = 27
	nodePodPrefix    = 24
)

// dockerRange returns the range of Docker's bridge. Containers on an operator's machine cannot
// reach a VPC that overlaps it, and AWS services such as Cloud9 and SageMaker cannot use such a
// VPC.
func dockerRange() netip.Prefix { return netip.MustParsePrefix("172.17.0.0/16") }

// fieldCIDR is an address range and the path of its field.
type fieldCIDR struct {
	path   string
	prefix netip.Prefix
}

func (v validator) checkNetworking(n v1alpha1.Networking, region string) {
	checkCNI(v, n)
	v.checkChoice("spec.networking.natGateways", n.NATGateways, NATPerZone, NATSingle, NATNone)
	if n.Hostnames != "" {
		v.checkChoice("spec.networking.hostnames", n.Hostnames, v1alpha1.HostnamesByResource, v1alpha1.HostnamesByAddress)
	}

	if len(validation.IsDNS1123Subdomain(n.DNSDomain)) > 0 {
		v.errorf("spec.networking.dnsDomain", n.DNSDomain, "write it as cluster.local", "is not a DNS domain")
	}

	network := v.parseSizedPrefix("spec.networking.networkCIDR", n.NetworkCIDR, minVPCPrefix, maxVPCPrefix)
	var pods netip.Prefix // none, if pods have addresses of the VPC
	if n.CNI != v1alpha1.CNIAmazonVPC {
		pods = v.parseSizedPrefix("spec.networking.podCIDR", n.PodCIDR, 8, nodePodPrefix)
	}

	services := v.parseSizedPrefix(
		"spec.networking.serviceClusterIPRange",
		n.ServiceClusterIPRange,
		minServicePrefix,
		maxServicePrefix,
	)

	own := []fieldCIDR{
		{"spec.networking.networkCIDR", network},
		{"spec.networking.podCIDR", pods},
		{"spec.networking.serviceClusterIPRange", services},
	}

	v.checkOverlaps(own)

	for _, r := range own[:2] {
		if r.prefix.IsValid() && r.prefix.Overlaps(dockerRange()) {
			v.warnf(r.path, r.prefix.String(), "use 10.80.0.0/16", "overlaps Docker's %s", dockerRange())
		}
	}

	if network.IsValid() && !network.Addr().IsPrivate() {
		v.warnf(
			"spec.networking.networkCIDR",
			n.NetworkCIDR,
			"use a private range (RFC 1918)",
			"is not a private range: machines cannot reach its hosts on the internet",
		)
	}

	v.checkSubnets(n, network, region)
	v.checkExistingIDs(n)
	v.checkVPCEndpoints(n)
	v.checkPeerings(n, own)
}

// parsePrefix parses an IPv4 CIDR in canonical form. It reports an invalid one and returns an
// invalid prefix.
func (v validator) parsePrefix(path, cidr string) netip.Prefix {
	p, err := netip.ParsePrefix(cidr)
	switch {
	case err != nil || !p.Addr().Is4():
		v.errorf(path, cidr, "write it as 10.80.0.0/16", "is not a valid IPv4 CIDR")
	case p != p.Masked():
		v.errorf(path, cidr, "use "+p.Masked().String(), "has host bits set")
	default:
		return p
	}

	return netip.Prefix{}
}

// parseSizedPrefix parses an IPv4 CIDR whose prefix length must be between shortest and longest.
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

// checkOverlaps reports each pair of overlapping ranges at the path of the later one.
func (v validator) checkOverlaps(ranges []fieldCIDR) {
	for i, r := range ranges {
		for _, earlier := range ranges[:i] {
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

// checkUnique reports a value that is already in seen, which maps values to the index of their
// first item. The format has one verb, for that index.
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
