// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"context"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/resourcetype"
	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// resolveParameters returns the values of a template's parameters for a request, with the values of SSM
// parameters that they name. before are the stack's values before.
func (s templateHandlers) resolveParameters(
	ctx context.Context,
	t *template.Template,
	given []template.ParameterInput,
	before map[string]template.ParameterValue,
) (map[string]template.ParameterValue, error) {
	out, err := t.MergeInputs(given, before)
	if err != nil {
		return nil, err
	}

	return out, s.resolveParameterReferences(ctx, t, out)
}

// resolveParameterReferences reads the SSM parameters that values name, and refuses IDs of resources that do
// not exist.
func (s templateHandlers) resolveParameterReferences(
	ctx context.Context,
	t *template.Template,
	values map[string]template.ParameterValue,
) error {
	for _, name := range sdkshape.SortedKeys(values) {
		v := values[name]
		p := t.Parameters[name]
		kind, list, ssm := p.ElementType()
		if ssm {
			out, err := s.callService(ctx, "ssm", "GetParameters", template.Object{"Names": []any{v.Given}})
			if err != nil {
				return err
			}

			found := template.ListAt(out, "Parameters")
			if len(found) == 0 {
				return template.ValidationError(
					"Unable to fetch parameters [%s] from parameter store for this account.",
					v.Given,
				)
			}

			m, _ := found[0].(template.Object)
			s, _ := template.ScalarText(m["Value"])
			v.Resolved = &s
			values[name] = v
		}

		if err := s.checkExists(ctx, name, newExistenceCheck(kind, list, v.EffectiveText())); err != nil {
			return err
		}
	}

	return nil
}

// existenceCheck is a lookup of resources that must exist.
type existenceCheck struct {
	template.DescribeLookup
	ids []any
}

func newExistenceCheck(
	kind string,
	list bool,
	given string,
) existenceCheck { //revive:disable-line:flag-parameter
	w := existenceCheck{DescribeLookup: template.AWSParameterTypes()[kind]}
	parts := []string{given}
	if list {
		parts = strings.Split(given, ",")
	}

	for _, p := range parts {
		w.ids = append(w.ids, strings.TrimSpace(p))
	}

	return w
}

func (s templateHandlers) checkExists(ctx context.Context, name string, w existenceCheck) error {
	if w.Operation == "" {
		return nil
	}

	if _, err := s.callService(ctx, "ec2", w.Operation, template.Object{w.IDsMember: w.ids}); err != nil {
		if resourcetype.IsAccessDenied(err) {
			return err
		}

		return template.ValidationError(
			"Parameter validation failed: parameter value %v for parameter name %s does not exist",
			w.ids[0],
			name,
		)
	}

	return nil
}
