// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Limits of a form: deeper or longer ones are no request of any service here.
const (
	maxNesting = 24
	maxParams  = 20000
)

// paramNode is a form's parameters as a tree: A.member.1.B=x is A → member → 1 → B.
type paramNode struct {
	text     string
	isSet    bool // a value was given for this very name
	children map[string]*paramNode
}

// parseParamTree turns parameters into a tree.
func parseParamTree(form url.Values) (*paramNode, error) {
	if len(form) > maxParams {
		return nil, Errorf(
			"RequestLimitExceeded",
			"the request has %d parameters, the limit is %d",
			len(form),
			maxParams,
		)
	}

	root := &paramNode{}
	for name, values := range form {
		parts := strings.Split(name, ".")
		if len(parts) > maxNesting {
			return nil, Errorf("MalformedQueryString", "the parameter %s is nested too deeply", name)
		}

		if len(values) > 1 {
			return nil, Errorf(
				"MalformedQueryString",
				"the parameter %s is given %d times",
				name,
				len(values),
			)
		}

		n := root

		for _, p := range parts {
			if n.children == nil {
				n.children = map[string]*paramNode{}
			}

			if n.children[p] == nil {
				n.children[p] = &paramNode{}
			}

			n = n.children[p]
		}

		n.text = values[0]
		n.isSet = true
	}

	return root, nil
}

// DecodeForm decodes the parameters of a query or EC2 query request (without Action and Version) into the shape in.
func DecodeForm(p Protocol, form url.Values, in any) error {
	root, err := parseParamTree(form)
	if err != nil {
		return err
	}

	d := formDecoder{isEC2: p == EC2Query}
	if err := d.decodeStructure(reflect.ValueOf(in).Elem(), root, ""); err != nil {
		return err
	}

	return validateShape(p, reflect.ValueOf(in), "")
}

type formDecoder struct{ isEC2 bool }

// paramName is a member's parameter name.
func (d formDecoder) paramName(f reflect.StructField) string {
	if d.isEC2 {
		if n := f.Tag.Get("queryName"); n != "" {
			return n
		}
	}

	n := f.Tag.Get("locationName")
	if f.Tag.Get("flattened") != "" && f.Tag.Get("locationNameList") != "" {
		n = f.Tag.Get("locationNameList")
	}

	switch {
	case n == "":
		return f.Name
	case d.isEC2:
		return strings.ToUpper(n[:1]) + n[1:]
	}

	return n
}

func (d formDecoder) decodeStructure(v reflect.Value, n *paramNode, path string) error {
	if n.isSet && n.text != "" {
		return d.newInvalidParamError(path, n.text, "not a structure")
	}

	known := map[string]bool{}
	err := eachMember(v, func(f reflect.StructField, member reflect.Value) error {
		name := d.paramName(f)
		known[name] = true
		child := n.children[name]
		if child == nil {
			return nil
		}

		return d.decodeValue(member, child, joinPath(path, name), f.Tag)
	})
	if err != nil {
		return err
	}

	for _, name := range sortedKeys(n.children) {
		if !known[name] {
			return d.newUnknownParamError(joinPath(path, n.children[name].firstParamName(name)))
		}
	}

	return nil
}

func (d formDecoder) decodeValue(v reflect.Value, n *paramNode, path string, tag reflect.StructTag) error {
	switch shapeKindOf(v.Type()) {
	case structureShape:
		return d.decodeStructure(allocStruct(v), n, path)
	case listShape:
		return d.decodeList(v, n, path, tag)
	case mapShape:
		return d.decodeMap(v, n, path, tag)
	case scalarShape:
	}

	if len(n.children) > 0 || !n.isSet {
		return d.newUnknownParamError(joinPath(path, n.firstParamName("")))
	}

	if err := setScalar(v, n.text, tag, iso8601); err != nil {
		return d.newInvalidParamError(path, n.text, err.Error())
	}

	return nil
}

func (d formDecoder) decodeList(v reflect.Value, n *paramNode, path string, tag reflect.StructTag) error {
	if n.isEmptyList() {
		v.Set(reflect.MakeSlice(v.Type(), 0, 0))
		return nil
	}

	if !d.isEC2 && tag.Get("flattened") == "" {
		items, err := d.onlyChild(n, listItemName(tag), path)
		if err != nil {
			return err
		}

		n = items
		path = joinPath(path, listItemName(tag))
	}

	order, err := d.sortedIndices(n, path)
	if err != nil {
		return err
	}

	out := reflect.MakeSlice(v.Type(), len(order), len(order))

	for i, index := range order {
		if err := d.decodeValue(out.Index(i), n.children[index], joinPath(path, index), ""); err != nil {
			return err
		}
	}

	v.Set(out)

	return nil
}

func (d formDecoder) decodeMap(v reflect.Value, n *paramNode, path string, tag reflect.StructTag) error {
	v.Set(reflect.MakeMap(v.Type()))
	if n.isEmptyList() {
		return nil
	}

	if !d.isEC2 && tag.Get("flattened") == "" {
		entries, err := d.onlyChild(n, "entry", path)
		if err != nil {
			return err
		}

		n = entries
		path = joinPath(path, "entry")
	}

	order, err := d.sortedIndices(n, path)
	if err != nil {
		return err
	}

	keyName, valueName := mapEntryNames(tag)

	for _, index := range order {
		entry := n.children[index]
		key, value, ok := entry.mapEntry(keyName, valueName)
		if !ok {
			return d.newInvalidParamError(
				joinPath(path, index),
				"",
				"a map's entry is a "+keyName+" and a "+valueName,
			)
		}

		item := reflect.New(v.Type().Elem()).Elem()
		if err := d.decodeValue(item, value, joinPath(path, index+"."+valueName), ""); err != nil {
			return err
		}

		v.SetMapIndex(reflect.ValueOf(key.text), item)
	}

	return nil
}

// isEmptyList tells whether a list or map is given and empty: its name alone, without a value.
func (n *paramNode) isEmptyList() bool { return n.isSet && n.text == "" && len(n.children) == 0 }

// mapEntry is the key and the value of a map's entry.
func (n *paramNode) mapEntry(keyName, valueName string) (key, value *paramNode, ok bool) {
	key = n.children[keyName]
	value = n.children[valueName]
	return key, value, key != nil && value != nil && len(n.children) == 2 && len(key.children) == 0
}

// onlyChild returns n's child of that name, which must be its only one.
func (d formDecoder) onlyChild(n *paramNode, name, path string) (*paramNode, error) {
	for _, other := range sortedKeys(n.children) {
		if other != name {
			return nil, d.newUnknownParamError(joinPath(path, n.children[other].firstParamName(other)))
		}
	}

	if n.children[name] == nil {
		return nil, d.newInvalidParamError(path, n.text, "not a list")
	}

	return n.children[name], nil
}

// sortedIndices are n's children in the order of their numbers. Gaps are allowed, as AWS allows them.
func (d formDecoder) sortedIndices(n *paramNode, path string) ([]string, error) {
	type numbered struct {
		number int
		name   string
	}

	var found []numbered
	for _, name := range sortedKeys(n.children) {
		i, err := strconv.Atoi(name)
		if err != nil || i < 0 || strconv.Itoa(i) != name {
			return nil, d.newUnknownParamError(joinPath(path, n.children[name].firstParamName(name)))
		}

		found = append(found, numbered{i, name})
	}

	if len(found) == 0 {
		return nil, d.newInvalidParamError(path, n.text, "not a list")
	}

	slices.SortFunc(found, func(a, b numbered) int { return a.number - b.number })
	names := make([]string, len(found))
	for i, f := range found {
		names[i] = f.name
	}

	return names, nil
}

func (d formDecoder) newUnknownParamError(path string) error {
	if d.isEC2 {
		return Errorf("UnknownParameter", "The parameter %s is not recognized", path)
	}

	return Errorf("ValidationError", "The parameter %s is not recognized", path)
}

func (d formDecoder) newInvalidParamError(path, text, why string) error {
	if d.isEC2 {
		return Errorf("InvalidParameterValue", "Value (%s) for parameter %s is invalid: %s", text, path, why)
	}

	return Errorf("ValidationError", "Value '%s' at '%s' is invalid: %s", text, path, why)
}

// firstParamName is the full name of the first parameter at or under n, for messages that name what the caller wrote.
func (n *paramNode) firstParamName(name string) string {
	for !n.isSet && len(n.children) > 0 {
		next := sortedKeys(n.children)[0]
		n = n.children[next]
		name = joinPath(name, next)
	}

	return name
}

func joinPath(path, name string) string {
	if path == "" || name == "" {
		return path + name
	}

	return path + "." + name
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}

	slices.Sort(keys)

	return keys
}
