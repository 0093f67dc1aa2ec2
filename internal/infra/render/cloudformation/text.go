// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

const (
	// mappingName and mappingKey are where a template holds what more than one text holds.
	mappingName = "Text"
	mappingKey  = "Shared"
	// minShared is the length in bytes from which holding a literal once makes a template smaller.
	minShared = 256
	// hashLength in digits is enough to tell a handful of texts apart.
	hashLength = 8
)

// sharedTexts names the long literals that more than one text holds: the boot script is in every launch template.
func (r renderer) sharedTexts() map[string]string {
	times := map[string]int{}
	for _, n := range r.graph.Nodes() {
		for _, f := range graph.Fields(n.Resource) {
			r.countLiterals(f.Value, times)
		}
	}

	names := map[string]string{}

	for literal, n := range times {
		if n > 1 && len(literal) >= minShared {
			sum := sha256.Sum256([]byte(literal))
			names[literal] = "T" + hex.EncodeToString(sum[:])[:hashLength]
		}
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

// renderMappings hold the shared literals, and what goes with each version of Kubernetes.
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

// renderText renders a text that holds references; one with nothing else is the reference.
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
