// SPDX-License-Identifier: Apache-2.0

// Package cloudformation renders a graph as a CloudFormation template in JSON.
// It knows no kind of resource: the names and shapes are in the tags of each kind.
package cloudformation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/target"
)

// MaxBody is the size of a template, in bytes, that can be given to CloudFormation as it is; a larger one, of at most
// 1 MiB, must lie in S3.
const MaxBody = 51200

// What CloudFormation takes in one template at most, and how many of the parameters are the renderer's own.
const (
	maxResources  = 500
	maxParameters = 200
	ownParameters = 3
)

// Options of a rendering.
type Options struct {
	Description string
	// Earlier are the documents of other versions of Kubernetes that the stack has had, as [Versions] are: users may go back
	// to them.
	Earlier Versions
}

type object = map[string]any

// renderer holds what a rendering needs throughout.
type renderer struct {
	g      *graph.Graph
	ids    map[graph.Addr]string
	params target.Parameters
	kept   map[graph.Addr]bool
	// shared are the names of literals that the template holds once.
	shared map[string]string
	// machines are those that say when they are well.
	machines target.Rollout
	versions Versions
	version  string // the present one
}

// LogicalIDs returns the name that the template of g has for each resource.
func LogicalIDs(g *graph.Graph) (map[graph.Addr]string, error) {
	return target.Distinct(g, func(n *graph.Node) (string, string) { return "", target.Camel(string(n.Addr)) })
}

// Render returns a template. The same graph gives the same bytes. It has no blanks, since its size counts.
func Render(g *graph.Graph, o Options) ([]byte, error) {
	ids, err := LogicalIDs(g)
	if err != nil {
		return nil, err
	}
	r := renderer{g: g, ids: ids, params: target.ParametersOf(g).Within(maxParameters - ownParameters), kept: target.Retained(g), machines: target.RolloutOf(g)}
	r.version, r.versions = versionsOf(g, o.Earlier)
	r.shared = r.sharedTexts()
	resources := object{}
	for _, n := range g.Nodes() {
		body, err := r.resource(n)
		if err != nil {
			return nil, fmt.Errorf("render %s: %w", n.Addr, err)
		}
		resources[ids[n.Addr]] = body
		if err := r.apart(n, resources); err != nil {
			return nil, fmt.Errorf("render %s: %w", n.Addr, err)
		}
	}
	if gate := r.gate(); gate != nil {
		resources[Gate] = gate
	}
	if len(resources) > maxResources {
		return nil, fmt.Errorf("a template of %d resources: CloudFormation takes %d; apply the cluster directly, or divide it", len(resources), maxResources)
	}
	doc := object{
		"AWSTemplateFormatVersion": "2010-09-09", "Resources": resources,
		// A manifest names its zones: that is no oversight.
		"Metadata": object{"cfn-lint": object{"config": object{"ignore_checks": []string{"W3010"}}}},
	}
	if o.Description != "" {
		doc["Description"] = o.Description
	}
	if outputs := r.outputs(); len(outputs) > 0 {
		doc["Outputs"] = outputs
	}
	if params := r.parameters(); len(params) > 0 {
		doc["Parameters"] = params
	}
	if mappings := r.mappings(); len(mappings) > 0 {
		doc["Mappings"] = mappings
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(doc); err != nil {
		return nil, fmt.Errorf("encode the template: %w", err)
	}
	return b.Bytes(), nil
}

func (r renderer) parameters() object {
	out := object{}
	for _, p := range r.params.List() {
		param := object{"Type": "String", "Default": p.Default}
		if p.Property == "" { // the names of the others say what they set, and the size counts
			param["Description"] = p.Description
		}
		if n, number := p.Default.(int64); number {
			param["Type"], param["Default"] = "Number", strconv.FormatInt(n, 10)
		}
		if p.Type != "" {
			param["Type"] = p.Type
		}
		out[target.Camel(p.Name)] = param
	}
	maps.Copy(out, r.timeouts())
	maps.Copy(out, r.choice())
	return out
}

// outputs are exported too, under the stack's name. They are not described: their names say it, and the size counts.
func (r renderer) outputs() object {
	out := object{}
	for _, o := range target.Outputs(r.g) {
		id := target.Camel(o.Name)
		out[id] = object{
			"Value":  r.reference(o.Symbol),
			"Export": object{"Name": object{"Fn::Sub": "${AWS::StackName}-" + id}},
		}
	}
	return out
}

// reference is the intrinsic function for s.
func (r renderer) reference(s graph.Symbol) object {
	attribute := s.Attribute
	if attribute == "" {
		attribute = r.g.Node(s.Addr).Resource.Kind().Identity
	}
	if attribute == "" {
		return object{"Ref": r.ids[s.Addr]}
	}
	return object{"Fn::GetAtt": []string{r.ids[s.Addr], attribute}}
}

func (r renderer) resource(n *graph.Node) (object, error) {
	kind := n.Resource.Kind()
	props, err := r.properties(place{node: n}, graph.Fields(n.Resource))
	if err != nil {
		return nil, err
	}
	maps.Copy(props, kind.Fixed)
	body := object{"Type": kind.CloudFormation, "Properties": props}
	var after []string
	for _, a := range n.After {
		after = append(after, r.ids[a])
	}
	after = r.rollout(n, body, after)
	if after != nil {
		slices.Sort(after)
		body["DependsOn"] = after
	}
	if r.kept[n.Addr] {
		// A creation that is rolled back leaves nothing behind; anything later keeps the data.
		body["DeletionPolicy"], body["UpdateReplacePolicy"] = "RetainExceptOnCreate", "Retain"
	}
	return body, nil
}

// apart adds the properties of n that are resources of their own to CloudFormation.
func (r renderer) apart(n *graph.Node, resources object) error {
	for _, f := range graph.Fields(n.Resource) {
		v, ok := f.Value.(map[string]any)
		if f.Render.Apart == "" || !ok {
			continue
		}
		props, err := r.properties(place{node: n, path: f.Property}, target.Values(f.Nested, v))
		if err != nil {
			return err
		}
		props[f.Render.ApartWith] = object{"Ref": r.ids[n.Addr]}
		resources[r.ids[n.Addr]+f.Property] = object{"Type": f.Render.Apart, "Properties": props}
	}
	return nil
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

func (r renderer) properties(p place, fs []graph.Field) (object, error) {
	out := object{}
	for _, f := range fs {
		if list, ok := f.Value.([]any); f.Render.Without || ok && len(list) == 0 {
			continue
		}
		v, err := r.value(p.at(f.Property), f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Property, err)
		}
		out[f.Property] = v
	}
	return out, nil
}

func (r renderer) value(p place, f graph.Field) (any, error) {
	if name, ok := r.params.At(p.node.Addr, p.path); ok {
		return object{"Ref": target.Camel(name)}, nil
	}
	switch v := f.Value.(type) {
	case string:
		if f.JSON {
			return r.policy(v)
		}
	case int64:
		if f.Render.Text {
			return strconv.FormatInt(v, 10), nil
		}
	case map[string]any:
		if f.Nested != nil {
			return r.properties(p, target.Values(f.Nested, v))
		}
		return pairs(f, v), nil
	case []any:
		return r.list(p, f, v)
	}
	return r.plain(f.Value), nil
}

func (r renderer) list(p place, f graph.Field, list []any) (any, error) {
	out := make([]any, 0, len(list))
	for i, e := range list {
		m, ok := e.(map[string]any)
		if !ok {
			v := r.plain(e)
			if name, chosen := r.params.At(p.node.Addr, p.at(strconv.Itoa(i)).path); chosen {
				v = object{"Ref": target.Camel(name)}
			}
			out = append(out, v)
			continue
		}
		props, err := r.properties(p.at(strconv.Itoa(i)), target.Values(f.Nested, m))
		if err != nil {
			return nil, err
		}
		out = append(out, props)
	}
	return out, nil
}

// policy turns a document into an object, as CloudFormation takes it.
func (r renderer) policy(doc string) (any, error) {
	var v any
	if err := json.Unmarshal([]byte(doc), &v); err != nil {
		return nil, fmt.Errorf("is no JSON document: %w", err)
	}
	return r.marked(v), nil
}

// marked replaces the marks in the strings of a document.
func (r renderer) marked(v any) any {
	switch x := v.(type) {
	case string:
		if parts := r.literal(x); len(parts) > 1 {
			return object{"Fn::Join": []any{"", parts}}
		}
	case []any:
		for i := range x {
			x[i] = r.marked(x[i])
		}
	case map[string]any:
		for k := range x {
			x[k] = r.marked(x[k])
		}
	}
	return v
}

// pairs renders a map, of tags mostly, as the list that CloudFormation has for it.
func pairs(f graph.Field, m map[string]any) any {
	list := make([]any, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		pair := object{"Key": k, "Value": m[k]}
		if f.Render.Propagated {
			pair["PropagateAtLaunch"] = true
		}
		list = append(list, pair)
	}
	if f.Render.TagsOf != "" {
		return []any{object{"ResourceType": f.Render.TagsOf, "Tags": list}}
	}
	return list
}
