// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"
)

// decodeREST decodes a shape from the path, the query string, the headers and, if its payload is XML or text,
// the body. It does not read a payload that is a stream: the handler reads it from the request's body.
func decodeREST(r *http.Request, route Route, in any) error {
	v := reflect.ValueOf(in).Elem()
	if err := checkRESTNames(r, route, v.Type()); err != nil {
		return err
	}

	if err := decodeLocated(r, route, v); err != nil {
		return err
	}

	if err := decodeBody(r, v); err != nil {
		return err
	}

	return validateShape(S3Protocol, reflect.ValueOf(in), "")
}

// decodeLocated decodes the members of a shape that are in the path, in the query string or in headers.
func decodeLocated(r *http.Request, route Route, v reflect.Value) error {
	query := r.URL.Query()

	return eachMember(v, func(f reflect.StructField, member reflect.Value) error {
		name := f.Tag.Get("locationName")
		if name == "" {
			name = f.Name
		}

		text := ""
		ok := false

		switch f.Tag.Get("location") {
		case "uri":
			text, ok = route.Path[name]
		case "querystring":
			text = query.Get(name)
			ok = query.Has(name)
		case "header":
			text = r.Header.Get(name)
			ok = len(r.Header.Values(name)) > 0
		case "headers":
			return setHeaderMap(member, r.Header, name)
		}

		if !ok {
			return nil
		}

		return setLocatedMember(member, f, name, text)
	})
}

func setLocatedMember(member reflect.Value, f reflect.StructField, name, text string) error {
	if list, ok := reflect.TypeAssert[[]*string](member); ok {
		for part := range strings.SplitSeq(text, ",") {
			list = append(list, new(strings.TrimSpace(part)))
		}

		member.Set(reflect.ValueOf(list))
		return nil
	}

	format := rfc822
	if f.Tag.Get("location") == "querystring" {
		format = iso8601
	}

	if err := setScalar(member, text, f.Tag, format); err != nil {
		return newErrorf(codeInvalidArgument, "the value %q of %s is invalid: %v", text, name, err)
	}

	return nil
}

// setHeaderMap sets a map to the headers with a prefix, such as x-amz-meta-. As in S3, the keys are in lower
// case.
func setHeaderMap(member reflect.Value, header http.Header, prefix string) error {
	found := map[string]*string{}
	for name, values := range header {
		if len(name) > len(prefix) && strings.EqualFold(name[:len(prefix)], prefix) {
			found[strings.ToLower(name[len(prefix):])] = new(strings.Join(values, ","))
		}
	}

	if len(found) > 0 && member.Type() == reflect.TypeFor[map[string]*string]() {
		member.Set(reflect.ValueOf(found))
	}

	return nil
}

// decodeBody decodes the members that are in the body: all members of a shape with a namespace, or the
// shape's payload.
func decodeBody(r *http.Request, v reflect.Value) error {
	tag := shapeTag(v.Type())
	if tag.Get("xmlURI") == "" {
		return decodePayload(r, v)
	}

	body, err := readBody(r)
	if err != nil || len(body) == 0 {
		return err
	}

	root, err := DecodeXML(bytes.NewReader(body), v.Addr().Interface())
	if err == nil && root != tag.Get("locationName") {
		err = newErrorf(
			codeInvalidInput,
			"Invalid XML ; the root element is %s, not %s",
			root,
			tag.Get("locationName"),
		)
	}

	return err
}

func decodePayload(r *http.Request, v reflect.Value) error {
	name := shapeTag(v.Type()).Get("payload")
	if name == "" {
		return nil
	}

	f, _ := v.Type().FieldByName(name)
	if f.Tag.Get("type") == "blob" {
		return nil // streamed
	}

	body, err := readBody(r)
	if err != nil {
		return err
	}

	member := v.FieldByName(name)
	if text, ok := reflect.TypeAssert[*string](member); ok && text == nil {
		member.Set(reflect.ValueOf(new(string(body))))
		return nil
	}

	if len(body) == 0 {
		return nil
	}

	root, err := DecodeXML(bytes.NewReader(body), allocStruct(member).Addr().Interface())
	if err != nil {
		return err
	}

	if want := f.Tag.Get("locationName"); want != "" && root != want {
		return newErrorf(
			codeMalformedXML,
			"The XML you provided was not well-formed or did not validate against our published schema: "+
				"the root element is %s, not %s",
			root,
			want,
		)
	}

	return nil
}

// writeREST writes a REST response: members with a location as headers, a payload as the body, and the others
// as XML.
func writeREST(w http.ResponseWriter, meta *httpExchange, requestID string, a successResponse) (int, error) {
	v, ok := derefStruct(a.output)
	var body xmlWriter
	var stream io.ReadCloser
	if ok {
		var err error
		if stream, err = encodeRESTBody(&body, v, a); err != nil {
			return 0, err
		}

		setRESTHeaders(w.Header(), v)
	}

	meta.copyHeader(w)
	w.Header().Set("X-Amz-Request-Id", requestID)
	status := meta.status
	if status == 0 {
		status = http.StatusOK
	}

	if stream != nil {
		defer func() { _ = stream.Close() }()
		w.WriteHeader(status)
		if meta.request.Method == http.MethodHead {
			return status, nil
		}

		_, err := io.Copy(w, stream)

		return status, err
	}

	if body.buf.Len() > 0 && w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/xml")
	}

	if status != http.StatusNoContent && meta.request.Method != http.MethodHead {
		w.Header().Set("Content-Length", strconv.Itoa(body.buf.Len()))
	}

	w.WriteHeader(status)
	_, err := w.Write(body.buf.Bytes())

	return status, err
}

// encodeRESTBody encodes the body of the output v, or returns the stream that is its body. It returns nil for
// no stream.
func encodeRESTBody(w *xmlWriter, v reflect.Value, a successResponse) (io.ReadCloser, error) {
	tag := shapeTag(v.Type())
	root := a.route.RootElement
	if name := tag.Get("payload"); name != "" {
		member := v.FieldByName(name)
		switch x := member.Interface().(type) {
		case io.ReadCloser:
			return x, nil
		case *string:
			if x != nil {
				w.writeRaw(*x)
			}

			return nil, nil
		}

		if isUnset(member) {
			return nil, nil
		}

		f, _ := v.Type().FieldByName(name)
		if root == "" {
			root = memberName(f)
		}

		v = member.Elem()
	} else if !hasBodyMembers(v) {
		return nil, nil
	}

	if root == "" {
		root = a.op + "Result"
	}

	w.writeDeclaration()
	w.openElement(root, ` xmlns="`+a.namespace+`"`)
	if err := w.writeMembers(v); err != nil {
		return nil, fmt.Errorf("encode the output of %s: %w", a.op, err)
	}

	w.closeElement(root)

	return nil, nil
}

// hasBodyMembers reports whether a shape has members that are in the body.
func hasBodyMembers(v reflect.Value) bool {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.IsExported() && f.Tag.Get("location") == "" {
			return true
		}
	}

	return false
}

func setRESTHeaders(h http.Header, v reflect.Value) {
	_ = eachMember(v, func(f reflect.StructField, member reflect.Value) error { // never fails
		if isUnset(member) {
			return nil
		}

		name := f.Tag.Get("locationName")

		switch f.Tag.Get("location") {
		case "header":
			if isScalarType(member.Type()) {
				h.Set(name, scalarText(member, f.Tag, rfc822))
			}

		case "headers":
			if m, ok := reflect.TypeAssert[map[string]*string](member); ok {
				for k, text := range m {
					h[name+k] = []string{*text} // in lower case, as S3 writes it
				}
			}
		}

		return nil
	})
}
