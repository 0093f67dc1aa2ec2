// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"encoding/base64"
	"encoding/json"
	"strings"
)

// Text is a string of literals and of attributes that only AWS knows. It lets user data contain the name of a
// load balancer that does not exist yet. It renders as Fn::Join in CloudFormation, as ${…} in Terraform, and
// as a string once every attribute is known.
type Text struct {
	parts  []textPart
	base64 bool
}

type textPart struct {
	literal string
	symbol  Symbol
}

// TextPart is one part of a [Text]: a literal or a symbol.
type TextPart struct {
	// Literal is the text, if Symbol is zero.
	Literal string
	// Symbol is the attribute whose value belongs here.
	Symbol Symbol
}

// LiteralText returns a text without symbols.
func LiteralText(s string) Text {
	if s == "" {
		return Text{}
	}

	return Text{parts: []textPart{{literal: s}}}
}

// Concat joins texts. It must not be given the result of [Text.Base64].
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

// Base64 returns t with base64 encoding, applied once all of t is known: Fn::Base64 in CloudFormation,
// base64encode() in Terraform.
func (t Text) Base64() Text {
	t.base64 = true
	return t
}

// IsBase64 reports whether [Text.Base64] returned t.
func (t Text) IsBase64() bool { return t.base64 }

// Parts returns the parts of t in order, before any base64 encoding.
func (t Text) Parts() []TextPart {
	out := make([]TextPart, 0, len(t.parts))
	for _, p := range t.parts {
		out = append(out, TextPart{Literal: p.literal, Symbol: p.symbol})
	}

	return out
}

// Literal returns the string value of t, base64-encoded if [Text.Base64] returned t; false while a part is
// unknown.
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

// String renders t for display, with unknown parts as ${address.Attribute} and without base64 encoding.
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

// JSON is a document that is compared by meaning, not by bytes. [CanonicalJSON] creates one.
type JSON string

// CanonicalJSON returns doc with sorted keys and no blanks; a doc that is not valid JSON is returned
// unchanged.
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

// A reference in a string of a [JSON] document stands for a value that only AWS knows.
const (
	jsonReferenceStart = "@@ref "
	jsonReferenceEnd   = "@@"
)

// InJSON returns what stands for s in a string of a [JSON] document. The value of s must need no escape in JSON, as
// ids and ARNs.
func (s Symbol) InJSON() string {
	return jsonReferenceStart + string(s.Addr) + " " + s.Attribute + jsonReferenceEnd
}

// FindJSONReference returns the symbol of the first [Symbol.InJSON] of s and the text before and after it; the zero
// symbol and all of s as before if there is none.
func FindJSONReference(s string) (symbol Symbol, before, after string) {
	before, rest, found := strings.Cut(s, jsonReferenceStart)
	if !found {
		return Symbol{}, s, ""
	}

	mark, after, found := strings.Cut(rest, jsonReferenceEnd)
	addr, attribute, divided := strings.Cut(mark, " ")
	if !found || !divided || addr == "" {
		return Symbol{}, s, ""
	}

	return Symbol{Addr: Addr(addr), Attribute: attribute}, before, after
}

// Text returns the document with its references as symbols.
func (j JSON) Text() Text {
	out := Text{}
	for rest := string(j); rest != ""; {
		symbol, before, after := FindJSONReference(rest)
		out = Concat(out, LiteralText(before))
		if symbol != (Symbol{}) {
			out = Concat(out, SymbolText(symbol))
		}

		rest = after
	}

	return out
}

// JSONOf returns the document of a text that [JSON.Text] returned.
func JSONOf(t Text) JSON {
	var b strings.Builder
	for _, p := range t.parts {
		b.WriteString(p.literal)
		if p.symbol != (Symbol{}) {
			b.WriteString(p.symbol.InJSON())
		}
	}

	return JSON(b.String())
}

func (j JSON) resolveSymbols(lookup Lookup) any {
	resolved, ok := j.Text().resolveSymbols(lookup).(Text)
	if !ok {
		return j
	}

	return JSONOf(resolved)
}

// SymbolText returns a text that consists of s.
func SymbolText(s Symbol) Text { return Text{parts: []textPart{{symbol: s}}} }
