// SPDX-License-Identifier: Apache-2.0

package eventbridge_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go/service/eventbridge"

	"github.com/slipway-k8s/slipway/internal/region/eventbridge"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

const functionARN = "arn:aws:lambda:us-east-1:123456789012:function:f"

// bus is EventBridge with functions that record what they get.
type bus struct {
	t       *testing.T
	service *eventbridge.Service
	now     time.Time
	fail    error
	got     []map[string]any
	sources []string
}

func newBus(t *testing.T, backend state.Backend) *bus {
	t.Helper()
	b := &bus{t: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	s, err := eventbridge.New(eventbridge.Config{
		Region: "us-east-1", Account: "123456789012", Now: func() time.Time { return b.now }, Rand: rand.Reader, State: backend, Functions: b,
	})
	if err != nil {
		t.Fatal(err)
	}

	b.service = s

	return b
}

func (b *bus) InvokeForService(_ context.Context, function, service, source string, payload []byte) error {
	if b.fail != nil {
		return b.fail
	}

	var event map[string]any
	if err := json.Unmarshal(payload, &event); err != nil || function != functionARN || service != "events.amazonaws.com" {
		b.t.Errorf("%s invokes %s with %s: %v", service, function, payload, err)
	}

	b.got = append(b.got, event)
	b.sources = append(b.sources, source)

	return nil
}

func (b *bus) call(op string, fill func(in any)) {
	b.t.Helper()
	ctx := wire.WithCaller(b.t.Context(), wire.SystemCaller())
	if _, err := wire.CallOperation(ctx, b.service.Wire(), op, func(in any) error { fill(in); return nil }); err != nil {
		b.t.Fatal(err)
	}
}

// put creates a rule with a pattern and a target.
func (b *bus) put(name, pattern, ruleState string, retry *sdk.RetryPolicy) {
	b.t.Helper()
	b.call("PutRule", func(in any) {
		rule := in.(*sdk.PutRuleInput)
		rule.Name = &name
		rule.EventPattern = &pattern
		rule.State = &ruleState
	})
	b.call("PutTargets", func(in any) {
		in.(*sdk.PutTargetsInput).Rule = &name
		in.(*sdk.PutTargetsInput).Targets = []*sdk.Target{{Id: new("function"), Arn: new(functionARN), RetryPolicy: retry}}
	})
}

func (b *bus) emit(group string) {
	b.service.Emit(eventbridge.Event{
		Source: "aws.autoscaling", DetailType: "EC2 Instance Launch Successful", Resources: []string{"arn:group", "arn:instance"},
		Detail: map[string]any{"AutoScalingGroupName": group, "EC2InstanceId": "i-1"},
	})
}

// TestPatterns: an event reaches the targets of the enabled rules that match it.
func TestPatterns(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]int{
		`{"source":["aws.autoscaling"]}`:                                                  1,
		`{"source":["aws.ec2","aws.autoscaling"]}`:                                        1,
		`{"source":[{"prefix":"aws.auto"}]}`:                                              1,
		`{"resources":["arn:instance"]}`:                                                  1,
		`{"detail":{"AutoScalingGroupName":["a","b"],"EC2InstanceId":[{"prefix":"i-"}]}}`: 1,
		`{"detail-type":["EC2 Instance Launch Successful"],"account":["123456789012"]}`:   1,
		`{"source":["aws.ec2"]}`:                                                          0,
		`{"detail":{"AutoScalingGroupName":["b"]}}`:                                       0,
		`{"detail":{"Missing":["a"]}}`:                                                    0,
		`{"source":{"nested":["aws.autoscaling"]}}`:                                       0,
		`{"detail":["aws.autoscaling"]}`:                                                  0,
	} {
		b := newBus(t, nil)
		b.put("enabled", pattern, "ENABLED", nil)
		b.put("disabled", pattern, "DISABLED", nil)
		b.emit("a")
		b.service.Deliver(t.Context())
		if len(b.got) != want {
			t.Errorf("%s got %d events, want %d", pattern, len(b.got), want)
			continue
		}

		if want == 0 {
			continue
		}

		e := b.got[0]
		if e["detail-type"] != "EC2 Instance Launch Successful" || e["time"] != "2026-01-01T00:00:00Z" || e["region"] != "us-east-1" || e["version"] != "0" {
			t.Errorf("event %v", e)
		}

		if b.sources[0] != "arn:aws:events:us-east-1:123456789012:rule/enabled" {
			t.Errorf("the source is %s", b.sources[0])
		}
	}
}

// TestDeliveriesAreRepeated: a delivery that failed is repeated until it succeeds or its policy ends it, also after a
// restart; a refusal is final.
func TestDeliveriesAreRepeated(t *testing.T) {
	t.Parallel()
	dir := state.Dir(t.TempDir())
	b := newBus(t, dir)
	b.put("rule", `{"source":["aws.autoscaling"]}`, "ENABLED", nil)
	b.fail = errors.New("the function is not ready")
	b.emit("a")
	for range 3 {
		b.service.Deliver(t.Context())
		b.now = b.now.Add(time.Minute)
	}

	later := newBus(t, dir)
	later.now = b.now
	for range 2 { // the second attempt has nothing to deliver
		later.service.Deliver(t.Context())
	}

	if len(later.got) != 1 {
		t.Errorf("after the restart %d events arrived, want 1", len(later.got))
	}

	once := newBus(t, nil)
	once.put("rule", `{"source":["aws.autoscaling"]}`, "ENABLED", &sdk.RetryPolicy{MaximumRetryAttempts: new(int64(0))})
	for _, failure := range []error{errors.New("not ready"), wire.Errorf("AccessDeniedException", "no")} {
		once.fail = failure
		once.emit("a")
		once.service.Deliver(t.Context())
		once.now = once.now.Add(time.Hour)
	}

	once.fail = nil
	once.service.Deliver(t.Context())
	if len(once.got) != 0 {
		t.Errorf("%d events arrived after they were given up", len(once.got))
	}
}
