// SPDX-License-Identifier: Apache-2.0

package eventbridge

import (
	"encoding/json"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go/service/eventbridge"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// parseSchedule returns the interval of a schedule expression, such as rate(5 minutes) (EventBridge user guide, "Rate
// expressions"). The region has no cron expressions.
func parseSchedule(expression string) (time.Duration, error) {
	if strings.HasPrefix(expression, "cron(") {
		return 0, wire.NotImplemented("ScheduleExpression " + expression)
	}

	invalid := newErrorf(codeValidation, "Parameter ScheduleExpression is not valid.")
	m := regexp.MustCompile(`^rate\(([1-9][0-9]*) (minute|hour|day)(s?)\)$`).FindStringSubmatch(expression)
	if m == nil {
		return 0, invalid
	}

	const maxDigits = 6
	n, err := strconv.Atoi(m[1])
	if err != nil || len(m[1]) > maxDigits || (n == 1) != (m[3] == "") {
		return 0, invalid
	}

	units := map[string]time.Duration{"minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour}

	return time.Duration(n) * units[m[2]], nil
}

// setSchedule sets the schedule of a rule. It runs for the first time after one interval.
func (r *rule) setSchedule(expression string, now time.Time) {
	if r.Schedule == expression {
		return
	}

	r.Schedule = expression
	if interval, err := parseSchedule(expression); expression != "" && err == nil {
		r.NextRun = now.Add(interval)
	}
}

// queueScheduled queues an event for the targets of each rule whose time has come. A time that was missed, as while the
// region did not run, is made up for once.
func (s *Service) queueScheduled() error {
	now := s.cfg.Now().UTC()

	return s.store.WithLock(func() error {
		for _, name := range sdkshape.SortedKeys(s.st.Rules) {
			r := s.st.Rules[name]
			interval, err := parseSchedule(r.Schedule)
			if err != nil || !r.Enabled || r.NextRun.After(now) {
				continue
			}

			event, err := s.scheduledEvent(name, now)
			if err != nil {
				return err
			}

			r.NextRun = now.Add(interval)
			s.addDeliveries(name, event, now)
			s.store.MarkChanged()
		}

		return nil
	})
}

// queuedEvent is an event that is about to be delivered.
type queuedEvent struct {
	id   string
	body string
}

// scheduledEvent returns the event of the schedule of a rule.
func (s *Service) scheduledEvent(rule string, now time.Time) (queuedEvent, error) {
	full := envelope{
		Version:    "0",
		ID:         sdkshape.RandomUUID(s.cfg.Rand),
		DetailType: "Scheduled Event",
		Source:     "aws.events",
		Account:    s.cfg.Account,
		Time:       now.Format("2006-01-02T15:04:05Z"),
		Region:     s.cfg.Region,
		Resources:  []string{s.ruleARN(rule)},
		Detail:     map[string]any{},
	}
	body, err := json.Marshal(full)

	return queuedEvent{id: full.ID, body: string(body)}, err
}

// addDeliveries adds a delivery of an event for each target of a rule. The caller holds the lock.
func (s *Service) addDeliveries(name string, event queuedEvent, now time.Time) {
	for _, t := range s.st.Rules[name].sortedTargets() {
		s.st.Pending = append(s.st.Pending, newDelivery(t, delivery{
			ID:   event.id,
			Rule: s.ruleARN(name),
			Body: event.body,
		}, now))
	}
}

// runSchedules queues the events that are due.
func (s *Service) runSchedules() {
	if err := s.queueScheduled(); err != nil {
		s.cfg.Log.Error("failed to save the events of schedules", slog.Any("error", err))
	}
}

// checkSchedule refuses the schedules that EventBridge refuses.
func checkSchedule(in *sdk.PutRuleInput) error {
	expression := sdkshape.String(in.ScheduleExpression)
	if expression == "" {
		return nil
	}

	_, err := parseSchedule(expression)

	return err
}
