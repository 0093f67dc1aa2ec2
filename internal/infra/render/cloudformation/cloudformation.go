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
	"github.com/slipway-k8s/slipway/internal/infra/render"
)

// MaxBodySize is the size of a template, in bytes, that can be given to CloudFormation as it is; a larger one, of at most
// 1 MiB, must lie in S3.
const MaxBodySize = 51200

// What CloudFormation takes in one template at most, and how many of the parameters are the renderer's own.
const (
	maxResources  = 500
	maxParameters = 200
	ownParameters = 3
)

// Options of a rendering.
type Options struct {
	Description string
	// EarlierVersions are the documents of other versions of Kubernetes that the stack has had, as [Versions] are: users may go back
	// to them.
	EarlierVersions Versions
}

type jsonObject = map[string]any

// renderer holds what a rendering needs throughout.
type renderer struct {
	graph      *graph.Graph
	logicalIDs map[graph.Addr]string
	parameters render.Parameters
	retained   map[graph.Addr]bool
	// sharedNames are the names of literals that the template holds once.
	sharedNames map[string]string
	// rollout are those that say when they are well.
	rollout        render.Rollout
	versions       Versions
	currentVersion string // the present one
}

// LogicalIDs returns the name that the template of g has for each resource.
func LogicalIDs(g *graph.Graph) (map[graph.Addr]string, error) {
	return render.UniqueNames(
		g,
		func(n *graph.Node) (string, string) { return "", render.CamelCase(string(n.Addr)) },
	)
}

// Render returns a template. The same graph gives the same bytes. It has no blanks, since its size counts.
func Render(g *graph.Graph, o Options) ([]byte, error) {
	ids, err := LogicalIDs(g)
	if err != nil {
		return nil, err
	}

	r := renderer{
		graph:      g,
		logicalIDs: ids,
		parameters: render.ParametersOf(g).LimitTo(maxParameters - ownParameters),
		retained:   render.RetainedResources(g),
		rollout:    render.RolloutOf(g),
	}

	r.currentVersion, r.versions = versionsOf(g, o.EarlierVersions)
	r.sharedNames = r.sharedTexts()
	resources := jsonObject{}

	for _, n := range g.Nodes() {
		body, err := r.renderResource(n)
		if err != nil {
			return nil, fmt.Errorf("render %s: %w", n.Addr, err)
		}

		resources[ids[n.Addr]] = body
		if err := r.addSeparateResources(n, resources); err != nil {
			return nil, fmt.Errorf("render %s: %w", n.Addr, err)
		}
	}

	if gate := r.renderGate(); gate != nil {
		resources[ControlPlaneGate] = gate
	}

	if len(resources) > maxResources {
		return nil, fmt.Errorf(
			"a template of %d resources: CloudFormation takes %d; apply the cluster directly, or divide it",
			len(resources),
			maxResources,
		)
	}

	doc := jsonObject{
		"AWSTemplateFormatVersion": "2010-09-09", "Resources": resources,
		// A manifest names its zones: that is no oversight.
		"Metadata": jsonObject{
			"cfn-lint": jsonObject{"config": jsonObject{"ignore_checks": []string{"W3010"}}},
		},
	}
	if o.Description != "" {
		doc["Description"] = o.Description
	}

	if outputs := r.renderOutputs(); len(outputs) > 0 {
		doc["Outputs"] = outputs
	}

	if params := r.renderParameters(); len(params) > 0 {
		doc["Parameters"] = params
	}

	if mappings := r.renderMappings(); len(mappings) > 0 {
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

func (r renderer) renderParameters() jsonObject {
	out := jsonObject{}
	for _, p := range r.parameters.List() {
		param := jsonObject{"Type": "String", "Default": p.Default}
		if p.Property == "" { // the names of the others say what they set, and the size counts
			param["Description"] = p.Description
		}

		if n, number := p.Default.(int64); number {
			param["Type"], param["Default"] = "Number", strconv.FormatInt(n, 10)
		}

		if p.Type != "" {
			param["Type"] = p.Type
		}

		out[render.CamelCase(p.Name)] = param
	}

	maps.Copy(out, r.timeoutParameters())
	maps.Copy(out, r.versionParameter())

	return out
}

// renderOutputs are exported too, under the stack's name. They are not described: their names say it, and the size counts.
func (r renderer) renderOutputs() jsonObject {
	out := jsonObject{}
	for _, o := range render.Outputs(r.graph) {
		id := render.CamelCase(o.Name)
		out[id] = jsonObject{
			"Value":  r.renderReference(o.Symbol),
			"Export": jsonObject{"Name": jsonObject{"Fn::Sub": "${AWS::StackName}-" + id}},
		}
	}

	return out
}

// renderReference is the intrinsic function for s.
func (r renderer) renderReference(s graph.Symbol) jsonObject {
	attribute := s.Attribute
	if attribute == "" {
		attribute = r.graph.Node(s.Addr).Resource.Kind().IdentityAttribute
	}

	if attribute == "" {
		return jsonObject{"Ref": r.logicalIDs[s.Addr]}
	}

	return jsonObject{"Fn::GetAtt": []string{r.logicalIDs[s.Addr], attribute}}
}

func (r renderer) renderResource(n *graph.Node) (jsonObject, error) {
	kind := n.Resource.Kind()
	props, err := r.renderProperties(propertyPath{node: n}, graph.Fields(n.Resource))
	if err != nil {
		return nil, err
	}

	maps.Copy(props, kind.CloudFormationExtra)
	body := jsonObject{"Type": kind.CloudFormation, "Properties": props}
	var after []string
	for _, a := range n.ExplicitDeps {
		after = append(after, r.logicalIDs[a])
	}

	after = r.addRollout(n, body, after)
	if after != nil {
		slices.Sort(after)
		body["DependsOn"] = after
	}

	if r.retained[n.Addr] {
		// A creation that is rolled back leaves nothing behind; anything later keeps the data.
		body["DeletionPolicy"] = "RetainExceptOnCreate"
		body["UpdateReplacePolicy"] = "Retain"
	}

	return body, nil
}

// addSeparateResources adds the properties of n that are resources of their own to CloudFormation.
func (r renderer) addSeparateResources(n *graph.Node, resources jsonObject) error {
	for _, f := range graph.Fields(n.Resource) {
		v, ok := f.Value.(map[string]any)
		if f.Render.CloudFormationOwnType == "" || !ok {
			continue
		}

		props, err := r.renderProperties(
			propertyPath{node: n, path: f.Property},
			render.NestedFields(f.Nested, v),
		)
		if err != nil {
			return err
		}

		props[f.Render.CloudFormationParentProperty] = jsonObject{"Ref": r.logicalIDs[n.Addr]}
		resources[r.logicalIDs[n.Addr]+f.Property] = jsonObject{
			"Type":       f.Render.CloudFormationOwnType,
			"Properties": props,
		}
	}

	return nil
}

// propertyPath is where a value is: a resource, and the path to a property in it.
type propertyPath struct {
	node *graph.Node
	path string
}

func (p propertyPath) child(property string) propertyPath {
	if p.path != "" {
		property = p.path + "/" + property
	}

	return propertyPath{p.node, property}
}

func (r renderer) renderProperties(p propertyPath, fs []graph.Field) (jsonObject, error) {
	out := jsonObject{}
	for _, f := range fs {
		if list, ok := f.Value.([]any); f.Render.CloudFormationOmit || ok && len(list) == 0 {
			continue
		}

		v, err := r.renderValue(p.child(f.Property), f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Property, err)
		}

		out[f.Property] = v
	}

	return out, nil
}

func (r renderer) renderValue(p propertyPath, f graph.Field) (any, error) {
	if name, ok := r.parameters.NameAt(p.node.Addr, p.path); ok {
		return jsonObject{"Ref": render.CamelCase(name)}, nil
	}

	switch v := f.Value.(type) {
	case string:
		if f.IsJSON {
			return r.renderPolicy(v)
		}

	case int64:
		if f.Render.CloudFormationString {
			return strconv.FormatInt(v, 10), nil
		}

	case map[string]any:
		if f.Nested != nil {
			return r.renderProperties(p, render.NestedFields(f.Nested, v))
		}

		return renderPairs(f, v), nil

	case []any:
		return r.renderList(p, f, v)
	}

	return r.renderPlain(f.Value), nil
}

func (r renderer) renderList(p propertyPath, f graph.Field, list []any) (any, error) {
	out := make([]any, 0, len(list))
	for i, e := range list {
		m, ok := e.(map[string]any)
		if !ok {
			v := r.renderPlain(e)
			if name, chosen := r.parameters.NameAt(p.node.Addr, p.child(strconv.Itoa(i)).path); chosen {
				v = jsonObject{"Ref": render.CamelCase(name)}
			}

			out = append(out, v)
			continue
		}

		props, err := r.renderProperties(p.child(strconv.Itoa(i)), render.NestedFields(f.Nested, m))
		if err != nil {
			return nil, err
		}

		out = append(out, props)
	}

	return out, nil
}

// renderPolicy turns a document into an object, as CloudFormation takes it.
func (r renderer) renderPolicy(doc string) (any, error) {
	var v any
	if err := json.Unmarshal([]byte(doc), &v); err != nil {
		return nil, fmt.Errorf("is no JSON document: %w", err)
	}

	return r.replacePlaceholders(v), nil
}

// replacePlaceholders replaces the marks in the strings of a document.
func (r renderer) replacePlaceholders(v any) any {
	switch x := v.(type) {
	case string:
		if parts := r.renderLiteral(x); len(parts) > 1 {
			return jsonObject{"Fn::Join": []any{"", parts}}
		}

	case []any:
		for i := range x {
			x[i] = r.replacePlaceholders(x[i])
		}

	case map[string]any:
		for k := range x {
			x[k] = r.replacePlaceholders(x[k])
		}
	}

	return v
}

// renderPairs renders a map, of tags mostly, as the list that CloudFormation has for it.
func renderPairs(f graph.Field, m map[string]any) any {
	list := make([]any, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		pair := jsonObject{"Key": k, "Value": m[k]}
		if f.Render.Propagated {
			pair["PropagateAtLaunch"] = true
		}

		list = append(list, pair)
	}

	if f.Render.TagResourceType != "" {
		return []any{jsonObject{"ResourceType": f.Render.TagResourceType, "Tags": list}}
	}

	return list
}
