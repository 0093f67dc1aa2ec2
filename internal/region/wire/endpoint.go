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

// maxBodyBytes is the most that a request of a service other than S3 may hold, in bytes.
const maxBodyBytes = 4 << 20

// Route is what a REST request means: the operation, the members that travel in its path, and the name of the root
// element of its answer.
type Route struct {
	Op          string
	Path        map[string]string // by member, such as Bucket and Key
	RootElement string            // such as ListBucketResult; empty means Op + "Result"
}

// Endpoint answers HTTP requests to one service.
type Endpoint struct {
	Service    Service
	operations map[string]Op
}

// NewEndpoint makes the endpoint of a service.
func NewEndpoint(s Service) *Endpoint {
	ops := make(map[string]Op, len(s.Ops))
	for _, op := range s.Ops {
		ops[op.Name] = op
	}

	return &Endpoint{Service: s, operations: ops}
}

// CallResult says what became of a request, for the log and for counters. Err is nil for a success.
type CallResult struct {
	Op     string
	Status int
	Err    error
}

// Serve answers a request whose signature has been checked and whose caller and authorizer are in r's context.
// before, where not nil, runs once the operation is known and may refuse it.
func (e *Endpoint) Serve(
	w http.ResponseWriter,
	r *http.Request,
	requestID string,
	before func(op string) error,
) CallResult {
	meta := &httpExchange{request: r, header: http.Header{}}
	ctx := context.WithValue(r.Context(), exchangeKey{}, meta)
	op, route, out, err := e.handleRequest(ctx, r, before)
	result := CallResult{Op: op, Err: err}
	if err == nil {
		result.Status, err = e.writeResponse(w, meta, requestID, successResponse{
			op:        op,
			route:     route,
			output:    out,
			namespace: e.Service.Namespace,
		})

		result.Err = err
		if result.Status != 0 {
			return result
		}
	}

	shown := toAWSError(e.Service.Protocol, err)
	WriteError(w, r, e.Service, shown, requestID)
	result.Status = shown.Status

	return result
}

// handleRequest decodes, authorises and carries out a request.
func (e *Endpoint) handleRequest(
	ctx context.Context,
	r *http.Request,
	before func(string) error,
) (string, Route, any, error) { //revive:disable-line:function-result-limit
	name, route, decode, err := e.parseRequest(r)
	if err != nil {
		return name, route, nil, err
	}

	op, ok := e.operations[name]
	if !ok {
		return name, route, nil, e.newUnknownOperationError(name)
	}

	if before != nil {
		if err := before(name); err != nil {
			return name, route, nil, err
		}
	}

	in := op.NewInput()
	if err := decode(in); err != nil {
		return name, route, nil, err
	}

	if err := e.authorizeRequest(ctx, name, in); err != nil {
		return name, route, nil, err
	}

	if e.Service.Protocol == EC2Query && isDryRun(in) {
		return name, route, nil, &Error{
			Code: "DryRunOperation", Status: http.StatusPreconditionFailed,
			Message: "Request would have succeeded, but DryRun flag is set.",
		}
	}

	out, err := op.Handle(ctx, in)

	return name, route, out, err
}

func (e *Endpoint) newUnknownOperationError(name string) error {
	switch e.Service.Protocol {
	case JSON:
		return Errorf("UnknownOperationException", "the operation %s is not known", name)
	case S3Protocol:
		return &Error{
			Code:    "NotImplemented",
			Message: "A header or query you provided implies functionality that is not implemented: " + name,
			Status:  http.StatusNotImplemented,
		}

	default:
		return Errorf("InvalidAction", "The action %s is not valid for this web service.", name)
	}
}

func (e *Endpoint) authorizeRequest(ctx context.Context, op string, in any) error {
	if e.Service.Authorize != nil {
		return e.Service.Authorize(ctx, op, in)
	}

	return Authorize(ctx, Check{Action: e.Service.Name + ":" + op, Resource: "*"})
}

// isDryRun tells whether an EC2 request asks only for permission.
func isDryRun(in any) bool {
	f := reflect.ValueOf(in).Elem().FieldByName("DryRun")
	if !f.IsValid() {
		return false
	}

	b, ok := reflect.TypeAssert[*bool](f)

	return ok && b != nil && *b
}

// parseRequest finds the operation and a function that decodes its input.
func (e *Endpoint) parseRequest(
	r *http.Request,
) (op string, route Route, decode func(any) error, err error) { //revive:disable-line:function-result-limit
	if e.Service.Protocol == S3Protocol || e.Service.Protocol == RESTProtocol {
		route, err = e.Service.Route(r)
		return route.Op, route, func(in any) error { return decodeREST(r, route, in) }, err
	}

	body, err := readBody(r)
	if err != nil {
		return "", route, nil, err
	}

	if e.Service.Protocol == JSON {
		target := r.Header.Get("X-Amz-Target")
		op, ok := strings.CutPrefix(target, e.Service.Target+".")
		if !ok {
			return "", route, nil, Errorf("UnknownOperationException", "the target %s is not known", target)
		}

		return op, route, func(in any) error { return DecodeJSON(body, in) }, nil
	}

	form, err := readForm(r, body)
	if err != nil {
		return "", route, nil, err
	}

	op = form.Get("Action")
	version := form.Get("Version")
	form.Del("Action")
	form.Del("Version")
	if op == "" {
		return "", route, nil, Errorf(
			"MissingAction",
			"The request is missing an action or a required parameter.",
		)
	}

	if version != "" && version != e.Service.Version {
		return op, route, nil, Errorf(
			"InvalidAction",
			"The action %s is not valid for version %s of this web service.",
			op,
			version,
		)
	}

	return op, route, func(in any) error { return DecodeForm(e.Service.Protocol, form, in) }, nil
}

// readBody reads the whole body, which the signature's check has put back.
func readBody(r *http.Request) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}

	body, err := io.ReadAll(io.LimitReader(r.Body, maxBodyBytes+1))
	if err != nil {
		return nil, toReadError(err)
	}

	if len(body) > maxBodyBytes {
		return nil, &Error{
			Code:    "RequestEntityTooLarge",
			Message: "the request's body is too large",
			Status:  http.StatusRequestEntityTooLarge,
		}
	}

	return body, nil
}

func toReadError(err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}

	return Errorf("IncompleteBody", "the request's body ended early")
}

// readForm joins the parameters of the query string and of the body. Those of a presigned signature are left out.
func readForm(r *http.Request, body []byte) (url.Values, error) {
	form, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, Errorf("MalformedQueryString", "the query string is malformed")
	}

	for name := range form {
		if strings.HasPrefix(name, "X-Amz-") {
			form.Del(name)
		}
	}

	more, err := url.ParseQuery(string(bytes.TrimSpace(body)))
	if err != nil {
		return nil, Errorf("MalformedQueryString", "the form in the body is malformed")
	}

	for name, values := range more {
		form[name] = append(form[name], values...)
	}

	return form, nil
}

type successResponse struct {
	op     string
	route  Route
	output any
	// namespace of a REST answer's root element
	namespace string
}

// writeResponse writes a success. It returns status 0 where nothing was written, because the answer could not be encoded.
func (e *Endpoint) writeResponse(
	w http.ResponseWriter,
	meta *httpExchange,
	requestID string,
	a successResponse,
) (int, error) {
	if e.Service.Protocol == S3Protocol || e.Service.Protocol == RESTProtocol {
		return writeREST(w, meta, requestID, a)
	}

	var body []byte
	var err error
	contentType := xmlContentType

	switch e.Service.Protocol {
	case EC2Query:
		body, err = EncodeEC2(e.Service.Namespace, a.op, requestID, a.output)
	case JSON:
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

// WriteError writes err as the service's clients expect it.
func WriteError(w http.ResponseWriter, r *http.Request, s Service, err error, requestID string) {
	e := toAWSError(s.Protocol, err)
	body, contentType := EncodeError(s, e, requestID, r.URL.Path)
	h := w.Header()
	h.Set("X-Amzn-Requestid", requestID)
	h.Set("X-Amz-Request-Id", requestID)
	if s.Protocol == JSON {
		h.Set("X-Amzn-Errortype", e.Code)
	}

	if e.Status == http.StatusNotModified || r.Method == http.MethodHead {
		w.WriteHeader(e.Status)
		return
	}

	h.Set("Content-Type", contentType)
	w.WriteHeader(e.Status)
	_, _ = w.Write(body) // the client may be gone: there is nobody left to tell
}

// httpExchange is what a handler may know and say beyond its shapes.
type httpExchange struct {
	request *http.Request
	header  http.Header
	status  int
}

type exchangeKey struct{}

func (x *httpExchange) copyHeader(w http.ResponseWriter) {
	maps.Copy(w.Header(), x.header)
}

// HTTPRequest is the HTTP request that ctx belongs to, for what aws-sdk-go v1's shapes do not know: newer headers and a
// streamed body. It is nil outside of a request.
func HTTPRequest(ctx context.Context) *http.Request {
	if x, ok := ctx.Value(exchangeKey{}).(*httpExchange); ok {
		return x.request
	}

	return nil
}

// SetResponseHeader sets a header of the answer.
func SetResponseHeader(ctx context.Context, name, value string) {
	if x, ok := ctx.Value(exchangeKey{}).(*httpExchange); ok {
		x.header.Set(name, value)
	}
}

// SetResponseStatus sets the status of a REST answer; without it, it is 200.
func SetResponseStatus(ctx context.Context, status int) {
	if x, ok := ctx.Value(exchangeKey{}).(*httpExchange); ok {
		x.status = status
	}
}
