// SPDX-License-Identifier: Apache-2.0

// Package autoscaling is the region's EC2 Auto Scaling: groups that keep a desired number of instances,
// spread over the zones of their subnets, replace unhealthy ones, and register instances with target groups.
// A group may have a warm pool of stopped instances. [Service.Reconcile] compares every group with its
// desired state and acts on the difference. The package uses instances only through EC2 and target groups
// only through Elastic Load Balancing.
package autoscaling

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go/service/autoscaling"
	ec2sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/ec2"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/wakeup"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// EC2 is the part of EC2 that Auto Scaling uses. It is called under the lock of this service.
type EC2 interface {
	InstanceController
	// RunInstancesWithTags launches instances that have the tags from the start.
	RunInstancesWithTags(in *ec2sdk.RunInstancesInput, tags map[string]string) (*ec2sdk.Reservation, error)
	// TerminateInstances is the operation TerminateInstances.
	TerminateInstances(
		ctx context.Context,
		in *ec2sdk.TerminateInstancesInput,
	) (*ec2sdk.TerminateInstancesOutput, error)
	// InstanceInfo returns the state of an instance, or false if it does not exist.
	InstanceInfo(id string) (ec2.InstanceInfo, bool)
	// SubnetPlacements returns the locations of subnets, in the given order.
	SubnetPlacements(subnets ...string) ([]ec2.SubnetPlacement, error)
	// LaunchTemplateInfo returns a version of a launch template, found by the template's id or name.
	LaunchTemplateInfo(id, name, version string) (ec2.LaunchTemplateInfo, error)
	// HasInstanceType reports whether the region offers an instance type.
	HasInstanceType(name string) bool
	// LaunchPermissionChecks returns what IAM is asked about a caller that makes a group launch from a
	// template.
	LaunchPermissionChecks(id, name, version string, subnets []string) []wire.AccessCheck
}

// InstanceController is the part of EC2 that warm pools use.
type InstanceController interface {
	// StopInstance stops an instance.
	StopInstance(id string) error
	// StartInstance starts a stopped instance.
	StartInstance(id string) error
	// SetTargetLifecycleState sets the lifecycle state that an instance finds in its metadata.
	SetTargetLifecycleState(id, lifecycleState string) error
}

// TargetGroups is the part of Elastic Load Balancing that Auto Scaling uses. It is called under the lock of
// this service.
type TargetGroups interface {
	// RegisterTargets registers instances with the target group of an ARN.
	RegisterTargets(group string, ids ...string) error
	// DeregisterTargets deregisters instances from the target group of an ARN.
	DeregisterTargets(group string, ids ...string) error
	// HasTargetGroup reports whether a target group exists.
	HasTargetGroup(arn string) bool
	// TargetState returns the state of a target, such as healthy or unhealthy.
	TargetState(group, id string) string
}

// Config configures a [Service]. All fields but State, MaxGroups, Log, Emit and Publish are required.
type Config struct {
	Region       string           // such as us-east-1
	Account      string           // account id of 12 digits, which owns all groups
	Now          func() time.Time // clock
	Rand         io.Reader        // source of ids
	State        state.Backend    // keeps the state over a restart; nil for none
	EC2          EC2              // launches instances
	TargetGroups TargetGroups     // registers instances
	MaxGroups    int              // quota of groups; 0 means AWS's default of 500
	Log          *slog.Logger     // nil discards
	// Emit gets the events of groups, for EventBridge. It is called under the lock of this service and must not block.
	// nil for none.
	Emit func(Event)
	// Publish sends a notification of a group to a topic of SNS. It is called under the lock of this service and must not
	// block. nil if the region has no topics.
	Publish func(Notification) error
}

// Service is Auto Scaling in one region. Its methods may be called concurrently.
type Service struct {
	cfg   Config
	st    *serviceState
	store *state.Store  // its lock guards st
	wake  wakeup.Signal // makes Run reconcile
}

// serviceState is the whole state of Auto Scaling, saved as JSON.
type serviceState struct {
	Groups map[string]*group // by name
}

// group is an Auto Scaling group with its instances.
type group struct {
	Shape      *sdk.Group                    // as in DescribeAutoScalingGroups, without the tags
	Tags       map[string]groupTag           // by key
	Activities []*sdk.Activity               // newest first, at most 100
	Deleting   bool                          // the group is deleted when its last instance is gone
	Since      map[string]time.Time          // when an instance came into service, by instance id
	Registered map[string][]string           // ARNs of the target groups of an instance, by instance id
	Warm       []*sdk.Instance               // instances of the warm pool
	Spot       map[string]bool               // whether an instance is a spot instance, by instance id
	Failures   int                           // failed launches in a row
	Hooks      map[string]lifecycleHook      // by name
	Actions    map[string][]*lifecycleAction // by instance id
	NotBefore  time.Time                     // earliest time of the next launch
	AtRisk     map[string]bool               // spot instances with a rebalance recommendation that are replaced, by id

	Notifications map[string][]string // types of notifications by the ARN of a topic
}

// groupTag is the value of a group's tag.
type groupTag struct {
	Value     string
	Propagate bool // new instances get the tag
}

// New returns a service with its saved state. Call [Service.Run] to run its background work.
func New(cfg Config) (*Service, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}

	if cfg.Emit == nil {
		cfg.Emit = func(Event) {}
	}

	if cfg.Publish == nil {
		cfg.Publish = func(n Notification) error { return fmt.Errorf("topic %s does not exist", n.Topic) }
	}

	if cfg.MaxGroups == 0 {
		cfg.MaxGroups = 500
	}

	s := &Service{cfg: cfg, st: &serviceState{}, wake: wakeup.New()}
	s.store = &state.Store{
		Name:     "autoscaling",
		Backend:  cfg.State,
		State:    s.st,
		OnChange: s.RequestReconcile,
	}
	if err := s.store.Load(); err != nil {
		return nil, err
	}

	if s.st.Groups == nil {
		s.st.Groups = map[string]*group{}
	}

	return s, nil
}

// SaveTo writes the state of the service to another backend, for a snapshot.
func (s *Service) SaveTo(to state.Backend) error { return s.store.SaveTo(to) }

// RequestReconcile makes Run reconcile the groups soon. It does not block.
func (s *Service) RequestReconcile() { s.wake.Send() }

// Run reconciles the groups after every change and every second, until ctx ends.
func (s *Service) Run(ctx context.Context) {
	s.wake.Loop(ctx, func(ctx context.Context) {
		if err := s.Reconcile(ctx); err != nil {
			s.cfg.Log.ErrorContext(ctx, "failed to save the state of autoscaling", slog.Any("error", err))
		}
	})
}

// Wire returns the operations of Auto Scaling for the endpoint that serves them.
func (s *Service) Wire() wire.Service {
	return wire.Service{
		Name:      "autoscaling",
		Protocol:  wire.QueryProtocol,
		Version:   "2011-01-01",
		Namespace: "http://autoscaling.amazonaws.com/doc/2011-01-01/",
		Authorize: s.authorizeRequest,
		Operations: slices.Concat(
			s.groupOps(),
			s.warmPoolOps(),
			s.instanceOps(),
			lifecycleHandlers{s}.ops(),
			notificationHandlers{s}.ops(),
			s.tagOps(),
		),
	}
}

// groupARN returns the ARN of a group with * for its UUID.
func (s *Service) groupARN(name string) string {
	return fmt.Sprintf(
		"arn:aws:autoscaling:%s:%s:autoScalingGroup:*:autoScalingGroupName/%s",
		s.cfg.Region,
		s.cfg.Account,
		name,
	)
}

// serviceRoleARN returns the ARN of the service-linked role of Auto Scaling.
func (s *Service) serviceRoleARN() string {
	return "arn:aws:iam::" + s.cfg.Account +
		":role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"
}

// authorizeRequest asks IAM about every group that a request names.
func (s *Service) authorizeRequest(ctx context.Context, op string, in any) error {
	action := "autoscaling:" + op
	return s.store.Authorize(ctx, action, in, func(tree map[string]any) []wire.AccessCheck {
		return append(s.requestChecks(action, tree), s.launchChecks(tree)...)
	})
}

// launchChecks returns what the caller itself must be allowed to do for a group to launch from a template.
func (s *Service) launchChecks(tree map[string]any) []wire.AccessCheck {
	below := func(m map[string]any, k string) map[string]any { v, _ := m[k].(map[string]any); return v }
	spec := below(tree, "LaunchTemplate")
	if spec == nil {
		spec = below(
			below(below(tree, "MixedInstancesPolicy"), "LaunchTemplate"),
			"LaunchTemplateSpecification",
		)
	}

	if spec == nil {
		return nil
	}

	text := func(m map[string]any, k string) string { v, _ := m[k].(string); return v }

	return s.cfg.EC2.LaunchPermissionChecks(
		text(spec, "LaunchTemplateId"),
		text(spec, "LaunchTemplateName"),
		text(spec, "Version"),
		parseSubnetIDs(new(text(tree, "VPCZoneIdentifier"))),
	)
}

// addTargets adds the condition keys of what a request puts in front of a group's instances.
func addTargets(into map[string][]string, tree map[string]any) {
	for _, key := range []string{"LoadBalancerNames", "TargetGroupARNs"} {
		if values := sdkshape.CollectStrings(tree[key], func(string) bool { return true }); len(values) > 0 {
			into["autoscaling:"+key] = values
		}
	}

	sources, _ := tree["TrafficSources"].([]any)
	for _, source := range sources {
		m, _ := source.(map[string]any)
		if id, ok := m["Identifier"].(string); ok {
			into["autoscaling:TrafficSourceIdentifiers"] = append(into["autoscaling:TrafficSourceIdentifiers"], id)
		}
	}
}

// requestChecks returns what IAM is asked about the groups that a request names.
func (s *Service) requestChecks(action string, tree map[string]any) []wire.AccessCheck {
	request := map[string][]string{}
	names := []string{}
	sdkshape.AddRequestTags(request, tree["Tags"])
	addTargets(request, tree)
	if name, ok := tree["AutoScalingGroupName"].(string); ok {
		names = append(names, name)
	}

	if id, ok := tree["InstanceId"].(string); ok {
		if g, _ := s.findInstance(id); g != nil {
			names = append(names, sdkshape.String(g.Shape.AutoScalingGroupName))
		}
	}

	tags, _ := tree["Tags"].([]any)

	for _, t := range tags {
		m, _ := t.(map[string]any)
		if name, ok := m["ResourceId"].(string); ok && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}

	var out []wire.AccessCheck

	for _, name := range names {
		c := map[string][]string{}
		arn := s.groupARN(name)
		maps.Copy(c, request)
		if g := s.st.Groups[name]; g != nil {
			arn = sdkshape.String(g.Shape.AutoScalingGroupARN)
			for k, t := range g.Tags {
				c["aws:ResourceTag/"+k] = []string{t.Value}
				c["autoscaling:ResourceTag/"+k] = []string{t.Value}
			}
		}

		out = append(out, wire.AccessCheck{Action: action, Resource: arn, Context: c})
	}

	if len(out) == 0 {
		out = append(out, wire.AccessCheck{Action: action, Resource: "*", Context: request})
	}

	return out
}

// validationError returns AWS's error for a request that is not valid.
func validationError(format string, args ...any) error {
	return newErrorf(codeValidation, format, args...)
}

// findGroup returns the group of a name.
func (s *Service) findGroup(name *string) (*group, error) {
	g := s.st.Groups[sdkshape.String(name)]
	if g == nil {
		return nil, validationError(
			"AutoScalingGroup name not found - AutoScalingGroup '%s' not found",
			sdkshape.String(name),
		)
	}

	return g, nil
}

// findInstance returns an instance of a group or its warm pool and the group, or nil.
func (s *Service) findInstance(id string) (*group, *sdk.Instance) {
	for _, name := range sdkshape.SortedKeys(s.st.Groups) {
		for _, i := range slices.Concat(s.st.Groups[name].Shape.Instances, s.st.Groups[name].Warm) {
			if sdkshape.String(i.InstanceId) == id {
				return s.st.Groups[name], i
			}
		}
	}

	return nil, nil
}

// parseSubnetIDs returns the subnet ids of a VPCZoneIdentifier, in its order.
func parseSubnetIDs(zoneIdentifier *string) []string {
	var out []string
	for part := range strings.SplitSeq(sdkshape.String(zoneIdentifier), ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}

	return out
}

// defaultPageSize is how many records a page has if a request names no MaxRecords.
const defaultPageSize = 50

// paginateKeys returns one page of keys and the token of the next page. As in AWS, a page has 50 entries by
// default and 100 at most.
func paginateKeys(keys []string, size *int64, token *string) ([]string, *string, error) {
	n, err := parsePageSize(size, pageSizes{usual: defaultPageSize, most: 100})
	if err != nil {
		return nil, nil, err
	}

	return sdkshape.Paginate(keys, n, token, invalidToken(token))
}

// pageSizes are the numbers of records of a page: usual if the request does not name one, and most.
type pageSizes struct{ usual, most int64 }

func parsePageSize(size *int64, sizes pageSizes) (int64, error) {
	n := *numberOrDefault(size, sizes.usual)
	if n < 1 || n > sizes.most {
		return 0, validationError(
			"1 validation error detected: Value '%d' at 'maxRecords' must be between 1 and %d",
			n,
			sizes.most,
		)
	}

	return n, nil
}

func invalidToken(token *string) error {
	return newErrorf(codeInvalidNextToken, "The token '%s' is invalid", sdkshape.String(token))
}
