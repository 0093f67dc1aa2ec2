// SPDX-License-Identifier: Apache-2.0

// Package cloudwatchlogs is the region's CloudWatch Logs: log groups with tags and a retention, and what other services
// write to them. Clients can read the groups and their events, but not write: only [Service.Append] does.
package cloudwatchlogs

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// Config has the settings of a [Service]. All fields but State are required.
type Config struct {
	Region  string           // such as us-east-1
	Account string           // 12 digits
	Now     func() time.Time // the region's clock
	State   state.Backend    // keeps the groups over a restart; nil keeps nothing
}

// Service is CloudWatch Logs of one region. Its methods may be called concurrently.
type Service struct {
	cfg   Config
	st    *serviceState // guarded by the store's lock
	store *state.Store
}

// serviceState is the saved state.
type serviceState struct {
	Groups map[string]*logGroup // by name
}

// logGroup is a log group.
type logGroup struct {
	Created   time.Time
	Class     string
	Retention int64             // in days; 0 keeps events for ever
	Tags      map[string]string // by key
	Streams   map[string]*logStream
}

// logStream is a log stream of a group.
type logStream struct {
	Created time.Time
	Events  []logEvent // oldest first, at most maxStreamEvents
}

// logEvent is one line of a log.
type logEvent struct {
	Time    time.Time
	Message string
}

// New returns a service with its saved state.
func New(cfg Config) (*Service, error) {
	s := &Service{cfg: cfg, st: &serviceState{}}
	s.store = &state.Store{Name: "cloudwatchlogs", State: s.st, Backend: cfg.State}
	if err := s.store.Load(); err != nil {
		return nil, err
	}

	if s.st.Groups == nil {
		s.st.Groups = map[string]*logGroup{}
	}

	return s, nil
}

// SaveTo saves the service's state to another backend, for a snapshot.
func (s *Service) SaveTo(to state.Backend) error { return s.store.SaveTo(to) }

// Wire returns the service's operations for the wire layer.
func (s *Service) Wire() wire.Service {
	return wire.Service{
		Name:         "logs",
		Protocol:     wire.JSONProtocol,
		Version:      "2014-03-28",
		TargetPrefix: "Logs_20140328",
		Authorize:    s.authorizeRequest,
		Operations: []wire.Operation{
			state.WriteOperationContext(s.store, "CreateLogGroup", s.createLogGroup),
			state.WriteOperation(s.store, "DeleteLogGroup", s.deleteLogGroup),
			state.ReadOperation(s.store, "DescribeLogGroups", s.describeLogGroups),
			state.WriteOperation(s.store, "PutRetentionPolicy", s.putRetentionPolicy),
			state.WriteOperation(s.store, "DeleteRetentionPolicy", s.deleteRetentionPolicy),
			state.WriteOperation(s.store, "TagResource", s.tagResource),
			state.WriteOperation(s.store, "UntagResource", s.untagResource),
			state.ReadOperation(s.store, "ListTagsForResource", s.listTagsForResource),
			state.ReadOperation(s.store, "DescribeLogStreams", s.describeLogStreams),
			state.ReadOperation(s.store, "FilterLogEvents", s.filterLogEvents),
		},
	}
}

// groupARN returns the ARN of a group without the trailing :* that most policies need.
func (s *Service) groupARN(name string) string {
	return "arn:aws:logs:" + s.cfg.Region + ":" + s.cfg.Account + ":log-group:" + name
}

// authorizeRequest asks IAM about the group that a request names.
func (s *Service) authorizeRequest(ctx context.Context, op string, in any) error {
	if wire.CallerFrom(ctx).IsUnrestricted() {
		return nil
	}

	c := wire.AccessCheck{Action: "logs:" + op, Resource: "*", Context: map[string][]string{}}
	name := wire.StringMember(in, "LogGroupName")

	switch arn := wire.StringMember(in, "ResourceArn"); {
	case arn != "": // these operations take the ARN without :*
		c.Resource = arn
		name = s.nameFromARN(arn)
	case op == "DescribeLogGroups":
		c.Resource = s.groupARN("") + ":log-stream:"
	case name != "":
		c.Resource = s.groupARN(name) + ":log-stream:"
	}

	tree, err := sdkshape.ShapeToMap(in)
	if err != nil {
		return err
	}

	addTagConditions(c.Context, tree)
	s.store.View(func() {
		if g := s.st.Groups[name]; g != nil {
			sdkshape.AddResourceTags(c.Context, g.Tags)
		}
	})

	return wire.Authorize(ctx, c)
}

// addTagConditions adds the condition keys of the tags in a request.
func addTagConditions(into map[string][]string, tree map[string]any) {
	tags, _ := tree["Tags"].(map[string]any)
	for _, k := range sdkshape.SortedKeys(tags) {
		text, _ := tags[k].(string)
		into["aws:RequestTag/"+k] = []string{text}
		into["aws:TagKeys"] = append(into["aws:TagKeys"], k)
	}

	keys, _ := tree["TagKeys"].([]any)

	for _, k := range keys {
		text, _ := k.(string)
		into["aws:TagKeys"] = append(into["aws:TagKeys"], text)
	}
}

// nameFromARN returns the name of the group of an ARN of this account and region; empty for another ARN.
func (s *Service) nameFromARN(arn string) string {
	name, ok := strings.CutPrefix(arn, s.groupARN(""))
	if !ok || strings.Contains(name, ":") {
		return ""
	}

	return name
}

func newNotFoundError(message string) error {
	return newErrorf(codeResourceNotFound, "%s", message)
}

// findGroup returns the group of a name.
func (s *Service) findGroup(name *string) (*logGroup, error) {
	if g := s.st.Groups[sdkshape.String(name)]; g != nil {
		return g, nil
	}

	return nil, newNotFoundError("The specified log group does not exist.")
}

// findByARN returns the group of an ARN.
func (s *Service) findByARN(arn *string) (*logGroup, error) {
	if g := s.st.Groups[s.nameFromARN(sdkshape.String(arn))]; g != nil {
		return g, nil
	}

	return nil, newNotFoundError("The specified resource does not exist.")
}

// SetSystemTags sets tags of a group whose keys begin with aws:, such as aws:cloudformation:stack-name. Requests cannot
// set them. SetSystemTags does nothing if the group does not exist.
func (s *Service) SetSystemTags(name string, tags map[string]string) {
	_ = s.store.WithLock(func() error { // if the save fails, the next change saves the tags
		if g := s.st.Groups[name]; g != nil {
			maps.Copy(g.Tags, tags)
			s.store.MarkChanged()
		}

		return nil
	})
}

// keepRecent drops the events of a group that are older than its retention.
func (s *Service) keepRecent(g *logGroup) {
	if g.Retention == 0 {
		return
	}

	oldest := s.cfg.Now().Add(-time.Duration(g.Retention) * 24 * time.Hour)
	for _, stream := range g.Streams {
		stream.Events = slices.DeleteFunc(stream.Events, func(e logEvent) bool { return e.Time.Before(oldest) })
	}
}
