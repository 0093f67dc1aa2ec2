// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// noEchoMask is what is shown of a parameter with NoEcho.
const noEchoMask = "****"

// parameterSpec is a parameter as a template declares it.
type parameterSpec struct {
	Type, Description, Constraint string
	Default                       *string
	Allowed                       []string
	Pattern                       string
	MinLength, MaxLength          *float64
	MinValue, MaxValue            *float64
	NoEcho                        bool
}

func (t *Template) readParameter(name string, v any) error {
	m, ok := v.(object)
	if !ok {
		return formatError("Every Parameters object must contain a Type member.")
	}

	p := parameterSpec{}

	for _, k := range sdkshape.SortedKeys(m) {
		if err := readParameterMember(&p, "/Parameters/"+name+"/"+k, k, m[k]); err != nil {
			return err
		}
	}

	if p.Type == "" {
		return formatError("Every Parameters object must contain a Type member.")
	}

	if !p.hasKnownType() {
		return formatError("Unrecognized parameter type: %s", p.Type)
	}

	t.Parameters[name] = p

	return nil
}

// readParameterMember takes one member of a declaration.
func readParameterMember(p *parameterSpec, at, member string, v any) (err error) {
	texts := map[string]*string{
		"Type": &p.Type, "Description": &p.Description, "ConstraintDescription": &p.Constraint, "AllowedPattern": &p.Pattern,
	}
	numbers := map[string]**float64{
		"MinLength": &p.MinLength, "MaxLength": &p.MaxLength, "MinValue": &p.MinValue, "MaxValue": &p.MaxValue,
	}
	switch {
	case texts[member] != nil:
		*texts[member], err = requireString(at, v)
	case numbers[member] != nil:
		s, _ := scalarText(v)
		f, bad := strconv.ParseFloat(s, 64)
		if bad != nil {
			return formatError("[%s] must be a number", at)
		}

		*numbers[member] = &f

	case member == "Default":
		var s string
		s, err = requireString(at, v)
		p.Default = &s

	case member == "NoEcho":
		s, _ := scalarText(v)
		p.NoEcho = strings.EqualFold(s, "true")
	case member == "AllowedValues":
		list, ok := v.([]any)
		if !ok {
			return formatError("[%s] must be a list", at)
		}

		for _, e := range list {
			s, bad := requireString(at, e)
			if bad != nil {
				return bad
			}

			p.Allowed = append(p.Allowed, s)
		}

	default:
		return formatError("[%s] is no attribute of a parameter", at)
	}

	return err
}

// awsParameterTypes are the parameter types that name something that must exist: how it is looked up.
func awsParameterTypes() map[string]describeLookup {
	return map[string]describeLookup{
		"AWS::EC2::VPC::Id":                  {"DescribeVpcs", "VpcIds"},
		"AWS::EC2::Subnet::Id":               {"DescribeSubnets", "SubnetIds"},
		"AWS::EC2::SecurityGroup::Id":        {"DescribeSecurityGroups", "GroupIds"},
		"AWS::EC2::SecurityGroup::GroupName": {"DescribeSecurityGroups", "GroupNames"},
		"AWS::EC2::Instance::Id":             {"DescribeInstances", "InstanceIds"},
		"AWS::EC2::Volume::Id":               {"DescribeVolumes", "VolumeIds"},
		"AWS::EC2::Image::Id":                {"DescribeImages", "ImageIds"},
		"AWS::EC2::KeyPair::KeyName":         {"DescribeKeyPairs", "KeyNames"},
		"AWS::EC2::AvailabilityZone::Name":   {"DescribeAvailabilityZones", "ZoneNames"},
		"AWS::Route53::HostedZone::Id":       {"", ""},
		"AWS::SSM::Parameter::Name":          {"", ""},
	}
}

// describeLookup is an operation of EC2 and the member that takes what is looked for.
type describeLookup struct{ operation, idsMember string }

const ssmPrefix = "AWS::SSM::Parameter::Value<"

// elementType is the type of one value: what stands in List<…> or AWS::SSM::Parameter::Value<…>.
func (p parameterSpec) elementType() (kind string, list, ssm bool) {
	kind = p.Type
	if inner, ok := strings.CutPrefix(kind, ssmPrefix); ok {
		kind = strings.TrimSuffix(inner, ">")
		ssm = true
	}

	if inner, ok := strings.CutPrefix(kind, "List<"); ok {
		return strings.TrimSuffix(inner, ">"), true, ssm
	}

	if kind == "CommaDelimitedList" {
		return "String", true, ssm
	}

	return kind, false, ssm
}

func (p parameterSpec) hasKnownType() bool {
	kind, _, _ := p.elementType()
	_, aws := awsParameterTypes()[kind]
	return aws || kind == "String" || kind == "Number"
}

// parameterValue is a parameter's value: as it was given, and, if that names a parameter of SSM, what is there.
type parameterValue struct {
	Given    string
	Resolved *string `json:"resolved,omitempty"`
	NoEcho   bool    `json:"noEcho,omitempty"` // it is not to be shown
}

// effectiveText is the text that counts.
func (v parameterValue) effectiveText() string {
	if v.Resolved != nil {
		return *v.Resolved
	}

	return v.Given
}

// refValue is what Ref to the parameter gives.
func (p parameterSpec) refValue(v parameterValue) any {
	_, list, _ := p.elementType()
	if !list {
		return v.effectiveText()
	}

	out := []any{}
	for part := range strings.SplitSeq(v.effectiveText(), ",") {
		out = append(out, strings.TrimSpace(part))
	}

	return out
}

// checkValue refuses a value that the declaration does not allow.
func (p parameterSpec) checkValue(name, given string) error {
	because := func(format string, args ...any) error {
		if p.Constraint != "" {
			return validationError("Parameter %s failed to satisfy constraint: %s", name, p.Constraint)
		}

		return validationError(format, args...)
	}

	kind, list, ssm := p.elementType()
	parts := []string{given}
	if list && !ssm {
		parts = strings.Split(given, ",")
	}

	for _, v := range parts {
		v = strings.TrimSpace(v)
		if kind == "Number" && !ssm {
			if err := p.checkNumber(name, v, because); err != nil {
				return err
			}
		}

		if len(p.Allowed) > 0 && !slices.Contains(p.Allowed, v) {
			return because("Parameter '%s' must be one of AllowedValues", name)
		}
	}

	return p.checkText(name, given, because)
}

func (p parameterSpec) checkNumber(name, given string, because func(string, ...any) error) error {
	f, err := strconv.ParseFloat(given, 64)
	switch {
	case err != nil:
		return validationError("Parameter '%s' must be a number.", name)
	case p.MinValue != nil && f < *p.MinValue, p.MaxValue != nil && f > *p.MaxValue:
		return because("Parameter '%s' must be a number between its MinValue and its MaxValue", name)
	}

	return nil
}

func (p parameterSpec) checkText(name, given string, because func(string, ...any) error) error {
	n := float64(utf8.RuneCountInString(given))
	switch {
	case p.MinLength != nil && n < *p.MinLength:
		return because("Parameter '%s' must contain at least %v characters", name, *p.MinLength)
	case p.MaxLength != nil && n > *p.MaxLength:
		return because("Parameter '%s' must contain at most %v characters", name, *p.MaxLength)
	case n > 4096:
		return validationError("Parameter '%s' must contain at most 4096 characters", name)
	case p.Pattern == "":
		return nil
	}

	re, err := regexp.Compile("^(?:" + p.Pattern + ")$")
	if err != nil {
		return formatError("AllowedPattern of parameter %s is no regular expression", name)
	}

	if !re.MatchString(given) {
		return because("Parameter %s failed to satisfy constraint: must match pattern %s", name, p.Pattern)
	}

	return nil
}

// parameterInput is a parameter as a request gives it.
type parameterInput struct {
	name        string
	value       string
	usePrevious bool
}

// resolveParameters settles the values of a template's parameters from a request and from the stack's values before.
func (s *Service) resolveParameters(
	ctx context.Context,
	t *Template,
	given []parameterInput,
	before map[string]parameterValue,
) (map[string]parameterValue, error) {
	out, err := t.mergeInputs(given, before)
	if err != nil {
		return nil, err
	}

	missing := []string{}

	for _, name := range sdkshape.SortedKeys(t.Parameters) {
		if _, given := out[name]; given {
			continue
		}

		p := t.Parameters[name]
		if p.Default == nil {
			missing = append(missing, name)
			continue
		}

		if err := p.checkValue(name, *p.Default); err != nil {
			return nil, err
		}

		out[name] = parameterValue{Given: *p.Default, NoEcho: p.NoEcho}
	}

	if len(missing) > 0 {
		return nil, validationError("Parameters: [%s] must have values", strings.Join(missing, ", "))
	}

	return out, s.resolveParameterReferences(ctx, t, out)
}

// mergeInputs settles the values that a request gives.
func (t *Template) mergeInputs(
	given []parameterInput,
	before map[string]parameterValue,
) (map[string]parameterValue, error) {
	out := map[string]parameterValue{}
	for _, in := range given {
		p, declared := t.Parameters[in.name]
		old, had := before[in.name]
		_, twice := out[in.name]

		switch {
		case twice:
			return nil, validationError("Duplicate values for parameter %s", in.name)
		case !declared && !in.usePrevious:
			return nil, validationError("Parameters: [%s] do not exist in the template", in.name)
		case !declared:
			continue
		case in.usePrevious && !had:
			return nil, validationError(
				"Invalid input for parameter key %s. Cannot specify usePreviousValue as true for a parameter key not in the previous template",
				in.name,
			)

		case in.usePrevious:
			in.value = old.Given
		}

		if err := p.checkValue(in.name, in.value); err != nil {
			return nil, err
		}

		out[in.name] = parameterValue{Given: in.value, NoEcho: p.NoEcho}
	}

	return out, nil
}

// resolveParameterReferences reads the parameters of SSM that values name, and refuses ids of what does not exist.
func (s *Service) resolveParameterReferences(
	ctx context.Context,
	t *Template,
	values map[string]parameterValue,
) error {
	for _, name := range sdkshape.SortedKeys(values) {
		v := values[name]
		p := t.Parameters[name]
		kind, list, ssm := p.elementType()
		if ssm {
			out, err := s.callService(ctx, "ssm", "GetParameters", object{"Names": []any{v.Given}})
			if err != nil {
				return err
			}

			found := listAt(out, "Parameters")
			if len(found) == 0 {
				return validationError(
					"Unable to fetch parameters [%s] from parameter store for this account.",
					v.Given,
				)
			}

			m, _ := found[0].(object)
			s, _ := scalarText(m["Value"])
			v.Resolved = &s
			values[name] = v
		}

		if err := s.checkExists(ctx, name, newExistenceCheck(kind, list, v.effectiveText())); err != nil {
			return err
		}
	}

	return nil
}

// existenceCheck is what must exist.
type existenceCheck struct {
	describeLookup
	ids []any
}

func newExistenceCheck(
	kind string,
	list bool,
	given string,
) existenceCheck { //revive:disable-line:flag-parameter
	w := existenceCheck{describeLookup: awsParameterTypes()[kind]}
	parts := []string{given}
	if list {
		parts = strings.Split(given, ",")
	}

	for _, p := range parts {
		w.ids = append(w.ids, strings.TrimSpace(p))
	}

	return w
}

func (s *Service) checkExists(ctx context.Context, name string, w existenceCheck) error {
	if w.operation == "" {
		return nil
	}

	if _, err := s.callService(ctx, "ec2", w.operation, object{w.idsMember: w.ids}); err != nil {
		if isAccessDenied(err) {
			return err
		}

		return validationError(
			"Parameter validation failed: parameter value %v for parameter name %s does not exist",
			w.ids[0],
			name,
		)
	}

	return nil
}
