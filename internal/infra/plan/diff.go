// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// Diff returns the changes that turn have into want. Properties that want does not set are not managed, and
// those in the kind's IgnoreChanges are not compared. A value of want that is not known yet is [Unknown].
func Diff(want, have graph.Resource) []Change {
	props := map[string]any{}
	for _, f := range graph.Fields(have) {
		props[f.Property] = f.Value
	}

	ignored := want.Kind().Lifecycle.IgnoreChanges
	out := removedProperties(want, props)

	for _, f := range graph.Fields(want) {
		if f.WriteOnly || slices.Contains(ignored, f.Property) {
			continue
		}

		d := propertyDiffer{isTags: f.IsTags}
		d.diffValue(f.Property, f.Value, props[f.Property])
		for _, c := range d.changes {
			c.ForcesReplacement = f.Immutable
			out = append(out, c)
		}
	}

	return out
}

// removedProperties returns a change for each property whose absence is enforced and that only have sets.
func removedProperties(want graph.Resource, have map[string]any) []Change {
	set := map[string]any{}
	for _, f := range graph.Fields(want) {
		set[f.Property] = f.Value
	}

	var out []Change

	for _, f := range graph.Properties(want) {
		out = append(out, removedFrom("", []graph.Field{f}, set, have)...)
		wanted, _ := set[f.Property].(map[string]any)
		existing, _ := have[f.Property].(map[string]any)
		out = append(out, removedFrom(f.Property+".", f.Nested, wanted, existing)...)
	}

	return out
}

// removedFrom is removedProperties for the properties fields of a value. prefix is that of their paths.
func removedFrom(prefix string, fields []graph.Field, want, have map[string]any) []Change {
	var out []Change
	for _, f := range fields {
		old, there := have[f.Property]
		if _, wanted := want[f.Property]; f.EnforceAbsence && there && !wanted {
			out = append(out, Change{Property: prefix + f.Property, Old: old})
		}
	}

	return out
}

type propertyDiffer struct {
	isTags  bool
	changes []Change
}

func (d *propertyDiffer) addChange(path string, old, want any) {
	d.changes = append(d.changes, Change{Property: path, Old: old, New: want})
}

func (d *propertyDiffer) diffValue(path string, want, have any) {
	switch w := want.(type) {
	case graph.Symbol, graph.Text:
		d.addChange(path, have, Unknown)
	case map[string]any:
		d.diffMap(path, w, have)
	case []any:
		d.diffList(path, w, have)
	default:
		if graph.IsZero(want) && graph.IsZero(have) || graph.EqualValues(want, have) {
			return
		}

		d.addChange(path, have, want)
	}
}

func (d *propertyDiffer) diffMap(path string, want map[string]any, have any) {
	h, _ := have.(map[string]any) // nil: not set
	name := func(k string) string {
		if d.isTags || strings.HasSuffix(path, "Tags") || strings.HasSuffix(path, "Attributes") {
			return path + "[" + k + "]"
		}

		return path + "." + k
	}

	for _, k := range slices.Sorted(maps.Keys(want)) {
		d.diffValue(name(k), want[k], h[k])
	}

	if !d.isTags {
		return
	}

	remembered, _ := h[graph.TagKeysTag].(string)

	for _, k := range slices.Sorted(maps.Keys(h)) {
		if _, wanted := want[k]; !wanted && graph.IsOwnTag(k, remembered) {
			d.addChange(name(k), h[k], nil)
		}
	}
}

func (d *propertyDiffer) diffList(path string, want []any, have any) {
	h, _ := have.([]any) // nil: not set
	if len(h) != len(want) || slices.ContainsFunc(want, isScalar) {
		if !graph.EqualValues(want, h) && len(want)+len(h) > 0 {
			d.addChange(path, have, maskUnknown(want))
		}

		return
	}

	for i := range want {
		d.diffValue(fmt.Sprintf("%s[%d]", path, i), want[i], h[i])
	}
}

func isScalar(v any) bool {
	_, isMap := v.(map[string]any)
	return !isMap
}

// maskUnknown replaces unknown values by [Unknown], so that a plan can be printed.
func maskUnknown(v any) any {
	switch x := v.(type) {
	case graph.Symbol, graph.Text:
		return Unknown
	case []any:
		out := make([]any, 0, len(x))
		for _, e := range x {
			out = append(out, maskUnknown(e))
		}

		return out

	case map[string]any:
		out := map[string]any{}
		for k, e := range x {
			out[k] = maskUnknown(e)
		}

		return out
	}

	return v
}

// resourceKey returns the values of r's key properties, joined; false while one of them is unknown.
func resourceKey(r graph.Resource) (string, bool) {
	k := r.Kind()
	props := map[string]any{}
	for _, f := range graph.Fields(r) {
		props[f.Property] = f.Value
	}

	parts := make([]string, 0, len(k.KeyProperties))

	for _, p := range k.KeyProperties {
		switch v := props[p].(type) {
		case graph.Symbol, graph.Text:
			return "", false
		case nil:
			parts = append(parts, "")
		default:
			parts = append(parts, fmt.Sprint(v))
		}
	}

	return strings.Join(parts, "\x00"), true
}

// addressUnclaimed sets the addresses of the existing resources that match no desired one: the address in the
// tag, or for a kind with key properties the name of the parent and the key. Duplicates get a suffix @ID.
func (m *planner) addressUnclaimed(rest []ActualResource) {
	names := map[string]string{}
	addName := func(a *ActualResource) {
		if _, name, ok := strings.Cut(string(a.Addr), "/"); ok {
			names[a.ID] = name
		}
	}

	for _, a := range m.claimed {
		addName(a)
	}

	for i := range rest {
		addName(&rest[i])
	}

	taken := map[graph.Addr]bool{}

	for i := range rest {
		a := &rest[i]
		if a.Addr == "" {
			key, _ := resourceKey(a.Resource)
			var parts []string
			for p := range strings.SplitSeq(key, "\x00") {
				if n, ok := names[p]; ok {
					p = n
				}

				if p != "" {
					parts = append(parts, p)
				}
			}

			a.Addr = graph.Address(a.Resource.Kind(), strings.Join(parts, ":"))
		}

		if taken[a.Addr] || m.claimed[a.Addr] != nil || m.desired.Node(a.Addr) != nil {
			a.Addr += graph.Addr("@" + a.ID)
		}

		taken[a.Addr] = true
	}
}

// compareStrings compares pairs of strings until one differs.
func compareStrings(pairs ...string) int {
	for i := 0; i+1 < len(pairs); i += 2 {
		if c := strings.Compare(pairs[i], pairs[i+1]); c != 0 {
			return c
		}
	}

	return 0
}
