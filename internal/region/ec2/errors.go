// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"cmp"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// missingParameter returns EC2's error for a required parameter that a request lacks.
func missingParameter(name string) error {
	return wire.Errorf("MissingParameter", "The request must contain the parameter %s", name)
}

// notImplemented is the error about a parameter that the region does not implement.
func notImplemented(parameter string) error {
	return wire.Errorf("NotImplemented", "This region does not implement the parameter %s", parameter)
}

// invalidParameter returns EC2's error for a parameter whose value is not valid.
func invalidParameter(name, value, why string) error {
	return wire.Errorf(
		"InvalidParameterValue",
		"Value (%s) for parameter %s is invalid. %s",
		value,
		name,
		why,
	)
}

func dependencyViolation(format string, args ...any) error {
	return wire.Errorf("DependencyViolation", format, args...)
}

func incorrectState(format string, args ...any) error {
	return wire.Errorf("IncorrectState", format, args...)
}

// notFound returns EC2's error for an id that does not exist; the code depends on the prefix of the id.
func notFound(id string) error {
	codes := map[string]string{
		"vpc":      "InvalidVpcID.NotFound",
		"dopt":     "InvalidDhcpOptionsID.NotFound",
		"subnet":   "InvalidSubnetID.NotFound",
		"igw":      "InvalidInternetGatewayID.NotFound",
		"eipalloc": "InvalidAllocationID.NotFound",
		"nat":      "NatGatewayNotFound",
		"rtb":      "InvalidRouteTableID.NotFound",
		"sg":       "InvalidGroup.NotFound",
		"sgr":      "InvalidSecurityGroupRuleId.NotFound",
		"acl":      "InvalidNetworkAclID.NotFound",
		"eni":      "InvalidNetworkInterfaceID.NotFound",
		"vol":      "InvalidVolume.NotFound",
		"lt":       "InvalidLaunchTemplateId.NotFoundException",
		"i":        "InvalidInstanceID.NotFound",
		"ami":      "InvalidAMIID.NotFound",
		"key":      "InvalidKeyPair.NotFound",
		"vpce":     "InvalidVpcEndpointId.NotFound",
		"pcx":      "InvalidVpcPeeringConnectionID.NotFound",
		"snap":     "InvalidSnapshot.NotFound",
		"eipassoc": "InvalidAssociationID.NotFound",
		"rtbassoc": "InvalidAssociationID.NotFound",

		"eni-attach":     "InvalidAttachmentID.NotFound",
		"vpc-cidr-assoc": "InvalidVpcCidrBlockAssociationID.NotFound",
	}

	code := cmp.Or(codes[id[:max(0, strings.LastIndex(id, "-"))]], codes[idPrefix(id)], "InvalidID")

	return wire.Errorf(code, "The ID '%s' does not exist", id)
}
