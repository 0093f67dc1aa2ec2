// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Difference is one value of an object that an apply changes.
type Difference struct {
	// Path of the value, such as .spec.replicas.
	Path string `json:"path"`
	// Before and After are the values as JSON; empty: there is none. Those of Secrets are hidden.
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
}

// hidden stands for a value of a Secret.
const hidden = "(hidden)"

// maxShown limits the length of a value in a Difference.
const maxShown = 60

// Compare returns what differs between an object as it is and as an apply would leave it, without what the API server
// sets itself.
func Compare(live, applied *unstructured.Unstructured) []Difference {
	secret := applied.GetKind() == "Secret" && applied.GroupVersionKind().Group == ""
	c := comparer{secret: secret}
	c.compareMaps("", withoutServerFields(live), withoutServerFields(applied))

	return c.found
}

// withoutServerFields returns the fields of an object that clients set.
func withoutServerFields(o *unstructured.Unstructured) map[string]any {
	out := maps.Clone(o.Object)
	delete(out, "status")
	metadata, _ := out["metadata"].(map[string]any)
	metadata = maps.Clone(metadata)
	for _, field := range []string{
		"managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink",
	} {
		delete(metadata, field)
	}

	out["metadata"] = metadata

	return out
}

// comparer collects differences.
type comparer struct {
	secret bool
	found  []Difference
}

func (c *comparer) compareMaps(path string, before, after map[string]any) {
	keys := map[string]bool{}
	for key := range before {
		keys[key] = true
	}

	for key := range after {
		keys[key] = true
	}

	for _, key := range slices.Sorted(maps.Keys(keys)) {
		at := path + "." + key
		if strings.ContainsAny(key, "./") {
			at = path + "[" + strconv.Quote(key) + "]"
		}

		c.compare(at, before[key], after[key])
	}
}

func (c *comparer) compare(path string, before, after any) {
	was, wasMap := before.(map[string]any)
	is, isMap := after.(map[string]any)
	if wasMap && isMap {
		c.compareMaps(path, was, is)
		return
	}

	old, wasList := before.([]any)
	items, isList := after.([]any)
	if wasList && isList && len(old) == len(items) {
		for i := range items {
			c.compare(fmt.Sprintf("%s[%d]", path, i), old[i], items[i])
		}

		return
	}

	left := canonicalJSON(before)
	right := canonicalJSON(after)
	if left != right {
		c.found = append(c.found, Difference{Path: path, Before: c.show(path, left), After: c.show(path, right)})
	}
}

// show returns a value as a person may see it.
func (c *comparer) show(path, text string) string {
	inData := strings.HasPrefix(path, ".data") || strings.HasPrefix(path, ".stringData")

	switch {
	case text == "null":
		return ""
	case c.secret && (inData || strings.HasPrefix(path, ".metadata.annotations")):
		return hidden
	case len(text) > maxShown:
		return strings.ToValidUTF8(text[:maxShown], "") + "…"
	}

	return text
}

// canonicalJSON returns a value as JSON with sorted keys.
func canonicalJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v) // objects come from JSON, so this does not happen
	}

	return string(text)
}

// Fingerprint returns a hash of an object as a manifest has it.
func Fingerprint(o *unstructured.Unstructured) string { return hashOf(o.Object) }

// OwnedFingerprint returns a hash of the fields of a live object that a field manager has applied, with their values. It
// changes if somebody else changes one of them or takes it over. It is empty if the manager has applied nothing.
func OwnedFingerprint(live *unstructured.Unstructured, manager string) string {
	for _, entry := range live.GetManagedFields() {
		if entry.Manager != manager || entry.Operation != "Apply" || entry.Subresource != "" || entry.FieldsV1 == nil {
			continue
		}

		var fields map[string]any
		if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields); err != nil {
			return ""
		}

		return hashOf([]any{fields, ownedValues(live.Object, fields)})
	}

	return ""
}

// ownedValues returns the part of a value that a set of fields names, in the format of FieldsV1: f: is a field, k: an
// item of a list by its keys, v: an item by its value, i: one by its index.
func ownedValues(value any, fields map[string]any) any {
	if len(fields) == 0 {
		return value
	}

	out := map[string]any{}
	for name, member := range fields {
		below, _ := member.(map[string]any)
		prefix, key, _ := strings.Cut(name, ":")
		switch prefix {
		case "f":
			if parent, ok := value.(map[string]any); ok {
				out[name] = ownedValues(parent[key], below)
			}
		case "k":
			out[name] = ownedValues(findItem(value, key), below)
		case "i", "v":
			out[name] = true // the set of fields itself has the value; the order of items belongs to nobody
		}
	}

	return out
}

// findItem returns the item of a list that has these keys, which are JSON.
func findItem(list any, keys string) any {
	var want map[string]any
	if err := json.Unmarshal([]byte(keys), &want); err != nil {
		return nil
	}

	items, _ := list.([]any)
	for _, item := range items {
		fields, _ := item.(map[string]any)
		matches := len(fields) > 0
		for key, v := range want {
			matches = matches && canonicalJSON(fields[key]) == canonicalJSON(v)
		}

		if matches {
			return item
		}
	}

	return nil
}

func hashOf(v any) string {
	sum := sha256.Sum256([]byte(canonicalJSON(v)))
	return hex.EncodeToString(sum[:])
}
