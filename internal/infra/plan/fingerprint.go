// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// DesiredResource is one resource as it is to be, with references resolved as far as they are known.
type DesiredResource struct {
	Addr     graph.Addr
	Resource graph.Resource
}

// Desired returns everything that is to be, whether it exists or not, in an order in which it can be built.
func (p Plan) Desired() []DesiredResource { return slices.Clone(p.desired) }

// Actual returns everything that exists, each with its address.
func (p Plan) Actual() []ActualResource { return slices.Clone(p.actual) }

// Fingerprint tells whether a resource is still as it was, and if not, in what it differs. It holds no values.
type Fingerprint struct {
	ID string `json:"id,omitempty"`
	// Properties are hashes by property; a tag is a property of its own, and so is an attribute that AWS made up.
	Properties map[string]string `json:"properties"`
}

// Fingerprints are those of many resources.
type Fingerprints map[graph.Addr]Fingerprint

// FingerprintActual returns the fingerprints of what exists. Left out is what others may change: tags that are not ours,
// and properties that are ours only when a resource is made.
func (p Plan) FingerprintActual() Fingerprints {
	tags := map[graph.Addr]map[string]any{}
	for _, w := range p.desired {
		for _, f := range graph.Fields(w.Resource) {
			if m, ok := f.Value.(map[string]any); ok && f.IsTags {
				tags[w.Addr] = m
			}
		}
	}

	out := Fingerprints{}

	for _, a := range p.actual {
		known := graph.TagValue(a.Resource, graph.TagKeysTag)
		f := fingerprintOf(a.Resource, func(key string) bool {
			_, wanted := tags[a.Addr][key]
			return wanted || graph.IsOwnTag(key, known)
		})

		f.ID = a.ID
		for k, v := range a.Attributes {
			f.Properties["attribute "+k] = shortHash(v)
		}

		out[a.Addr] = f
	}

	return out
}

// FingerprintDesired returns the fingerprints of what is to be. They change with the manifests, with the agent, the image
// and the catalogue that machines get, and with the program that makes the plan.
func (p Plan) FingerprintDesired() Fingerprints {
	out := Fingerprints{}
	for _, w := range p.desired {
		out[w.Addr] = fingerprintOf(w.Resource, func(string) bool { return true })
	}

	return out
}

func fingerprintOf(r graph.Resource, counts func(tag string) bool) Fingerprint {
	f := Fingerprint{Properties: map[string]string{}}
	kind := r.Kind().Name
	for _, field := range graph.Fields(r) {
		if ownershipOf(kind, field.Property) == managedAtCreate {
			continue
		}

		tags, ok := field.Value.(map[string]any)
		if !ok || !field.IsTags {
			f.Properties[field.Property] = shortHash(resolvePlaceholders(field.Value))
			continue
		}

		for k, v := range tags {
			if counts(k) {
				f.Properties[field.Property+"["+k+"]"] = shortHash(resolvePlaceholders(v))
			}
		}
	}

	return f
}

// resolvePlaceholders spells symbols and texts out, so that they count as what they are.
func resolvePlaceholders(v any) any {
	switch x := v.(type) {
	case graph.Symbol:
		return "${" + x.String() + "}"
	case graph.Text:
		return x.String()
	case []any:
		out := make([]any, 0, len(x))
		for _, e := range x {
			out = append(out, resolvePlaceholders(e))
		}

		return out

	case map[string]any:
		out := map[string]any{}
		for k, e := range x {
			out[k] = resolvePlaceholders(e)
		}

		return out
	}

	return v
}

// shortHash returns 96 bits of a hash: enough to tell values apart, too little to fill the file.
func shortHash(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		b = []byte(fmt.Sprint(v))
	}

	sum := sha256.Sum256(b)

	return hex.EncodeToString(sum[:12])
}

// Differences says what of now is not as then, one line each, sorted by address: "subnet/a: MapPublicIpOnLaunch changed".
func (then Fingerprints) Differences(now Fingerprints) []string {
	var out []string
	all := maps.Clone(then)
	maps.Copy(all, now)

	for _, addr := range slices.Sorted(maps.Keys(all)) {
		was, before := then[addr]
		is, after := now[addr]
		switch {
		case !after:
			out = append(out, fmt.Sprintf("%s: is gone", addr))
		case !before:
			out = append(out, fmt.Sprintf("%s: is new", addr))
		case was.ID != is.ID:
			out = append(out, fmt.Sprintf("%s: is another one: %s, not %s", addr, is.ID, was.ID))
		default:
			for _, p := range was.changedProperties(is) {
				out = append(out, fmt.Sprintf("%s: %s changed", addr, p))
			}
		}
	}

	return out
}

func (f Fingerprint) changedProperties(now Fingerprint) []string {
	all := maps.Clone(f.Properties)
	if all == nil {
		all = map[string]string{}
	}

	maps.Copy(all, now.Properties)

	return slices.DeleteFunc(
		slices.Sorted(maps.Keys(all)),
		func(p string) bool { return f.Properties[p] == now.Properties[p] },
	)
}
