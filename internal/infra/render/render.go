// SPDX-License-Identifier: Apache-2.0

// Package render has what the renderers of templates share: the parameters and outputs of a template, the
// resources that it retains, the order of a rollout, and the names of resources. It does not know any
// template format, the AWS SDK or the network.
//
// The renderers are in the subpackages: cloudformation and terraform render a graph as a template, diagram as
// an SVG image.
package render

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// The tags of a resource's instance group and control-plane slot. Package awskind declares them too, but the
// renderers import only package graph.
const (
	tagGroup = "slipway.dev/group"
	tagSlot  = "slipway.dev/etcd-slot"
)

// Parameter is a parameter of a template. It sets one property of all resources of an instance group or of a
// kind.
type Parameter struct {
	// Name in kebab case, such as workers-instance-type.
	Name string
	// Description is one line for the user of the template.
	Description string
	// Default is the value in the graph: a string or an int64.
	Default any
	// Type is CloudFormation's parameter type, such as AWS::EC2::Image::Id; empty: String or Number.
	Type string
	// Property is the property that it sets, such as InstanceType; empty if it is the identity of an existing
	// resource.
	Property string
}

// Parameters is the set of parameters of a graph.
type Parameters struct {
	items          []Parameter
	nameByProperty map[string]string
}

// List returns the parameters, sorted by name.
func (p Parameters) List() []Parameter { return p.items }

// NameAt returns the name of the parameter for the property at path, such as LaunchTemplateData/InstanceType,
// of the resource at addr; false if it has none.
func (p Parameters) NameAt(addr graph.Addr, path string) (string, bool) {
	name, ok := p.nameByProperty[propertyKey(addr, path)]
	return name, ok
}

func propertyKey(addr graph.Addr, path string) string { return string(addr) + " " + path }

// parameterCandidate is a possible parameter: the properties that it would set and their value.
type parameterCandidate struct {
	property, parameterType, description string

	propertyKeys []string
	value        any
	hasConflict  bool
}

// ParametersOf returns the parameters of g. Resources that would share a parameter but have different values
// get none.
func ParametersOf(g *graph.Graph) Parameters {
	all := map[string]*parameterCandidate{}
	owners := groupOrKindNames(g)
	existing := nameUnmanaged(g)

	for _, n := range g.Nodes() {
		slot := graph.TagValue(n.Resource, tagSlot) != ""
		walkValues(graph.Fields(n.Resource), "", func(f graph.Field, path string) {
			if name := existing.nameOf(f); name != "" {
				if all[name] == nil {
					all[name] = &parameterCandidate{
						parameterType: f.Reference.ReferencedKind().IDParameterType,
						description:   name + ": a replacement must match the manifest too",
						value:         f.Value,
					}
				}

				all[name].propertyKeys = append(all[name].propertyKeys, propertyKey(n.Addr, path))
				return
			}

			if !f.Render.IsParameter && (!f.Render.IsScaleParameter || slot) {
				return
			}

			name := owners[n.Addr] + "-" + toKebabCase(f.Property)
			if all[name] == nil {
				all[name] = &parameterCandidate{
					property:      f.Property,
					parameterType: f.Render.ParameterType,
					description:   f.Property + " of " + owners[n.Addr],
					value:         f.Value,
				}
			}

			at := all[name]
			at.hasConflict = at.hasConflict || !graph.EqualValues(at.value, f.Value)
			at.propertyKeys = append(at.propertyKeys, propertyKey(n.Addr, path))
		})
	}

	return newParameters(all)
}

// newParameters returns the parameters of all candidates without conflicting values, by name.
func newParameters(candidates map[string]*parameterCandidate) Parameters {
	out := Parameters{nameByProperty: map[string]string{}}

	for name, at := range candidates {
		if at.hasConflict {
			continue
		}

		for _, w := range at.propertyKeys {
			out.nameByProperty[w] = name
		}

		out.items = append(out.items, Parameter{
			Name:        name,
			Default:     at.value,
			Type:        at.parameterType,
			Description: at.description,
			Property:    at.property,
		})
	}

	slices.SortFunc(out.items, func(a, b Parameter) int { return strings.Compare(a.Name, b.Name) })

	return out
}

// resourceID identifies an unmanaged resource.
type resourceID struct {
	kind string // the kind's name
	id   any
}

// unmanagedNames maps unmanaged resources to the names of their parameters.
type unmanagedNames map[resourceID]string

// nameOf returns the parameter of the unmanaged resource that a property refers to; empty if there is none.
func (n unmanagedNames) nameOf(f graph.Field) string {
	if f.Reference == nil || len(n) == 0 {
		return ""
	}

	return n[resourceID{f.Reference.ReferencedKind().Name, f.Value}]
}

// nameUnmanaged returns the parameters for the labelled unmanaged resources in g. A resource with two labels
// gets none.
func nameUnmanaged(g *graph.Graph) unmanagedNames {
	out := unmanagedNames{}
	for _, n := range g.Nodes() {
		for _, p := range graph.References(n.Resource) {
			if p.Label() == "" || p.Literal() == "" {
				continue
			}

			id := resourceID{p.KindName(), p.Literal()}
			name := strings.TrimSuffix("existing-"+p.KindName()+"-"+p.Label(), "-main")
			if have, known := out[id]; known && have != name {
				name = ""
			}

			out[id] = name
		}
	}

	return out
}

// walkValues calls visit for each property with a string or number, and for each string in a list, with its
// path.
func walkValues(fs []graph.Field, prefix string, visit func(f graph.Field, path string)) {
	for _, f := range fs {
		path := prefix + f.Property
		switch v := f.Value.(type) {
		case string, int64:
			visit(f, path)
		case map[string]any:
			walkValues(NestedFields(f.Nested, v), path+"/", visit)
		case []any:
			for i, e := range v {
				item := f
				item.Value = e
				switch e := e.(type) {
				case map[string]any:
					walkValues(NestedFields(f.Nested, e), fmt.Sprintf("%s/%d/", path, i), visit)
				case string:
					visit(item, fmt.Sprintf("%s/%d", path, i))
				}
			}
		}
	}
}

// NestedFields returns those of nested that m has, with their values, in declaration order. m is the value of
// a struct.
func NestedFields(nested []graph.Field, m map[string]any) []graph.Field {
	var out []graph.Field
	for _, f := range nested {
		if v, ok := m[f.Property]; ok {
			f.Value = v
			out = append(out, f)
		}
	}

	return out
}

// groupOrKindNames returns for each resource the prefix of its parameters' names: the instance group in its
// tags, or in the tags of a resource that uses one of its attributes, or else its kind.
func groupOrKindNames(g *graph.Graph) map[graph.Addr]string {
	out := map[graph.Addr]string{}
	for _, n := range g.Nodes() {
		if out[n.Addr] == "" {
			out[n.Addr] = n.Resource.Kind().Name
		}

		group := graph.TagValue(n.Resource, tagGroup)
		if group == "" {
			continue
		}

		out[n.Addr] = group

		for _, s := range graph.Symbols(n.Resource) {
			if s.Attribute != "" { // a launch template, whose version its group uses
				out[s.Addr] = group
			}
		}
	}

	return out
}

// Output is an output of a template.
type Output struct {
	// Name in kebab case, such as load-balancer-api-dns-name.
	Name string
	// Description is one line, such as "DNSName of load-balancer/api".
	Description string
	// Symbol is the attribute or identity that it shows.
	Symbol graph.Symbol
}

// Outputs returns the outputs of the template of g, in the order of the graph. Each kind declares its
// outputs. Internal resources have none.
func Outputs(g *graph.Graph) []Output {
	var out []Output
	for _, n := range g.Nodes() {
		if n.Internal {
			continue
		}

		for _, a := range n.Resource.Kind().Outputs {
			o := Output{
				Symbol:      graph.Symbol{Addr: n.Addr, Attribute: a},
				Name:        string(n.Addr),
				Description: "identity of " + string(n.Addr),
			}
			if a != "" {
				o.Name = o.Name + "-" + toKebabCase(a)
				o.Description = a + " of " + string(n.Addr)
			}

			o.Name = strings.ReplaceAll(o.Name, "/", "-")
			out = append(out, o)
		}
	}

	return out
}

// RetainedResources returns the resources that must survive the deletion of the stack or of the Terraform
// configuration: protected resources, and those that they refer to, such as the key that encrypts a volume.
func RetainedResources(g *graph.Graph) map[graph.Addr]bool {
	out := map[graph.Addr]bool{}
	for _, n := range slices.Backward(g.Nodes()) {
		if !n.Protected && !out[n.Addr] {
			continue
		}

		out[n.Addr] = true
		for _, s := range graph.Symbols(n.Resource) {
			out[s.Addr] = true
		}
	}

	return out
}

// SafeLabel returns a valid Terraform name for name: it replaces other characters than letters, digits, - and
// _ by _, and puts _ before a leading digit or dash.
func SafeLabel(name string) string {
	label := strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return r
		}

		return '_'
	}, name)
	if label == "" || label[0] == '-' || label[0] >= '0' && label[0] <= '9' {
		return "_" + label
	}

	return label
}

// CamelCase returns a CloudFormation name for name: launch-template/control-plane-a becomes
// LaunchTemplateControlPlaneA.
func CamelCase(name string) string {
	var b strings.Builder
	up := true
	for _, r := range name {
		if r >= unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			up = true
			continue
		}

		if up {
			r = unicode.ToUpper(r)
		}

		b.WriteRune(r)
		up = false
	}

	return b.String()
}

// UniqueNames returns the name that rename gives to each resource of g. Two resources with the same name in
// the same scope are an error.
func UniqueNames(
	g *graph.Graph,
	rename func(*graph.Node) (scope, name string),
) (map[graph.Addr]string, error) {
	names := map[graph.Addr]string{}
	taken := map[string]graph.Addr{}
	for _, n := range g.Nodes() {
		scope, name := rename(n)
		if other, dup := taken[scope+" "+name]; dup {
			return nil, fmt.Errorf(
				"render %s and %s: both would have the name %s; rename one of them in the manifest",
				other,
				n.Addr,
				name,
			)
		}

		taken[scope+" "+name] = n.Addr
		names[n.Addr] = name
	}

	return names, nil
}

// toKebabCase converts InstanceType to instance-type.
func toKebabCase(property string) string { return strings.ReplaceAll(graph.Snake(property), "_", "-") }
