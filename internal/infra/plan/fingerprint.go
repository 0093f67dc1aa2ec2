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

// DesiredResource is one resource of the graph.
type DesiredResource struct {
	// Addr is the address in the graph.
	Addr graph.Addr
	// Resource is the desired state, with references resolved as far as they are known.
	Resource graph.Resource
}

// Desired returns all desired resources, whether they exist or not, in a valid order of creation.
func (p Plan) Desired() []DesiredResource { return slices.Clone(p.desired) }

// Actual returns all existing resources, each with its address.
func (p Plan) Actual() []ActualResource { return slices.Clone(p.actual) }

// Fingerprint is a set of hashes of a resource, from which a later run can tell which properties have
// changed. It contains no values.
type Fingerprint struct {
	// ID is the identity in AWS; empty for a desired resource.
	ID string `json:"id,omitempty"`
	// Properties maps each property to a hash; each tag and each attribute that AWS assigned counts as a
	// property.
	Properties map[string]string `json:"properties"`
}

// Fingerprints maps addresses to fingerprints.
type Fingerprints map[graph.Addr]Fingerprint

// FingerprintActual returns the fingerprints of the existing resources. It leaves out what others may change:
// tags that Slipway did not set, and properties in the kind's IgnoreChanges.
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

// FingerprintDesired returns the fingerprints of the desired resources. They change with the manifests, with
// the agent, the image and the catalogue that machines get, and with the version of Slipway.
func (p Plan) FingerprintDesired() Fingerprints {
	out := Fingerprints{}
	for _, w := range p.desired {
		out[w.Addr] = fingerprintOf(w.Resource, func(string) bool { return true })
	}

	return out
}

func fingerprintOf(r graph.Resource, counts func(tag string) bool) Fingerprint {
	f := Fingerprint{Properties: map[string]string{}}
	ignored := r.Kind().Lifecycle.IgnoreChanges
	for _, field := range graph.Fields(r) {
		if slices.Contains(ignored, field.Property) {
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

// resolvePlaceholders replaces symbols and texts by their display form, so that they can be hashed.
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

// shortHash returns 96 bits of a SHA-256 in hex: enough to distinguish values, short enough for a saved plan.
func shortHash(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		b = []byte(fmt.Sprint(v))
	}

	sum := sha256.Sum256(b)

	return hex.EncodeToString(sum[:12])
}

// Differences returns how now differs from then, one line for each difference, sorted by address. Example:
// "subnet/a: MapPublicIpOnLaunch changed".
func (then Fingerprints) Differences(now Fingerprints) []string {
	var out []string
	all := maps.Clone(then)
	maps.Copy(all, now)

	for _, addr := range slices.Sorted(maps.Keys(all)) {
		was, before := then[addr]
		is, after := now[addr]
		switch {
		case !after:
			out = append(out, fmt.Sprintf("%s: no longer exists", addr))
		case !before:
			out = append(out, fmt.Sprintf("%s: is new", addr))
		case was.ID != is.ID:
			out = append(out, fmt.Sprintf("%s: was replaced: it is now %s, not %s", addr, is.ID, was.ID))
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
