// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"cmp"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// errorCode is a code of EC2's errors. The messages are AWS's where tests of moto or recordings of LocalStack have an answer,
// and otherwise the region's: EC2's API reference describes when an error occurs and not its message.
type errorCode string

// The codes of "Error codes for the Amazon EC2 API" in the API reference
// (https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html).
const (
	codeAddressLimitExceeded                    errorCode = "AddressLimitExceeded"
	codeAttachmentLimitExceeded                 errorCode = "AttachmentLimitExceeded"
	codeAuthFailure                             errorCode = "AuthFailure"
	codeCannotDelete                            errorCode = "CannotDelete"
	codeDependencyViolation                     errorCode = "DependencyViolation"
	codeDuplicateSubnetsInSameZone              errorCode = "DuplicateSubnetsInSameZone"
	codeFilterLimitExceeded                     errorCode = "FilterLimitExceeded"
	codeGatewayNotAttached                      errorCode = "Gateway.NotAttached"
	codeIdempotentParameterMismatch             errorCode = "IdempotentParameterMismatch"
	codeIncorrectInstanceState                  errorCode = "IncorrectInstanceState"
	codeIncorrectModificationState              errorCode = "IncorrectModificationState"
	codeIncorrectState                          errorCode = "IncorrectState"
	codeInsufficientFreeAddressesInSubnet       errorCode = "InsufficientFreeAddressesInSubnet"
	codeInsufficientInstanceCapacity            errorCode = "InsufficientInstanceCapacity"
	codeInternal                                errorCode = "InternalError"
	codeInternetGatewayLimitExceeded            errorCode = "InternetGatewayLimitExceeded"
	codeInvalidAMIIDMalformed                   errorCode = "InvalidAMIID.Malformed"
	codeInvalidAMIIDNotFound                    errorCode = "InvalidAMIID.NotFound"
	codeInvalidAMIIDUnavailable                 errorCode = "InvalidAMIID.Unavailable"
	codeInvalidAMINameDuplicate                 errorCode = "InvalidAMIName.Duplicate"
	codeInvalidAMINameMalformed                 errorCode = "InvalidAMIName.Malformed"
	codeInvalidAddressNotFound                  errorCode = "InvalidAddress.NotFound"
	codeInvalidAllocationIDNotFound             errorCode = "InvalidAllocationID.NotFound"
	codeInvalidAssociationIDNotFound            errorCode = "InvalidAssociationID.NotFound"
	codeInvalidAttachmentNotFound               errorCode = "InvalidAttachment.NotFound"
	codeInvalidAttachmentIDNotFound             errorCode = "InvalidAttachmentID.NotFound"
	codeInvalidBlockDeviceMapping               errorCode = "InvalidBlockDeviceMapping"
	codeInvalidDHCPOptionsIDNotFound            errorCode = "InvalidDhcpOptionsID.NotFound"
	codeInvalidGatewayIDNotFound                errorCode = "InvalidGatewayID.NotFound"
	codeInvalidGroupDuplicate                   errorCode = "InvalidGroup.Duplicate"
	codeInvalidGroupNotFound                    errorCode = "InvalidGroup.NotFound"
	codeInvalidGroupIDMalformed                 errorCode = "InvalidGroupId.Malformed"
	codeInvalidID                               errorCode = "InvalidID"
	codeInvalidIPAddressInUse                   errorCode = "InvalidIPAddress.InUse"
	codeInvalidInstanceAttributeValue           errorCode = "InvalidInstanceAttributeValue"
	codeInvalidInstanceID                       errorCode = "InvalidInstanceID"
	codeInvalidInstanceIDMalformed              errorCode = "InvalidInstanceID.Malformed"
	codeInvalidInstanceIDNotFound               errorCode = "InvalidInstanceID.NotFound"
	codeInvalidInstanceType                     errorCode = "InvalidInstanceType"
	codeInvalidInternetGatewayIDNotFound        errorCode = "InvalidInternetGatewayID.NotFound"
	codeInvalidKeyFormat                        errorCode = "InvalidKey.Format"
	codeInvalidKeyPairDuplicate                 errorCode = "InvalidKeyPair.Duplicate"
	codeInvalidKeyPairNotFound                  errorCode = "InvalidKeyPair.NotFound"
	codeInvalidLaunchTemplateIDNotFound         errorCode = "InvalidLaunchTemplateId.NotFound"
	codeInvalidLaunchTemplateIDVersionNotFound  errorCode = "InvalidLaunchTemplateId.VersionNotFound"
	codeInvalidLaunchTemplateNameAlreadyExists  errorCode = "InvalidLaunchTemplateName.AlreadyExistsException"
	codeInvalidLaunchTemplateNameMalformed      errorCode = "InvalidLaunchTemplateName.MalformedException"
	codeInvalidLaunchTemplateNameNotFound       errorCode = "InvalidLaunchTemplateName.NotFoundException"
	codeInvalidNATGatewayIDNotFound             errorCode = "InvalidNatGatewayID.NotFound"
	codeInvalidNetworkACLIDNotFound             errorCode = "InvalidNetworkAclID.NotFound"
	codeInvalidNetworkInterfaceInUse            errorCode = "InvalidNetworkInterface.InUse"
	codeInvalidNetworkInterfaceIDNotFound       errorCode = "InvalidNetworkInterfaceID.NotFound"
	codeInvalidParameter                        errorCode = "InvalidParameter"
	codeInvalidParameterCombination             errorCode = "InvalidParameterCombination"
	codeInvalidParameterDependency              errorCode = "InvalidParameterDependency"
	codeInvalidParameterValue                   errorCode = "InvalidParameterValue"
	codeInvalidPermissionDuplicate              errorCode = "InvalidPermission.Duplicate"
	codeInvalidPermissionMalformed              errorCode = "InvalidPermission.Malformed"
	codeInvalidPermissionNotFound               errorCode = "InvalidPermission.NotFound"
	codeInvalidPrefixListIDNotFound             errorCode = "InvalidPrefixListID.NotFound"
	codeInvalidRouteNotFound                    errorCode = "InvalidRoute.NotFound"
	codeInvalidRouteTableIDNotFound             errorCode = "InvalidRouteTableID.NotFound"
	codeInvalidSecurityGroupRuleIDNotFound      errorCode = "InvalidSecurityGroupRuleId.NotFound"
	codeInvalidServiceName                      errorCode = "InvalidServiceName"
	codeInvalidSnapshotInUse                    errorCode = "InvalidSnapshot.InUse"
	codeInvalidSnapshotNotFound                 errorCode = "InvalidSnapshot.NotFound"
	codeInvalidStateTransition                  errorCode = "InvalidStateTransition"
	codeInvalidSubnetConflict                   errorCode = "InvalidSubnet.Conflict"
	codeInvalidSubnetRange                      errorCode = "InvalidSubnet.Range"
	codeInvalidSubnetIDNotFound                 errorCode = "InvalidSubnetID.NotFound"
	codeInvalidVolumeNotFound                   errorCode = "InvalidVolume.NotFound"
	codeInvalidVolumeZoneMismatch               errorCode = "InvalidVolume.ZoneMismatch"
	codeInvalidVPCEndpointNotFound              errorCode = "InvalidVpcEndpoint.NotFound"
	codeInvalidVPCEndpointIDNotFound            errorCode = "InvalidVpcEndpointId.NotFound"
	codeInvalidVPCIDNotFound                    errorCode = "InvalidVpcID.NotFound"
	codeInvalidVPCPeeringConnectionIDNotFound   errorCode = "InvalidVpcPeeringConnectionID.NotFound"
	codeInvalidZoneNotFound                     errorCode = "InvalidZone.NotFound"
	codeMaxTemplateLimitExceeded                errorCode = "MaxTemplateLimitExceeded"
	codeMaxTemplateVersionLimitExceeded         errorCode = "MaxTemplateVersionLimitExceeded"
	codeMissingInput                            errorCode = "MissingInput"
	codeMissingParameter                        errorCode = "MissingParameter"
	codeNATGatewayLimitExceeded                 errorCode = "NatGatewayLimitExceeded"
	codeNATGatewayNotFound                      errorCode = "NatGatewayNotFound"
	codeOperationNotPermitted                   errorCode = "OperationNotPermitted"
	codePrivateIPAddressLimitExceeded           errorCode = "PrivateIpAddressLimitExceeded"
	codeResourceAlreadyAssociated               errorCode = "Resource.AlreadyAssociated"
	codeRouteAlreadyExists                      errorCode = "RouteAlreadyExists"
	codeRouteLimitExceeded                      errorCode = "RouteLimitExceeded"
	codeRouteTableLimitExceeded                 errorCode = "RouteTableLimitExceeded"
	codeRulesPerSecurityGroupLimitExceeded      errorCode = "RulesPerSecurityGroupLimitExceeded"
	codeSecurityGroupLimitExceeded              errorCode = "SecurityGroupLimitExceeded"
	codeSecurityGroupsPerInterfaceLimitExceeded errorCode = "SecurityGroupsPerInterfaceLimitExceeded"
	codeSubnetLimitExceeded                     errorCode = "SubnetLimitExceeded"
	codeTagLimitExceeded                        errorCode = "TagLimitExceeded"
	codeUnknownVolumeType                       errorCode = "UnknownVolumeType"
	codeUnsupported                             errorCode = "Unsupported"
	codeUnsupportedOperation                    errorCode = "UnsupportedOperation"
	codeVPCIDNotSpecified                       errorCode = "VPCIdNotSpecified"
	codeVCPULimitExceeded                       errorCode = "VcpuLimitExceeded"
	codeVolumeInUse                             errorCode = "VolumeInUse"
	codeVolumeLimitExceeded                     errorCode = "VolumeLimitExceeded"
	codeVPCLimitExceeded                        errorCode = "VpcLimitExceeded"
	codeVPCPeeringConnectionAlreadyExists       errorCode = "VpcPeeringConnectionAlreadyExists"
)

// The codes that AWS answers with and that the page does not have, with their sources.
const (
	// codeCIDRLimitExceeded is of AWS's answer in moto's test of AssociateVpcCidrBlock.
	codeCIDRLimitExceeded errorCode = "CidrLimitExceeded"
	// codeInsufficientCIDRBlocks is in https://github.com/aws/amazon-vpc-cni-k8s, for a subnet without a free prefix.
	codeInsufficientCIDRBlocks errorCode = "InsufficientCidrBlocks"
	// codeInvalidUserDataMalformed is of AWS's answer in moto's test of CreateLaunchTemplate.
	codeInvalidUserDataMalformed errorCode = "InvalidUserData.Malformed"
	// codeInvalidVolumeModificationNotFound is in https://github.com/kubernetes-sigs/aws-ebs-csi-driver, for a volume that was
	// never modified.
	codeInvalidVolumeModificationNotFound errorCode = "InvalidVolumeModification.NotFound"
	// codeInvalidVPCRange is of AWS's answer in moto's test of CreateVpc; the page has InvalidVpcRange.
	codeInvalidVPCRange errorCode = "InvalidVpc.Range"
	// codeInvalidVPCCIDRBlockAssociationIDNotFound is in https://github.com/hashicorp/terraform-provider-aws,
	// internal/service/ec2.
	codeInvalidVPCCIDRBlockAssociationIDNotFound errorCode = "InvalidVpcCidrBlockAssociationID.NotFound"
	// codeVolumeModificationRateExceeded is in https://repost.aws/knowledge-center/eks-modify-persistent-storage-snapshot,
	// with a message of the time in which a volume could be modified every six hours. ModifyVolume's page says about today's
	// only that it tells when the next modification is possible.
	codeVolumeModificationRateExceeded errorCode = "VolumeModificationRateExceeded"
)

// codeNotImplemented is the region's own, for what EC2 has and the region does not.
const codeNotImplemented errorCode = "NotImplemented"

// message returns AWS's fixed message of a code; empty if the message depends on the request.
func (c errorCode) message() string {
	return map[errorCode]string{
		codeAddressLimitExceeded: "The maximum number of addresses has been reached.",
		codeInsufficientCIDRBlocks: "The specified subnet does not have enough free cidr blocks to satisfy the " +
			"request.",
		codeInternetGatewayLimitExceeded: "The maximum number of internet gateways has been reached.",
		codeInvalidAMINameMalformed: "AMI names must be between 3 and 128 characters long, and may contain letters, " +
			"numbers, and '(', ')', '.', '-', '/', '_', '@', '[', ']', ''' and spaces",
		codeInvalidKeyFormat:                       "Key is not in valid OpenSSH public key format",
		codeInvalidLaunchTemplateNameAlreadyExists: "Launch template name already in use.",
		codeInvalidLaunchTemplateNameMalformed: "A launch template name must be between 3 and 128 characters, and may contain " +
			"letters, numbers, and the following characters: - ( ) . / _.",
		codeInvalidLaunchTemplateNameNotFound:       "At least one of the launch templates specified in the request does not exist.",
		codeInvalidPermissionNotFound:               "The specified rule does not exist in this security group.",
		codeInvalidUserDataMalformed:                "Invalid BASE64 encoding of user data.",
		codePrivateIPAddressLimitExceeded:           "Number of private addresses will exceed limit.",
		codeRouteLimitExceeded:                      "The maximum number of routes has been reached.",
		codeRouteTableLimitExceeded:                 "The maximum number of route tables has been reached.",
		codeRulesPerSecurityGroupLimitExceeded:      "The maximum number of rules per security group has been reached.",
		codeSecurityGroupsPerInterfaceLimitExceeded: "The maximum number of security groups per interface has been reached.",
		codeSubnetLimitExceeded:                     "The maximum number of subnets has been reached.",
		codeVPCIDNotSpecified:                       "No default VPC for this user",
		codeVPCLimitExceeded:                        "The maximum number of VPCs has been reached.",
	}[c]
}

// newError returns the error of a code with its fixed message.
func newError(c errorCode) *wire.Error { return newErrorf(c, "%s", c.message()) }

// newErrorf returns the error of a code whose message depends on the request.
func newErrorf(c errorCode, format string, args ...any) *wire.Error {
	return wire.Errorf(string(c), format, args...)
}

// missingParameter returns EC2's error for a required parameter that a request lacks.
func missingParameter(name string) error {
	return newErrorf(codeMissingParameter, "The request must contain the parameter %s", name)
}

// notImplemented is the error about a parameter that the region does not implement.
func notImplemented(parameter string) error {
	return newErrorf(
		codeNotImplemented,
		"This region does not implement the parameter %s",
		parameter,
	)
}

// invalidParameter returns EC2's error for a parameter whose value is not valid.
func invalidParameter(name, value, why string) error {
	return newErrorf(
		codeInvalidParameterValue,
		"Value (%s) for parameter %s is invalid. %s",
		value,
		name,
		why,
	)
}

func dependencyViolation(format string, args ...any) error {
	return newErrorf(codeDependencyViolation, format, args...)
}

func incorrectState(format string, args ...any) error {
	return newErrorf(codeIncorrectState, format, args...)
}

// missingResource is the error for an id of a kind of resource that does not exist: its code, and its message with one verb for
// the id.
type missingResource struct {
	code   errorCode
	format string
}

// missingResources returns the errors for ids that do not exist by the prefixes of the ids. The messages are those of the
// Describe operations.
func missingResources() map[string]missingResource {
	return map[string]missingResource{
		"vpc":      {codeInvalidVPCIDNotFound, "The vpc ID '%s' does not exist"},
		"dopt":     {codeInvalidDHCPOptionsIDNotFound, "The dhcpOption ID '%s' does not exist"},
		"subnet":   {codeInvalidSubnetIDNotFound, "The subnet ID '%s' does not exist"},
		"igw":      {codeInvalidInternetGatewayIDNotFound, "The internetGateway ID '%s' does not exist"},
		"eipalloc": {codeInvalidAllocationIDNotFound, "The allocation ID '%s' does not exist"},
		"nat":      {codeNATGatewayNotFound, "The Nat Gateway %s was not found"},
		"rtb":      {codeInvalidRouteTableIDNotFound, "The routeTable ID '%s' does not exist"},
		"sg":       {codeInvalidGroupNotFound, "The security group '%s' does not exist"},
		"sgr":      {codeInvalidSecurityGroupRuleIDNotFound, "The security group rule ID '%s' does not exist"},
		"acl":      {codeInvalidNetworkACLIDNotFound, "The networkAcl ID '%s' does not exist"},
		"eni":      {codeInvalidNetworkInterfaceIDNotFound, "The networkInterface ID '%s' does not exist"},
		"vol":      {codeInvalidVolumeNotFound, "The volume '%s' does not exist."},
		"lt": {
			codeInvalidLaunchTemplateIDNotFound,
			"The specified launch template, with template ID %s, does not exist.",
		},
		"i":        {codeInvalidInstanceIDNotFound, "The instance ID '%s' does not exist"},
		"ami":      {codeInvalidAMIIDNotFound, "The image id '[%s]' does not exist"},
		"key":      {codeInvalidKeyPairNotFound, "The key pair '%s' does not exist"},
		"vpce":     {codeInvalidVPCEndpointIDNotFound, "The Vpc Endpoint Id '%s' does not exist"},
		"pcx":      {codeInvalidVPCPeeringConnectionIDNotFound, "The vpcPeeringConnection ID '%s' does not exist"},
		"snap":     {codeInvalidSnapshotNotFound, "The snapshot '%s' does not exist."},
		"eipassoc": {codeInvalidAssociationIDNotFound, "The association ID '%s' does not exist"},
		"rtbassoc": {codeInvalidAssociationIDNotFound, "The association ID '%s' does not exist"},

		"eni-attach": {codeInvalidAttachmentIDNotFound, "The attachment ID '%s' does not exist"},
		"vpc-cidr-assoc": {
			codeInvalidVPCCIDRBlockAssociationIDNotFound,
			"The vpc CIDR block association ID '%s' does not exist",
		},
	}
}

// notFound returns EC2's error for an id that does not exist; it depends on the prefix of the id.
func notFound(id string) error {
	all := missingResources()
	unknown := missingResource{codeInvalidID, "The ID '%s' is not valid"}
	missing := cmp.Or(all[id[:max(0, strings.LastIndex(id, "-"))]], all[idPrefix(id)], unknown)

	return newErrorf(missing.code, missing.format, id)
}
