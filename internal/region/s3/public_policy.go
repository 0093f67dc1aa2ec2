// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/authz"
)

// The longest networks that S3 takes for a restriction: wider ones count as the public.
const (
	widestIPv4Bits = 8
	widestIPv6Bits = 32
)

// isPublicPolicy reports whether a policy allows something to everyone; see "The meaning of public" in the S3 user guide.
func isPublicPolicy(p authz.Policy) bool {
	return slices.ContainsFunc(p.Statements, func(st authz.Statement) bool {
		return st.Allow &&
			(slices.Contains(st.Principal["AWS"], "*") || st.NotPrincipal != nil) &&
			!slices.ContainsFunc(st.Conditions, restrictsCallers)
	})
}

// restrictsCallers reports whether a condition limits a statement to fixed sources.
func restrictsCallers(c authz.Condition) bool {
	key := strings.ToLower(c.Key)
	operator := strings.ToLower(strings.TrimPrefix(c.Operator, "ForAnyValue:"))

	switch operator {
	case "ipaddress":
		return key == "aws:sourceip" && !slices.ContainsFunc(c.Values, isWideRange)
	case "stringequals", "stringequalsignorecase", "stringlike", "arnequals", "arnlike":
		return slices.Contains(sourceKeys(), key) && !slices.ContainsFunc(c.Values, isOpenValue)
	}

	return false
}

// sourceKeys returns the condition keys whose fixed values make a policy private, besides aws:SourceIp.
func sourceKeys() []string {
	return []string{
		"aws:principalorgid",
		"aws:sourceaccount",
		"aws:sourcearn",
		"aws:sourceowner",
		"aws:sourcevpc",
		"aws:sourcevpce",
		"aws:userid",
		"s3:dataaccesspointaccount",
		"s3:dataaccesspointarn",
		"s3:x-amz-server-side-encryption-aws-kms-key-id",
	}
}

// isOpenValue reports whether a value has a wildcard or a variable.
func isOpenValue(value string) bool { return strings.ContainsAny(value, "*?$") }

func isWideRange(value string) bool {
	network, err := netip.ParsePrefix(value)
	if err != nil {
		return !isAddress(value)
	}

	if network.Addr().Is4() {
		return network.Bits() < widestIPv4Bits
	}

	return network.Bits() < widestIPv6Bits
}

func isAddress(value string) bool {
	_, err := netip.ParseAddr(value)

	return err == nil
}
