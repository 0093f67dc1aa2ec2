// SPDX-License-Identifier: Apache-2.0

package eventbridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	sdk "github.com/aws/aws-sdk-go/service/eventbridge"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// Event is what a service of the region emits.
type Event struct {
	Source     string         // such as aws.autoscaling
	DetailType string         // such as EC2 Instance Launch Successful
	Resources  []string       // ARNs
	Detail     map[string]any // as JSON
}

// delivery is an event on its way to one target.
type delivery struct {
	ID        string    // of the event, a UUID
	Rule      string    // ARN of the rule
	Target    string    // ARN of the function
	Body      string    // the event as JSON
	Failures  int64     // so far
	Retries   int64     // at most
	NotBefore time.Time // of the next attempt
	Expires   time.Time // when the event is dropped
}

// key identifies a delivery: a rule can have several targets of one function.
func (d delivery) key() string { return d.ID + " " + d.Rule + " " + d.Target }

// envelope is an event as targets get it.
type envelope struct {
	Version    string         `json:"version"`
	ID         string         `json:"id"`
	DetailType string         `json:"detail-type"`
	Source     string         `json:"source"`
	Account    string         `json:"account"`
	Time       string         `json:"time"`
	Region     string         `json:"region"`
	Resources  []string       `json:"resources"`
	Detail     map[string]any `json:"detail"`
}

// Emit sends an event to the targets of all rules that match it. It does not wait for the delivery. It may be called
// under the lock of another service.
func (s *Service) Emit(e Event) {
	now := s.cfg.Now().UTC()
	full := envelope{
		Version:    "0",
		ID:         sdkshape.RandomUUID(s.cfg.Rand),
		DetailType: e.DetailType,
		Source:     e.Source,
		Account:    s.cfg.Account,
		Time:       now.Format("2006-01-02T15:04:05Z"),
		Region:     s.cfg.Region,
		Resources:  e.Resources,
		Detail:     e.Detail,
	}
	body, err := json.Marshal(full)
	if err != nil {
		s.cfg.Log.Error("failed to encode an event", slog.String("type", e.DetailType), slog.Any("error", err))
		return
	}

	if err := s.queue(full.ID, body, now); err != nil {
		s.cfg.Log.Error("failed to save an event", slog.String("type", e.DetailType), slog.Any("error", err))
	}
}

// queue adds the deliveries of an event.
func (s *Service) queue(id string, body []byte, now time.Time) error {
	var event map[string]any
	if err := json.Unmarshal(body, &event); err != nil {
		return fmt.Errorf("decode an event: %w", err)
	}

	return s.store.WithLock(func() error {
		for _, name := range sdkshape.SortedKeys(s.st.Rules) {
			r := s.st.Rules[name]
			p, err := parsePattern(r.Pattern)
			if err != nil || !r.Enabled || !p.matches(event) {
				continue
			}

			s.addDeliveries(name, queuedEvent{id: id, body: string(body)}, now)
			s.store.MarkChanged()
		}

		return nil
	})
}

// newDelivery returns a delivery to a target. Without a retry policy EventBridge tries for a day, up to 185 times.
func newDelivery(t *sdk.Target, d delivery, now time.Time) delivery {
	d.Target = sdkshape.String(t.Arn)
	d.Retries = maxRetries
	age := int64(maxEventAge)
	if p := t.RetryPolicy; p != nil {
		if p.MaximumRetryAttempts != nil {
			d.Retries = *p.MaximumRetryAttempts
		}

		if p.MaximumEventAgeInSeconds != nil {
			age = *p.MaximumEventAgeInSeconds
		}
	}

	d.NotBefore = now
	d.Expires = now.Add(time.Duration(age) * time.Second)

	return d
}

// Run delivers events until ctx ends.
func (s *Service) Run(ctx context.Context) { s.wake.Loop(ctx, s.Deliver) }

// Deliver makes one attempt of each delivery that is due. Run calls it; tests may call it.
func (s *Service) Deliver(ctx context.Context) {
	s.runSchedules()

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
		err := s.cfg.Functions.InvokeForService(ctx, d.Target, "events.amazonaws.com", d.Rule, []byte(d.Body))
		if ctx.Err() != nil {
			return
		}

		if saveErr := s.recordAttempt(d, err); saveErr != nil {
			s.cfg.Log.ErrorContext(ctx, "failed to save the state of eventbridge", slog.Any("error", saveErr))
		}
	}
}

// recordAttempt removes a delivery that succeeded or that is given up, and delays another one: by a second, doubled for
// each further failure, up to a minute.
func (s *Service) recordAttempt(d delivery, failure error) error {
	now := s.cfg.Now()
	_, permanent := errors.AsType[*wire.Error](failure)
	if failure != nil {
		s.cfg.Log.Warn(
			"failed to deliver an event",
			slog.String("rule", d.Rule),
			slog.String("target", d.Target),
			slog.Bool("permanent", permanent),
			slog.Any("error", failure),
		)
	}

	return s.store.Update(func() error {
		i := slices.IndexFunc(s.st.Pending, func(other delivery) bool { return other.key() == d.key() })
		if i < 0 {
			return nil
		}

		d.Failures++
		if failure == nil || permanent || d.Failures > d.Retries || now.After(d.Expires) {
			s.st.Pending = slices.Delete(s.st.Pending, i, i+1)
			return nil
		}

		d.NotBefore = now.Add(min(time.Second<<min(d.Failures, 6), time.Minute))
		s.st.Pending[i] = d

		return nil
	})
}
