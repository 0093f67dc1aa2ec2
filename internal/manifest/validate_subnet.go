// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// EgressExternal is the egress of a subnet whose route to the internet is not managed by Slipway.
const EgressExternal = "External"

func (v validator) checkSubnets(n v1alpha1.Networking, network netip.Prefix, region string) {
	if len(n.Subnets) == 0 {
		v.errorf(
			"spec.networking.subnets",
			"",
			"list a Private and a Public subnet for each zone",
			"must not be empty",
		)
	}

	var ranges []fieldCIDR
	names := map[string]int{}
	ids := map[string]int{}
	zones := map[v1alpha1.SubnetType]map[string]int{
		v1alpha1.SubnetPrivate: {},
		v1alpha1.SubnetPublic:  {},
		v1alpha1.SubnetUtility: {},
	}

	for i, s := range n.Subnets {
		at := fmt.Sprintf("spec.networking.subnets[%d]", i)
		v.checkSubnetFields(at, s, region)
		v.checkUnique(at+".name", s.Name, names, i, "is also the name of subnets[%d]")
		v.checkUnique(at+".id", s.ID, ids, i, "is also the ID of subnets[%d]")
		if seen, ok := zones[s.Type]; ok {
			v.checkUnique(at+".zone", s.Zone, seen, i, "already has a "+string(s.Type)+" subnet: subnets[%d]")
		}

		ranges = append(ranges, fieldCIDR{at + ".cidr", v.parseSubnetRange(at+".cidr", s)})
	}

	v.checkOverlaps(ranges)
	v.checkWithinNetwork(ranges, network)
	v.checkNATSubnets(n, zones)
	if len(n.Subnets) > 0 && len(zones[v1alpha1.SubnetPrivate])+len(zones[v1alpha1.SubnetPublic]) == 0 {
		v.errorf(
			"spec.networking.subnets",
			"",
			"add a Private subnet in each zone",
			"contains no Private or Public subnet for machines",
		)
	}
}

// checkNATSubnets checks that each zone in which Slipway creates a NAT gateway has a Public or
// Utility subnet.
func (v validator) checkNATSubnets(n v1alpha1.Networking, zones map[v1alpha1.SubnetType]map[string]int) {
	edges := len(zones[v1alpha1.SubnetPublic]) + len(zones[v1alpha1.SubnetUtility])
	for i, s := range n.Subnets {
		at := fmt.Sprintf("spec.networking.subnets[%d]", i)
		_, public := zones[v1alpha1.SubnetPublic][s.Zone]
		_, utility := zones[v1alpha1.SubnetUtility][s.Zone]
		hasSubnet := public || utility || n.NATGateways == NATSingle && edges > 0
		needsGateway := s.Egress == "" && n.NATGateways != NATNone || strings.HasPrefix(s.Egress, "eipalloc-")
		if s.Type == v1alpha1.SubnetPrivate && s.ID == "" && needsGateway && !hasSubnet {
			v.errorf(
				at+".zone",
				s.Zone,
				"add a Utility or Public subnet in this zone, or set natGateways: None",
				"has a Private subnet, but no subnet for its NAT gateway",
			)
		}
	}
}

func (v validator) checkSubnetFields(at string, s v1alpha1.Subnet, region string) {
	if !ValidName(s.Name) {
		v.errorf(at+".name", s.Name, "write it as private-a", "is not a DNS label")
	}

	if s.Name == "public" && s.Type == v1alpha1.SubnetPrivate {
		v.errorf(at+".name", s.Name, "write it as private-a", "is the name of the public route table")
	}

	v.checkChoice(
		at+".type",
		string(s.Type),
		string(v1alpha1.SubnetPrivate),
		string(v1alpha1.SubnetPublic),
		string(v1alpha1.SubnetUtility),
	)

	switch {
	case !zonePattern().MatchString(s.Zone):
		v.errorf(at+".zone", s.Zone, "write it as us-east-1a", "is not an availability zone")
	case s.Zone[:len(s.Zone)-1] != region:
		v.errorf(at+".zone", s.Zone, "use zones of one region", "is not in the cluster's region %s", region)
	}

	v.checkEgress(at+".egress", s)
}

func (v validator) checkEgress(at string, s v1alpha1.Subnet) {
	switch {
	case s.Egress == "":
	case s.Type != v1alpha1.SubnetPrivate || s.ID != "":
		v.errorf(at, s.Egress, "leave it out", "is for Private subnets that Slipway creates")
	case s.Egress != EgressExternal && !isResourceID(s.Egress, "nat", "eipalloc"):
		v.errorf(
			at,
			s.Egress,
			"write it as nat-0123456789abcdef0, eipalloc-0123456789abcdef0 or External",
			"is not a valid egress",
		)
	}
}

func (v validator) parseSubnetRange(path string, s v1alpha1.Subnet) netip.Prefix {
	if s.CIDR == "" {
		if s.ID == "" {
			v.errorf(
				path,
				"",
				"set the CIDRs of the subnets, or use a larger networkCIDR",
				"has no default: no free range is left in networkCIDR",
			)
		}

		return netip.Prefix{}
	}

	return v.parseSizedPrefix(path, s.CIDR, minVPCPrefix, maxVPCPrefix)
}

// checkWithinNetwork reports the subnets whose ranges are not within the network. If none is, the network is
// wrong, not each subnet.
func (v validator) checkWithinNetwork(subnets []fieldCIDR, network netip.Prefix) {
	isOutside := func(s fieldCIDR) bool {
		return s.prefix.IsValid() && network.IsValid() &&
			(s.prefix.Bits() < network.Bits() || !network.Contains(s.prefix.Addr()))
	}

	outside := slices.DeleteFunc(slices.Clone(subnets), func(s fieldCIDR) bool { return !isOutside(s) })
	if len(outside) > 1 && len(outside) == len(subnets) {
		v.errorf(
			"spec.networking.networkCIDR",
			network.String(),
			"use a range that contains them, or leave out the cidr of each subnet",
			"contains none of the %d subnets, such as %s",
			len(subnets),
			outside[0].prefix,
		)

		return
	}

	for _, s := range outside {
		v.errorf(
			s.path,
			s.prefix.String(),
			"choose a range within it",
			"is not within networkCIDR %s",
			network,
		)
	}
}

// isResourceID reports whether id is the ID of an AWS resource of one of the kinds, such as vpc.
func isResourceID(id string, kinds ...string) bool {
	kind, digits, _ := strings.Cut(id, "-")
	return slices.Contains(kinds, kind) &&
		regexp.MustCompile(`^[0-9a-f]{8}([0-9a-f]{9})?$`).MatchString(digits)
}

// checkExistingIDs checks the fields that name existing network resources by ID.
func (v validator) checkExistingIDs(n v1alpha1.Networking) {
	if n.NetworkID != "" && !isResourceID(n.NetworkID, "vpc") {
		v.errorf(
			"spec.networking.networkID",
			n.NetworkID,
			"write it as vpc-0123456789abcdef0",
			"is not a valid VPC ID",
		)
	}

	if n.InternetGatewayID != "" && !isResourceID(n.InternetGatewayID, "igw") {
		v.errorf(
			"spec.networking.internetGatewayID",
			n.InternetGatewayID,
			"write it as igw-0123456789abcdef0",
			"is not a valid internet gateway ID",
		)
	}

	if n.InternetGatewayID != "" && n.NetworkID == "" {
		v.errorf(
			"spec.networking.internetGatewayID",
			n.InternetGatewayID,
			"set networkID too, or leave it out",
			"is for an existing VPC only",
		)
	}

	v.checkExistingSubnets(n)
}

func (v validator) checkExistingSubnets(n v1alpha1.Networking) {
	for i, s := range n.Subnets {
		at := fmt.Sprintf("spec.networking.subnets[%d]", i)
		if s.ID != "" && !isResourceID(s.ID, "subnet") {
			v.errorf(at+".id", s.ID, "write it as subnet-0123456789abcdef0", "is not a valid subnet ID")
		}

		if n.NetworkID == "" && (s.ID != "" || strings.HasPrefix(s.Egress, "nat-")) {
			v.errorf(at, s.Name, "set networkID too", "refers to a resource of an existing VPC")
		}

		if n.NetworkID != "" && n.InternetGatewayID == "" && s.ID == "" && s.Type != v1alpha1.SubnetPrivate {
			v.errorf(
				"spec.networking.internetGatewayID",
				"",
				"set it to the internet gateway of "+n.NetworkID,
				"is required: Slipway creates subnet %s, which routes to the internet",
				s.Name,
			)
		}
	}
}

// endpointServices returns the AWS services that have VPC endpoints and that a cluster can use.
func endpointServices() []string {
	return []string{
		"autoscaling", "cloudformation", "dynamodb", "ec2", "ec2messages", "ecr.api", "ecr.dkr", "elasticloadbalancing", "kms", "logs", "s3",
		"secretsmanager", "ssm", "ssmmessages", "sts",
	}
}

func (v validator) checkVPCEndpoints(n v1alpha1.Networking) {
	seen := map[string]int{}
	for i, s := range n.VPCEndpoints {
		at := fmt.Sprintf("spec.networking.vpcEndpoints[%d]", i)
		v.checkUnique(at, s, seen, i, "duplicates vpcEndpoints[%d]")
		v.checkChoice(at, s, endpointServices()...)
	}

	if n.NATGateways != NATNone || len(n.VPCEndpoints) == 0 {
		return
	}

	for _, s := range []string{"s3", "ec2", "sts", "kms", "autoscaling"} {
		if !slices.Contains(n.VPCEndpoints, s) {
			v.errorf(
				"spec.networking.vpcEndpoints",
				strings.Join(n.VPCEndpoints, ", "),
				"add "+s,
				"does not include %s, which every machine calls",
				s,
			)
		}
	}
}

// checkProvidedResources checks the fields that name existing resources other than the network: the
// KMS key, the instance profiles and the security groups.
func (v validator) checkProvidedResources(spec v1alpha1.ClusterSpec) {
	const at = "spec.cloudProvider.aws."
	p := spec.CloudProvider.AWS
	if arn := p.KMSKeyARN; arn != "" &&
		!regexp.MustCompile(
			`^arn:aws[a-z-]*:kms:`+regexp.QuoteMeta(p.Region)+`:\d{12}:key/[0-9A-Za-z-]+$`,
		).MatchString(
			arn,
		) {
		v.errorf(
			at+"kmsKeyARN",
			arn,
			"write it as arn:aws:kms:"+p.Region+":123456789012:key/ID",
			"is not the ARN of a key in the cluster's region",
		)
	}

	for role, id := range map[string]string{"controlPlane": p.SecurityGroups.ControlPlane, "worker": p.SecurityGroups.Worker} {
		if id == "" {
			continue
		}

		v.checkSecurityGroup(at+"securityGroups."+role, id)
		if spec.Networking.NetworkID == "" {
			v.errorf(at+"securityGroups."+role, id, "set networking.networkID too", "belongs to an existing VPC")
		}
	}

	for role, name := range map[string]string{"controlPlane": p.InstanceProfiles.ControlPlane, "worker": p.InstanceProfiles.Worker} {
		if name != "" && !regexp.MustCompile(`^[\w+=,.@-]{1,128}$`).MatchString(name) {
			v.errorf(
				at+"instanceProfiles."+role,
				name,
				"use its name, not its ARN",
				"is not a valid instance profile name",
			)
		}
	}
}
