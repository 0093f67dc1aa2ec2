// SPDX-License-Identifier: Apache-2.0

package visibility_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/visibility"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

func TestDelay(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(p *visibility.Pending, times ...time.Duration) (hidden int) {
		for _, d := range times {
			if p.Hides(start.Add(d)) {
				hidden++
			}
		}
		return hidden
	}
	if n := at(nil, 0); n != 0 || !(visibility.Delay{}).IsZero() || at(visibility.Delay{}.Begin(start), 0) != 0 {
		t.Errorf("without a delay, %d calls saw nothing", n)
	}
	p := visibility.Delay{Time: time.Second}.Begin(start)
	if n := at(p, 0, 0, 999*time.Millisecond, time.Second, time.Hour); n != 3 || !p.HasEnded(start.Add(time.Second)) || p.HasEnded(start) {
		t.Errorf("delayed by a time, %d calls saw nothing", n)
	}
	p = visibility.Delay{Calls: 2}.Begin(start)
	if n := at(p, time.Hour, time.Hour, time.Hour); n != 2 || !p.HasEnded(start) {
		t.Errorf("delayed by calls, %d calls saw nothing", n)
	}
}

// TestTracker: a resource is hidden by each of its ids, and the ids share one delay.
func TestTracker(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	clock := func() time.Time { return now }

	var tr visibility.Tracker
	tr.Track("early")
	if tr.Hides("early") || !tr.HidesNothing() {
		t.Error("without a delay, a resource is hidden")
	}

	tr.SetDelay(clock, visibility.Delay{Calls: 2})
	tr.Track("arn", "name")
	if !tr.Hides("arn") || !tr.Hides("name") || tr.Hides("arn") || tr.Hides("name") || tr.Hides("other") {
		t.Error("two calls are to miss the resource, by whatever id")
	}

	tr.SetDelay(clock, visibility.Delay{Time: time.Second})
	tr.Track("arn")
	if tr.HidesNothing() || !tr.Hides("arn") {
		t.Error("a new resource is visible")
	}

	now = now.Add(time.Second)
	if tr.Hides("arn") || !tr.HidesNothing() {
		t.Error("the resource is hidden after the delay")
	}
}

// item is an entry of an answer.
type item struct{ Name *string }

// TestWrap: requests for hidden resources are refused, and lists do not have them. What creates a resource returns it.
func TestWrap(t *testing.T) {
	type request struct {
		Name  *string
		Names []*string
	}
	type answer struct{ Items []*item }

	var tr visibility.Tracker
	tr.SetDelay(time.Now, visibility.Delay{Calls: 1})

	handle := func(context.Context, *request) (*answer, error) {
		return &answer{Items: []*item{{Name: new("old")}, {Name: new("new")}}}, nil
	}
	errMissing := errors.New("missing")
	operations := tr.Wrap(
		visibility.Rules{
			Named:    func(_ string, in any) []string { return wire.Strings(in, "Name") },
			NotFound: func(operation, id string) error { return fmt.Errorf("%s %s: %w", operation, id, errMissing) },
			Listed:   map[string]func(any) string{"Items": visibility.IDsByMember("", "Name")},
		},
		[]wire.Operation{wire.NewOperation("CreateItem", handle), wire.NewOperation("DescribeItems", handle)},
	)
	call := func(i int, in *request) (int, error) {
		tr.SetDelay(time.Now, visibility.Delay{Calls: 1})
		tr.Track("new")
		out, err := operations[i].Handle(t.Context(), in)
		if err != nil {
			return 0, err
		}

		return len(out.(*answer).Items), nil
	}

	if n, err := call(0, &request{Name: new("new")}); n != 2 || err != nil {
		t.Errorf("CreateItem: %d items, %v", n, err)
	}

	if n, err := call(1, &request{}); n != 1 || err != nil {
		t.Errorf("DescribeItems: %d items, %v", n, err)
	}

	if _, err := call(1, &request{Names: []*string{new("old"), new("new")}}); !errors.Is(err, errMissing) || err.Error() != "DescribeItems new: missing" {
		t.Errorf("DescribeItems of a hidden item: %v", err)
	}
}
