// SPDX-License-Identifier: Apache-2.0

// Package wire speaks AWS's wire protocols (query, EC2 query, REST-XML, JSON 1.1) on the server's side:
// it checks signatures, decodes a request into the shape that aws-sdk-go v1 publishes for the operation, calls
// its handler and encodes the answer or the error. It knows no service's behaviour.
package wire

import (
	"context"
	"fmt"
	"net/http"
)

// Protocol is one of AWS's wire protocols.
type Protocol string

// The protocols in use.
const (
	Query        Protocol = "query"    // autoscaling, elasticloadbalancing, iam, sts
	EC2Query     Protocol = "ec2query" // ec2
	S3Protocol   Protocol = "rest-xml" // s3, with its own signatures, errors and streams
	RESTProtocol Protocol = "rest"     // rest-xml of all others: route53
	JSON         Protocol = "json"     // kms, ssm
)

// Op is one operation of a service.
type Op struct {
	Name     string     // as on the wire, such as RunInstances
	NewInput func() any // a new, empty input shape
	Handle   func(ctx context.Context, in any) (any, error)
}

// Operation makes an [Op] from a typed handler. I and O are aws-sdk-go v1 shapes such as ec2.RunInstancesInput.
func Operation[I, O any](name string, do func(context.Context, *I) (*O, error)) Op {
	return Op{
		Name:     name,
		NewInput: func() any { return new(I) },
		Handle: func(ctx context.Context, in any) (any, error) {
			i, ok := in.(*I)
			if !ok {
				return nil, fmt.Errorf("operation %s: input is %T", name, in)
			}

			return do(ctx, i)
		},
	}
}

// Service is what one AWS service answers to.
type Service struct {
	Name      string   // signing name, such as ec2 or elasticloadbalancing
	Protocol  Protocol // how it speaks
	Version   string   // API version, such as 2016-11-15
	Namespace string   // XML namespace of answers
	Target    string   // prefix of X-Amz-Target, for JSON
	Ops       []Op
	// Authorize, where set, says whether the caller may do op with in; nil uses the region's IAM with resource "*".
	// It runs before the handler; see [Authorize] and [Check].
	Authorize func(ctx context.Context, op string, in any) error
	// Route finds the operation of a REST request. Services of the other protocols leave it nil.
	Route func(r *http.Request) (Route, error)
}

// Error is an AWS error as a client sees it.
type Error struct {
	Code    string // such as InvalidGroup.NotFound
	Message string
	Status  int // HTTP status; 0 means 400
}

// Error implements error.
func (e *Error) Error() string { return e.Code + ": " + e.Message }

// Errorf makes an [Error] with status 400.
func Errorf(code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Caller is who signed a request.
type Caller struct {
	Account     string // 12 digits
	ARN         string // such as arn:aws:sts::000000000000:assumed-role/NAME/i-0123
	UserID      string
	AccessKeyID string
	Role        string // name of the assumed role; empty for a user or the root
	Session     string // role session name; an instance's id for an instance's role
	Root        bool   // the account's root user, who may do everything
	System      bool   `json:",omitempty"` // the region itself; set by [SystemCaller] only
}

// SystemCaller returns the caller of work that the region does for itself, such as deleting a stack with the stack's own
// role. It may do everything. A request never has it.
func SystemCaller() Caller { return Caller{System: true} }

// AnonymousCaller returns the caller of a request without a signature, which only S3 accepts.
func AnonymousCaller() Caller { return Caller{UserID: "anonymous"} }

// IsUnrestricted reports whether the caller may do everything without a policy: the account's root and the region itself.
// The zero Caller is not unrestricted.
func (c Caller) IsUnrestricted() bool { return c.Root || c.System }

// IsAnonymous reports whether the caller has no identity: a request without a signature, or a context without a caller.
func (c Caller) IsAnonymous() bool { return c == (Caller{}) || c == AnonymousCaller() }

type callerKey struct{}

// WithCaller returns ctx carrying c.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerFrom returns the caller in ctx, or the zero Caller, to which everything is denied.
func CallerFrom(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}
