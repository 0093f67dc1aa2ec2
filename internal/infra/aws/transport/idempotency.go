// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/smithy-go"
)

// isReadOnly reports whether an operation changes nothing.
func isReadOnly(operation string) bool {
	return hasAnyPrefix(
		operation,
		"Describe", "List", "Get", "Head", "Decrypt", "Encrypt", "GenerateDataKey", "Simulate",
	)
}

// isIdempotent reports whether an operation may be sent again when it is unknown whether AWS
// carried it out. That is so if it only reads, if it describes the state to reach, or if input has
// a client token. Deleting a resource that is gone already fails as not found, which counts as
// success. Any other operation could create a second resource: the next plan finds the first one by
// its tag.
func isIdempotent(operation string, input any) bool {
	if isReadOnly(operation) || hasClientToken(input) {
		return true
	}

	return hasAnyPrefix(
		operation,
		"Modify", "Put", "Set", "Update", "Enable", "Disable", "Authorize",
		"Tag", "Untag", "CreateTags", "AddTags", "RemoveTags",
		"Delete", "Release", "Terminate",
		"Invoke", // of a function that compares all that it is responsible for each time
	)
}

// hasClientToken reports whether the input of a call has a client token, so that AWS recognizes the
// call when it is sent again.
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

// isDeletedAlready reports whether operation removes the very resource that err says is not found.
// If a rule is revoked and AWS does not find its group, the group may only be too new to be seen.
func isDeletedAlready(operation string, err smithy.APIError) bool {
	if strings.HasPrefix(operation, "Revoke") {
		return err.ErrorCode() != "InvalidGroup.NotFound"
	}

	return hasAnyPrefix(operation, "Delete", "Detach", "Remove", "Release", "Disassociate", "Untag")
}

func hasAnyPrefix(operation string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(operation, p) })
}
