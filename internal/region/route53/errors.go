// SPDX-License-Identifier: Apache-2.0

package route53

import (
	"net/http"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// errorCode is a code of Route 53's errors. The codes and statuses are those of the "Errors" of each operation in the
// Route 53 API reference (https://docs.aws.amazon.com/Route53/latest/APIReference/API_CreateHostedZone.html), and
// UnknownOperationException of "Common Error Types"
// (https://docs.aws.amazon.com/Route53/latest/APIReference/CommonErrors.html). The messages are AWS's where tests of
// moto or LocalStack record an answer or the reference has them; the others are the region's.
type errorCode string

const (
	codeConflictingDomainExists  errorCode = "ConflictingDomainExists"
	codeHostedZoneAlreadyExists  errorCode = "HostedZoneAlreadyExists"
	codeHostedZoneNotEmpty       errorCode = "HostedZoneNotEmpty"
	codeInvalidChangeBatch       errorCode = "InvalidChangeBatch"
	codeInvalidDomainName        errorCode = "InvalidDomainName"
	codeInvalidInput             errorCode = "InvalidInput"
	codeInvalidVPCID             errorCode = "InvalidVPCId"
	codeLastVPCAssociation       errorCode = "LastVPCAssociation"
	codeNoSuchChange             errorCode = "NoSuchChange"
	codeNoSuchHostedZone         errorCode = "NoSuchHostedZone"
	codePublicZoneVPCAssociation errorCode = "PublicZoneVPCAssociation"
	codeUnknownOperation         errorCode = "UnknownOperationException"
	codeVPCAssociationNotFound   errorCode = "VPCAssociationNotFound"
)

// message returns AWS's fixed message of a code; empty if the message depends on the request.
func (c errorCode) message() string {
	return map[errorCode]string{
		codeHostedZoneAlreadyExists: "A hosted zone has already been created with the specified caller reference.",
		codeHostedZoneNotEmpty: "The specified hosted zone contains non-required resource record sets and so " +
			"cannot be deleted.",
		codeInvalidVPCID: "The VPC ID is invalid.",
		codeLastVPCAssociation: "The VPC that you're trying to disassociate from the private hosted zone is the " +
			"last VPC that is associated with the hosted zone.",
		codePublicZoneVPCAssociation: "You're trying to associate a VPC with a public hosted zone. Amazon Route 53 " +
			"doesn't support associating a VPC with a public hosted zone.",
	}[c]
}

// status returns the HTTP status of a code.
func (c errorCode) status() int {
	switch c {
	case codeNoSuchHostedZone, codeNoSuchChange, codeVPCAssociationNotFound, codeUnknownOperation:
		return http.StatusNotFound
	case codeHostedZoneAlreadyExists:
		return http.StatusConflict
	default:
		return http.StatusBadRequest
	}
}

// newError returns the error of a code with its fixed message.
func newError(c errorCode) *wire.Error { return newErrorf(c, "%s", c.message()) }

// newErrorf returns the error of a code whose message depends on the request.
func newErrorf(c errorCode, format string, args ...any) *wire.Error {
	return wire.StatusErrorf(string(c), c.status(), format, args...)
}
