// SPDX-License-Identifier: Apache-2.0

// Package eventbridge is the region's EventBridge: rules of the default event bus whose patterns match the events that
// the region's services emit, and targets that get them. Targets are Lambda functions. An event is delivered at least
// once: it is saved until its target has accepted it. Clients cannot put events.
package eventbridge

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go/service/eventbridge"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/visibility"
	"github.com/slipway-k8s/slipway/internal/region/wakeup"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// Functions is the part of Lambda that EventBridge uses.
type Functions interface {
	// InvokeForService queues an event for the function of an ARN on behalf of a service, such as events.amazonaws.com,
	// for the resource source. An error that is a [wire.Error] is permanent.
	InvokeForService(ctx context.Context, function, service, source string, payload []byte) error
}

// Config has the settings and dependencies of a [Service]. All fields but State and Log are required.
type Config struct {
	Region    string           // such as us-east-1
	Account   string           // 12 digits
	Now       func() time.Time // the region's clock
	Rand      io.Reader        // source of ids
	State     state.Backend    // keeps rules and deliveries over a restart; nil keeps nothing
	Functions Functions        // runs the targets
	Log       *slog.Logger     // nil discards
}

// Service is EventBridge of one region. Its methods may be called concurrently.
type Service struct {
	cfg    Config
	st     *serviceState // guarded by the store's lock
	store  *state.Store
	unseen visibility.Tracker // rules by name
	wake   wakeup.Signal      // makes Run deliver
}

// serviceState is the saved state.
type serviceState struct {
	Rules   map[string]*rule // by name
	Pending []delivery       // events on their way, oldest first
}

// rule is a rule of the default event bus.
type rule struct {
	Description string
	Pattern     string    // as given; empty: no event matches
	Schedule    string    // as given, such as rate(5 minutes); empty: none
	NextRun     time.Time // of the schedule
	Enabled     bool
	Tags        map[string]string
	Targets     map[string]*sdk.Target // by id
}

// New returns a service with its saved state. Call [Service.Run] to deliver events.
func New(cfg Config) (*Service, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}

	s := &Service{cfg: cfg, st: &serviceState{}, wake: wakeup.New()}
	s.store = &state.Store{
		Name:     "eventbridge",
		State:    s.st,
		Backend:  cfg.State,
		OnChange: s.wake.Send,
	}
	if err := s.store.Load(); err != nil {
		return nil, err
	}

	if s.st.Rules == nil {
		s.st.Rules = map[string]*rule{}
	}

	return s, nil
}

// SaveTo saves the service's state to another backend, for a snapshot.
func (s *Service) SaveTo(to state.Backend) error { return s.store.SaveTo(to) }

// Wire returns the service's operations for the wire layer.
func (s *Service) Wire() wire.Service {
	return wire.Service{
		Name:         "events",
		Protocol:     wire.JSONProtocol,
		Version:      "2015-10-07",
		TargetPrefix: "AWSEvents",
		Authorize:    s.authorizeRequest,
		Operations: s.unseen.Wrap(s.unseenRules(), []wire.Operation{
			state.WriteOperationContext(s.store, "PutRule", s.putRule),
			state.ReadOperation(s.store, "DescribeRule", s.describeRule),
			state.ReadOperation(s.store, "ListRules", s.listRules),
			state.WriteOperation(s.store, "DeleteRule", s.deleteRule),
			state.WriteOperation(s.store, "PutTargets", s.putTargets),
			state.WriteOperation(s.store, "RemoveTargets", s.removeTargets),
			state.ReadOperation(s.store, "ListTargetsByRule", s.listTargetsByRule),
			state.WriteOperation(s.store, "TagResource", s.tagResource),
			state.WriteOperation(s.store, "UntagResource", s.untagResource),
			state.ReadOperation(s.store, "ListTagsForResource", s.listTagsForResource),
		}),
	}
}

func (s *Service) ruleARN(name string) string {
	return "arn:aws:events:" + s.cfg.Region + ":" + s.cfg.Account + ":rule/" + name
}

// requestedRule returns the name of the rule that a request names, by its name or its ARN; empty for none. No request has more than
// one of the three members.
func (s *Service) requestedRule(in any) string {
	return wire.StringMember(in, "Name") + wire.StringMember(in, "Rule") +
		strings.TrimPrefix(wire.StringMember(in, "ResourceARN"), s.ruleARN(""))
}

// authorizeRequest asks IAM about the rule that a request names.
func (s *Service) authorizeRequest(ctx context.Context, op string, in any) error {
	if wire.CallerFrom(ctx).IsUnrestricted() {
		return nil
	}

	c := wire.AccessCheck{Action: "events:" + op, Resource: "*", Context: map[string][]string{}}
	name := s.requestedRule(in)

	switch arn := wire.StringMember(in, "ResourceARN"); {
	case arn != "":
		c.Resource = arn
	case op == "ListRules":
		c.Resource = s.ruleARN("*")
	case name != "":
		c.Resource = s.ruleARN(name)
	}

	tree, err := sdkshape.ShapeToMap(in)
	if err != nil {
		return err
	}

	addConditions(c.Context, tree)
	s.store.View(func() {
		if r := s.st.Rules[name]; r != nil {
			sdkshape.AddResourceTags(c.Context, r.Tags)
		}
	})

	return wire.Authorize(ctx, c)
}

// addConditions adds the condition keys of a request: its tags and the ARNs of its targets.
func addConditions(into map[string][]string, tree map[string]any) {
	sdkshape.AddRequestTags(into, tree["Tags"])
	keys, _ := tree["TagKeys"].([]any)

	for _, k := range keys {
		text, _ := k.(string)
		into["aws:TagKeys"] = append(into["aws:TagKeys"], text)
	}

	targets, _ := tree["Targets"].([]any)

	for _, t := range targets {
		target, _ := t.(map[string]any)
		arn, _ := target["Arn"].(string)
		into["events:TargetArn"] = append(into["events:TargetArn"], arn)
	}
}

// checkBus refuses event buses other than the default one.
func (s *Service) checkBus(name *string) error {
	given := sdkshape.String(name)
	arn := "arn:aws:events:" + s.cfg.Region + ":" + s.cfg.Account + ":event-bus/" + defaultBus
	if given == "" || given == defaultBus || given == arn {
		return nil
	}

	return newErrorf(codeResourceNotFound, "Event bus %s does not exist.", given)
}

const defaultBus = "default"

// findRule returns the rule of a name.
func (s *Service) findRule(bus, name *string) (*rule, error) {
	if err := s.checkBus(bus); err != nil {
		return nil, err
	}

	if r := s.st.Rules[sdkshape.String(name)]; r != nil {
		return r, nil
	}

	return nil, newNotFoundError(sdkshape.String(name))
}

// findByARN returns the rule of an ARN.
func (s *Service) findByARN(arn *string) (*rule, error) {
	name, ok := strings.CutPrefix(sdkshape.String(arn), s.ruleARN(""))
	if r := s.st.Rules[name]; ok && r != nil {
		return r, nil
	}

	return nil, newNotFoundError(name)
}

// newNotFoundError returns the error about a rule that does not exist.
func newNotFoundError(name string) error {
	return newErrorf(codeResourceNotFound, "Rule %s does not exist on EventBus default.", name)
}

// SetSystemTags sets tags of a rule whose keys begin with aws:, such as aws:cloudformation:stack-name. Requests cannot
// set them. SetSystemTags does nothing if the rule does not exist.
func (s *Service) SetSystemTags(name string, tags map[string]string) {
	_ = s.store.WithLock(func() error { // if the save fails, the next change saves the tags
		if r := s.st.Rules[name]; r != nil {
			maps.Copy(r.Tags, tags)
			s.store.MarkChanged()
		}

		return nil
	})
}

func (s *Service) tagResource(in *sdk.TagResourceInput) (*sdk.TagResourceOutput, error) {
	r, err := s.findByARN(in.ResourceARN)
	if err != nil {
		return nil, err
	}

	return &sdk.TagResourceOutput{}, r.addTags(in.Tags)
}

func (s *Service) untagResource(in *sdk.UntagResourceInput) (*sdk.UntagResourceOutput, error) {
	r, err := s.findByARN(in.ResourceARN)
	if err != nil {
		return nil, err
	}

	for _, k := range in.TagKeys {
		delete(r.Tags, sdkshape.String(k))
	}

	return &sdk.UntagResourceOutput{}, nil
}

func (s *Service) listTagsForResource(
	in *sdk.ListTagsForResourceInput,
) (*sdk.ListTagsForResourceOutput, error) {
	r, err := s.findByARN(in.ResourceARN)
	if err != nil {
		return nil, err
	}

	out := &sdk.ListTagsForResourceOutput{Tags: []*sdk.Tag{}}
	for _, k := range sdkshape.SortedKeys(r.Tags) {
		out.Tags = append(out.Tags, &sdk.Tag{Key: &k, Value: new(r.Tags[k])})
	}

	return out, nil
}

// The limits of tags (EventBridge API reference, Tag).
const (
	maxTags           = 50
	maxTagKeyLength   = 128
	maxTagValueLength = 256
)

// addTags adds the tags of a request, or refuses all of them.
func (r *rule) addTags(tags []*sdk.Tag) error {
	after := maps.Clone(r.Tags)

	for _, t := range tags {
		k := sdkshape.String(t.Key)
		v := sdkshape.String(t.Value)
		if len([]rune(k)) > maxTagKeyLength || len([]rune(v)) > maxTagValueLength ||
			strings.HasPrefix(strings.ToLower(k), "aws:") {
			return newErrorf(
				codeValidation,
				"The tag %s is not valid: a key has up to %d characters and does not begin with aws:, "+
					"a value has up to %d characters",
				k,
				maxTagKeyLength,
				maxTagValueLength,
			)
		}

		after[k] = v
	}

	if len(after) > maxTags {
		return newErrorf(codeLimitExceeded, "A rule can have no more than %d tags.", maxTags)
	}

	r.Tags = after

	return nil
}

// sortedTargets returns the targets of a rule by their ids.
func (r *rule) sortedTargets() []*sdk.Target {
	var out []*sdk.Target
	for _, id := range slices.Sorted(maps.Keys(r.Targets)) {
		out = append(out, r.Targets[id])
	}

	return out
}
