// SPDX-License-Identifier: Apache-2.0

// Package wire is the server side of AWS's wire protocols: query, EC2 query, REST-XML, JSON 1.1 and REST-JSON.
//
// A [Service] lists the operations of one AWS service. The input and output of an operation are shapes: the
// structs of aws-sdk-go v1, whose tags describe how members are encoded. An [Endpoint] serves a Service: it
// decodes a request to an input shape, validates it, checks the authorization, calls the handler, and encodes
// the output or the error. A [Verifier] verifies signatures (version 4) before that. The package does not
// know the behaviour of any service.
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
	QueryProtocol    Protocol = "query"    // autoscaling, elasticloadbalancing, iam, sts
	EC2QueryProtocol Protocol = "ec2query" // ec2
	S3Protocol       Protocol = "rest-xml" // s3, with its own signatures, errors and streams
	RESTProtocol     Protocol = "rest"     // rest-xml of other services: route53
	JSONProtocol     Protocol = "json"     // events, kms, logs, ssm
	RESTJSONProtocol Protocol = "restjson" // lambda
)

// Operation is one operation of a service.
type Operation struct {
	Name      string     // such as RunInstances
	NewInput  func() any // returns a new, empty input shape
	NewOutput func() any // returns a new, empty output shape, of which Handle returns another one
	// Handle runs the operation. Its error is an [Error] if clients should see it, and else an internal
	// error.
	Handle func(ctx context.Context, in any) (any, error)
	// Unsigned operations of the query protocol also accept requests without a signature, whose caller is
	// [AnonymousCaller]: the input proves who sent them.
	Unsigned bool
}

// NewOperation returns an [Operation] for a typed handler. I and O are shapes of aws-sdk-go v1, such as
// ec2.RunInstancesInput.
func NewOperation[I, O any](name string, do func(context.Context, *I) (*O, error)) Operation {
	return Operation{
		Name:      name,
		NewInput:  func() any { return new(I) },
		NewOutput: func() any { return new(O) },
		Handle: func(ctx context.Context, in any) (any, error) {
			i, ok := in.(*I)
			if !ok {
				return nil, fmt.Errorf("operation %s: input is %T", name, in)
			}

			return do(ctx, i)
		},
	}
}

// Service describes one AWS service.
type Service struct {
	Name         string      // signing name, such as ec2 or elasticloadbalancing
	Protocol     Protocol    // wire protocol
	Version      string      // API version, such as 2016-11-15
	Namespace    string      // XML namespace of responses; empty for JSON
	TargetPrefix string      // prefix of the header X-Amz-Target, for JSON only
	Operations   []Operation // the operations, in any order
	// Authorize checks whether the caller may do op with the input in. It runs before the handler; see
	// [Authorize] and [AccessCheck]. If it is nil, the check is NAME:OP on the resource "*".
	Authorize func(ctx context.Context, op string, in any) error
	// Model is checked before the handlers run; nil checks nothing.
	Model *Model
	// Route finds the operation of a REST request. It is nil for the other protocols.
	Route func(r *http.Request) (Route, error)
}

// Error is an error that clients see. Other errors are internal: clients see InternalError, and the log has
// the text.
type Error struct {
	Code    string        // such as InvalidGroup.NotFound
	Message string        // text for people
	Status  int           // HTTP status; 0 means 400
	Details []ErrorDetail // further elements of S3's errors, in the order of S3; nil for none
}

// ErrorDetail is an element of an error of S3 that names what the error is about, such as BucketName.
type ErrorDetail struct {
	Name  string // of the element
	Value string // its text
}

// Error implements error.
func (e *Error) Error() string { return e.Code + ": " + e.Message }

// Caller is the identity that signed a request.
type Caller struct {
	Account     string // 12 digits
	ARN         string // such as arn:aws:sts::000000000000:assumed-role/NAME/i-0123
	UserID      string // unique ID, such as AROA…:i-0123
	AccessKeyID string // of the signature
	Role        string // name of the assumed role; empty for a user or the root
	Session     string // role session name; an instance's id for an instance's role
	Root        bool   // the account's root user, who may do everything
	System      bool   `json:",omitempty"` // the region itself; set by [SystemCaller] only
}

// SystemCaller returns the caller of work that the region does for itself, such as deleting a stack with the
// stack's own role. It may do everything. A request never has it.
func SystemCaller() Caller { return Caller{System: true} }

// AnonymousCaller returns the caller of a request without a signature, which only S3 and operations that are
// Unsigned accept.
func AnonymousCaller() Caller { return Caller{UserID: "anonymous"} }

// IsUnrestricted reports whether the caller may do everything without a policy: the account's root and the
// region itself. The zero Caller is not unrestricted.
func (c Caller) IsUnrestricted() bool { return c.Root || c.System }

// IsAnonymous reports whether the caller has no identity: a request without a signature, or a context without
// a caller.
func (c Caller) IsAnonymous() bool { return c == (Caller{}) || c == AnonymousCaller() }

type callerKey struct{}

// WithCaller returns a context with a caller.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerFrom returns the caller in ctx, or the zero Caller, to which everything is denied.
func CallerFrom(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}
