// SPDX-License-Identifier: Apache-2.0

package ssm

import (
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go/service/ssm"
)

const (
	textDataType = "text"
	// maxPathResults is the largest page of GetParametersByPath.
	maxPathResults = 10
	// maxStandardBytes is the largest value of a parameter of the standard tier.
	maxStandardBytes = 4096
	// maxNameLevels is how many levels the path in a name may have.
	maxNameLevels = 15
)

// validateName refuses the names that Parameter Store refuses for new parameters; see "Requirements and constraints
// for parameter names" in the Systems Manager user guide.
func validateName(name string) error {
	bare := strings.ToLower(strings.TrimPrefix(name, "/"))
	isPath := strings.Count(name, "/") > 1

	switch {
	case strings.HasPrefix(strings.ToLower(name), "/aws") && isPath:
		return newErrorf(codeAccessDenied, "No access to reserved parameter name: %s.", name)

	case !isPath && (strings.HasPrefix(bare, "aws") || strings.HasPrefix(bare, "ssm")):
		return newErrorf(
			codeValidation,
			`Parameter name: can't be prefixed with "aws" or "ssm" (case-insensitive).`,
		)

	case strings.HasPrefix(bare, "ssm"), !regexp.MustCompile(`^[a-zA-Z0-9_.\-/]+$`).MatchString(name),
		strings.HasSuffix(name, "/"), strings.Contains(name, "//"):
		return newErrorf(
			codeValidation,
			`Parameter name: can't be prefixed with "ssm" (case-insensitive). If formed as a path, it can consist of `+
				"sub-paths divided by slash symbol; each sub-path can be formed as a mix of letters, numbers and the "+
				"following 3 symbols .-_",
		)

	case strings.Contains(name, "/") && !strings.HasPrefix(name, "/"):
		return newErrorf(codeValidation, "Parameter name must be a fully qualified name.")
	case strings.Count(name, "/") > maxNameLevels:
		return newErrorf(
			codeHierarchyLevelLimitExceeded,
			"A hierarchy can have a maximum of %d levels.",
			maxNameLevels,
		)
	}

	return nil
}

// validateValue refuses the values, types and tiers that Parameter Store or the region refuse.
func validateValue(in *ssm.PutParameterInput) error {
	kind := stringValue(in.Type)
	dataType := stringValue(in.DataType)
	tier := stringValue(in.Tier)

	switch {
	case kind != "" && !slices.Contains(ssm.ParameterType_Values(), kind):
		return newErrorf(
			codeValidation,
			"1 validation error detected: Value '%s' at 'type' failed to satisfy constraint: "+
				"Member must satisfy enum value set: [SecureString, StringList, String]",
			kind,
		)

	case kind == ssm.ParameterTypeSecureString:
		return newErrorf(
			codeUnsupportedParameterType,
			"This region does not support SecureString parameters.",
		)
	case *in.Value == "":
		return newErrorf(
			codeValidation,
			"1 validation error detected: Value '' at 'value' failed to satisfy constraint: "+
				"Member must have length greater than or equal to 1.",
		)

	case dataType == "aws:ec2:image", dataType == "aws:ssm:integration":
		return newErrorf(codeNotImplemented, "this region does not implement DataType %s", dataType)
	case dataType != "" && dataType != textDataType:
		return newErrorf(
			codeValidation,
			"The following data type is not supported: %s (Data type names are all lowercase.)",
			dataType,
		)

	case tier != "" && tier != ssm.ParameterTierStandard:
		return newErrorf(codeNotImplemented, "this region does not implement Tier %s", tier)
	case len(*in.Value) > maxStandardBytes:
		return newErrorf(
			codeValidation,
			"Standard tier parameters support a maximum parameter value of %d characters. To create a larger "+
				"parameter value, upgrade the parameter to use the advanced-parameter tier.",
			maxStandardBytes,
		)
	}

	return nil
}

func stringValue(p *string) string {
	if p == nil {
		return ""
	}

	return *p
}

// maxNames is how many parameters one request may name.
const maxNames = 10

// checkNameCount refuses more names in one request than AWS takes.
func checkNameCount(names []*string) error {
	if len(names) <= maxNames {
		return nil
	}

	given := make([]string, 0, len(names))
	for _, name := range names {
		given = append(given, *name)
	}

	return newErrorf(
		codeValidation,
		"1 validation error detected: Value '[%s]' at 'names' failed to satisfy constraint: "+
			"Member must have length less than or equal to %d.",
		strings.Join(given, ", "),
		maxNames,
	)
}

// uniqueNames returns names without repetitions, in their order.
func uniqueNames(names []*string) []*string {
	var out []*string

	for _, name := range names {
		if !slices.ContainsFunc(out, func(other *string) bool { return *other == *name }) {
			out = append(out, name)
		}
	}

	return out
}
