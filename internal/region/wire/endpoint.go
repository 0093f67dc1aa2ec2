// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"strings"
)

// maxBodyBytes is the maximum size of the body of a request to a service other than S3.
const maxBodyBytes = 4 << 20

// Route is the operation of a REST request.
type Route struct {
	Op          string            // name of the operation
	Path        map[string]string // the members of the input in the path, such as Bucket and Key
	RootElement string            // of the response, such as ListBucketResult; empty means Op + "Result"
	// Names are the query parameters that select the operation, and the headers that the service reads
	// although its shapes do not have them, in lower case.
	Names []string
}

// Endpoint serves HTTP requests to one service. It may be used concurrently.
type Endpoint struct {
	Service    Service              // as given to NewEndpoint
	operations map[string]Operation // by name
}

// NewEndpoint returns the endpoint of a service.
func NewEndpoint(s Service) *Endpoint {
	ops := make(map[string]Operation, len(s.Operations))
	for _, op := range s.Operations {
		ops[op.Name] = op
	}

	return &Endpoint{Service: s, operations: ops}
}

// AcceptsUnsigned reports whether a request of the query protocol is for an operation that needs no signature. It
// reads the body, and leaves it for [Endpoint.Serve].
func (e *Endpoint) AcceptsUnsigned(r *http.Request) (bool, error) {
	if e.Service.Protocol != QueryProtocol {
		return false, nil
	}

	body, err := readBody(r)
	if err != nil {
		return false, err
	}

	r.Body = io.NopCloser(bytes.NewReader(body))
	form, err := readForm(r, body)

	return err == nil && e.operations[form.Get("Action")].Unsigned, err
}

// CallResult is the result of a request, for the log and for counters.
type CallResult struct {
	Op     string // name of the operation; empty if the request has none
	Status int    // HTTP status
	Err    error  // nil for success
}

// Serve serves a request whose signature has been verified and whose caller and authorizer are in r's
// context. before may be nil. It is called when the operation is known, and its error rejects the request.
func (e *Endpoint) Serve(
	w http.ResponseWriter,
	r *http.Request,
	requestID string,
	before func(op string) error,
) CallResult {
	meta := &httpExchange{request: r, header: http.Header{}}
	ctx := context.WithValue(r.Context(), exchangeKey{}, meta)
	call, out, err := e.handleRequest(ctx, r, before)
	result := CallResult{Op: call.op, Err: err}
	if err == nil {
		result.Status, err = e.writeResponse(w, meta, requestID, successResponse{
			op:        call.op,
			route:     call.route,
			output:    out,
			namespace: e.Service.Namespace,
		})

		result.Err = err
		if result.Status != 0 {
			return result
		}
	}

	shown := toAWSError(e.Service.Protocol, err)
	meta.copyHeader(w)
	WriteError(w, r, e.Service, shown, requestID)
	result.Status = shown.Status

	return result
}

// parsedRequest is a request whose operation is known and whose input is not decoded yet.
type parsedRequest struct {
	op     string
	route  Route                 // of a REST request
	decode func(input any) error // decodes and validates the input
}

// handleRequest decodes, authorizes and runs a request. It returns the output shape.
func (e *Endpoint) handleRequest(
	ctx context.Context,
	r *http.Request,
	before func(string) error,
) (parsedRequest, any, error) {
	call, err := e.parseRequest(r)
	if err != nil {
		return call, nil, err
	}

	op, ok := e.operations[call.op]
	if !ok {
		return call, nil, e.newUnknownOperationError(call.op)
	}

	if before != nil {
		if err := before(call.op); err != nil {
			return call, nil, err
		}
	}

	in := op.NewInput()
	if err := call.decode(in); err != nil {
		return call, nil, err
	}

	if err := e.Service.Model.checkInput(e.Service.Protocol, in); err != nil {
		return call, nil, err
	}

	if err := e.authorizeRequest(ctx, call.op, in); err != nil {
		return call, nil, err
	}

	if e.Service.Protocol == EC2QueryProtocol && isDryRun(in) {
		return call, nil, newStatusError(
			codeDryRunOperation,
			http.StatusPreconditionFailed,
			"Request would have succeeded, but DryRun flag is set.",
		)
	}

	out, err := op.Handle(ctx, in)

	return call, out, err
}

func (e *Endpoint) newUnknownOperationError(name string) error {
	switch e.Service.Protocol {
	case JSONProtocol, RESTJSONProtocol:
		return newErrorf(codeUnknownOperationException, "the operation %s is not known", name)
	case S3Protocol:
		return NotImplemented(name)
	default:
		return newErrorf(
			codeInvalidAction,
			"The action %s is not valid for this web service.",
			name,
		)
	}
}

func (e *Endpoint) authorizeRequest(ctx context.Context, op string, in any) error {
	if e.Service.Authorize != nil {
		return e.Service.Authorize(ctx, op, in)
	}

	return Authorize(ctx, AccessCheck{Action: e.Service.Name + ":" + op, Resource: "*"})
}

// isDryRun reports whether the DryRun flag of an EC2 request is set.
func isDryRun(in any) bool {
	f := reflect.ValueOf(in).Elem().FieldByName("DryRun")
	if !f.IsValid() {
		return false
	}

	b, ok := reflect.TypeAssert[*bool](f)

	return ok && b != nil && *b
}

// parseRequest finds the operation of a request.
func (e *Endpoint) parseRequest(r *http.Request) (parsedRequest, error) {
	if e.Service.Route != nil {
		decode := decodeREST
		if e.Service.Protocol == RESTJSONProtocol {
			decode = decodeRESTJSON
		}

		route, err := e.Service.Route(r)

		return parsedRequest{
			op:     route.Op,
			route:  route,
			decode: func(in any) error { return decode(r, route, in) },
		}, err
	}

	body, err := readBody(r)
	if err != nil {
		return parsedRequest{}, err
	}

	if e.Service.Protocol == JSONProtocol {
		target := r.Header.Get("X-Amz-Target")
		op, ok := strings.CutPrefix(target, e.Service.TargetPrefix+".")
		if !ok {
			return parsedRequest{}, newErrorf(
				codeUnknownOperationException,
				"the target %s is not known",
				target,
			)
		}

		return parsedRequest{op: op, decode: func(in any) error { return DecodeJSON(body, in) }}, nil
	}

	return e.parseForm(r, body)
}

// parseForm finds the operation of a request in the query or the EC2 query protocol.
func (e *Endpoint) parseForm(r *http.Request, body []byte) (parsedRequest, error) {
	form, err := readForm(r, body)
	if err != nil {
		return parsedRequest{}, err
	}

	op := form.Get("Action")
	version := form.Get("Version")
	form.Del("Action")
	form.Del("Version")
	if op == "" {
		return parsedRequest{}, newErrorf(
			codeMissingAction,
			"The request is missing an action or a required parameter.",
		)
	}

	if version != "" && version != e.Service.Version {
		return parsedRequest{op: op}, newErrorf(
			codeInvalidAction,
			"The action %s is not valid for version %s of this web service.",
			op,
			version,
		)
	}

	decode := func(in any) error { return DecodeForm(e.Service.Protocol, form, in) }

	return parsedRequest{op: op, decode: decode}, nil
}

// readBody reads the whole body of a request. The body can be read again after the signature was verified.
func readBody(r *http.Request) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}

	body, err := io.ReadAll(io.LimitReader(r.Body, maxBodyBytes+1))
	if err != nil {
		return nil, toReadError(err)
	}

	if len(body) > maxBodyBytes {
		return nil, newStatusError(
			codeRequestEntityTooLarge,
			http.StatusRequestEntityTooLarge,
			"the request's body is too large",
		)
	}

	return body, nil
}

func toReadError(err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}

	return newErrorf(codeIncompleteBody, "the request's body ended early")
}

// readForm returns the parameters of the query string and of the body, except those of a presigned signature.
func readForm(r *http.Request, body []byte) (url.Values, error) {
	form, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, newErrorf(codeMalformedQueryString, "the query string is malformed")
	}

	for name := range form {
		if strings.HasPrefix(name, "X-Amz-") {
			form.Del(name)
		}
	}

	more, err := url.ParseQuery(string(bytes.TrimSpace(body)))
	if err != nil {
		return nil, newErrorf(codeMalformedQueryString, "the form in the body is malformed")
	}

	for name, values := range more {
		form[name] = append(form[name], values...)
	}

	return form, nil
}

// successResponse is the response to an operation that succeeded.
type successResponse struct {
	op        string
	route     Route  // of a REST request
	output    any    // the output shape
	namespace string // of the root element of a REST response
}

// writeResponse writes the response of a success and returns its status. The status is 0 if nothing was
// written, because the output could not be encoded.
func (e *Endpoint) writeResponse(
	w http.ResponseWriter,
	meta *httpExchange,
	requestID string,
	a successResponse,
) (int, error) {
	switch e.Service.Protocol {
	case S3Protocol, RESTProtocol:
		return writeREST(w, meta, requestID, a)
	case RESTJSONProtocol:
		return writeRESTJSON(w, meta, requestID, a.output)
	default:
	}

	var body []byte
	var err error
	contentType := xmlContentType

	switch e.Service.Protocol {
	case EC2QueryProtocol:
		body, err = EncodeEC2(e.Service.Namespace, a.op, requestID, a.output)
	case JSONProtocol:
		body, err = EncodeJSON(a.output)
		contentType = jsonContentType
	default:
		body, err = EncodeQuery(e.Service.Namespace, a.op, requestID, a.output)
	}

	if err != nil {
		return 0, err
	}

	meta.copyHeader(w)
	w.Header().Set("X-Amzn-Requestid", requestID)
	w.Header().Set("Content-Type", contentType)
	_, err = w.Write(body)

	return http.StatusOK, err
}

// WriteError writes an error as the service's clients expect it.
func WriteError(w http.ResponseWriter, r *http.Request, s Service, err error, requestID string) {
	e := toAWSError(s.Protocol, err)
	body, contentType := EncodeError(s, e, requestID)
	h := w.Header()
	h.Set("X-Amzn-Requestid", requestID)
	h.Set("X-Amz-Request-Id", requestID)
	if s.Protocol == JSONProtocol || s.Protocol == RESTJSONProtocol {
		h.Set("X-Amzn-Errortype", e.Code)
	}

	if e.Status == http.StatusNotModified || r.Method == http.MethodHead {
		w.WriteHeader(e.Status)
		return
	}

	h.Set("Content-Type", contentType)
	w.WriteHeader(e.Status)
	_, _ = w.Write(body) // an error means that the client is gone
}

// httpExchange gives a handler access to the HTTP request and response, for what its shapes do not have.
type httpExchange struct {
	request *http.Request
	header  http.Header // of the response
	status  int         // of a REST response; 0 means 200
}

type exchangeKey struct{}

func (x *httpExchange) copyHeader(w http.ResponseWriter) {
	maps.Copy(w.Header(), x.header)
}

// HTTPRequest returns the HTTP request of ctx, for what the shapes of aws-sdk-go v1 do not have: newer
// headers, and a body that is a stream. It is nil outside of a request.
func HTTPRequest(ctx context.Context) *http.Request {
	if x, ok := ctx.Value(exchangeKey{}).(*httpExchange); ok {
		return x.request
	}

	return nil
}

// SetResponseHeader sets a header of the response. Outside of a request it does nothing.
func SetResponseHeader(ctx context.Context, name, value string) {
	if x, ok := ctx.Value(exchangeKey{}).(*httpExchange); ok {
		x.header.Set(name, value)
	}
}

// SetResponseStatus sets the status of a REST response. The default is 200.
func SetResponseStatus(ctx context.Context, status int) {
	if x, ok := ctx.Value(exchangeKey{}).(*httpExchange); ok {
		x.status = status
	}
}
