// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/smithy-go"
)

// hasClientToken says whether a call's input has a client token: then it may be sent again.
func hasClientToken(input any) bool {
	var token *string
	switch in := input.(type) {
	case *ec2.CreateNatGatewayInput:
		token = in.ClientToken
	case *ec2.CreateVolumeInput:
		token = in.ClientToken
	case *ec2.CreateLaunchTemplateInput:
		token = in.ClientToken
	case *ec2.CreateLaunchTemplateVersionInput:
		token = in.ClientToken
	case *ec2.CreateRouteTableInput:
		token = in.ClientToken
	}

	return token != nil
}

// isReadOnly says whether an operation only reads.
func isReadOnly(operation string) bool {
	return slices.ContainsFunc(
		[]string{"Describe", "List", "Get", "Head", "Decrypt", "Encrypt", "GenerateDataKey", "Simulate"},
		func(p string) bool { return strings.HasPrefix(operation, p) },
	)
}

// isIdempotent says whether an operation may be made again when it is not known whether it was carried out: it only reads,
// it says what is to be in the end, as a rule does, or it carries a client token. To delete by an id what is gone already is
// answered as not found, which is as good as done. A second VPC would come of any other: the next plan
// finds by its tag what the first call made.
func isIdempotent(operation string, input any) bool {
	if isReadOnly(operation) || hasClientToken(input) {
		return true
	}

	return slices.ContainsFunc(
		[]string{
			"Modify",
			"Put",
			"Set",
			"Tag",
			"Untag",
			"CreateTags",
			"Delete",
			"Release",
			"Terminate",
			"AddTags",
			"RemoveTags",
			"Update",
			"Enable",
			"Disable",
			"Authorize",
		},
		func(p string) bool { return strings.HasPrefix(operation, p) },
	)
}

// isDeletedAlready says whether an operation removes something, and that is what is not found: it is gone already. That the group
// is not seen whose rule is to go is another thing.
func isDeletedAlready(operation string, err smithy.APIError) bool {
	if strings.HasPrefix(operation, "Revoke") {
		return err.ErrorCode() != "InvalidGroup.NotFound"
	}

	return slices.ContainsFunc(
		[]string{"Delete", "Detach", "Remove", "Release", "Disassociate", "Untag"},
		func(p string) bool {
			return strings.HasPrefix(operation, p)
		},
	)
}
