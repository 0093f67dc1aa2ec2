// SPDX-License-Identifier: Apache-2.0

package aws

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

type accountAPI interface {
	GetAccountAuthorizationDetails(context.Context, *iam.GetAccountAuthorizationDetailsInput, ...func(*iam.Options)) (*iam.GetAccountAuthorizationDetailsOutput, error)
}

// maxDetails is how many roles IAM tells of in one page.
const maxDetails = 1000

// detailedRoles reads roles with their tags and policies in one call, instead of three or more for each. It tells of all
// the account's roles: an operator who may not see those, and one whose account has more than a page of them, reads each
// of the cluster's roles by itself, and ok is false.
func detailedRoles(ctx context.Context, api accountAPI, mine []iamtypes.Role) (found []plan.Actual, ok bool) {
	if len(mine) == 0 {
		return nil, true
	}
	out, err := api.GetAccountAuthorizationDetails(ctx, &iam.GetAccountAuthorizationDetailsInput{
		Filter: []iamtypes.EntityType{iamtypes.EntityTypeRole}, MaxItems: aws.Int32(maxDetails),
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
func fromRoleDetail(listed iamtypes.Role, d iamtypes.RoleDetail) []plan.Actual {
	name := aws.ToString(d.RoleName)
	r := awskind.Role{
		Name: name, Path: aws.ToString(d.Path), Description: aws.ToString(listed.Description),
		Trust: policyDocument(aws.ToString(d.AssumeRolePolicyDocument)), Tags: fromIAM(d.Tags),
	}
	for _, p := range d.AttachedManagedPolicies {
		r.ManagedPolicies = append(r.ManagedPolicies, aws.ToString(p.PolicyArn))
	}
	slices.Sort(r.ManagedPolicies)
	out := []plan.Actual{{Addr: addressOf(r.Tags), ID: name, Resource: r, Attributes: map[string]string{"Arn": aws.ToString(d.Arn)}}}
	for _, p := range d.RolePolicyList {
		out = append(out, plan.Actual{ID: name + ":" + aws.ToString(p.PolicyName), Resource: awskind.RolePolicy{
			Role: graph.Existing[awskind.Role](name), Name: aws.ToString(p.PolicyName), Document: policyDocument(aws.ToString(p.PolicyDocument)),
		}})
	}
	return out
}
