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

// Authorize asks the authorizer in ctx every check and returns the first refusal. A caller that [Caller.IsUnrestricted] is
// allowed everything. A context without a caller or without an authorizer is refused.
func Authorize(ctx context.Context, checks ...Check) error {
	caller := CallerFrom(ctx)
	if caller.IsUnrestricted() {
		return nil
	}

	a, ok := ctx.Value(authorizerKey{}).(Authorizer)

	for _, c := range checks {
		if caller == (Caller{}) {
			return AccessDenied(ctx, c, "the request has no caller")
		}

		if !ok {
			return AccessDenied(ctx, c, "the request has no authorizer")
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
