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

// EncodeQuery encodes the output of op in the query protocol. The response has a result element even if the
// output has no members: SDKs look for it if their model has one, and skip it if not.
func EncodeQuery(namespace, op, requestID string, out any) ([]byte, error) {
	var w xmlWriter
	w.writeDeclaration()
	w.openElement(op+"Response", ` xmlns="`+namespace+`"`)
	if v, ok := derefStruct(out); ok {
		w.openElement(op+"Result", "")
		if err := w.writeResultMembers(v); err != nil {
			return nil, fmt.Errorf("encode the output of %s: %w", op, err)
		}

		w.closeElement(op + "Result")
	}

	w.openElement("ResponseMetadata", "")
	w.writeText("RequestId", requestID)
	w.closeElement("ResponseMetadata")
	w.closeElement(op + "Response")

	return w.buf.Bytes(), nil
}

// EncodeEC2 encodes the output of op in the EC2 query protocol. As in EC2, the response for an output without
// members is <return>true</return>.
func EncodeEC2(namespace, op, requestID string, out any) ([]byte, error) {
	var w xmlWriter
	w.writeDeclaration()
	w.openElement(op+"Response", ` xmlns="`+namespace+`"`)
	w.writeText("requestId", requestID)
	v, ok := derefStruct(out)
	if ok && v.NumField() > 1 {
		if err := w.writeResultMembers(v); err != nil {
			return nil, fmt.Errorf("encode the output of %s: %w", op, err)
		}
	} else {
		w.writeText("return", "true")
	}

	w.closeElement(op + "Response")

	return w.buf.Bytes(), nil
}

// derefStruct returns the struct that out points to. ok is false if out is not such a pointer.
func derefStruct(out any) (reflect.Value, bool) {
	v := reflect.ValueOf(out)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return reflect.Value{}, false
	}

	return v.Elem(), true
}

// toAWSError returns an error as clients of protocol p see it. The text of an error that is not an [Error]
// stays in the log.
func toAWSError(p Protocol, err error) *Error {
	e, ok := errors.AsType[*Error](err)

	switch {
	case ok:
		c := *e
		e = &c
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		e = newStatusError(
			codeRequestTimeout,
			http.StatusRequestTimeout,
			"the request was canceled or timed out",
		)

	default:
		e = newStatusError(
			codeInternal,
			http.StatusInternalServerError,
			"the region failed to process the request; see its log for the cause",
		)
	}

	if e.Status == 0 {
		e.Status = http.StatusBadRequest
	}

	if e.Code == string(codeAccessDenied) {
		setDeniedCode(p, e)
	}

	return e
}

// setDeniedCode gives an AccessDenied error the code and status of the protocol.
func setDeniedCode(p Protocol, e *Error) {
	switch p {
	case EC2QueryProtocol:
		e.Code = string(codeUnauthorizedOperation)
		e.Message = "You are not authorized to perform this operation. " + e.Message
	case JSONProtocol:
		e.Code = string(codeAccessDeniedException)
		e.Status = http.StatusBadRequest
	case RESTJSONProtocol:
		e.Code = string(codeAccessDeniedException)
	default:
	}
}

// EncodeError encodes an error as the body of a response, and returns its content type.
func EncodeError(s Service, e *Error, requestID string) (body []byte, contentType string) {
	var w xmlWriter
	w.writeDeclaration()
	switch s.Protocol {
	case JSONProtocol:
		b, err := json.Marshal(map[string]string{"__type": e.Code, "message": e.Message})
		if err != nil { // cannot happen with strings
			b = []byte(`{"__type":"InternalFailure"}`)
		}

		return b, jsonContentType

	case RESTJSONProtocol:
		return encodeRESTJSONError(e), restJSONContentType
	case EC2QueryProtocol:
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
		for _, d := range e.Details {
			w.writeText(d.Name, d.Value)
		}

		w.writeText("RequestId", requestID)
		w.writeText("HostId", requestID)
		w.writeRaw("</Error>")

	case QueryProtocol, RESTProtocol:
		fault := "Sender"
		if e.Status >= http.StatusInternalServerError {
			fault = "Receiver"
		}

		w.openElement("ErrorResponse", ` xmlns="`+s.Namespace+`"`)
		w.writeRaw("<Error><Type>" + fault + "</Type>")
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
