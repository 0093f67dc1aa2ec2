// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Limits of a form. No service of the region has valid requests beyond them.
const (
	maxNesting = 24    // levels of a parameter's name; also of XML elements
	maxParams  = 20000 // parameters
)

// paramNode is a node of the tree of a form's parameters: A.member.1.B=x is A → member → 1 → B.
type paramNode struct {
	text     string                // value of the parameter
	isSet    bool                  // the form has a parameter of exactly this name
	children map[string]*paramNode // by the next part of the name
}

// parseParamTree returns the parameters as a tree.
func parseParamTree(form url.Values) (*paramNode, error) {
	if len(form) > maxParams {
		return nil, newErrorf(
			codeRequestLimitExceeded,
			"the request has %d parameters, the limit is %d",
			len(form),
			maxParams,
		)
	}

	root := &paramNode{}
	for name, values := range form {
		parts := strings.Split(name, ".")
		if len(parts) > maxNesting {
			return nil, newErrorf(
				codeMalformedQueryString,
				"the parameter %s is nested too deeply",
				name,
			)
		}

		if len(values) > 1 {
			return nil, newErrorf(
				codeMalformedQueryString,
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

// DecodeForm decodes the parameters of a query or EC2 query request, without Action and Version, to the shape
// in and validates it.
func DecodeForm(p Protocol, form url.Values, in any) error {
	root, err := parseParamTree(form)
	if err != nil {
		return err
	}

	d := formDecoder{isEC2: p == EC2QueryProtocol}
	if err := d.decodeStructure(reflect.ValueOf(in).Elem(), root, ""); err != nil {
		return err
	}

	return validateShape(p, reflect.ValueOf(in), "")
}

type formDecoder struct{ isEC2 bool }

// paramName returns the name of a member's parameter.
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
				"an entry of a map needs "+keyName+" and "+valueName,
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

// isEmptyList reports whether the parameter is an empty list or map: a name without a value and without
// children.
func (n *paramNode) isEmptyList() bool { return n.isSet && n.text == "" && len(n.children) == 0 }

// mapEntry returns the key and the value of an entry of a map. ok is false if n is not an entry.
func (n *paramNode) mapEntry(keyName, valueName string) (key, value *paramNode, ok bool) {
	key = n.children[keyName]
	value = n.children[valueName]
	return key, value, key != nil && value != nil && len(n.children) == 2 && len(key.children) == 0
}

// onlyChild returns the child with a name. Other children are an error.
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

// sortedIndices returns the names of n's children, which must be numbers, in numerical order. As in AWS, gaps
// are allowed.
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
		return newErrorf(codeUnknownParameter, "The parameter %s is not recognized", path)
	}

	return newErrorf(codeValidationError, "The parameter %s is not recognized", path)
}

func (d formDecoder) newInvalidParamError(path, text, why string) error {
	if d.isEC2 {
		return newErrorf(
			codeInvalidParameterValue,
			"Value (%s) for parameter %s is invalid: %s",
			text,
			path,
			why,
		)
	}

	return newErrorf(codeValidationError, "Value '%s' at '%s' is invalid: %s", text, path, why)
}

// firstParamName returns the full name of the first parameter at or below n, for messages.
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
