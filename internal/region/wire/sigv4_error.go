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
		code   string
		status int
	}

	codes := map[Protocol][6]form{
		QueryProtocol: {
			{"MissingAuthenticationToken", 403},
			{"InvalidClientTokenId", 403},
			{"SignatureDoesNotMatch", 403},
			{"RequestTimeTooSkewed", 403},
			{"SignatureDoesNotMatch", 403},
			{"ExpiredToken", 403},
		},
		EC2QueryProtocol: {
			{"MissingAuthenticationToken", 403},
			{"AuthFailure", 401},
			{"SignatureDoesNotMatch", 403},
			{"RequestExpired", 400},
			{"RequestExpired", 400},
			{"RequestExpired", 400},
		},
		JSONProtocol: {
			{"MissingAuthenticationTokenException", 400},
			{"UnrecognizedClientException", 400},
			{"InvalidSignatureException", 400},
			{"RequestTimeTooSkewed", 400},
			{"InvalidSignatureException", 400},
			{"ExpiredTokenException", 400},
		},
		RESTJSONProtocol: {
			{"MissingAuthenticationTokenException", 403},
			{"UnrecognizedClientException", 403},
			{"InvalidSignatureException", 403},
			{"InvalidSignatureException", 403},
			{"InvalidSignatureException", 403},
			{"ExpiredTokenException", 403},
		},
		RESTProtocol: {
			{"MissingAuthenticationToken", 403},
			{"InvalidClientTokenId", 403},
			{"SignatureDoesNotMatch", 403},
			{"SignatureDoesNotMatch", 403},
			{"SignatureDoesNotMatch", 403},
			{"ExpiredToken", 403},
		},
		S3Protocol: {
			{"AccessDenied", 403},
			{"InvalidAccessKeyId", 403},
			{"SignatureDoesNotMatch", 403},
			{"RequestTimeTooSkewed", 403},
			{"AccessDenied", 403},
			{"ExpiredToken", 400},
		},
	}

	f := codes[p][why]

	return &Error{Code: f.code, Message: why.message(p), Status: f.status}
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
