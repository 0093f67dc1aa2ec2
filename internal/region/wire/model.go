// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Model is what the region knows about the members of AWS's shapes beyond the tags of aws-sdk-go v1: which members
// no service implements, and the values of enums. It is immutable.
type Model struct {
	refused map[string]bool     // package.Shape.Member
	enums   map[string][]string // values by package.Enum
}

// ParseModel reads a model. refused has one member a line, such as ec2.RunInstancesInput.LicenseSpecifications. enums
// has one enum a line: its name, a colon, and its values. Lines that begin with # are comments.
func ParseModel(refused, enums string) (*Model, error) {
	m := &Model{refused: map[string]bool{}, enums: map[string][]string{}}
	for line := range strings.Lines(refused) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			m.refused[line] = true
		}
	}

	for line := range strings.Lines(enums) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}

		name, values, ok := strings.Cut(line, ":")
		if !ok {
			return nil, fmt.Errorf("parse the enums of the model: no colon in %q", line)
		}

		m.enums[name] = strings.Fields(values)
	}

	return m, nil
}

// MemberName returns the name of a member in a [Model]: package.Shape.Member.
func MemberName(shape reflect.Type, f reflect.StructField) string {
	return path.Base(shape.PkgPath()) + "." + shape.Name() + "." + f.Name
}

// modelCheck compares one input with a model.
type modelCheck struct {
	model    *Model
	protocol Protocol
}

// checkInput refuses members that no service implements, by name, and values that an enum does not have.
func (m *Model) checkInput(p Protocol, in any) error {
	if m == nil {
		return nil
	}

	return modelCheck{model: m, protocol: p}.checkStructure(reflect.ValueOf(in), "")
}

func (c modelCheck) checkStructure(v reflect.Value, at string) error {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return nil
		}

		v = v.Elem()
	}

	return eachMember(v, func(f reflect.StructField, member reflect.Value) error {
		if isUnset(member) {
			return nil
		}

		name := joinPath(at, f.Name)
		if c.model.refused[MemberName(v.Type(), f)] {
			return c.refuse(f, name)
		}

		if values := c.model.enums[path.Base(v.Type().PkgPath())+"."+f.Tag.Get("enum")]; values != nil {
			if err := c.checkEnum(member, values, name); err != nil {
				return err
			}
		}

		return c.checkValue(member, name)
	})
}

func (c modelCheck) checkValue(v reflect.Value, at string) error {
	switch shapeKindOf(v.Type()) {
	case structureShape:
		return c.checkStructure(v, at)
	case listShape:
		for i := range v.Len() {
			if err := c.checkValue(v.Index(i), joinPath(at, strconv.Itoa(i+1))); err != nil {
				return err
			}
		}

	case mapShape:
		for _, k := range v.MapKeys() {
			if err := c.checkValue(v.MapIndex(k), joinPath(at, k.String())); err != nil {
				return err
			}
		}

	case scalarShape:
	}

	return nil
}

// refuse returns the error for a member that no service implements. S3 has a code for that. Other services do not:
// the region uses the same code, with a status that clients do not retry.
func (c modelCheck) refuse(f reflect.StructField, name string) error {
	if c.protocol != S3Protocol {
		return newErrorf(codeNotImplemented, "This region does not implement the parameter %s", name)
	}

	if located := f.Tag.Get("locationName"); located != "" && f.Tag.Get("location") != "" {
		name = located
	}

	return NotImplemented(name)
}

// checkEnum checks the value of a member, or the values of a list, against those of its enum.
func (c modelCheck) checkEnum(v reflect.Value, values []string, name string) error {
	given, isList := reflect.TypeAssert[[]*string](v)
	if !isList {
		one, ok := reflect.TypeAssert[*string](v)
		if !ok {
			return nil
		}

		given = []*string{one}
	}

	for _, text := range given {
		if text == nil || slices.Contains(values, *text) {
			continue
		}

		return c.newEnumError(*text, values, name)
	}

	return nil
}

func (c modelCheck) newEnumError(text string, values []string, name string) error {
	switch c.protocol {
	case EC2QueryProtocol:
		return newErrorf(
			codeInvalidParameterValue,
			"Value (%s) for parameter %s is invalid.",
			text,
			lowerFirst(name),
		)
	case S3Protocol:
		if name == "EncodingType" {
			return newErrorf(codeInvalidArgument, "Invalid Encoding Method specified in Request")
		}

		return newErrorf(codeInvalidArgument, "the value %s of %s is not valid", text, name)
	default:
	}

	return newErrorf(
		validationCode(c.protocol),
		"1 validation error detected: Value '%s' at '%s' failed to satisfy constraint: "+
			"Member must satisfy enum value set: [%s]",
		text,
		lowerFirst(name),
		strings.Join(values, ", "),
	)
}
