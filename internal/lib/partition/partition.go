// SPDX-License-Identifier: Apache-2.0

// Package partition knows the partitions of AWS: which regions belong to each, and the DNS suffix
// of its endpoints and of EC2's service principal. A partition is a group of regions with accounts
// and ARNs of their own, such as aws-cn.
//
// The data is that of AWS's SDK for Go, which does not export it; a test compares the two. The
// package makes no calls and knows no region by name: one that AWS opens later belongs to the
// partition whose pattern it matches.
package partition

import "regexp"

// Partition is a partition of AWS.
type Partition struct {
	// Name is the second part of its ARNs, such as aws-cn.
	Name string
	// DNSSuffix is the domain of its endpoints, such as amazonaws.com.cn.
	DNSSuffix string
	// Regions is the regular expression that the names of its regions match.
	Regions string
}

// Default is the name of the partition of most regions.
const Default = "aws"

// All returns the partitions in the order in which regions are matched.
func All() []Partition {
	return []Partition{
		{Default, "amazonaws.com", `^(us|eu|ap|sa|ca|me|af|il|mx)\-\w+\-\d+$`},
		{"aws-cn", "amazonaws.com.cn", `^cn\-\w+\-\d+$`},
		{"aws-eusc", "amazonaws.eu", `^eusc\-(de)\-\w+\-\d+$`},
		{"aws-iso", "c2s.ic.gov", `^us\-iso\-\w+\-\d+$`},
		{"aws-iso-b", "sc2s.sgov.gov", `^us\-isob\-\w+\-\d+$`},
		{"aws-iso-e", "cloud.adc-e.uk", `^eu\-isoe\-\w+\-\d+$`},
		{"aws-iso-f", "csp.hci.ic.gov", `^us\-isof\-\w+\-\d+$`},
		{"aws-us-gov", "amazonaws.com", `^us\-gov\-\w+\-\d+$`},
	}
}

// OfRegion returns the partition of a region. One that matches no pattern counts as [Default], as
// in the SDK.
func OfRegion(region string) Partition {
	all := All()
	for _, p := range all {
		if regexp.MustCompile(p.Regions).MatchString(region) {
			return p
		}
	}

	return all[0]
}

// Named returns the partition of a name. An unknown name has the DNS suffix of [Default].
func Named(name string) Partition {
	all := All()
	for _, p := range all {
		if p.Name == name {
			return p
		}
	}

	all[0].Name = name

	return all[0]
}

// EndpointService returns the name of a service for VPC endpoints in a region, such as
// com.amazonaws.us-east-1.ec2. Outside of the partition aws, some services have names that begin
// with the partition's reversed domain.
func EndpointService(region, service string) string {
	prefix := "com.amazonaws"
	if own := reversedDomain(OfRegion(region).Name); own != "" && hasReversedName(region, service) {
		prefix = own
	}

	return prefix + "." + region + "." + service
}

// reversedDomain returns how names of services for VPC endpoints begin in a partition; empty if all
// are as in aws. Source of this and of [hasReversedName]: getDefaultEndpointPrefix in aws-cdk-lib's
// aws-ec2/lib/vpc-endpoint.ts.
func reversedDomain(name string) string {
	switch name {
	case "aws-cn":
		return "cn.com.amazonaws"
	case "aws-eusc":
		return "eu.amazonaws"
	case "aws-iso":
		return "gov.ic.c2s"
	case "aws-iso-b":
		return "gov.sgov.sc2s"
	case "aws-iso-e":
		return "uk.adc-e.cloud"
	case "aws-iso-f":
		return "gov.ic.hci.csp"
	default:
		return ""
	}
}

// hasReversedName reports whether the interface endpoint of a service that a manifest can list has
// a reversed name in a region of one of these partitions.
func hasReversedName(region, service string) bool {
	switch service {
	case "ecr.api", "ecr.dkr":
		return true
	case "ec2", "autoscaling":
		name := OfRegion(region).Name
		return name == "aws-cn" || name == "aws-iso" || name == "aws-iso-b" && region != "us-isob-west-1"
	case "cloudformation", "sts":
		return OfRegion(region).Name == "aws-cn"
	default:
		return false
	}
}
