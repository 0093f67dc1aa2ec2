// SPDX-License-Identifier: Apache-2.0

// Package ecraddress reads the addresses of private registries in Amazon ECR. Such a registry
// belongs to an account in a region, and its address says which. The package makes no calls;
// package ecrlogin gets the tokens of such registries.
package ecraddress

import (
	"regexp"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/lib/partition"
)

// Registry is what the address of a private registry in Amazon ECR says.
type Registry struct {
	// Host is its name, such as 123456789012.dkr.ecr.us-east-1.amazonaws.com.
	Host string
	// Account that has the registry, 12 digits.
	Account string
	// Region such as us-east-1.
	Region string
	// Path precedes the names of the repositories, without slashes at its ends; may be empty.
	Path string
}

// Parse returns the registry of an address or of an image's reference, and whether it begins with a
// host name of Amazon ECR: ACCOUNT.dkr.ecr.REGION.amazonaws.com, also with FIPS, in another
// partition, or that for both families of addresses.
func Parse(address string) (Registry, bool) {
	host, path, _ := strings.Cut(address, "/")
	pattern := regexp.MustCompile(
		`^(\d{12})\.dkr[.-]ecr(?:-fips)?\.([a-z0-9-]+)\.([a-z0-9.-]+)$`,
	)
	parts := pattern.FindStringSubmatch(host)
	if parts == nil || !slices.Contains(domains(parts[2]), parts[3]) {
		return Registry{}, false
	}

	return Registry{
		Host:    host,
		Account: parts[1],
		Region:  parts[2],
		Path:    strings.Trim(path, "/"),
	}, true
}

// domains returns the domains of registries in a region: that of its partition, and those for both families of addresses.
func domains(region string) []string {
	return []string{partition.OfRegion(region).DNSSuffix, "on.aws", "on.amazonwebservices.com.cn"}
}

// Partition returns the name of the registry's partition, such as aws-cn.
func (r Registry) Partition() string { return partition.OfRegion(r.Region).Name }

// RepositoryARNs returns the pattern of the ARNs of the repositories below the address.
func (r Registry) RepositoryARNs() string {
	below := "*"
	if r.Path != "" {
		below = r.Path + "/*"
	}

	return "arn:" + r.Partition() + ":ecr:" + r.Region + ":" + r.Account + ":repository/" + below
}

// PullActions returns the actions of IAM that a pull needs on the repository. The token needs
// another one on all resources: [TokenAction].
func PullActions() []string {
	return []string{
		"ecr:BatchCheckLayerAvailability",
		"ecr:BatchGetImage",
		"ecr:GetDownloadUrlForLayer",
	}
}

// TokenAction is the action of IAM that gets a token. It has no resources.
const TokenAction = "ecr:GetAuthorizationToken" //nolint:gosec // the name of an action

// EndpointServices returns the services of AWS that a machine without internet access pulls
// through: the API that issues tokens, the registry, and S3, where the registry sends clients for
// the layers of an image.
func EndpointServices() []string { return []string{"ecr.api", "ecr.dkr", "s3"} }
