// SPDX-License-Identifier: Apache-2.0

// Package sns is the region's Amazon SNS: standard topics with a policy, to which Lambda functions
// of the account are subscribed. Only services of the region publish messages, such as Auto
// Scaling; clients cannot. A message is delivered at least once: it is saved until the function's
// queue has accepted it.
package sns

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/authz"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/visibility"
	"github.com/slipway-k8s/slipway/internal/region/wakeup"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// Functions is the part of Lambda that SNS uses.
type Functions interface {
	// InvokeForService queues an event for the function of an ARN on behalf of a service, such as
	// sns.amazonaws.com, for the resource source. An error that is a [wire.Error] is permanent.
	InvokeForService(ctx context.Context, function, service, source string, payload []byte) error
}

// Identities is the part of IAM that SNS uses. It is not called under the lock of this service.
type Identities interface {
	// EvaluateIdentity decides a check by the caller's own policies.
	EvaluateIdentity(ctx context.Context, c wire.AccessCheck) authz.Decision
	// BuildRequest returns a check with the caller and all condition keys, for the evaluation of the
	// policy of a topic.
	BuildRequest(ctx context.Context, c wire.AccessCheck) authz.Request
	// RoleARN returns the ARN of a role by its name.
	RoleARN(name string) (string, bool)
}

// Config has the settings and dependencies of a [Service]. All fields but State, Identities and Log
// are required.
type Config struct {
	Region     string           // such as us-east-1
	Account    string           // 12 digits
	Now        func() time.Time // the region's clock
	Rand       io.Reader        // source of ids
	State      state.Backend    // keeps topics and deliveries over a restart; nil keeps nothing
	Functions  Functions        // the endpoints of subscriptions
	Identities Identities       // policies of callers; nil allows what the request's authorizer allows
	Log        *slog.Logger     // nil discards
}

// Service is SNS of one region. Its methods may be called concurrently.
type Service struct {
	cfg    Config
	st     *serviceState // guarded by the store's lock
	store  *state.Store
	unseen visibility.Tracker // topics and subscriptions by ARN
	wake   wakeup.Signal      // makes Run deliver
}

// serviceState is the saved state.
type serviceState struct {
	Topics  map[string]*topic // by name
	Pending []delivery        // messages on their way, oldest first
}

// topic is a standard topic.
type topic struct {
	DisplayName   string
	Policy        string // as given; empty: the default one
	Tags          map[string]string
	Subscriptions map[string]*subscription // by id, the last part of the ARN
	Unsubscribed  int                      // how many subscriptions were deleted
}

// subscription delivers the messages of a topic to a function.
type subscription struct {
	Function  string // ARN
	Principal string // ARN of who subscribed it
}

// New returns a service with its saved state. Call [Service.Run] to deliver messages.
func New(cfg Config) (*Service, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}

	s := &Service{cfg: cfg, st: &serviceState{}, wake: wakeup.New()}
	s.store = &state.Store{
		Name:     "sns",
		State:    s.st,
		Backend:  cfg.State,
		OnChange: s.wake.Send,
	}
	if err := s.store.Load(); err != nil {
		return nil, err
	}

	if s.st.Topics == nil {
		s.st.Topics = map[string]*topic{}
	}

	return s, nil
}

// SaveTo saves the service's state to another backend, for a snapshot.
func (s *Service) SaveTo(to state.Backend) error { return s.store.SaveTo(to) }

// Wire returns the service's operations for the wire layer.
func (s *Service) Wire() wire.Service {
	return wire.Service{
		Name:      "sns",
		Protocol:  wire.QueryProtocol,
		Version:   "2010-03-31",
		Namespace: "http://sns.amazonaws.com/doc/2010-03-31/",
		Authorize: s.authorizeRequest,
		Operations: s.unseen.Wrap(s.unseenResources(), []wire.Operation{
			state.WriteOperationContext(s.store, "CreateTopic", s.createTopic),
			state.ReadOperation(s.store, "GetTopicAttributes", s.getTopicAttributes),
			state.WriteOperation(s.store, "SetTopicAttributes", s.setTopicAttributes),
			state.WriteOperation(s.store, "DeleteTopic", s.deleteTopic),
			state.WriteOperationContext(s.store, "Subscribe", s.subscribe),
			state.WriteOperation(s.store, "Unsubscribe", s.unsubscribe),
			state.ReadOperation(s.store, "GetSubscriptionAttributes", s.getSubscriptionAttributes),
			state.ReadOperation(s.store, "ListSubscriptionsByTopic", s.listSubscriptionsByTopic),
			state.WriteOperation(s.store, "TagResource", s.tagResource),
			state.WriteOperation(s.store, "UntagResource", s.untagResource),
			state.ReadOperation(s.store, "ListTagsForResource", s.listTagsForResource),
		}),
	}
}

// SetVisibility delays the visibility of new topics and subscriptions: calls that come too early do
// not see a new one that they name or would list. By default changes are visible at once.
func (s *Service) SetVisibility(d visibility.Delay) { s.unseen.SetDelay(s.cfg.Now, d) }

// unseenResources are how operations treat topics and subscriptions that are not visible yet.
func (s *Service) unseenResources() visibility.Rules {
	return visibility.Rules{
		Named: func(operation string, in any) []string {
			switch operation {
			case "CreateTopic", "DeleteTopic", "Unsubscribe": // what does not exist is no error
				return nil
			}

			return []string{s.requestedTopic(in), wire.StringMember(in, "SubscriptionArn")}
		},
		Listed: map[string]func(any) string{
			"Subscriptions": visibility.IDsByMember("", "SubscriptionArn"),
		},
		NotFound: func(operation, _ string) error {
			switch operation {
			case "TagResource", "UntagResource", "ListTagsForResource":
				return newError(codeResourceNotFound, "Resource does not exist")
			case "GetSubscriptionAttributes":
				return newError(codeNotFound, "Subscription does not exist")
			}

			return newError(codeNotFound, "Topic does not exist")
		},
	}
}

func (s *Service) topicARN(name string) string {
	return "arn:aws:sns:" + s.cfg.Region + ":" + s.cfg.Account + ":" + name
}

// requestedTopic returns the ARN of the topic that a request names, also by its name or by a
// subscription; empty for none.
func (s *Service) requestedTopic(in any) string {
	if name := wire.StringMember(in, "Name"); name != "" {
		return s.topicARN(name)
	}

	if arn := wire.StringMember(in, "SubscriptionArn"); arn != "" {
		return topicOfSubscription(arn)
	}

	return wire.StringMember(in, "TopicArn") + wire.StringMember(in, "ResourceArn")
}

// topicOfSubscription returns the ARN of the topic of a subscription.
func topicOfSubscription(arn string) string {
	topic, _, found := cutLast(arn, ":")
	if !found || strings.Count(arn, ":") < arnParts {
		return arn
	}

	return topic
}

// arnParts is how many parts the ARN of a topic has. That of a subscription has one more.
const arnParts = 6

// cutLast cuts a text at the last separator.
func cutLast(text, separator string) (before, after string, found bool) {
	i := strings.LastIndex(text, separator)
	if i < 0 {
		return text, "", false
	}

	return text[:i], text[i+len(separator):], true
}

// findTopic returns the name of a topic by its ARN, and the topic.
func (s *Service) findTopic(given *string) (string, *topic, error) {
	arn := sdkshape.String(given)
	if err := checkARN("TopicArn", arn); err != nil {
		return "", nil, err
	}

	name, isOwn := strings.CutPrefix(arn, s.topicARN(""))
	if !isOwn || strings.Contains(name, ":") {
		return "", nil, newError(codeInvalidParameter, "Invalid parameter: TopicArn")
	}

	if t := s.st.Topics[name]; t != nil {
		return name, t, nil
	}

	return "", nil, newError(codeNotFound, "Topic does not exist")
}

// checkARN refuses texts that are too short for an ARN.
func checkARN(member, arn string) error {
	if n := strings.Count(arn, ":") + 1; n < arnParts {
		return newErrorf(
			codeInvalidParameter,
			"Invalid parameter: %s Reason: An ARN must have at least %d elements, not %d",
			member,
			arnParts,
			n,
		)
	}

	return nil
}

// SetSystemTags sets tags of a topic whose keys begin with aws:, such as
// aws:cloudformation:stack-name. Requests cannot set them. SetSystemTags does nothing if the topic
// does not exist.
func (s *Service) SetSystemTags(arn string, tags map[string]string) {
	_ = s.store.WithLock(func() error { // if the save fails, the next change saves the tags
		if t := s.st.Topics[strings.TrimPrefix(arn, s.topicARN(""))]; t != nil {
			maps.Copy(t.Tags, tags)
			s.store.MarkChanged()
		}

		return nil
	})
}
