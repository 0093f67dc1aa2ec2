// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"net/http"
	"net/url"
	"reflect"
)

// CallOperation runs one operation of a service as if the caller in ctx had sent the request: it creates an input
// shape, calls fill, validates the input, checks the authorization and runs the handler. Services of the
// region use it to call each other on behalf of a caller. The result is the output shape.
func CallOperation(ctx context.Context, s Service, op string, fill func(in any) error) (any, error) {
	for _, o := range s.Operations {
		if o.Name == op {
			return invokeOperation(ctx, s, o, fill)
		}
	}

	return nil, (&Endpoint{Service: s}).newUnknownOperationError(op)
}

func invokeOperation(ctx context.Context, s Service, o Operation, fill func(in any) error) (any, error) {
	r := &http.Request{Method: http.MethodPost, URL: &url.URL{}, Header: http.Header{}}
	ctx = context.WithValue(
		ctx,
		exchangeKey{},
		&httpExchange{request: r.WithContext(ctx), header: http.Header{}},
	)
	in := o.NewInput()
	if err := fill(in); err != nil {
		return nil, err
	}

	if err := validateShape(s.Protocol, reflect.ValueOf(in), ""); err != nil {
		return nil, err
	}

	if err := s.Model.checkInput(s.Protocol, in); err != nil {
		return nil, err
	}

	if err := (&Endpoint{Service: s}).authorizeRequest(ctx, o.Name, in); err != nil {
		return nil, err
	}

	return o.Handle(ctx, in)
}

// ToClientError returns err as a client of s sees it, with the code of the service's protocol and the HTTP status.
func ToClientError(s Service, err error) *Error { return toAWSError(s.Protocol, err) }

type systemTagsKey struct{}

// WithSystemTags returns a context with tags that AWS itself sets on the resources that a call creates, such
// as aws:cloudformation:stack-name. Requests cannot set them.
func WithSystemTags(ctx context.Context, tags map[string]string) context.Context {
	return context.WithValue(ctx, systemTagsKey{}, tags)
}

// SystemTags returns the tags of [WithSystemTags]; nil if there are none.
func SystemTags(ctx context.Context) map[string]string {
	tags, _ := ctx.Value(systemTagsKey{}).(map[string]string)
	return tags
}
