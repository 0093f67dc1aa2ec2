// SPDX-License-Identifier: Apache-2.0

// Package unmanaged checks the existing AWS resources that a manifest names by their ids and that Slipway
// never changes: the VPC, its subnets, gateways, security groups and routes, peered VPCs, hosted zones,
// instance profiles and the KMS key. It is pure: package aws reads the facts, and [Check] compares them with
// the manifest.
package unmanaged

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// Facts is what AWS reports about the ids in a manifest. Resources that do not exist are left out.
type Facts struct {
	// CIDRs lists the address ranges of the VPC; empty if it does not exist.
	CIDRs []string
	// DNSHostnames is the attribute enableDnsHostnames of the VPC.
	DNSHostnames bool
	// DNSSupport is the attribute enableDnsSupport of the VPC.
	DNSSupport bool
	// InternetGateways lists the ids of the gateways that are attached to the VPC.
	InternetGateways []string
	// Subnets has all subnets of the VPC and those in the manifest, by id.
	Subnets map[string]Subnet
	// VPCByResource has the VPCs of security groups and available NAT gateways, by id.
	VPCByResource map[string]string
	// AddressAssociations has the association of each Elastic IP address by its allocation id; empty: not
	// associated.
	AddressAssociations map[string]string
	// ProfileRoles has the roles of instance profiles, by the profile's name.
	ProfileRoles map[string]string
	// ProfileTrust has what else than EC2 can assume the roles of instance profiles, by the profile's name: see [OtherPrincipals].
	ProfileTrust map[string][]string
	// KeyStates has the states of KMS keys, such as Enabled, by ARN.
	KeyStates map[string]string
	// Routes lists the destinations of routes to peers, VPNs and transit gateways, but not to the internet.
	Routes []OwnedRange
	// Peers has the other VPCs of the manifest's peerings, by id.
	Peers map[string]PeerVPC
	// HostedZone is the hosted zone that the manifest names by its id.
	HostedZone HostedZone
}

// Subnet is what EC2 reports about a subnet.
type Subnet struct {
	// VPC is the id of its VPC.
	VPC string
	// Zone such as us-east-1a.
	Zone string
	// CIDR is its address range.
	CIDR string
	// Cluster is the value of its tag slipway.dev/cluster; empty: not created by Slipway.
	Cluster string
	// PublicAddresses is true if instances get a public address at launch.
	PublicAddresses bool
}

// OwnedRange is an address range and the resource that uses it.
type OwnedRange struct {
	// CIDR is the range.
	CIDR string
	// Owner is the id of a VPC, of a route's target, or of a subnet.
	Owner string
}

// IsNeeded reports whether the manifest names any existing resource, so that [Check] needs facts.
func IsNeeded(c v1alpha1.Cluster) bool {
	p := c.Spec.CloudProvider.AWS
	return c.Spec.Networking.NetworkID != "" || len(c.Spec.Networking.VPCPeerings) > 0 ||
		manifest.IsZoneID(c.Spec.DNSZone) ||
		p.KMSKeyARN != "" ||
		p.InstanceProfiles != v1alpha1.Existing{}
}

// Check returns an error finding for each existing resource that is missing or does not match the manifest.
func Check(c v1alpha1.Cluster, groups []v1alpha1.InstanceGroup, f Facts) diag.Findings {
	k := checker{pathPrefix: "cluster/" + c.Metadata.Name + ": ", facts: f, groups: groups}
	if n := c.Spec.Networking; n.NetworkID != "" && k.checkVPC(n) {
		k.checkSubnets(n)
		k.checkEgress(n)
		k.checkClusterRanges(n)
		k.checkSecurityGroups(c.Spec)
		k.checkInstanceConnect(c.Spec)
	}

	k.checkPeerings(c.Spec.Networking)
	k.checkHostedZone(c.Spec)
	k.checkProfilesAndKey(c.Spec.CloudProvider.AWS)

	return k.findings
}

type checker struct {
	pathPrefix string
	facts      Facts
	groups     []v1alpha1.InstanceGroup
	findings   diag.Findings
}

func (k *checker) addErrorf(path, value, hint, format string, args ...any) {
	k.findings.Errorf(k.pathPrefix+path, value, hint, format, args...)
}

// checkVPC checks the VPC; false if it does not exist.
func (k *checker) checkVPC(n v1alpha1.Networking) bool {
	const at = "spec.networking.networkID"
	if len(k.facts.CIDRs) == 0 {
		k.addErrorf(at, n.NetworkID, "see: aws ec2 describe-vpcs", "is not a VPC of this account and region")
		return false
	}

	if !slices.Contains(k.facts.CIDRs, n.NetworkCIDR) {
		k.addErrorf(
			"spec.networking.networkCIDR",
			n.NetworkCIDR,
			"use "+strings.Join(k.facts.CIDRs, " or "),
			"is not a range of %s",
			n.NetworkID,
		)
	}

	if !k.facts.DNSSupport || !k.facts.DNSHostnames {
		k.addErrorf(
			at,
			n.NetworkID,
			"set its attributes enableDnsSupport and enableDnsHostnames",
			"has DNS support or DNS hostnames disabled",
		)
	}

	if g := n.InternetGatewayID; g != "" && !slices.Contains(k.facts.InternetGateways, g) {
		k.addErrorf(
			"spec.networking.internetGatewayID",
			g,
			"use one of: "+strings.Join(k.facts.InternetGateways, ", "),
			"is not attached to %s",
			n.NetworkID,
		)
	}

	return true
}

func (k *checker) checkSubnets(n v1alpha1.Networking) {
	for i, s := range n.Subnets {
		at := fmt.Sprintf("spec.networking.subnets[%d]", i)
		have, found := k.facts.Subnets[s.ID]
		switch {
		case s.ID == "":
			k.checkRangeFree(at, n, s)
		case !found:
			k.addErrorf(
				at+".id",
				s.ID,
				"see: aws ec2 describe-subnets",
				"is not a subnet of this account and region",
			)

		case have.VPC != n.NetworkID:
			k.addErrorf(at+".id", s.ID, "use a subnet of "+n.NetworkID, "is in %s", have.VPC)
		case have.Zone != s.Zone:
			k.addErrorf(at+".zone", s.Zone, "set zone to "+have.Zone, "is not the zone of %s", s.ID)
		case s.CIDR != "" && have.CIDR != s.CIDR:
			k.addErrorf(
				at+".cidr",
				s.CIDR,
				"set cidr to "+have.CIDR+", or remove it",
				"is not the range of %s",
				s.ID,
			)

		case s.Type == v1alpha1.SubnetPublic && !have.PublicAddresses && k.hasMachines(s.Name):
			k.addErrorf(
				at+".id",
				s.ID,
				"set mapPublicIpOnLaunch of the subnet, or set type to Private",
				"assigns no public addresses, so its machines would have no internet access",
			)
		}
	}
}

func (k *checker) hasMachines(subnet string) bool {
	return slices.ContainsFunc(
		k.groups,
		func(g v1alpha1.InstanceGroup) bool { return slices.Contains(g.Spec.Subnets, subnet) },
	)
}

// checkRangeFree checks that the range of a new subnet does not overlap other subnets of the VPC.
func (k *checker) checkRangeFree(at string, n v1alpha1.Networking, s v1alpha1.Subnet) {
	want, err := netip.ParsePrefix(s.CIDR)
	if err != nil {
		return // package manifest reports it
	}

	for id, have := range k.facts.Subnets {
		// The cluster's own subnet from an earlier apply has the same range.
		if have.VPC != n.NetworkID ||
			have.Cluster != "" && strings.HasPrefix(k.pathPrefix, "cluster/"+have.Cluster+":") {
			continue
		}

		if p, err := netip.ParsePrefix(have.CIDR); err == nil && p.Overlaps(want) {
			k.addErrorf(
				at+".cidr",
				s.CIDR,
				"choose an unused range of "+n.NetworkID,
				"overlaps %s of %s",
				have.CIDR,
				id,
			)
		}
	}
}

func (k *checker) checkEgress(n v1alpha1.Networking) {
	for i, s := range n.Subnets {
		at := fmt.Sprintf("spec.networking.subnets[%d].egress", i)
		switch {
		case strings.HasPrefix(s.Egress, "nat-"):
			if vpc := k.facts.VPCByResource[s.Egress]; vpc != n.NetworkID {
				k.addErrorf(
					at,
					s.Egress,
					"use a NAT gateway of "+n.NetworkID,
					"is not an available NAT gateway of that VPC",
				)
			}

		case strings.HasPrefix(s.Egress, "eipalloc-"):
			if _, found := k.facts.AddressAssociations[s.Egress]; !found {
				k.addErrorf(
					at,
					s.Egress,
					"see: aws ec2 describe-addresses",
					"is not an Elastic IP address of this account and region",
				)
			}
		}
	}
}

// checkClusterRanges checks that the ranges of pods and services do not overlap ranges that the VPC can
// reach: packets to such an address would never leave a node.
func (k *checker) checkClusterRanges(n v1alpha1.Networking) {
	theirs := slices.Clone(k.facts.Routes)
	for _, c := range k.facts.CIDRs {
		theirs = append(theirs, OwnedRange{CIDR: c, Owner: n.NetworkID})
	}

	ranges := map[string]string{"podCIDR": n.PodCIDR, "serviceClusterIPRange": n.ServiceClusterIPRange}
	if n.CNI == v1alpha1.CNIAmazonVPC {
		delete(ranges, "podCIDR") // pods have addresses of the VPC
	}

	for _, field := range slices.Sorted(maps.Keys(ranges)) {
		for _, r := range FindOverlaps(ranges[field], theirs) {
			k.addErrorf(
				"spec.networking."+field,
				ranges[field],
				"choose another range",
				"overlaps %s, which is routed to %s",
				r.CIDR,
				r.Owner,
			)
		}
	}
}

// FindOverlaps returns those of ranges that overlap cidr. An invalid range overlaps nothing.
func FindOverlaps(cidr string, ranges []OwnedRange) []OwnedRange {
	p, err := netip.ParsePrefix(cidr)
	if err != nil {
		return nil
	}

	var out []OwnedRange

	for _, r := range ranges {
		if o, err := netip.ParsePrefix(r.CIDR); err == nil && o.Overlaps(p) {
			out = append(out, r)
		}
	}

	return out
}

func (k *checker) checkSecurityGroups(spec v1alpha1.ClusterSpec) {
	given := spec.CloudProvider.AWS.SecurityGroups
	for _, g := range [][2]string{{"controlPlane", given.ControlPlane}, {"worker", given.Worker}} {
		if vpc := k.facts.VPCByResource[g[1]]; g[1] != "" && vpc != spec.Networking.NetworkID {
			k.addErrorf(
				"spec.cloudProvider.aws.securityGroups."+g[0],
				g[1],
				"use a group of "+spec.Networking.NetworkID,
				"is not a security group of that VPC",
			)
		}
	}
}

// checkInstanceConnect checks the security group of the VPC's EC2 Instance Connect Endpoint.
func (k *checker) checkInstanceConnect(spec v1alpha1.ClusterSpec) {
	id := spec.MachineAccess.InstanceConnectSecurityGroup
	if vpc := k.facts.VPCByResource[id]; id != "" && vpc != spec.Networking.NetworkID {
		k.addErrorf(
			"spec.machineAccess.instanceConnectSecurityGroup",
			id,
			"see: aws ec2 describe-instance-connect-endpoints",
			"is not a security group of %s",
			spec.Networking.NetworkID,
		)
	}
}

func (k *checker) checkProfilesAndKey(p v1alpha1.AWSProvider) {
	profiles := map[string]string{
		"controlPlane": p.InstanceProfiles.ControlPlane,
		"worker":       p.InstanceProfiles.Worker,
	}
	for _, field := range slices.Sorted(maps.Keys(profiles)) {
		if name := profiles[field]; name != "" {
			k.checkProfile("spec.cloudProvider.aws.instanceProfiles."+field, name)
		}
	}

	if state := k.facts.KeyStates[p.KMSKeyARN]; p.KMSKeyARN != "" && state != "Enabled" {
		text := "is " + state
		if state == "" {
			text = "does not exist"
		}

		k.addErrorf("spec.cloudProvider.aws.kmsKeyARN", p.KMSKeyARN, "use a key that is Enabled", "%s", text)
	}
}

// checkProfile checks an existing instance profile. What assumes its role chooses the name of its session, from which
// the join endpoint learns which instance calls: only EC2 may.
func (k *checker) checkProfile(at, name string) {
	role := k.facts.ProfileRoles[name]
	if role == "" {
		k.addErrorf(at, name, "see: aws iam list-instance-profiles", "does not exist or has no role")
		return
	}

	if others := k.facts.ProfileTrust[name]; len(others) > 0 {
		k.addErrorf(
			at,
			name,
			"let only EC2 assume the role (aws iam update-assume-role-policy), or use another instance profile",
			"has role %s, which others than EC2 can assume: %s; they could pass for machines",
			role,
			strings.Join(others, ", "),
		)
	}
}
