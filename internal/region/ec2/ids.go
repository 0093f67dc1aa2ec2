// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// newID makes an id such as vpc-0123456789abcdef0: a prefix and 17 hexadecimal digits.
func (s *Service) newID(prefix string) string {
	id := prefix + "-0" + s.randomHex(16)
	s.trackNewID(prefix, id)
	if s.createdIDs != nil {
		s.createdIDs = append(s.createdIDs, id)
	}

	return id
}

func (s *Service) randomHex(n int) string { return sdkshape.RandomHex(s.cfg.Rand, n) }

// resourceKinds maps an id's prefix to the name that ARNs and tags use.
func resourceKinds() map[string]string {
	return map[string]string{
		"vpc":      "vpc",
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

// resourceKind is the kind that ARNs use for an id; DescribeTags and TagSpecifications agree but for images.
func resourceKind(id string) string { return resourceKinds()[idPrefix(id)] }

// sortedKeys gives a map's keys in order.
func sortedKeys[V any](m map[string]V) []string { return sdkshape.SortedKeys(m) }

// str reads an optional string.
func str(p *string) string { return sdkshape.String(p) }

// strs reads a list of strings.
func strs(p []*string) []string { return sdkshape.Strings(p) }
