// SPDX-License-Identifier: Apache-2.0

// Package terraform renders a graph as a Terraform configuration in JSON, to be used as a root module or as a
// child module. It does not know any kind of resource: names and shapes come from the struct tags of each
// kind, see [graph.RenderHints].
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
	"github.com/slipway-k8s/slipway/internal/infra/render"
)

const (
	// requiredTerraform is the oldest Terraform version that supports the configuration.
	requiredTerraform = ">= 1.5"
	// providerSource and providerVersion are the provider whose schema a test compares with every attribute.
	// The next major version may rename attributes.
	providerSource  = "hashicorp/aws"
	providerVersion = ">= 6.25, < 7.0"
)

// Options of a rendering.
type Options struct {
	// Region of the provider. Ignored for a module.
	Region string
	// AsModule leaves out the provider's configuration. Terraform does not allow count and depends_on for a
	// module that configures a provider.
	AsModule bool
}

// renderer is the state of one rendering.
type renderer struct {
	graph      *graph.Graph
	labels     map[graph.Addr]string
	parameters render.Parameters
	retained   map[graph.Addr]bool
}

// Render returns the contents of main.tf.json. The same graph gives the same bytes.
func Render(g *graph.Graph, o Options) ([]byte, error) {
	labels, err := render.UniqueNames(g, func(n *graph.Node) (string, string) {
		return n.Resource.Kind().Terraform, render.SafeLabel(n.Name)
	})
	if err != nil {
		return nil, err
	}

	r := renderer{
		graph:      g,
		labels:     labels,
		parameters: render.ParametersOf(g),
		retained:   render.RetainedResources(g),
	}

	resources := map[string]map[string]any{}

	for _, n := range g.Nodes() {
		body, err := r.renderResource(n)
		if err != nil {
			return nil, err
		}

		kind := n.Resource.Kind().Terraform
		if resources[kind] == nil {
			resources[kind] = map[string]any{}
		}

		resources[kind][labels[n.Addr]] = body
		if err := r.addSeparateResources(n, resources); err != nil {
			return nil, err
		}
	}

	doc := map[string]any{
		"terraform": map[string]any{
			"required_version": requiredTerraform,
			"required_providers": map[string]any{
				"aws": map[string]any{"source": providerSource, "version": providerVersion},
			},
		},
	}

	sections := map[string]map[string]any{"variable": r.renderVariables(), "output": r.renderOutputs()}
	for section, blocks := range sections { // Terraform rejects an empty section
		if len(blocks) > 0 {
			doc[section] = blocks
		}
	}

	if len(resources) > 0 {
		doc["resource"] = resources
	}

	if !o.AsModule {
		doc["provider"] = map[string]any{"aws": map[string]any{"region": o.Region}}
	}

	return encodeConfig(doc)
}

func encodeConfig(doc any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(doc); err != nil {
		return nil, fmt.Errorf("encode the Terraform configuration: %w", err)
	}

	return b.Bytes(), nil
}

func (r renderer) renderVariables() map[string]any {
	out := map[string]any{}
	for _, p := range r.parameters.List() {
		typ := "string"
		if _, number := p.Default.(int64); number {
			typ = "number"
		}

		out[variableName(p.Name)] = map[string]any{
			"type":        typ,
			"default":     p.Default,
			"description": escapeTemplate(p.Description, false),
			"nullable":    false,
		}
	}

	return out
}

func (r renderer) renderOutputs() map[string]any {
	out := map[string]any{}
	for _, o := range render.Outputs(r.graph) {
		out[variableName(o.Name)] = map[string]any{
			"value":       "${" + r.renderReference(o.Symbol) + "}",
			"description": escapeTemplate(o.Description, false),
		}
	}

	return out
}

func variableName(name string) string { return strings.ReplaceAll(render.SafeLabel(name), "-", "_") }

// renderReference returns the expression for s, such as aws_lb.api.dns_name.
func (r renderer) renderReference(s graph.Symbol) string {
	kind := r.graph.Node(s.Addr).Resource.Kind()
	attribute := "id"
	if s.Attribute != "" {
		attribute = kind.Attributes[s.Attribute]
	}

	return r.resourceAddress(s.Addr) + "." + attribute
}

func (r renderer) resourceAddress(a graph.Addr) string {
	return r.graph.Node(a).Resource.Kind().Terraform + "." + r.labels[a]
}

func (r renderer) renderResource(n *graph.Node) (map[string]any, error) {
	body, err := r.renderBlock(propertyPath{node: n}, graph.Fields(n.Resource))
	if err != nil {
		return nil, fmt.Errorf("render %s: %w", n.Addr, err)
	}

	if err := r.addInitialHooks(n, body); err != nil {
		return nil, err
	}

	var after []string
	for _, a := range n.ExplicitDeps {
		after = append(after, r.resourceAddress(a))
	}

	if after != nil {
		slices.Sort(after)
		body["depends_on"] = after
	}

	if r.retained[n.Addr] {
		body["lifecycle"] = map[string]any{"prevent_destroy": true}
	}

	if kept := keptAttributes(n.Resource); len(kept) > 0 {
		body["lifecycle"] = map[string]any{"ignore_changes": kept}
	}

	return body, nil
}

// propertyPath is the location of a value: a resource, and the path to a property in it.
type propertyPath struct {
	node *graph.Node
	path string
}

func (p propertyPath) child(property string) propertyPath {
	if p.path != "" {
		property = p.path + "/" + property
	}

	return propertyPath{node: p.node, path: property}
}

// renderBlock renders the properties of a resource or of a struct in it.
func (r renderer) renderBlock(p propertyPath, fs []graph.Field) (map[string]any, error) {
	body := map[string]any{}
	for _, f := range fs {
		if list, ok := f.Value.([]any); ok && len(list) == 0 {
			continue // apply enforces an empty list; in Terraform a missing one is the same
		}

		more, err := r.renderField(p.child(f.Property), f)
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

// renderField renders one property: usually as one attribute. A dot in a name separates a block from its
// attribute.
func (r renderer) renderField(p propertyPath, f graph.Field) (map[string]any, error) {
	if r.isParameter(p) {
		return map[string]any{f.Attribute: r.renderValue(p, f)}, nil
	}

	switch v := f.Value.(type) {
	case map[string]any:
		switch {
		case f.Render.TerraformOptions:
			return renderOptions(p.node.Resource.Kind(), v)
		case f.Render.TerraformInline:
			return r.renderBlock(p, render.NestedFields(f.Nested, v))
		case f.Render.Propagated:
			return map[string]any{f.Attribute: renderPropagated(v)}, nil
		case f.Nested != nil:
			block, err := r.renderBlock(p, render.NestedFields(f.Nested, v))
			if f.Render.TerraformMap {
				return map[string]any{f.Attribute: block}, err
			}

			return map[string]any{f.Attribute: []any{block}}, err
		}

	case []any:
		return r.renderListField(p, f, v)
	}

	return r.renderAttribute(p, f), nil
}

// renderListField renders a property that is a list: as blocks, as an attribute, or as resources of their own, which
// [renderer.addSeparateResources] adds.
func (r renderer) renderListField(p propertyPath, f graph.Field, list []any) (map[string]any, error) {
	switch {
	case f.Render.TerraformOwnType != "":
		return nil, nil

	case f.Nested != nil:
		blocks, err := r.renderBlocks(p, f.Nested, list)
		return map[string]any{f.Attribute: blocks}, err

	case f.Render.TerraformSingle:
		if len(list) != 1 {
			return nil, fmt.Errorf("%s: Terraform requires exactly one item, not %d", f.Property, len(list))
		}

		f.Value = list[0]
		p = p.child("0")
	}

	return r.renderAttribute(p, f), nil
}

// renderAttribute renders a property as one attribute; nil if Terraform does not have it.
func (r renderer) renderAttribute(p propertyPath, f graph.Field) map[string]any {
	if f.Attribute == "-" {
		return nil
	}

	return map[string]any{f.Attribute: r.renderValue(p, f)}
}

func (r renderer) renderBlocks(p propertyPath, nested []graph.Field, list []any) ([]any, error) {
	out := make([]any, 0, len(list))
	for i, e := range list {
		m, ok := e.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s contains a %T among blocks", p.path, e)
		}

		block, err := r.renderBlock(p.child(strconv.Itoa(i)), render.NestedFields(nested, m))
		if err != nil {
			return nil, err
		}

		out = append(out, block)
	}

	return out, nil
}

func (r renderer) isParameter(p propertyPath) bool {
	_, ok := r.parameters.NameAt(p.node.Addr, p.path)
	return ok
}

// renderValue renders a value that is not a block.
func (r renderer) renderValue(p propertyPath, f graph.Field) any {
	if name, ok := r.parameters.NameAt(p.node.Addr, p.path); ok {
		return "${var." + variableName(name) + "}"
	}

	switch v := f.Value.(type) {
	case string:
		if f.Render.TerraformTrueValue != "" {
			return v == f.Render.TerraformTrueValue
		}

	case []any:
		out := make([]any, 0, len(v))
		for i, e := range v {
			item := f
			item.Value = e
			out = append(out, r.renderValue(p.child(strconv.Itoa(i)), item))
		}

		return out
	}

	return r.renderPlain(f.Value)
}

func (r renderer) renderPlain(v any) any {
	switch x := v.(type) {
	case string:
		return escapeTemplate(x, false)
	case graph.Symbol:
		return "${" + r.renderReference(x) + "}"
	case graph.Text:
		t := renderTemplate(x.Parts(), r.renderReference)
		if x.IsBase64() {
			return "${base64encode(" + quoteTemplate(t) + ")}"
		}

		return t

	case []any:
		out := make([]any, 0, len(x))
		for _, e := range x {
			out = append(out, r.renderPlain(e))
		}

		return out

	case map[string]any:
		out := map[string]any{}
		for k, e := range x {
			out[escapeTemplate(k, false)] = r.renderPlain(e)
		}

		return out

	default:
		return v
	}
}

// renderOptions renders each key of an attribute list as an attribute.
func renderOptions(k graph.Kind, list map[string]any) (map[string]any, error) {
	out := map[string]any{}
	for _, key := range slices.Sorted(maps.Keys(list)) {
		attribute := k.TerraformOptions[key]
		if attribute == "" {
			return nil, fmt.Errorf("%s has no Terraform attribute in the options of kind %s", key, k.Name)
		}

		out[attribute] = list[key]
	}

	return out, nil
}

// renderPropagated renders the tags that an Auto Scaling group propagates to its instances.
func renderPropagated(tags map[string]any) []any {
	out := make([]any, 0, len(tags))
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		v, _ := tags[k].(string)
		out = append(
			out,
			map[string]any{
				"key":                 escapeTemplate(k, false),
				"value":               escapeTemplate(v, false),
				"propagate_at_launch": true,
			},
		)
	}

	return out
}
