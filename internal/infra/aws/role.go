// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"maps"
	"net/url"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

type roleAPI interface {
	ListRoles(context.Context, *iam.ListRolesInput, ...func(*iam.Options)) (*iam.ListRolesOutput, error)
	GetRole(context.Context, *iam.GetRoleInput, ...func(*iam.Options)) (*iam.GetRoleOutput, error)
	CreateRole(context.Context, *iam.CreateRoleInput, ...func(*iam.Options)) (*iam.CreateRoleOutput, error)
	UpdateRole(context.Context, *iam.UpdateRoleInput, ...func(*iam.Options)) (*iam.UpdateRoleOutput, error)
	UpdateAssumeRolePolicy(context.Context, *iam.UpdateAssumeRolePolicyInput, ...func(*iam.Options)) (*iam.UpdateAssumeRolePolicyOutput, error)
	DeleteRole(context.Context, *iam.DeleteRoleInput, ...func(*iam.Options)) (*iam.DeleteRoleOutput, error)
	rolePartsAPI
}

// rolePartsAPI is about what a role has.
type rolePartsAPI interface {
	roleTagAPI
	rolePolicyAPI
	accountAPI
	attachAPI
}

type roleTagAPI interface {
	TagRole(context.Context, *iam.TagRoleInput, ...func(*iam.Options)) (*iam.TagRoleOutput, error)
	UntagRole(context.Context, *iam.UntagRoleInput, ...func(*iam.Options)) (*iam.UntagRoleOutput, error)
}

type rolePolicyAPI interface {
	ListRolePolicies(context.Context, *iam.ListRolePoliciesInput, ...func(*iam.Options)) (*iam.ListRolePoliciesOutput, error)
	GetRolePolicy(context.Context, *iam.GetRolePolicyInput, ...func(*iam.Options)) (*iam.GetRolePolicyOutput, error)
	PutRolePolicy(context.Context, *iam.PutRolePolicyInput, ...func(*iam.Options)) (*iam.PutRolePolicyOutput, error)
	DeleteRolePolicy(context.Context, *iam.DeleteRolePolicyInput, ...func(*iam.Options)) (*iam.DeleteRolePolicyOutput, error)
}

// roles drives IAM roles and the policies inside them, which are found by the cluster's path.
func roles(c *Cloud, api roleAPI, scope Scope) {
	c.readers = append(c.readers, func(ctx context.Context) ([]plan.Actual, error) { return readRoles(ctx, api, scope) })
	register(c, driver[awskind.Role]{
		create: func(ctx context.Context, t task[awskind.Role]) (plan.Made, error) { return createRole(ctx, api, t) },
		update: func(ctx context.Context, t task[awskind.Role]) (plan.Made, error) { return updateRole(ctx, api, t) },
		remove: func(ctx context.Context, t task[awskind.Role]) error {
			if err := attach(ctx, api, t.id, nil, t.have.ManagedPolicies); err != nil {
				return err
			}
			_, err := api.DeleteRole(ctx, &iam.DeleteRoleInput{RoleName: &t.id})
			return wrap(err, "delete")
		},
	})
	put := func(ctx context.Context, t task[awskind.RolePolicy]) (plan.Made, error) {
		role, doc := t.want.Role.Literal(), string(t.want.Document)
		_, err := api.PutRolePolicy(ctx, &iam.PutRolePolicyInput{RoleName: &role, PolicyName: &t.want.Name, PolicyDocument: &doc})
		return plan.Made{ID: role + ":" + t.want.Name}, wrap(err, "put policy %s into %s", t.want.Name, role)
	}
	register(c, driver[awskind.RolePolicy]{
		create: put, update: put,
		remove: func(ctx context.Context, t task[awskind.RolePolicy]) error {
			role := t.have.Role.Literal()
			_, err := api.DeleteRolePolicy(ctx, &iam.DeleteRolePolicyInput{RoleName: &role, PolicyName: &t.have.Name})
			return wrap(err, "delete policy %s of %s", t.have.Name, role)
		},
	})
}

// createRole takes a role over that an earlier run made and IAM, which is slow to tell, did not list.
func createRole(ctx context.Context, api roleAPI, t task[awskind.Role]) (plan.Made, error) {
	w, trust := t.want, string(t.want.Trust)
	out, err := api.CreateRole(ctx, &iam.CreateRoleInput{
		RoleName: &w.Name, Path: &w.Path, Description: &w.Description, AssumeRolePolicyDocument: &trust, Tags: iamTags(w.Tags),
	})
	if err = wrap(err, "create role %s", w.Name); plan.ClassOf(err) == plan.Exists {
		have, getErr := getRole(ctx, api, w.Name)
		if getErr != nil {
			return plan.Made{}, getErr
		}
		if r, ok := have.Resource.(awskind.Role); ok && r.Path == w.Path && r.Tags[awskind.TagCluster] == w.Tags[awskind.TagCluster] {
			t.id, t.have = w.Name, r
			made, updateErr := updateRole(ctx, api, t)
			made.Attributes = have.Attributes
			return made, updateErr
		}
	}
	if err != nil {
		return plan.Made{}, err
	}
	made := plan.Made{ID: w.Name, Attributes: map[string]string{"Arn": aws.ToString(out.Role.Arn)}}
	return made, attach(ctx, api, w.Name, w.ManagedPolicies, nil)
}

func updateRole(ctx context.Context, api roleAPI, t task[awskind.Role]) (plan.Made, error) {
	if t.want.Trust != t.have.Trust {
		doc := string(t.want.Trust)
		if _, err := api.UpdateAssumeRolePolicy(ctx, &iam.UpdateAssumeRolePolicyInput{RoleName: &t.id, PolicyDocument: &doc}); err != nil {
			return plan.Made{}, wrap(err, "set who may assume %s", t.id)
		}
	}
	if t.want.Description != t.have.Description {
		if _, err := api.UpdateRole(ctx, &iam.UpdateRoleInput{RoleName: &t.id, Description: &t.want.Description}); err != nil {
			return plan.Made{}, wrap(err, "describe %s", t.id)
		}
	}
	if err := attach(ctx, api, t.id, t.want.ManagedPolicies, t.have.ManagedPolicies); err != nil {
		return plan.Made{}, err
	}
	set, remove := tagChanges(t.want.Tags, t.have.Tags)
	if len(set) > 0 {
		if _, err := api.TagRole(ctx, &iam.TagRoleInput{RoleName: &t.id, Tags: iamTags(set)}); err != nil {
			return plan.Made{}, wrap(err, "tag %s", t.id)
		}
	}
	if len(remove) > 0 {
		if _, err := api.UntagRole(ctx, &iam.UntagRoleInput{RoleName: &t.id, TagKeys: remove}); err != nil {
			return plan.Made{}, wrap(err, "untag %s", t.id)
		}
	}
	return kept(t), nil
}

func readRoles(ctx context.Context, api roleAPI, scope Scope) ([]plan.Actual, error) {
	var mine []iamtypes.Role
	pages := iam.NewListRolesPaginator(api, &iam.ListRolesInput{PathPrefix: &scope.RolePath})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, wrap(err, "list roles below %s", scope.RolePath)
		}
		for _, r := range page.Roles {
			if aws.ToString(r.Path) == scope.RolePath {
				mine = append(mine, r)
			}
		}
	}
	if found, ok := detailedRoles(ctx, api, mine); ok {
		return found, nil
	}
	return each(mine, func(listed iamtypes.Role) ([]plan.Actual, error) {
		role, err := getRole(ctx, api, aws.ToString(listed.RoleName)) // the list has no tags
		if err != nil {
			return nil, err
		}
		policies, err := readRolePolicies(ctx, api, role.ID)
		return append([]plan.Actual{role}, policies...), err
	})
}

func getRole(ctx context.Context, api roleAPI, name string) (plan.Actual, error) {
	out, err := api.GetRole(ctx, &iam.GetRoleInput{RoleName: &name})
	if err != nil {
		return plan.Actual{}, wrap(err, "read role %s", name)
	}
	attached, err := managedOf(ctx, api, name)
	if err != nil {
		return plan.Actual{}, err
	}
	r := awskind.Role{
		Name: name, ManagedPolicies: attached, Path: aws.ToString(out.Role.Path), Description: aws.ToString(out.Role.Description),
		Trust: policyDocument(aws.ToString(out.Role.AssumeRolePolicyDocument)), Tags: fromIAM(out.Role.Tags),
	}
	return plan.Actual{Addr: addressOf(r.Tags), ID: name, Resource: r, Attributes: map[string]string{"Arn": aws.ToString(out.Role.Arn)}}, nil
}

func readRolePolicies(ctx context.Context, api rolePolicyAPI, role string) ([]plan.Actual, error) {
	var out []plan.Actual
	pages := iam.NewListRolePoliciesPaginator(api, &iam.ListRolePoliciesInput{RoleName: &role})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, wrap(err, "list the policies of %s", role)
		}
		for _, name := range page.PolicyNames {
			p, err := api.GetRolePolicy(ctx, &iam.GetRolePolicyInput{RoleName: &role, PolicyName: &name})
			if err != nil {
				return nil, wrap(err, "read policy %s of %s", name, role)
			}
			out = append(out, plan.Actual{ID: role + ":" + name, Resource: awskind.RolePolicy{
				Role: graph.Existing[awskind.Role](role), Name: name, Document: policyDocument(aws.ToString(p.PolicyDocument)),
			}})
		}
	}
	return out, nil
}

// policyDocument is a policy as IAM returns it: escaped as in a URL.
func policyDocument(escaped string) graph.JSON {
	if plain, err := url.QueryUnescape(escaped); err == nil {
		return graph.Canonical(plain)
	}
	return graph.Canonical(escaped)
}

func iamTags(tags awskind.Tags) []iamtypes.Tag {
	var out []iamtypes.Tag
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		out = append(out, iamtypes.Tag{Key: aws.String(k), Value: aws.String(tags[k])})
	}
	return out
}

func fromIAM(tags []iamtypes.Tag) awskind.Tags {
	out := awskind.Tags{}
	for _, t := range tags {
		out[aws.ToString(t.Key)] = aws.ToString(t.Value)
	}
	return out
}
