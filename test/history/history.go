// SPDX-License-Identifier: Apache-2.0

// Package history records what clients of a key-value store asked and saw, and checks that the history is linearizable: as if each
// request had taken effect at one moment between its call and its answer. Tests use it for etcd and for the Kubernetes API.
package history

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"
)

// KeysOfRound is the number of keys that are used during one round, so that the check of a long history stays fast.
const KeysOfRound = 3

// Store is what is tested. A method must send one request, and no second one after an error: a write that was repeated may take
// effect twice.
type Store interface {
	// Read returns the value of a key; empty if it has none.
	Read(ctx context.Context, key string) (string, error)
	// Write sets the value of a key.
	Write(ctx context.Context, key, value string) error
}

// request is a read, or a write if value is set.
type request struct{ key, value string }

// Recorder sends the requests of clients and records them. It is safe for concurrent use.
type Recorder struct {
	start   time.Time
	timeout time.Duration // of a request
	round   atomic.Int64
	written atomic.Int64

	mu           sync.Mutex
	operations   []porcupine.Operation
	acknowledged []time.Duration // since start
	unanswered   int
}

// NewRecorder returns a recorder whose requests wait for an answer no longer than timeout.
func NewRecorder(timeout time.Duration) *Recorder {
	return &Recorder{start: time.Now(), timeout: timeout} //nolint:forbidigo // it measures real clients
}

// Key is the name of the n-th key of a round.
func Key(round int64, n int) string { return fmt.Sprintf("round%d-key%d", round, n) }

// NextRound lets the clients use other keys from now on. It returns the time, for LongestGap.
func (r *Recorder) NextRound() time.Duration {
	r.round.Add(1)

	return time.Since(r.start)
}

// Since returns how long ago a time of NextRound was.
func (r *Recorder) Since(then time.Duration) time.Duration { return time.Since(r.start) - then }

// Run sends requests, about half of them writes, with pause between them, until ctx ends. Requests are not cancelled then.
func (r *Recorder) Run(ctx context.Context, s Store, client int, pause time.Duration) {
	for ctx.Err() == nil {
		q := request{key: Key(r.round.Load(), rand.IntN(KeysOfRound))} //nolint:gosec // load, no secret
		if rand.IntN(2) == 0 {                                         //nolint:gosec // load, no secret
			q.value = strconv.FormatInt(r.written.Add(1), 10)
		}
		r.send(context.WithoutCancel(ctx), s, client, q)
		time.Sleep(pause) //nolint:forbidigo // it is the rate of a real client
	}
}

// ReadAll reads every key that was used. choose returns the store to ask for the keys of a round.
func (r *Recorder) ReadAll(ctx context.Context, client int, choose func(round int64) Store) {
	for round := range r.round.Load() + 1 {
		for n := range KeysOfRound {
			r.send(ctx, choose(round), client, request{key: Key(round, n)})
		}
	}
}

// send sends one request and records it. A write without an answer may take effect at any time later.
func (r *Recorder) send(ctx context.Context, s Store, client int, q request) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	o := porcupine.Operation{
		ClientId: client,
		Input:    q,
		Call:     time.Since(r.start).Nanoseconds(),
	}
	var err error
	if q.value != "" {
		err = s.Write(ctx, q.key, q.value)
	} else {
		o.Output, err = s.Read(ctx, q.key)
	}
	o.Return = time.Since(r.start).Nanoseconds()
	r.record(o, q.value != "", err)
}

func (r *Recorder) record(o porcupine.Operation, isWrite bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil && !isWrite:
		return // a read without an answer says nothing
	case err != nil:
		r.unanswered++
		o.Return = math.MaxInt64
	case isWrite:
		r.acknowledged = append(r.acknowledged, time.Duration(o.Return))
	}
	r.operations = append(r.operations, o)
}

// LongestGap returns the longest time without an acknowledged write since then.
func (r *Recorder) LongestGap(since time.Duration) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	times := slices.DeleteFunc(slices.Clone(r.acknowledged), func(at time.Duration) bool { return at < since })
	slices.Sort(times)
	gap := time.Duration(0)
	last := since
	for _, at := range append(times, time.Since(r.start)) {
		gap = max(gap, at-last)
		last = at
	}

	return gap
}

// Counts are the numbers of a history.
type Counts struct {
	Operations   int // that were recorded, without reads that failed
	Acknowledged int // writes with an answer
	Unanswered   int // writes without one
}

// Count returns the numbers so far.
func (r *Recorder) Count() Counts {
	r.mu.Lock()
	defer r.mu.Unlock()

	return Counts{
		Operations:   len(r.operations),
		Acknowledged: len(r.acknowledged),
		Unanswered:   r.unanswered,
	}
}

// Check returns an error unless the history is linearizable, or if that is not known after limit. It has the requests of one key that
// contradict each other. No client may send requests meanwhile.
func (r *Recorder) Check(limit time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	end := time.Now().Add(limit) //nolint:forbidigo // the check takes real time
	for _, part := range splitByKey(boundUnanswered(r.operations)) {
		left := max(time.Until(end), time.Second) // no limit is 0
		if result := porcupine.CheckOperationsTimeout(newModel(), part, left); result != porcupine.Ok {
			return fmt.Errorf("check a history of %d operations: linearizable is %s; the requests of one key:\n%s",
				len(r.operations), result, describeOperations(part))
		}
	}

	return nil
}

// describeOperations returns a line for each request, by the time of its call.
func describeOperations(operations []porcupine.Operation) string {
	slices.SortFunc(operations, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	var text strings.Builder
	for _, o := range operations {
		q := o.Input.(request) //nolint:errcheck // the recorder stores requests only
		what := "writes " + q.value
		if q.value == "" {
			what = fmt.Sprintf("reads %q", o.Output)
		}
		fmt.Fprintf(&text, "%s to %s: client %d %s of %s\n", time.Duration(o.Call), time.Duration(o.Return), o.ClientId, what, q.key)
	}

	return text.String()
}

// boundUnanswered returns an equivalent history in which no write goes on forever, since each such write doubles the number of
// orders to try. A write without an answer whose value nobody read is left out: it can have its effect after everything else. One
// whose value was read had its effect before the first of these reads ended. Values are unique.
func boundUnanswered(operations []porcupine.Operation) []porcupine.Operation {
	firstRead := map[request]int64{}
	for _, o := range operations {
		q := o.Input.(request) //nolint:errcheck // the recorder stores requests only
		if q.value != "" {
			continue
		}
		q.value, _ = o.Output.(string)
		if end, seen := firstRead[q]; !seen || o.Return < end {
			firstRead[q] = o.Return
		}
	}

	var out []porcupine.Operation
	for _, o := range operations {
		if o.Return == math.MaxInt64 {
			end, seen := firstRead[o.Input.(request)] //nolint:errcheck // as above
			if !seen {
				continue
			}
			o.Return = max(o.Call, end)
		}
		out = append(out, o)
	}

	return out
}

// newModel returns what a key does: a read returns the last written value.
func newModel() porcupine.Model {
	return porcupine.Model{
		Partition: splitByKey,
		Init:      func() any { return "" },
		Step: func(state, input, output any) (bool, any) {
			//nolint:errcheck // the recorder stores requests only
			if q := input.(request); q.value != "" {
				return true, q.value
			}

			return output == state, state
		},
	}
}

func splitByKey(operations []porcupine.Operation) [][]porcupine.Operation {
	byKey := map[string][]porcupine.Operation{}
	for _, o := range operations {
		key := o.Input.(request).key //nolint:errcheck // the recorder stores requests only
		byKey[key] = append(byKey[key], o)
	}
	var out [][]porcupine.Operation
	for _, part := range byKey {
		out = append(out, part)
	}

	return out
}
