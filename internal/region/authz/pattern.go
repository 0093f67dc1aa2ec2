// SPDX-License-Identifier: Apache-2.0

package authz

import "strings"

// pattern is text with wildcards. A byte from the value of a policy variable is never a wildcard.
type pattern []patternChar

type patternChar struct {
	char       byte
	isWildcard bool // char is *, which matches any text, or ?, which matches any one byte
}

// newPattern returns the pattern of a text without variables.
func newPattern(text string) pattern {
	p := make(pattern, len(text))
	for i := range len(text) {
		p[i] = patternChar{char: text[i], isWildcard: text[i] == '*' || text[i] == '?'}
	}

	return p
}

// MatchPattern reports whether a pattern matches the whole text. In the pattern, * matches any text and ? any one
// character.
func MatchPattern(pattern, text string) bool { return newPattern(pattern).match(text) }

// match reports whether the pattern matches the whole text. It takes linear time for a pattern with one star,
// and at worst time proportional to the product of the lengths.
func (p pattern) match(text string) bool {
	at := 0        // index in p
	next := 0      // index in text
	lastStar := -1 // index in p of the last star so far
	starEnd := 0   // index in text of the end of what that star matches

	for next < len(text) {
		switch {
		case p.isStar(at):
			lastStar = at
			starEnd = next
			at++

		case at < len(p) && (p[at].isWildcard || p[at].char == text[next]):
			at++
			next++
		case lastStar >= 0: // let the last star match one byte more
			starEnd++
			at = lastStar + 1
			next = starEnd

		default:
			return false
		}
	}

	for p.isStar(at) {
		at++
	}

	return at == len(p)
}

// isStar reports whether the pattern has a star at i.
func (p pattern) isStar(i int) bool { return i < len(p) && p[i].isWildcard && p[i].char == '*' }

// toLower returns the pattern in lower case.
func (p pattern) toLower() pattern {
	out := make(pattern, len(p))
	for i, c := range p {
		if 'A' <= c.char && c.char <= 'Z' {
			c.char += 'a' - 'A'
		}

		out[i] = c
	}

	return out
}

// withoutWildcards returns the pattern with its wildcards as literal characters.
func (p pattern) withoutWildcards() pattern {
	out := make(pattern, len(p))
	for i, c := range p {
		out[i] = patternChar{char: c.char}
	}

	return out
}

// splitARN splits the pattern of an ARN at its first five colons.
func (p pattern) splitARN() []pattern {
	var out []pattern
	start := 0
	for i, c := range p {
		if c.char == ':' && len(out) < 5 {
			out = append(out, p[start:i])
			start = i + 1
		}
	}

	return append(out, p[start:])
}

// matchARN matches the six parts of an ARN one by one, so that a star does not match beyond a colon.
func (p pattern) matchARN(arn string) bool {
	want := p.splitARN()
	got := strings.SplitN(arn, ":", 6)
	if len(want) != 6 || len(got) != 6 {
		return p.match(arn) && len(p) == 1 // only "*" matches text that is not an ARN
	}

	for i := range want {
		if !want[i].match(got[i]) {
			return false
		}
	}

	return true
}

// policyVariables expands policy variables such as ${aws:username}.
type policyVariables struct {
	contextValues map[string][]string // by lower-case key
	enabled       bool                // the version of the policy has variables
}

// expandPattern returns text as a pattern, with its variables expanded. ok is false if a variable has no
// single value and no default; the text then matches nothing.
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
