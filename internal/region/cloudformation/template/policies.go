// SPDX-License-Identifier: Apache-2.0

package template

import (
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// Names of the attributes of a resource that Policies has.
const (
	deletionPolicy      = "DeletionPolicy"
	updateReplacePolicy = "UpdateReplacePolicy"
)

// Policies are the evaluated policies of a resource.
type Policies struct {
	Deletion      string // Delete, Retain, Snapshot, RetainExceptOnCreate or empty
	UpdateReplace string // Delete, Retain, Snapshot or empty
}

// policyAttribute is a DeletionPolicy or UpdateReplacePolicy in a template.
type policyAttribute struct {
	name     string // DeletionPolicy or UpdateReplacePolicy
	value    any    // a string or a function; nil if the template does not set it
	resource string // logical ID
}

func (r *ResourceSpec) policyAttributes(logical string) []policyAttribute {
	return []policyAttribute{
		{deletionPolicy, r.DeletionPolicy, logical},
		{updateReplacePolicy, r.UpdateReplacePolicy, logical},
	}
}

// policyFunctions returns the functions that a policy may use: those that AWS's page on intrinsic functions in
// these attributes lists (Fn::FindInMap, Fn::If, Ref), and three that CloudFormation evaluates as well.
func policyFunctions() []string {
	return []string{"Fn::FindInMap", "Fn::If", "Fn::Join", "Fn::Select", "Fn::Sub", "Ref"}
}

// policyPseudoParameters returns the pseudo parameters that a policy may use.
func policyPseudoParameters() []string {
	return []string{"AWS::AccountId", "AWS::Partition", "AWS::Region"}
}

// checkPolicies checks the policies of all resources as far as they do not depend on parameters.
func (t *Template) checkPolicies(types Catalog) error {
	for _, name := range sdkshape.SortedKeys(t.Resources) {
		spec := t.Resources[name]
		for _, p := range spec.policyAttributes(name) {
			if err := t.checkPolicy(types, p); err != nil {
				return err
			}
		}
	}

	return nil
}

// checkPolicy checks one policy of a resource: the value of a string, or the functions of an expression.
func (t *Template) checkPolicy(types Catalog, p policyAttribute) error {
	if p.value == nil {
		return nil
	}

	if !IsFunction(p.value) {
		return p.checkValue(types, t.Resources[p.resource].Type, p.value)
	}

	if err := p.checkFunctions(p.value); err != nil {
		return err
	}

	if err := t.checkFunctionsIn(p.value); err != nil {
		return err
	}

	for _, ref := range FindReferences(p.value) {
		if err := t.checkPolicyReference(p, ref); err != nil {
			return err
		}
	}

	return nil
}

// checkValue refuses a value that is not a policy, or that the resource type does not support.
func (p policyAttribute) checkValue(types Catalog, typeName string, value any) error {
	text, ok := ScalarText(value)
	allowed := []string{"Delete", "Retain", "Snapshot"}
	if p.name == deletionPolicy {
		allowed = append(allowed, "RetainExceptOnCreate")
	}

	switch {
	case !ok:
		return p.errNotString()
	case !slices.Contains(allowed, text):
		return FormatError("Unrecognized %s %s for resource %s", p.name, text, p.resource)
	case text == "Snapshot" && !types.SupportsSnapshot(typeName):
		return ErrorInTemplate("resource type %s does not support deletion policy Snapshot", typeName)
	}

	return nil
}

// checkFunctions refuses the functions that a policy cannot use, wherever they are in v.
func (p policyAttribute) checkFunctions(v any) error {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			if err := p.checkFunctions(e); err != nil {
				return err
			}
		}

	case Object:
		if name, _, ok := asIntrinsic(v); ok && !slices.Contains(policyFunctions(), name) {
			return p.errUnsupported(name)
		}

		for _, k := range sdkshape.SortedKeys(v) {
			if err := p.checkFunctions(v[k]); err != nil {
				return err
			}
		}
	}

	return nil
}

// checkPolicyReference refuses a reference in a policy whose value CloudFormation does not know before it
// creates resources.
func (t *Template) checkPolicyReference(p policyAttribute, ref Reference) error {
	_, isParameter := t.Parameters[ref.Target]
	_, isResource := t.Resources[ref.Target]

	switch {
	case ref.Attribute != "":
		return p.errUnsupported("Fn::GetAtt")
	case isParameter || slices.Contains(policyPseudoParameters(), ref.Target):
		return nil
	case isResource:
		return p.errUnsupported("Ref to the resource " + ref.Target)
	case strings.HasPrefix(ref.Target, "AWS::"):
		return ErrorInTemplate("%s is not supported for DeletionPolicy or UpdateReplacePolicy", ref.Target)
	}

	return FormatError("Unresolved resource dependencies [%s] in the Resources block of the template", ref.Target)
}

func (p policyAttribute) errNotString() error {
	return FormatError("Every %s member must be a string.", p.name)
}

func (p policyAttribute) errUnsupported(what string) error {
	return ErrorInTemplate("Unsupported expression for %s in resource %s: %s", p.name, p.resource, what)
}

// CheckPolicies evaluates the policies of the resources whose conditions are true, and refuses values that
// are not valid.
func (s Scope) CheckPolicies(types Catalog) error {
	for _, name := range sdkshape.SortedKeys(s.Template.Resources) {
		spec := s.Template.Resources[name]
		enabled, err := s.isEnabled(spec.Condition)
		if err != nil {
			return err
		}

		if !enabled {
			continue
		}

		for _, p := range spec.policyAttributes(name) {
			if err := s.checkEvaluatedPolicy(types, p); err != nil {
				return err
			}
		}
	}

	return nil
}

func (s Scope) checkEvaluatedPolicy(types Catalog, p policyAttribute) error {
	if p.value == nil {
		return nil
	}

	v, err := s.Eval(p.value)
	if err != nil {
		return err
	}

	return p.checkValue(types, s.Template.Resources[p.resource].Type, v)
}

// EvalPolicies returns the policies of a resource of the template. CheckPolicies has checked them.
func (s Scope) EvalPolicies(logical string) (Policies, error) {
	spec := s.Template.Resources[logical]
	v, err := s.Eval([]any{spec.DeletionPolicy, spec.UpdateReplacePolicy})

	return Policies{Deletion: StringAt(v, 0), UpdateReplace: StringAt(v, 1)}, err
}
