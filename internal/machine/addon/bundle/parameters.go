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
	replacing := NewParameters(parameters)
	var out []*unstructured.Unstructured

	for _, o := range objects {
		replaced, _ := replacing.Replace(o.Object).(map[string]any)
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

	if err := replacing.CheckUsed(name, "object"); err != nil {
		return nil, err
	}

	SortObjects(out)

	return out, nil
}

// Parameters are values that replace ${NAME} in texts. They remember which of them were used.
type Parameters struct {
	values map[string]string
	used   map[string]bool
}

// NewParameters returns parameters with these values, of which none was used.
func NewParameters(values map[string]string) *Parameters {
	return &Parameters{values: values, used: map[string]bool{}}
}

// CheckUsed returns an error if a parameter of an add-on was not used. where is what should contain it.
func (p *Parameters) CheckUsed(addon, where string) error {
	for _, name := range slices.Sorted(maps.Keys(p.values)) {
		if !p.used[name] {
			return diag.WithHint(
				fmt.Errorf("add-on %s: no %s contains ${%s}", addon, where, name),
				"remove parameter "+name+", or write ${"+name+"} into a value of the source",
			)
		}
	}

	return nil
}

// Replace returns a copy of a value in which the texts have the parameters replaced. Other texts with ${ stay:
// manifests contain shell scripts.
func (p *Parameters) Replace(value any) any {
	switch value := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, member := range value {
			out[key] = p.Replace(member)
		}

		return out

	case []any:
		out := make([]any, len(value))
		for i, item := range value {
			out[i] = p.Replace(item)
		}

		return out

	case string:
		return p.replaceInText(value)
	}

	return value
}

// replaceInText replaces ${NAME} once, so that a value is not searched for further parameters.
func (p *Parameters) replaceInText(text string) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "${")
		out.WriteString(before)
		if !found {
			return out.String()
		}

		name, after, closed := strings.Cut(rest, "}")
		value, known := p.values[name]
		if !closed || !known {
			out.WriteString("${")
			text = rest

			continue
		}

		p.used[name] = true
		out.WriteString(value)
		text = after
	}
}
