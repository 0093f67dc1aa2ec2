// SPDX-License-Identifier: Apache-2.0

package ecr

import "github.com/slipway-k8s/slipway/internal/region/wire"

// errorCode is a code of ECR's errors. The codes are those of the "Errors" of each operation in the ECR API reference
// (https://docs.aws.amazon.com/AmazonECR/latest/APIReference/API_CreateRepository.html). The reference describes when an
// error occurs and not its message. The messages are AWS's where tests of moto or LocalStack record an answer; the
// others are the region's.
type errorCode string

const (
	codeInvalidParameter        errorCode = "InvalidParameterException"
	codeLimitExceeded           errorCode = "LimitExceededException"
	codeRepositoryAlreadyExists errorCode = "RepositoryAlreadyExistsException"
	codeRepositoryNotFound      errorCode = "RepositoryNotFoundException"
)

// newErrorf returns the error of a code whose message depends on the request.
func newErrorf(c errorCode, format string, args ...any) *wire.Error {
	return wire.Errorf(string(c), format, args...)
}
