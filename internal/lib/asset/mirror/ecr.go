// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/aws/aws-sdk-go-v2/service/ecr/types"
	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/slipway-k8s/slipway/internal/lib/ecrlogin"
	"github.com/slipway-k8s/slipway/internal/lib/plainerror"
	"github.com/slipway-k8s/slipway/internal/lib/propagation"
)

// ECRAPI are the calls of Amazon ECR that a mirror makes.
type ECRAPI interface {
	ecr.DescribeRepositoriesAPIClient
	ecrlogin.API
	CreateRepository(
		context.Context,
		*ecr.CreateRepositoryInput,
		...func(*ecr.Options),
	) (*ecr.CreateRepositoryOutput, error)
}

// ECR is a private registry of Amazon ECR. Unlike other registries it has no repositories that nobody created.
type ECR struct {
	API     ECRAPI
	Account string // that has the registry
}

// login returns the credentials for the registry. They are valid for 12 hours.
func (e ECR) login(ctx context.Context) (authn.Authenticator, error) {
	token, err := ecrlogin.GetToken(ctx, e.API)
	if err != nil {
		return nil, err
	}

	return authn.FromConfig(authn.AuthConfig{Username: token.User, Password: token.Password}), nil
}

// listRepositories returns the names of the repositories.
func (e ECR) listRepositories(ctx context.Context) (map[string]bool, error) {
	names := map[string]bool{}
	in := &ecr.DescribeRepositoriesInput{RegistryId: &e.Account}
	pages := ecr.NewDescribeRepositoriesPaginator(e.API, in)
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list the repositories of Amazon ECR: %w", plainerror.Wrap(err))
		}

		for _, r := range page.Repositories {
			names[aws.ToString(r.RepositoryName)] = true
		}
	}

	return names, nil
}

// missingRepository returns the step that creates the repository of an image, or nothing if it is there or already has a
// step.
func (m *imageMirror) missingRepository(i pinnedImage) []Step {
	repository := i.target.RepositoryStr()
	if m.existing == nil || m.existing[repository] {
		return nil
	}

	m.existing[repository] = true

	return []Step{{
		Action: actionCreate,
		Asset:  "image " + i.Name,
		Target: i.target.Repository.String(),
		run: func(ctx context.Context) (int64, error) {
			return 0, m.Registry.ECR.create(ctx, repository)
		},
	}}
}

// create creates a repository, and returns when Amazon ECR sees it. One that somebody else has created in the meantime is fine.
func (e ECR) create(ctx context.Context, repository string) error {
	_, err := e.API.CreateRepository(ctx, &ecr.CreateRepositoryInput{
		RegistryId:     &e.Account,
		RepositoryName: &repository,
	})

	if _, exists := errors.AsType[*types.RepositoryAlreadyExistsException](err); err != nil && !exists {
		return plainerror.Wrap(err)
	}

	return plainerror.Wrap(propagation.Wait(ctx, isMissingRepository, func() error {
		_, err := e.API.DescribeRepositories(ctx, &ecr.DescribeRepositoriesInput{
			RegistryId:      &e.Account,
			RepositoryNames: []string{repository},
		})

		return err
	}))
}

func isMissingRepository(err error) bool {
	_, missing := errors.AsType[*types.RepositoryNotFoundException](err)
	return missing
}
