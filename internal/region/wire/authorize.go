// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"net/http"
)

// Check is one question to IAM: may the caller do Action on Resource?
//
// A service asks one Check for each resource that an operation touches, such as ec2:AttachVolume once on the volume's
// ARN and once on the instance's, each with the tags of that resource in Context:
//
//	wire.Authorize(ctx,
//		wire.Check{Action: "ec2:AttachVolume", Resource: volumeARN, Context: map[string][]string{"aws:ResourceTag/team": {"a"}}},
//		wire.Check{Action: "ec2:AttachVolume", Resource: instanceARN, Context: …})
//
// The usual place is [Service].Authorize, which runs before the handler and before a dry run is answered; a handler
// may ask as well. Keys that every request has (aws:PrincipalArn, aws:SourceIp, aws:SecureTransport, …) are added by
// the region; ec2:ResourceTag/KEY is added beside each aws:ResourceTag/KEY by the authorizer.
type Check struct {
	Action   string              // such as ec2:AttachVolume
	Resource string              // an ARN; empty means "*"
	Context  map[string][]string // condition keys, such as aws:ResourceTag/NAME, aws:RequestTag/NAME, aws:TagKeys
}

// Authorizer answers checks. It returns nil where the action is allowed, and an [Error] made by [AccessDenied] where not.
type Authorizer interface {
	Authorize(ctx context.Context, c Check) error
}

type authorizerKey struct{}

// WithAuthorizer returns ctx carrying a, which answers [Authorize].
func WithAuthorizer(ctx context.Context, a Authorizer) context.Context {
	return context.WithValue(ctx, authorizerKey{}, a)
}

// Authorize asks every check of the authorizer in ctx and returns the first refusal. The account's root, and work
// that the region does itself (no caller in ctx), are allowed everything; a caller without an authorizer is refused.
func Authorize(ctx context.Context, checks ...Check) error {
	caller := CallerFrom(ctx)
	if caller.Root || caller == (Caller{}) {
		return nil
	}

	a, ok := ctx.Value(authorizerKey{}).(Authorizer)

	for _, c := range checks {
		if !ok {
			return AccessDenied(ctx, c, "no policy is known")
		}

		if err := a.Authorize(ctx, c); err != nil {
			return err
		}
	}

	return nil
}

// AuthorizedInHandlers is a [Service].Authorize for services whose handlers ask [Authorize] themselves, since only
// they know the resources.
func AuthorizedInHandlers(context.Context, string, any) error { return nil }

// AccessDenied is the refusal of c in AWS's words. The protocol's writer gives it the code that the service uses:
// UnauthorizedOperation in EC2, AccessDeniedException in JSON services, AccessDenied elsewhere.
func AccessDenied(ctx context.Context, c Check, reason string) *Error {
	resource := c.Resource
	if resource == "" {
		resource = "*"
	}

	err := Errorf(codeAccessDenied, "User: %s is not authorized to perform: %s on resource: %s because %s",
		CallerFrom(ctx).ARN, c.Action, resource, reason)
	err.Status = http.StatusForbidden

	return err
}

const codeAccessDenied = "AccessDenied"

// AnonymousCaller is the caller of a request without a signature, which only S3 takes.
func AnonymousCaller() Caller { return Caller{UserID: "anonymous"} }
