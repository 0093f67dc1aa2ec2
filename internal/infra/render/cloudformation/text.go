// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

const (
	// mappingName and mappingKey locate the shared literals in the template's mappings.
	mappingName = "Text"
	mappingKey  = "T"
	// minShared is the minimal length of a shared literal in bytes: sharing a shorter one does not make the
	// template smaller.
	minShared = 256
	// hashLength is the number of hex digits in a literal's name, enough for a few literals.
	hashLength = 8
)

// sharedTexts returns names for the long literals that occur more than once, such as the boot script in each
// launch template.
func (r renderer) sharedTexts() map[string]string {
	times := map[string]int{}
	for _, n := range r.graph.Nodes() {
		for _, f := range graph.Fields(n.Resource) {
			r.countLiterals(f.Value, times)
		}
	}

	var shared []string
	for literal, n := range times {
		if n > 1 && len(literal) >= minShared {
			shared = append(shared, literal)
		}
	}

	// A mapping has a limited number of attributes: those that make the template smallest are shared.
	saved := func(literal string) int { return (times[literal] - 1) * len(literal) }
	slices.SortFunc(shared, func(a, b string) int {
		return cmp.Or(saved(b)-saved(a), strings.Compare(a, b))
	})

	names := map[string]string{}
	for _, literal := range shared[:min(len(shared), maxMappingAttributes)] {
		sum := sha256.Sum256([]byte(literal))
		names[literal] = "T" + hex.EncodeToString(sum[:])[:hashLength]
	}

	return names
}

func (r renderer) countLiterals(v any, times map[string]int) {
	switch x := v.(type) {
	case graph.Text:
		for _, p := range x.Parts() {
			for _, piece := range r.renderLiteral(p.Literal) {
				if s, ok := piece.(string); ok {
					times[s]++
				}
			}
		}

	case []any:
		for _, e := range x {
			r.countLiterals(e, times)
		}

	case map[string]any:
		for _, e := range x {
			r.countLiterals(e, times)
		}
	}
}

// renderMappings returns the mappings: the shared literals, and the node documents of each Kubernetes
// version.
func (r renderer) renderMappings() jsonObject {
	texts := jsonObject{}
	out := jsonObject{}
	for literal, name := range r.sharedNames {
		texts[name] = literal
	}

	if len(texts) > 0 {
		out[mappingName] = jsonObject{mappingKey: texts}
	}

	if len(r.versions) > 0 {
		out[versionsMapping] = r.versions
	}

	return out
}

func (r renderer) renderPlain(v any) any {
	switch x := v.(type) {
	case graph.Symbol:
		return r.renderReference(x)
	case graph.Text:
		return r.renderText(x)
	default:
		return v
	}
}

// renderText renders a text: as Fn::Join, or as its only part.
func (r renderer) renderText(t graph.Text) any {
	var parts []any
	for _, p := range t.Parts() {
		if p.Symbol != (graph.Symbol{}) {
			parts = append(parts, r.renderReference(p.Symbol))
			continue
		}

		for _, piece := range r.renderLiteral(p.Literal) {
			if s, ok := piece.(string); ok && r.sharedNames[s] != "" {
				piece = jsonObject{"Fn::FindInMap": []string{mappingName, mappingKey, r.sharedNames[s]}}
			}

			parts = append(parts, piece)
		}
	}

	var v any = jsonObject{"Fn::Join": []any{"", parts}}
	if len(parts) == 1 {
		v = parts[0]
	}

	if t.IsBase64() {
		return jsonObject{"Fn::Base64": v}
	}

	return v
}
