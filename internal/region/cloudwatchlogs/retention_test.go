// SPDX-License-Identifier: Apache-2.0

package cloudwatchlogs_test

import (
	"context"
	"slices"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go/service/cloudwatchlogs"

	"github.com/slipway-k8s/slipway/internal/region/cloudwatchlogs"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// call carries out an operation as the region itself.
func call[O any](t *testing.T, s *cloudwatchlogs.Service, op string, fill func(in any)) *O {
	t.Helper()
	ctx := wire.WithCaller(context.Background(), wire.SystemCaller())
	out, err := wire.CallOperation(ctx, s.Wire(), op, func(in any) error { fill(in); return nil })
	if err != nil {
		t.Fatal(err)
	}

	answer, ok := out.(*O)
	if !ok {
		t.Fatalf("the answer is a %T", out)
	}

	return answer
}

// TestRetention: events are gone after the group's retention, and those of a group without one stay.
func TestRetention(t *testing.T) {
	t.Parallel()

	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s, err := cloudwatchlogs.New(cloudwatchlogs.Config{Region: "us-east-1", Account: "123456789012", Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{"kept", "expired"} {
		call[sdk.CreateLogGroupOutput](t, s, "CreateLogGroup", func(in any) { in.(*sdk.CreateLogGroupInput).LogGroupName = new(name) })
		if !s.Append(name, "stream", "one", "two") {
			t.Errorf("group %s does not exist", name)
		}
	}

	if s.Append("missing", "stream", "one") {
		t.Error("a group that does not exist took a line")
	}

	call[sdk.PutRetentionPolicyOutput](t, s, "PutRetentionPolicy", func(in any) {
		in.(*sdk.PutRetentionPolicyInput).LogGroupName = new("expired")
		in.(*sdk.PutRetentionPolicyInput).RetentionInDays = new(int64(14))
	})

	now = now.Add(13 * 24 * time.Hour)
	if n := countEvents(t, s, "expired"); n != 2 {
		t.Errorf("after 13 days the group has %d events, want 2", n)
	}

	now = now.Add(2 * 24 * time.Hour)
	if n := countEvents(t, s, "expired"); n != 0 {
		t.Errorf("after 15 days the group has %d events, want none", n)
	}

	if n := countEvents(t, s, "kept"); n != 2 {
		t.Errorf("the group without retention has %d events, want 2", n)
	}
}

func countEvents(t *testing.T, s *cloudwatchlogs.Service, group string) int {
	t.Helper()
	out := call[sdk.FilterLogEventsOutput](t, s, "FilterLogEvents", func(in any) { in.(*sdk.FilterLogEventsInput).LogGroupName = &group })

	return len(out.Events)
}

// TestEventsHavePages: a client that asks for small pages gets all events, oldest first.
func TestEventsHavePages(t *testing.T) {
	t.Parallel()

	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s, err := cloudwatchlogs.New(cloudwatchlogs.Config{Region: "us-east-1", Account: "123456789012", Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}

	call[sdk.CreateLogGroupOutput](t, s, "CreateLogGroup", func(in any) { in.(*sdk.CreateLogGroupInput).LogGroupName = new("group") })

	for _, line := range []string{"one", "two", "three"} {
		s.Append("group", "stream", line)
		now = now.Add(time.Second)
	}

	var got []string
	for token := (*string)(nil); len(got) == 0 || token != nil; {
		out := call[sdk.FilterLogEventsOutput](t, s, "FilterLogEvents", func(in any) {
			in.(*sdk.FilterLogEventsInput).LogGroupName = new("group")
			in.(*sdk.FilterLogEventsInput).Limit = new(int64(1))
			in.(*sdk.FilterLogEventsInput).NextToken = token
		})
		for _, e := range out.Events {
			got = append(got, *e.Message)
		}

		token = out.NextToken
	}

	if want := []string{"one", "two", "three"}; !slices.Equal(got, want) {
		t.Errorf("the pages have %v, want %v", got, want)
	}
}
