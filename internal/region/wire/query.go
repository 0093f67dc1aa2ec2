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
	maxDepth  = 24
	maxParams = 20000
)

// node is a form's parameters as a tree: A.member.1.B=x is A → member → 1 → B.
type node struct {
	text     string
	set      bool // a value was given for this very name
	children map[string]*node
}

// tree turns parameters into a tree.
func tree(form url.Values) (*node, error) {
	if len(form) > maxParams {
		return nil, Errorf(
			"RequestLimitExceeded",
			"the request has %d parameters, the limit is %d",
			len(form),
			maxParams,
		)
	}

	root := &node{}
	for name, values := range form {
		parts := strings.Split(name, ".")
		if len(parts) > maxDepth {
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
				n.children = map[string]*node{}
			}

			if n.children[p] == nil {
				n.children[p] = &node{}
			}

			n = n.children[p]
		}

		n.text = values[0]
		n.set = true
	}

	return root, nil
}

// DecodeForm decodes the parameters of a query or EC2 query request (without Action and Version) into the shape in.
func DecodeForm(p Protocol, form url.Values, in any) error {
	root, err := tree(form)
	if err != nil {
		return err
	}

	d := formDecoder{ec2: p == EC2Query}
	if err := d.structure(reflect.ValueOf(in).Elem(), root, ""); err != nil {
		return err
	}

	return validate(p, reflect.ValueOf(in), "")
}

type formDecoder struct{ ec2 bool }

// name is a member's parameter name.
func (d formDecoder) name(f reflect.StructField) string {
	if d.ec2 {
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
	case d.ec2:
		return strings.ToUpper(n[:1]) + n[1:]
	}

	return n
}

func (d formDecoder) structure(v reflect.Value, n *node, path string) error {
	if n.set && n.text != "" {
		return d.invalid(path, n.text, "not a structure")
	}

	known := map[string]bool{}
	err := fields(v, func(f reflect.StructField, member reflect.Value) error {
		name := d.name(f)
		known[name] = true
		child := n.children[name]
		if child == nil {
			return nil
		}

		return d.value(member, child, join(path, name), f.Tag)
	})
	if err != nil {
		return err
	}

	for _, name := range sortedKeys(n.children) {
		if !known[name] {
			return d.unknown(join(path, n.children[name].deepest(name)))
		}
	}

	return nil
}

func (d formDecoder) value(v reflect.Value, n *node, path string, tag reflect.StructTag) error {
	switch kindOf(v.Type()) {
	case structure:
		return d.structure(alloc(v), n, path)
	case list:
		return d.list(v, n, path, tag)
	case mapping:
		return d.mapping(v, n, path, tag)
	case scalar:
	}

	if len(n.children) > 0 || !n.set {
		return d.unknown(join(path, n.deepest("")))
	}

	if err := setScalar(v, n.text, tag, iso8601); err != nil {
		return d.invalid(path, n.text, err.Error())
	}

	return nil
}

func (d formDecoder) list(v reflect.Value, n *node, path string, tag reflect.StructTag) error {
	if n.emptied() {
		v.Set(reflect.MakeSlice(v.Type(), 0, 0))
		return nil
	}

	if !d.ec2 && tag.Get("flattened") == "" {
		items, err := d.only(n, listName(tag), path)
		if err != nil {
			return err
		}

		n = items
		path = join(path, listName(tag))
	}

	order, err := d.indices(n, path)
	if err != nil {
		return err
	}

	out := reflect.MakeSlice(v.Type(), len(order), len(order))

	for i, index := range order {
		if err := d.value(out.Index(i), n.children[index], join(path, index), ""); err != nil {
			return err
		}
	}

	v.Set(out)

	return nil
}

func (d formDecoder) mapping(v reflect.Value, n *node, path string, tag reflect.StructTag) error {
	v.Set(reflect.MakeMap(v.Type()))
	if n.emptied() {
		return nil
	}

	if !d.ec2 && tag.Get("flattened") == "" {
		entries, err := d.only(n, "entry", path)
		if err != nil {
			return err
		}

		n = entries
		path = join(path, "entry")
	}

	order, err := d.indices(n, path)
	if err != nil {
		return err
	}

	keyName, valueName := entryNames(tag)

	for _, index := range order {
		entry := n.children[index]
		key, value, ok := entry.pair(keyName, valueName)
		if !ok {
			return d.invalid(join(path, index), "", "a map's entry is a "+keyName+" and a "+valueName)
		}

		item := reflect.New(v.Type().Elem()).Elem()
		if err := d.value(item, value, join(path, index+"."+valueName), ""); err != nil {
			return err
		}

		v.SetMapIndex(reflect.ValueOf(key.text), item)
	}

	return nil
}

// emptied tells whether a list or map is given and empty: its name alone, without a value.
func (n *node) emptied() bool { return n.set && n.text == "" && len(n.children) == 0 }

// pair is the key and the value of a map's entry.
func (n *node) pair(keyName, valueName string) (key, value *node, ok bool) {
	key = n.children[keyName]
	value = n.children[valueName]
	return key, value, key != nil && value != nil && len(n.children) == 2 && len(key.children) == 0
}

// only returns n's child of that name, which must be its only one.
func (d formDecoder) only(n *node, name, path string) (*node, error) {
	for _, other := range sortedKeys(n.children) {
		if other != name {
			return nil, d.unknown(join(path, n.children[other].deepest(other)))
		}
	}

	if n.children[name] == nil {
		return nil, d.invalid(path, n.text, "not a list")
	}

	return n.children[name], nil
}

// indices are n's children in the order of their numbers. Gaps are allowed, as AWS allows them.
func (d formDecoder) indices(n *node, path string) ([]string, error) {
	type numbered struct {
		number int
		name   string
	}

	var found []numbered
	for _, name := range sortedKeys(n.children) {
		i, err := strconv.Atoi(name)
		if err != nil || i < 0 || strconv.Itoa(i) != name {
			return nil, d.unknown(join(path, n.children[name].deepest(name)))
		}

		found = append(found, numbered{i, name})
	}

	if len(found) == 0 {
		return nil, d.invalid(path, n.text, "not a list")
	}

	slices.SortFunc(found, func(a, b numbered) int { return a.number - b.number })
	names := make([]string, len(found))
	for i, f := range found {
		names[i] = f.name
	}

	return names, nil
}

func (d formDecoder) unknown(path string) error {
	if d.ec2 {
		return Errorf("UnknownParameter", "The parameter %s is not recognized", path)
	}

	return Errorf("ValidationError", "The parameter %s is not recognized", path)
}

func (d formDecoder) invalid(path, text, why string) error {
	if d.ec2 {
		return Errorf("InvalidParameterValue", "Value (%s) for parameter %s is invalid: %s", text, path, why)
	}

	return Errorf("ValidationError", "Value '%s' at '%s' is invalid: %s", text, path, why)
}

// deepest is the full name of the first parameter at or under n, for messages that name what the caller wrote.
func (n *node) deepest(name string) string {
	for !n.set && len(n.children) > 0 {
		next := sortedKeys(n.children)[0]
		n = n.children[next]
		name = join(name, next)
	}

	return name
}

func join(path, name string) string {
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
