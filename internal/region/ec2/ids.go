// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// The prefixes of the ids of some resources.
const (
	dhcpOptionsPrefix = "dopt"
	keyPairPrefix     = "key"
	reservationPrefix = "r"
	snapshotPrefix    = "snap"
)

// newID returns a new id such as vpc-0123456789abcdef0: a prefix and 17 hexadecimal digits.
func (s *Service) newID(prefix string) string {
	id := prefix + "-0" + s.randomHex(16)
	s.trackNewID(prefix, id)
	if s.createdIDs != nil {
		s.createdIDs = append(s.createdIDs, id)
	}

	return id
}

func (s *Service) randomHex(n int) string { return sdkshape.RandomHex(s.cfg.Rand, n) }

// resourceKinds maps the prefix of an id to the resource type that ARNs and tags use.
func resourceKinds() map[string]string {
	return map[string]string{
		"vpc":      "vpc",
		"dopt":     "dhcp-options",
		"subnet":   "subnet",
		"igw":      "internet-gateway",
		"eipalloc": "elastic-ip",
		"nat":      "natgateway",
		"rtb":      "route-table",
		"sg":       "security-group",
		"sgr":      "security-group-rule",
		"acl":      "network-acl",
		"eni":      "network-interface",
		"vol":      "volume",
		"lt":       "launch-template",
		"i":        "instance",
		"ami":      "image",
		"key":      "key-pair",
		"vpce":     "vpc-endpoint",
		"pcx":      "vpc-peering-connection",
		"snap":     "snapshot",
	}
}

func idPrefix(id string) string {
	p, _, _ := strings.Cut(id, "-")
	return p
}

// resourceKind returns the resource type of an id as ARNs use it. DescribeTags and TagSpecifications use the
// same names, except for images.
func resourceKind(id string) string { return resourceKinds()[idPrefix(id)] }

// sortedKeys returns the keys of a map in order.
func sortedKeys[V any](m map[string]V) []string { return sdkshape.SortedKeys(m) }

// str returns the value of an optional string, or "".
func str(p *string) string { return sdkshape.String(p) }

// strs returns the values of a list of optional strings.
func strs(p []*string) []string { return sdkshape.Strings(p) }
