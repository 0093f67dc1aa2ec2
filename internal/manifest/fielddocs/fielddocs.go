// SPDX-License-Identifier: Apache-2.0

// Package fielddocs describes the fields of the manifests: their types, meanings and defaults. The descriptions are
// generated from the comments of the types, together with docs/reference/manifest.md, and embedded. The package knows no
// manifest; it only finds descriptions by path.
package fielddocs

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

//go:embed fields.json
var embedded []byte

// Field is one field of a kind, or the kind itself.
type Field struct {
	// Kind is Cluster or InstanceGroup.
	Kind string `json:"kind"`
	// Path of the field, such as spec.kubelet.maxPods; empty for the kind itself.
	Path string `json:"path"`
	// Type such as string, int or list of string.
	Type string `json:"type,omitempty"`
	// Description is a sentence or more. Empty for objects that need none.
	Description string `json:"description,omitempty"`
	// Default is what is used if the field is not set; empty: nothing.
	Default string `json:"default,omitempty"`
	// Fields are those below it, in the order of the reference.
	Fields []Field `json:"fields,omitempty"`
}

// Name returns the last part of the path.
func (f Field) Name() string { return f.Path[strings.LastIndex(f.Path, ".")+1:] }

// Kinds returns the kinds with all their fields.
func Kinds() ([]Field, error) {
	var out []Field
	if err := json.Unmarshal(embedded, &out); err != nil {
		return nil, fmt.Errorf("read the descriptions of the fields: %w", err)
	}

	return out, nil
}

// Find returns the field that a person means, such as cluster.spec.etcd, group.spec.kubelet.maxPods or, without spec,
// group.kubelet. Kinds and fields may be written in any case, and kinds as in 'slipway get'. An error has a hint.
func Find(what string) (Field, error) {
	kinds, err := Kinds()
	if err != nil {
		return Field{}, err
	}

	word, path, _ := strings.Cut(strings.ReplaceAll(what, "[]", ""), ".")
	kind := kindOf(word)
	at := slices.IndexFunc(kinds, func(f Field) bool { return f.Kind == kind })
	if at < 0 {
		return Field{}, diag.WithHint(
			fmt.Errorf("there is no kind %q", word),
			"begin with cluster or group, such as: slipway explain group.spec.kubelet",
		)
	}

	found, missing := kinds[at].descend(path)
	if missing == "" {
		return found, nil
	}

	return Field{}, unknownFieldError(kinds, at, path, missing, found)
}

// kindOf returns the kind that a word means.
func kindOf(word string) string {
	switch strings.ToLower(word) {
	case "cluster", "clusters":
		return "Cluster"
	case "group", "groups", "ig", "instancegroup", "instancegroups":
		return "InstanceGroup"
	}

	return ""
}

// descend returns the field at a path below f, and the part of the path that does not exist; then the field is the
// nearest one above it. The first part may be a field of spec.
func (f Field) descend(path string) (found Field, missing string) {
	if path == "" {
		return f, ""
	}

	parts := strings.Split(path, ".")
	if spec, ok := f.child("spec"); ok {
		_, isField := f.child(parts[0])
		_, isOfSpec := spec.child(parts[0])
		if !isField && isOfSpec {
			f = spec
		}
	}

	for _, part := range parts {
		next, ok := f.child(part)
		if !ok {
			return f, part
		}

		f = next
	}

	return f, ""
}

// child returns the field of a name directly below f.
func (f Field) child(name string) (Field, bool) {
	i := slices.IndexFunc(f.Fields, func(c Field) bool {
		return strings.EqualFold(strings.TrimSuffix(c.Name(), "[]"), name)
	})
	if i < 0 {
		return Field{}, false
	}

	return f.Fields[i], true
}

// unknownFieldError tells that a kind has no field at a path, and where it is instead.
func unknownFieldError(kinds []Field, at int, path, missing string, above Field) error {
	kind := kinds[at].Kind
	err := fmt.Errorf("%s has no field %s", kind, path)
	for i, other := range kinds {
		if elsewhere, rest := other.descend(path); i != at && rest == "" {
			return diag.WithHint(err, "it is a field of the "+other.Kind+": slipway explain "+
				strings.ToLower(other.Kind)+"."+elsewhere.Path)
		}
	}

	var names []string
	for _, c := range above.Fields {
		names = append(names, strings.TrimSuffix(c.Name(), "[]"))
	}

	if near := diag.Nearest(missing, names); near != "" {
		return diag.WithHint(err, "did you mean "+near+"?")
	}

	if paths := kinds[at].find(missing); len(paths) > 0 {
		return diag.WithHint(err, "did you mean "+strings.Join(paths, " or ")+"?")
	}

	if len(names) == 0 {
		return diag.WithHint(err, above.Path+" is "+above.Type+" and has no fields")
	}

	return diag.WithHint(err, "known here: "+strings.Join(names, ", "))
}

// find returns the paths of the fields of a name anywhere below f.
func (f Field) find(name string) []string {
	var out []string
	for _, c := range f.Fields {
		if strings.EqualFold(strings.TrimSuffix(c.Name(), "[]"), name) {
			out = append(out, c.Path)
		}

		out = append(out, c.find(name)...)
	}

	return out
}
