// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// OwnerLabel is the label of every object of an add-on. Its value is the add-on's name.
const OwnerLabel = "slipway.dev/addon"

// Prepare returns the objects of one add-on as they are applied: with its parameters, its labels and the label of their
// owner, sorted. The given objects are not changed.
func Prepare(
	name string,
	objects []*unstructured.Unstructured,
	parameters, labels map[string]string,
) ([]*unstructured.Unstructured, error) {
	used := map[string]bool{}
	var out []*unstructured.Unstructured

	for _, o := range objects {
		replaced, _ := replaceParameters(o.Object, parameters, used).(map[string]any)
		prepared := &unstructured.Unstructured{Object: replaced}
		set := maps.Clone(labels)
		if set == nil {
			set = map[string]string{}
		}

		maps.Copy(set, prepared.GetLabels())
		set[OwnerLabel] = name
		prepared.SetLabels(set)
		unstructured.RemoveNestedField(prepared.Object, "status") // manifests of CRDs contain an empty one
		unstructured.RemoveNestedField(prepared.Object, "metadata", "creationTimestamp")
		out = append(out, prepared)
	}

	for _, p := range slices.Sorted(maps.Keys(parameters)) {
		if !used[p] {
			return nil, diag.WithHint(
				fmt.Errorf("add-on %s: no object contains ${%s}", name, p),
				"remove parameter "+p+", or write ${"+p+"} into a value of the manifest",
			)
		}
	}

	SortObjects(out)

	return out, nil
}

// replaceParameters returns a copy of a value in which the texts have the parameters replaced. Other texts with ${ stay:
// manifests contain shell scripts.
func replaceParameters(value any, parameters map[string]string, used map[string]bool) any {
	switch value := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, member := range value {
			out[key] = replaceParameters(member, parameters, used)
		}

		return out

	case []any:
		out := make([]any, len(value))
		for i, item := range value {
			out[i] = replaceParameters(item, parameters, used)
		}

		return out

	case string:
		return replaceInText(value, parameters, used)
	}

	return value
}

// replaceInText replaces ${NAME} once, so that a value is not searched for further parameters.
func replaceInText(text string, parameters map[string]string, used map[string]bool) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "${")
		out.WriteString(before)
		if !found {
			return out.String()
		}

		name, after, closed := strings.Cut(rest, "}")
		value, known := parameters[name]
		if !closed || !known {
			out.WriteString("${")
			text = rest

			continue
		}

		used[name] = true
		out.WriteString(value)
		text = after
	}
}
