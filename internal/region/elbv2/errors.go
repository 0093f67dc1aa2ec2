// SPDX-License-Identifier: Apache-2.0

package elbv2

import "github.com/slipway-k8s/slipway/internal/region/wire"

// errorCode is a code of the errors of Elastic Load Balancing. The codes are those of the "Errors" of each operation in
// the API reference (https://docs.aws.amazon.com/elasticloadbalancing/latest/APIReference/API_CreateLoadBalancer.html),
// and ValidationError of "Common Errors"
// (https://docs.aws.amazon.com/elasticloadbalancing/latest/APIReference/CommonErrors.html). The reference describes when
// an error occurs and not its message. The messages are AWS's where tests of moto or LocalStack record an answer; the
// others are the region's. NotImplemented is the region's own, for what AWS has and the region does not.
type errorCode string

const (
	codeAllocationIDNotFound        errorCode = "AllocationIdNotFound"
	codeDuplicateListener           errorCode = "DuplicateListener"
	codeDuplicateLoadBalancerName   errorCode = "DuplicateLoadBalancerName"
	codeDuplicateTagKeys            errorCode = "DuplicateTagKeys"
	codeDuplicateTargetGroupName    errorCode = "DuplicateTargetGroupName"
	codeIncompatibleProtocols       errorCode = "IncompatibleProtocols"
	codeInvalidConfigurationRequest errorCode = "InvalidConfigurationRequest"
	codeInvalidLoadBalancerAction   errorCode = "InvalidLoadBalancerAction"
	codeInvalidSecurityGroup        errorCode = "InvalidSecurityGroup"
	codeInvalidSubnet               errorCode = "InvalidSubnet"
	codeInvalidTarget               errorCode = "InvalidTarget"
	codeListenerNotFound            errorCode = "ListenerNotFound"
	codeLoadBalancerNotFound        errorCode = "LoadBalancerNotFound"
	codeNotImplemented              errorCode = "NotImplemented"
	codeOperationNotPermitted       errorCode = "OperationNotPermitted"
	codeResourceInUse               errorCode = "ResourceInUse"
	codeSubnetNotFound              errorCode = "SubnetNotFound"
	codeTargetGroupAssociationLimit errorCode = "TargetGroupAssociationLimit"
	codeTargetGroupNotFound         errorCode = "TargetGroupNotFound"
	codeTooManyLoadBalancers        errorCode = "TooManyLoadBalancers"
	codeTooManyTags                 errorCode = "TooManyTags"
	codeUnsupportedProtocol         errorCode = "UnsupportedProtocol"
	codeValidation                  errorCode = "ValidationError"
)

// newErrorf returns the error of a code whose message depends on the request.
func newErrorf(c errorCode, format string, args ...any) *wire.Error {
	return wire.Errorf(string(c), format, args...)
}
