// SPDX-License-Identifier: Apache-2.0

package judge_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/render"
	"github.com/slipway-k8s/slipway/internal/infra/render/terraform"
	"github.com/slipway-k8s/slipway/test/referencedata"
)

// compareAttributes compares the resources that Terraform has planned and created with the graph,
// attribute by attribute and in both directions. Each property of the graph has its name and value
// in Terraform, and Terraform sets no other attribute.
func compareAttributes(t *testing.T, g *graph.Graph, state map[string]map[string]any) {
	t.Helper()
	computed := computedAttributes(t)
	if want := len(g.Nodes()) + countSeparate(g); len(state) != want {
		t.Errorf("the graph has %d resources, Terraform %d", want, len(state))
	}
	labels, err := render.UniqueNames(g, func(n *graph.Node) (string, string) {
		return n.Resource.Kind().Terraform, render.SafeLabel(n.Name)
	})
	if err != nil {
		t.Fatal(err)
	}
	made := func(a graph.Addr) map[string]any { return state[g.Node(a).Resource.Kind().Terraform+"."+labels[a]] }
	lookup := func(s graph.Symbol) (string, bool) {
		attribute := "id"
		if s.Attribute != "" {
			attribute = g.Node(s.Addr).Resource.Kind().Attributes[s.Attribute]
		}
		v := made(s.Addr)[attribute]
		return fmt.Sprint(v), v != nil
	}
	attributes := 0
	for _, n := range g.Nodes() {
		kind := n.Resource.Kind()
		want := expectedAttributes(kind, graph.Fields(graph.Resolve(n.Resource, lookup)))
		if hooks := initialHooks(g, n); hooks != nil {
			want["initial_lifecycle_hook"] = hooks
		}
		compareSeparate(t, graph.Resolve(n.Resource, lookup), labels[n.Addr], state)
		have := dropUnset(made(n.Addr), func(name string) bool { _, asked := want[name]; return !asked && computed[kind.Terraform][name] })
		if diff := cmp.Diff(normalizeValue(want), normalizeValue(have)); diff != "" {
			t.Errorf("%s is not %s (-graph +Terraform):\n%s", kind.Terraform, n.Addr, diff)
		}
		attributes += len(want)
	}
	t.Logf("%d resources, %d attributes equal those of the graph", len(state), attributes)
}

// initialHooks returns the hooks that a group of Terraform has before its first machine: those that a warm pool needs.
func initialHooks(g *graph.Graph, group *graph.Node) []any {
	var out []any
	for _, n := range g.Nodes() {
		hook, ok := n.Resource.(awskind.LifecycleHook)
		if ok && hook.Group.Addr() == group.Addr && hook.Transition == "autoscaling:EC2_INSTANCE_LAUNCHING" {
			block := expectedAttributes(hook.Kind(), graph.Fields(hook))
			delete(block, "autoscaling_group_name")
			out = append(out, block)
		}
	}
	return out
}

// countSeparate returns how many resources Terraform has for items of properties.
func countSeparate(g *graph.Graph) int {
	n := 0
	for _, node := range g.Nodes() {
		for _, f := range graph.Fields(node.Resource) {
			if list, ok := f.Value.([]any); ok && f.Render.TerraformOwnType != "" {
				n += len(list)
			}
		}
	}
	return n
}

// compareSeparate compares the items of properties that Terraform has as resources of their own.
func compareSeparate(t *testing.T, r graph.Resource, label string, state map[string]map[string]any) {
	t.Helper()
	for _, f := range graph.Fields(r) {
		list, ok := f.Value.([]any)
		if f.Render.TerraformOwnType == "" || !ok {
			continue
		}
		for i, e := range list {
			item, _ := e.(map[string]any)
			have := state[f.Render.TerraformOwnType+"."+terraform.SeparateLabel(label, i)]
			for name, v := range expectedAttributes(r.Kind(), render.NestedFields(f.Nested, item)) {
				if fmt.Sprint(have[name]) != fmt.Sprint(v) {
					t.Errorf("%s.%s has %s %v, the graph %v", f.Render.TerraformOwnType, label, name, have[name], v)
				}
			}
			if parent := have[f.Render.TerraformParentAttribute]; parent == nil || parent == "" {
				t.Errorf("%s.%s has no %s", f.Render.TerraformOwnType, label, f.Render.TerraformParentAttribute)
			}
		}
	}
}

// expectedAttributes returns the properties of a resource, or of a struct in it, with the names and
// types of Terraform.
func expectedAttributes(k graph.Kind, fs []graph.Field) map[string]any {
	out := map[string]any{}
	for _, f := range fs {
		for name, v := range expectedField(k, f) {
			outer, inner, nested := strings.Cut(name, ".")
			if !nested {
				out[name] = v
				continue
			}
			block, ok := out[outer].([]any)
			if !ok {
				block = []any{map[string]any{}}
				out[outer] = block
			}
			block[0].(map[string]any)[inner] = v
		}
	}
	return out
}

func expectedField(k graph.Kind, f graph.Field) map[string]any {
	switch v := f.Value.(type) {
	case string:
		if f.Render.TerraformTrueValue != "" {
			return map[string]any{f.Attribute: v == f.Render.TerraformTrueValue}
		}
	case map[string]any:
		switch {
		case f.Render.TerraformOptions:
			out := map[string]any{}
			for key, e := range v {
				out[k.TerraformOptions[key]] = e
			}
			return out
		case f.Render.TerraformInline:
			return expectedAttributes(k, render.NestedFields(f.Nested, v))
		case f.Render.Propagated:
			var list []any
			for _, key := range slices.Sorted(maps.Keys(v)) {
				list = append(list, map[string]any{"key": key, "value": v[key], "propagate_at_launch": true})
			}
			return map[string]any{f.Attribute: list}
		case f.Render.TerraformMap:
			return map[string]any{f.Attribute: expectedAttributes(k, render.NestedFields(f.Nested, v))}
		case f.Nested != nil:
			return map[string]any{f.Attribute: []any{expectedAttributes(k, render.NestedFields(f.Nested, v))}}
		}
	case []any:
		if f.Render.TerraformOwnType != "" {
			return nil
		}
		if f.Nested == nil && f.Render.TerraformSingle {
			return map[string]any{f.Attribute: v[0]}
		}
		var list []any
		for _, e := range v {
			if m, ok := e.(map[string]any); ok {
				e = expectedAttributes(k, render.NestedFields(f.Nested, m))
			}
			list = append(list, e)
		}
		return map[string]any{f.Attribute: list}
	}
	if f.Attribute == "-" {
		return nil
	}
	return map[string]any{f.Attribute: f.Value}
}

// dropUnset removes unset attributes: nulls, empty lists, and those that ignore selects.
func dropUnset(values map[string]any, ignore func(string) bool) map[string]any {
	out := map[string]any{}
	for name, v := range values {
		if !ignore(name) && !isEmptyValue(v) {
			out[name] = v
		}
	}
	return out
}

func isEmptyValue(v any) bool {
	switch x := v.(type) {
	case nil:
		return true
	case []any:
		return len(x) == 0
	case map[string]any:
		return len(x) == 0
	}
	return false
}

// normalizeValue formats numbers and booleans as text, as Terraform may do, removes empty values,
// and sorts lists, since most are sets.
func normalizeValue(v any) any {
	switch x := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range x {
			if !isEmptyValue(e) {
				out[k] = normalizeValue(e)
			}
		}
		return out
	case []any:
		out := make([]any, 0, len(x))
		for _, e := range x {
			out = append(out, normalizeValue(e))
		}
		slices.SortFunc(out, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		return out
	case json.Number:
		return x.String()
	case float64:
		return strconv.FormatInt(int64(x), 10)
	default:
		return fmt.Sprint(x)
	}
}

// computedAttributes returns the attributes that the provider may compute, by resource type.
func computedAttributes(t *testing.T) map[string]map[string]bool {
	t.Helper()
	var schema struct {
		Resources map[string]struct {
			Attributes []struct {
				Name     string
				Computed bool
			}
		}
	}
	referencedata.ReadJSON(t, referencedata.TerraformProvider, &schema)
	out := map[string]map[string]bool{}
	for name, r := range schema.Resources {
		out[name] = map[string]bool{}
		for _, a := range r.Attributes {
			out[name][a.Name] = a.Computed
		}
	}
	return out
}
