// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"net/http"
	"net/url"
	"reflect"
)

// Call carries out one operation of s as if the caller in ctx had sent it: it fills a new input shape, checks it, asks
// whether the caller may and runs the handler. It is how one service of the region uses another for a caller.
func Call(ctx context.Context, s Service, op string, fill func(in any) error) (any, error) {
	for _, o := range s.Ops {
		if o.Name == op {
			return invokeOperation(ctx, s, o, fill)
		}
	}

	return nil, (&Endpoint{Service: s}).newUnknownOperationError(op)
}

func invokeOperation(ctx context.Context, s Service, o Op, fill func(in any) error) (any, error) {
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

	if err := (&Endpoint{Service: s}).authorizeRequest(ctx, o.Name, in); err != nil {
		return nil, err
	}

	return o.Handle(ctx, in)
}

// Refusal is err as a client of s would see it: the code that the service's protocol uses, and the HTTP status.
func Refusal(s Service, err error) *Error { return toAWSError(s.Protocol, err) }

type systemTagsKey struct{}

// WithSystemTags returns ctx carrying tags that AWS itself puts on what the call makes, such as those that name a stack.
// Clients cannot give them: their keys begin with aws:.
func WithSystemTags(ctx context.Context, tags map[string]string) context.Context {
	return context.WithValue(ctx, systemTagsKey{}, tags)
}

// SystemTags are the tags of [WithSystemTags]; nil where there are none.
func SystemTags(ctx context.Context) map[string]string {
	tags, _ := ctx.Value(systemTagsKey{}).(map[string]string) // none is nil
	return tags
}
