// SPDX-License-Identifier: Apache-2.0

package eventbridge_test

import (
	"errors"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go/service/eventbridge"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// schedule creates a rule with a schedule and a target, and returns the error of EventBridge.
func (b *bus) schedule(expression, pattern string) error {
	b.t.Helper()
	ctx := wire.WithCaller(b.t.Context(), wire.SystemCaller())
	_, err := wire.CallOperation(ctx, b.service.Wire(), "PutRule", func(in any) error {
		rule := in.(*sdk.PutRuleInput)
		rule.Name = new("often")
		rule.ScheduleExpression = &expression
		if pattern != "" {
			rule.EventPattern = &pattern
		}
		return nil
	})
	if err == nil {
		b.call("PutTargets", func(in any) {
			in.(*sdk.PutTargetsInput).Rule = new("often")
			in.(*sdk.PutTargetsInput).Targets = []*sdk.Target{{Id: new("function"), Arn: new(functionARN)}}
		})
	}

	return err
}

// TestSchedules: a rule with a rate triggers its target after each interval, besides the events that match its pattern.
func TestSchedules(t *testing.T) {
	t.Parallel()
	b := newBus(t, nil)
	if err := b.schedule("rate(5 minutes)", `{"source":["aws.autoscaling"]}`); err != nil {
		t.Fatal(err)
	}

	kinds := func() []string {
		b.service.Deliver(t.Context())
		var out []string
		for _, e := range b.got {
			out = append(out, e["detail-type"].(string))
		}
		return out
	}

	b.now = b.now.Add(4 * time.Minute)
	if got := kinds(); len(got) > 0 {
		t.Errorf("before the first interval: %v", got)
	}

	b.now = b.now.Add(time.Minute)
	b.emit("slot-a")
	want := []string{"EC2 Instance Launch Successful", "Scheduled Event"}
	if diff := cmp.Diff(want, kinds()); diff != "" {
		t.Errorf("after the first interval: %s", diff)
	}

	b.now = b.now.Add(12 * time.Minute) // a missed run is made up for once
	want = append(want, "Scheduled Event")
	if diff := cmp.Diff(want, kinds()); diff != "" {
		t.Errorf("after a pause: %s", diff)
	}

	if e := b.got[1]; e["source"] != "aws.events" || b.sources[1] != "arn:aws:events:us-east-1:123456789012:rule/often" {
		t.Errorf("the event of the schedule is %v from %s", e, b.sources[1])
	}
}

// TestScheduleErrors: EventBridge refuses a unit that does not fit its number, and the region refuses cron by name.
func TestScheduleErrors(t *testing.T) {
	t.Parallel()
	b := newBus(t, nil)
	for expression, want := range map[string]string{
		"rate(1 minute)": "", "rate(2 hours)": "", "rate(1 day)": "",
		"rate(1 minutes)": "ValidationException", "rate(5 minute)": "ValidationException", "rate(0 minutes)": "ValidationException",
		"rate(5 seconds)": "ValidationException", "every day": "ValidationException", "rate(9999999 days)": "ValidationException",
		"cron(0 12 * * ? *)": "NotImplemented",
	} {
		err := b.schedule(expression, "")
		got := ""
		if refused, ok := errors.AsType[*wire.Error](err); ok {
			got = refused.Code
		}

		if got != want {
			t.Errorf("%s: %v, want %q", expression, err, want)
		}
	}
}
