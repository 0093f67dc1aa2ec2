// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/cloudformation"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/resourcetype"
	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// propertyDifference is a difference of a property: of the property as a whole or, with property values, of
// its smallest part.
type propertyDifference struct {
	path          []any  // name of the property, then names of members and indexes of elements
	before, after any    // after may be unknown
	kind          string // Add, Modify or Remove
}

// rawPair is a value in the old and in the new template, not evaluated.
type rawPair struct{ before, after any }

// addDetail adds a detail to a change, and its attribute to the scope.
func (ch *resourceChange) addDetail(d changeDetail) {
	ch.Details = append(ch.Details, d)
	if !slices.Contains(ch.Scope, d.Attribute) {
		ch.Scope = append(ch.Scope, d.Attribute)
	}
}

// addPropertyChanges adds the changes of a resource's properties, and of the tags that it inherits from the
// stack.
func (c contentDiff) addPropertyChanges(ch *resourceChange, r *resource, props template.Object) {
	for _, p := range c.requestedChanges(
		r.Logical,
		resourcetype.ChangedProperties(r.Properties, props),
		func(other string) bool { return c.affected[other] != "" },
	) {
		target := propertyTarget(r.Type, p, r.Properties[p], props[p])
		for _, d := range c.findDifferences(p, r.Properties[p], props[p]) {
			raw := c.rawValues(r.Logical, d.path)
			for _, detail := range c.changeReasons(c.describeDifference(target, d), raw, d.after) {
				ch.addDetail(detail)
			}
		}
	}

	if template.CanonicalText(toObject(c.before.Tags)) != template.CanonicalText(toObject(c.after.Tags)) &&
		resourcetype.HasStackTags(r.Type) {
		ch.addDetail(changeDetail{
			Attribute:  sdk.ResourceAttributeTags,
			Recreation: sdk.RequiresRecreationNever,
			Evaluation: sdk.EvaluationTypeStatic,
			Source:     sdk.ChangeSourceDirectModification,
		})
	}
}

// propertyTarget returns a detail without reasons for a property of a type. CloudFormation reports a list of
// tags as the attribute Tags, without the name of the property.
func propertyTarget(typeName, property string, before, after any) changeDetail {
	d := changeDetail{
		Attribute:  sdk.ResourceAttributeProperties,
		Name:       property,
		Recreation: resourcetype.RequiresRecreation(typeName, property),
	}

	_, wasList := before.([]any)
	_, isList := after.([]any)
	if property == "Tags" && (wasList || isList) {
		d.Attribute = sdk.ResourceAttributeTags
		d.Name = ""
	}

	return d
}

// findDifferences returns the differences of a property. With property values these are its smallest parts
// that differ, otherwise it is the property.
func (c contentDiff) findDifferences(property string, before, after any) []propertyDifference {
	if !c.withValues {
		return []propertyDifference{{path: []any{property}, after: after}}
	}

	var out []propertyDifference
	whole := propertyDifference{path: []any{property}, before: before, after: after}

	walkDifferences(whole, func(d propertyDifference) { out = append(out, d) })

	return out
}

// walkDifferences calls found for the smallest parts of d that differ.
func walkDifferences(d propertyDifference, found func(propertyDifference)) {
	switch {
	case d.before == nil && d.after == nil:
		return
	case d.before == nil:
		d.kind = sdk.AttributeChangeTypeAdd
	case d.after == nil:
		d.kind = sdk.AttributeChangeTypeRemove
	default:
		walkParts(d, found)
		return
	}

	found(d)
}

// walkParts calls found for the smallest parts of two values that differ.
func walkParts(d propertyDifference, found func(propertyDifference)) {
	walk := func(step, before, after any) {
		walkDifferences(propertyDifference{
			path:   append(slices.Clone(d.path), step),
			before: before,
			after:  after,
		}, found)
	}

	oldObject, wasObject := d.before.(template.Object)
	newObject, isObject := d.after.(template.Object)
	oldList, wasList := d.before.([]any)
	newList, isList := d.after.([]any)

	switch {
	case wasObject && isObject:
		for _, k := range memberNames(oldObject, newObject) {
			walk(k, oldObject[k], newObject[k])
		}

	case wasList && isList:
		for i := range max(len(oldList), len(newList)) {
			walk(i, template.ValueAt(oldList, i), template.ValueAt(newList, i))
		}

	case template.HasUnknown(d.after) || template.CanonicalText(d.before) != template.CanonicalText(d.after):
		d.kind = sdk.AttributeChangeTypeModify
		found(d)
	}
}

// memberNames returns the names of the members of two objects, sorted.
func memberNames(a, b template.Object) []string {
	names := append(sdkshape.SortedKeys(a), sdkshape.SortedKeys(b)...)
	slices.Sort(names)

	return slices.Compact(names)
}

// describeDifference adds the path and the values of a difference to a target, if the changes have property
// values.
func (c contentDiff) describeDifference(target changeDetail, d propertyDifference) changeDetail {
	if !c.withValues {
		return target
	}

	target.Path = pathText(sdk.ResourceAttributeProperties, d.path)
	target.ChangeType = d.kind
	target.BeforeValue = valueText(d.before)
	target.AfterValue = valueText(d.after)

	return target
}

// pathText returns the path of a value in an attribute of a resource, such as /Properties/Tags/0.
func pathText(attribute string, path []any) string {
	var out strings.Builder
	out.WriteString("/" + attribute)
	for _, step := range path {
		fmt.Fprintf(&out, "/%v", step)
	}

	return out.String()
}

// valueText returns a value as change sets show it: a scalar as text, a list or an object as JSON.
func valueText(v any) string {
	v = template.ShowUnknown(v)
	if text, ok := template.ScalarText(v); ok || v == nil {
		return text
	}

	return jsonText(v)
}

func jsonText(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return ""
	}

	return string(b)
}

// contextText returns a resource as the context of a change shows it; empty without property values. spec is the resource
// in its template.
func (c contentDiff) contextText(
	props template.Object,
	spec template.ResourceSpec,
	policies template.Policies,
) string {
	if !c.withValues {
		return ""
	}

	shown := template.Object{"Properties": template.ShowUnknown(props)}
	if spec.Metadata != nil {
		shown["Metadata"] = spec.Metadata
	}

	if policies.Deletion != "" {
		shown["DeletionPolicy"] = policies.Deletion
	}

	if policies.UpdateReplace != "" {
		shown["UpdateReplacePolicy"] = policies.UpdateReplace
	}

	return jsonText(shown)
}

// rawValues returns what the two templates set at a path of a resource's properties. The path ends at the
// first function.
func (c contentDiff) rawValues(logical string, path []any) rawPair {
	return rawPair{
		before: rawValueAt(c.oldTemplate.Resources[logical].Properties, path),
		after:  rawValueAt(c.newTemplate.Resources[logical].Properties, path),
	}
}

func rawValueAt(v any, path []any) any {
	for _, step := range path {
		if template.IsFunction(v) {
			return v
		}

		v = template.ValueAt(v, step)
	}

	return v
}

// changeReasons returns a detail for each reason of a change: target with its source, its evaluation and its
// cause. value is the new value.
func (c contentDiff) changeReasons(target changeDetail, raw rawPair, value any) []changeDetail {
	var out []changeDetail
	direct := target
	direct.Source = sdk.ChangeSourceDirectModification
	direct.Evaluation = sdk.EvaluationTypeStatic
	isDirect := template.CanonicalText(raw.before) != template.CanonicalText(raw.after)
	if template.HasUnknown(value) {
		direct.Evaluation = sdk.EvaluationTypeDynamic
	}

	for _, ref := range template.FindReferences(raw.after) {
		one := target
		one.Cause = ref.String()
		one.Source, one.Evaluation = c.referenceCause(ref)

		switch {
		case one.Source == "":
			continue
		case one.Source == sdk.ChangeSourceParameterReference,
			c.withValues && one.Evaluation == sdk.EvaluationTypeStatic:
			// CloudFormation adds a dynamic detail to the static one of the reference.
			isDirect = true
			direct.Evaluation = sdk.EvaluationTypeDynamic
		}

		out = append(out, one)
	}

	if isDirect || len(out) == 0 { // without a reason, an import, a mapping or a condition has another value
		out = append([]changeDetail{direct}, out...)
	}

	return out
}

// referenceCause returns how a reference changes a property; empty if it does not.
func (c contentDiff) referenceCause(ref template.Reference) (source, evaluation string) {
	_, isResource := c.newTemplate.Resources[ref.Target]
	if !isResource {
		if c.before.Params[ref.Target].EffectiveText() == c.after.Params[ref.Target].EffectiveText() {
			return "", ""
		}

		return sdk.ChangeSourceParameterReference, sdk.EvaluationTypeStatic
	}

	source = sdk.ChangeSourceResourceReference
	if ref.Attribute != "" {
		source = sdk.ChangeSourceResourceAttribute
	}

	switch affected := c.affected[ref.Target]; {
	case affected == affectedReplaced:
		return source, sdk.EvaluationTypeStatic
	case affected == affectedPerhaps, affected == affectedInPlace && ref.Attribute != "":
		return source, sdk.EvaluationTypeDynamic
	}

	return "", ""
}

// addAttributeChanges adds the changes of a resource's other attributes, such as Metadata and DeletionPolicy.
// now are the evaluated policies of the new template, was those of the old one.
func (c contentDiff) addAttributeChanges(ch *resourceChange, was, now template.Policies) {
	old := c.oldTemplate.Resources[ch.Logical]
	spec := c.newTemplate.Resources[ch.Logical]
	add := func(attribute string, before, after any, raw rawPair) {
		if template.CanonicalText(before) == template.CanonicalText(after) {
			return
		}

		for _, target := range c.attributeTargets(attribute, before, after) {
			for _, d := range c.changeReasons(target, raw, nil) {
				ch.addDetail(d)
			}
		}
	}

	add("Metadata", old.Metadata, spec.Metadata, rawPair{})
	add("CreationPolicy", objectOrNil(old.CreationPolicy), objectOrNil(spec.CreationPolicy), rawPair{})
	add("UpdatePolicy", objectOrNil(old.UpdatePolicy), objectOrNil(spec.UpdatePolicy), rawPair{})
	add("DeletionPolicy", textOrNil(was.Deletion), textOrNil(now.Deletion), rawPair{old.DeletionPolicy, spec.DeletionPolicy})
	add(
		"UpdateReplacePolicy",
		textOrNil(was.UpdateReplace),
		textOrNil(now.UpdateReplace),
		rawPair{old.UpdateReplacePolicy, spec.UpdateReplacePolicy},
	)
}

// attributeTargets returns the targets of a change of an attribute other than Properties: one or, with property values, one
// for each of its smallest parts that differ.
func (c contentDiff) attributeTargets(attribute string, before, after any) []changeDetail {
	target := changeDetail{Attribute: attribute, Recreation: sdk.RequiresRecreationNever}
	if !c.withValues {
		return []changeDetail{target}
	}

	var out []changeDetail
	walkDifferences(propertyDifference{before: before, after: after}, func(d propertyDifference) {
		one := target
		one.Path = pathText(attribute, d.path)
		one.ChangeType = d.kind
		one.BeforeValue = valueText(d.before)
		one.AfterValue = valueText(d.after)
		out = append(out, one)
	})

	return out
}

// objectOrNil returns nil for an attribute that the template does not have.
func objectOrNil(o template.Object) any {
	if len(o) == 0 {
		return nil
	}

	return o
}

// textOrNil returns nil for a policy that the template does not have.
func textOrNil(policy string) any {
	if policy == "" {
		return nil
	}

	return policy
}
