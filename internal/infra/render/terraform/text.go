// SPDX-License-Identifier: Apache-2.0

package terraform

import (
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// specialChars are the characters that Terraform does not read as themselves, or not always.
const specialChars = "$%\r"

// escapeTemplate makes literal stand for itself in a template of Terraform: ${ and %{ would begin something. before says that
// what follows begins with ${, which a $ or % at the end would escape or confuse.
func escapeTemplate(literal string, before bool) string {
	var b strings.Builder
	for rest := literal; rest != ""; {
		r := leadingRun(rest)
		rest = rest[len(r):]
		b.WriteString(escapeRun(r, rest, before))
	}

	return b.String()
}

// leadingRun cuts off the beginning of s: a repeated special character, or what comes before the next one.
func leadingRun(s string) string {
	if strings.IndexByte(specialChars, s[0]) >= 0 {
		return s[:len(s)-len(strings.TrimLeft(s, s[:1]))]
	}

	if i := strings.IndexAny(s, specialChars); i > 0 {
		return s[:i]
	}

	return s
}

func escapeRun(r, rest string, before bool) string {
	if r[0] == '\r' { // Terraform drops it from what it reads
		return `${"` + strings.Repeat(`\r`, len(r)) + `"}`
	}

	if strings.IndexByte(specialChars, r[0]) < 0 {
		return r
	}

	brace := strings.HasPrefix(rest, "{")
	// A mixed run such as %${ counts too: what comes next may begin with our own ${.
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

// renderTemplate renders parts as a template of Terraform: literals, and ${…} for what reference gives.
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

// quoteTemplate turns a template into a quoted one, for use within an expression. What is within ${…} is an expression already;
// ours hold at most a string of $, % or \r, which is quoted already.
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
