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
	forAll = "ForAllValues:"
	forAny = "ForAnyValue:"
)

// comparison is an operator without its prefix and suffix.
type comparison struct {
	test    func(v variables, have, want string) bool
	negated bool // the test must hold for none of the wanted values
}

// compare finds the comparison of that name.
func compare(name string) (comparison, bool) {
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

	test := textTest(base)
	if test == nil {
		test = orderTest(base)
	}

	return comparison{test, negated}, test != nil && (!negated || negatable(base))
}

func negatable(base string) bool {
	return slices.Contains([]string{
		"StringEquals", "StringEqualsIgnoreCase", "StringLike", "NumericEquals", "DateEquals",
		"ArnEquals", "ArnLike", "IpAddress",
	}, base)
}

func textTest(name string) func(variables, string, string) bool {
	withPattern := func(test func(p pattern, have string) bool) func(variables, string, string) bool {
		return func(v variables, have, want string) bool {
			p, ok := v.expand(want)
			return ok && test(p, have)
		}
	}

	switch name {
	case "StringEquals", "BinaryEquals":
		return withPattern(func(p pattern, have string) bool { return p.plain().match(have) })
	case "StringEqualsIgnoreCase":
		return withPattern(
			func(p pattern, have string) bool { return p.fold().plain().match(strings.ToLower(have)) },
		)

	case "StringLike":
		return withPattern(pattern.match)
	case "ArnEquals", "ArnLike":
		return withPattern(pattern.matchARN)
	case "Bool":
		return func(_ variables, have, want string) bool { return strings.EqualFold(have, want) }
	case "IpAddress":
		return func(_ variables, have, want string) bool { return inRange(have, want) }
	}

	return nil
}

func inRange(have, want string) bool {
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

// orderTest is a test of numbers or dates.
func orderTest(name string) func(variables, string, string) bool {
	number, isNumber := strings.CutPrefix(name, "Numeric")
	date, isDate := strings.CutPrefix(name, "Date")
	if isDate {
		number = date
	}

	holds := map[string]func(c int) bool{
		"Equals":            func(c int) bool { return c == 0 },
		"LessThan":          func(c int) bool { return c < 0 },
		"LessThanEquals":    func(c int) bool { return c <= 0 },
		"GreaterThan":       func(c int) bool { return c > 0 },
		"GreaterThanEquals": func(c int) bool { return c >= 0 },
	}[number]
	if holds == nil || !isNumber && !isDate {
		return nil
	}

	parse := parseNumber
	if isDate {
		parse = parseDate
	}

	return func(_ variables, have, want string) bool {
		h, okHave := parse(have)
		w, okWant := parse(want)
		if !okHave || !okWant {
			return false
		}

		switch {
		case h < w:
			return holds(-1)
		case h > w:
			return holds(1)
		}

		return holds(0)
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

// knownOperator tells whether IAM has a condition operator of that name.
func knownOperator(name string) bool {
	_, name = setPrefix(name)
	if name == "Null" {
		return true
	}

	_, ok := compare(strings.TrimSuffix(name, "IfExists"))

	return ok
}

func setPrefix(name string) (prefix, rest string) {
	for _, p := range []string{forAll, forAny} {
		if rest, ok := strings.CutPrefix(name, p); ok {
			return p, rest
		}
	}

	return "", name
}

// holds evaluates one condition. A key that is missing fails a test, unless the test is negated, says IfExists, or is
// about all values.
func (v variables) holds(c Condition) bool {
	have, present := v.context[strings.ToLower(c.Key)]
	prefix, name := setPrefix(c.Operator)
	if name == "Null" {
		return slices.ContainsFunc(
			c.Values,
			func(want string) bool { return strings.EqualFold(want, strconv.FormatBool(!present)) },
		)
	}

	base, ifExists := strings.CutSuffix(name, "IfExists")
	test, ok := compare(base)
	if !ok {
		return false
	}

	passes := func(value string) bool {
		hit := slices.ContainsFunc(c.Values, func(want string) bool { return test.test(v, value, want) })
		return hit != test.negated
	}
	if !present || len(have) == 0 {
		return ifExists || prefix == forAll || prefix == "" && test.negated
	}

	if prefix == forAll || prefix == "" && test.negated {
		return !slices.ContainsFunc(have, func(value string) bool { return !passes(value) })
	}

	return slices.ContainsFunc(have, passes)
}
