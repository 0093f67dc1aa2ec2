// SPDX-License-Identifier: Apache-2.0

// Package autoscaling behaves as EC2 Auto Scaling does: groups that keep a number of instances over the zones of
// their subnets, replace what died, and keep target groups in step. It knows instances only through EC2, targets only
// through load balancing.
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
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// EC2 is what Auto Scaling needs of EC2. It is called under this service's lock.
type EC2 interface {
	InstanceController
	RunInstancesWithTags(in *ec2sdk.RunInstancesInput, tags map[string]string) (*ec2sdk.Reservation, error)
	TerminateInstances(
		ctx context.Context,
		in *ec2sdk.TerminateInstancesInput,
	) (*ec2sdk.TerminateInstancesOutput, error)
	InstanceInfo(id string) (ec2.InstanceInfo, bool)
	SubnetPlacements(subnets ...string) ([]ec2.SubnetPlacement, error)
	LaunchTemplateInfo(id, name, version string) (ec2.LaunchTemplateInfo, error)
	HasInstanceType(name string) bool
	LaunchPermissionChecks(id, name, version string, subnets []string) []wire.Check
}

// InstanceController is what warm pools need of EC2: to stop an instance and start it, and to tell it in which state it is to be.
type InstanceController interface {
	StopInstance(id string) error
	StartInstance(id string) error
	SetTargetLifecycleState(id, state string) error
}

// TargetGroups is what Auto Scaling needs of load balancing. It is called under this service's lock.
type TargetGroups interface {
	RegisterTargets(group string, ids ...string) error
	DeregisterTargets(group string, ids ...string) error
	HasTargetGroup(arn string) bool
	TargetState(group, id string) string
}

// Config is what a [Service] is made of. All but Saver, MaxGroups and Log are required.
type Config struct {
	Region, Account string
	Now             func() time.Time
	Rand            io.Reader
	Saver           state.Backend
	EC2             EC2
	TargetGroups    TargetGroups
	// MaxGroups is the quota of groups; the default is AWS's 500.
	MaxGroups int
	Log       *slog.Logger
}

// Service is Auto Scaling in one region.
type Service struct {
	cfg   Config
	st    *serviceState
	store *state.Store
	wake  chan struct{}
}

// serviceState is all that is remembered, by group name; it is saved as JSON.
type serviceState struct{ Groups map[string]*group }

type group struct {
	Shape      *sdk.Group
	Tags       map[string]groupTag
	Activities []*sdk.Activity // newest first
	Deleting   bool
	Since      map[string]time.Time // when an instance came into service, by its id
	Registered map[string][]string  // target groups that an instance was registered in, by its id
	Warm       []*sdk.Instance      // the warm pool's
	Spot       map[string]bool      // spot instances, by id
	Failures   int                  // launches in a row that failed
	NotBefore  time.Time            // no launch before this
}

type groupTag struct {
	Value     string
	Propagate bool
}

// New makes the service and loads its saved state. Call [Service.Run] to let it act.
func New(cfg Config) (*Service, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}

	if cfg.MaxGroups == 0 {
		cfg.MaxGroups = 500
	}

	s := &Service{cfg: cfg, st: &serviceState{}, wake: make(chan struct{}, 1)}
	s.store = &state.Store{
		Name:     "autoscaling",
		Backend:  cfg.Saver,
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

// SaveTo writes what the service knows to another place, for a snapshot.
func (s *Service) SaveTo(to state.Backend) error { return s.store.SaveTo(to) }

// RequestReconcile makes Run look at the groups soon. It does not block.
func (s *Service) RequestReconcile() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Run keeps the groups as they should be until ctx ends: after every change, and each second.
func (s *Service) Run(ctx context.Context) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-t.C:
		}

		if err := s.Reconcile(ctx); err != nil {
			s.cfg.Log.ErrorContext(ctx, "the state could not be saved", slog.Any("error", err))
		}
	}
}

// Wire is the service as the wire serves it.
func (s *Service) Wire() wire.Service {
	return wire.Service{
		Name:      "autoscaling",
		Protocol:  wire.Query,
		Version:   "2011-01-01",
		Namespace: "http://autoscaling.amazonaws.com/doc/2011-01-01/",
		Authorize: s.authorizeRequest,
		Ops:       slices.Concat(s.groupOps(), s.warmPoolOps(), s.instanceOps(), s.tagOps()),
	}
}

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

// authorizeRequest asks IAM about every group that a request touches.
func (s *Service) authorizeRequest(ctx context.Context, op string, in any) error {
	action := "autoscaling:" + op
	return s.store.Authorize(ctx, action, in, func(tree map[string]any) []wire.Check {
		return append(s.requestChecks(action, tree), s.launchChecks(tree)...)
	})
}

// launchChecks is what the caller must be allowed to do itself for a group to launch from a template.
func (s *Service) launchChecks(tree map[string]any) []wire.Check {
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

func (s *Service) requestChecks(action string, tree map[string]any) []wire.Check {
	request := map[string][]string{}
	names := []string{}
	sdkshape.AddRequestTags(request, tree["Tags"])
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

	var out []wire.Check

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

		out = append(out, wire.Check{Action: action, Resource: arn, Context: c})
	}

	if len(out) == 0 {
		out = append(out, wire.Check{Action: action, Resource: "*", Context: request})
	}

	return out
}

func validationError(format string, args ...any) error {
	return wire.Errorf("ValidationError", format, args...)
}

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

// findInstance finds an instance's group and the instance in it.
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

// parseSubnetIDs are a group's subnets, in the order given.
func parseSubnetIDs(zoneIdentifier *string) []string {
	var out []string
	for part := range strings.SplitSeq(sdkshape.String(zoneIdentifier), ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}

	return out
}

// paginateKeys cuts a list; as at AWS a page has 50 entries unless asked otherwise, and 100 at most.
func paginateKeys(keys []string, size *int64, token *string) ([]string, *string, error) {
	n := int64(50)
	limit := int64(100)
	if size != nil {
		n = *size
	}

	if n < 1 || n > limit {
		return nil, nil, validationError(
			"1 validation error detected: Value '%d' at 'maxRecords' must be between 1 and %d",
			n,
			limit,
		)
	}

	return sdkshape.Paginate(
		keys,
		n,
		token,
		wire.Errorf("InvalidNextToken", "The token '%s' is invalid", sdkshape.String(token)),
	)
}
