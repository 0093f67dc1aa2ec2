// SPDX-License-Identifier: Apache-2.0

package operation_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/slipway-k8s/slipway/internal/cluster/operation"
)

func FuzzParseLock(f *testing.F) {
	f.Add([]byte(`{"version":1,"token":3}`))
	f.Add([]byte(`{"version":1,"token":3,"holder":{"id":"X","owner":"me@here","pid":7,"operation":"apply","command":"slipway apply","since":"2026-01-01T00:00:00Z","expires":"2026-01-01T00:01:00Z","leaseSeconds":60}}`))
	f.Add([]byte(`{"version":2,"token":3}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		l, err := operation.ParseLock(body)
		if err != nil {
			return
		}
		m := newMemory()
		_, _ = m.Put(t.Context(), operation.LockKey("demo"), body)
		d := operation.Coordinator{Store: m, Cluster: "demo", Now: newClock().now}
		op, err := d.BeginOperation(t.Context(), who("me"))
		var held operation.LockHeldError
		if err != nil && !errors.As(err, &held) {
			t.Fatalf("a lock that parses is refused: %v", err)
		}
		if err == nil && op.Token() <= l.Token {
			t.Fatalf("token %d after %d", op.Token(), l.Token)
		}
	})
}

func FuzzParseRecord(f *testing.F) {
	f.Add([]byte(`{"version":1,"cluster":"demo","token":3,"operation":"apply","state":"running","began":"2026-01-01T00:00:00Z","calls":{"EC2:CreateVpc":1}}`))
	f.Add([]byte(`{"version":1,"token":3,"state":"none"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := operation.ParseRecord(body)
		if err != nil {
			return
		}
		m := newMemory()
		_, _ = m.Put(t.Context(), operation.JournalKey("demo", r.Token), body)
		d := operation.Coordinator{Store: m, Cluster: "demo", Now: newClock().now}
		got, err := d.ListRecords(t.Context(), 0)
		if err != nil || len(got) != 1 {
			t.Fatalf("history: %v %v", got, err)
		}
		if r.State == operation.Running {
			r.State = operation.Interrupted
		}
		if diff := cmp.Diff(r, got[0], cmpopts.EquateEmpty()); diff != "" {
			t.Fatal(diff)
		}
	})
}
