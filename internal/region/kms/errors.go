// SPDX-License-Identifier: Apache-2.0

package kms

import "github.com/slipway-k8s/slipway/internal/region/wire"

// errorCode is a code of KMS's errors. The codes are those of the "Errors" of each operation and of "Common Error Types" in
// the KMS API reference (https://docs.aws.amazon.com/kms/latest/APIReference/CommonErrors.html). The reference describes
// when an error occurs and not its message. The messages are those of AWS's answers as LocalStack's and moto's tests record
// them, or say what the region does not have.
type errorCode string

const (
	aliasExists          errorCode = "AlreadyExistsException"
	dryRun               errorCode = "DryRunOperationException"
	incorrectKey         errorCode = "IncorrectKeyException"
	invalidAliasName     errorCode = "InvalidAliasNameException"
	invalidCiphertext    errorCode = "InvalidCiphertextException"
	invalidKeyState      errorCode = "KMSInvalidStateException"
	invalidKeyUsage      errorCode = "InvalidKeyUsageException"
	invalidMarker        errorCode = "InvalidMarkerException"
	invalidTag           errorCode = "TagException"
	keyDisabled          errorCode = "DisabledException"
	limitExceeded        errorCode = "LimitExceededException"
	malformedPolicy      errorCode = "MalformedPolicyDocumentException"
	notAuthorized        errorCode = "NotAuthorizedException"
	notFound             errorCode = "NotFoundException"
	unsupportedOperation errorCode = "UnsupportedOperationException"
	validationFailed     errorCode = "ValidationException"
)

// message returns AWS's fixed message of a code; empty if the message depends on the request, and for an invalid
// ciphertext, about which KMS tells nothing.
func (c errorCode) message() string {
	return map[errorCode]string{
		dryRun:       "The request would have succeeded, but the DryRun option is set.",
		incorrectKey: "The key ID in the request does not identify a CMK that can perform this operation.",
	}[c]
}

// newError returns the error of a code with its fixed message.
func newError(c errorCode) *wire.Error { return newErrorf(c, "%s", c.message()) }

// newErrorf returns the error of a code whose message depends on the request.
func newErrorf(c errorCode, format string, args ...any) *wire.Error {
	return wire.Errorf(string(c), format, args...)
}
