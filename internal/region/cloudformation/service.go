// SPDX-License-Identifier: Apache-2.0

// Package cloudformation is the region's CloudFormation: it creates, updates and deletes stacks in the order
// of their dependencies, rolls back what fails, and records events. It calls the region's other services as
// the caller who asked for the stack. The template language is package template, the resource types are
// package resourcetype. The state of an operation is saved after each step, so that a restarted region
// resumes it.
package cloudformation

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/resourcetype"
	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/wakeup"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// SystemTagger adds tags whose keys begin with aws: to a resource, which clients cannot do.
type SystemTagger func(id string, tags map[string]string)

// Roles is what CloudFormation needs of IAM: the credentials of a role that trusts a service.
type Roles interface {
	AssumeServiceRole(roleARN, service, session string) (wire.Caller, error)
}

// Config describes a [Service]. Region, Account, Now, Rand, Services, Authorizer and Roles are required.
type Config struct {
	Region, Account string
	Now             func() time.Time
	Rand            io.Reader
	State           state.Backend
	Services        []wire.Service // services that resource types call
	Zones           []string       // names of the availability zones
	Authorizer      wire.Authorizer
	Roles           Roles
	// SystemTaggers are the services that cannot read the stack's system tags from [wire.SystemTags] when
	// they create a resource, by signing name.
	SystemTaggers map[string]SystemTagger
	// SignalURL is the base URL of wait condition handles; see [Service.SignalHandler].
	SignalURL string
	// Endpoint returns the URL of the region's API as functions reach it. It is called when a custom resource is asked;
	// nil if there are no functions.
	Endpoint func() string
	// PollInterval is how often the state of a resource is polled; default 100 ms.
	PollInterval time.Duration
	// DeleteRetryTimeout is how long a deletion is retried while the resource is in use; default 20 s.
	DeleteRetryTimeout time.Duration
	// StabilizeTimeout is the longest time that a resource may take to become ready; default 10 minutes.
	StabilizeTimeout time.Duration
	// MaxStacks is how many stacks a region has at most; 0 is [DefaultMaxStacks].
	MaxStacks int
	Log       *slog.Logger
}

// DefaultMaxStacks is the quota of stacks of a new account (user guide, "Understand CloudFormation quotas").
const DefaultMaxStacks = 2000

// Service is CloudFormation in one region.
type Service struct {
	cfg      Config
	services map[string]wire.Service
	state    *serviceState
	store    *state.Store
	wake     wakeup.Signal

	responses customResponses

	mu          sync.Mutex
	cancelFuncs map[string]context.CancelCauseFunc // cancels the running operation, by stack ID
}

// New builds the service and loads its saved state. Call [Service.Run] to start it: it resumes the operations
// of an earlier process.
func New(cfg Config) (*Service, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}

	cfg.PollInterval = cmp.Or(cfg.PollInterval, 100*time.Millisecond)
	cfg.DeleteRetryTimeout = cmp.Or(cfg.DeleteRetryTimeout, 20*time.Second)
	cfg.StabilizeTimeout = cmp.Or(cfg.StabilizeTimeout, 10*time.Minute)
	cfg.MaxStacks = cmp.Or(cfg.MaxStacks, DefaultMaxStacks)

	s := &Service{
		cfg:         cfg,
		state:       &serviceState{},
		wake:        wakeup.New(),
		services:    map[string]wire.Service{},
		cancelFuncs: map[string]context.CancelCauseFunc{},
	}

	for _, v := range cfg.Services {
		s.services[v.Name] = v
	}

	s.store = &state.Store{Name: "cloudformation", Backend: cfg.State, State: s.state}
	if err := s.store.Load(); err != nil {
		return nil, err
	}

	if s.state.Stacks == nil {
		s.state.Stacks = map[string]*stack{}
	}

	return s, nil
}

// SaveTo writes the service's state to another backend, for a snapshot.
func (s *Service) SaveTo(to state.Backend) error { return s.store.SaveTo(to) }

// Wire returns the service for the region's server.
func (s *Service) Wire() wire.Service {
	return wire.Service{
		Name:       "cloudformation",
		Protocol:   wire.QueryProtocol,
		Version:    "2010-05-15",
		Namespace:  "http://cloudformation.amazonaws.com/doc/2010-05-15/",
		Authorize:  s.authorizeRequest,
		Operations: s.wireOperations(),
	}
}

func (s *Service) buildARN(rest string) string {
	return fmt.Sprintf("arn:aws:cloudformation:%s:%s:%s", s.cfg.Region, s.cfg.Account, rest)
}

// newMissingStackError returns the error of most operations about a stack that does not exist; see also [serviceState.findStack].
func newMissingStackError(name string) error {
	return template.ValidationError("Stack [%s] does not exist", name)
}

// findStack returns the stack that a client names: by its name, unless it is deleted, or by its ID. The
// caller holds the store's lock.
func (s *serviceState) findStack(nameOrID string) (*stack, error) {
	if st := s.findActiveStack(nameOrID); st != nil {
		return st, nil
	}

	if st := s.Stacks[nameOrID]; st != nil {
		return st, nil
	}

	return nil, template.ValidationError("Stack with id %s does not exist", nameOrID)
}

// findActiveStack returns the stack with that name or ID that is not deleted; nil if there is none. The
// caller holds the store's lock.
func (s *serviceState) findActiveStack(nameOrID string) *stack {
	for _, st := range s.Stacks {
		if (st.Name == nameOrID || st.ID == nameOrID) && st.Status != statusDeleted {
			return st
		}
	}

	return nil
}

// countStacks returns the number of stacks that are not deleted. The caller holds the store's lock.
func (s *serviceState) countStacks() int {
	n := 0
	for _, st := range s.Stacks {
		if st.Status != statusDeleted {
			n++
		}
	}

	return n
}

// callService carries out an operation of another service of the region as the caller in ctx. The members of
// in and of the answer have the names of aws-sdk-go.
func (s *Service) callService(
	ctx context.Context,
	service,
	op string,
	in template.Object,
) (template.Object, error) {
	v, ok := s.services[service]
	if !ok {
		return nil, newErrorf(
			codeServiceUnavailable,
			"the region does not have the service %s",
			service,
		)
	}

	out, err := wire.CallOperation(ctx, v, op, func(shape any) error {
		b, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encode the input of %s: %w", op, err)
		}

		d := json.NewDecoder(strings.NewReader(string(b)))
		d.DisallowUnknownFields()
		if err := d.Decode(shape); err != nil {
			return newErrorf(codeInvalidRequest, "the input of %s is invalid: %v", op, err)
		}

		return nil
	})
	if err != nil {
		return nil, &resourcetype.CallError{Service: service, Refusal: wire.ToClientError(v, err)}
	}

	return sdkshape.ShapeToMap(out)
}

// withStackCaller returns ctx with a stack's caller and the condition keys that AWS sets for calls by
// CloudFormation.
func (s *Service) withStackCaller(ctx context.Context, caller wire.Caller) context.Context {
	ctx = wire.WithAuthorizer(wire.WithCaller(ctx, caller), s.cfg.Authorizer)
	return wire.WithConditionKeys(ctx, map[string][]string{
		"aws:CalledVia": {
			"cloudformation.amazonaws.com",
		}, "aws:CalledViaFirst": {"cloudformation.amazonaws.com"},
		"aws:CalledViaLast": {
			"cloudformation.amazonaws.com",
		}, "aws:ViaAWSService": {"true"}, "aws:SecureTransport": {"true"},
		"aws:RequestedRegion": {s.cfg.Region},
	})
}
