// SPDX-License-Identifier: Apache-2.0

package authz

import "strings"

// pattern is text with wildcards. A byte that came from a variable's value is never a wildcard.
type pattern []patternChar

type patternChar struct {
	char       byte
	isWildcard bool // char is * or ? and means any text or any one character
}

// newPattern is the pattern of text without variables.
func newPattern(text string) pattern {
	p := make(pattern, len(text))
	for i := range len(text) {
		p[i] = patternChar{char: text[i], isWildcard: text[i] == '*' || text[i] == '?'}
	}

	return p
}

// Like tells whether the whole text fits a pattern, in which * is any text and ? any one character.
func Like(pattern, text string) bool { return newPattern(pattern).match(text) }

// match tells whether the whole text fits the pattern, in time linear in both for one star and quadratic at worst.
func (p pattern) match(text string) bool {
	i := 0
	j := 0
	star := -1
	mark := 0

	for j < len(text) {
		switch {
		case p.isStar(i):
			star = i
			mark = j
			i++

		case i < len(p) && (p[i].isWildcard || p[i].char == text[j]):
			i++
			j++
		case star >= 0:
			mark++
			i = star + 1
			j = mark

		default:
			return false
		}
	}

	for p.isStar(i) {
		i++
	}

	return i == len(p)
}

// isStar tells whether the pattern has a star at i.
func (p pattern) isStar(i int) bool { return i < len(p) && p[i].isWildcard && p[i].char == '*' }

// toLower is the pattern in lower case.
func (p pattern) toLower() pattern {
	out := make(pattern, len(p))
	for i, g := range p {
		if 'A' <= g.char && g.char <= 'Z' {
			g.char += 'a' - 'A'
		}

		out[i] = g
	}

	return out
}

// withoutWildcards is the pattern with its wildcards taken literally.
func (p pattern) withoutWildcards() pattern {
	out := make(pattern, len(p))
	for i, g := range p {
		out[i] = patternChar{char: g.char}
	}

	return out
}

// splitARN splits a pattern of an ARN at its first five colons.
func (p pattern) splitARN() []pattern {
	var out []pattern
	start := 0
	for i, g := range p {
		if g.char == ':' && len(out) < 5 {
			out = append(out, p[start:i])
			start = i + 1
		}
	}

	return append(out, p[start:])
}

// matchARN matches each of an ARN's six parts by itself, so that a star does not reach over a colon.
func (p pattern) matchARN(arn string) bool {
	want := p.splitARN()
	got := strings.SplitN(arn, ":", 6)
	if len(want) != 6 || len(got) != 6 {
		return p.match(arn) && len(p) == 1 // only "*" alone fits everything
	}

	for i := range want {
		if !want[i].match(got[i]) {
			return false
		}
	}

	return true
}

// policyVariables replaces policy variables such as ${aws:username}.
type policyVariables struct {
	contextValues map[string][]string // by lower-case key
	enabled       bool                // the policy's version has variables
}

// expandPattern is text as a pattern. ok is false where a variable has no single value and no default: then the text
// matches nothing.
func (v policyVariables) expandPattern(text string) (pattern, bool) {
	if !v.enabled {
		return newPattern(text), true
	}

	var out pattern
	for {
		before, rest, found := strings.Cut(text, "${")
		out = append(out, newPattern(before)...)
		if !found {
			return out, true
		}

		name, after, closed := strings.Cut(rest, "}")
		if !closed {
			return append(out, newPattern("${"+rest)...), true
		}

		value, ok := v.lookupValue(name)
		if !ok {
			return nil, false
		}

		out = append(out, newPattern(value).withoutWildcards()...)
		text = after
	}
}

func (v policyVariables) lookupValue(name string) (string, bool) {
	switch name {
	case "*", "?", "$":
		return name, true
	}

	key, fallback, hasDefault := strings.Cut(name, ",")
	values := v.contextValues[strings.ToLower(strings.TrimSpace(key))]
	if len(values) == 1 {
		return values[0], true
	}

	return strings.Trim(strings.TrimSpace(fallback), "'"), hasDefault
}
