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
	w.writeDeclaration()
	w.openElement(op+"Response", ` xmlns="`+namespace+`"`)
	if v, ok := derefStruct(out); ok {
		w.openElement(op+"Result", "")
		if err := w.writeMembers(v, true); err != nil {
			return nil, fmt.Errorf("encode answer to %s: %w", op, err)
		}

		w.closeElement(op + "Result")
	}

	w.openElement("ResponseMetadata", "")
	w.writeText("RequestId", requestID)
	w.closeElement("ResponseMetadata")
	w.closeElement(op + "Response")

	return w.buf.Bytes(), nil
}

// EncodeEC2 is out as the answer to op in the EC2 query protocol. A shape without members is answered with
// <return>true</return>, as EC2 does.
func EncodeEC2(namespace, op, requestID string, out any) ([]byte, error) {
	var w xmlWriter
	w.writeDeclaration()
	w.openElement(op+"Response", ` xmlns="`+namespace+`"`)
	w.writeText("requestId", requestID)
	v, ok := derefStruct(out)
	if ok && v.NumField() > 1 {
		if err := w.writeMembers(v, true); err != nil {
			return nil, fmt.Errorf("encode answer to %s: %w", op, err)
		}
	} else {
		w.writeText("return", "true")
	}

	w.closeElement(op + "Response")

	return w.buf.Bytes(), nil
}

// derefStruct is the struct that out points to.
func derefStruct(out any) (reflect.Value, bool) {
	v := reflect.ValueOf(out)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return reflect.Value{}, false
	}

	return v.Elem(), true
}

// toAWSError turns any error into the [Error] that the client of protocol p sees. What a service did not foresee is
// an internal error whose text stays in the log.
func toAWSError(p Protocol, err error) *Error {
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
		setDeniedCode(p, e)
	}

	return e
}

// setDeniedCode gives a refusal the code that clients of p know.
func setDeniedCode(p Protocol, e *Error) {
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
	w.writeDeclaration()
	switch s.Protocol {
	case JSON:
		key := "message"
		b, err := json.Marshal(map[string]string{"__type": e.Code, key: e.Message})
		if err != nil { // two strings always marshal
			b = []byte(`{"__type":"InternalFailure"}`)
		}

		return b, jsonContentType

	case EC2Query:
		w.writeRaw("<Response><Errors><Error>")
		w.writeText("Code", e.Code)
		w.writeText("Message", e.Message)
		w.writeRaw("</Error></Errors>")
		w.writeText("RequestID", requestID)
		w.writeRaw("</Response>")

	case S3Protocol:
		w.writeRaw("<Error>")
		w.writeText("Code", e.Code)
		w.writeText("Message", e.Message)
		w.writeText("Resource", resource)
		w.writeText("RequestId", requestID)
		w.writeRaw("</Error>")

	case Query, RESTProtocol:
		who := "Sender"
		if e.Status >= http.StatusInternalServerError {
			who = "Receiver"
		}

		w.openElement("ErrorResponse", ` xmlns="`+s.Namespace+`"`)
		w.writeRaw("<Error><Type>" + who + "</Type>")
		w.writeText("Code", e.Code)
		w.writeText("Message", e.Message)
		w.writeRaw("</Error>")
		w.writeText("RequestId", requestID)
		w.closeElement("ErrorResponse")
	}

	return w.buf.Bytes(), xmlContentType
}

const (
	xmlContentType  = "text/xml;charset=UTF-8"
	jsonContentType = "application/x-amz-json-1.1"
)
