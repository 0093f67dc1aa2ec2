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

// xmlWriter encodes shapes as XML. As in AWS, an empty list at the top level of a result has an element, so
// that clients that print the result show [].
type xmlWriter struct{ buf bytes.Buffer }

// writeDeclaration writes the XML declaration.
func (w *xmlWriter) writeDeclaration() { w.writeRaw(xmlHeader) }

// writeRaw writes text that is already XML.
func (w *xmlWriter) writeRaw(text string) { w.buf.WriteString(text) }

func (w *xmlWriter) openElement(name, attrs string) { w.writeRaw("<" + name + attrs + ">") }

func (w *xmlWriter) closeElement(name string) { w.writeRaw("</" + name + ">") }

func (w *xmlWriter) writeText(name, text string) {
	w.openElement(name, "")
	w.writeEscaped(text)
	w.closeElement(name)
}

func (w *xmlWriter) writeEscaped(text string) {
	// A bytes.Buffer does not fail, and runes that XML cannot carry become U+FFFD.
	if err := xml.EscapeText(&w.buf, []byte(text)); err != nil {
		w.writeRaw("\uFFFD")
	}
}

// writeMembers writes the members of the struct v that are in the body. Of the members that are not set, it
// writes required lists.
func (w *xmlWriter) writeMembers(v reflect.Value) error {
	return w.writeMembersIf(v, func(f reflect.StructField, member reflect.Value) bool {
		return !isUnset(member) || f.Tag.Get("required") != "" && isUnflattenedList(f)
	})
}

// writeResultMembers is writeMembers for the top level of a result. Of the members that are not set, it
// writes all lists.
func (w *xmlWriter) writeResultMembers(v reflect.Value) error {
	return w.writeMembersIf(v, func(f reflect.StructField, member reflect.Value) bool {
		return !isUnset(member) || isUnflattenedList(f)
	})
}

func isUnflattenedList(f reflect.StructField) bool {
	return shapeKindOf(f.Type) == listShape && f.Tag.Get("flattened") == ""
}

// writeMembersIf writes the members of the struct v that are in the body and that written selects.
func (w *xmlWriter) writeMembersIf(
	v reflect.Value,
	written func(reflect.StructField, reflect.Value) bool,
) error {
	return eachMember(v, func(f reflect.StructField, member reflect.Value) error {
		if f.Tag.Get("location") != "" || f.Tag.Get("xmlAttribute") != "" || !written(f, member) {
			return nil
		}

		return w.writeValue(member, f.Tag, memberName(f))
	})
}

func (w *xmlWriter) writeValue(v reflect.Value, tag reflect.StructTag, name string) error {
	switch shapeKindOf(v.Type()) {
	case structureShape:
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return nil
			}

			v = v.Elem()
		}

		w.openElement(name, formatAttributes(v, tag))
		if err := w.writeMembers(v); err != nil {
			return err
		}

		w.closeElement(name)

		return nil

	case listShape:
		return w.writeList(v, tag, name)
	case mapShape:
		return w.writeMap(v, tag, name)
	case scalarShape:
	}

	if isUnset(v) {
		return nil
	}

	if !isScalarType(v.Type()) {
		return fmt.Errorf("member %s has type %s, which cannot be encoded as XML", name, v.Type())
	}

	w.writeText(name, scalarText(v, tag, iso8601))

	return nil
}

func (w *xmlWriter) writeList(v reflect.Value, tag reflect.StructTag, name string) error {
	item := name
	flat := tag.Get("flattened") != ""
	if !flat {
		w.openElement(name, "")
		item = listItemName(tag)
	}

	for i := range v.Len() {
		if err := w.writeValue(v.Index(i), "", item); err != nil {
			return err
		}
	}

	if !flat {
		w.closeElement(name)
	}

	return nil
}

func (w *xmlWriter) writeMap(v reflect.Value, tag reflect.StructTag, name string) error {
	entries := map[string]reflect.Value{}
	for _, k := range v.MapKeys() {
		entries[k.String()] = v.MapIndex(k)
	}

	keyName, valueName := mapEntryNames(tag)
	entry := name
	flat := tag.Get("flattened") != ""
	if !flat {
		w.openElement(name, "")
		entry = "entry"
	}

	for _, k := range sortedKeys(entries) {
		w.openElement(entry, "")
		w.writeText(keyName, k)
		if err := w.writeValue(entries[k], "", valueName); err != nil {
			return err
		}

		w.closeElement(entry)
	}

	if !flat {
		w.closeElement(name)
	}

	return nil
}

// formatAttributes returns the XML attributes of a struct: its namespace, and the members that are
// attributes.
func formatAttributes(v reflect.Value, tag reflect.StructTag) string {
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
		if f.Tag.Get("xmlAttribute") == "" || !f.IsExported() || isUnset(v.Field(i)) {
			continue
		}

		var w xmlWriter
		w.writeEscaped(scalarText(v.Field(i), f.Tag, iso8601))
		fmt.Fprintf(&b, ` %s="%s"`, f.Tag.Get("locationName"), w.buf.String())
	}

	return b.String()
}

func isScalarType(t reflect.Type) bool {
	switch t.String() {
	case "[]uint8", "*string", "*bool", "*int64", "*float64", "*time.Time":
		return true
	}

	return false
}

// xmlElement is a parsed XML element.
type xmlElement struct {
	name     string
	text     string
	attrs    map[string]string
	children map[string][]*xmlElement
}

// parseXML parses one document and returns its root element.
func parseXML(r io.Reader) (*xmlElement, error) {
	d := xml.NewDecoder(r)
	for {
		token, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("parse XML: %w", err)
		}

		if start, ok := token.(xml.StartElement); ok {
			root, err := parseElement(d, start, 0)
			if err != nil {
				return nil, err
			}

			return root, checkTrailing(d)
		}
	}
}

// checkTrailing returns an error if another element follows the root element.
func checkTrailing(d *xml.Decoder) error {
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}

		if err != nil {
			return fmt.Errorf("parse XML: %w", err)
		}

		if _, ok := token.(xml.StartElement); ok {
			return errors.New("parse XML: more than one root element")
		}
	}
}

func parseElement(d *xml.Decoder, start xml.StartElement, depth int) (*xmlElement, error) {
	if depth > maxNesting {
		return nil, errors.New("parse XML: nested too deeply")
	}

	e := &xmlElement{name: start.Name.Local, attrs: map[string]string{}, children: map[string][]*xmlElement{}}
	for _, a := range start.Attr {
		e.attrs[a.Name.Local] = a.Value
	}

	var text strings.Builder

	for {
		token, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("parse XML: %w", err)
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

// DecodeXML decodes a REST-XML body to the struct that in points to, and returns the name of the root
// element. As in AWS, an element that the shape does not have is the error MalformedXML.
func DecodeXML(r io.Reader, in any) (string, error) {
	root, err := parseXML(r)
	if err != nil {
		return "", newErrorf(
			codeMalformedXML,
			"The XML you provided was not well-formed or did not validate against our published schema: %v",
			err,
		)
	}

	if err := decodeXMLStructure(reflect.ValueOf(in).Elem(), root); err != nil {
		return "", newErrorf(
			codeMalformedXML,
			"The XML you provided was not well-formed or did not validate against our published schema: %v",
			err,
		)
	}

	return root.name, nil
}

func decodeXMLStructure(v reflect.Value, e *xmlElement) error {
	known := map[string]bool{}
	err := eachMember(v, func(f reflect.StructField, member reflect.Value) error {
		if f.Tag.Get("location") != "" {
			return nil
		}

		name := memberName(f)
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
			if err := decodeXMLValue(member, child, f.Tag); err != nil {
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

func decodeXMLValue(v reflect.Value, e *xmlElement, tag reflect.StructTag) error {
	switch shapeKindOf(v.Type()) {
	case structureShape:
		return decodeXMLStructure(allocStruct(v), e)
	case listShape:
		return decodeXMLList(v, e, tag)
	case mapShape:
		return errors.New("maps are not supported in REST-XML")
	case scalarShape:
	}

	return setScalar(v, e.text, tag, iso8601)
}

func decodeXMLList(v reflect.Value, e *xmlElement, tag reflect.StructTag) error {
	items := []*xmlElement{e}
	if tag.Get("flattened") == "" {
		name := listItemName(tag)
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
		if err := decodeXMLValue(item, child, ""); err != nil {
			return err
		}

		v.Set(reflect.Append(v, item))
	}

	return nil
}
