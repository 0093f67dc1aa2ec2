// SPDX-License-Identifier: Apache-2.0

package resourcetype

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// ErrWaitTimeout is returned by [Services].Poll after its limit.
var ErrWaitTimeout = errors.New("Exceeded attempts to wait")

// CallError is the refusal of an operation by a service of the region.
type CallError struct {
	// Service is the signing name of the service, such as ec2.
	Service string
	// Refusal is the service's error.
	Refusal *wire.Error
}

// Error returns the refusal as CloudFormation words it.
func (e *CallError) Error() string {
	return fmt.Sprintf(
		"%s (Service: %s, Status Code: %d, Error Code: %s)",
		e.Refusal.Message,
		serviceTitle(e.Service),
		e.Refusal.Status,
		e.Refusal.Code,
	)
}

// Unwrap returns the service's error.
func (e *CallError) Unwrap() error { return e.Refusal }

// serviceTitle returns a service's name as the messages of CloudFormation write it.
func serviceTitle(service string) string {
	if n, ok := map[string]string{
		"ec2":                  "Ec2",
		"elasticloadbalancing": "ElasticLoadBalancingV2",
		"autoscaling":          "AutoScaling",
		"route53":              "Route53",
		"s3":                   "S3",
	}[service]; ok {
		return n
	}

	return strings.ToUpper(service[:1]) + service[1:]
}

// ServiceName returns the signing name of the service that a type belongs to, such as ec2 for AWS::EC2::VPC.
func ServiceName(typeName string) string {
	name := strings.ToLower(strings.Split(typeName, "::")[1])
	if name == "elasticloadbalancingv2" {
		return "elasticloadbalancing"
	}

	return name
}

// ErrorCode returns the code of a service's refusal; empty for other errors.
func ErrorCode(err error) string {
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return e.Code
	}

	return ""
}

// IsAccessDenied reports whether IAM refused an operation.
func IsAccessDenied(err error) bool {
	return slices.Contains(
		[]string{"UnauthorizedOperation", "AccessDenied", "AccessDeniedException"},
		ErrorCode(err),
	)
}

// IsNotFound reports whether a service refused because a resource does not exist.
func IsNotFound(err error) bool {
	c := ErrorCode(err)
	var e *CallError
	if errors.As(err, &e) && c == "ValidationError" && strings.Contains(e.Refusal.Message, "not found") {
		return true // Auto Scaling has no code for it, only the message
	}

	return strings.HasSuffix(c, "NotFound") || strings.HasSuffix(c, "NotFoundException") ||
		strings.HasPrefix(c, "NoSuch") || strings.HasSuffix(c, ".Malformed") || c == "Gateway.NotAttached"
}

// IsNotSeen reports whether a service refused because it does not see a resource, which may be too new.
func IsNotSeen(err error) bool {
	refusal, ok := errors.AsType[*wire.Error](err)
	if !ok {
		return false
	}

	hasCode := slices.Contains([]string{"InvalidVPCId", "InvalidSecurityGroup"}, refusal.Code)

	return IsNotFound(err) || hasCode || slices.ContainsFunc([]string{
		"Invalid IAM Instance Profile",
		"The specified launch template, ",
		"The subnet ID '",
		"Target Groups may not be valid",
		"cannot be assumed by Lambda",
	}, func(part string) bool { return strings.Contains(refusal.Message, part) })
}

// IgnoreNotFound returns nil for an error for which [IsNotFound] is true, and any other error as it is.
func IgnoreNotFound(err error) error {
	if IsNotFound(err) {
		return nil
	}

	return err
}
