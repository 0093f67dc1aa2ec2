// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

type accountDetailsAPI interface {
	iam.GetAccountAuthorizationDetailsAPIClient
}

// maxRoleDetails is the largest page of roles that IAM returns.
const maxRoleDetails = 1000

// readRoleDetails reads roles with their tags and policies in one call, instead of three or more
// calls for each role. The call returns all roles of the account. profiles are the instance profiles
// of the roles; none if a role has no profile, since there may be profiles without a role then. ok is
// false if the operator is not allowed to make the call, or if the account has more roles than fit
// into one page: then each role has to be read by itself.
func readRoleDetails(
	ctx context.Context,
	api accountDetailsAPI,
	roles []iamtypes.Role,
	scope Scope,
) (found, profiles []plan.ActualResource, ok bool) {
	if len(roles) == 0 {
		return nil, nil, true
	}

	details, ok := listRoleDetails(ctx, api)
	complete := true

	for _, r := range roles {
		d, listed := details[aws.ToString(r.RoleName)]
		if !listed { // the role was created a moment ago
			return nil, nil, false
		}

		own := fromProfiles(d.InstanceProfileList, scope)
		complete = complete && len(own) > 0
		profiles = append(profiles, own...)
		found = append(found, fromRoleDetail(aws.ToString(r.Description), d)...)
	}

	if !complete {
		profiles = nil
	}

	return found, profiles, ok
}

// readDetailsByPath reads the roles below the cluster's path, without their descriptions. ok is false as for
// readRoleDetails.
func readDetailsByPath(
	ctx context.Context,
	api accountDetailsAPI,
	scope Scope,
) (found []plan.ActualResource, ok bool) {
	details, ok := listRoleDetails(ctx, api)
	for _, name := range slices.Sorted(maps.Keys(details)) {
		if d := details[name]; aws.ToString(d.Path) == scope.RolePath {
			found = append(found, fromRoleDetail("", d)...)
		}
	}

	return found, ok
}

// listRoleDetails returns all roles of the account by name. ok is false if they cannot be read with one call.
func listRoleDetails(
	ctx context.Context,
	api accountDetailsAPI,
) (details map[string]iamtypes.RoleDetail, ok bool) {
	out, err := api.GetAccountAuthorizationDetails(ctx, &iam.GetAccountAuthorizationDetailsInput{
		Filter:   []iamtypes.EntityType{iamtypes.EntityTypeRole},
		MaxItems: aws.Int32(maxRoleDetails),
	})
	if err != nil || out.IsTruncated {
		return nil, false
	}

	details = map[string]iamtypes.RoleDetail{}
	for _, d := range out.RoleDetailList {
		details[aws.ToString(d.RoleName)] = d
	}

	return details, true
}

// fromRoleDetail returns a role and its inline policies. The details lack the description.
func fromRoleDetail(description string, d iamtypes.RoleDetail) []plan.ActualResource {
	name := aws.ToString(d.RoleName)
	r := awskind.IAMRole{
		Name:        name,
		Path:        aws.ToString(d.Path),
		Description: description,
		TrustPolicy: decodePolicy(aws.ToString(d.AssumeRolePolicyDocument)),
		Tags:        fromIAMTags(d.Tags),
	}

	if d.PermissionsBoundary != nil {
		r.PermissionsBoundary = aws.ToString(d.PermissionsBoundary.PermissionsBoundaryArn)
	}

	for _, p := range d.AttachedManagedPolicies {
		r.ManagedPolicies = append(r.ManagedPolicies, aws.ToString(p.PolicyArn))
	}

	slices.Sort(r.ManagedPolicies)
	out := []plan.ActualResource{{
		Addr:       addressFromTags(r.Tags),
		ID:         name,
		Resource:   r,
		Attributes: map[string]string{"Arn": aws.ToString(d.Arn)},
	}}

	for _, p := range d.RolePolicyList {
		out = append(out, newRolePolicy(name, aws.ToString(p.PolicyName), p.PolicyDocument))
	}

	return out
}
