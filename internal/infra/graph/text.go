// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"encoding/base64"
	"encoding/json"
	"strings"
)

// Text is a string made of literals and of attributes that AWS alone knows, so that user data can hold the name of a
// load balancer that does not exist yet (D12). It renders to Fn::Join, to ${…}, or, once all is known, to a string.
type Text struct {
	parts  []textPart
	base64 bool
}

type textPart struct {
	literal string
	symbol  Symbol
}

// TextPart is one piece of a [Text]: a literal, or a symbol if its Addr is set.
type TextPart struct {
	Literal string
	Symbol  Symbol
}

// LiteralText returns a text that is all literal.
func LiteralText(s string) Text {
	if s == "" {
		return Text{}
	}

	return Text{parts: []textPart{{literal: s}}}
}

// Concat joins texts. None of them may be one that [Text.Base64] returned.
func Concat(texts ...Text) Text {
	var out Text
	for _, t := range texts {
		for _, p := range t.parts {
			last := len(out.parts) - 1
			if p.symbol == (Symbol{}) && last >= 0 && out.parts[last].symbol == (Symbol{}) {
				out.parts[last].literal += p.literal
				continue
			}

			out.parts = append(out.parts, p)
		}
	}

	return out
}

// Base64 returns t to be encoded once all of it is known: Fn::Base64, base64encode().
func (t Text) Base64() Text {
	t.base64 = true
	return t
}

// IsBase64 says whether t is to be encoded.
func (t Text) IsBase64() bool { return t.base64 }

// Parts returns the pieces of t in order.
func (t Text) Parts() []TextPart {
	out := make([]TextPart, 0, len(t.parts))
	for _, p := range t.parts {
		out = append(out, TextPart{Literal: p.literal, Symbol: p.symbol})
	}

	return out
}

// Literal returns the string that t stands for, encoded if it is to be; false while a part is unknown.
func (t Text) Literal() (string, bool) {
	var b strings.Builder
	for _, p := range t.parts {
		if p.symbol != (Symbol{}) {
			return "", false
		}

		b.WriteString(p.literal)
	}

	if t.base64 {
		return base64.StdEncoding.EncodeToString([]byte(b.String())), true
	}

	return b.String(), true
}

// String renders t for a person, unknown parts as ${address.Attribute}.
func (t Text) String() string {
	var b strings.Builder
	for _, p := range t.parts {
		if p.symbol != (Symbol{}) {
			b.WriteString("${" + p.symbol.String() + "}")
		}

		b.WriteString(p.literal)
	}

	return b.String()
}

// JSON is a document that is compared by meaning, not by bytes. Make one with [CanonicalJSON].
type JSON string

// CanonicalJSON returns doc with its keys sorted and no blanks; what is no JSON comes back as it is.
func CanonicalJSON(doc string) JSON {
	var v any
	if json.Unmarshal([]byte(doc), &v) != nil {
		return JSON(doc)
	}

	b, err := json.Marshal(v)
	if err != nil {
		return JSON(doc)
	}

	return JSON(b)
}

// SymbolText returns the text that stands for s.
func SymbolText(s Symbol) Text { return Text{parts: []textPart{{symbol: s}}} }
