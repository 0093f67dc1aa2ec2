// SPDX-License-Identifier: Apache-2.0

package template

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// NoEchoMask is shown instead of the value of a parameter with NoEcho.
const NoEchoMask = "****"

// ParameterSpec is the declaration of a parameter in a template.
type ParameterSpec struct {
	Type        string   // such as String, List<Number> or AWS::EC2::VPC::Id
	Description string   // text for the user
	Constraint  string   // ConstraintDescription, which messages show
	Default     *string  // nil if the parameter is required
	Allowed     []string // AllowedValues; empty for any value
	Pattern     string   // AllowedPattern: a regular expression for the whole value
	MinLength   *float64 // in characters
	MaxLength   *float64 // in characters
	MinValue    *float64 // of a Number
	MaxValue    *float64 // of a Number
	NoEcho      bool     // answers show NoEchoMask instead of the value
}

func (t *Template) readParameter(name string, v any) error {
	m, ok := v.(Object)
	if !ok {
		return FormatError("Every Parameters object must contain a Type member.")
	}

	p := ParameterSpec{}

	for _, k := range sdkshape.SortedKeys(m) {
		if err := readParameterMember(&p, "/Parameters/"+name+"/"+k, k, m[k]); err != nil {
			return err
		}
	}

	if p.Type == "" {
		return FormatError("Every Parameters object must contain a Type member.")
	}

	if !p.hasKnownType() {
		return FormatError("Unrecognized parameter type: %s", p.Type)
	}

	t.Parameters[name] = p

	return nil
}

// readParameterMember reads one member of a declaration.
func readParameterMember(p *ParameterSpec, at, member string, v any) (err error) {
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
		s, _ := ScalarText(v)
		f, bad := strconv.ParseFloat(s, 64)
		if bad != nil {
			return FormatError("[%s] must be a number", at)
		}

		*numbers[member] = &f

	case member == "Default":
		var s string
		s, err = requireString(at, v)
		p.Default = &s

	case member == "NoEcho":
		s, _ := ScalarText(v)
		p.NoEcho = strings.EqualFold(s, "true")
	case member == "AllowedValues":
		list, ok := v.([]any)
		if !ok {
			return FormatError("[%s] must be a list", at)
		}

		for _, e := range list {
			s, bad := requireString(at, e)
			if bad != nil {
				return bad
			}

			p.Allowed = append(p.Allowed, s)
		}

	default:
		return FormatError("[%s] is not an attribute of a parameter", at)
	}

	return err
}

// AWSParameterTypes returns the parameter types whose values are IDs of existing resources, and how to look
// up a resource of each. A type without an operation is not looked up.
func AWSParameterTypes() map[string]DescribeLookup {
	return map[string]DescribeLookup{
		"AWS::EC2::VPC::Id":                  {Operation: "DescribeVpcs", IDsMember: "VpcIds"},
		"AWS::EC2::Subnet::Id":               {Operation: "DescribeSubnets", IDsMember: "SubnetIds"},
		"AWS::EC2::SecurityGroup::Id":        {Operation: "DescribeSecurityGroups", IDsMember: "GroupIds"},
		"AWS::EC2::SecurityGroup::GroupName": {Operation: "DescribeSecurityGroups", IDsMember: "GroupNames"},
		"AWS::EC2::Instance::Id":             {Operation: "DescribeInstances", IDsMember: "InstanceIds"},
		"AWS::EC2::Volume::Id":               {Operation: "DescribeVolumes", IDsMember: "VolumeIds"},
		"AWS::EC2::Image::Id":                {Operation: "DescribeImages", IDsMember: "ImageIds"},
		"AWS::EC2::KeyPair::KeyName":         {Operation: "DescribeKeyPairs", IDsMember: "KeyNames"},
		"AWS::EC2::AvailabilityZone::Name":   {Operation: "DescribeAvailabilityZones", IDsMember: "ZoneNames"},
		"AWS::Route53::HostedZone::Id":       {},
		"AWS::SSM::Parameter::Name":          {},
	}
}

// DescribeLookup is an operation that looks up resources by their IDs.
type DescribeLookup struct {
	Operation string // operation of EC2, such as DescribeVpcs; empty if the type is not looked up
	IDsMember string // member of its input that has the IDs, such as VpcIds
}

const ssmPrefix = "AWS::SSM::Parameter::Value<"

// ElementType returns the type of one value: the type inside List<…> and AWS::SSM::Parameter::Value<…>. list
// is true for a list, ssm if the value is the name of an SSM parameter.
func (p ParameterSpec) ElementType() (kind string, list, ssm bool) {
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

func (p ParameterSpec) hasKnownType() bool {
	kind, _, _ := p.ElementType()
	_, aws := AWSParameterTypes()[kind]
	return aws || kind == "String" || kind == "Number"
}

// ParameterValue is the value of a parameter. Stacks save it.
type ParameterValue struct {
	Given    string  // as the request or the default has it
	Resolved *string `json:"resolved,omitempty"` // value of the SSM parameter that Given names
	NoEcho   bool    `json:"noEcho,omitempty"`   // answers show NoEchoMask instead
}

// EffectiveText returns the resolved value, or else the given one.
func (v ParameterValue) EffectiveText() string {
	if v.Resolved != nil {
		return *v.Resolved
	}

	return v.Given
}

// refValue returns the value of Ref to the parameter.
func (p ParameterSpec) refValue(v ParameterValue) any {
	_, list, _ := p.ElementType()
	if !list {
		return v.EffectiveText()
	}

	out := []any{}
	for part := range strings.SplitSeq(v.EffectiveText(), ",") {
		out = append(out, strings.TrimSpace(part))
	}

	return out
}

// CheckValue returns an error for a value that the declaration does not allow.
func (p ParameterSpec) CheckValue(name, given string) error {
	because := func(format string, args ...any) error {
		if p.Constraint != "" {
			return ValidationError("Parameter %s failed to satisfy constraint: %s", name, p.Constraint)
		}

		return ValidationError(format, args...)
	}

	kind, list, ssm := p.ElementType()
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

func (p ParameterSpec) checkNumber(name, given string, because func(string, ...any) error) error {
	f, err := strconv.ParseFloat(given, 64)
	switch {
	case err != nil:
		return ValidationError("Parameter '%s' must be a number.", name)
	case p.MinValue != nil && f < *p.MinValue, p.MaxValue != nil && f > *p.MaxValue:
		return because("Parameter '%s' must be a number between its MinValue and its MaxValue", name)
	}

	return nil
}

func (p ParameterSpec) checkText(name, given string, because func(string, ...any) error) error {
	n := float64(utf8.RuneCountInString(given))
	switch {
	case p.MinLength != nil && n < *p.MinLength:
		return because("Parameter '%s' must contain at least %v characters", name, *p.MinLength)
	case p.MaxLength != nil && n > *p.MaxLength:
		return because("Parameter '%s' must contain at most %v characters", name, *p.MaxLength)
	case len(given) > maxParameterBytes:
		return ValidationError("Parameter '%s' must contain at most %d bytes", name, maxParameterBytes)
	case p.Pattern == "":
		return nil
	}

	re, err := regexp.Compile("^(?:" + p.Pattern + ")$")
	if err != nil {
		return FormatError("AllowedPattern of parameter %s is not a regular expression", name)
	}

	if !re.MatchString(given) {
		return because("Parameter %s failed to satisfy constraint: must match pattern %s", name, p.Pattern)
	}

	return nil
}

// ParameterInput is a parameter in a request.
type ParameterInput struct {
	Name        string // ParameterKey
	Value       string // ParameterValue
	UsePrevious bool   // keep the value of the stack, and ignore Value
}

// MergeInputs returns the values of a template's parameters: those of a request, those of the stack before
// where the request reuses them, and the defaults.
func (t *Template) MergeInputs(
	given []ParameterInput,
	before map[string]ParameterValue,
) (map[string]ParameterValue, error) {
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

		if err := p.CheckValue(name, *p.Default); err != nil {
			return nil, err
		}

		out[name] = ParameterValue{Given: *p.Default, NoEcho: p.NoEcho}
	}

	if len(missing) > 0 {
		return nil, ValidationError("Parameters: [%s] must have values", strings.Join(missing, ", "))
	}

	return out, nil
}

// mergeInputs returns the values that a request sets.
func (t *Template) mergeInputs(
	given []ParameterInput,
	before map[string]ParameterValue,
) (map[string]ParameterValue, error) {
	out := map[string]ParameterValue{}
	for _, in := range given {
		p, declared := t.Parameters[in.Name]
		old, had := before[in.Name]
		_, twice := out[in.Name]

		switch {
		case twice:
			return nil, ValidationError("Duplicate values for parameter %s", in.Name)
		case !declared && !in.UsePrevious:
			return nil, ValidationError("Parameters: [%s] do not exist in the template", in.Name)
		case !declared:
			continue
		case in.UsePrevious && !had:
			return nil, ValidationError(
				"Invalid input for parameter key %s. Cannot specify usePreviousValue as true for a parameter key not in the previous template",
				in.Name,
			)

		case in.UsePrevious:
			in.Value = old.Given
		}

		if err := p.CheckValue(in.Name, in.Value); err != nil {
			return nil, err
		}

		out[in.Name] = ParameterValue{Given: in.Value, NoEcho: p.NoEcho}
	}

	return out, nil
}
