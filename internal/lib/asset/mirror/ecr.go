// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/aws/aws-sdk-go-v2/service/ecr/types"
	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/slipway-k8s/slipway/internal/lib/plainerror"
)

// ECRAPI are the calls of Amazon ECR that a mirror makes.
type ECRAPI interface {
	ecr.DescribeRepositoriesAPIClient
	GetAuthorizationToken(
		context.Context,
		*ecr.GetAuthorizationTokenInput,
		...func(*ecr.Options),
	) (*ecr.GetAuthorizationTokenOutput, error)
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

// ECRHost is what the host name of a private registry of Amazon ECR says.
type ECRHost struct{ Account, Region string }

// ParseECRHost returns the account and region of a registry, and whether the address begins with a host name of Amazon
// ECR: ACCOUNT.dkr.ecr.REGION.amazonaws.com, also with FIPS, in another partition, or that for both families of addresses.
func ParseECRHost(address string) (ECRHost, bool) {
	host, _, _ := strings.Cut(address, "/")
	pattern := regexp.MustCompile(
		`^(\d{12})\.dkr[.-]ecr(?:-fips)?\.([a-z0-9-]+)\.(?:[a-z0-9-]+\.)+[a-z-]+$`,
	)
	parts := pattern.FindStringSubmatch(host)
	if parts == nil {
		return ECRHost{}, false
	}

	return ECRHost{Account: parts[1], Region: parts[2]}, true
}

// login returns the credentials for the registry. They are valid for 12 hours.
func (e ECR) login(ctx context.Context) (authn.Authenticator, error) {
	out, err := e.API.GetAuthorizationToken(ctx, &ecr.GetAuthorizationTokenInput{})
	if err != nil {
		return nil, fmt.Errorf("log in to Amazon ECR: %w", plainerror.Wrap(err))
	}

	if len(out.AuthorizationData) == 0 {
		return nil, errors.New("log in to Amazon ECR: it returned no token")
	}

	token, err := base64.StdEncoding.DecodeString(aws.ToString(out.AuthorizationData[0].AuthorizationToken))
	user, password, ok := strings.Cut(string(token), ":")
	if err != nil || !ok {
		return nil, errors.New("log in to Amazon ECR: its token is not USER:PASSWORD in base64")
	}

	return authn.FromConfig(authn.AuthConfig{Username: user, Password: password}), nil
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

// create creates a repository. One that somebody else has created in the meantime is fine.
func (e ECR) create(ctx context.Context, repository string) error {
	_, err := e.API.CreateRepository(ctx, &ecr.CreateRepositoryInput{
		RegistryId:     &e.Account,
		RepositoryName: &repository,
	})

	if _, exists := errors.AsType[*types.RepositoryAlreadyExistsException](err); exists {
		return nil
	}

	return plainerror.Wrap(err)
}
