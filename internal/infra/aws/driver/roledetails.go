// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

type accountDetailsAPI interface {
	iam.GetAccountAuthorizationDetailsAPIClient
}

// maxRoleDetails is how many roles IAM tells of in one page.
const maxRoleDetails = 1000

// readRoleDetails reads roles with their tags and policies in one call, instead of three or more for each. It tells of all
// the account's roles: an operator who may not see those, and one whose account has more than a page of them, reads each
// of the cluster's roles by itself, and ok is false.
func readRoleDetails(
	ctx context.Context,
	api accountDetailsAPI,
	mine []iamtypes.Role,
) (found []plan.ActualResource, ok bool) {
	if len(mine) == 0 {
		return nil, true
	}

	out, err := api.GetAccountAuthorizationDetails(ctx, &iam.GetAccountAuthorizationDetailsInput{
		Filter: []iamtypes.EntityType{iamtypes.EntityTypeRole}, MaxItems: aws.Int32(maxRoleDetails),
	})
	if err != nil || out.IsTruncated {
		return nil, false
	}

	details := map[string]iamtypes.RoleDetail{}
	for _, d := range out.RoleDetailList {
		details[aws.ToString(d.RoleName)] = d
	}

	for _, r := range mine {
		d, listed := details[aws.ToString(r.RoleName)]
		if !listed { // made a moment ago
			return nil, false
		}

		found = append(found, fromRoleDetail(r, d)...)
	}

	return found, true
}

// fromRoleDetail returns a role, whose description only the list has, and its policies.
func fromRoleDetail(listed iamtypes.Role, d iamtypes.RoleDetail) []plan.ActualResource {
	name := aws.ToString(d.RoleName)
	r := awskind.IAMRole{
		Name:        name,
		Path:        aws.ToString(d.Path),
		Description: aws.ToString(listed.Description),
		TrustPolicy: decodePolicy(aws.ToString(d.AssumeRolePolicyDocument)),
		Tags:        fromIAMTags(d.Tags),
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
		out = append(
			out,
			plan.ActualResource{ID: name + ":" + aws.ToString(p.PolicyName), Resource: awskind.IAMRolePolicy{
				Role: graph.UnmanagedRef[awskind.IAMRole](
					name,
				), Name: aws.ToString(p.PolicyName), Document: decodePolicy(aws.ToString(p.PolicyDocument)),
			}},
		)
	}

	return out
}
