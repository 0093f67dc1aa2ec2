// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// AccessCheck is one question to IAM: may the caller do Action on Resource?
//
// A service asks one Check for each resource of an operation, such as ec2:AttachVolume once for the volume
// and once for the instance, each with the tags of that resource in Context:
//
//	wire.Authorize(ctx,
//		wire.Check{Action: "ec2:AttachVolume", Resource: volumeARN, Context: volumeTags},
//		wire.Check{Action: "ec2:AttachVolume", Resource: instanceARN, Context: instanceTags})
//
// The usual place is [Service].Authorize, which runs before the handler and before the error of a dry run. A
// handler may ask too. The region adds the condition keys that every request has (aws:PrincipalArn,
// aws:SourceIp, aws:SecureTransport, …). The authorizer adds ec2:ResourceTag/KEY for each
// aws:ResourceTag/KEY.
type AccessCheck struct {
	Action   string              // such as ec2:AttachVolume
	Resource string              // ARN; empty means "*"
	Context  map[string][]string // values of condition keys, such as aws:ResourceTag/NAME
}

// Authorizer decides checks. IAM implements it.
type Authorizer interface {
	// Authorize returns nil if the caller in ctx may do the action, and else the error of [AccessDenied].
	Authorize(ctx context.Context, c AccessCheck) error
}

type authorizerKey struct{}

// WithAuthorizer returns a context with the authorizer that [Authorize] asks.
func WithAuthorizer(ctx context.Context, a Authorizer) context.Context {
	return context.WithValue(ctx, authorizerKey{}, a)
}

// Authorize asks the authorizer in ctx every check and returns the first refusal. A caller that
// [Caller.IsUnrestricted] is allowed everything. A context without a caller or without an authorizer is
// refused.
func Authorize(ctx context.Context, checks ...AccessCheck) error {
	caller := CallerFrom(ctx)
	if caller.IsUnrestricted() {
		return nil
	}

	a, ok := ctx.Value(authorizerKey{}).(Authorizer)

	for _, c := range checks {
		if caller == (Caller{}) {
			return AccessDenied(ctx, c, "because the request has no caller")
		}

		if !ok {
			return AccessDenied(ctx, c, "because the request has no authorizer")
		}

		if err := a.Authorize(ctx, c); err != nil {
			return err
		}
	}

	return nil
}

// AuthorizedInHandlers is the [Service].Authorize of services whose handlers call [Authorize], because only
// the handlers know the resources.
func AuthorizedInHandlers(context.Context, string, any) error { return nil }

// AccessDenied returns the error for a check that is not allowed, in AWS's words. reason ends the message; it may be empty.
// S3 tells nothing to callers without an identity.
// Clients see the code of the protocol: UnauthorizedOperation in EC2, AccessDeniedException in JSON services,
// AccessDenied elsewhere.
func AccessDenied(ctx context.Context, c AccessCheck, reason string) *Error {
	resource := cmp.Or(c.Resource, "*")
	ofS3 := strings.HasPrefix(c.Action, "s3:")
	if ofS3 {
		resource = strconv.Quote(resource)
	}

	message := fmt.Sprintf("User: %s is not authorized to perform: %s on resource: %s %s",
		CallerFrom(ctx).ARN, c.Action, resource, reason)
	if ofS3 && CallerFrom(ctx).IsAnonymous() {
		message = "Access Denied"
	}

	err := newErrorf(codeAccessDenied, "%s", strings.TrimSpace(message))
	err.Status = http.StatusForbidden

	return err
}
