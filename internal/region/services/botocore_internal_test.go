// SPDX-License-Identifier: Apache-2.0

package services

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// TestShapesAreThoseOfBotocore compares the shapes of all operations that the region answers with botocore's models, which
// are newer and whose clients are most of those of AWS: names, types, places and necessity of members. A difference is listed
// with its reason in testdata/botocore-differences.txt. Members that only botocore has are counted: requests with them must be
// refused by name, and answers lack them.
func TestShapesAreThoseOfBotocore(t *testing.T) {
	data := botocoreData(t)
	accepted := readAccepted(t, "botocore-differences.txt")
	compared := &shapeComparison{found: map[string]bool{}}

	for _, s := range buildServices(t).allServices() {
		compared.service = s
		compared.model = readBotocoreModel(t, data, s)

		for _, op := range s.Operations {
			compared.compareOperation(op)
		}
	}

	for _, difference := range slices.Sorted(maps.Keys(compared.found)) {
		if !accepted.matches(difference) {
			t.Errorf("%s", difference)
		}
	}

	for _, pattern := range accepted.unused() {
		t.Errorf("testdata/botocore-differences.txt: there is no difference %s", pattern)
	}

	if compared.members < 3000 {
		t.Errorf("compared %d members: the comparison is broken", compared.members)
	}

	t.Logf("%d members compared, %d only in botocore, of which %d were sent", compared.members, compared.newer, compared.sent)
}

// shapeComparison compares shapes of the region with those of one model after the other.
type shapeComparison struct {
	service wire.Service
	model   *botocoreModel
	seen    map[string]bool // pairs of shapes of the operation
	found   map[string]bool // differences, each as SERVICE.SHAPE.MEMBER: WHAT
	members int             // compared
	newer   int             // members that only botocore has
	sent    int             // of these, that were sent
}

func (c *shapeComparison) report(at, format string, args ...any) {
	c.found[at+":"+strings.ReplaceAll(fmt.Sprintf(format, args...), " ", "-")] = true
}

// compareOperation compares the input and the output of an operation.
func (c *shapeComparison) compareOperation(op wire.Operation) {
	declared, ok := c.model.Operations[op.Name]
	if !ok {
		c.report(c.service.Name+"."+op.Name, "no such operation")
		return
	}

	c.seen = map[string]bool{}
	for _, side := range []struct {
		shape   any
		member  *botocoreMember
		isInput bool
	}{
		{op.NewInput(), declared.Input, true},
		{op.NewOutput(), declared.Output, false},
	} {
		member := cmp.Or(side.member, &botocoreMember{})
		shape := c.model.Shapes[member.Shape]
		if shape == nil {
			shape = &botocoreShape{Type: "structure"}
		}

		c.compareStructures(reflect.TypeOf(side.shape).Elem(), shape, side.isInput)
	}

	if declared.Input != nil {
		c.sendNewerMembers(op, c.model.Shapes[declared.Input.Shape])
	}
}

// sendNewerMembers decodes requests with each member that only botocore has: they must be refused by its name. Package wire
// tests that of REST messages.
func (c *shapeComparison) sendNewerMembers(op wire.Operation, shape *botocoreShape) {
	known := map[string]bool{}
	for _, f := range membersOf(reflect.TypeOf(op.NewInput()).Elem()) {
		known[strings.ToLower(strings.TrimSuffix(f.Name, "_"))] = true
	}

	for name, member := range shape.Members {
		if known[strings.ToLower(name)] {
			continue
		}

		var err error

		sent := cmp.Or(member.LocationName, name)
		switch c.service.Protocol {
		case wire.EC2QueryProtocol:
			sent = cmp.Or(member.QueryName, strings.ToUpper(sent[:1])+sent[1:])
			err = wire.DecodeForm(c.service.Protocol, url.Values{sent: {"x"}}, op.NewInput())
		case wire.QueryProtocol:
			err = wire.DecodeForm(c.service.Protocol, url.Values{sent: {"x"}}, op.NewInput())
		case wire.JSONProtocol:
			err = wire.DecodeJSON(fmt.Appendf(nil, `{%q: "x"}`, sent), op.NewInput())
		default:
			continue
		}

		c.sent++
		if err == nil || !strings.Contains(err.Error(), "The parameter "+sent+" is not recognized") {
			c.report(c.service.Name+"."+op.Name+"."+name, "only in botocore and not refused: %v", err)
		}
	}
}

// compareStructures compares the members of a struct with those of a shape.
func (c *shapeComparison) compareStructures(t reflect.Type, shape *botocoreShape, isInput bool) {
	name := path.Base(t.PkgPath()) + "." + t.Name()
	pair := fmt.Sprintf("%s %p", name, shape)
	if c.seen[pair] {
		return
	}

	c.seen[pair] = true

	byName := map[string]string{}
	for member := range shape.Members {
		byName[strings.ToLower(member)] = member
	}

	for _, f := range membersOf(t) {
		at := name + "." + f.Name
		member, ok := byName[strings.ToLower(strings.TrimSuffix(f.Name, "_"))]
		if !ok {
			c.report(at, "not in botocore")
			continue
		}

		delete(byName, strings.ToLower(member))
		c.members++
		c.comparePlaces(at, f, member, shape.Members[member])
		if needed := slices.Contains(shape.Required, member); isInput && needed != (f.Tag.Get("required") == "true") {
			c.report(at, "required is %v in botocore", needed)
		}

		c.compareTypes(at, f, shape.Members[member].Shape, isInput)
	}

	c.newer += len(byName)
	for _, member := range byName {
		if isInput && slices.Contains(shape.Required, member) {
			c.report(name+"."+member, "required and unknown")
		}
	}

	if payload := payloadOf(t); payload != shape.Payload {
		c.report(name, "the payload is %q in botocore, here %q", shape.Payload, payload)
	}
}

// membersOf returns the members of a struct and of the shapes that it embeds. Those of the struct itself replace others
// of the same name.
func membersOf(t reflect.Type) []reflect.StructField {
	var out []reflect.StructField
	for f := range t.Fields() {
		switch {
		case f.Anonymous:
			for _, member := range membersOf(f.Type) {
				if own, _ := t.FieldByName(member.Name); len(own.Index) > 1 {
					out = append(out, member)
				}
			}

		case f.IsExported():
			out = append(out, f)
		}
	}

	return out
}

// payloadOf returns the member that is the body of a REST message.
func payloadOf(t reflect.Type) string {
	for f := range t.Fields() {
		if f.Name == "_" {
			return f.Tag.Get("payload")
		}
	}

	return ""
}

// comparePlaces compares where a message has a member.
func (c *shapeComparison) comparePlaces(at string, f reflect.StructField, name string, m botocoreMember) {
	shape := c.model.Shapes[m.Shape]
	for _, p := range []struct{ what, here, botocore string }{
		{"name", cmp.Or(f.Tag.Get("locationName"), f.Name), cmp.Or(m.LocationName, name)},
		{"location", f.Tag.Get("location"), m.Location},
		{"queryName", f.Tag.Get("queryName"), m.QueryName},
		{"flattened", f.Tag.Get("flattened"), map[bool]string{true: "true"}[m.Flattened || shape.Flattened]},
		{"item", f.Tag.Get("locationNameList"), locationNameOf(shape.Member)},
		{"key", f.Tag.Get("locationNameKey"), locationNameOf(shape.Key)},
		{"value", f.Tag.Get("locationNameValue"), locationNameOf(shape.Value)},
		{"time", f.Tag.Get("timestampFormat"), cmp.Or(m.TimestampFormat, shape.TimestampFormat)},
	} {
		if p.here != p.botocore {
			c.report(at, "%s is %q in botocore, here %q", p.what, p.botocore, p.here)
		}
	}
}

func locationNameOf(m *botocoreMember) string {
	if m == nil {
		return ""
	}

	return m.LocationName
}

// compareTypes compares the type of a member with a shape, and what it consists of.
func (c *shapeComparison) compareTypes(at string, f reflect.StructField, name string, isInput bool) {
	t := f.Type
	shape := c.model.Shapes[name]

	for {
		if have := kindOf(t); have != simpleType(shape.Type) {
			c.report(at, "the type is %s in botocore, here %s", shape.Type, have)
			return
		}

		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}

		switch shape.Type {
		case "structure":
			c.compareStructures(t, shape, isInput)
			return
		case "list":
			shape = c.model.Shapes[shape.Member.Shape]
		case "map":
			shape = c.model.Shapes[shape.Value.Shape]
		default:
			return
		}

		t = t.Elem()
	}
}

// kindOf returns the simple type of botocore that a Go type stands for.
func kindOf(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}

	switch {
	case t == reflect.TypeFor[time.Time]():
		return "timestamp"
	case t == reflect.TypeFor[[]byte](), t.Kind() == reflect.Interface:
		return "blob"
	}

	return map[reflect.Kind]string{
		reflect.Struct: "structure", reflect.Slice: "list", reflect.Map: "map", reflect.String: "string",
		reflect.Bool: "boolean", reflect.Int64: "integer", reflect.Float64: "double",
	}[t.Kind()]
}

// simpleType returns the type of botocore that stands for all types of the same Go type.
func simpleType(name string) string {
	return cmp.Or(map[string]string{"long": "integer", "float": "double", "character": "string"}[name], name)
}
