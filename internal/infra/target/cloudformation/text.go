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
	for _, n := range r.g.Nodes() {
		for _, f := range graph.Fields(n.Resource) {
			r.count(f.Value, times)
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

func (r renderer) count(v any, times map[string]int) {
	switch x := v.(type) {
	case graph.Text:
		for _, p := range x.Parts() {
			for _, piece := range r.literal(p.Literal) {
				if s, ok := piece.(string); ok {
					times[s]++
				}
			}
		}
	case []any:
		for _, e := range x {
			r.count(e, times)
		}
	case map[string]any:
		for _, e := range x {
			r.count(e, times)
		}
	}
}

// mappings hold the shared literals, and what goes with each version of Kubernetes.
func (r renderer) mappings() object {
	texts, out := object{}, object{}
	for literal, name := range r.shared {
		texts[name] = literal
	}
	if len(texts) > 0 {
		out[mappingName] = object{mappingKey: texts}
	}
	if len(r.versions) > 0 {
		out[versionsName] = r.versions
	}
	return out
}

func (r renderer) plain(v any) any {
	switch x := v.(type) {
	case graph.Symbol:
		return r.reference(x)
	case graph.Text:
		return r.text(x)
	default:
		return v
	}
}

// text renders a text that holds references; one with nothing else is the reference.
func (r renderer) text(t graph.Text) any {
	var parts []any
	for _, p := range t.Parts() {
		if p.Symbol != (graph.Symbol{}) {
			parts = append(parts, r.reference(p.Symbol))
			continue
		}
		for _, piece := range r.literal(p.Literal) {
			if s, ok := piece.(string); ok && r.shared[s] != "" {
				piece = object{"Fn::FindInMap": []string{mappingName, mappingKey, r.shared[s]}}
			}
			parts = append(parts, piece)
		}
	}
	var v any = object{"Fn::Join": []any{"", parts}}
	if len(parts) == 1 {
		v = parts[0]
	}
	if t.IsBase64() {
		return object{"Fn::Base64": v}
	}
	return v
}
