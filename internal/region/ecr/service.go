// SPDX-License-Identifier: Apache-2.0

// Package ecr is the region's Amazon ECR: a private registry of images with repositories, and the
// API that creates them and issues the tokens of its clients.
//
// A token stands for the identity that got it: each request to the registry is decided by the
// policies that this identity has now. As in AWS, the registry sends clients to S3 for the layers
// of an image, with an address that is valid for a short time. The package knows no machines and no
// network: [Service.EndpointOf] tells which VPC endpoint a request needs.
package ecr

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"regexp"
	"time"

	sdk "github.com/aws/aws-sdk-go/service/ecr"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/visibility"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// Config has the settings and dependencies of a [Service]. All are required.
type Config struct {
	Region     string           // such as us-east-1
	Account    string           // 12 digits
	Dir        string           // folder of the contents; created when something is pushed
	State      state.Backend    // keeps the repositories over a restart
	Now        func() time.Time // the region's clock
	Authorizer wire.Authorizer  // decides what the owner of a token may do
}

// Service is Amazon ECR of one region. Its methods may be called concurrently.
type Service struct {
	cfg    Config
	st     serviceState // guarded by the store's lock
	store  *state.Store
	unseen visibility.Tracker // by name
}

// serviceState is the saved state.
type serviceState struct {
	// Key signs tokens and the addresses of layers; only the owner can read the file.
	Key          []byte                 `json:"key"`
	Repositories map[string]*repository `json:"repositories"` // by name
}

// repository has the manifests and layers of images, by digest.
type repository struct {
	Created   time.Time           `json:"created"`
	Manifests map[string]manifest `json:"manifests"`
	Layers    map[string]bool     `json:"layers"`
	Tags      map[string]string   `json:"tags"` // digests of manifests by tag
}

// manifest is the description of an image, whose content is a file.
type manifest struct {
	MediaType string `json:"mediaType"`
}

// The limits of Amazon ECR (API reference, CreateRepository and DescribeRepositories;
// AuthorizationData).
const (
	tokenLifetime   = 12 * time.Hour
	pageSize        = 100
	maxPageSize     = 1000
	maxNameLength   = 256
	maxRepositories = 100_000
	keyBytes        = 32
)

// New returns a service with its saved state.
func New(cfg Config) (*Service, error) {
	s := &Service{cfg: cfg, st: serviceState{Repositories: map[string]*repository{}}}
	s.store = &state.Store{Name: "ecr", Backend: cfg.State, State: &s.st}
	if err := s.store.Load(); err != nil {
		return nil, err
	}

	if len(s.st.Key) == 0 {
		s.st.Key = make([]byte, keyBytes)
		rand.Read(s.st.Key) // never fails since Go 1.24
	}

	return s, nil
}

// SaveTo saves the service's state to another backend, for a snapshot. The contents of images are
// no part of it.
func (s *Service) SaveTo(to state.Backend) error { return s.store.SaveTo(to) }

// Wire returns the service's operations for the wire layer.
func (s *Service) Wire() wire.Service {
	return wire.Service{
		Name:         "ecr",
		Protocol:     wire.JSONProtocol,
		Version:      "2015-09-21",
		TargetPrefix: "AmazonEC2ContainerRegistry_V20150921",
		Authorize:    s.authorizeRequest,
		Operations: s.unseen.Wrap(s.unseenRules(), []wire.Operation{
			state.WriteOperationContext(s.store, "GetAuthorizationToken", s.getAuthorizationToken),
			state.WriteOperation(s.store, "CreateRepository", s.createRepository),
			state.ReadOperation(s.store, "DescribeRepositories", s.describeRepositories),
		}),
	}
}

// authorizeRequest asks IAM about the repositories that a request names.
func (s *Service) authorizeRequest(ctx context.Context, op string, in any) error {
	action := "ecr:" + op

	switch in := in.(type) {
	case *sdk.CreateRepositoryInput:
		return wire.Authorize(ctx, wire.AccessCheck{
			Action:   action,
			Resource: s.repositoryARN(sdkshape.String(in.RepositoryName)),
		})
	case *sdk.DescribeRepositoriesInput:
		names := sdkshape.Strings(in.RepositoryNames)
		if len(names) == 0 {
			names = []string{"*"}
		}

		for _, name := range names {
			if err := wire.Authorize(ctx, wire.AccessCheck{Action: action, Resource: s.repositoryARN(name)}); err != nil {
				return err
			}
		}

		return nil
	default:
		return wire.Authorize(ctx, wire.AccessCheck{Action: action, Resource: "*"})
	}
}

func (s *Service) repositoryARN(name string) string {
	return "arn:aws:ecr:" + s.cfg.Region + ":" + s.cfg.Account + ":repository/" + name
}

// getAuthorizationToken returns a token for the caller. It changes nothing but the key of a new
// region, which must be saved before the first token is.
func (s *Service) getAuthorizationToken(
	ctx context.Context,
	_ *sdk.GetAuthorizationTokenInput,
) (*sdk.GetAuthorizationTokenOutput, error) {
	expires := s.cfg.Now().Add(tokenLifetime).Truncate(time.Millisecond)
	password, err := sealToken(s.st.Key, token{Caller: wire.CallerFrom(ctx), Expires: expires})
	if err != nil {
		return nil, err
	}

	return &sdk.GetAuthorizationTokenOutput{AuthorizationData: []*sdk.AuthorizationData{{
		AuthorizationToken: new(base64.StdEncoding.EncodeToString([]byte(tokenUser + ":" + password))),
		ExpiresAt:          &expires,
		ProxyEndpoint:      new("https://" + s.registryHost()),
	}}}, nil
}

// checkRegistry returns an error for the registry of another account.
func (s *Service) checkRegistry(id *string) error {
	if id == nil || *id == s.cfg.Account {
		return nil
	}

	return wire.NotImplemented("the registry of account " + *id)
}

// namePattern is that of the API reference for the names of repositories.
const namePattern = `(?:[a-z0-9]+(?:[._-][a-z0-9]+)*/)*[a-z0-9]+(?:[._-][a-z0-9]+)*`

func (s *Service) createRepository(in *sdk.CreateRepositoryInput) (*sdk.CreateRepositoryOutput, error) {
	if err := s.checkRegistry(in.RegistryId); err != nil {
		return nil, err
	}

	name := sdkshape.String(in.RepositoryName)
	if len(name) > maxNameLength || !regexp.MustCompile("^"+namePattern+"$").MatchString(name) {
		return nil, newErrorf(
			codeInvalidParameter,
			"Invalid parameter at 'repositoryName' failed to satisfy constraint: 'must satisfy regular expression '%s''",
			namePattern,
		)
	}

	if s.st.Repositories[name] != nil {
		return nil, newErrorf(
			codeRepositoryAlreadyExists,
			"The repository with name '%s' already exists in the registry with id '%s'",
			name,
			s.cfg.Account,
		)
	}

	if len(s.st.Repositories) >= maxRepositories {
		return nil, newErrorf(
			codeLimitExceeded,
			"The maximum number of repositories per registry is %d",
			maxRepositories,
		)
	}

	s.st.Repositories[name] = &repository{
		Created:   s.cfg.Now().UTC(),
		Manifests: map[string]manifest{},
		Layers:    map[string]bool{},
		Tags:      map[string]string{},
	}
	s.unseen.Track(name)

	return &sdk.CreateRepositoryOutput{Repository: s.repositoryShape(name)}, nil
}

func (s *Service) repositoryShape(name string) *sdk.Repository {
	return &sdk.Repository{
		RegistryId:         &s.cfg.Account,
		RepositoryName:     &name,
		RepositoryArn:      new(s.repositoryARN(name)),
		RepositoryUri:      new(s.registryHost() + "/" + name),
		CreatedAt:          &s.st.Repositories[name].Created,
		ImageTagMutability: new(sdk.ImageTagMutabilityMutable),
		EncryptionConfiguration: &sdk.EncryptionConfiguration{
			EncryptionType: new(sdk.EncryptionTypeAes256),
		},
		ImageScanningConfiguration: &sdk.ImageScanningConfiguration{ScanOnPush: new(false)},
	}
}

// newNotFoundError returns the error about a repository that does not exist.
func (s *Service) newNotFoundError(name string) error {
	return newErrorf(codeRepositoryNotFound, "%s", s.missingText(name))
}

func (s *Service) describeRepositories(in *sdk.DescribeRepositoriesInput) (*sdk.DescribeRepositoriesOutput, error) {
	if err := s.checkRegistry(in.RegistryId); err != nil {
		return nil, err
	}

	out := &sdk.DescribeRepositoriesOutput{Repositories: []*sdk.Repository{}}
	names := sdkshape.Strings(in.RepositoryNames)
	for _, name := range names {
		if s.st.Repositories[name] == nil {
			return nil, s.newNotFoundError(name)
		}
	}

	limit := int64(pageSize)
	if in.MaxResults != nil {
		limit = min(*in.MaxResults, maxPageSize)
	}

	if len(names) == 0 {
		var err error
		names, out.NextToken, err = sdkshape.Paginate(
			sdkshape.SortedKeys(s.st.Repositories),
			limit,
			in.NextToken,
			newErrorf(codeInvalidParameter, "Invalid parameter at 'nextToken'"),
		)
		if err != nil {
			return nil, err
		}
	}

	for _, name := range names {
		out.Repositories = append(out.Repositories, s.repositoryShape(name))
	}

	return out, nil
}

// missingText is what Amazon ECR says of a repository that does not exist.
func (s *Service) missingText(name string) string {
	return "The repository with name '" + name + "' does not exist in the registry with id '" + s.cfg.Account + "'"
}
