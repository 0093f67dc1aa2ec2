// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

type roleAPI interface {
	iam.ListRolesAPIClient
	iam.GetRoleAPIClient
	CreateRole(context.Context, *iam.CreateRoleInput, ...func(*iam.Options)) (*iam.CreateRoleOutput, error)
	UpdateRole(context.Context, *iam.UpdateRoleInput, ...func(*iam.Options)) (*iam.UpdateRoleOutput, error)
	UpdateAssumeRolePolicy(
		context.Context,
		*iam.UpdateAssumeRolePolicyInput,
		...func(*iam.Options),
	) (*iam.UpdateAssumeRolePolicyOutput, error)
	DeleteRole(context.Context, *iam.DeleteRoleInput, ...func(*iam.Options)) (*iam.DeleteRoleOutput, error)
	roleContentsAPI
}

// roleContentsAPI is about what a role has.
type roleContentsAPI interface {
	roleTagAPI
	rolePolicyAPI
	accountDetailsAPI
	managedPolicyAPI
}

type roleTagAPI interface {
	TagRole(context.Context, *iam.TagRoleInput, ...func(*iam.Options)) (*iam.TagRoleOutput, error)
	UntagRole(context.Context, *iam.UntagRoleInput, ...func(*iam.Options)) (*iam.UntagRoleOutput, error)
}

// registerRoles drives IAM roles and the policies inside them, which are found by the cluster's path.
func registerRoles(c *Cloud, api roleAPI, scope Scope) {
	c.readers = append(
		c.readers,
		func(ctx context.Context) ([]plan.ActualResource, error) { return readRoles(ctx, api, scope) },
	)

	registerDriver(c, driver[awskind.IAMRole]{
		create: func(ctx context.Context, t task[awskind.IAMRole]) (plan.StepResult, error) {
			return createRole(ctx, api, t)
		},
		update: func(ctx context.Context, t task[awskind.IAMRole]) (plan.StepResult, error) {
			return updateRole(ctx, api, t)
		},
		remove: func(ctx context.Context, t task[awskind.IAMRole]) error {
			if err := syncManagedPolicies(ctx, api, t.id, nil, t.have.ManagedPolicies); err != nil {
				return err
			}

			_, err := api.DeleteRole(ctx, &iam.DeleteRoleInput{RoleName: &t.id})
			return transport.Wrap(err, "delete")
		},
	})
}

// createRole takes a role over that an earlier run made and IAM, which is slow to tell, did not list.
func createRole(ctx context.Context, api roleAPI, t task[awskind.IAMRole]) (plan.StepResult, error) {
	w := t.want
	trust := string(t.want.TrustPolicy)
	out, err := api.CreateRole(ctx, &iam.CreateRoleInput{
		RoleName:                 &w.Name,
		Path:                     &w.Path,
		Description:              &w.Description,
		AssumeRolePolicyDocument: &trust,
		Tags:                     toIAMTags(w.Tags),
	})
	if err = transport.Wrap(err, "create role %s", w.Name); plan.ErrorClassOf(err) == plan.AlreadyExists {
		have, getErr := getRole(ctx, api, w.Name)
		if getErr != nil {
			return plan.StepResult{}, getErr
		}

		if r, ok := have.Resource.(awskind.IAMRole); ok && r.Path == w.Path &&
			r.Tags[awskind.TagCluster] == w.Tags[awskind.TagCluster] {
			t.id = w.Name
			t.have = r
			made, updateErr := updateRole(ctx, api, t)
			made.Attributes = have.Attributes

			return made, updateErr
		}
	}

	if err != nil {
		return plan.StepResult{}, err
	}

	made := plan.StepResult{ID: w.Name, Attributes: map[string]string{"Arn": aws.ToString(out.Role.Arn)}}

	return made, syncManagedPolicies(ctx, api, w.Name, w.ManagedPolicies, nil)
}

func updateRole(ctx context.Context, api roleAPI, t task[awskind.IAMRole]) (plan.StepResult, error) {
	if t.want.TrustPolicy != t.have.TrustPolicy {
		doc := string(t.want.TrustPolicy)
		if _, err := api.UpdateAssumeRolePolicy(ctx, &iam.UpdateAssumeRolePolicyInput{RoleName: &t.id, PolicyDocument: &doc}); err != nil {
			return plan.StepResult{}, transport.Wrap(err, "set who may assume %s", t.id)
		}
	}

	if t.want.Description != t.have.Description {
		if _, err := api.UpdateRole(ctx, &iam.UpdateRoleInput{RoleName: &t.id, Description: &t.want.Description}); err != nil {
			return plan.StepResult{}, transport.Wrap(err, "describe %s", t.id)
		}
	}

	if err := syncManagedPolicies(ctx, api, t.id, t.want.ManagedPolicies, t.have.ManagedPolicies); err != nil {
		return plan.StepResult{}, err
	}

	set, remove := diffTags(t.want.Tags, t.have.Tags)
	if len(set) > 0 {
		if _, err := api.TagRole(ctx, &iam.TagRoleInput{RoleName: &t.id, Tags: toIAMTags(set)}); err != nil {
			return plan.StepResult{}, transport.Wrap(err, "tag %s", t.id)
		}
	}

	if len(remove) > 0 {
		if _, err := api.UntagRole(ctx, &iam.UntagRoleInput{RoleName: &t.id, TagKeys: remove}); err != nil {
			return plan.StepResult{}, transport.Wrap(err, "untag %s", t.id)
		}
	}

	return keepIdentity(t), nil
}

func readRoles(ctx context.Context, api roleAPI, scope Scope) ([]plan.ActualResource, error) {
	var mine []iamtypes.Role
	pages := iam.NewListRolesPaginator(api, &iam.ListRolesInput{PathPrefix: &scope.RolePath})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, transport.Wrap(err, "list roles below %s", scope.RolePath)
		}

		for _, r := range page.Roles {
			if aws.ToString(r.Path) == scope.RolePath {
				mine = append(mine, r)
			}
		}
	}

	if found, ok := readRoleDetails(ctx, api, mine); ok {
		return found, nil
	}

	return readEach(mine, func(listed iamtypes.Role) ([]plan.ActualResource, error) {
		role, err := getRole(ctx, api, aws.ToString(listed.RoleName)) // the list has no tags
		if err != nil {
			return nil, err
		}

		policies, err := readRolePolicies(ctx, api, role.ID)

		return append([]plan.ActualResource{role}, policies...), err
	})
}

func getRole(ctx context.Context, api roleAPI, name string) (plan.ActualResource, error) {
	out, err := api.GetRole(ctx, &iam.GetRoleInput{RoleName: &name})
	if err != nil {
		return plan.ActualResource{}, transport.Wrap(err, "read role %s", name)
	}

	attached, err := listManagedPolicies(ctx, api, name)
	if err != nil {
		return plan.ActualResource{}, err
	}

	r := awskind.IAMRole{
		Name:            name,
		ManagedPolicies: attached,
		Path:            aws.ToString(out.Role.Path),
		Description:     aws.ToString(out.Role.Description),
		TrustPolicy:     decodePolicy(aws.ToString(out.Role.AssumeRolePolicyDocument)),
		Tags:            fromIAMTags(out.Role.Tags),
	}

	return plan.ActualResource{
		Addr:       addressFromTags(r.Tags),
		ID:         name,
		Resource:   r,
		Attributes: map[string]string{"Arn": aws.ToString(out.Role.Arn)},
	}, nil
}

func toIAMTags(tags awskind.Tags) []iamtypes.Tag {
	var out []iamtypes.Tag
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		out = append(out, iamtypes.Tag{Key: aws.String(k), Value: aws.String(tags[k])})
	}

	return out
}

func fromIAMTags(tags []iamtypes.Tag) awskind.Tags {
	out := awskind.Tags{}
	for _, t := range tags {
		out[aws.ToString(t.Key)] = aws.ToString(t.Value)
	}

	return out
}
