// SPDX-License-Identifier: Apache-2.0

// Package partition knows the partitions of AWS: which regions belong to each, and the DNS suffix of its endpoints and
// of EC2's service principal. A partition is a group of regions with accounts and ARNs of their own, such as aws-cn.
//
// The data is that of AWS's SDK for Go, which does not export it; a test compares the two. The package makes no calls
// and knows no region by name: one that AWS opens later belongs to the partition whose pattern it matches.
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

// OfRegion returns the partition of a region. One that matches no pattern counts as [Default], as in the SDK.
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

// EndpointService returns the name of a service for VPC endpoints in a region, such as com.amazonaws.us-east-1.ec2.
// In China most names begin with cn, except for those of gateway endpoints and of older services.
func EndpointService(region, service string) string {
	name := "com.amazonaws." + region + "." + service
	if OfRegion(region).Name == "aws-cn" && !hasPlainNameInChina(service) {
		return "cn." + name
	}

	return name
}

// hasPlainNameInChina reports whether the name of a service for VPC endpoints has no prefix in China. Source:
// https://docs.amazonaws.cn/en_us/vpc/latest/privatelink/aws-services-privatelink-support.html
func hasPlainNameInChina(service string) bool {
	switch service {
	case "s3", "dynamodb", "ssm", "ssmmessages", "ec2messages", "kms", "logs", "secretsmanager":
		return true
	default:
		return false
	}
}
