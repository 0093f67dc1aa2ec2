// SPDX-License-Identifier: Apache-2.0

// Package ssm is the region's Systems Manager Parameter Store. It has public parameters, which the region
// publishes (the newest image of each kind), and the parameters of its users. It rejects SecureString
// parameters, because it does not encrypt values.
package ssm

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go/service/ssm"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// Config has the settings and dependencies of a [Service]. All fields but Public are required.
type Config struct {
	Region           string            // such as us-east-1
	Account          string            // 12 digits
	PublicParameters map[string]string // read-only parameters of AWS by name, such as /aws/service/debian/…
	State            state.Backend     // keeps the parameters of users over a restart
	Now              func() time.Time  // the region's clock
}

// Service is the Parameter Store of one region. Its methods may be called concurrently.
type Service struct {
	cfg Config

	store      *state.Store
	parameters map[string]parameter // of users, by name; guarded by the store's lock
}

// parameter is the current version of a parameter.
type parameter struct {
	Value    string    `json:"value"`
	Type     string    `json:"type"`    // String or StringList
	Version  int64     `json:"version"` // from 1
	Modified time.Time `json:"modified"`
}

// New returns a service with its saved parameters.
func New(cfg Config) (*Service, error) {
	s := &Service{cfg: cfg, parameters: map[string]parameter{}}
	s.store = &state.Store{Name: "ssm", Backend: cfg.State, State: &s.parameters}

	return s, s.store.Load()
}

// Wire returns the service's operations for the wire layer.
func (s *Service) Wire() wire.Service {
	return wire.Service{
		Name:         "ssm",
		Protocol:     wire.JSONProtocol,
		Version:      "2014-11-06",
		TargetPrefix: "AmazonSSM",
		Authorize:    wire.AuthorizedInHandlers,
		Operations: []wire.Operation{
			state.ReadOperationContext(s.store, "GetParameter", s.getParameter),
			state.ReadOperationContext(s.store, "GetParameters", s.getParameters),
			state.ReadOperationContext(s.store, "GetParametersByPath", s.getParametersByPath),
			state.WriteOperationContext(s.store, "PutParameter", s.putParameter),
			state.WriteOperationContext(s.store, "DeleteParameter", s.deleteParameter),
			state.WriteOperationContext(s.store, "DeleteParameters", s.deleteParameters),
		},
	}
}

// parameterARN returns the ARN of a parameter. Public parameters belong to no account.
func (s *Service) parameterARN(name string) string {
	account := s.cfg.Account
	if _, ok := s.cfg.PublicParameters[name]; ok {
		account = ""
	}

	return "arn:aws:ssm:" + s.cfg.Region + ":" + account + ":parameter/" + strings.TrimPrefix(name, "/")
}

func (s *Service) authorizeParameter(ctx context.Context, action, name string) error {
	return wire.Authorize(ctx, wire.AccessCheck{Action: "ssm:" + action, Resource: s.parameterARN(name)})
}

// findParameter returns a parameter. ok is false if it does not exist. The caller holds the store's lock.
func (s *Service) findParameter(name string) (*ssm.Parameter, bool) {
	p, ok := s.parameters[name]
	if value, public := s.cfg.PublicParameters[name]; public {
		p = parameter{Value: value, Type: ssm.ParameterTypeString, Version: 1}
		ok = true
	}

	return &ssm.Parameter{
		Name:             &name,
		ARN:              new(s.parameterARN(name)),
		Type:             &p.Type,
		Value:            &p.Value,
		Version:          &p.Version,
		LastModifiedDate: &p.Modified,
		DataType:         new(textDataType),
	}, ok
}

// selectParameter returns the parameter that a read names: by its name or ARN, with or without the version after
// a colon. The caller holds the store's lock.
func (s *Service) selectParameter(ctx context.Context, action, given string) (*ssm.Parameter, error) {
	name, version := s.resolveName(given)
	if err := s.authorizeParameter(ctx, action, name); err != nil {
		return nil, err
	}

	p, ok := s.findParameter(name)
	if !ok {
		return nil, newError(codeParameterNotFound)
	}

	if version == "" {
		return p, nil
	}

	if version != strconv.FormatInt(*p.Version, 10) {
		return nil, newErrorf(
			codeParameterVersionNotFound,
			"Systems Manager could not find version %s of %s. Verify the version and try again.",
			version,
			name,
		)
	}

	p.Selector = new(":" + version)

	return p, nil
}

// resolveName returns the name of the parameter that a client names, and the version that it selects; empty for the
// newest. As in AWS, a name of one level may be written with or without a slash in front.
func (s *Service) resolveName(given string) (name, version string) {
	name = given
	prefix := "arn:aws:ssm:" + s.cfg.Region + ":"
	if rest, ok := strings.CutPrefix(given, prefix); ok {
		_, path, _ := strings.Cut(rest, ":parameter/")
		name = "/" + path
	}

	name, version, _ = strings.Cut(name, ":")

	bare := strings.TrimPrefix(name, "/")
	if _, ok := s.findParameter(name); ok || strings.Contains(bare, "/") {
		return name, version
	}

	for _, other := range []string{bare, "/" + bare} {
		if _, found := s.findParameter(other); found {
			return other, version
		}
	}

	return name, version
}

func (s *Service) getParameter(
	ctx context.Context,
	in *ssm.GetParameterInput,
) (*ssm.GetParameterOutput, error) {
	p, err := s.selectParameter(ctx, "GetParameter", *in.Name)
	if err != nil {
		return nil, err
	}

	return &ssm.GetParameterOutput{Parameter: p}, nil
}

func (s *Service) getParameters(
	ctx context.Context,
	in *ssm.GetParametersInput,
) (*ssm.GetParametersOutput, error) {
	out := &ssm.GetParametersOutput{Parameters: []*ssm.Parameter{}, InvalidParameters: []*string{}}

	if err := checkNameCount(in.Names); err != nil {
		return nil, err
	}

	for _, name := range uniqueNames(in.Names) {
		p, err := s.selectParameter(ctx, "GetParameters", *name)
		if e, ok := errors.AsType[*wire.Error](err); ok && strings.HasPrefix(e.Code, "Parameter") {
			out.InvalidParameters = append(out.InvalidParameters, name)
			continue
		}

		if err != nil {
			return nil, err
		}

		out.Parameters = append(out.Parameters, p)
	}

	return out, nil
}

func (s *Service) getParametersByPath(
	ctx context.Context,
	in *ssm.GetParametersByPathInput,
) (*ssm.GetParametersByPathOutput, error) {
	if err := s.authorizeParameter(ctx, "GetParametersByPath", *in.Path); err != nil {
		return nil, err
	}

	if !strings.HasPrefix(*in.Path, "/") {
		return nil, newErrorf(
			codeValidation,
			"The parameter doesn't meet the parameter name requirements. The parameter name must begin with a "+
				"forward slash \"/\".",
		)
	}

	limit := int64(maxPathResults)
	if in.MaxResults != nil {
		limit = *in.MaxResults
	}

	if limit > maxPathResults {
		return nil, newErrorf(
			codeValidation,
			"1 validation error detected: Value '%d' at 'maxResults' failed to satisfy constraint: "+
				"Member must have value less than or equal to %d",
			limit,
			maxPathResults,
		)
	}

	out := &ssm.GetParametersByPathOutput{Parameters: []*ssm.Parameter{}}
	bad := newError(codeInvalidNextToken)
	page, next, err := sdkshape.Paginate(s.namesBelow(in), limit, in.NextToken, bad)
	if err != nil {
		return nil, err
	}

	out.NextToken = next
	for _, name := range page {
		p, _ := s.findParameter(name)
		out.Parameters = append(out.Parameters, p)
	}

	return out, nil
}

// namesBelow returns the sorted names of the parameters below a path.
func (s *Service) namesBelow(in *ssm.GetParametersByPathInput) []string {
	prefix := strings.TrimSuffix(*in.Path, "/") + "/"
	names := map[string]bool{}

	addName := func(name string) {
		rest, ok := strings.CutPrefix(name, prefix)
		if ok && (in.Recursive != nil && *in.Recursive || !strings.Contains(rest, "/")) {
			names[name] = true
		}
	}
	for name := range s.parameters {
		addName(name)
	}

	for name := range s.cfg.PublicParameters {
		addName(name)
	}

	return slices.Sorted(maps.Keys(names))
}

func (s *Service) putParameter(
	ctx context.Context,
	in *ssm.PutParameterInput,
) (*ssm.PutParameterOutput, error) {
	if err := s.authorizeParameter(ctx, "PutParameter", *in.Name); err != nil {
		return nil, err
	}

	if err := validateName(*in.Name); err != nil {
		return nil, err
	}

	if err := validateValue(in); err != nil {
		return nil, err
	}

	name, _ := s.resolveName(*in.Name)
	old, exists := s.parameters[name]
	if exists && (in.Overwrite == nil || !*in.Overwrite) {
		return nil, newError(codeParameterAlreadyExists)
	}

	kind := stringValue(in.Type)
	if kind == "" {
		kind = old.Type
	}

	if kind == "" {
		return nil, newErrorf(
			codeValidation,
			"A parameter type is required when you create a parameter.",
		)
	}

	s.parameters[name] = parameter{
		Value:    *in.Value,
		Type:     kind,
		Version:  old.Version + 1,
		Modified: s.cfg.Now().UTC(),
	}

	return &ssm.PutParameterOutput{
		Version: new(old.Version + 1),
		Tier:    new(ssm.ParameterTierStandard),
	}, nil
}

func (s *Service) deleteParameter(
	ctx context.Context,
	in *ssm.DeleteParameterInput,
) (*ssm.DeleteParameterOutput, error) {
	if err := s.removeParameter(ctx, "DeleteParameter", *in.Name); err != nil {
		return nil, err
	}

	return &ssm.DeleteParameterOutput{}, nil
}

func (s *Service) deleteParameters(
	ctx context.Context,
	in *ssm.DeleteParametersInput,
) (*ssm.DeleteParametersOutput, error) {
	out := &ssm.DeleteParametersOutput{DeletedParameters: []*string{}, InvalidParameters: []*string{}}

	if err := checkNameCount(in.Names); err != nil {
		return nil, err
	}

	for _, name := range uniqueNames(in.Names) {
		err := s.removeParameter(ctx, "DeleteParameters", *name)
		if e, ok := errors.AsType[*wire.Error](err); ok && e.Code == string(codeParameterNotFound) {
			out.InvalidParameters = append(out.InvalidParameters, name)
			continue
		}

		if err != nil {
			return nil, err
		}

		out.DeletedParameters = append(out.DeletedParameters, name)
	}

	return out, nil
}

// removeParameter deletes the parameter that a client names. Public parameters do not belong to the account,
// so they are not found. The caller holds the store's lock.
func (s *Service) removeParameter(ctx context.Context, action, given string) error {
	name, _ := s.resolveName(given)
	if err := s.authorizeParameter(ctx, action, name); err != nil {
		return err
	}

	if _, ok := s.parameters[name]; !ok {
		return newError(codeParameterNotFound)
	}

	delete(s.parameters, name)

	return nil
}
