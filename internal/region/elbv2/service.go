// SPDX-License-Identifier: Apache-2.0

// Package elbv2 behaves as Elastic Load Balancing v2 does for network load balancers: load balancers, target groups,
// listeners, targets and their tags. It does not forward a byte: what should be forwarded goes into the picture that
// EC2 hands to the network.
package elbv2

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go/service/elbv2"

	"github.com/slipway-k8s/slipway/internal/region/ec2"
	"github.com/slipway-k8s/slipway/internal/region/netspec"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// Cloud is what load balancing needs of EC2. It is called under this service's lock.
type Cloud interface {
	SubnetPlacements(subnets ...string) ([]ec2.SubnetPlacement, error)
	CreateManagedInterfaces(specs []ec2.ManagedInterface) ([]ec2.ManagedInterface, error)
	DeleteManagedInterfaces(ids ...string) error
	SetManagedInterfaceGroups(groups []string, ids ...string) error
	InstanceInfo(id string) (ec2.InstanceInfo, bool)
	Health() netspec.TargetHealth
	LoadBalancersChanged()
}

// Config is what a [Service] is made of. Region, Account, Now, Rand and Cloud are required.
type Config struct {
	Region, Account string
	Now             func() time.Time
	Rand            io.Reader
	Delay           time.Duration // how long provisioning and removal take
	// Provisioning, where set, is asked for the delay of "load-balancer" and "load-balancer-deletion", with Delay as the usual one.
	Provisioning func(kind string, usual time.Duration) time.Duration
	Saver        state.Backend
	Cloud        Cloud
	// Loopback is where internet-facing load balancers get their addresses on the host; the default is 127.77.0.1 and
	// following.
	Loopback netip.Addr
	// MaxBalancers is the quota of network load balancers; the default is AWS's 50.
	MaxBalancers int
	Log          *slog.Logger
}

// Service is load balancing in one region.
type Service struct {
	cfg   Config
	st    *serviceState
	store *state.Store
}

// serviceState is all that is remembered; it is saved as JSON. Everything is by ARN.
type serviceState struct {
	Balancers map[string]*loadBalancer
	Groups    map[string]*targetGroup
	Listeners map[string]*sdk.Listener
	Tags      map[string]map[string]string
	Ghosts    []deletedBalancer
}

type loadBalancer struct {
	Shape      *sdk.LoadBalancer
	Attributes map[string]string
	Interfaces []ec2.ManagedInterface
	Public     string // loopback address on the host; empty for an internal one
	Ready      time.Time
	Request    string // what it was made from, for idempotent repeats
}

type targetGroup struct {
	Shape      *sdk.TargetGroup
	Attributes map[string]string
	Targets    map[string]*registeredTarget // by id and port
	Request    string
}

type registeredTarget struct {
	ID      string
	Port    int64
	Zone    string
	Leaving time.Time // end of draining; zero while registered
}

// deletedBalancer is a deleted load balancer whose interfaces are still there, as AWS's are for a while.
type deletedBalancer struct {
	At  time.Time
	IDs []string
}

// New makes the service and loads its saved state.
func New(cfg Config) (*Service, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}

	if !cfg.Loopback.IsValid() {
		cfg.Loopback = netip.AddrFrom4([4]byte{127, 77, 0, 1})
	}

	if cfg.MaxBalancers == 0 {
		cfg.MaxBalancers = 50
	}

	s := &Service{cfg: cfg, st: &serviceState{}}
	s.store = &state.Store{
		Name:                "elbv2",
		Backend:             cfg.Saver,
		State:               s.st,
		ApplyDueTransitions: s.applyDueTransitions,
		OnChange:            cfg.Cloud.LoadBalancersChanged,
	}
	if err := s.store.Load(); err != nil {
		return nil, err
	}

	if s.st.Tags == nil {
		s.st.Tags = map[string]map[string]string{}
	}

	if s.st.Balancers == nil {
		s.st.Balancers = map[string]*loadBalancer{}
	}

	if s.st.Groups == nil {
		s.st.Groups = map[string]*targetGroup{}
	}

	if s.st.Listeners == nil {
		s.st.Listeners = map[string]*sdk.Listener{}
	}

	return s, nil
}

// SaveTo writes what the service knows to another place, for a snapshot.
func (s *Service) SaveTo(to state.Backend) error { return s.store.SaveTo(to) }

// provisioningDelay is how long something of kind takes.
func (s *Service) provisioningDelay(kind string) time.Duration {
	if s.cfg.Provisioning == nil {
		return s.cfg.Delay
	}

	return s.cfg.Provisioning(kind, s.cfg.Delay)
}

// Run lets time do its work, such as the end of draining, until ctx ends.
func (s *Service) Run(ctx context.Context) {
	t := time.NewTicker(200 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			if err := s.store.WithLock(func() error { return nil }); err != nil {
				s.cfg.Log.ErrorContext(ctx, "the state could not be saved", slog.Any("error", err))
			}
		}
	}
}

// applyDueTransitions brings the state up to the clock.
func (s *Service) applyDueTransitions() {
	now := s.cfg.Now()
	for _, arn := range sdkshape.SortedKeys(s.st.Balancers) {
		b := s.st.Balancers[arn]
		if sdkshape.String(b.Shape.State.Code) == sdk.LoadBalancerStateEnumProvisioning && !b.Ready.After(now) {
			b.Shape.State.Code = new(sdk.LoadBalancerStateEnumActive)
			s.store.MarkChanged()
		}
	}

	for _, g := range s.st.Groups {
		for key, t := range g.Targets {
			if !t.Leaving.IsZero() && !t.Leaving.After(now) {
				delete(g.Targets, key)
				s.store.MarkChanged()
			}
		}
	}

	s.st.Ghosts = slices.DeleteFunc(s.st.Ghosts, func(g deletedBalancer) bool {
		if g.At.After(now) {
			return false
		}

		s.store.MarkChanged()
		if err := s.cfg.Cloud.DeleteManagedInterfaces(g.IDs...); err != nil {
			s.cfg.Log.Error("a load balancer's interfaces could not be removed", slog.Any("error", err))
			return false
		}

		return true
	})
}

func (s *Service) resourceARN(rest string) string {
	return fmt.Sprintf("arn:aws:elasticloadbalancing:%s:%s:%s", s.cfg.Region, s.cfg.Account, rest)
}

// Wire is the service as the wire serves it.
func (s *Service) Wire() wire.Service {
	return wire.Service{
		Name:      "elasticloadbalancing",
		Protocol:  wire.Query,
		Version:   "2015-12-01",
		Namespace: "http://elasticloadbalancing.amazonaws.com/doc/2015-12-01/",
		Authorize: s.authorizeRequest,
		Ops:       slices.Concat(s.loadBalancerOps(), s.targetGroupOps(), s.listenerOps(), s.tagOps()),
	}
}

// authorizeRequest asks IAM about every resource that a request names, and about the one that it makes.
func (s *Service) authorizeRequest(ctx context.Context, op string, in any) error {
	return s.store.Authorize(
		ctx,
		"elasticloadbalancing:"+op,
		in,
		func(tree map[string]any) []wire.Check { return s.requestChecks(op, tree) },
	)
}

func (s *Service) requestChecks(op string, tree map[string]any) []wire.Check {
	action := "elasticloadbalancing:" + op
	request := map[string][]string{}
	sdkshape.AddRequestTags(request, tree["Tags"])
	var out []wire.Check
	name, _ := tree["Name"].(string)
	if made := map[string]string{"CreateLoadBalancer": "loadbalancer/net/", "CreateTargetGroup": "targetgroup/"}[op]; made != "" {
		out = append(
			out,
			wire.Check{Action: action, Resource: s.resourceARN(made + name + "/*"), Context: request},
		)
		if len(request) > 0 { // whoever makes it with tags must be allowed to tag it
			c := maps.Clone(request)
			c["elasticloadbalancing:CreateAction"] = []string{op}
			out = append(
				out,
				wire.Check{
					Action:   "elasticloadbalancing:AddTags",
					Resource: s.resourceARN(made + name + "/*"),
					Context:  c,
				},
			)
		}
	}

	mine := func(text string) bool { return strings.HasPrefix(text, "arn:aws:elasticloadbalancing:") }

	for _, arn := range sdkshape.CollectStrings(tree, mine, "Tags") {
		if (op == "CreateListener" || op == "ModifyListener") && strings.Contains(arn, ":targetgroup/") {
			continue // the groups it forwards to are not asked about
		}

		c := map[string][]string{}
		maps.Copy(c, request)
		sdkshape.AddResourceTags(c, s.st.Tags[arn])
		out = append(out, wire.Check{Action: action, Resource: arn, Context: c})
	}

	if len(out) == 0 {
		out = append(out, wire.Check{Action: action, Resource: "*", Context: request})
	}

	return out
}

func newValidationError(format string, args ...any) error {
	return wire.Errorf("ValidationError", format, args...)
}

func resolvePageSize(n *int64) (int64, error) {
	if n == nil {
		return 400, nil
	}

	if *n < 1 || *n > 400 {
		return 0, newValidationError(
			"1 validation error detected: Value '%d' at 'pageSize' must be between 1 and 400",
			*n,
		)
	}

	return *n, nil
}

func paginateKeys(keys []string, size *int64, marker *string) ([]string, *string, error) {
	n, err := resolvePageSize(size)
	if err != nil {
		return nil, nil, err
	}

	return sdkshape.Paginate(keys, n, marker, newValidationError("Invalid marker"))
}
