// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
)

// xmlWriter writes shapes as XML. Empty top-level lists are written, as AWS writes them, so that clients which print
// an answer show [] and not nothing.
type xmlWriter struct{ buf bytes.Buffer }

// begin writes the XML declaration.
func (w *xmlWriter) begin() { w.raw(xmlHeader) }

// raw writes text that is XML already.
func (w *xmlWriter) raw(text string) { w.buf.WriteString(text) }

func (w *xmlWriter) open(name, attrs string) { w.raw("<" + name + attrs + ">") }

func (w *xmlWriter) close(name string) { w.raw("</" + name + ">") }

func (w *xmlWriter) text(name, text string) {
	w.open(name, "")
	w.escape(text)
	w.close(name)
}

func (w *xmlWriter) escape(text string) {
	// A bytes.Buffer does not fail, and runes that XML cannot carry become U+FFFD.
	if err := xml.EscapeText(&w.buf, []byte(text)); err != nil {
		w.raw("\uFFFD")
	}
}

// members writes the members of the struct v that belong into the body.
func (w *xmlWriter) members(v reflect.Value, emptyLists bool) error { //revive:disable-line:flag-parameter
	return fields(v, func(f reflect.StructField, member reflect.Value) error {
		if f.Tag.Get("location") != "" || f.Tag.Get("xmlAttribute") != "" {
			return nil
		}

		if unset(member) &&
			(!emptyLists && f.Tag.Get("required") == "" || kindOf(member.Type()) != list || f.Tag.Get("flattened") != "") {
			return nil
		}

		return w.value(member, f.Tag, bodyName(f))
	})
}

func (w *xmlWriter) value(v reflect.Value, tag reflect.StructTag, name string) error {
	switch kindOf(v.Type()) {
	case structure:
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return nil
			}

			v = v.Elem()
		}

		w.open(name, attributes(v, tag))
		if err := w.members(v, false); err != nil {
			return err
		}

		w.close(name)

		return nil

	case list:
		return w.list(v, tag, name)
	case mapping:
		return w.mapping(v, tag, name)
	case scalar:
	}

	if unset(v) {
		return nil
	}

	if !scalarType(v.Type()) {
		return fmt.Errorf("member %s has type %s, which XML cannot carry", name, v.Type())
	}

	w.text(name, scalarText(v, tag, iso8601))

	return nil
}

func (w *xmlWriter) list(v reflect.Value, tag reflect.StructTag, name string) error {
	item := name
	flat := tag.Get("flattened") != ""
	if !flat {
		w.open(name, "")
		item = listName(tag)
	}

	for i := range v.Len() {
		if err := w.value(v.Index(i), "", item); err != nil {
			return err
		}
	}

	if !flat {
		w.close(name)
	}

	return nil
}

func (w *xmlWriter) mapping(v reflect.Value, tag reflect.StructTag, name string) error {
	entries := map[string]reflect.Value{}
	for _, k := range v.MapKeys() {
		entries[k.String()] = v.MapIndex(k)
	}

	keyName, valueName := entryNames(tag)
	entry := name
	flat := tag.Get("flattened") != ""
	if !flat {
		w.open(name, "")
		entry = "entry"
	}

	for _, k := range sortedKeys(entries) {
		w.open(entry, "")
		w.text(keyName, k)
		if err := w.value(entries[k], "", valueName); err != nil {
			return err
		}

		w.close(entry)
	}

	if !flat {
		w.close(name)
	}

	return nil
}

// attributes are the XML attributes of a struct: a namespace it declares, and members that travel as attributes.
func attributes(v reflect.Value, tag reflect.StructTag) string {
	var b strings.Builder
	if uri := tag.Get("xmlURI"); uri != "" {
		prefix := ""
		if p := tag.Get("xmlPrefix"); p != "" {
			prefix = ":" + p
		}

		fmt.Fprintf(&b, ` xmlns%s="%s"`, prefix, uri)
	}

	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Tag.Get("xmlAttribute") == "" || !f.IsExported() || unset(v.Field(i)) {
			continue
		}

		var w xmlWriter
		w.escape(scalarText(v.Field(i), f.Tag, iso8601))
		fmt.Fprintf(&b, ` %s="%s"`, f.Tag.Get("locationName"), w.buf.String())
	}

	return b.String()
}

func scalarType(t reflect.Type) bool {
	switch t.String() {
	case "[]uint8", "*string", "*bool", "*int64", "*float64", "*time.Time":
		return true
	}

	return false
}

// element is a parsed XML element.
type element struct {
	name     string
	text     string
	attrs    map[string]string
	children map[string][]*element
}

// parseXML reads one document.
func parseXML(r io.Reader) (*element, error) {
	d := xml.NewDecoder(r)
	for {
		token, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("read XML: %w", err)
		}

		if start, ok := token.(xml.StartElement); ok {
			root, err := parseElement(d, start, 0)
			if err != nil {
				return nil, err
			}

			return root, trailing(d)
		}
	}
}

// trailing refuses anything but space and comments after the root element.
func trailing(d *xml.Decoder) error {
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}

		if err != nil {
			return fmt.Errorf("read XML: %w", err)
		}

		if _, ok := token.(xml.StartElement); ok {
			return errors.New("read XML: more than one root element")
		}
	}
}

func parseElement(d *xml.Decoder, start xml.StartElement, depth int) (*element, error) {
	if depth > maxDepth {
		return nil, errors.New("read XML: nested too deeply")
	}

	e := &element{name: start.Name.Local, attrs: map[string]string{}, children: map[string][]*element{}}
	for _, a := range start.Attr {
		e.attrs[a.Name.Local] = a.Value
	}

	var text strings.Builder

	for {
		token, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("read XML: %w", err)
		}

		switch t := token.(type) {
		case xml.StartElement:
			child, err := parseElement(d, t, depth+1)
			if err != nil {
				return nil, err
			}

			e.children[child.name] = append(e.children[child.name], child)

		case xml.CharData:
			text.Write(t)
		case xml.EndElement:
			e.text = text.String()
			return e, nil
		}
	}
}

// DecodeXML decodes a REST-XML body into the struct that in points to and returns the root element's name. Elements
// that the shape does not know are an error: AWS says MalformedXML.
func DecodeXML(r io.Reader, in any) (string, error) {
	root, err := parseXML(r)
	if err != nil {
		return "", Errorf(
			"MalformedXML",
			"The XML you provided was not well-formed or did not validate against our published schema: %v",
			err,
		)
	}

	if err := xmlStructure(reflect.ValueOf(in).Elem(), root); err != nil {
		return "", Errorf(
			"MalformedXML",
			"The XML you provided was not well-formed or did not validate against our published schema: %v",
			err,
		)
	}

	return root.name, nil
}

func xmlStructure(v reflect.Value, e *element) error {
	known := map[string]bool{}
	err := fields(v, func(f reflect.StructField, member reflect.Value) error {
		if f.Tag.Get("location") != "" {
			return nil
		}

		name := bodyName(f)
		known[name] = true
		if f.Tag.Get("xmlAttribute") != "" {
			_, local, found := strings.Cut(name, ":")
			if !found {
				local = name
			}

			if text, ok := e.attrs[local]; ok {
				return setScalar(member, text, f.Tag, iso8601)
			}

			return nil
		}

		for _, child := range e.children[name] {
			if err := xmlValue(member, child, f.Tag); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}

		return nil
	})
	if err != nil {
		return err
	}

	for _, name := range sortedKeys(e.children) {
		if !known[name] {
			return fmt.Errorf("unknown element %s in %s", name, e.name)
		}
	}

	return nil
}

func xmlValue(v reflect.Value, e *element, tag reflect.StructTag) error {
	switch kindOf(v.Type()) {
	case structure:
		return xmlStructure(alloc(v), e)
	case list:
		return xmlList(v, e, tag)
	case mapping:
		return errors.New("no REST-XML service here takes a map")
	case scalar:
	}

	return setScalar(v, e.text, tag, iso8601)
}

func xmlList(v reflect.Value, e *element, tag reflect.StructTag) error {
	items := []*element{e}
	if tag.Get("flattened") == "" {
		name := listName(tag)
		for other := range e.children {
			if other != name {
				return fmt.Errorf("unknown element %s in a list of %s", other, name)
			}
		}

		items = e.children[name]
	}

	if v.IsNil() {
		v.Set(reflect.MakeSlice(v.Type(), 0, len(items)))
	}

	for _, child := range items {
		item := reflect.New(v.Type().Elem()).Elem()
		if err := xmlValue(item, child, ""); err != nil {
			return err
		}

		v.Set(reflect.Append(v, item))
	}

	return nil
}
