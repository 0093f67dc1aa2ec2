// SPDX-License-Identifier: Apache-2.0

package sns

import (
	"net/http"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// errorCode is a code of SNS's errors. The codes are those of the "Errors" of CreateTopic,
// Subscribe and the other operations in the SNS API reference
// (https://docs.aws.amazon.com/sns/latest/api/API_CreateTopic.html). The reference describes when
// an error occurs and not its message. The messages are AWS's where a recording of LocalStack has
// them (tests/aws/services/sns/test_sns.snapshot.json); the others are the region's.
type errorCode string

const (
	codeAuthorizationError errorCode = "AuthorizationError"
	codeInvalidParameter   errorCode = "InvalidParameter"
	codeNotFound           errorCode = "NotFound"
	codeResourceNotFound   errorCode = "ResourceNotFound"
	codeTagLimitExceeded   errorCode = "TagLimitExceeded"
	codeTopicLimitExceeded errorCode = "TopicLimitExceeded"
)

// newError returns the error of a code with the code's HTTP status.
func newError(c errorCode, message string) *wire.Error { return newErrorf(c, "%s", message) }

// newErrorf returns the error of a code whose message depends on the request.
func newErrorf(c errorCode, format string, args ...any) *wire.Error {
	return wire.StatusErrorf(string(c), c.status(), format, args...)
}

// status returns the HTTP status of the errors of a code.
func (c errorCode) status() int {
	switch c {
	case codeNotFound, codeResourceNotFound:
		return http.StatusNotFound
	case codeAuthorizationError, codeTopicLimitExceeded:
		return http.StatusForbidden
	default:
		return http.StatusBadRequest
	}
}
