// SPDX-License-Identifier: Apache-2.0

package sns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/authz"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// Message is what a service of the region publishes.
type Message struct {
	Topic   string // ARN
	Role    string // ARN of the service-linked role that the service publishes with
	Subject string
	Body    string
}

// delivery is a message on its way to one subscription.
type delivery struct {
	ID           string // of the message, a UUID
	Subscription string // ARN
	Function     string // ARN
	Body         string // the event as the function gets it
	Failures     int    // so far
	NotBefore    time.Time
}

// record is one record of the event that a function gets.
type record struct {
	EventSource          string
	EventVersion         string
	EventSubscriptionArn string
	Sns                  notification
}

// notification is a message as a function gets it. Nobody can verify its signature: only AWS has
// the key of the certificate.
type notification struct {
	Type              string
	MessageID         string `json:"MessageId"`
	TopicArn          string
	Subject           *string
	Message           string
	Timestamp         string
	SignatureVersion  string
	Signature         string
	SigningCertURL    string `json:"SigningCertUrl"`
	UnsubscribeURL    string `json:"UnsubscribeUrl"`
	MessageAttributes map[string]string
}

// Publish sends a message to the subscriptions of a topic. It does not wait for the delivery. It
// fails with a [wire.Error] if the topic does not exist, or its policy denies the role to publish.
// It may be called under the lock of another service.
func (s *Service) Publish(m Message) error {
	return s.store.WithLock(func() error {
		name, t, err := s.findTopic(&m.Topic)
		if err != nil {
			return err
		}

		if s.unseen.Hides(m.Topic) {
			return newError(codeNotFound, "Topic does not exist")
		}

		if err := s.authorizePublisher(m, s.policyOf(name, t)); err != nil {
			return err
		}

		id := sdkshape.RandomUUID(s.cfg.Rand)
		for _, key := range sdkshape.SortedKeys(t.Subscriptions) {
			d := delivery{
				ID:           id,
				Subscription: m.Topic + ":" + key,
				Function:     t.Subscriptions[key].Function,
				NotBefore:    s.cfg.Now().UTC(),
			}
			if d.Body, err = s.encode(d, m); err != nil {
				return err
			}

			s.st.Pending = append(s.st.Pending, d)
			s.store.MarkChanged()
		}

		return nil
	})
}

// authorizePublisher decides whether a service may publish. AWS's policy of the role allows it, so
// only a Deny counts.
func (s *Service) authorizePublisher(m Message, policy string) error {
	p, err := authz.ParsePolicy(authz.ResourcePolicy, policy)
	if err != nil {
		return fmt.Errorf("read the policy of %s: %w", m.Topic, err)
	}

	_, name, _ := cutLast(m.Role, "/")
	r := authz.Request{
		Action:   "sns:Publish",
		Resource: m.Topic,
		Context: map[string][]string{
			"aws:PrincipalArn":     {m.Role},
			"aws:PrincipalAccount": {s.cfg.Account},
			"aws:SourceOwner":      {s.cfg.Account},
			"aws:SecureTransport":  {"true"},
		},
		Principal: authz.Principal{
			Account: s.cfg.Account,
			ARN:     "arn:aws:sts::" + s.cfg.Account + ":assumed-role/" + name + "/service",
			RoleARN: m.Role,
		},
	}

	if d := authz.EvaluateResource(p, r, authz.Decision{Allowed: true}); d.Denied {
		return newErrorf(
			codeAuthorizationError,
			"User: %s is not authorized to perform: SNS:Publish on resource: %s because %s",
			r.Principal.ARN,
			m.Topic,
			d.Reason,
		)
	}

	return nil
}

// encode returns the event for the function of a delivery.
func (s *Service) encode(d delivery, m Message) (string, error) {
	host := "https://sns." + s.cfg.Region + ".amazonaws.com/"
	event := map[string][]record{"Records": {{
		EventSource:          "aws:sns",
		EventVersion:         "1.0",
		EventSubscriptionArn: d.Subscription,
		Sns: notification{
			Type:              "Notification",
			MessageID:         d.ID,
			TopicArn:          m.Topic,
			Message:           m.Body,
			Timestamp:         d.NotBefore.Format("2006-01-02T15:04:05.000Z"),
			SignatureVersion:  "1",
			Signature:         "EXAMPLE",
			SigningCertURL:    host + "SimpleNotificationService-00000000000000000000000000000000.pem",
			UnsubscribeURL:    host + "?Action=Unsubscribe&SubscriptionArn=" + d.Subscription,
			MessageAttributes: map[string]string{},
		},
	}}}
	if m.Subject != "" {
		event["Records"][0].Sns.Subject = &m.Subject
	}

	body, err := json.Marshal(event)
	if err != nil {
		return "", fmt.Errorf("encode a message to %s: %w", m.Topic, err)
	}

	return string(body), nil
}

// Run delivers messages until ctx ends.
func (s *Service) Run(ctx context.Context) { s.wake.Loop(ctx, s.Deliver) }

// Deliver makes one attempt of each delivery that is due. Run calls it; tests may call it.
func (s *Service) Deliver(ctx context.Context) {
	var due []delivery
	now := s.cfg.Now()
	s.store.View(func() {
		for _, d := range s.st.Pending {
			if !d.NotBefore.After(now) {
				due = append(due, d)
			}
		}
	})

	for _, d := range due {
		topic := topicOfSubscription(d.Subscription)
		err := s.cfg.Functions.InvokeForService(ctx, d.Function, "sns.amazonaws.com", topic, []byte(d.Body))
		if ctx.Err() != nil {
			return
		}

		if saveErr := s.recordAttempt(d, err); saveErr != nil {
			s.cfg.Log.ErrorContext(ctx, "failed to save the state of sns", slog.Any("error", saveErr))
		}
	}
}

// recordAttempt removes a delivery that succeeded or that is given up, and delays another one.
func (s *Service) recordAttempt(d delivery, failure error) error {
	_, permanent := errors.AsType[*wire.Error](failure)
	if failure != nil {
		s.cfg.Log.Warn(
			"failed to deliver a message",
			slog.String("subscription", d.Subscription),
			slog.String("function", d.Function),
			slog.Bool("permanent", permanent),
			slog.Any("error", failure),
		)
	}

	return s.store.Update(func() error {
		i := slices.IndexFunc(s.st.Pending, func(other delivery) bool {
			return other.ID == d.ID && other.Subscription == d.Subscription
		})
		if i < 0 {
			return nil
		}

		d.Failures++
		if failure == nil || permanent || d.Failures > maxRetries {
			s.st.Pending = slices.Delete(s.st.Pending, i, i+1)
			return nil
		}

		d.NotBefore = s.cfg.Now().UTC().Add(retryDelay(d.Failures))
		s.st.Pending[i] = d

		return nil
	})
}

// How SNS repeats a delivery to an endpoint that AWS manages, and that does not accept it: 3 times
// at once, twice after a second, 10 times after one to 20 seconds, 100,000 times after 20 seconds
// (SNS developer guide, "Amazon SNS message delivery retries"). An endpoint that refuses a message,
// or does not exist, gets it once.
const (
	retriesAtOnce   = 3
	retriesSecond   = 2
	retriesBackoff  = 10
	retriesLater    = 100_000
	maxRetries      = retriesAtOnce + retriesSecond + retriesBackoff + retriesLater
	longestInterval = 20 * time.Second
)

// retryDelay returns the time until the next attempt after a number of failures.
func retryDelay(failures int) time.Duration {
	switch {
	case failures <= retriesAtOnce:
		return 0
	case failures <= retriesAtOnce+retriesSecond:
		return time.Second
	case failures <= retriesAtOnce+retriesSecond+retriesBackoff:
		return min(time.Second<<min(failures-retriesAtOnce-retriesSecond, 5), longestInterval)
	}

	return longestInterval
}
