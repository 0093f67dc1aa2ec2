// SPDX-License-Identifier: Apache-2.0

// Package existing judges whether what a manifest names by its id, and Slipway never changes, is there and fits: the
// VPC, its subnets, gateways, groups and routes. It is pure: it reads no cloud, package aws gathers the facts.
package unmanaged

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// Facts are what AWS says about the ids of a manifest. What is not there is left out.
type Facts struct {
	// CIDRs of the VPC; empty if it does not exist.
	CIDRs []string
	// DNSHostnames and DNSSupport of the VPC.
	DNSHostnames, DNSSupport bool
	// InternetGateways attached to the VPC.
	InternetGateways []string
	// Subnets by id, all of the VPC's and those of the manifest.
	Subnets map[string]Subnet
	// VPCByResource of security groups and NAT gateways, by id.
	VPCByResource map[string]string
	// AddressAssociations by allocation id: what each is associated with, empty if it is free.
	AddressAssociations map[string]string
	// ProfileRoles of instance profiles, by the profile's name.
	ProfileRoles map[string]string
	// KeyStates by ARN, such as Enabled.
	KeyStates map[string]string
	// Routes that lead out of the VPC other than to the internet: ranges of peers, VPNs and transit gateways.
	Routes []OwnedRange
	// Peers are the other VPCs of the manifest's peerings, by id.
	Peers map[string]PeerVPC
	// HostedZone that the manifest names by its id.
	HostedZone HostedZone
}

// Subnet is what EC2 says about one.
type Subnet struct {
	VPC, Zone, CIDR, Cluster string
	// PublicAddresses says that instances get one at launch.
	PublicAddresses bool
}

// OwnedRange is a range of addresses and what has it.
type OwnedRange struct{ CIDR, Owner string }

// IsNeeded says whether the manifest names anything that exists already.
func IsNeeded(c v1alpha1.Cluster) bool {
	p := c.Spec.CloudProvider.AWS
	return c.Spec.Networking.NetworkID != "" || len(c.Spec.Networking.VPCPeerings) > 0 ||
		manifest.IsZoneID(c.Spec.DNSZone) ||
		p.KMSKeyARN != "" ||
		p.InstanceProfiles != v1alpha1.Existing{}
}

// Check returns everything that does not fit.
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

// checkVPC checks the VPC; false if there is none to check more of.
func (k *checker) checkVPC(n v1alpha1.Networking) bool {
	const at = "spec.networking.networkID"
	if len(k.facts.CIDRs) == 0 {
		k.addErrorf(at, n.NetworkID, "see aws ec2 describe-vpcs", "is no VPC of this account and region")
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
			"has DNS names switched off",
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
				"see aws ec2 describe-subnets",
				"is no subnet of this account and region",
			)

		case have.VPC != n.NetworkID:
			k.addErrorf(at+".id", s.ID, "use a subnet of "+n.NetworkID, "is in %s", have.VPC)
		case have.Zone != s.Zone:
			k.addErrorf(at+".zone", s.Zone, "write "+have.Zone, "is not the zone of %s", s.ID)
		case s.CIDR != "" && have.CIDR != s.CIDR:
			k.addErrorf(
				at+".cidr",
				s.CIDR,
				"write "+have.CIDR+" or leave it out",
				"is not the range of %s",
				s.ID,
			)

		case s.Type == v1alpha1.SubnetPublic && !have.PublicAddresses && k.hasMachines(s.Name):
			k.addErrorf(
				at+".id",
				s.ID,
				"set mapPublicIpOnLaunch of it, or make it Private",
				"gives machines no public address, so they would not get out",
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

// checkRangeFree checks that no other subnet of the VPC has the range of one that is to be made.
func (k *checker) checkRangeFree(at string, n v1alpha1.Networking, s v1alpha1.Subnet) {
	want, err := netip.ParsePrefix(s.CIDR)
	if err != nil {
		return // Validate says so
	}

	for id, have := range k.facts.Subnets {
		// One of the cluster's own from an earlier apply has the same range.
		if have.VPC != n.NetworkID ||
			have.Cluster != "" && strings.HasPrefix(k.pathPrefix, "cluster/"+have.Cluster+":") {
			continue
		}

		if p, err := netip.ParsePrefix(have.CIDR); err == nil && p.Overlaps(want) {
			k.addErrorf(
				at+".cidr",
				s.CIDR,
				"choose a range that is free in "+n.NetworkID,
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
					"see aws ec2 describe-addresses",
					"is no address of this account and region",
				)
			}
		}
	}
}

// checkClusterRanges checks what pods and services have against what the VPC can reach: such an address would never leave a node.
func (k *checker) checkClusterRanges(n v1alpha1.Networking) {
	theirs := slices.Clone(k.facts.Routes)
	for _, c := range k.facts.CIDRs {
		theirs = append(theirs, OwnedRange{CIDR: c, Owner: n.NetworkID})
	}

	for path, cidr := range map[string]string{"podCIDR": n.PodCIDR, "serviceClusterIPRange": n.ServiceClusterIPRange} {
		for _, r := range FindOverlaps(cidr, theirs) {
			k.addErrorf(
				"spec.networking."+path,
				cidr,
				"choose another range",
				"overlaps %s, which leads to %s",
				r.CIDR,
				r.Owner,
			)
		}
	}
}

// FindOverlaps returns those of ranges that share an address with cidr. What is no range overlaps nothing.
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

// checkInstanceConnect checks the group of the VPC's EC2 Instance Connect Endpoint.
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
	for _, i := range [][2]string{{"controlPlane", p.InstanceProfiles.ControlPlane}, {"worker", p.InstanceProfiles.Worker}} {
		if i[1] != "" && k.facts.ProfileRoles[i[1]] == "" {
			k.addErrorf(
				"spec.cloudProvider.aws.instanceProfiles."+i[0],
				i[1],
				"see aws iam list-instance-profiles",
				"does not exist or has no role",
			)
		}
	}

	if state := k.facts.KeyStates[p.KMSKeyARN]; p.KMSKeyARN != "" && state != "Enabled" {
		if state == "" {
			state = "not there"
		}

		k.addErrorf(
			"spec.cloudProvider.aws.kmsKeyARN",
			p.KMSKeyARN,
			"use a key that is Enabled",
			"is %s",
			state,
		)
	}
}
