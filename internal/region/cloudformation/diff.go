// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/resourcetype"
	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// resourceChange is what an update would do to one resource. Its fields are saved in a change set.
type resourceChange struct {
	Action, Logical, Physical, Type, Replacement, Policy string
	Scope                                                []string
	Details                                              []changeDetail
	Before, After                                        string
}

// changeDetail is one reason of a change. Its fields are saved in a change set.
type changeDetail struct {
	Attribute, Name, Recreation string
	Evaluation, Source, Cause   string
}

// contentDiff compares the current content of a stack with a new one.
type contentDiff struct {
	templatePair
	stack *stack
	// affected is how each resource changes, by logical ID: "" (not at all), Modify (its attributes may
	// change) or Replace (its physical ID changes).
	affected map[string]string
}

func newContentDiff(st *stack, before, after stackContent) (c contentDiff, err error) {
	c = contentDiff{
		templatePair: templatePair{oldTemplate: &template.Template{}, before: before, after: after},
		stack:        st,
		affected:     map[string]string{},
	}
	if c.newTemplate, err = parseTemplate(after.Body); err != nil {
		return c, err
	}

	if before.Body != "" {
		c.oldTemplate, err = parseTemplate(before.Body)
	}

	return c, err
}

// removedResources returns a removal for each resource of a stack that is not among nodes.
func removedResources(st *stack, nodes map[string][]string) []resourceChange {
	var out []resourceChange
	for _, name := range sdkshape.SortedKeys(st.Resources) {
		r := st.Resources[name]
		if _, stays := nodes[name]; stays || r.Status == statusDeleted {
			continue
		}

		policy := map[string]string{"Retain": "Retain", "RetainExceptOnCreate": "Retain", "Snapshot": "Snapshot"}[r.DeletionPolicy]
		out = append(out, resourceChange{
			Action:   "Remove",
			Logical:  name,
			Physical: r.Physical,
			Type:     r.Type,
			Policy:   cmp.Or(policy, "Delete"),
			Before:   propertiesJSON(r.Properties),
		})
	}

	return out
}

// diffContent returns the changes that new content would make to a stack. idle is true if there is no change
// at all, not even of tags and outputs. The caller holds the store's lock.
func (s *Service) diffContent(
	st *stack,
	before, after stackContent,
) (out []resourceChange, idle bool, err error) {
	c, err := newContentDiff(st, before, after)
	if err != nil {
		return nil, false, err
	}

	nodes, err := s.enabledResources(stackTransition{templatePair: c.templatePair, stack: st})
	if err != nil {
		return nil, false, err
	}

	var problems []string

	for _, name := range topologicalOrder(nodes) {
		ch, bad, err := s.diffResource(c, name)
		if err != nil {
			return nil, false, err
		}

		problems = append(problems, bad...)
		if ch != nil {
			out = append(out, *ch)
		}
	}

	if len(problems) > 0 {
		return nil, false, invalidPropertiesError{template.ValidationError("%s", strings.Join(problems, "; "))}
	}

	out = append(out, removedResources(st, nodes)...)
	slices.SortStableFunc(out, func(a, b resourceChange) int { return strings.Compare(a.Logical, b.Logical) })

	return out, len(out) == 0 && c.sameTagsAndOutputs(), nil
}

// topologicalOrder lists the nodes, each after its dependencies.
func topologicalOrder(nodes map[string][]string) []string {
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

	for _, name := range sdkshape.SortedKeys(nodes) {
		visit(name)
	}

	return out
}

// plannedScope returns a scope in which values that depend on the execution are unknown.
func (s *Service) plannedScope(c contentDiff) template.Scope {
	sc := s.newScope(c.stack, c.after, c.newTemplate)
	ref := sc.ResolveResource
	attribute := sc.ResolveAttribute
	sc.ResolveResource = func(logical string) (any, error) {
		if c.affected[logical] == "Replace" {
			return template.UnknownValue{}, nil
		}

		return ref(logical)
	}

	sc.ResolveAttribute = func(logical, name string) (any, error) {
		if c.affected[logical] != "" {
			return template.UnknownValue{}, nil
		}

		return attribute(logical, name)
	}

	return sc
}

// invalidPropertiesError reports resources whose properties their types do not allow. A change set is refused
// then; an update of a stack starts, and fails at the resource.
type invalidPropertiesError struct{ cause error }

func (e invalidPropertiesError) Error() string { return e.cause.Error() }
func (e invalidPropertiesError) Unwrap() error { return e.cause }

func (s *Service) diffResource(c contentDiff, name string) (*resourceChange, []string, error) {
	spec := c.newTemplate.Resources[name]
	v, err := s.plannedScope(c).Eval(spec.Properties)
	if err != nil {
		return nil, nil, err
	}

	props, _ := v.(template.Object)
	props, wrong := resourcetype.CoerceProperties(spec.Type, props)
	if len(wrong) > 0 {
		return nil, []string{
			fmt.Sprintf(
				"Properties validation failed for resource %s with message: [%s]",
				name,
				strings.Join(wrong, ", "),
			),
		}, nil
	}

	r := c.stack.Resources[name]
	if r == nil || r.Status == statusDeleted || r.Physical == "" {
		c.affected[name] = "Replace"
		return &resourceChange{
			Action:  "Add",
			Logical: name,
			Type:    spec.Type,
			After:   propertiesJSON(withoutUnknown(props)),
		}, nil, nil
	}

	ch := &resourceChange{
		Action:      "Modify",
		Logical:     name,
		Physical:    r.Physical,
		Type:        r.Type,
		Replacement: "False",
		Before:      propertiesJSON(r.Properties),
		After:       propertiesJSON(withoutUnknown(props)),
	}

	c.addPropertyChanges(ch, r, props)
	old, spec, err := s.evaluateSpecs(c, name)
	if err != nil {
		return nil, nil, err
	}

	c.addAttributeChanges(ch, old, spec)
	if len(ch.Scope) == 0 && !strings.HasSuffix(r.Status, suffixFailed) {
		return nil, nil, nil
	}

	ch.Replacement = summarizeReplacement(ch.Details, r.Type)
	c.affected[name] = "Modify"
	if ch.Replacement != "False" {
		c.affected[name] = "Replace"
		ch.Policy = cmp.Or(
			map[string]string{"Retain": "ReplaceAndRetain", "Snapshot": "ReplaceAndSnapshot"}[r.UpdateReplacePolicy],
			"ReplaceAndDelete",
		)
	}

	return ch, nil, nil
}

// evaluateSpecs returns a resource as the old and the new template describe it, with evaluated policies. The
// caller holds the store's lock.
func (s *Service) evaluateSpecs(c contentDiff, name string) (old, spec template.ResourceSpec, err error) {
	old = c.oldTemplate.Resources[name]
	policies, err := s.newScope(c.stack, c.before, c.oldTemplate).EvalPolicies(name)
	if err != nil {
		return old, spec, err
	}

	old.DeletionPolicy = policies.Deletion
	old.UpdateReplacePolicy = policies.UpdateReplace
	spec = c.newTemplate.Resources[name]
	policies, err = s.newScope(c.stack, c.after, c.newTemplate).EvalPolicies(name)
	spec.DeletionPolicy = policies.Deletion
	spec.UpdateReplacePolicy = policies.UpdateReplace

	return old, spec, err
}

// addPropertyChanges adds the changes of a resource's properties, and of the tags that it inherits from the
// stack.
func (c contentDiff) addPropertyChanges(ch *resourceChange, r *resource, props template.Object) {
	for _, p := range c.requestedChanges(
		r.Logical,
		resourcetype.ChangedProperties(r.Properties, props),
		func(other string) bool { return c.affected[other] != "" },
	) {
		ch.Details = append(ch.Details, c.changeReasons(r, r.Logical, p, props[p])...)
	}

	if len(ch.Details) > 0 {
		ch.Scope = append(ch.Scope, "Properties")
	}

	if template.CanonicalText(toObject(c.before.Tags)) != template.CanonicalText(toObject(c.after.Tags)) &&
		resourcetype.HasStackTags(r.Type) {
		ch.Scope = append(ch.Scope, "Tags")
		ch.Details = append(ch.Details, changeDetail{
			Attribute:  "Tags",
			Recreation: "Never",
			Evaluation: "Static",
			Source:     "DirectModification",
		})
	}
}

// withoutUnknown returns properties without unknown values, which must not be saved.
func withoutUnknown(v template.Object) template.Object {
	out := template.Object{}
	for k, e := range v {
		if !template.HasUnknown(e) {
			out[k] = e
		}
	}

	return out
}

// addAttributeChanges adds the changes of a resource's other attributes, such as Metadata and DeletionPolicy.
func (c contentDiff) addAttributeChanges(ch *resourceChange, old, spec template.ResourceSpec) {
	for _, a := range []struct {
		name          string
		before, after any
	}{
		{"Metadata", old.Metadata, spec.Metadata},
		{"CreationPolicy", emptyIfNil(old.CreationPolicy), emptyIfNil(spec.CreationPolicy)},
		{"UpdatePolicy", emptyIfNil(old.UpdatePolicy), emptyIfNil(spec.UpdatePolicy)},
		{"DeletionPolicy", old.DeletionPolicy, spec.DeletionPolicy},
		{"UpdateReplacePolicy", old.UpdateReplacePolicy, spec.UpdateReplacePolicy},
	} {
		if template.CanonicalText(a.before) != template.CanonicalText(a.after) {
			ch.Scope = append(ch.Scope, a.name)
			ch.Details = append(ch.Details, changeDetail{
				Attribute:  a.name,
				Recreation: "Never",
				Evaluation: "Static",
				Source:     "DirectModification",
			})
		}
	}
}

// changeReasons returns the reasons why a property changes.
func (c contentDiff) changeReasons(r *resource, name, property string, v any) []changeDetail {
	d := changeDetail{
		Attribute:  "Properties",
		Name:       property,
		Recreation: resourcetype.RequiresRecreation(r.Type, property),
		Evaluation: "Static",
	}
	if template.HasUnknown(v) {
		d.Evaluation = "Dynamic"
	}

	raw := c.newTemplate.Resources[name].Properties[property]
	var out []changeDetail
	if template.CanonicalText(raw) != template.CanonicalText(
		c.oldTemplate.Resources[name].Properties[property],
	) {
		d.Source = "DirectModification"
		out = append(out, d)
	}

	for _, ref := range template.FindReferences(raw) {
		one := d
		one.Cause = ref.String()
		if one.Source, one.Evaluation = c.referenceCause(ref); one.Source != "" {
			out = append(out, one)
		}
	}

	if len(out) == 0 { // an import, a mapping or a condition has another value
		d.Source = "DirectModification"
		out = append(out, d)
	}

	return out
}

// referenceCause returns how a reference changes a property; empty if it does not.
func (c contentDiff) referenceCause(ref template.Reference) (source, evaluation string) {
	switch _, resource := c.newTemplate.Resources[ref.Target]; {
	case !resource && c.before.Params[ref.Target].EffectiveText() != c.after.Params[ref.Target].EffectiveText():
		return "ParameterReference", "Static"
	case resource && ref.Attribute == "" && c.affected[ref.Target] == "Replace":
		return "ResourceReference", "Dynamic"
	case resource && ref.Attribute != "" && c.affected[ref.Target] != "":
		return "ResourceAttribute", "Dynamic"
	}

	return "", ""
}

// summarizeReplacement summarizes the details of a change: True, Conditional or False.
func summarizeReplacement(details []changeDetail, kind string) string {
	out := "False"
	for _, d := range details {
		switch {
		case d.Attribute == "Properties" && lookupType(kind).Update == nil && d.Recreation == "Never":
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

// sameTagsAndOutputs reports whether the tags and the outputs do not change.
func (e templatePair) sameTagsAndOutputs() bool {
	show := func(t *template.Template) string {
		out := template.Object{}
		for k, o := range t.Outputs {
			out[k] = []any{o.Value, o.Description, o.Export, o.Condition}
		}

		return template.CanonicalText(out)
	}

	return template.CanonicalText(toObject(e.before.Tags)) == template.CanonicalText(toObject(e.after.Tags)) &&
		show(e.oldTemplate) == show(e.newTemplate)
}
