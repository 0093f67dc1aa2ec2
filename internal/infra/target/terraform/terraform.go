// SPDX-License-Identifier: Apache-2.0

// Package terraform renders a graph as a Terraform configuration in JSON, to be used as a root or as a module.
// It knows no kind of resource: the names and shapes are in the tags of each kind.
package terraform

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/target"
)

const (
	// required is the oldest Terraform whose language the rendering uses.
	required = ">= 1.5"
	// source and version of the provider whose schema every attribute is checked against; the next major version may
	// rename them.
	source  = "hashicorp/aws"
	version = ">= 6.25, < 7.0"
)

// Options of a rendering.
type Options struct {
	// Region that the provider is to work in.
	Region string
	// Module leaves the provider's configuration to the caller: a module with one of its own takes no count and no
	// depends_on.
	Module bool
}

// renderer holds what a rendering needs throughout.
type renderer struct {
	g      *graph.Graph
	labels map[graph.Addr]string
	params target.Parameters
	kept   map[graph.Addr]bool
}

// Render returns the contents of main.tf.json. The same graph gives the same bytes.
func Render(g *graph.Graph, o Options) ([]byte, error) {
	labels, err := target.Distinct(g, func(n *graph.Node) (string, string) {
		return n.Resource.Kind().Terraform, target.Label(n.Name)
	})
	if err != nil {
		return nil, err
	}
	r := renderer{g: g, labels: labels, params: target.ParametersOf(g), kept: target.Retained(g)}
	resources := map[string]map[string]any{}
	for _, n := range g.Nodes() {
		body, err := r.resource(n)
		if err != nil {
			return nil, err
		}
		kind := n.Resource.Kind().Terraform
		if resources[kind] == nil {
			resources[kind] = map[string]any{}
		}
		resources[kind][labels[n.Addr]] = body
	}
	doc := map[string]any{
		"terraform": map[string]any{
			"required_version":   required,
			"required_providers": map[string]any{"aws": map[string]any{"source": source, "version": version}},
		},
	}
	// Terraform refuses a section without anything in it.
	for section, blocks := range map[string]map[string]any{"variable": r.variables(), "output": r.outputs()} {
		if len(blocks) > 0 {
			doc[section] = blocks
		}
	}
	if len(resources) > 0 {
		doc["resource"] = resources
	}
	if !o.Module {
		doc["provider"] = map[string]any{"aws": map[string]any{"region": o.Region}}
	}
	return encode(doc)
}

func encode(doc any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(doc); err != nil {
		return nil, fmt.Errorf("encode the Terraform configuration: %w", err)
	}
	return b.Bytes(), nil
}

func (r renderer) variables() map[string]any {
	out := map[string]any{}
	for _, p := range r.params.List() {
		typ := "string"
		if _, number := p.Default.(int64); number {
			typ = "number"
		}
		out[variable(p.Name)] = map[string]any{"type": typ, "default": p.Default, "description": escape(p.Description, false), "nullable": false}
	}
	return out
}

func (r renderer) outputs() map[string]any {
	out := map[string]any{}
	for _, o := range target.Outputs(r.g) {
		out[variable(o.Name)] = map[string]any{"value": "${" + r.reference(o.Symbol) + "}", "description": escape(o.Description, false)}
	}
	return out
}

func variable(name string) string { return strings.ReplaceAll(target.Label(name), "-", "_") }

// reference is the expression for s, such as aws_lb.api.dns_name.
func (r renderer) reference(s graph.Symbol) string {
	kind := r.g.Node(s.Addr).Resource.Kind()
	attribute := "id"
	if s.Attribute != "" {
		attribute = kind.Attributes[s.Attribute]
	}
	return r.address(s.Addr) + "." + attribute
}

func (r renderer) address(a graph.Addr) string {
	return r.g.Node(a).Resource.Kind().Terraform + "." + r.labels[a]
}

func (r renderer) resource(n *graph.Node) (map[string]any, error) {
	body, err := r.block(place{node: n}, graph.Fields(n.Resource))
	if err != nil {
		return nil, fmt.Errorf("render %s: %w", n.Addr, err)
	}
	var after []string
	for _, a := range n.After {
		after = append(after, r.address(a))
	}
	if after != nil {
		slices.Sort(after)
		body["depends_on"] = after
	}
	if r.kept[n.Addr] {
		body["lifecycle"] = map[string]any{"prevent_destroy": true}
	}
	return body, nil
}

// place is where a value is: a resource, and the path to a property in it.
type place struct {
	node *graph.Node
	path string
}

func (p place) at(property string) place {
	if p.path != "" {
		property = p.path + "/" + property
	}
	return place{p.node, property}
}

// block renders the properties of a resource or of a struct in it.
func (r renderer) block(p place, fs []graph.Field) (map[string]any, error) {
	body := map[string]any{}
	for _, f := range fs {
		if list, ok := f.Value.([]any); ok && len(list) == 0 {
			continue // enforced by apply; to both ecosystems, left out is none
		}
		more, err := r.field(p.at(f.Property), f)
		if err != nil {
			return nil, err
		}
		for name, v := range more {
			outer, inner, nested := strings.Cut(name, ".")
			if !nested {
				body[name] = v
				continue
			}
			list, ok := body[outer].([]any)
			if !ok {
				list = []any{map[string]any{}}
				body[outer] = list
			}
			if block, ok := list[0].(map[string]any); ok {
				block[inner] = v
			}
		}
	}
	return body, nil
}

// field renders one property: mostly as one attribute.
func (r renderer) field(p place, f graph.Field) (map[string]any, error) {
	if r.isParameter(p) {
		return map[string]any{f.Attribute: r.value(p, f)}, nil
	}
	switch v := f.Value.(type) {
	case map[string]any:
		switch {
		case f.Render.Options:
			return options(p.node.Resource.Kind(), v)
		case f.Render.Inline:
			return r.block(p, target.Values(f.Nested, v))
		case f.Render.Propagated:
			return map[string]any{f.Attribute: propagated(v)}, nil
		case f.Nested != nil:
			block, err := r.block(p, target.Values(f.Nested, v))
			return map[string]any{f.Attribute: []any{block}}, err
		}
	case []any:
		if f.Nested != nil {
			blocks, err := r.blocks(p, f.Nested, v)
			return map[string]any{f.Attribute: blocks}, err
		}
		if f.Render.One {
			if len(v) != 1 {
				return nil, fmt.Errorf("%s: Terraform takes exactly one, here are %d", f.Property, len(v))
			}
			f.Value, p = v[0], p.at("0")
		}
	}
	if f.Attribute == "-" {
		return nil, nil
	}
	return map[string]any{f.Attribute: r.value(p, f)}, nil
}

func (r renderer) blocks(p place, nested []graph.Field, list []any) ([]any, error) {
	out := make([]any, 0, len(list))
	for i, e := range list {
		m, ok := e.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s holds a %T among blocks", p.path, e)
		}
		block, err := r.block(p.at(strconv.Itoa(i)), target.Values(nested, m))
		if err != nil {
			return nil, err
		}
		out = append(out, block)
	}
	return out, nil
}

func (r renderer) isParameter(p place) bool {
	_, ok := r.params.At(p.node.Addr, p.path)
	return ok
}

// value renders a value that is no block.
func (r renderer) value(p place, f graph.Field) any {
	if name, ok := r.params.At(p.node.Addr, p.path); ok {
		return "${var." + variable(name) + "}"
	}
	switch v := f.Value.(type) {
	case string:
		if f.Render.Is != "" {
			return v == f.Render.Is
		}
	case []any:
		out := make([]any, 0, len(v))
		for i, e := range v {
			one := f
			one.Value = e
			out = append(out, r.value(p.at(strconv.Itoa(i)), one))
		}
		return out
	}
	return r.plain(f.Value)
}

func (r renderer) plain(v any) any {
	switch x := v.(type) {
	case string:
		return escape(x, false)
	case graph.Symbol:
		return "${" + r.reference(x) + "}"
	case graph.Text:
		t := template(x.Parts(), r.reference)
		if x.IsBase64() {
			return "${base64encode(" + quote(t) + ")}"
		}
		return t
	case []any:
		out := make([]any, 0, len(x))
		for _, e := range x {
			out = append(out, r.plain(e))
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for k, e := range x {
			out[escape(k, false)] = r.plain(e)
		}
		return out
	default:
		return v
	}
}

// options gives an attribute to each key of an attribute list.
func options(k graph.Kind, list map[string]any) (map[string]any, error) {
	out := map[string]any{}
	for _, key := range slices.Sorted(maps.Keys(list)) {
		attribute := k.Options[key]
		if attribute == "" {
			return nil, fmt.Errorf("%s has no Terraform attribute in the options of kind %s", key, k.Name)
		}
		out[attribute] = list[key]
	}
	return out, nil
}

// propagated renders the tags that a resource gives to what it makes.
func propagated(tags map[string]any) []any {
	out := make([]any, 0, len(tags))
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		v, _ := tags[k].(string)
		out = append(out, map[string]any{"key": escape(k, false), "value": escape(v, false), "propagate_at_launch": true})
	}
	return out
}
