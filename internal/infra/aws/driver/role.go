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
	PutRolePermissionsBoundary(
		context.Context,
		*iam.PutRolePermissionsBoundaryInput,
		...func(*iam.Options),
	) (*iam.PutRolePermissionsBoundaryOutput, error)
	roleContentsAPI
}

// roleContentsAPI reads and changes the tags and policies of roles.
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

// registerRoles registers the driver of IAM roles. Its reader finds the roles by the cluster's
// path, their policies, and the instance profiles.
func registerRoles(c *Cloud, api roleAPI, profiles profileAPI, scope Scope) {
	c.addReader(func(ctx context.Context) ([]plan.ActualResource, error) {
		return readRolesAndProfiles(ctx, api, profiles, scope)
	}, awskind.IAMRole{}, awskind.IAMRolePolicy{}, awskind.InstanceProfile{})

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

			return waitWhileInUse(transport.Wrap(err, "delete")) // IAM may still show its policies and profiles
		},
	})
}

// createRole creates a role. If the role exists already and belongs to the cluster, it is updated:
// an earlier run created it, and IAM did not list it yet when the plan was made.
func createRole(ctx context.Context, api roleAPI, t task[awskind.IAMRole]) (plan.StepResult, error) {
	w := t.want
	trust := string(t.want.TrustPolicy)
	out, err := api.CreateRole(ctx, &iam.CreateRoleInput{
		RoleName:                 &w.Name,
		Path:                     &w.Path,
		Description:              &w.Description,
		AssumeRolePolicyDocument: &trust,
		PermissionsBoundary:      stringOrNil(w.PermissionsBoundary),
		Tags:                     toIAMTags(w.Tags),
	})
	if err = transport.Wrap(err, "create role %s", w.Name); plan.ErrorClassOf(err) == plan.AlreadyExists {
		return adoptRole(ctx, api, t, err)
	}

	if err != nil {
		return plan.StepResult{}, err
	}

	result := plan.StepResult{ID: w.Name, Attributes: map[string]string{"Arn": aws.ToString(out.Role.Arn)}}

	return result, syncManagedPolicies(ctx, api, w.Name, w.ManagedPolicies, nil)
}

// adoptRole updates the existing role if it belongs to the cluster; otherwise it returns existsErr.
func adoptRole(
	ctx context.Context,
	api roleAPI,
	t task[awskind.IAMRole],
	existsErr error,
) (plan.StepResult, error) {
	have, err := getRole(ctx, api, t.want.Name)
	if err != nil {
		return plan.StepResult{}, err
	}

	r, ok := have.Resource.(awskind.IAMRole)
	if !ok || r.Path != t.want.Path || r.Tags[awskind.TagCluster] != t.want.Tags[awskind.TagCluster] {
		return plan.StepResult{}, existsErr
	}

	t.id = t.want.Name
	t.have = r
	result, err := updateRole(ctx, api, t)
	result.Attributes = have.Attributes

	return result, err
}

// updateRole changes the parts of a role that differ.
func updateRole(ctx context.Context, api roleAPI, t task[awskind.IAMRole]) (plan.StepResult, error) {
	// The boundary is first: without it, an operator may not change the permissions of a role.
	if arn := t.want.PermissionsBoundary; arn != "" && arn != t.have.PermissionsBoundary {
		in := &iam.PutRolePermissionsBoundaryInput{RoleName: &t.id, PermissionsBoundary: &arn}
		if _, err := api.PutRolePermissionsBoundary(ctx, in); err != nil {
			return plan.StepResult{}, transport.Wrap(err, "set the permissions boundary of %s", t.id)
		}
	}

	if t.want.TrustPolicy != t.have.TrustPolicy {
		policy := string(t.want.TrustPolicy)
		in := &iam.UpdateAssumeRolePolicyInput{RoleName: &t.id, PolicyDocument: &policy}
		if _, err := api.UpdateAssumeRolePolicy(ctx, in); err != nil {
			return plan.StepResult{}, transport.Wrap(err, "set the trust policy of %s", t.id)
		}
	}

	if t.want.Description != t.have.Description {
		in := &iam.UpdateRoleInput{RoleName: &t.id, Description: &t.want.Description}
		if _, err := api.UpdateRole(ctx, in); err != nil {
			return plan.StepResult{}, transport.Wrap(err, "set the description of %s", t.id)
		}
	}

	if err := syncManagedPolicies(ctx, api, t.id, t.want.ManagedPolicies, t.have.ManagedPolicies); err != nil {
		return plan.StepResult{}, err
	}

	return keepIdentity(t), retagRole(ctx, api, t)
}

// retagRole changes the tags of a role.
func retagRole(ctx context.Context, api roleTagAPI, t task[awskind.IAMRole]) error {
	set, remove := diffTags(t.want.Tags, t.have.Tags)
	if len(set) > 0 {
		if _, err := api.TagRole(ctx, &iam.TagRoleInput{RoleName: &t.id, Tags: toIAMTags(set)}); err != nil {
			return transport.Wrap(err, "tag %s", t.id)
		}
	}

	if len(remove) > 0 {
		if _, err := api.UntagRole(ctx, &iam.UntagRoleInput{RoleName: &t.id, TagKeys: remove}); err != nil {
			return transport.Wrap(err, "untag %s", t.id)
		}
	}

	return nil
}

// readRolesAndProfiles reads the roles below the cluster's path, and its instance profiles. If every role has a
// profile, IAM lists the profiles with the roles. Otherwise there may be profiles without a role, as after an
// interrupted run. A deletion always looks for these; it does not need the descriptions of roles, which only a
// list of roles has.
func readRolesAndProfiles(
	ctx context.Context,
	api roleAPI,
	profiles profileAPI,
	scope Scope,
) ([]plan.ActualResource, error) {
	if omitsDetails(ctx) {
		if found, ok := readDetailsByPath(ctx, api, scope); ok {
			list, err := readProfiles(ctx, profiles, scope)
			return append(found, list...), err
		}
	}

	roles, err := listRoles(ctx, api, scope)
	if err != nil {
		return nil, err
	}

	found, fromRoles, ok := readRoleDetails(ctx, api, roles, scope)
	if !ok {
		found, err = readRolesOneByOne(ctx, api, roles)
	}

	if err != nil {
		return nil, err
	}

	if len(fromRoles) > 0 {
		return append(found, fromRoles...), nil
	}

	list, err := readProfiles(ctx, profiles, scope)

	return append(found, list...), err
}

func listRoles(ctx context.Context, api roleAPI, scope Scope) ([]iamtypes.Role, error) {
	var roles []iamtypes.Role
	pages := iam.NewListRolesPaginator(api, &iam.ListRolesInput{PathPrefix: &scope.RolePath})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, transport.Wrap(err, "list roles below %s", scope.RolePath)
		}

		for _, r := range page.Roles {
			if aws.ToString(r.Path) == scope.RolePath {
				roles = append(roles, r)
			}
		}
	}

	return roles, nil
}

func readRolesOneByOne(
	ctx context.Context,
	api roleAPI,
	roles []iamtypes.Role,
) ([]plan.ActualResource, error) {
	return readEach(roles, func(listed iamtypes.Role) ([]plan.ActualResource, error) {
		role, err := getRole(ctx, api, aws.ToString(listed.RoleName)) // the list lacks tags
		if err != nil {
			return nil, err
		}

		policies, err := readRolePolicies(ctx, api, role.ID)

		return append([]plan.ActualResource{role}, policies...), err
	})
}

// getRole returns a role with its tags and managed policies.
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
	if boundary := out.Role.PermissionsBoundary; boundary != nil {
		r.PermissionsBoundary = aws.ToString(boundary.PermissionsBoundaryArn)
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
