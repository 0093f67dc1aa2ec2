// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"fmt"
	"maps"
	"slices"
)

// CloudFormation's other quotas for one template.
const (
	maxOutputs           = 200
	maxMappingAttributes = 200  // of each mapping
	maxParameterBytes    = 4096 // of a parameter's value
	maxDescriptionBytes  = 1024
	maxNameLength        = 255 // of resources, parameters, outputs and mappings
)

// lessOf is how to get a smaller template.
const lessOf = "use fewer instance groups, or create the cluster with slipway apply --via direct"

// checkQuotas returns an error for a template that CloudFormation would refuse because of a quota other than the number of
// resources and the size. There are few mappings, and parameters are limited when they are chosen.
func checkQuotas(doc jsonObject) error {
	if text, _ := doc["Description"].(string); len(text) > maxDescriptionBytes {
		return fmt.Errorf(
			"the description of the template has %d bytes: CloudFormation allows %d",
			len(text),
			maxDescriptionBytes,
		)
	}

	if have, _ := doc["Outputs"].(jsonObject); len(have) > maxOutputs {
		return fmt.Errorf(
			"the template has %d outputs: CloudFormation allows %d; %s",
			len(have),
			maxOutputs,
			lessOf,
		)
	}

	for _, section := range []string{"Resources", "Parameters", "Outputs", "Mappings"} {
		members, _ := doc[section].(jsonObject)
		for _, name := range slices.Sorted(maps.Keys(members)) {
			if len(name) > maxNameLength {
				return fmt.Errorf("%s %s has a name of %d characters: CloudFormation allows %d; use a shorter name of the instance group",
					section, name, len(name), maxNameLength)
			}
		}
	}

	return checkParameterValues(doc)
}

// checkParameterValues returns an error for a default value that is too long.
func checkParameterValues(doc jsonObject) error {
	parameters, _ := doc["Parameters"].(jsonObject)
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		parameter, _ := parameters[name].(jsonObject)
		if text, _ := parameter["Default"].(string); len(text) > maxParameterBytes {
			return fmt.Errorf("the value of parameter %s has %d bytes: CloudFormation allows %d; use a shorter value in the manifest",
				name, len(text), maxParameterBytes)
		}
	}

	return nil
}
