// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"fmt"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/ec2"
)

// publicDNSName returns the DNS name of a public address.
func (cfg *Config) publicDNSName(ip string) string {
	suffix := cfg.Region + ".compute.amazonaws.com"
	if cfg.Region == "us-east-1" {
		suffix = "compute-1.amazonaws.com"
	}

	return "ec2-" + strings.ReplaceAll(ip, ".", "-") + "." + suffix
}

// wildcardARN returns the ARN of all resources of a type. IAM is asked about it for a resource that does not
// exist yet.
func (cfg *Config) wildcardARN(kind string) string {
	return cfg.arn(kind, "*")
}

// arn returns an ARN. Those of images and snapshots have no account, because other accounts may use them:
// https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonec2.html
func (cfg *Config) arn(kind, id string) string {
	account := cfg.Account
	if kind == "image" || kind == "snapshot" {
		account = ""
	}

	return fmt.Sprintf("arn:aws:ec2:%s:%s:%s/%s", cfg.Region, account, kind, id)
}

// keyPairARN returns the ARN of a key pair, which contains its name instead of its id.
func (cfg *Config) keyPairARN(name string) string {
	return fmt.Sprintf("arn:aws:ec2:%s:%s:key-pair/%s", cfg.Region, cfg.Account, name)
}

// resourceARN returns the ARN of a resource.
func (cfg *Config) resourceARN(id string) string { return cfg.arn(resourceKind(id), id) }

func (cfg *Config) rootARN() string { return "arn:aws:iam::" + cfg.Account + ":root" }

// privateDNSName returns the DNS name of an instance's private address.
func (cfg *Config) privateDNSName(ip string) string {
	return "ip-" + strings.ReplaceAll(ip, ".", "-") + "." + PrivateDNSDomain(cfg.Region)
}

// PrivateDNSDomain returns the domain of the private DNS names of instances in a region.
func PrivateDNSDomain(region string) string {
	if region == "us-east-1" {
		return "ec2.internal"
	}

	return region + ".compute.internal"
}

// volumeKeyARN returns the ARN of the KMS key of an encrypted volume as DescribeVolumes shows it, whether the
// request named the key by ARN, alias or id.
func (cfg *Config) volumeKeyARN(v *sdk.Volume) *string {
	key := str(v.KmsKeyId)
	switch {
	case !*v.Encrypted:
		return nil
	case key == "":
		key = "alias/aws/ebs"
	case strings.HasPrefix(key, "arn:"):
		return v.KmsKeyId
	case !strings.HasPrefix(key, "alias/"):
		key = "key/" + key
	}

	return new("arn:aws:kms:" + cfg.Region + ":" + cfg.Account + ":" + key)
}

// parseServiceName returns the short name of an endpoint service, such as ec2, and the endpoint types that it
// supports.
func (cfg *Config) parseServiceName(full string) (string, []string) {
	short, ok := strings.CutPrefix(full, "com.amazonaws."+cfg.Region+".")
	if !ok {
		return "", nil
	}

	return short, endpointServices()[short]
}

// defaultZones returns the zone letters of a region.
func defaultZones(region string) []string {
	if region == "us-east-1" {
		return []string{"a", "b", "c", "d", "e", "f"}
	}

	return []string{"a", "b", "c"}
}

// zoneID returns the id of a zone, such as use1-az1. Unlike in AWS, every account has the same ids.
func (cfg *Config) zoneID(zone string) string {
	short := strings.NewReplacer(
		"-",
		"",
		"north",
		"n",
		"south",
		"s",
		"east",
		"e",
		"west",
		"w",
		"central",
		"c",
	).Replace(
		cfg.Region,
	)

	letter := zone[len(zone)-1]
	return short + "-az" + string('1'+letter-'a')
}

// resolveZone returns the zone of a name or an id, or the first zone if both are empty.
func (cfg *Config) resolveZone(name, id *string) (string, error) {
	for _, l := range cfg.Zones {
		zone := cfg.Region + l
		if str(name) == zone || str(id) == cfg.zoneID(zone) || str(name)+str(id) == "" {
			return zone, nil
		}
	}

	return "", newErrorf(
		codeInvalidParameterValue,
		"Value (%s) for parameter availabilityZone is invalid. Subnets can currently only be created in the following availability zones: %s.",
		str(name)+str(id),
		strings.Join(cfg.zoneNames(), ", "),
	)
}

// zoneNames returns the names of the region's availability zones, such as us-east-1a.
func (cfg *Config) zoneNames() []string {
	var out []string
	for _, l := range cfg.Zones {
		out = append(out, cfg.Region+l)
	}

	return out
}
