// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strconv"
)

const restJSONContentType = "application/json"

// decodeRESTJSON decodes a shape from the path, the query string and the headers, and from a body of JSON or, if the
// shape has a payload of bytes, from the body as it is.
func decodeRESTJSON(r *http.Request, route Route, in any) error {
	v := reflect.ValueOf(in).Elem()
	if err := checkRESTNames(r, route, v.Type()); err != nil {
		if e, ok := errors.AsType[*Error](err); ok {
			e.Status = http.StatusBadRequest // clients retry the status that S3 has
		}

		return err
	}

	if err := decodeLocated(r, route, v); err != nil {
		return err
	}

	body, err := readBody(r)
	if err != nil {
		return err
	}

	if payload, ok := blobPayload(v); ok {
		payload.SetBytes(body)
		return validateShape(RESTJSONProtocol, reflect.ValueOf(in), "")
	}

	if err := decodeJSONBody(body, in); err != nil {
		return err
	}

	return validateShape(RESTJSONProtocol, reflect.ValueOf(in), "")
}

// blobPayload returns the member of a shape that is the whole body. ok is false if the body is JSON.
func blobPayload(v reflect.Value) (payload reflect.Value, ok bool) {
	name := shapeTag(v.Type()).Get("payload")
	if name == "" {
		return reflect.Value{}, false
	}

	return v.FieldByName(name), true
}

// writeRESTJSON writes a response: members with a location as headers, the others as JSON, or a payload of bytes as the
// body. The status is 200 unless the handler set another one.
func writeRESTJSON(w http.ResponseWriter, meta *httpExchange, requestID string, out any) (int, error) {
	var body []byte
	if v, ok := derefStruct(out); ok {
		if payload, raw := blobPayload(v); raw {
			body = payload.Bytes()
		} else if encoded, err := EncodeJSON(out); err != nil {
			return 0, err
		} else {
			body = encoded
		}

		setRESTHeaders(w.Header(), v)
	}

	status := meta.status
	if status == 0 {
		status = http.StatusOK
	}

	meta.copyHeader(w)
	w.Header().Set("X-Amzn-Requestid", requestID)
	if status == http.StatusNoContent {
		w.WriteHeader(status)
		return status, nil
	}

	w.Header().Set("Content-Type", restJSONContentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, err := w.Write(body)

	return status, err
}

// encodeRESTJSONError returns the body of an error. Its code is in a header.
func encodeRESTJSONError(e *Error) []byte {
	fault := "User"
	if e.Status >= http.StatusInternalServerError {
		fault = "Service"
	}

	b, err := json.Marshal(map[string]string{"Type": fault, "message": e.Message})
	if err != nil { // cannot happen with strings
		return []byte("{}")
	}

	return b
}
