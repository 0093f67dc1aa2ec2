// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"slices"
	"strings"
)

// Suite is a set of Kubernetes' specs.
type Suite string

// The suites.
const (
	// Conformance is what every Kubernetes must pass.
	Conformance Suite = "Conformance"
	// NetworkPolicy are the specs about NetworkPolicies, which are no part of the conformance tests: not every network enforces
	// policies.
	NetworkPolicy Suite = "NetworkPolicy"
)

// ParseSuite returns the suite with a name; that of no name is [Conformance].
func ParseSuite(name string) (Suite, error) {
	switch s := Suite(name); s {
	case "":
		return Conformance, nil
	case Conformance, NetworkPolicy:
		return s, nil
	}

	return "", fmt.Errorf("unknown suite %q: it is %s or %s", name, Conformance, NetworkPolicy)
}

// mark is a part of the name of each spec of the suite.
func (s Suite) mark() string {
	if s == NetworkPolicy {
		return "[Feature:NetworkPolicy]"
	}

	return "[Conformance]"
}

// labelFilter is the expression that selects the suite by ginkgo's labels.
func (s Suite) labelFilter() string {
	if s == NetworkPolicy {
		return "Feature: containsAny NetworkPolicy"
	}

	return "Conformance"
}

// Exceptions returns those of the exceptions that are about the suite.
func (s Suite) Exceptions(all []Exception) []Exception {
	return slices.DeleteFunc(slices.Clone(all), func(e Exception) bool { return !strings.Contains(e.Spec, s.mark()) })
}
