// SPDX-License-Identifier: Apache-2.0

// Package target holds what the renderers of templates share: which properties a template's user may set, what a
// template tells about what it makes, and how names are formed. It knows no template format, no SDK and no network.
package render

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// The tags that say which group, and which slot of a control plane, a resource belongs to: package awskind has them too,
// but renderers know only the graph.
const (
	tagGroup = "slipway.dev/group"
	tagSlot  = "slipway.dev/etcd-slot"
)

// Parameter is a property that a template's user may set, shared by all resources of a group, or of a kind, that have it.
type Parameter struct {
	// Name in words, such as workers-instance-type.
	Name        string
	Description string
	// Default is a string or an int64.
	Default any
	// Type is CloudFormation's for it, where it has one of its own.
	Type string
	// Property that it sets; empty if it is the identity of something that exists.
	Property string
}

// Parameters are all parameters of a graph.
type Parameters struct {
	items          []Parameter
	nameByProperty map[string]string
}

// List returns the parameters, sorted by name.
func (p Parameters) List() []Parameter { return p.items }

// NameAt returns the name of the parameter for the property at path, such as LaunchTemplateData/InstanceType, of a resource.
func (p Parameters) NameAt(addr graph.Addr, path string) (string, bool) {
	name, ok := p.nameByProperty[propertyKey(addr, path)]
	return name, ok
}

func propertyKey(addr graph.Addr, path string) string { return string(addr) + " " + path }

// parameterCandidate is where a parameter would apply.
type parameterCandidate struct {
	property, parameterType, description string

	propertyKeys []string
	value        any
	hasConflict  bool
}

// ParametersOf finds the parameters of g. Resources that would share one but hold different values have none.
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
						description:   name + ": another one has to fit the manifest as it does",
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

	out := Parameters{nameByProperty: map[string]string{}}

	for name, at := range all {
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

// resourceID of something that exists: its kind's name, and its id.
type resourceID struct {
	kind string
	id   any
}

type unmanagedNames map[resourceID]string

// nameOf is the name of what a property refers to, if that exists and has one.
func (n unmanagedNames) nameOf(f graph.Field) string {
	if f.Reference == nil || len(n) == 0 {
		return ""
	}

	return n[resourceID{f.Reference.ReferencedKind().Name, f.Value}]
}

// nameUnmanaged names the parameters for what exists and has a name in g. What goes by two names has none.
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

// walkValues calls visit for each property that holds one plain value, with its path: properties and members of lists.
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
				one := f
				one.Value = e
				switch e := e.(type) {
				case map[string]any:
					walkValues(NestedFields(f.Nested, e), fmt.Sprintf("%s/%d/", path, i), visit)
				case string:
					visit(one, fmt.Sprintf("%s/%d", path, i))
				}
			}
		}
	}
}

// NestedFields returns the properties that m, a struct of them, holds, in declaration order.
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

// groupOrKindNames names, for each resource, what its parameters are named after: the group in its tags or in those of what refers
// to it, else its kind.
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
			if s.Attribute != "" { // a launch template, whose version its group names
				out[s.Addr] = group
			}
		}
	}

	return out
}

// Output is a value that a template tells about what it makes.
type Output struct {
	// Name in words, such as load-balancer-api-dns-name.
	Name        string
	Description string
	Symbol      graph.Symbol
}

// Outputs lists what the template of g tells, in the order of the graph.
func Outputs(g *graph.Graph) []Output {
	var out []Output
	for _, n := range g.Nodes() {
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

// RetainedResources lists what must not go with the template that made it: what is protected, and whatever that depends on by a
// reference to an attribute, such as the key that encrypts a volume.
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

// SafeLabel turns an address or a name into one of letters, digits, - and _ that begins with none of digits and -.
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

// CamelCase turns launch-template/control-plane-a into LaunchTemplateControlPlaneA.
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

// UniqueNames returns rename's name for each address of g, and an error if two addresses would share one.
// Names of one scope are compared; scope may be the same for all.
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
				"render %s and %s: both would be called %s; rename one of them in the manifest",
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

// toKebabCase turns InstanceType into instance-type.
func toKebabCase(property string) string { return strings.ReplaceAll(graph.Snake(property), "_", "-") }
