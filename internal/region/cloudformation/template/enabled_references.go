// SPDX-License-Identifier: Apache-2.0

package template

import (
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// CheckEnabledReferences refuses references to resources whose conditions are false, in the properties of
// enabled resources and in enabled outputs. References in a branch of Fn::If that is not taken do not count.
func (s Scope) CheckEnabledReferences() error {
	disabled := map[string]bool{}

	for _, name := range sdkshape.SortedKeys(s.Template.Resources) {
		yes, err := s.isEnabled(s.Template.Resources[name].Condition)
		if err != nil {
			return err
		}

		if !yes {
			disabled[name] = true
		}
	}

	missing := map[string]bool{}

	for _, name := range sdkshape.SortedKeys(s.Template.Resources) {
		if disabled[name] {
			continue
		}

		if err := s.collectDisabled(s.Template.Resources[name].Properties, disabled, missing); err != nil {
			return err
		}
	}

	if len(missing) > 0 {
		return newDisabledError(missing, "Resources")
	}

	return s.checkEnabledOutputs(disabled)
}

// checkEnabledOutputs refuses references of enabled outputs to disabled resources.
func (s Scope) checkEnabledOutputs(disabled map[string]bool) error {
	missing := map[string]bool{}

	for _, name := range sdkshape.SortedKeys(s.Template.Outputs) {
		spec := s.Template.Outputs[name]
		yes, err := s.isEnabled(spec.Condition)
		if err != nil {
			return err
		}

		if !yes {
			continue
		}

		if err := s.collectDisabled([]any{spec.Value, spec.Export}, disabled, missing); err != nil {
			return err
		}
	}

	if len(missing) > 0 {
		return newDisabledError(missing, "Outputs")
	}

	return nil
}

func newDisabledError(missing map[string]bool, block string) error {
	return ValidationError(
		"Unresolved resource dependencies [%s] in the %s block of the template",
		strings.Join(sdkshape.SortedKeys(missing), ", "),
		block,
	)
}

// isEnabled evaluates the condition of a resource or an output; an empty one is true.
func (s Scope) isEnabled(condition string) (bool, error) {
	if condition == "" {
		return true, nil
	}

	return s.EvalCondition(condition)
}

// collectDisabled adds the disabled resources that a value refers to to missing.
func (s Scope) collectDisabled(v any, disabled, missing map[string]bool) error {
	taken, err := s.takeBranches(v)
	if err != nil {
		return err
	}

	for _, ref := range FindReferences(taken) {
		if disabled[ref.Target] {
			missing[ref.Target] = true
		}
	}

	return nil
}

// takeBranches returns a value with each Fn::If replaced by the branch that its condition selects.
func (s Scope) takeBranches(v any) (any, error) {
	switch v := v.(type) {
	case []any:
		out := make([]any, 0, len(v))
		for _, e := range v {
			taken, err := s.takeBranches(e)
			if err != nil {
				return nil, err
			}

			out = append(out, taken)
		}

		return out, nil

	case Object:
		if name, arg, ok := asIntrinsic(v); ok && name == "Fn::If" {
			branch, err := s.selectBranch(arg)
			if err != nil {
				return nil, err
			}

			return s.takeBranches(branch)
		}

		out := Object{}
		for key, e := range v {
			taken, err := s.takeBranches(e)
			if err != nil {
				return nil, err
			}

			out[key] = taken
		}

		return out, nil
	}

	return v, nil
}
