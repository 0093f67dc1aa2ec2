// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"fmt"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/resourcetype"
	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// newScope returns the scope to evaluate a stack's template with. The caller holds the store's lock while it
// uses the scope.
func (s *Service) newScope(st *stack, c stackContent, t *template.Template) template.Scope {
	return template.Scope{
		Template:   t,
		Parameters: c.Params,
		Zones:      s.cfg.Zones,
		Pseudo:     s.pseudoValues(st),
		Conditions: map[string]bool{},
		ResolveResource: func(logical string) (any, error) {
			r := st.Resources[logical]
			if r == nil || r.Physical == "" {
				return nil, template.FormatError(
					"Unresolved resource dependencies [%s] in the Resources block of the template",
					logical,
				)
			}

			return r.Physical, nil
		},
		ResolveAttribute: func(logical, name string) (any, error) {
			r := st.Resources[logical]
			if r == nil || r.Physical == "" {
				return nil, template.FormatError(
					"Unresolved resource dependencies [%s] in the Resources block of the template",
					logical,
				)
			}

			if v, ok := r.Attributes[name]; ok {
				return v, nil
			}

			return nil, template.ErrorInTemplate(
				"resource %s does not support attribute type %s in Fn::GetAtt",
				logical,
				name,
			)
		},
		ResolveExport: s.state.exportValue,
	}
}

func (s *Service) pseudoValues(st *stack) map[string]any {
	return map[string]any{
		"AWS::AccountId": s.cfg.Account, "AWS::Region": s.cfg.Region, "AWS::Partition": "aws", "AWS::URLSuffix": "amazonaws.com",
		"AWS::StackId": st.ID, "AWS::StackName": st.Name, "AWS::NoValue": template.NoValue{}, "AWS::NotificationARNs": []any{},
	}
}

// evaluateResource evaluates the properties and the policies of a resource. The caller holds the store's
// lock.
func (s *Service) evaluateResource(sd stackTransition, name string) evaluatedResource {
	m := evaluatedResource{spec: sd.newTemplate.Resources[name]}
	sc := s.newScope(sd.stack, sd.after, sd.newTemplate)
	if m.policies, m.err = sc.EvalPolicies(name); m.err != nil {
		return m
	}

	var v any
	v, m.err = sc.Eval([]any{
		m.spec.Properties,
		emptyIfNil(m.spec.CreationPolicy),
		emptyIfNil(m.spec.UpdatePolicy),
	})
	if m.err != nil {
		return m
	}

	props, _ := template.ValueAt(v, 0).(template.Object)
	m.spec.CreationPolicy, _ = template.ValueAt(v, 1).(template.Object)
	m.spec.UpdatePolicy, _ = template.ValueAt(v, 2).(template.Object)
	props, problems := resourcetype.CoerceProperties(m.spec.Type, props)
	if len(problems) > 0 {
		m.err = fmt.Errorf(
			"Properties validation failed for resource %s with message: [%s]",
			name,
			strings.Join(problems, ", "),
		)

		return m
	}

	m.props = props

	return m
}

func emptyIfNil(m template.Object) template.Object {
	if m == nil {
		return template.Object{}
	}

	return m
}

// evaluateOutputs evaluates the outputs of the new template, and lists the exports that the template imports.
// The caller holds the store's lock.
func (s *Service) evaluateOutputs(sd stackTransition) ([]stackOutput, []string, error) {
	sc := s.newScope(sd.stack, sd.after, sd.newTemplate)
	imports := map[string]bool{}
	sc.ResolveExport = func(name string) (any, error) {
		imports[name] = true
		return s.state.exportValue(name)
	}

	var out []stackOutput

	for _, key := range sdkshape.SortedKeys(sd.newTemplate.Outputs) {
		spec := sd.newTemplate.Outputs[key]
		if spec.Condition != "" {
			if yes, err := sc.EvalCondition(spec.Condition); err != nil || !yes {
				if err != nil {
					return nil, nil, err
				}

				continue
			}
		}

		o, err := s.evaluateOutput(sc, sd.stack, key, spec)
		if err != nil {
			return nil, nil, err
		}

		out = append(out, o)
	}

	for _, name := range sdkshape.SortedKeys(sd.newTemplate.Resources) {
		if r := sd.stack.Resources[name]; r == nil || r.Status == statusDeleted {
			continue // its condition is false
		}

		if _, err := sc.Eval(sd.newTemplate.Resources[name].Properties); err != nil { // finds the imports
			return nil, nil, err
		}
	}

	return out, sdkshape.SortedKeys(imports), nil
}

func (s *Service) evaluateOutput(
	sc template.Scope,
	st *stack,
	key string,
	spec template.OutputSpec,
) (stackOutput, error) {
	v, err := sc.Eval([]any{spec.Value, spec.Export})
	if err != nil {
		return stackOutput{}, err
	}

	t, ok := template.ScalarText(template.ValueAt(v, 0))
	if !ok {
		return stackOutput{}, template.FormatError("Output %s is malformed: its value is not a string", key)
	}

	o := stackOutput{
		Key:         key,
		Value:       t,
		Description: spec.Description,
		Export:      template.StringAt(v, 1),
	}
	if owner := s.state.exportingStack(o.Export); o.Export != "" && owner != nil && owner != st {
		return stackOutput{}, template.ValidationError(
			"Export with name %s is already exported by stack %s. Rollback requested by user.",
			o.Export,
			owner.Name,
		)
	}

	return o, nil
}
