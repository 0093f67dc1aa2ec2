// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
)

const xmlHeader = `<?xml version="1.0" encoding="UTF-8"?>` + "\n"

// EncodeQuery is out as the answer to op in the query protocol. An answer without members has an empty result all the
// same: SDKs look for it where the model names one, and skip it where not.
func EncodeQuery(namespace, op, requestID string, out any) ([]byte, error) {
	var w xmlWriter
	w.begin()
	w.open(op+"Response", ` xmlns="`+namespace+`"`)
	if v, ok := pointee(out); ok {
		w.open(op+"Result", "")
		if err := w.members(v, true); err != nil {
			return nil, fmt.Errorf("encode answer to %s: %w", op, err)
		}

		w.close(op + "Result")
	}

	w.open("ResponseMetadata", "")
	w.text("RequestId", requestID)
	w.close("ResponseMetadata")
	w.close(op + "Response")

	return w.buf.Bytes(), nil
}

// EncodeEC2 is out as the answer to op in the EC2 query protocol. A shape without members is answered with
// <return>true</return>, as EC2 does.
func EncodeEC2(namespace, op, requestID string, out any) ([]byte, error) {
	var w xmlWriter
	w.begin()
	w.open(op+"Response", ` xmlns="`+namespace+`"`)
	w.text("requestId", requestID)
	v, ok := pointee(out)
	if ok && v.NumField() > 1 {
		if err := w.members(v, true); err != nil {
			return nil, fmt.Errorf("encode answer to %s: %w", op, err)
		}
	} else {
		w.text("return", "true")
	}

	w.close(op + "Response")

	return w.buf.Bytes(), nil
}

// pointee is the struct that out points to.
func pointee(out any) (reflect.Value, bool) {
	v := reflect.ValueOf(out)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return reflect.Value{}, false
	}

	return v.Elem(), true
}

// asError turns any error into the [Error] that the client of protocol p sees. What a service did not foresee is
// an internal error whose text stays in the log.
func asError(p Protocol, err error) *Error {
	var e *Error
	switch {
	case errors.As(err, &e):
		e = &Error{Code: e.Code, Message: e.Message, Status: e.Status}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		e = &Error{
			Code:    "RequestTimeout",
			Message: "the request was given up",
			Status:  http.StatusRequestTimeout,
		}

	default:
		e = &Error{
			Code:    "InternalError",
			Message: "the region failed to answer; its log says why",
			Status:  http.StatusInternalServerError,
		}
	}

	if e.Status == 0 {
		e.Status = http.StatusBadRequest
	}

	if e.Code == codeAccessDenied {
		deniedFor(p, e)
	}

	return e
}

// deniedFor gives a refusal the code that clients of p know.
func deniedFor(p Protocol, e *Error) {
	switch p {
	case EC2Query:
		e.Code, e.Message = "UnauthorizedOperation", "You are not authorized to perform this operation. "+e.Message
	case JSON:
		e.Code = "AccessDeniedException"
		e.Status = http.StatusBadRequest
	default:
	}
}

// EncodeError is e as the body of an error answer, with its content type.
func EncodeError(s Service, e *Error, requestID, resource string) (body []byte, contentType string) {
	var w xmlWriter
	w.begin()
	switch s.Protocol {
	case JSON:
		key := "message"
		b, err := json.Marshal(map[string]string{"__type": e.Code, key: e.Message})
		if err != nil { // two strings always marshal
			b = []byte(`{"__type":"InternalFailure"}`)
		}

		return b, jsonContent

	case EC2Query:
		w.raw("<Response><Errors><Error>")
		w.text("Code", e.Code)
		w.text("Message", e.Message)
		w.raw("</Error></Errors>")
		w.text("RequestID", requestID)
		w.raw("</Response>")

	case RESTXML:
		w.raw("<Error>")
		w.text("Code", e.Code)
		w.text("Message", e.Message)
		w.text("Resource", resource)
		w.text("RequestId", requestID)
		w.raw("</Error>")

	case Query, REST:
		who := "Sender"
		if e.Status >= http.StatusInternalServerError {
			who = "Receiver"
		}

		w.open("ErrorResponse", ` xmlns="`+s.Namespace+`"`)
		w.raw("<Error><Type>" + who + "</Type>")
		w.text("Code", e.Code)
		w.text("Message", e.Message)
		w.raw("</Error>")
		w.text("RequestId", requestID)
		w.close("ErrorResponse")
	}

	return w.buf.Bytes(), xmlContent
}

const (
	xmlContent  = "text/xml;charset=UTF-8"
	jsonContent = "application/x-amz-json-1.1"
)
