// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/cloudformation"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/resourcetype"
	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// resourceChange is what an update would do to one resource. Its fields are saved in a change set.
type resourceChange struct {
	Action, Logical, Physical, Type, Replacement, Policy string
	Scope                                                []string
	Details                                              []changeDetail
	Before, After                                        string // contexts; only with property values
}

// changeDetail is one reason of a change. Its fields are saved in a change set.
type changeDetail struct {
	Attribute, Name, Recreation string
	Evaluation, Source, Cause   string
	// The other fields are set only with property values.
	Path                    string // such as /Properties/Tags/0/Value
	ChangeType              string // Add, Modify or Remove
	BeforeValue, AfterValue string // BeforeValue is empty for Add, AfterValue for Remove
}

// How a resource changes, in contentDiff.
const (
	affectedInPlace  = "Modify"      // its attributes may change
	affectedPerhaps  = "Conditional" // it may be replaced
	affectedReplaced = "Replace"     // its physical ID changes, or it is created
)

// contentDiff compares the current content of a stack with a new one.
type contentDiff struct {
	templatePair
	stack *stack
	// affected is how each resource changes, by logical ID; empty for not at all.
	affected map[string]string
	// withValues is true for the changes that DescribeChangeSet returns with IncludePropertyValues. They have
	// values, and attributes of resources that change in place keep their present values: resources that
	// depend on such attributes are not among the changes.
	withValues bool
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

// removedResources returns a removal for each resource of the stack that is not among nodes.
func (c contentDiff) removedResources(nodes map[string][]string) []resourceChange {
	var out []resourceChange
	for _, name := range sdkshape.SortedKeys(c.stack.Resources) {
		r := c.stack.Resources[name]
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
			Before:   c.contextText(r.Properties, c.oldTemplate.Resources[name], r.policies()),
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

	out, err = s.diffResources(c)
	if err != nil {
		return nil, false, err
	}

	return out, len(out) == 0 && c.sameTagsAndOutputs(), nil
}

// diffContentWithValues returns the changes that new content would make to a stack, with property values. The
// caller holds the store's lock.
func (s *Service) diffContentWithValues(st *stack, before, after stackContent) ([]resourceChange, error) {
	c, err := newContentDiff(st, before, after)
	if err != nil {
		return nil, err
	}

	c.withValues = true

	return s.diffResources(c)
}

// diffResources returns the changes of the resources, sorted by logical ID.
func (s *Service) diffResources(c contentDiff) ([]resourceChange, error) {
	nodes, err := s.enabledResources(stackTransition{templatePair: c.templatePair, stack: c.stack})
	if err != nil {
		return nil, err
	}

	var out []resourceChange
	var problems []string

	for _, name := range topologicalOrder(nodes) {
		ch, bad, err := s.diffResource(c, name)
		if err != nil {
			return nil, err
		}

		problems = append(problems, bad...)
		if ch != nil {
			out = append(out, *ch)
		}
	}

	if len(problems) > 0 {
		return nil, invalidPropertiesError{template.ValidationError("%s", strings.Join(problems, "; "))}
	}

	out = append(out, c.removedResources(nodes)...)
	slices.SortStableFunc(out, func(a, b resourceChange) int { return strings.Compare(a.Logical, b.Logical) })

	return out, nil
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
	export := sc.ResolveExport
	sc.ResolveExport = func(name string) (any, error) {
		if s.state.exportingStack(name) == nil {
			return template.UnknownValue{}, nil // the execution fails unless a stack exports it until then
		}

		return export(name)
	}

	sc.ResolveResource = func(logical string) (any, error) {
		if c.mayBeReplaced(logical) {
			return template.UnknownValue{}, nil
		}

		return ref(logical)
	}

	sc.ResolveAttribute = func(logical, name string) (any, error) {
		if c.mayBeReplaced(logical) || c.affected[logical] != "" && !c.withValues {
			return template.UnknownValue{}, nil
		}

		v, err := attribute(logical, name)
		if err != nil && c.affected[logical] != "" {
			return template.UnknownValue{}, nil // the update may add the attribute
		}

		return v, err
	}

	return sc
}

// mayBeReplaced reports whether the change creates a resource, or perhaps replaces it.
func (c contentDiff) mayBeReplaced(logical string) bool {
	return c.affected[logical] == affectedReplaced || c.affected[logical] == affectedPerhaps
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

	ch, err := s.changeOf(c, name, props)

	return ch, nil, err
}

// changeOf returns the change of a resource to new properties; nil if it does not change. It sets how the
// resource is affected.
func (s *Service) changeOf(c contentDiff, name string, props template.Object) (*resourceChange, error) {
	was, err := s.newScope(c.stack, c.before, c.oldTemplate).EvalPolicies(name)
	if err != nil {
		return nil, err
	}

	now, err := s.newScope(c.stack, c.after, c.newTemplate).EvalPolicies(name)
	if err != nil {
		return nil, err
	}

	r := c.stack.Resources[name]
	if r == nil || r.Status == statusDeleted || r.Physical == "" {
		c.affected[name] = affectedReplaced
		return &resourceChange{
			Action:  sdk.ChangeActionAdd,
			Logical: name,
			Type:    c.newTemplate.Resources[name].Type,
			After:   c.contextText(props, c.newTemplate.Resources[name], now),
		}, nil
	}

	ch := &resourceChange{
		Action:   sdk.ChangeActionModify,
		Logical:  name,
		Physical: r.Physical,
		Type:     r.Type,
		Before:   c.contextText(r.Properties, c.oldTemplate.Resources[name], was),
		After:    c.contextText(props, c.newTemplate.Resources[name], now),
	}

	c.addPropertyChanges(ch, r, props)
	c.addAttributeChanges(ch, was, now)
	if len(ch.Scope) == 0 && !strings.HasSuffix(r.Status, suffixFailed) {
		return nil, nil //nolint:nilnil // nil means no change
	}

	ch.Replacement = summarizeReplacement(ch.Details, r.Type)
	c.affected[name] = map[string]string{
		sdk.ReplacementFalse:       affectedInPlace,
		sdk.ReplacementConditional: affectedPerhaps,
		sdk.ReplacementTrue:        affectedReplaced,
	}[ch.Replacement]
	if ch.Replacement != sdk.ReplacementFalse {
		ch.Policy = cmp.Or(
			map[string]string{"Retain": "ReplaceAndRetain", "Snapshot": "ReplaceAndSnapshot"}[now.UpdateReplace],
			"ReplaceAndDelete",
		)
	}

	return ch, nil
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
