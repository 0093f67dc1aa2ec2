// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/record"
)

// change is what an update would do to one resource.
type change struct {
	Action, Logical, Physical, Type, Replacement, Policy string
	Scope                                                []string
	Details                                              []detail
	Before, After                                        string
}

// detail is one reason of a change.
type detail struct {
	Attribute, Name, Recreation string
	Evaluation, Source, Cause   string
}

// comparison is what a difference is computed of.
type comparison struct {
	edition
	st *stack
	// affected says how a resource changes: its attributes may be others, or it may be another thing altogether.
	affected map[string]string // "", "Modify" or "Replace"
}

func newComparison(st *stack, before, after content) (c comparison, err error) {
	c = comparison{edition: edition{old: &Template{}, before: before, after: after}, st: st, affected: map[string]string{}}
	if c.t, err = Parse(after.Body); err != nil {
		return c, err
	}
	if before.Body != "" {
		c.old, err = Parse(before.Body)
	}
	return c, err
}

// removals are the resources of a stack that are not among nodes.
func removals(st *stack, nodes map[string][]string) []change {
	var out []change
	for _, name := range record.Keys(st.Resources) {
		r := st.Resources[name]
		if _, stays := nodes[name]; stays || r.Status == deleted {
			continue
		}
		policy := map[string]string{"Retain": "Retain", "RetainExceptOnCreate": "Retain", "Snapshot": "Snapshot"}[r.DeletionPolicy]
		out = append(out, change{
			Action: "Remove", Logical: name, Physical: r.Physical, Type: r.Type, Policy: cmp.Or(policy, "Delete"), Before: shown(r.Properties),
		})
	}
	return out
}

// compare says what new contents would do to a stack, and whether that is nothing at all. The caller is inside the book.
func (s *Service) compare(st *stack, before, after content) (out []change, idle bool, err error) {
	c, err := newComparison(st, before, after)
	if err != nil {
		return nil, false, err
	}
	nodes, err := s.nodes(side{edition: c.edition, st: st})
	if err != nil {
		return nil, false, err
	}
	var problems []string
	for _, name := range sorted(nodes) {
		ch, bad, err := s.compareOne(c, name)
		if err != nil {
			return nil, false, err
		}
		problems = append(problems, bad...)
		if ch != nil {
			out = append(out, *ch)
		}
	}
	if len(problems) > 0 {
		return nil, false, invalid("%s", strings.Join(problems, "; "))
	}
	out = append(out, removals(st, nodes)...)
	slices.SortStableFunc(out, func(a, b change) int { return strings.Compare(a.Logical, b.Logical) })
	return out, len(out) == 0 && c.sameBeside(), nil
}

// sorted lists nodes, each after those that it waits for.
func sorted(nodes map[string][]string) []string {
	var out []string
	done := map[string]bool{}
	var visit func(name string)
	visit = func(name string) {
		after, known := nodes[name]
		if done[name] || !known {
			return
		}
		done[name] = true
		for _, d := range after {
			visit(d)
		}
		out = append(out, name)
	}
	for _, name := range record.Keys(nodes) {
		visit(name)
	}
	return out
}

// foresee is a scope that does not know what only the execution will tell.
func (s *Service) foresee(c comparison) scope {
	sc := s.scopeOf(c.st, c.after, c.t)
	ref, attribute := sc.ref, sc.attribute
	sc.ref = func(logical string) (any, error) {
		if c.affected[logical] == "Replace" {
			return unknown{}, nil
		}
		return ref(logical)
	}
	sc.attribute = func(logical, name string) (any, error) {
		if c.affected[logical] != "" {
			return unknown{}, nil
		}
		return attribute(logical, name)
	}
	return sc
}

func (s *Service) compareOne(c comparison, name string) (*change, []string, error) {
	spec := c.t.Resources[name]
	v, err := s.foresee(c).eval(spec.Properties)
	if err != nil {
		return nil, nil, err
	}
	props, _ := v.(tree)
	props, wrong := conform(spec.Type, props)
	if len(wrong) > 0 {
		return nil, []string{fmt.Sprintf("Properties validation failed for resource %s with message: [%s]", name, strings.Join(wrong, ", "))}, nil
	}
	r := c.st.Resources[name]
	if r == nil || r.Status == deleted || r.Physical == "" {
		c.affected[name] = "Replace"
		return &change{Action: "Add", Logical: name, Type: spec.Type, After: shown(known(props))}, nil, nil
	}
	ch := &change{
		Action: "Modify", Logical: name, Physical: r.Physical, Type: r.Type, Replacement: "False", Before: shown(r.Properties), After: shown(known(props)),
	}
	c.properties(ch, r, props)
	c.attributes(ch, c.old.Resources[name], spec)
	if len(ch.Scope) == 0 && !strings.HasSuffix(r.Status, failed) {
		return nil, nil, nil
	}
	ch.Replacement = replacement(ch.Details, r.Type)
	c.affected[name] = "Modify"
	if ch.Replacement != "False" {
		c.affected[name] = "Replace"
		ch.Policy = cmp.Or(map[string]string{"Retain": "ReplaceAndRetain", "Snapshot": "ReplaceAndSnapshot"}[r.UpdateReplacePolicy], "ReplaceAndDelete")
	}
	return ch, nil, nil
}

// properties notes changes of a resource's properties, and of the tags that it has of its stack.
func (c comparison) properties(ch *change, r *resource, props tree) {
	for _, p := range c.asked(r.Logical, differing(r.Properties, props), func(other string) bool { return c.affected[other] != "" }) {
		ch.Details = append(ch.Details, c.reasons(r, r.Logical, p, props[p])...)
	}
	if len(ch.Details) > 0 {
		ch.Scope = append(ch.Scope, "Properties")
	}
	if canonical(anyMap(c.before.Tags)) != canonical(anyMap(c.after.Tags)) && schemas()[r.Type].TagProperty != "" {
		ch.Scope = append(ch.Scope, "Tags")
		ch.Details = append(ch.Details, detail{Attribute: "Tags", Recreation: "Never", Evaluation: "Static", Source: "DirectModification"})
	}
}

// known leaves out what is not known.
func known(v tree) tree {
	out := tree{}
	for k, e := range v {
		if !hasUnknown(e) {
			out[k] = e
		}
	}
	return out
}

// attributes notes changes of what is beside a resource's properties.
func (c comparison) attributes(ch *change, old, spec resourceSpec) {
	for _, a := range []struct {
		name          string
		before, after any
	}{
		{"Metadata", old.Metadata, spec.Metadata},
		{"CreationPolicy", orEmpty(old.CreationPolicy), orEmpty(spec.CreationPolicy)},
		{"UpdatePolicy", orEmpty(old.UpdatePolicy), orEmpty(spec.UpdatePolicy)},
		{"DeletionPolicy", old.DeletionPolicy, spec.DeletionPolicy},
		{"UpdateReplacePolicy", old.UpdateReplacePolicy, spec.UpdateReplacePolicy},
	} {
		if canonical(a.before) != canonical(a.after) {
			ch.Scope = append(ch.Scope, a.name)
			ch.Details = append(ch.Details, detail{Attribute: a.name, Recreation: "Never", Evaluation: "Static", Source: "DirectModification"})
		}
	}
}

// reasons says why a property changes.
func (c comparison) reasons(r *resource, name, property string, v any) []detail {
	d := detail{Attribute: "Properties", Name: property, Recreation: recreation(r.Type, property), Evaluation: "Static"}
	if hasUnknown(v) {
		d.Evaluation = "Dynamic"
	}
	raw := c.t.Resources[name].Properties[property]
	var out []detail
	if canonical(raw) != canonical(c.old.Resources[name].Properties[property]) {
		d.Source = "DirectModification"
		out = append(out, d)
	}
	for _, ref := range references(raw) {
		one := d
		one.Cause = ref.String()
		if one.Source, one.Evaluation = c.caused(ref); one.Source != "" {
			out = append(out, one)
		}
	}
	if len(out) == 0 { // an import, a mapping or a condition gives something else now
		d.Source = "DirectModification"
		out = append(out, d)
	}
	return out
}

// caused tells how a reference changes a property; empty if it does not.
func (c comparison) caused(ref reference) (source, evaluation string) {
	switch _, resource := c.t.Resources[ref.name]; {
	case !resource && c.before.Params[ref.name].use() != c.after.Params[ref.name].use():
		return "ParameterReference", "Static"
	case resource && ref.attribute == "" && c.affected[ref.name] == "Replace":
		return "ResourceReference", "Dynamic"
	case resource && ref.attribute != "" && c.affected[ref.name] != "":
		return "ResourceAttribute", "Dynamic"
	}
	return "", ""
}

// replacement sums up details: True, Conditional or False.
func replacement(details []detail, kind string) string {
	out := "False"
	for _, d := range details {
		switch {
		case d.Attribute == "Properties" && types()[kind].change == nil && d.Recreation == "Never":
			d.Recreation = "Always"
			fallthrough
		case d.Recreation == "Always" && d.Evaluation == "Static":
			if d.Evaluation == "Static" {
				return "True"
			}
			out = "Conditional"
		case d.Recreation == "Always", d.Recreation == "Conditionally":
			out = "Conditional"
		}
	}
	return out
}

// sameBeside tells whether nothing but resources differs: neither tags nor outputs.
func (e edition) sameBeside() bool {
	show := func(t *Template) string {
		out := tree{}
		for k, o := range t.Outputs {
			out[k] = []any{o.Value, o.Description, o.Export, o.Condition}
		}
		return canonical(out)
	}
	return canonical(anyMap(e.before.Tags)) == canonical(anyMap(e.after.Tags)) && show(e.old) == show(e.t)
}
