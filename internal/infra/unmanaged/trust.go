// SPDX-License-Identifier: Apache-2.0

package unmanaged

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/lib/partition"
)

// trustPolicy is what is read of the trust policy of a role.
type trustPolicy struct {
	Statement oneOrMore[trustStatement]
}

type trustStatement struct {
	Effect string
	// Principal is "*", or principals by their type.
	Principal json.RawMessage
	// NotPrincipal means everybody else.
	NotPrincipal json.RawMessage
}

// oneOrMore is a list that IAM lets one write without brackets if it has one element.
type oneOrMore[T any] []T

// UnmarshalJSON implements [json.Unmarshaler].
func (o *oneOrMore[T]) UnmarshalJSON(text []byte) error {
	if strings.HasPrefix(strings.TrimSpace(string(text)), "[") {
		return json.Unmarshal(text, (*[]T)(o))
	}

	var one T
	if err := json.Unmarshal(text, &one); err != nil {
		return err
	}

	*o = []T{one}

	return nil
}

// OtherPrincipals returns what a role's trust policy allows to assume the role, except EC2, sorted. It looks neither at the
// conditions of statements nor at what others deny: a role of machines needs none of them.
func OtherPrincipals(document string) ([]string, error) {
	var policy trustPolicy
	if err := json.Unmarshal([]byte(document), &policy); err != nil {
		return nil, fmt.Errorf("read the trust policy: %w", err)
	}

	found := map[string]bool{}

	for _, s := range policy.Statement {
		if s.Effect != "Allow" {
			continue
		}

		if s.NotPrincipal != nil {
			found["everybody but some"] = true
		}

		if err := s.addPrincipals(found); err != nil {
			return nil, err
		}
	}

	return slices.Sorted(maps.Keys(found)), nil
}

// addPrincipals adds the principals of a statement but EC2.
func (s trustStatement) addPrincipals(found map[string]bool) error {
	if s.Principal == nil {
		return nil
	}

	var everybody string
	if json.Unmarshal(s.Principal, &everybody) == nil {
		found[everybody] = true
		return nil
	}

	var byType map[string]oneOrMore[string]
	if err := json.Unmarshal(s.Principal, &byType); err != nil {
		return fmt.Errorf("read the principals of the trust policy: %w", err)
	}

	for kind, names := range byType {
		for _, name := range names {
			if kind != "Service" || !isEC2(name) {
				found[name] = true
			}
		}
	}

	return nil
}

// isEC2 reports whether a service principal is that of EC2 in some partition. An account only has those of its own.
func isEC2(principal string) bool {
	return slices.ContainsFunc(partition.All(), func(p partition.Partition) bool { return principal == "ec2."+p.DNSSuffix })
}
