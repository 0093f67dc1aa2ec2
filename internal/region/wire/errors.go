// SPDX-License-Identifier: Apache-2.0

package wire

import "fmt"

// errorCode is a code of the errors that services have in common: about the form and the signature of a request and its
// permissions. Each protocol has its own; the constants say which API reference has them. The messages are AWS's where tests
// of moto or LocalStack record an answer; the others are the region's.
type errorCode string

// The codes of the query protocol: "Common Errors" in the references of IAM and the other services that have it
// (https://docs.aws.amazon.com/IAM/latest/APIReference/CommonErrors.html). RequestTimeTooSkewed is in
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/CommonErrors.html, and ExpiredToken in answers to
// expired sessions (https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot_access-denied.html).
const (
	codeExpiredToken               errorCode = "ExpiredToken"
	codeIncompleteSignature        errorCode = "IncompleteSignature"
	codeInvalidAction              errorCode = "InvalidAction"
	codeInvalidClientTokenID       errorCode = "InvalidClientTokenId"
	codeMalformedQueryString       errorCode = "MalformedQueryString"
	codeMissingAction              errorCode = "MissingAction"
	codeMissingAuthenticationToken errorCode = "MissingAuthenticationToken"
	codeRequestTimeTooSkewed       errorCode = "RequestTimeTooSkewed"
	codeSignatureDoesNotMatch      errorCode = "SignatureDoesNotMatch"
	codeValidationError            errorCode = "ValidationError"
)

// The codes of EC2: "Common client error codes" and "Server error codes" in its reference
// (https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html).
const (
	codeAuthFailure           errorCode = "AuthFailure"
	codeDryRunOperation       errorCode = "DryRunOperation"
	codeInternal              errorCode = "InternalError" // of S3 too; the region's in the other protocols
	codeInvalidParameterValue errorCode = "InvalidParameterValue"
	codeMissingParameter      errorCode = "MissingParameter"
	codeRequestExpired        errorCode = "RequestExpired"
	codeRequestLimitExceeded  errorCode = "RequestLimitExceeded"
	codeUnauthorizedOperation errorCode = "UnauthorizedOperation"
	codeUnknownParameter      errorCode = "UnknownParameter"
)

// The codes of the JSON protocols: "Common Errors" in the references of KMS and the other services that have them
// (https://docs.aws.amazon.com/kms/latest/APIReference/CommonErrors.html).
const (
	codeAccessDeniedException               errorCode = "AccessDeniedException"
	codeExpiredTokenException               errorCode = "ExpiredTokenException"
	codeInvalidSignatureException           errorCode = "InvalidSignatureException"
	codeMissingAuthenticationTokenException errorCode = "MissingAuthenticationTokenException"
	codeSerializationException              errorCode = "SerializationException"
	codeUnknownOperationException           errorCode = "UnknownOperationException"
	codeUnrecognizedClientException         errorCode = "UnrecognizedClientException"
	codeValidationException                 errorCode = "ValidationException"
)

// The codes of S3: "List of error codes" in its reference
// (https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html). XAmzContentSHA256Mismatch, InvalidChunkSizeError and
// MalformedTrailerError are those of S3's answers to bodies that are sent in chunks.
const (
	codeAccessDenied                 errorCode = "AccessDenied" // of the query protocol too
	codeAuthorizationQueryParameters errorCode = "AuthorizationQueryParametersError"
	codeBadDigest                    errorCode = "BadDigest"
	codeContentSHA256Mismatch        errorCode = "XAmzContentSHA256Mismatch"
	codeIncompleteBody               errorCode = "IncompleteBody"
	codeInvalidAccessKeyID           errorCode = "InvalidAccessKeyId"
	codeInvalidArgument              errorCode = "InvalidArgument"
	codeInvalidChunkSize             errorCode = "InvalidChunkSizeError"
	codeInvalidDigest                errorCode = "InvalidDigest"
	codeInvalidRequest               errorCode = "InvalidRequest"
	codeMalformedTrailer             errorCode = "MalformedTrailerError"
	codeMalformedXML                 errorCode = "MalformedXML"
	codeMissingContentLength         errorCode = "MissingContentLength"
	codeNotImplemented               errorCode = "NotImplemented" // the region's in the other protocols
	codeRequestTimeout               errorCode = "RequestTimeout"
)

// codeInvalidInput is Route 53's code for XML that is not valid
// (https://docs.aws.amazon.com/Route53/latest/APIReference/API_ChangeResourceRecordSets.html).
const codeInvalidInput errorCode = "InvalidInput"

// codeRequestEntityTooLarge is the region's, for a body that is longer than it reads into memory.
const codeRequestEntityTooLarge errorCode = "RequestEntityTooLarge"

// Errorf returns an [Error] with status 400 and a formatted message.
func Errorf(code, format string, args ...any) *Error {
	return StatusErrorf(code, 0, format, args...)
}

// StatusErrorf returns an [Error] with an HTTP status, 0 means 400, and a formatted message.
func StatusErrorf(code string, status int, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Status: status}
}

// newErrorf returns the error of a code with status 400 and a formatted message.
func newErrorf(c errorCode, format string, args ...any) *Error {
	return Errorf(string(c), format, args...)
}

// newStatusError returns the error of a code with an HTTP status.
func newStatusError(c errorCode, status int, message string) *Error {
	return &Error{Code: string(c), Message: message, Status: status}
}
