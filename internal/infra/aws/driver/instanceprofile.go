// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

type profileAPI interface {
	iam.ListInstanceProfilesAPIClient
	iam.GetInstanceProfileAPIClient
	CreateInstanceProfile(
		context.Context,
		*iam.CreateInstanceProfileInput,
		...func(*iam.Options),
	) (*iam.CreateInstanceProfileOutput, error)
	DeleteInstanceProfile(
		context.Context,
		*iam.DeleteInstanceProfileInput,
		...func(*iam.Options),
	) (*iam.DeleteInstanceProfileOutput, error)
	AddRoleToInstanceProfile(
		context.Context,
		*iam.AddRoleToInstanceProfileInput,
		...func(*iam.Options),
	) (*iam.AddRoleToInstanceProfileOutput, error)
	RemoveRoleFromInstanceProfile(
		context.Context,
		*iam.RemoveRoleFromInstanceProfileInput,
		...func(*iam.Options),
	) (*iam.RemoveRoleFromInstanceProfileOutput, error)
}

// registerInstanceProfiles registers the driver of instance profiles. They are read with the roles.
func registerInstanceProfiles(c *Cloud, api profileAPI) {
	registerDriver(c, driver[awskind.InstanceProfile]{
		create: func(ctx context.Context, t task[awskind.InstanceProfile]) (plan.StepResult, error) {
			return createProfile(ctx, api, t)
		},
		update: func(ctx context.Context, t task[awskind.InstanceProfile]) (plan.StepResult, error) {
			return keepIdentity(t), setProfileRoles(ctx, api, t)
		},
		remove: func(ctx context.Context, t task[awskind.InstanceProfile]) error {
			t.want = awskind.InstanceProfile{}
			if err := setProfileRoles(ctx, api, t); err != nil {
				return err
			}

			_, err := api.DeleteInstanceProfile(
				ctx,
				&iam.DeleteInstanceProfileInput{InstanceProfileName: &t.id},
			)

			return waitWhileInUse(transport.Wrap(err, "delete")) // IAM may still show its role
		},
	})
}

// createProfile creates an instance profile. If it exists already at the cluster's path, it is
// updated: an earlier run created it, and IAM did not list it yet when the plan was made.
func createProfile(
	ctx context.Context,
	api profileAPI,
	t task[awskind.InstanceProfile],
) (plan.StepResult, error) {
	t.id = t.want.Name
	out, err := api.CreateInstanceProfile(
		ctx,
		&iam.CreateInstanceProfileInput{InstanceProfileName: &t.want.Name, Path: &t.want.Path},
	)
	if err = transport.Wrap(err, "create instance profile %s", t.id); err != nil {
		if plan.ErrorClassOf(err) != plan.AlreadyExists {
			return plan.StepResult{}, err
		}

		have, getErr := api.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: &t.id})
		if getErr != nil || aws.ToString(have.InstanceProfile.Path) != t.want.Path {
			return plan.StepResult{}, err
		}

		for _, r := range have.InstanceProfile.Roles {
			t.have.Roles = append(t.have.Roles, graph.UnmanagedRef[awskind.IAMRole](aws.ToString(r.RoleName)))
		}

		return profileResult(t.id, have.InstanceProfile), setProfileRoles(ctx, api, t)
	}

	return profileResult(t.id, out.InstanceProfile), setProfileRoles(ctx, api, t)
}

func profileResult(id string, p *iamtypes.InstanceProfile) plan.StepResult {
	return plan.StepResult{ID: id, Attributes: map[string]string{"Arn": aws.ToString(p.Arn)}}
}

// setProfileRoles removes the roles that t.want lacks, then adds the one that it has: a profile can
// have one role.
func setProfileRoles(ctx context.Context, api profileAPI, t task[awskind.InstanceProfile]) error {
	for _, r := range t.have.Roles {
		if name := r.Literal(); !slices.Contains(t.want.Roles, r) {
			_, err := api.RemoveRoleFromInstanceProfile(
				ctx,
				&iam.RemoveRoleFromInstanceProfileInput{InstanceProfileName: &t.id, RoleName: &name},
			)
			if err = transport.Wrap(err, "remove role %s from %s", name, t.id); err != nil &&
				plan.ErrorClassOf(err) != plan.NotFound {
				return err
			}
		}
	}

	for _, r := range t.want.Roles {
		if name := r.Literal(); !slices.Contains(t.have.Roles, r) {
			_, err := api.AddRoleToInstanceProfile(
				ctx,
				&iam.AddRoleToInstanceProfileInput{InstanceProfileName: &t.id, RoleName: &name},
			)
			if err != nil {
				return transport.Wrap(err, "add role %s to %s", name, t.id)
			}
		}
	}

	return nil
}

func readProfiles(ctx context.Context, api profileAPI, scope Scope) ([]plan.ActualResource, error) {
	var out []plan.ActualResource
	pages := iam.NewListInstanceProfilesPaginator(
		api,
		&iam.ListInstanceProfilesInput{PathPrefix: &scope.RolePath},
	)

	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, transport.Wrap(err, "list instance profiles below %s", scope.RolePath)
		}

		out = append(out, fromProfiles(page.InstanceProfiles, scope)...)
	}

	return out, nil
}

// fromProfiles returns those of the instance profiles that have the cluster's path.
func fromProfiles(list []iamtypes.InstanceProfile, scope Scope) []plan.ActualResource {
	var out []plan.ActualResource
	for _, p := range list {
		r := awskind.InstanceProfile{
			Name: aws.ToString(p.InstanceProfileName),
			Path: aws.ToString(p.Path),
		}
		if r.Path != scope.RolePath {
			continue
		}

		for _, role := range p.Roles {
			r.Roles = append(r.Roles, graph.UnmanagedRef[awskind.IAMRole](aws.ToString(role.RoleName)))
		}

		out = append(out, plan.ActualResource{
			ID:         r.Name,
			Resource:   r,
			Attributes: map[string]string{"Arn": aws.ToString(p.Arn)},
		})
	}

	return out
}
