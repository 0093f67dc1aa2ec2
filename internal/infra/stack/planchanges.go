// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// valueNotShown is shown for a value that CloudFormation does not report.
const valueNotShown = "(not shown)"

// StepsOf converts the changes of a change set to steps of a plan, in the order of the graph.
func StepsOf(changes []types.Change, names NameIndex) []plan.Step {
	steps := []plan.Step{}
	for _, c := range changes {
		if r := c.ResourceChange; r != nil {
			steps = append(steps, stepOf(*r, names))
		}
	}

	position := func(a graph.Addr) int {
		if i, ok := names.OrderByAddr[a]; ok {
			return i
		}

		return len(names.OrderByAddr)
	}

	slices.SortStableFunc(steps, func(a, b plan.Step) int {
		return cmp.Or(
			cmp.Compare(position(a.Addr), position(b.Addr)),
			strings.Compare(string(a.Addr), string(b.Addr)),
		)
	})

	return steps
}

func stepOf(r types.ResourceChange, names NameIndex) plan.Step {
	cfn := aws.ToString(r.ResourceType)
	s := plan.Step{
		Action: plan.Update,
		Kind:   names.KindOf(cfn),
		Addr:   names.AddrOf(cfn, aws.ToString(r.LogicalResourceId)),
		ID:     aws.ToString(r.PhysicalResourceId),
	}

	switch r.Action {
	case types.ChangeActionAdd:
		s.Action = plan.Create
		return s
	case types.ChangeActionRemove:
		s.Action = plan.Delete
		if r.PolicyAction == types.PolicyActionRetain {
			s.Note = "removed from the stack, kept in AWS"
		}

		return s

	case types.ChangeActionImport:
		s.Note = "imported into the stack unchanged"
	case types.ChangeActionDynamic:
		s.Note = "CloudFormation decides during the update what it does"
	default: // an update or a replacement
	}

	switch r.Replacement {
	case types.ReplacementTrue:
		s.Action = plan.Replace
		if r.PolicyAction == types.PolicyActionReplaceAndRetain {
			s.Note = "the old one is kept in AWS"
		}

	case types.ReplacementConditional:
		s.Note = "may be replaced: CloudFormation decides during the update"
	default: // none
	}

	s.Changes = propertyChanges(r)

	return s
}

// propertyChanges returns the changed properties, each once: CloudFormation lists a property for each cause
// of its change.
func propertyChanges(r types.ResourceChange) []plan.Change {
	var out []plan.Change
	contexts := propertyContextsOf(r)
	split := map[string]bool{}

	for _, d := range r.Details {
		if d.Target == nil {
			continue
		}

		c := propertyChange(*d.Target)
		if split[c.Property] {
			continue
		}

		hidden := c.Old == valueNotShown && c.New == valueNotShown
		if parts := contexts.splitChange(c); hidden && parts != nil {
			split[c.Property] = true
			out = append(
				slices.DeleteFunc(out, func(o plan.Change) bool { return o.Property == c.Property }),
				parts...)
			continue
		}

		if d.Evaluation == types.EvaluationTypeDynamic && c.New == valueNotShown {
			c.New = plan.Unknown
		}

		out = mergeChange(out, c)
	}

	slices.SortFunc(out, func(a, b plan.Change) int { return strings.Compare(a.Property, b.Property) })

	return out
}

// mergeChange adds c to list, or replaces a change of the same property that has less information.
func mergeChange(list []plan.Change, c plan.Change) []plan.Change {
	at := slices.IndexFunc(list, func(o plan.Change) bool { return o.Property == c.Property })
	if at < 0 {
		return append(list, c)
	}

	if list[at].New == valueNotShown || list[at].New == plan.Unknown {
		c.ForcesReplacement = c.ForcesReplacement || list[at].ForcesReplacement
		list[at] = c
	}

	return list
}

func propertyChange(t types.ResourceTargetDefinition) plan.Change {
	c := plan.Change{
		Property:          string(t.Attribute),
		Old:               any(valueNotShown),
		New:               any(valueNotShown),
		ForcesReplacement: t.RequiresRecreation == types.RequiresRecreationAlways,
	}
	if t.Attribute == types.ResourceAttributeProperties {
		c.Property = aws.ToString(t.Name)
	}

	if path, ok := strings.CutPrefix(aws.ToString(t.Path), "/"); ok {
		path = strings.TrimPrefix(path, "Properties/")
		c.Property = strings.ReplaceAll(path, "/", ".")
	}

	switch t.AttributeChangeType {
	case types.AttributeChangeTypeAdd:
		c.Old = nil
	case types.AttributeChangeTypeRemove:
		c.New = nil
	default: // modified: both values exist
	}

	if t.BeforeValue != nil {
		c.Old = decodeValue(*t.BeforeValue)
	}

	if t.AfterValue != nil {
		c.New = decodeValue(*t.AfterValue)
	}

	return c
}

// decodeValue converts a value of a change set: JSON for a list or a structure, text for others.
func decodeValue(s string) any {
	if s == "{{changeSet:KNOWN_AFTER_APPLY}}" {
		return plan.Unknown
	}

	if strings.HasPrefix(s, "{") || strings.HasPrefix(s, "[") {
		var v any
		if json.Unmarshal([]byte(s), &v) == nil {
			return v
		}
	}

	return s
}
