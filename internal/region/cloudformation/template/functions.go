// SPDX-License-Identifier: Apache-2.0

package template

import (
	"encoding/base64"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

func (s Scope) fnJoin(arg any) (any, error) {
	bad := errMalformedJoin()
	list, _ := arg.([]any)
	if len(list) != 2 {
		return nil, bad
	}

	delimiter, ok := list[0].(string)
	if !ok {
		return nil, bad
	}

	v, err := s.Eval(list[1])
	if err != nil {
		return nil, err
	}

	if IsUnknown(v) {
		return UnknownValue{}, nil
	}

	parts, err := stringsOrUnknown(v, bad)
	if err != nil || parts == nil {
		return UnknownValue{}, err
	}

	return strings.Join(parts, delimiter), nil
}

// stringsOrUnknown returns the strings of a list; nil if one of them is unknown.
func stringsOrUnknown(v any, bad error) ([]string, error) {
	list, ok := v.([]any)
	if !ok {
		return nil, bad
	}

	out := make([]string, 0, len(list))

	for _, e := range list {
		t, ok := ScalarText(e)
		if !ok && !IsUnknown(e) {
			return nil, bad
		}

		if !ok {
			return nil, nil //nolint:nilnil // nil means that it is not known
		}

		out = append(out, t)
	}

	return out, nil
}

func (s Scope) evalBools(name string, arg any) ([]bool, error) {
	list, _ := arg.([]any)
	if len(list) < minBooleans || len(list) > maxBooleans {
		return nil, errMalformedBooleans(name)
	}

	var out []bool

	for _, e := range list {
		b, err := s.evalBool(e)
		if err != nil {
			return nil, err
		}

		out = append(out, b)
	}

	return out, nil
}

func (s Scope) fnAnd(arg any) (any, error) {
	all, err := s.evalBools("Fn::And", arg)
	return !slices.Contains(all, false), err
}

func (s Scope) fnOr(arg any) (any, error) {
	all, err := s.evalBools("Fn::Or", arg)
	return slices.Contains(all, true), err
}

func (s Scope) fnNot(arg any) (any, error) {
	list, _ := arg.([]any)
	if len(list) != 1 {
		return nil, errMalformedNot()
	}

	b, err := s.evalBool(list[0])

	return !b, err
}

func (s Scope) fnFindInMap(arg any) (any, error) {
	v, err := s.Eval(arg)
	if err != nil {
		return nil, err
	}

	list, _ := v.([]any)
	if len(list) != 3 {
		return nil, errMalformedFindInMap()
	}

	var at [3]string
	for i := range at {
		at[i], _ = ScalarText(list[i])
	}

	out, ok := s.Template.Mappings[at[0]][at[1]][at[2]]
	if !ok {
		return nil, errNoMapping(at)
	}

	return out, nil
}

func (s Scope) fnBase64(arg any) (any, error) {
	v, err := s.Eval(arg)
	if err != nil || IsUnknown(v) {
		return v, err
	}

	t, ok := ScalarText(v)
	if !ok {
		return nil, ErrorInTemplate("every Fn::Base64 object must have a String-typed value.")
	}

	return base64.StdEncoding.EncodeToString([]byte(t)), nil
}

func (s Scope) fnGetAZs(arg any) (any, error) {
	v, err := s.Eval(arg)
	if err != nil {
		return nil, err
	}

	region, ok := ScalarText(v)
	if !ok || region != "" && region != s.Pseudo["AWS::Region"] {
		return nil, ErrorInTemplate("Fn::GetAZs: %v is not the region of the stack", v)
	}

	out := []any{}
	for _, z := range s.Zones {
		out = append(out, z)
	}

	return out, nil
}

func (s Scope) fnImportValue(arg any) (any, error) {
	v, err := s.Eval(arg)
	if err != nil {
		return nil, err
	}

	name, ok := ScalarText(v)
	if !ok || s.ResolveExport == nil {
		return nil, ErrorInTemplate(
			"the attribute in Fn::ImportValue must not depend on any resources, imported values, or Fn::GetAZs",
		)
	}

	return s.ResolveExport(name)
}

// fnCidr divides a CIDR block into smaller ones. The argument is [block, count, number of host bits].
func (s Scope) fnCidr(arg any) (any, error) {
	v, err := s.Eval(arg)
	if err != nil {
		return nil, err
	}

	list, _ := v.([]any)
	if len(list) < 2 || len(list) > 3 {
		return nil, ErrorInTemplate(
			"every Fn::Cidr object requires two or three parameters, (1) an ipBlock, (2) a count and (3) cidrBits",
		)
	}

	if HasUnknown(list) {
		return UnknownValue{}, nil
	}

	var at [3]string
	for i, e := range list {
		at[i], _ = ScalarText(e)
	}

	from, err := netip.ParsePrefix(at[0])
	if err != nil {
		return nil, ErrorInTemplate("Fn::Cidr: %s is not a CIDR block", at[0])
	}

	count, err := strconv.Atoi(at[1])
	if err != nil || count < 1 || count > 256 {
		return nil, ErrorInTemplate("Fn::Cidr: the count must be between 1 and 256")
	}

	host, err := hostBitCount(from, at[2])
	if err != nil {
		return nil, err
	}

	return splitPrefix(from.Masked(), count, from.Addr().BitLen()-host)
}

// hostBitCount returns the number of host bits of the blocks.
func hostBitCount(from netip.Prefix, given string) (int, error) {
	switch n, err := strconv.Atoi(given); {
	case given == "" && from.Addr().Is6():
		return 64, nil
	case given == "":
		return 8, nil
	case err != nil:
		return 0, ErrorInTemplate("Fn::Cidr: cidrBits must be a number")
	default:
		return n, nil
	}
}

// splitPrefix returns the first count prefixes of the given length within from.
func splitPrefix(from netip.Prefix, count, length int) (any, error) {
	if length < from.Bits() || length > from.Addr().BitLen() {
		return nil, ErrorInTemplate("Fn::Cidr: blocks of /%d do not fit into %s", length, from)
	}

	out := []any{}
	at := netip.PrefixFrom(from.Addr(), length)

	for range count {
		if !from.Contains(at.Addr()) {
			return nil, ErrorInTemplate("Fn::Cidr: %s has no room for %d blocks of /%d", from, count, length)
		}

		out = append(out, at.String())
		next, ok := nextPrefix(at)
		if !ok && len(out) < count {
			return nil, ErrorInTemplate("Fn::Cidr: %s has no room for %d blocks of /%d", from, count, length)
		}

		at = next
	}

	return out, nil
}

// nextPrefix returns the prefix that follows p; false at the end of the address space.
func nextPrefix(p netip.Prefix) (netip.Prefix, bool) {
	b := p.Addr().AsSlice()
	bit := p.Bits() - 1
	for ; bit >= 0; bit-- {
		mask := byte(1) << (7 - bit%8)
		b[bit/8] ^= mask
		if b[bit/8]&mask != 0 {
			a, _ := netip.AddrFromSlice(b)
			return netip.PrefixFrom(a, p.Bits()), true
		}
	}

	return p, false
}
