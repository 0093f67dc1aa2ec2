// SPDX-License-Identifier: Apache-2.0

// Package ssm is the region's Systems Manager Parameter Store. It has public parameters, which the region
// publishes (the newest image of each kind), and the parameters of its users. It rejects SecureString
// parameters, because it does not encrypt values.
package ssm

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go/service/ssm"

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
		DataType:         new("text"),
	}, ok
}

func (s *Service) getParameter(
	ctx context.Context,
	in *ssm.GetParameterInput,
) (*ssm.GetParameterOutput, error) {
	if err := s.authorizeParameter(ctx, "GetParameter", *in.Name); err != nil {
		return nil, err
	}

	p, ok := s.findParameter(*in.Name)
	if !ok {
		return nil, wire.Errorf("ParameterNotFound", "")
	}

	return &ssm.GetParameterOutput{Parameter: p}, nil
}

func (s *Service) getParameters(
	ctx context.Context,
	in *ssm.GetParametersInput,
) (*ssm.GetParametersOutput, error) {
	out := &ssm.GetParametersOutput{Parameters: []*ssm.Parameter{}, InvalidParameters: []*string{}}

	for _, name := range in.Names {
		if err := s.authorizeParameter(ctx, "GetParameters", *name); err != nil {
			return nil, err
		}

		if p, ok := s.findParameter(*name); ok {
			out.Parameters = append(out.Parameters, p)
		} else {
			out.InvalidParameters = append(out.InvalidParameters, name)
		}
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

	out := &ssm.GetParametersByPathOutput{Parameters: []*ssm.Parameter{}}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		p, _ := s.findParameter(name)
		out.Parameters = append(out.Parameters, p)
	}

	return out, nil
}

func (s *Service) putParameter(
	ctx context.Context,
	in *ssm.PutParameterInput,
) (*ssm.PutParameterOutput, error) {
	if err := s.authorizeParameter(ctx, "PutParameter", *in.Name); err != nil {
		return nil, err
	}

	if strings.HasPrefix(*in.Name, "/aws") || strings.HasPrefix(*in.Name, "aws") {
		return nil, &wire.Error{
			Code:    "AccessDeniedException",
			Message: "No access to reserved parameter name: " + *in.Name + ".",
			Status:  400,
		}
	}

	kind := ssm.ParameterTypeString
	if in.Type != nil {
		kind = *in.Type
	}

	if kind == ssm.ParameterTypeSecureString {
		return nil, wire.Errorf("UnsupportedParameterType", "This region does not support SecureString parameters.")
	}

	old, exists := s.parameters[*in.Name]
	if exists && (in.Overwrite == nil || !*in.Overwrite) {
		return nil, wire.Errorf(
			"ParameterAlreadyExists",
			"The parameter already exists. To overwrite this value, set the overwrite option in the request to true.",
		)
	}

	s.parameters[*in.Name] = parameter{
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
	if err := s.authorizeParameter(ctx, "DeleteParameter", *in.Name); err != nil {
		return nil, err
	}

	if _, ok := s.parameters[*in.Name]; !ok {
		return nil, wire.Errorf("ParameterNotFound", "")
	}

	delete(s.parameters, *in.Name)

	return &ssm.DeleteParameterOutput{}, nil
}
