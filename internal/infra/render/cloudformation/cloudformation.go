// SPDX-License-Identifier: Apache-2.0

// Package cloudformation renders a graph as a CloudFormation template in JSON, and the stack policy for it.
// It does not know any kind of resource: names and shapes come from the struct tags of each kind, see
// [graph.RenderHints].
package cloudformation

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

// MaxBodySize is CloudFormation's limit for a template in a request, in bytes. A larger template, of at most
// 1 MiB, must be in S3.
const MaxBodySize = 51200

// maxTemplateSize is CloudFormation's limit for a template in S3, in bytes.
const maxTemplateSize = 1 << 20

// CloudFormation's limits for one template, and the number of parameters that this package adds.
const (
	maxResources  = 500
	maxParameters = 200
	ownParameters = 3
)

// Options of a rendering.
type Options struct {
	// Description of the template; may be empty.
	Description string
	// EarlierVersions has the node documents of other Kubernetes versions that the stack had before. The
	// template lets users return to them.
	EarlierVersions Versions
}

type jsonObject = map[string]any

// renderer is the state of one rendering.
type renderer struct {
	graph      *graph.Graph
	logicalIDs map[graph.Addr]string
	parameters render.Parameters
	retained   map[graph.Addr]bool
	// sharedNames maps long literals that occur more than once to their names in the mapping Text.
	sharedNames map[string]string
	// rollout has the groups whose machines signal that they are healthy.
	rollout        render.Rollout
	versions       Versions
	currentVersion string // of Kubernetes
}

// LogicalIDs returns the logical id of each resource in the template of g. Two resources with the same id are
// an error.
func LogicalIDs(g *graph.Graph) (map[graph.Addr]string, error) {
	return render.UniqueNames(
		g,
		func(n *graph.Node) (string, string) { return "", render.CamelCase(string(n.Addr)) },
	)
}

// Render returns the template of g, without white space because of [MaxBodySize]. The same graph gives the
// same bytes. A template with more than 500 resources, or of more than 1 MiB, is an error.
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
	resources, err := r.renderResources()
	if err != nil {
		return nil, err
	}

	doc := jsonObject{
		"AWSTemplateFormatVersion": "2010-09-09", "Resources": resources,
		// W3010 warns about zones in a template; here the manifest names them on purpose.
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

	if err := checkQuotas(doc); err != nil {
		return nil, err
	}

	return encodeTemplate(doc)
}

// encodeTemplate returns doc as JSON, and an error if CloudFormation would refuse it even from S3.
func encodeTemplate(doc jsonObject) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(doc); err != nil {
		return nil, fmt.Errorf("encode the template: %w", err)
	}

	if b.Len() > maxTemplateSize {
		return nil, fmt.Errorf(
			"the template has %d bytes, and CloudFormation allows %d: use fewer instance groups, or create the cluster with slipway apply --via direct",
			b.Len(),
			maxTemplateSize,
		)
	}

	return b.Bytes(), nil
}

// renderResources returns all resources by logical id.
func (r renderer) renderResources() (jsonObject, error) {
	resources := jsonObject{}
	for _, n := range r.graph.Nodes() {
		body, err := r.renderResource(n)
		if err != nil {
			return nil, fmt.Errorf("render %s: %w", n.Addr, err)
		}

		resources[r.logicalIDs[n.Addr]] = body
		if err := r.addSeparateResources(n, resources); err != nil {
			return nil, fmt.Errorf("render %s: %w", n.Addr, err)
		}
	}

	if gate := r.renderGate(); gate != nil {
		resources[ControlPlaneGate] = gate
	}

	reduceDependencies(resources)
	if len(resources) > maxResources {
		return nil, fmt.Errorf(
			"a template of %d resources: CloudFormation allows %d; use --via direct, or divide the cluster",
			len(resources),
			maxResources,
		)
	}

	return resources, nil
}

func (r renderer) renderParameters() jsonObject {
	out := jsonObject{}
	for _, p := range r.parameters.List() {
		param := jsonObject{"Type": "String", "Default": p.Default}
		if p.Property == "" { // the other parameters' names are clear enough, and the size is limited
			param["Description"] = p.Description
		}

		if n, number := p.Default.(int64); number {
			param["Type"] = "Number"
			param["Default"] = strconv.FormatInt(n, 10)
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

// renderOutputs returns the outputs, each exported under the stack's name. They have no descriptions, because
// the template's size is limited.
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

// renderReference returns the intrinsic function for s: Ref or Fn::GetAtt.
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
		// The rollback of a creation deletes the resource; every later deletion retains the data.
		body["DeletionPolicy"] = "RetainExceptOnCreate"
		body["UpdateReplacePolicy"] = "Retain"
	}

	return body, nil
}

// addSeparateResources adds the properties of n that CloudFormation has as separate resources.
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

		parent := any(jsonObject{"Ref": r.logicalIDs[n.Addr]})
		if f.Render.CloudFormationParentIsList {
			parent = []any{parent}
		}

		props[f.Render.CloudFormationParentProperty] = parent
		body := jsonObject{"Type": f.Render.CloudFormationOwnType, "Properties": props}
		if hooks := r.launchHookIDs(n); f.Property == "WarmPool" && len(hooks) > 0 {
			body["DependsOn"] = hooks
		}

		resources[r.logicalIDs[n.Addr]+f.Property] = body
	}

	return nil
}

// launchHookIDs returns the launch hooks of a group: its warm pool waits for them, because Auto
// Scaling would stop the first machines of the pool while they boot. The first machines of the
// group itself do not need the hook, as they go into service at once. So the hook is not in
// LifecycleHookSpecificationList, which would be a second owner of it.
func (r renderer) launchHookIDs(group *graph.Node) []string {
	var ids []string
	for _, hook := range render.LaunchHooks(r.graph, group) {
		ids = append(ids, r.logicalIDs[hook.Addr])
	}

	return ids
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

func (r renderer) renderProperties(p propertyPath, fs []graph.Field) (jsonObject, error) {
	out := jsonObject{}
	for _, f := range fs {
		if list, ok := f.Value.([]any); f.Render.CloudFormationOmit || ok && len(list) == 0 {
			continue
		}

		if f.Render.CloudFormationDefaultsFalse && f.Value == false {
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

	case graph.Text:
		if f.IsJSON {
			return r.renderPolicy(string(graph.JSONOf(v)))
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

// renderPolicy converts a JSON document to an object, as CloudFormation expects it.
func (r renderer) renderPolicy(doc string) (any, error) {
	var v any
	if err := json.Unmarshal([]byte(doc), &v); err != nil {
		return nil, fmt.Errorf("is not a valid JSON document: %w", err)
	}

	return r.replacePlaceholders(v), nil
}

// replacePlaceholders replaces the placeholders in the strings of a document.
func (r renderer) replacePlaceholders(v any) any {
	switch x := v.(type) {
	case string:
		parts := r.renderLiteral(x)
		if len(parts) > 1 {
			return joinParts(parts)
		}

		if len(parts) == 1 {
			return parts[0]
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

// joinParts returns the concatenation of parts: as Fn::Sub if all of them are literals and Refs, which is about 25 bytes
// shorter than Fn::Join.
func joinParts(parts []any) jsonObject {
	var text strings.Builder
	for _, p := range parts {
		switch x := p.(type) {
		case string:
			text.WriteString(strings.ReplaceAll(x, "${", "${!"))
			continue
		case jsonObject:
			if name, ok := x["Ref"].(string); ok && len(x) == 1 {
				text.WriteString("${" + name + "}")
				continue
			}
		}

		return jsonObject{"Fn::Join": []any{"", parts}}
	}

	return jsonObject{"Fn::Sub": text.String()}
}

// renderPairs renders a map, such as tags, as CloudFormation's list of keys and values.
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
