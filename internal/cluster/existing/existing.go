// SPDX-License-Identifier: Apache-2.0

// Package existing judges whether what a manifest names by its id, and Slipway never changes, is there and fits: the
// VPC, its subnets, gateways, groups and routes. It is pure: it reads no cloud, package aws gathers the facts.
package existing

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
	// Gateways attached to the VPC.
	Gateways []string
	// Subnets by id, all of the VPC's and those of the manifest.
	Subnets map[string]Subnet
	// VPCs of security groups and NAT gateways, by id.
	VPCs map[string]string
	// Addresses by allocation id: what each is associated with, empty if it is free.
	Addresses map[string]string
	// Roles of instance profiles, by the profile's name.
	Roles map[string]string
	// KeyState by ARN, such as Enabled.
	KeyState map[string]string
	// Routes that lead out of the VPC other than to the internet: ranges of peers, VPNs and transit gateways.
	Routes []Range
	// Peers are the other VPCs of the manifest's peerings, by id.
	Peers map[string]Peer
	// Zone that the manifest names by its id.
	Zone Zone
}

// Subnet is what EC2 says about one.
type Subnet struct {
	VPC, Zone, CIDR, Cluster string
	// PublicAddresses says that instances get one at launch.
	PublicAddresses bool
}

// Range is a range of addresses and what has it.
type Range struct{ CIDR, Of string }

// Needed says whether the manifest names anything that exists already.
func Needed(c v1alpha1.Cluster) bool {
	p := c.Spec.CloudProvider.AWS
	return c.Spec.Networking.NetworkID != "" || len(c.Spec.Networking.VPCPeerings) > 0 || manifest.IsZoneID(c.Spec.DNSZone) || p.KMSKeyARN != "" || p.InstanceProfiles != v1alpha1.Existing{}
}

// Check returns everything that does not fit.
func Check(c v1alpha1.Cluster, groups []v1alpha1.InstanceGroup, f Facts) diag.Findings {
	k := checker{where: "cluster/" + c.Metadata.Name + ": ", facts: f, groups: groups}
	if n := c.Spec.Networking; n.NetworkID != "" && k.network(n) {
		k.subnets(n)
		k.waysOut(n)
		k.ranges(n)
		k.securityGroups(c.Spec)
		k.connect(c.Spec)
	}
	k.peers(c.Spec.Networking)
	k.zone(c.Spec)
	k.identities(c.Spec.CloudProvider.AWS)
	return k.fs
}

type checker struct {
	where  string
	facts  Facts
	groups []v1alpha1.InstanceGroup
	fs     diag.Findings
}

func (k *checker) errorf(path, value, hint, format string, args ...any) {
	k.fs.Errorf(k.where+path, value, hint, format, args...)
}

// network checks the VPC; false if there is none to check more of.
func (k *checker) network(n v1alpha1.Networking) bool {
	const at = "spec.networking.networkID"
	if len(k.facts.CIDRs) == 0 {
		k.errorf(at, n.NetworkID, "see aws ec2 describe-vpcs", "is no VPC of this account and region")
		return false
	}
	if !slices.Contains(k.facts.CIDRs, n.NetworkCIDR) {
		k.errorf("spec.networking.networkCIDR", n.NetworkCIDR, "use "+strings.Join(k.facts.CIDRs, " or "), "is not a range of %s", n.NetworkID)
	}
	if !k.facts.DNSSupport || !k.facts.DNSHostnames {
		k.errorf(at, n.NetworkID, "set its attributes enableDnsSupport and enableDnsHostnames", "has DNS names switched off")
	}
	if g := n.InternetGatewayID; g != "" && !slices.Contains(k.facts.Gateways, g) {
		k.errorf("spec.networking.internetGatewayID", g, "use one of: "+strings.Join(k.facts.Gateways, ", "), "is not attached to %s", n.NetworkID)
	}
	return true
}

func (k *checker) subnets(n v1alpha1.Networking) {
	for i, s := range n.Subnets {
		at := fmt.Sprintf("spec.networking.subnets[%d]", i)
		have, found := k.facts.Subnets[s.ID]
		switch {
		case s.ID == "":
			k.free(at, n, s)
		case !found:
			k.errorf(at+".id", s.ID, "see aws ec2 describe-subnets", "is no subnet of this account and region")
		case have.VPC != n.NetworkID:
			k.errorf(at+".id", s.ID, "use a subnet of "+n.NetworkID, "is in %s", have.VPC)
		case have.Zone != s.Zone:
			k.errorf(at+".zone", s.Zone, "write "+have.Zone, "is not the zone of %s", s.ID)
		case s.CIDR != "" && have.CIDR != s.CIDR:
			k.errorf(at+".cidr", s.CIDR, "write "+have.CIDR+" or leave it out", "is not the range of %s", s.ID)
		case s.Type == v1alpha1.SubnetPublic && !have.PublicAddresses && k.holdsMachines(s.Name):
			k.errorf(at+".id", s.ID, "set mapPublicIpOnLaunch of it, or make it Private", "gives machines no public address, so they would not get out")
		}
	}
}

func (k *checker) holdsMachines(subnet string) bool {
	return slices.ContainsFunc(k.groups, func(g v1alpha1.InstanceGroup) bool { return slices.Contains(g.Spec.Subnets, subnet) })
}

// free checks that no other subnet of the VPC has the range of one that is to be made.
func (k *checker) free(at string, n v1alpha1.Networking, s v1alpha1.Subnet) {
	want, err := netip.ParsePrefix(s.CIDR)
	if err != nil {
		return // Validate says so
	}
	for id, have := range k.facts.Subnets {
		// One of the cluster's own from an earlier apply has the same range.
		if have.VPC != n.NetworkID || have.Cluster != "" && strings.HasPrefix(k.where, "cluster/"+have.Cluster+":") {
			continue
		}
		if p, err := netip.ParsePrefix(have.CIDR); err == nil && p.Overlaps(want) {
			k.errorf(at+".cidr", s.CIDR, "choose a range that is free in "+n.NetworkID, "overlaps %s of %s", have.CIDR, id)
		}
	}
}

func (k *checker) waysOut(n v1alpha1.Networking) {
	for i, s := range n.Subnets {
		at := fmt.Sprintf("spec.networking.subnets[%d].egress", i)
		switch {
		case strings.HasPrefix(s.Egress, "nat-"):
			if vpc := k.facts.VPCs[s.Egress]; vpc != n.NetworkID {
				k.errorf(at, s.Egress, "use a NAT gateway of "+n.NetworkID, "is not an available NAT gateway of that VPC")
			}
		case strings.HasPrefix(s.Egress, "eipalloc-"):
			if _, found := k.facts.Addresses[s.Egress]; !found {
				k.errorf(at, s.Egress, "see aws ec2 describe-addresses", "is no address of this account and region")
			}
		}
	}
}

// ranges checks what pods and services have against what the VPC can reach: such an address would never leave a node.
func (k *checker) ranges(n v1alpha1.Networking) {
	theirs := slices.Clone(k.facts.Routes)
	for _, c := range k.facts.CIDRs {
		theirs = append(theirs, Range{CIDR: c, Of: n.NetworkID})
	}
	for path, cidr := range map[string]string{"podCIDR": n.PodCIDR, "serviceClusterIPRange": n.ServiceClusterIPRange} {
		for _, r := range Overlapping(cidr, theirs) {
			k.errorf("spec.networking."+path, cidr, "choose another range", "overlaps %s, which leads to %s", r.CIDR, r.Of)
		}
	}
}

// Overlapping returns those of ranges that share an address with cidr. What is no range overlaps nothing.
func Overlapping(cidr string, ranges []Range) []Range {
	p, err := netip.ParsePrefix(cidr)
	if err != nil {
		return nil
	}
	var out []Range
	for _, r := range ranges {
		if o, err := netip.ParsePrefix(r.CIDR); err == nil && o.Overlaps(p) {
			out = append(out, r)
		}
	}
	return out
}

func (k *checker) securityGroups(spec v1alpha1.ClusterSpec) {
	given := spec.CloudProvider.AWS.SecurityGroups
	for _, g := range [][2]string{{"controlPlane", given.ControlPlane}, {"worker", given.Worker}} {
		if vpc := k.facts.VPCs[g[1]]; g[1] != "" && vpc != spec.Networking.NetworkID {
			k.errorf("spec.cloudProvider.aws.securityGroups."+g[0], g[1], "use a group of "+spec.Networking.NetworkID, "is not a security group of that VPC")
		}
	}
}

// connect checks the group of the VPC's EC2 Instance Connect Endpoint.
func (k *checker) connect(spec v1alpha1.ClusterSpec) {
	id := spec.MachineAccess.InstanceConnectSecurityGroup
	if vpc := k.facts.VPCs[id]; id != "" && vpc != spec.Networking.NetworkID {
		k.errorf("spec.machineAccess.instanceConnectSecurityGroup", id, "see: aws ec2 describe-instance-connect-endpoints", "is not a security group of %s", spec.Networking.NetworkID)
	}
}

func (k *checker) identities(p v1alpha1.AWSProvider) {
	for _, i := range [][2]string{{"controlPlane", p.InstanceProfiles.ControlPlane}, {"worker", p.InstanceProfiles.Worker}} {
		if i[1] != "" && k.facts.Roles[i[1]] == "" {
			k.errorf("spec.cloudProvider.aws.instanceProfiles."+i[0], i[1], "see aws iam list-instance-profiles", "does not exist or has no role")
		}
	}
	if state := k.facts.KeyState[p.KMSKeyARN]; p.KMSKeyARN != "" && state != "Enabled" {
		if state == "" {
			state = "not there"
		}
		k.errorf("spec.cloudProvider.aws.kmsKeyARN", p.KMSKeyARN, "use a key that is Enabled", "is %s", state)
	}
}
