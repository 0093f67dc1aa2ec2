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
	parts  []part
	base64 bool
}

type part struct {
	literal string
	symbol  Symbol
}

// Part is one piece of a [Text]: a literal, or a symbol if its Addr is set.
type Part struct {
	Literal string
	Symbol  Symbol
}

// Lit returns a text that is all literal.
func Lit(s string) Text {
	if s == "" {
		return Text{}
	}
	return Text{parts: []part{{literal: s}}}
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
func (t Text) Parts() []Part {
	out := make([]Part, 0, len(t.parts))
	for _, p := range t.parts {
		out = append(out, Part{Literal: p.literal, Symbol: p.symbol})
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

// JSON is a document that is compared by meaning, not by bytes. Make one with [Canonical].
type JSON string

// Canonical returns doc with its keys sorted and no blanks; what is no JSON comes back as it is.
func Canonical(doc string) JSON {
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
func SymbolText(s Symbol) Text { return Text{parts: []part{{symbol: s}}} }
