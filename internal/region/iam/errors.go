// SPDX-License-Identifier: Apache-2.0

package iam

import (
	"net/http"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// errorCode is a code of IAM's or STS's errors. The codes and statuses of IAM are those of the "Errors" of each
// operation in the IAM API reference (https://docs.aws.amazon.com/IAM/latest/APIReference/API_CreateRole.html), and
// ValidationError of "Common Errors" (https://docs.aws.amazon.com/IAM/latest/APIReference/CommonErrors.html). The
// messages are AWS's where tests of moto or LocalStack record an answer; the others are the region's. NotImplemented is
// the region's own, for what AWS has and the region does not.
type errorCode string

// The codes of IAM.
const (
	codeDeleteConflict          errorCode = "DeleteConflict"
	codeEntityAlreadyExists     errorCode = "EntityAlreadyExists"
	codeInvalidInput            errorCode = "InvalidInput"
	codeLimitExceeded           errorCode = "LimitExceeded"
	codeMalformedPolicyDocument errorCode = "MalformedPolicyDocument"
	codeNoSuchEntity            errorCode = "NoSuchEntity"
	codeNotImplemented          errorCode = "NotImplemented"
	codePolicyNotAttachable     errorCode = "PolicyNotAttachable"
	codeUnmodifiableEntity      errorCode = "UnmodifiableEntity"
	codeValidation              errorCode = "ValidationError" // of STS too
)

// The codes of STS for the web identity tokens that IAM's OIDC providers decide about: "Errors" of
// AssumeRoleWithWebIdentity in the STS API reference
// (https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRoleWithWebIdentity.html), and AccessDenied of AWS's
// answers to a role whose trust policy does not allow the caller.
const (
	codeAccessDenied         errorCode = "AccessDenied"
	codeExpiredToken         errorCode = "ExpiredTokenException"
	codeInvalidIdentityToken errorCode = "InvalidIdentityToken"
)

// status returns the HTTP status of a code.
func (c errorCode) status() int {
	switch c {
	case codeNoSuchEntity:
		return http.StatusNotFound
	case codeDeleteConflict, codeEntityAlreadyExists, codeLimitExceeded:
		return http.StatusConflict
	case codeAccessDenied:
		return http.StatusForbidden
	default:
		return http.StatusBadRequest
	}
}

// newErrorf returns the error of a code whose message depends on the request.
func newErrorf(c errorCode, format string, args ...any) *wire.Error {
	return wire.StatusErrorf(string(c), c.status(), format, args...)
}
