// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"net/http"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// errorCode is a code of S3's errors. The codes and statuses are those of "List of error codes" in the S3 API
// reference (ErrorResponses.html). The messages and the further elements are those of AWS's answers as
// LocalStack's and moto's tests record them.
type errorCode string

const (
	aclNotSupported        errorCode = "AccessControlListNotSupported"
	badDigest              errorCode = "BadDigest"
	tooManyBucketTags      errorCode = "BadRequest" // in moto's test of PutBucketTagging; not in the list
	bucketAlreadyOwned     errorCode = "BucketAlreadyOwnedByYou"
	bucketNotEmpty         errorCode = "BucketNotEmpty"
	entityTooSmall         errorCode = "EntityTooSmall"
	illegalVersioning      errorCode = "IllegalVersioningConfigurationException"
	illegalLocation        errorCode = "IllegalLocationConstraintException"
	invalidArgument        errorCode = "InvalidArgument"
	invalidBucketName      errorCode = "InvalidBucketName"
	invalidBucketOwner     errorCode = "InvalidBucketOwnerAWSAccountID"
	invalidLocation        errorCode = "InvalidLocationConstraint"
	invalidPart            errorCode = "InvalidPart"
	invalidPartNumber      errorCode = "InvalidPartNumber"
	invalidPartOrder       errorCode = "InvalidPartOrder"
	invalidRange           errorCode = "InvalidRange"
	invalidRequest         errorCode = "InvalidRequest"
	invalidStorageClass    errorCode = "InvalidStorageClass"
	invalidTag             errorCode = "InvalidTag"
	keyTooLong             errorCode = "KeyTooLongError"
	malformedXML           errorCode = "MalformedXML"
	methodNotAllowed       errorCode = "MethodNotAllowed"
	malformedPolicy        errorCode = "MalformedPolicy"
	noSuchBucket           errorCode = "NoSuchBucket"
	noSuchKey              errorCode = "NoSuchKey"
	noSuchUpload           errorCode = "NoSuchUpload"
	noSuchVersion          errorCode = "NoSuchVersion"
	preconditionFailed     errorCode = "PreconditionFailed"
	accessDenied           errorCode = "AccessDenied"
	kmsKeyNotFound         errorCode = kmsPrefix + "NotFoundException"
	notFound               errorCode = "NotFound" // of HEAD requests, whose answers have no body
	notModified            errorCode = "NotModified"
	invalidEncryption      errorCode = "InvalidEncryptionAlgorithmError"
	noEncryption           errorCode = "ServerSideEncryptionConfigurationNotFoundError"
	noSuchBucketPolicy     errorCode = "NoSuchBucketPolicy"
	noSuchLifecycle        errorCode = "NoSuchLifecycleConfiguration"
	noSuchPublicBlock      errorCode = "NoSuchPublicAccessBlockConfiguration"
	noSuchTagSet           errorCode = "NoSuchTagSet"
	ownershipControlsUnset errorCode = "OwnershipControlsNotFoundError"
)

// kmsPrefix is in front of the codes of KMS's errors that S3 passes on.
const kmsPrefix errorCode = "KMS."

// message returns AWS's fixed message of a code; empty if the message depends on the request.
func (c errorCode) message() string {
	return map[errorCode]string{
		aclNotSupported: "The bucket does not allow ACLs",
		bucketAlreadyOwned: "Your previous request to create the named bucket succeeded and you already " +
			"own it.",
		bucketNotEmpty:      "The bucket you tried to delete is not empty",
		entityTooSmall:      "Your proposed upload is smaller than the minimum allowed size",
		illegalVersioning:   "The Versioning element must be specified",
		invalidBucketName:   "The specified bucket is not valid.",
		invalidBucketOwner:  "The value of the expected bucket owner parameter must be an AWS Account ID...",
		invalidLocation:     "The specified location-constraint is not valid",
		invalidPartNumber:   "The requested partnumber is not satisfiable",
		invalidPartOrder:    "The list of parts was not in ascending order. Parts must be ordered by part number.",
		invalidRange:        "The requested range is not satisfiable",
		invalidStorageClass: "The storage class you specified is not valid",
		keyTooLong:          "Your key is too long",
		methodNotAllowed:    "The specified method is not allowed against this resource.",
		noSuchBucket:        "The specified bucket does not exist",
		noSuchKey:           "The specified key does not exist.",
		noSuchVersion:       "The specified version does not exist.",
		accessDenied:        "Access Denied",
		notFound:            "Not Found",
		notModified:         "Not Modified",
		invalidPart: "One or more of the specified parts could not be found.  The part may not have been " +
			"uploaded, or the specified entity tag may not match the part's entity tag.",
		malformedXML: "The XML you provided was not well-formed or did not validate against our published schema",
		noSuchUpload: "The specified upload does not exist. The upload ID may be invalid, or the upload may " +
			"have been aborted or completed.",
		preconditionFailed:     "At least one of the pre-conditions you specified did not hold",
		invalidEncryption:      "The encryption request you specified is not valid. Supported value: AES256, aws:kms",
		noEncryption:           "The server side encryption configuration was not found",
		noSuchBucketPolicy:     "The bucket policy does not exist",
		noSuchLifecycle:        "The lifecycle configuration does not exist",
		noSuchPublicBlock:      "The public access block configuration was not found",
		noSuchTagSet:           "The TagSet does not exist",
		tooManyBucketTags:      "Bucket tag count cannot be greater than 50",
		ownershipControlsUnset: "The bucket ownership controls were not found",
	}[c]
}

// status returns the HTTP status of a code.
func (c errorCode) status() int {
	switch c {
	case notFound, noSuchBucket, noSuchKey, noSuchUpload, noSuchVersion, noEncryption, noSuchBucketPolicy,
		noSuchLifecycle, noSuchPublicBlock, noSuchTagSet, ownershipControlsUnset:
		return http.StatusNotFound
	case accessDenied:
		return http.StatusForbidden
	case bucketAlreadyOwned, bucketNotEmpty:
		return http.StatusConflict
	case methodNotAllowed:
		return http.StatusMethodNotAllowed
	case preconditionFailed:
		return http.StatusPreconditionFailed
	case invalidRange, invalidPartNumber:
		return http.StatusRequestedRangeNotSatisfiable
	case notModified:
		return http.StatusNotModified
	default:
		return http.StatusBadRequest
	}
}

// newError returns the error of a code with its fixed message.
func newError(c errorCode, details ...wire.ErrorDetail) *wire.Error {
	return newErrorf(c, "%s", c.message()).with(details...)
}

// awsError is an error under construction.
type awsError struct{ *wire.Error }

func (e awsError) with(details ...wire.ErrorDetail) *wire.Error {
	e.Details = details
	return e.Error
}

// newErrorf returns the error of a code whose message depends on the request.
func newErrorf(c errorCode, format string, args ...any) awsError {
	return awsError{wire.StatusErrorf(string(c), c.status(), format, args...)}
}

// newArgumentError returns InvalidArgument for a header or query parameter.
func newArgumentError(name, value, message string) *wire.Error {
	return newErrorf(invalidArgument, "%s", message).with(detail("ArgumentName", name), detail("ArgumentValue", value))
}

// newPreconditionError returns the error for a condition that is not met, such as If-Match.
func newPreconditionError(condition string) *wire.Error {
	return newError(preconditionFailed, detail("Condition", condition))
}

func detail(name, value string) wire.ErrorDetail { return wire.ErrorDetail{Name: name, Value: value} }

func newNoSuchKeyError(key string) *wire.Error { return newError(noSuchKey, detail("Key", key)) }
