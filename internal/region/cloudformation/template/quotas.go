// SPDX-License-Identifier: Apache-2.0

package template

import "github.com/slipway-k8s/slipway/internal/region/sdkshape"

// The quotas of a template, from the user guide of CloudFormation ("Understand CloudFormation quotas"). AWS does not raise
// them. Names have at most 255 characters, see isAlphanumeric.
const (
	maxResources         = 500
	maxOutputs           = 200
	maxParameters        = 200
	maxMappings          = 200
	maxMappingAttributes = 200 // keys of a mapping, and names below each
	maxDescriptionBytes  = 1024
	maxParameterBytes    = 4096 // of a parameter's value
)

// checkQuotas refuses a template that exceeds a quota.
func (t *Template) checkQuotas() error {
	for _, q := range []struct {
		of         string
		have, most int
	}{
		{"resources", len(t.Resources), maxResources},
		{"outputs", len(t.Outputs), maxOutputs},
		{"parameters", len(t.Parameters), maxParameters},
		{"mappings", len(t.Mappings), maxMappings},
	} {
		if q.have > q.most {
			return errTooMany(q.of, q.have, q.most)
		}
	}

	for _, name := range sdkshape.SortedKeys(t.Mappings) {
		most := len(t.Mappings[name])
		for _, attributes := range t.Mappings[name] {
			most = max(most, len(attributes))
		}

		if most > maxMappingAttributes {
			return errTooMany("attributes of mapping "+name, most, maxMappingAttributes)
		}
	}

	return nil
}

// errTooMany is AWS's error for more resources than the quota allows, also for the other parts of a template.
func errTooMany(of string, have, most int) error {
	return FormatError("Number of %s, %d, is greater than maximum allowed, %d", of, have, most)
}
