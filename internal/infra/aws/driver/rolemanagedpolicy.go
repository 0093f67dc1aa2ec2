// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
)

type managedPolicyAPI interface {
	iam.ListAttachedRolePoliciesAPIClient
	AttachRolePolicy(
		context.Context,
		*iam.AttachRolePolicyInput,
		...func(*iam.Options),
	) (*iam.AttachRolePolicyOutput, error)
	DetachRolePolicy(
		context.Context,
		*iam.DetachRolePolicyInput,
		...func(*iam.Options),
	) (*iam.DetachRolePolicyOutput, error)
}

// listManagedPolicies returns the sorted ARNs of the managed policies of a role. They allow the
// role more than its inline policies do.
func listManagedPolicies(ctx context.Context, api managedPolicyAPI, role string) ([]string, error) {
	var out []string
	pages := iam.NewListAttachedRolePoliciesPaginator(
		api,
		&iam.ListAttachedRolePoliciesInput{RoleName: &role},
	)

	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, transport.Wrap(err, "list the managed policies of %s", role)
		}

		for _, p := range page.AttachedPolicies {
			out = append(out, aws.ToString(p.PolicyArn))
		}
	}

	slices.Sort(out)

	return out, nil
}

// syncManagedPolicies attaches the managed policies in want that have lacks to a role, and detaches
// those that want lacks.
func syncManagedPolicies(ctx context.Context, api managedPolicyAPI, role string, want, have []string) error {
	for _, arn := range want {
		if slices.Contains(have, arn) {
			continue
		}

		in := &iam.AttachRolePolicyInput{RoleName: &role, PolicyArn: &arn}
		if _, err := api.AttachRolePolicy(ctx, in); err != nil {
			return transport.Wrap(err, "attach %s to %s", arn, role)
		}
	}

	for _, arn := range have {
		if slices.Contains(want, arn) {
			continue
		}

		in := &iam.DetachRolePolicyInput{RoleName: &role, PolicyArn: &arn}
		if _, err := api.DetachRolePolicy(ctx, in); err != nil {
			return transport.Wrap(err, "detach %s from %s", arn, role)
		}
	}

	return nil
}
