// SPDX-License-Identifier: Apache-2.0

package terraform

import (
	"strings"

	"github.com/slipway-k8s/slipway/internal/graph"
)

// escape makes literal stand for itself in a template of Terraform: ${ and %{ would begin something. before says that
// what follows begins with ${, which a $ or % at the end would escape or confuse.
func escape(literal string, before bool) string {
	var b strings.Builder
	for i := 0; i < len(literal); {
		c := literal[i]
		if c == '\r' { // Terraform drops it from what it reads
			b.WriteString(`${"\r"}`)
			i++
			continue
		}
		if c != '$' && c != '%' {
			b.WriteByte(c)
			i++
			continue
		}
		end := i + len(literal[i:]) - len(strings.TrimLeft(literal[i:], string(c)))
		run := literal[i:end]
		brace := end < len(literal) && literal[end] == '{'
		// A mixed run such as %${ counts too: what comes next may begin with our own ${.
		ours := end == len(literal) && before || end < len(literal) && strings.IndexByte("$%\r", literal[end]) >= 0
		switch {
		case brace && len(run) == 1 && !ours:
			b.WriteString(run + run)
		case brace || ours:
			b.WriteString(`${"` + run + `"}`)
		default:
			b.WriteString(run)
		}
		i = end
	}
	return b.String()
}

// template renders parts as a template of Terraform: literals, and ${…} for what reference gives.
func template(parts []graph.Part, reference func(graph.Symbol) string) string {
	var b strings.Builder
	for i, p := range parts {
		if p.Symbol != (graph.Symbol{}) {
			b.WriteString("${" + reference(p.Symbol) + "}")
			continue
		}
		b.WriteString(escape(p.Literal, i+1 < len(parts)))
	}
	return b.String()
}

// quote turns a template into a quoted one, for use within an expression. What is within ${…} is an expression already;
// ours hold at most a string of $, % or \r, which is quoted already.
func quote(s string) string {
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
