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
	"github.com/slipway-k8s/slipway/internal/region/record"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// Cloud is what Auto Scaling needs of EC2. It is called under this service's lock.
type Cloud interface {
	Pool
	LaunchFor(in *ec2sdk.RunInstancesInput, tags map[string]string) (*ec2sdk.Reservation, error)
	TerminateInstances(ctx context.Context, in *ec2sdk.TerminateInstancesInput) (*ec2sdk.TerminateInstancesOutput, error)
	Instance(id string) (ec2.InstanceFacts, bool)
	Places(subnets ...string) ([]ec2.Place, error)
	Template(id, name, version string) (ec2.TemplateFacts, error)
	HasType(name string) bool
	LaunchChecks(id, name, version string, subnets []string) []wire.Check
}

// Pool is what warm pools need of EC2: to stop an instance and start it, and to tell it in which state it is to be.
type Pool interface {
	Stop(id string) error
	Start(id string) error
	Aim(id, state string) error
}

// Balancers is what Auto Scaling needs of load balancing. It is called under this service's lock.
type Balancers interface {
	Register(group string, ids ...string) error
	Deregister(group string, ids ...string) error
	HasGroup(arn string) bool
	TargetState(group, id string) string
}

// Config is what a [Service] is made of. All but Saver, MaxGroups and Log are required.
type Config struct {
	Region, Account string
	Now             func() time.Time
	Rand            io.Reader
	Saver           record.Saver
	Cloud           Cloud
	Balancers       Balancers
	// MaxGroups is the quota of groups; the default is AWS's 500.
	MaxGroups int
	Log       *slog.Logger
}

// Service is Auto Scaling in one region.
type Service struct {
	cfg  Config
	st   *state
	book *record.Book
	wake chan struct{}
}

// state is all that is remembered, by group name; it is saved as JSON.
type state struct{ Groups map[string]*group }

type group struct {
	Shape      *sdk.Group
	Tags       map[string]tag
	Activities []*sdk.Activity // newest first
	Deleting   bool
	Since      map[string]time.Time // when an instance came into service, by its id
	Registered map[string][]string  // target groups that an instance was registered in, by its id
	Warm       []*sdk.Instance      // the warm pool's
	Spot       map[string]bool      // spot instances, by id
	Failures   int                  // launches in a row that failed
	NotBefore  time.Time            // no launch before this
}

type tag struct {
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
	s := &Service{cfg: cfg, st: &state{}, wake: make(chan struct{}, 1)}
	s.book = &record.Book{Name: "autoscaling", Saver: cfg.Saver, State: s.st, Changed: s.Kick}
	if err := s.book.Load(); err != nil {
		return nil, err
	}
	if s.st.Groups == nil {
		s.st.Groups = map[string]*group{}
	}
	return s, nil
}

// SaveTo writes what the service knows to another place, for a snapshot.
func (s *Service) SaveTo(to record.Saver) error { return s.book.SaveTo(to) }

// Kick makes Run look at the groups soon. It does not block.
func (s *Service) Kick() {
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
		Name: "autoscaling", Protocol: wire.Query, Version: "2011-01-01",
		Namespace: "http://autoscaling.amazonaws.com/doc/2011-01-01/", Authorize: s.authorize,
		Ops: slices.Concat(s.groupOps(), s.warmOps(), s.instanceOps(), s.tagOps()),
	}
}

func (s *Service) arn(name string) string {
	return fmt.Sprintf("arn:aws:autoscaling:%s:%s:autoScalingGroup:*:autoScalingGroupName/%s", s.cfg.Region, s.cfg.Account, name)
}

// authorize asks IAM about every group that a request touches.
func (s *Service) authorize(ctx context.Context, op string, in any) error {
	action := "autoscaling:" + op
	return s.book.Authorize(ctx, action, in, func(tree map[string]any) []wire.Check {
		return append(s.questions(action, tree), s.launching(tree)...)
	})
}

// launching is what the caller must be allowed to do itself for a group to launch from a template.
func (s *Service) launching(tree map[string]any) []wire.Check {
	below := func(m map[string]any, k string) map[string]any { v, _ := m[k].(map[string]any); return v }
	spec := below(tree, "LaunchTemplate")
	if spec == nil {
		spec = below(below(below(tree, "MixedInstancesPolicy"), "LaunchTemplate"), "LaunchTemplateSpecification")
	}
	if spec == nil {
		return nil
	}
	text := func(m map[string]any, k string) string { v, _ := m[k].(string); return v }
	return s.cfg.Cloud.LaunchChecks(text(spec, "LaunchTemplateId"), text(spec, "LaunchTemplateName"), text(spec, "Version"),
		subnets(new(text(tree, "VPCZoneIdentifier"))))
}

func (s *Service) questions(action string, tree map[string]any) []wire.Check {
	request, names := map[string][]string{}, []string{}
	record.RequestTags(request, tree["Tags"])
	if name, ok := tree["AutoScalingGroupName"].(string); ok {
		names = append(names, name)
	}
	if id, ok := tree["InstanceId"].(string); ok {
		if g, _ := s.member(id); g != nil {
			names = append(names, record.Str(g.Shape.AutoScalingGroupName))
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
		c, arn := map[string][]string{}, s.arn(name)
		maps.Copy(c, request)
		if g := s.st.Groups[name]; g != nil {
			arn = record.Str(g.Shape.AutoScalingGroupARN)
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

func validation(format string, args ...any) error {
	return wire.Errorf("ValidationError", format, args...)
}

func (s *Service) group(name *string) (*group, error) {
	g := s.st.Groups[record.Str(name)]
	if g == nil {
		return nil, validation("AutoScalingGroup name not found - AutoScalingGroup '%s' not found", record.Str(name))
	}
	return g, nil
}

// member finds an instance's group and the instance in it.
func (s *Service) member(id string) (*group, *sdk.Instance) {
	for _, name := range record.Keys(s.st.Groups) {
		for _, i := range slices.Concat(s.st.Groups[name].Shape.Instances, s.st.Groups[name].Warm) {
			if record.Str(i.InstanceId) == id {
				return s.st.Groups[name], i
			}
		}
	}
	return nil, nil
}

// subnets are a group's subnets, in the order given.
func subnets(zoneIdentifier *string) []string {
	var out []string
	for part := range strings.SplitSeq(record.Str(zoneIdentifier), ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

// page cuts a list; as at AWS a page has 50 entries unless asked otherwise, and 100 at most.
func page(keys []string, size *int64, token *string) ([]string, *string, error) {
	n, limit := int64(50), int64(100)
	if size != nil {
		n = *size
	}
	if n < 1 || n > limit {
		return nil, nil, validation("1 validation error detected: Value '%d' at 'maxRecords' must be between 1 and %d", n, limit)
	}
	return record.Page(keys, n, token, wire.Errorf("InvalidNextToken", "The token '%s' is invalid", record.Str(token)))
}
