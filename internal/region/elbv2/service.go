// SPDX-License-Identifier: Apache-2.0

// Package elbv2 is the region's Elastic Load Balancing v2, for network load balancers only: load balancers,
// target groups, listeners, targets and tags. It keeps records and does not forward traffic:
// [Service.LoadBalancers] describes the load balancers to package netbuilder, and the region's network forwards.
// A load balancer's network interfaces belong to EC2, which this package calls through the interface [Cloud].
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
	"github.com/slipway-k8s/slipway/internal/region/visibility"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// Cloud is the part of EC2 that load balancing needs. All methods but LoadBalancersChanged are called under
// this service's lock, so they must not call the service. EC2's lock is always taken after this service's.
//
// A refusal, such as a subnet that does not exist, is a [wire.Error] with EC2's code; other errors are
// internal.
type Cloud interface {
	// SubnetPlacements returns where subnets are, in the order of the arguments.
	SubnetPlacements(subnets ...string) ([]ec2.SubnetPlacement, error)
	// CreateManagedInterfaces creates all interfaces or none, and returns them with their ids and addresses.
	CreateManagedInterfaces(specs []ec2.ManagedInterface) ([]ec2.ManagedInterface, error)
	DeleteManagedInterfaces(ids ...string) error
	SetManagedInterfaceGroups(groups []string, ids ...string) error
	InstanceInfo(id string) (ec2.InstanceInfo, bool)
	// Health returns the results of the health checks; nil if the region runs no network.
	Health() netspec.TargetHealth
	// LoadBalancersChanged is called after each change, without the lock. It must not block.
	LoadBalancersChanged()
}

// DefaultMaxBalancers is the quota of network load balancers of a new AWS account in each region.
const DefaultMaxBalancers = 50

// Config has the settings and dependencies of a [Service]. Region, Account, Now, Rand and Cloud are required.
type Config struct {
	Region          string           // such as us-east-1
	Account         string           // 12 digits
	Now             func() time.Time // the region's clock
	Rand            io.Reader        // source of ids
	TransitionDelay time.Duration    // how long provisioning and removal take
	// ProvisioningDelay returns the delay of "load-balancer" or "load-balancer-deletion", and may change usual,
	// which is Delay. nil means Delay.
	ProvisioningDelay func(kind string, usual time.Duration) time.Duration
	State             state.Backend // keeps the state over a restart; nil keeps nothing
	Cloud             Cloud         // EC2
	// HasVPC reports whether a VPC exists. It is called under this service's lock, as the methods of Cloud. If it
	// is nil, all exist.
	HasVPC func(id string) bool
	// Loopback is where internet-facing load balancers get their addresses on the host; the default is
	// 127.77.0.1 and following.
	Loopback netip.Addr
	// MaxBalancers is the quota of network load balancers; 0 means [DefaultMaxBalancers].
	MaxBalancers int
	Log          *slog.Logger // nil discards the log
}

// Service is Elastic Load Balancing of one region. Its methods may be called concurrently.
type Service struct {
	cfg    Config
	st     *serviceState // guarded by the store's lock
	store  *state.Store
	unseen visibility.Tracker
}

// serviceState is the saved state. All maps are by ARN.
type serviceState struct {
	Balancers map[string]*loadBalancer
	Groups    map[string]*targetGroup
	Listeners map[string]*sdk.Listener
	Tags      map[string]map[string]string // of load balancers, target groups and listeners
	Deleted   []deletedBalancer            `json:"Ghosts"`
}

type loadBalancer struct {
	Shape      *sdk.LoadBalancer      // as DescribeLoadBalancers returns it
	Attributes map[string]string      // as DescribeLoadBalancerAttributes returns them
	Interfaces []ec2.ManagedInterface // one a subnet
	Public     string                 // loopback address on the host; empty for an internal load balancer
	Ready      time.Time              // when the state changes from provisioning to active
	Request    string                 // the request that created it, as JSON, for idempotent repeats
}

type targetGroup struct {
	Shape      *sdk.TargetGroup             // as DescribeTargetGroups returns it, except LoadBalancerArns
	Attributes map[string]string            // as DescribeTargetGroupAttributes returns them
	Targets    map[string]*registeredTarget // by id and port
	Request    string                       // the request that created it, as JSON, for idempotent repeats
}

type registeredTarget struct {
	ID      string    // an instance's id or an IP address
	Port    int64     // 1 to 65535
	Zone    string    // availability zone of an instance; empty for an IP address
	Leaving time.Time // end of draining; zero while registered
}

// deletedBalancer is a deleted load balancer whose network interfaces still exist. In AWS, too, they remain
// for a while.
type deletedBalancer struct {
	At  time.Time // when the interfaces are deleted
	IDs []string  // of the interfaces
}

// New returns a service with its saved state.
func New(cfg Config) (*Service, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}

	if !cfg.Loopback.IsValid() {
		cfg.Loopback = netip.AddrFrom4([4]byte{127, 77, 0, 1})
	}

	if cfg.MaxBalancers == 0 {
		cfg.MaxBalancers = DefaultMaxBalancers
	}

	s := &Service{cfg: cfg, st: &serviceState{}}
	s.store = &state.Store{
		Name:                "elbv2",
		Backend:             cfg.State,
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

// SaveTo saves the service's state to another backend, for a snapshot.
func (s *Service) SaveTo(to state.Backend) error { return s.store.SaveTo(to) }

// provisioningDelay returns how long "load-balancer" or "load-balancer-deletion" takes.
func (s *Service) provisioningDelay(kind string) time.Duration {
	if s.cfg.ProvisioningDelay == nil {
		return s.cfg.TransitionDelay
	}

	return s.cfg.ProvisioningDelay(kind, s.cfg.TransitionDelay)
}

// Run applies the transitions that are due, such as the end of draining, every 200 ms until ctx ends.
func (s *Service) Run(ctx context.Context) {
	t := time.NewTicker(200 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			if err := s.store.WithLock(func() error { return nil }); err != nil { // applies due transitions
				s.cfg.Log.ErrorContext(ctx, "save the state of elbv2", slog.Any("error", err))
			}
		}
	}
}

// applyDueTransitions activates load balancers, removes drained targets and deletes the interfaces of deleted
// load balancers. It runs under the store's lock.
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

	s.st.Deleted = slices.DeleteFunc(s.st.Deleted, func(d deletedBalancer) bool {
		if d.At.After(now) {
			return false
		}

		s.store.MarkChanged()
		if err := s.cfg.Cloud.DeleteManagedInterfaces(d.IDs...); err != nil {
			s.cfg.Log.Error("delete the network interfaces of a load balancer", slog.Any("error", err))
			return false
		}

		return true
	})
}

func (s *Service) resourceARN(rest string) string {
	return fmt.Sprintf("arn:aws:elasticloadbalancing:%s:%s:%s", s.cfg.Region, s.cfg.Account, rest)
}

// Wire returns the service's operations for the wire layer.
func (s *Service) Wire() wire.Service {
	return wire.Service{
		Name:      "elasticloadbalancing",
		Protocol:  wire.QueryProtocol,
		Version:   "2015-12-01",
		Namespace: "http://elasticloadbalancing.amazonaws.com/doc/2015-12-01/",
		Authorize: s.authorizeRequest,
		Operations: s.unseen.Wrap(
			unseenRules(),
			slices.Concat(s.loadBalancerOps(), s.targetGroupOps(), s.listenerOps(), s.tagOps()),
		),
	}
}

// authorizeRequest asks IAM about each resource that a request names or creates.
func (s *Service) authorizeRequest(ctx context.Context, op string, in any) error {
	return s.store.Authorize(
		ctx,
		"elasticloadbalancing:"+op,
		in,
		func(tree map[string]any) []wire.AccessCheck { return s.requestChecks(op, tree) },
	)
}

// requestChecks returns the questions to IAM for a request. The caller holds the store's lock.
func (s *Service) requestChecks(op string, tree map[string]any) []wire.AccessCheck {
	action := "elasticloadbalancing:" + op
	request := map[string][]string{}
	sdkshape.AddRequestTags(request, tree["Tags"])
	out := s.creationChecks(op, tree, request)
	isResource := func(text string) bool { return strings.HasPrefix(text, "arn:aws:elasticloadbalancing:") }

	for _, arn := range sdkshape.CollectStrings(tree, isResource, "Tags") {
		if (op == "CreateListener" || op == "ModifyListener") && strings.Contains(arn, ":targetgroup/") {
			continue // AWS does not check the target groups that a listener forwards to
		}

		c := map[string][]string{}
		maps.Copy(c, request)
		sdkshape.AddResourceTags(c, s.st.Tags[arn])
		out = append(out, wire.AccessCheck{Action: action, Resource: arn, Context: c})
	}

	if len(out) == 0 {
		out = append(out, wire.AccessCheck{Action: action, Resource: "*", Context: request})
	}

	return out
}

// creationChecks returns the questions about the resource that a request creates. A caller who creates a
// resource with tags also needs the right to tag it.
func (s *Service) creationChecks(op string, tree map[string]any, request map[string][]string) []wire.AccessCheck {
	if op == "CreateListener" { // its own action is asked about the load balancer
		return listenerTagChecks(tree, request)
	}

	prefix := map[string]string{
		"CreateLoadBalancer": "loadbalancer/net/",
		"CreateTargetGroup":  "targetgroup/",
	}[op]
	if prefix == "" {
		return nil
	}

	name, _ := tree["Name"].(string)
	arn := s.resourceARN(prefix + name + "/*")
	out := []wire.AccessCheck{{Action: "elasticloadbalancing:" + op, Resource: arn, Context: request}}

	return append(out, tagChecks(op, arn, request)...)
}

// listenerTagChecks returns the question about the tags of a listener that a request creates.
func listenerTagChecks(tree map[string]any, request map[string][]string) []wire.AccessCheck {
	balancer, _ := tree["LoadBalancerArn"].(string)
	arn := strings.Replace(balancer, ":loadbalancer/", ":listener/", 1) + "/*"

	return tagChecks("CreateListener", arn, request)
}

// tagChecks returns the question whether the caller of op may tag what it creates; nothing without tags.
func tagChecks(op, arn string, request map[string][]string) []wire.AccessCheck {
	if len(request) == 0 {
		return nil
	}

	c := maps.Clone(request)
	c["elasticloadbalancing:CreateAction"] = []string{op}

	return []wire.AccessCheck{{Action: "elasticloadbalancing:AddTags", Resource: arn, Context: c}}
}

func newValidationError(format string, args ...any) error {
	return newErrorf(codeValidation, format, args...)
}

// resolvePageSize returns the number of entries on a page: 400 unless the request sets fewer.
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
