// SPDX-License-Identifier: Apache-2.0

package wire

// refusalReason is the reason why a signature is rejected.
type refusalReason int

const (
	missingToken refusalReason = iota
	unknownKey
	signatureMismatch
	clockSkewed
	presignedExpired // a presigned request after its lifetime
	expiredToken
)

// newSignatureError returns the error of a protocol for a reason. The codes are those of AWS's services: SDKs
// decide by them whether to correct their clock or to get new credentials.
func newSignatureError(p Protocol, why refusalReason) *Error {
	type form struct {
		code   errorCode
		status int
	}

	codes := map[Protocol][6]form{
		QueryProtocol: {
			{codeMissingAuthenticationToken, 403},
			{codeInvalidClientTokenID, 403},
			{codeSignatureDoesNotMatch, 403},
			{codeRequestTimeTooSkewed, 403},
			{codeSignatureDoesNotMatch, 403},
			{codeExpiredToken, 403},
		},
		EC2QueryProtocol: {
			{codeMissingAuthenticationToken, 403},
			{codeAuthFailure, 401},
			{codeSignatureDoesNotMatch, 403},
			{codeRequestExpired, 400},
			{codeRequestExpired, 400},
			{codeRequestExpired, 400},
		},
		JSONProtocol: {
			{codeMissingAuthenticationTokenException, 400},
			{codeUnrecognizedClientException, 400},
			{codeInvalidSignatureException, 400},
			{codeRequestTimeTooSkewed, 400},
			{codeInvalidSignatureException, 400},
			{codeExpiredTokenException, 400},
		},
		RESTJSONProtocol: {
			{codeMissingAuthenticationTokenException, 403},
			{codeUnrecognizedClientException, 403},
			{codeInvalidSignatureException, 403},
			{codeInvalidSignatureException, 403},
			{codeInvalidSignatureException, 403},
			{codeExpiredTokenException, 403},
		},
		RESTProtocol: {
			{codeMissingAuthenticationToken, 403},
			{codeInvalidClientTokenID, 403},
			{codeSignatureDoesNotMatch, 403},
			{codeSignatureDoesNotMatch, 403},
			{codeSignatureDoesNotMatch, 403},
			{codeExpiredToken, 403},
		},
		S3Protocol: {
			{codeAccessDenied, 403},
			{codeInvalidAccessKeyID, 403},
			{codeSignatureDoesNotMatch, 403},
			{codeRequestTimeTooSkewed, 403},
			{codeAccessDenied, 403},
			{codeExpiredToken, 400},
		},
	}

	f := codes[p][why]

	return newStatusError(f.code, f.status, why.message(p))
}

// message returns the message of AWS's services of a protocol for a reason.
func (r refusalReason) message(p Protocol) string {
	if r == presignedExpired && (p == S3Protocol || p == EC2QueryProtocol) {
		return "Request has expired"
	}

	return [...]string{
		"Request is missing Authentication Token",
		"The security token included in the request is invalid",
		"The request signature we calculated does not match the signature you provided. " +
			"Check your AWS Secret Access Key and signing method.",
		"The difference between the request time and the current time is too large.",
		"Signature expired: the request was presigned too long ago",
		"The security token included in the request is expired",
	}[r]
}
