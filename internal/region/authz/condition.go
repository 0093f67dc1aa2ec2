// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	forAllPrefix = "ForAllValues:"
	forAnyPrefix = "ForAnyValue:"
)

// comparison is a condition operator without its prefix (ForAllValues, ForAnyValue) and suffix (IfExists).
type comparison struct {
	// test compares a value of the request with one of the policy.
	test func(v policyVariables, have, want string) bool
	// negated means that the test must fail for all values of the policy.
	negated bool
}

// findComparison returns the comparison with a name, such as StringNotEquals. ok is false if there is none.
func findComparison(name string) (comparison, bool) {
	base := name
	negated := false
	for _, n := range []string{"StringNot", "NumericNot", "DateNot", "ArnNot"} {
		if rest, ok := strings.CutPrefix(name, n); ok {
			base = strings.TrimSuffix(n, "Not") + rest
			negated = true
		}
	}

	if name == "NotIpAddress" {
		base = "IpAddress"
		negated = true
	}

	test := newTextTest(base)
	if test == nil {
		test = newOrderTest(base)
	}

	return comparison{test, negated}, test != nil && (!negated || hasNegatedForm(base))
}

func hasNegatedForm(base string) bool {
	return slices.Contains([]string{
		"StringEquals", "StringEqualsIgnoreCase", "StringLike", "NumericEquals", "DateEquals",
		"ArnEquals", "ArnLike", "IpAddress",
	}, base)
}

// newTextTest returns the test of an operator on text, ARNs, booleans or IP addresses; nil if there is none
// with the name.
func newTextTest(name string) func(policyVariables, string, string) bool {
	withPattern := func(test func(p pattern, have string) bool) func(policyVariables, string, string) bool {
		return func(v policyVariables, have, want string) bool {
			p, ok := v.expandPattern(want)
			return ok && test(p, have)
		}
	}

	switch name {
	case "StringEquals", "BinaryEquals":
		return withPattern(func(p pattern, have string) bool { return p.withoutWildcards().match(have) })
	case "StringEqualsIgnoreCase":
		return withPattern(
			func(p pattern, have string) bool { return p.toLower().withoutWildcards().match(strings.ToLower(have)) },
		)

	case "StringLike":
		return withPattern(pattern.match)
	case "ArnEquals", "ArnLike":
		return withPattern(pattern.matchARN)
	case "Bool":
		return func(_ policyVariables, have, want string) bool { return strings.EqualFold(have, want) }
	case "IpAddress":
		return func(_ policyVariables, have, want string) bool { return isInIPRange(have, want) }
	}

	return nil
}

func isInIPRange(have, want string) bool {
	addr, err := netip.ParseAddr(have)
	if err != nil {
		return false
	}

	if p, err := netip.ParsePrefix(want); err == nil {
		return p.Contains(addr.Unmap())
	}

	single, err := netip.ParseAddr(want)

	return err == nil && single == addr.Unmap()
}

// newOrderTest returns the test of an operator on numbers or dates; nil if there is none with the name.
func newOrderTest(name string) func(policyVariables, string, string) bool {
	number, isNumber := strings.CutPrefix(name, "Numeric")
	date, isDate := strings.CutPrefix(name, "Date")
	if isDate {
		number = date
	}

	accepts := map[string]func(order int) bool{
		"Equals":            func(order int) bool { return order == 0 },
		"LessThan":          func(order int) bool { return order < 0 },
		"LessThanEquals":    func(order int) bool { return order <= 0 },
		"GreaterThan":       func(order int) bool { return order > 0 },
		"GreaterThanEquals": func(order int) bool { return order >= 0 },
	}[number]
	if accepts == nil || !isNumber && !isDate {
		return nil
	}

	parse := parseNumber
	if isDate {
		parse = parseDate
	}

	return func(_ policyVariables, have, want string) bool {
		h, okHave := parse(have)
		w, okWant := parse(want)
		if !okHave || !okWant {
			return false
		}

		switch {
		case h < w:
			return accepts(-1)
		case h > w:
			return accepts(1)
		}

		return accepts(0)
	}
}

func parseNumber(text string) (float64, bool) {
	f, err := strconv.ParseFloat(text, 64)
	return f, err == nil
}

func parseDate(text string) (float64, bool) {
	if f, ok := parseNumber(text); ok {
		return f, true
	}

	t, err := time.Parse(time.RFC3339, text)
	return float64(t.Unix()), err == nil
}

// isKnownOperator reports whether IAM has a condition operator of that name.
func isKnownOperator(name string) bool {
	_, name = cutSetPrefix(name)
	if name == "Null" {
		return true
	}

	_, ok := findComparison(strings.TrimSuffix(name, "IfExists"))

	return ok
}

func cutSetPrefix(name string) (prefix, rest string) {
	for _, p := range []string{forAllPrefix, forAnyPrefix} {
		if rest, ok := strings.CutPrefix(name, p); ok {
			return p, rest
		}
	}

	return "", name
}

// evaluateCondition reports whether a condition is met. A condition whose key the request does not have is
// not met, unless its operator is negated, ends with IfExists, or begins with ForAllValues.
func (v policyVariables) evaluateCondition(c Condition) bool {
	have, present := v.contextValues[strings.ToLower(c.Key)]
	prefix, name := cutSetPrefix(c.Operator)
	if name == "Null" {
		return slices.ContainsFunc(
			c.Values,
			func(want string) bool { return strings.EqualFold(want, strconv.FormatBool(!present)) },
		)
	}

	base, ifExists := strings.CutSuffix(name, "IfExists")
	test, ok := findComparison(base)
	if !ok {
		return false
	}

	passes := func(value string) bool {
		matched := slices.ContainsFunc(c.Values, func(want string) bool { return test.test(v, value, want) })
		return matched != test.negated
	}

	if !present || len(have) == 0 {
		return ifExists || prefix == forAllPrefix || prefix == "" && test.negated
	}

	if prefix == forAllPrefix || prefix == "" && test.negated {
		return !slices.ContainsFunc(have, func(value string) bool { return !passes(value) })
	}

	return slices.ContainsFunc(have, passes)
}
