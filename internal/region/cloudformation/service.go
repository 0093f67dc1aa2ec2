// SPDX-License-Identifier: Apache-2.0

// Package cloudformation is the region's CloudFormation: it creates, updates and deletes stacks in the order of their
// dependencies, rolls back what fails, and records events. It calls the region's other services as the caller who asked
// for the stack. The template language is package template, the resource types are package resourcetype. The state of an
// operation is saved after each step, so that a restarted region resumes it.
package cloudformation

import (
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
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// SystemTagger puts tags that begin with aws: on a resource; clients cannot.
type SystemTagger func(id string, tags map[string]string)

// Roles is IAM as stacks see it: it lets a service act as a role that trusts it.
type Roles interface {
	ServiceCaller(roleARN, service, session string) (wire.Caller, error)
}

// Config is what a [Service] is made of. Region, Account, Now, Rand, Services, Authorizer and Roles are required.
type Config struct {
	Region, Account string
	Now             func() time.Time
	Rand            io.Reader
	State           state.Backend
	Services        []wire.Service // those that resources are made with
	Zones           []string       // the names of the region's availability zones
	Authorizer      wire.Authorizer
	Roles           Roles
	// SystemTaggers puts the stack's tags on what was made, by the service's name. What is not in it gets none, or takes them from
	// [wire.SystemTags].
	SystemTaggers map[string]SystemTagger
	// SignalURL is where wait condition handles point to; see [Service.SignalHandler].
	SignalURL string
	// PollInterval is how often a resource is looked at while it gets ready; the default is 100 ms.
	PollInterval time.Duration
	// DeleteRetryTimeout is how long a deletion is tried again while something is still in use; the default is 20 s.
	DeleteRetryTimeout time.Duration
	// StabilizeTimeout is the longest that a resource may take to get ready; the default is 10 minutes.
	StabilizeTimeout time.Duration
	Log              *slog.Logger
}

// Service is CloudFormation in one region.
type Service struct {
	cfg      Config
	services map[string]wire.Service
	state    *serviceState
	store    *state.Store
	wake     chan struct{}

	mu          sync.Mutex
	cancelFuncs map[string]context.CancelCauseFunc // ends what a stack's operation does now, by the stack's id
}

// New makes the service and loads its saved state. Call [Service.Run] to let it act: it takes up operations that an
// earlier process left.
func New(cfg Config) (*Service, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}

	for d, otherwise := range map[*time.Duration]time.Duration{
		&cfg.PollInterval: 100 * time.Millisecond, &cfg.DeleteRetryTimeout: 20 * time.Second, &cfg.StabilizeTimeout: 10 * time.Minute,
	} {
		if *d == 0 {
			*d = otherwise
		}
	}

	s := &Service{
		cfg:         cfg,
		state:       &serviceState{},
		wake:        make(chan struct{}, 1),
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

// SaveTo writes what the service knows to another place, for a snapshot.
func (s *Service) SaveTo(to state.Backend) error { return s.store.SaveTo(to) }

// Wire is the service as the wire serves it.
func (s *Service) Wire() wire.Service {
	return wire.Service{
		Name:      "cloudformation",
		Protocol:  wire.Query,
		Version:   "2010-05-15",
		Namespace: "http://cloudformation.amazonaws.com/doc/2010-05-15/",
		Authorize: s.authorizeRequest,
		Ops:       s.wireOperations(),
	}
}

func (s *Service) newUUID() string {
	h := sdkshape.RandomHex(s.cfg.Rand, 32)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

func (s *Service) buildARN(rest string) string {
	return fmt.Sprintf("arn:aws:cloudformation:%s:%s:%s", s.cfg.Region, s.cfg.Account, rest)
}

// findStack returns the stack that a client names: by its name, unless it is deleted, or by its id.
func (s *Service) findStack(nameOrID string) (*stack, error) {
	if st := s.findActiveStack(nameOrID); st != nil {
		return st, nil
	}

	if st := s.state.Stacks[nameOrID]; st != nil {
		return st, nil
	}

	return nil, template.ValidationError("Stack with id %s does not exist", nameOrID)
}

// findActiveStack is the stack of that name, or of that id, that is not deleted; nil if there is none.
func (s *Service) findActiveStack(nameOrID string) *stack {
	for _, st := range s.state.Stacks {
		if (st.Name == nameOrID || st.ID == nameOrID) && st.Status != statusDeleted {
			return st
		}
	}

	return nil
}

// callService carries out an operation of one of the region's services as the caller in ctx. Members are named as aws-sdk-go
// names them.
func (s *Service) callService(ctx context.Context, service, op string, in template.Object) (template.Object, error) {
	v, ok := s.services[service]
	if !ok {
		return nil, wire.Errorf("ServiceUnavailable", "this region has no %s", service)
	}

	out, err := wire.Call(ctx, v, op, func(shape any) error {
		b, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("write the input of %s: %w", op, err)
		}

		d := json.NewDecoder(strings.NewReader(string(b)))
		d.DisallowUnknownFields()
		if err := d.Decode(shape); err != nil {
			return wire.Errorf("InvalidRequest", "%s does not take this: %v", op, err)
		}

		return nil
	})
	if err != nil {
		return nil, &resourcetype.CallError{Service: service, Refusal: wire.Refusal(v, err)}
	}

	return sdkshape.ShapeToMap(out)
}

// withStackCaller returns ctx with a stack's caller, as the services that are called see it.
func (s *Service) withStackCaller(ctx context.Context, caller wire.Caller) context.Context {
	ctx = wire.WithAuthorizer(wire.WithCaller(ctx, caller), s.cfg.Authorizer)
	return wire.WithConditions(ctx, map[string][]string{
		"aws:CalledVia": {
			"cloudformation.amazonaws.com",
		}, "aws:CalledViaFirst": {"cloudformation.amazonaws.com"},
		"aws:CalledViaLast": {
			"cloudformation.amazonaws.com",
		}, "aws:ViaAWSService": {"true"}, "aws:SecureTransport": {"true"},
		"aws:RequestedRegion": {s.cfg.Region},
	})
}
