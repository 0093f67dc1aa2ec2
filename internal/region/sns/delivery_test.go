// SPDX-License-Identifier: Apache-2.0

package sns_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go/service/sns"

	"github.com/slipway-k8s/slipway/internal/region/sns"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

const (
	functionARN = "arn:aws:lambda:us-east-1:123456789012:function:f"
	topicARN    = "arn:aws:sns:us-east-1:123456789012:launches"
	scalingRole = "arn:aws:iam::123456789012:role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"
)

// bus is SNS with functions that record what they get.
type bus struct {
	t       *testing.T
	service *sns.Service
	now     time.Time
	fail    error
	got     []map[string]any
}

func newBus(t *testing.T, backend state.Backend) *bus {
	t.Helper()
	b := &bus{t: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	s, err := sns.New(sns.Config{
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
	if err := json.Unmarshal(payload, &event); err != nil || function != functionARN || service != "sns.amazonaws.com" || source != topicARN {
		b.t.Errorf("%s invokes %s for %s with %s: %v", service, function, source, payload, err)
	}

	b.got = append(b.got, event)

	return nil
}

func (b *bus) call(op string, fill func(in any)) {
	b.t.Helper()
	ctx := wire.WithCaller(b.t.Context(), wire.SystemCaller())
	if _, err := wire.CallOperation(ctx, b.service.Wire(), op, func(in any) error { fill(in); return nil }); err != nil {
		b.t.Fatal(err)
	}
}

// subscribe creates the topic with a policy, and subscribes the function.
func (b *bus) subscribe(policy string) {
	b.t.Helper()
	b.call("CreateTopic", func(in any) {
		topic := in.(*sdk.CreateTopicInput)
		topic.Name = new("launches")
		if policy != "" {
			topic.Attributes = map[string]*string{"Policy": &policy}
		}
	})
	b.call("Subscribe", func(in any) {
		subscription := in.(*sdk.SubscribeInput)
		subscription.TopicArn = new(topicARN)
		subscription.Protocol = new("lambda")
		subscription.Endpoint = new(functionARN)
	})
}

func (b *bus) publish() error {
	return b.service.Publish(sns.Message{Topic: topicARN, Role: scalingRole, Subject: "launch", Body: `{"Event":"x"}`})
}

// TestMessages: a function gets the message in the form of Lambda's events of SNS, also after a restart of the region.
func TestMessages(t *testing.T) {
	t.Parallel()
	backend := state.Dir(t.TempDir())
	b := newBus(t, backend)
	if err := b.publish(); err == nil || !strings.Contains(err.Error(), "NotFound: Topic does not exist") {
		t.Errorf("a message to a topic that does not exist: %v", err)
	}

	b.subscribe("")
	if err := b.publish(); err != nil {
		t.Fatal(err)
	}

	after := newBus(t, backend)
	after.service.Deliver(t.Context())
	after.service.Deliver(t.Context())
	if len(after.got) != 1 {
		t.Fatalf("the function got %v", after.got)
	}

	records, _ := after.got[0]["Records"].([]any)
	record, _ := records[0].(map[string]any)
	message, _ := record["Sns"].(map[string]any)
	id, _ := record["EventSubscriptionArn"].(string)
	if record["EventSource"] != "aws:sns" || record["EventVersion"] != "1.0" || !strings.HasPrefix(id, topicARN+":") ||
		message["Type"] != "Notification" || message["TopicArn"] != topicARN || message["Subject"] != "launch" || message["Message"] != `{"Event":"x"}` ||
		message["Timestamp"] != "2026-01-01T00:00:00.000Z" || message["MessageId"] == "" {
		t.Errorf("the function got %v", after.got[0])
	}
}

// TestRetries: SNS tries again what Lambda does not accept, and drops what it refuses.
func TestRetries(t *testing.T) {
	t.Parallel()
	b := newBus(t, nil)
	b.subscribe("")
	b.fail = errors.New("busy")
	if err := b.publish(); err != nil {
		t.Fatal(err)
	}

	for range 5 { // four at once, one after a second
		b.service.Deliver(t.Context())
	}
	b.fail = nil
	b.service.Deliver(t.Context())
	if len(b.got) != 0 {
		t.Errorf("a delivery came too early: %v", b.got)
	}

	b.now = b.now.Add(2 * time.Second)
	b.service.Deliver(t.Context())
	if len(b.got) != 1 {
		t.Errorf("the delivery was not tried again: %v", b.got)
	}

	b.fail = wire.Errorf("AccessDeniedException", "no")
	if err := b.publish(); err != nil {
		t.Fatal(err)
	}
	b.service.Deliver(t.Context())
	b.fail = nil
	b.now = b.now.Add(time.Hour)
	b.service.Deliver(t.Context())
	if len(b.got) != 1 {
		t.Errorf("a refused delivery was tried again: %v", b.got)
	}
}

// TestPublishersMayBeDenied: the role of a service may publish unless the policy of the topic denies it.
func TestPublishersMayBeDenied(t *testing.T) {
	t.Parallel()
	for policy, denied := range map[string]bool{
		``: false,
		`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::123456789012:root"},"Action":"sns:Publish","Resource":"` + topicARN + `"}]}`: false,
		`{"Version":"2012-10-17","Statement":[{"Effect":"Deny","Principal":"*","Action":"sns:Publish","Resource":"` + topicARN + `"}]}`:                                       true,
	} {
		b := newBus(t, nil)
		b.subscribe(policy)
		if err := b.publish(); (err != nil) != denied || denied && !strings.Contains(err.Error(), "AuthorizationError") {
			t.Errorf("with policy %s: %v", policy, err)
		}
	}
}
