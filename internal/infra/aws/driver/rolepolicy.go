// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"net/url"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

type rolePolicyAPI interface {
	iam.ListRolePoliciesAPIClient
	GetRolePolicy(
		context.Context,
		*iam.GetRolePolicyInput,
		...func(*iam.Options),
	) (*iam.GetRolePolicyOutput, error)
	PutRolePolicy(
		context.Context,
		*iam.PutRolePolicyInput,
		...func(*iam.Options),
	) (*iam.PutRolePolicyOutput, error)
	DeleteRolePolicy(
		context.Context,
		*iam.DeleteRolePolicyInput,
		...func(*iam.Options),
	) (*iam.DeleteRolePolicyOutput, error)
}

// registerRolePolicies registers the driver of the inline policies of roles. They are read with
// their roles.
func registerRolePolicies(c *Cloud, api rolePolicyAPI) {
	put := func(ctx context.Context, t task[awskind.IAMRolePolicy]) (plan.StepResult, error) {
		role := t.want.Role.Literal()
		document := string(t.want.Document)
		_, err := api.PutRolePolicy(ctx, &iam.PutRolePolicyInput{
			RoleName:       &role,
			PolicyName:     &t.want.Name,
			PolicyDocument: &document,
		})
		err = transport.Wrap(err, "put policy %s into %s", t.want.Name, role)

		return plan.StepResult{ID: rolePolicyID(role, t.want.Name)}, err
	}

	registerDriver(c, driver[awskind.IAMRolePolicy]{
		create: put,
		update: put,
		remove: func(ctx context.Context, t task[awskind.IAMRolePolicy]) error {
			role := t.have.Role.Literal()
			_, err := api.DeleteRolePolicy(
				ctx,
				&iam.DeleteRolePolicyInput{RoleName: &role, PolicyName: &t.have.Name},
			)

			return transport.Wrap(err, "delete policy %s of %s", t.have.Name, role)
		},
	})
}

func readRolePolicies(ctx context.Context, api rolePolicyAPI, role string) ([]plan.ActualResource, error) {
	var out []plan.ActualResource
	pages := iam.NewListRolePoliciesPaginator(api, &iam.ListRolePoliciesInput{RoleName: &role})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, transport.Wrap(err, "list the policies of %s", role)
		}

		for _, name := range page.PolicyNames {
			p, err := api.GetRolePolicy(ctx, &iam.GetRolePolicyInput{RoleName: &role, PolicyName: &name})
			if err != nil {
				return nil, transport.Wrap(err, "read policy %s of %s", name, role)
			}

			out = append(out, newRolePolicy(role, name, p.PolicyDocument))
		}
	}

	return out, nil
}

// newRolePolicy returns an inline policy of a role; document is escaped as IAM returns it.
func newRolePolicy(role, name string, document *string) plan.ActualResource {
	return plan.ActualResource{ID: rolePolicyID(role, name), Resource: awskind.IAMRolePolicy{
		Role:     graph.UnmanagedRef[awskind.IAMRole](role),
		Name:     name,
		Document: decodePolicy(aws.ToString(document)),
	}}
}

// rolePolicyID returns the id of an inline policy.
func rolePolicyID(role, name string) string { return role + ":" + name }

// decodePolicy returns a policy that IAM returned, which is escaped as in a URL.
func decodePolicy(escaped string) graph.JSON {
	if plain, err := url.QueryUnescape(escaped); err == nil {
		return graph.CanonicalJSON(plain)
	}

	return graph.CanonicalJSON(escaped)
}
