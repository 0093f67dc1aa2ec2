// SPDX-License-Identifier: Apache-2.0

package terraform

import (
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// specialChars are the characters that have a special meaning in a Terraform template, or that Terraform
// drops.
const specialChars = "$%\r"

// escapeTemplate escapes literal for a Terraform template, in which ${ and %{ start an expression. before is
// true if ${ follows, which a $ or % at the end of literal would escape.
func escapeTemplate(literal string, before bool) string {
	var b strings.Builder
	for rest := literal; rest != ""; {
		r := leadingRun(rest)
		rest = rest[len(r):]
		b.WriteString(escapeRun(r, rest, before))
	}

	return b.String()
}

// leadingRun returns the start of s: a repeated special character, or the text before the next special
// character.
func leadingRun(s string) string {
	if strings.IndexByte(specialChars, s[0]) >= 0 {
		return s[:len(s)-len(strings.TrimLeft(s, s[:1]))]
	}

	if i := strings.IndexAny(s, specialChars); i > 0 {
		return s[:i]
	}

	return s
}

// escapeRun escapes r, a result of [leadingRun] that rest follows.
func escapeRun(r, rest string, before bool) string {
	if r[0] == '\r' { // Terraform drops carriage returns from its input
		return `${"` + strings.Repeat(`\r`, len(r)) + `"}`
	}

	if strings.IndexByte(specialChars, r[0]) < 0 {
		return r
	}

	brace := strings.HasPrefix(rest, "{")
	// In a mixed run such as %${ the next character may also become a ${ by escaping.
	ours := rest == "" && before || rest != "" && strings.IndexByte(specialChars, rest[0]) >= 0

	switch {
	case ours || brace && len(r) > 1:
		return `${"` + r + `"}`
	case brace:
		return r + r
	default:
		return r
	}
}

// renderTemplate renders parts as a Terraform template: literals, and ${…} with the expressions that
// reference returns.
func renderTemplate(parts []graph.TextPart, reference func(graph.Symbol) string) string {
	var b strings.Builder
	for i, p := range parts {
		if p.Symbol != (graph.Symbol{}) {
			b.WriteString("${" + reference(p.Symbol) + "}")
			continue
		}

		b.WriteString(escapeTemplate(p.Literal, i+1 < len(parts)))
	}

	return b.String()
}

// quoteTemplate quotes a template for use in an expression. The content of ${…} is already an expression and
// stays as it is; its only strings consist of $, % or \r and are quoted.
func quoteTemplate(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := 0; i < len(s); i++ {
		if strings.HasPrefix(s[i:], "${") && (i == 0 || s[i-1] != '$') {
			end := strings.IndexByte(s[i:], '}') + 1
			b.WriteString(s[i : i+end])
			i += end - 1
			continue
		}

		switch c := s[i]; c {
		case '\n':
			b.WriteString(`\n`)
		case '\t':
			b.WriteString(`\t`)
		case '"', '\\':
			b.WriteString(`\` + string(c))
		default:
			b.WriteByte(c)
		}
	}

	b.WriteByte('"')

	return b.String()
}
