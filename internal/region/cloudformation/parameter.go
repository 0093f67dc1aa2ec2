// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/slipway-k8s/slipway/internal/region/record"
)

// hidden is what is shown of a parameter with NoEcho.
const hidden = "****"

// parameter is a parameter as a template declares it.
type parameter struct {
	Type, Description, Constraint string
	Default                       *string
	Allowed                       []string
	Pattern                       string
	MinLength, MaxLength          *float64
	MinValue, MaxValue            *float64
	NoEcho                        bool
}

func (t *Template) readParameter(name string, v any) error {
	m, ok := v.(tree)
	if !ok {
		return malformed("Every Parameters object must contain a Type member.")
	}
	p := parameter{}
	for _, k := range record.Keys(m) {
		if err := readMember(&p, "/Parameters/"+name+"/"+k, k, m[k]); err != nil {
			return err
		}
	}
	if p.Type == "" {
		return malformed("Every Parameters object must contain a Type member.")
	}
	if !p.known() {
		return malformed("Unrecognized parameter type: %s", p.Type)
	}
	t.Parameters[name] = p
	return nil
}

// readMember takes one member of a declaration.
func readMember(p *parameter, at, member string, v any) (err error) {
	texts := map[string]*string{
		"Type": &p.Type, "Description": &p.Description, "ConstraintDescription": &p.Constraint, "AllowedPattern": &p.Pattern,
	}
	numbers := map[string]**float64{
		"MinLength": &p.MinLength, "MaxLength": &p.MaxLength, "MinValue": &p.MinValue, "MaxValue": &p.MaxValue,
	}
	switch {
	case texts[member] != nil:
		*texts[member], err = textAt(at, v)
	case numbers[member] != nil:
		s, _ := text(v)
		f, bad := strconv.ParseFloat(s, 64)
		if bad != nil {
			return malformed("[%s] must be a number", at)
		}
		*numbers[member] = &f
	case member == "Default":
		var s string
		s, err = textAt(at, v)
		p.Default = &s
	case member == "NoEcho":
		s, _ := text(v)
		p.NoEcho = strings.EqualFold(s, "true")
	case member == "AllowedValues":
		list, ok := v.([]any)
		if !ok {
			return malformed("[%s] must be a list", at)
		}
		for _, e := range list {
			s, bad := textAt(at, e)
			if bad != nil {
				return bad
			}
			p.Allowed = append(p.Allowed, s)
		}
	default:
		return malformed("[%s] is no attribute of a parameter", at)
	}
	return err
}

// awsTypes are the parameter types that name something that must exist: how it is looked up.
func awsTypes() map[string]lookup {
	return map[string]lookup{
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

// lookup is an operation of EC2 and the member that takes what is looked for.
type lookup struct{ op, member string }

const ssmPrefix = "AWS::SSM::Parameter::Value<"

// element is the type of one value: what stands in List<…> or AWS::SSM::Parameter::Value<…>.
func (p parameter) element() (kind string, list, ssm bool) {
	kind = p.Type
	if inner, ok := strings.CutPrefix(kind, ssmPrefix); ok {
		kind, ssm = strings.TrimSuffix(inner, ">"), true
	}
	if inner, ok := strings.CutPrefix(kind, "List<"); ok {
		return strings.TrimSuffix(inner, ">"), true, ssm
	}
	if kind == "CommaDelimitedList" {
		return "String", true, ssm
	}
	return kind, false, ssm
}

func (p parameter) known() bool {
	kind, _, _ := p.element()
	_, aws := awsTypes()[kind]
	return aws || kind == "String" || kind == "Number"
}

// value is a parameter's value: as it was given, and, if that names a parameter of SSM, what is there.
type value struct {
	Given    string
	Resolved *string `json:"resolved,omitempty"`
	NoEcho   bool    `json:"noEcho,omitempty"` // it is not to be shown
}

// use is the text that counts.
func (v value) use() string {
	if v.Resolved != nil {
		return *v.Resolved
	}
	return v.Given
}

// refer is what Ref to the parameter gives.
func (p parameter) refer(v value) any {
	_, list, _ := p.element()
	if !list {
		return v.use()
	}
	out := []any{}
	for part := range strings.SplitSeq(v.use(), ",") {
		out = append(out, strings.TrimSpace(part))
	}
	return out
}

// check refuses a value that the declaration does not allow.
func (p parameter) check(name, given string) error {
	because := func(format string, args ...any) error {
		if p.Constraint != "" {
			return invalid("Parameter %s failed to satisfy constraint: %s", name, p.Constraint)
		}
		return invalid(format, args...)
	}
	kind, list, ssm := p.element()
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

func (p parameter) checkNumber(name, given string, because func(string, ...any) error) error {
	f, err := strconv.ParseFloat(given, 64)
	switch {
	case err != nil:
		return invalid("Parameter '%s' must be a number.", name)
	case p.MinValue != nil && f < *p.MinValue, p.MaxValue != nil && f > *p.MaxValue:
		return because("Parameter '%s' must be a number between its MinValue and its MaxValue", name)
	}
	return nil
}

func (p parameter) checkText(name, given string, because func(string, ...any) error) error {
	n := float64(utf8.RuneCountInString(given))
	switch {
	case p.MinLength != nil && n < *p.MinLength:
		return because("Parameter '%s' must contain at least %v characters", name, *p.MinLength)
	case p.MaxLength != nil && n > *p.MaxLength:
		return because("Parameter '%s' must contain at most %v characters", name, *p.MaxLength)
	case n > 4096:
		return invalid("Parameter '%s' must contain at most 4096 characters", name)
	case p.Pattern == "":
		return nil
	}
	re, err := regexp.Compile("^(?:" + p.Pattern + ")$")
	if err != nil {
		return malformed("AllowedPattern of parameter %s is no regular expression", name)
	}
	if !re.MatchString(given) {
		return because("Parameter %s failed to satisfy constraint: must match pattern %s", name, p.Pattern)
	}
	return nil
}

// input is a parameter as a request gives it.
type input struct {
	name     string
	value    string
	previous bool
}

// resolve settles the values of a template's parameters from a request and from the stack's values before.
func (s *Service) resolve(ctx context.Context, t *Template, given []input, before map[string]value) (map[string]value, error) {
	out, err := t.take(given, before)
	if err != nil {
		return nil, err
	}
	missing := []string{}
	for _, name := range record.Keys(t.Parameters) {
		if _, given := out[name]; given {
			continue
		}
		p := t.Parameters[name]
		if p.Default == nil {
			missing = append(missing, name)
			continue
		}
		if err := p.check(name, *p.Default); err != nil {
			return nil, err
		}
		out[name] = value{Given: *p.Default, NoEcho: p.NoEcho}
	}
	if len(missing) > 0 {
		return nil, invalid("Parameters: [%s] must have values", strings.Join(missing, ", "))
	}
	return out, s.lookUp(ctx, t, out)
}

// take settles the values that a request gives.
func (t *Template) take(given []input, before map[string]value) (map[string]value, error) {
	out := map[string]value{}
	for _, in := range given {
		p, declared := t.Parameters[in.name]
		old, had := before[in.name]
		_, twice := out[in.name]
		switch {
		case twice:
			return nil, invalid("Duplicate values for parameter %s", in.name)
		case !declared && !in.previous:
			return nil, invalid("Parameters: [%s] do not exist in the template", in.name)
		case !declared:
			continue
		case in.previous && !had:
			return nil, invalid("Invalid input for parameter key %s. Cannot specify usePreviousValue as true for a parameter key not in the previous template", in.name)
		case in.previous:
			in.value = old.Given
		}
		if err := p.check(in.name, in.value); err != nil {
			return nil, err
		}
		out[in.name] = value{Given: in.value, NoEcho: p.NoEcho}
	}
	return out, nil
}

// lookUp reads the parameters of SSM that values name, and refuses ids of what does not exist.
func (s *Service) lookUp(ctx context.Context, t *Template, values map[string]value) error {
	for _, name := range record.Keys(values) {
		v, p := values[name], t.Parameters[name]
		kind, list, ssm := p.element()
		if ssm {
			out, err := s.call(ctx, "ssm", "GetParameters", tree{"Names": []any{v.Given}})
			if err != nil {
				return err
			}
			found := list0(out, "Parameters")
			if len(found) == 0 {
				return invalid("Unable to fetch parameters [%s] from parameter store for this account.", v.Given)
			}
			m, _ := found[0].(tree)
			s, _ := text(m["Value"])
			v.Resolved = &s
			values[name] = v
		}
		if err := s.mustExist(ctx, name, lookupOf(kind, list, v.use())); err != nil {
			return err
		}
	}
	return nil
}

// wanted is what must exist.
type wanted struct {
	lookup
	ids []any
}

func lookupOf(kind string, list bool, given string) wanted { //revive:disable-line:flag-parameter
	w := wanted{lookup: awsTypes()[kind]}
	parts := []string{given}
	if list {
		parts = strings.Split(given, ",")
	}
	for _, p := range parts {
		w.ids = append(w.ids, strings.TrimSpace(p))
	}
	return w
}

func (s *Service) mustExist(ctx context.Context, name string, w wanted) error {
	if w.op == "" {
		return nil
	}
	if _, err := s.call(ctx, "ec2", w.op, tree{w.member: w.ids}); err != nil {
		if denied(err) {
			return err
		}
		return invalid("Parameter validation failed: parameter value %v for parameter name %s does not exist", w.ids[0], name)
	}
	return nil
}
