// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

// request is what a client asks for: a read, or a write if value is set.
type request struct{ key, value string }

// newHistoryModel returns what a key does: a read returns the last written value.
func newHistoryModel() porcupine.Model {
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			byKey := map[string][]porcupine.Operation{}
			for _, o := range history {
				key := o.Input.(request).key
				byKey[key] = append(byKey[key], o)
			}
			var out [][]porcupine.Operation
			for _, part := range byKey {
				out = append(out, part)
			}
			return out
		},
		Init: func() any { return "" },
		Step: func(state, input, output any) (bool, any) {
			if r := input.(request); r.value != "" {
				return true, r.value
			}
			return output == state, state
		},
	}
}

// traffic are clients that read and write keys, and what they saw.
type traffic struct {
	start   time.Time
	epoch   atomic.Int64 // keys are used during one fault
	written atomic.Int64
	mu      sync.Mutex
	history []porcupine.Operation
	acks    []time.Duration
	unknown int
}

const keysOfFault = 3

func (w *traffic) key(epoch int64, n int) string { return fmt.Sprintf("fault%d-key%d", epoch, n) }

// ask sends one request and records it. A write without an answer may take effect at any time later.
func (w *traffic) ask(ctx context.Context, c *clientv3.Client, client int, r request) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	o := porcupine.Operation{ClientId: client, Input: r, Call: time.Since(w.start).Nanoseconds()}
	var err error
	if r.value != "" {
		_, err = c.Put(ctx, r.key, r.value)
	} else {
		var got *clientv3.GetResponse
		if got, err = c.Get(ctx, r.key); err == nil {
			value := ""
			if len(got.Kvs) > 0 {
				value = string(got.Kvs[0].Value)
			}
			o.Output = value
		}
	}
	o.Return = time.Since(w.start).Nanoseconds()
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil && r.value != "":
		w.acks = append(w.acks, time.Duration(o.Return))
	case err != nil && r.value == "":
		return // a read without an answer says nothing
	case err != nil:
		w.unknown++
		o.Return = math.MaxInt64
	}
	w.history = append(w.history, o)
}

// run sends requests until ctx ends.
func (w *traffic) run(ctx context.Context, c *clientv3.Client, client int) {
	for ctx.Err() == nil {
		r := request{key: w.key(w.epoch.Load(), rand.IntN(keysOfFault))}
		if rand.IntN(2) == 0 {
			r.value = strconv.FormatInt(w.written.Add(1), 10)
		}
		w.ask(context.WithoutCancel(ctx), c, client, r)
		time.Sleep(10 * time.Millisecond)
	}
}

// longestGap returns the longest time without an acknowledged write since then.
func (w *traffic) longestGap(since time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	acks := slices.DeleteFunc(slices.Clone(w.acks), func(at time.Duration) bool { return at < since })
	slices.Sort(acks)
	gap := time.Duration(0)
	last := since
	for _, at := range append(acks, time.Since(w.start)) {
		gap = max(gap, at-last)
		last = at
	}
	return gap
}

// awaitWrites waits until writes are acknowledged again.
func (w *traffic) awaitWrites(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	before := len(w.acks)
	w.mu.Unlock()
	eventually(t, "writes are acknowledged", func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.acks) < before+10 {
			return errors.New("not yet")
		}
		return nil
	})
}

// robustness injects faults into real members while clients work.
type robustness struct {
	*realCluster
	random *rand.Rand
}

// pick returns a member: the leader in half of all cases.
func (r *robustness) pick() etcd.Peer {
	if r.random.IntN(2) == 0 {
		for _, peer := range r.manager.Peers {
			if s, err := r.manager.Status(r.Context(), peer.ClientURL); err == nil && s.Leader {
				return peer
			}
		}
	}
	return r.manager.Peers[r.random.IntN(len(r.manager.Peers))]
}

// inject injects a fault and ends it. It returns when all members are healthy.
func (r *robustness) inject(fault string) {
	r.Helper()
	peer := r.pick()
	switch fault {
	case "kill":
		r.stops[peer.Slot]()
		r.start(peer, "existing")
	case "kill two":
		next := r.manager.Peers[(slices.Index(r.manager.Peers, peer)+1)%3]
		r.stops[peer.Slot]()
		r.stops[next.Slot]()
		r.start(peer, "existing")
		r.start(next, "existing")
	case "pause":
		if err := r.processes[peer.Slot].Signal(syscall.SIGSTOP); err != nil {
			r.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if err := r.processes[peer.Slot].Signal(syscall.SIGCONT); err != nil {
			r.Fatal(err)
		}
	case "lost data":
		r.stops[peer.Slot]()
		if err := os.RemoveAll(r.dir(peer.Slot)); err != nil {
			r.Fatal(err)
		}
		r.rejoin(peer)
	}
	for _, each := range r.manager.Peers {
		r.await(each)
	}
}

// TestRealRobustness injects faults into three real etcd members while clients read and write. Members whose data was removed join
// again as the agent lets them. The history must be linearizable: no acknowledged write is lost, and no read is stale.
func TestRealRobustness(t *testing.T) {
	kinds := []string{"kill", "pause", "lost data", "kill two"}
	faults := len(kinds)
	if text := os.Getenv("SLIPWAY_FAULTS"); text != "" {
		var err error
		if faults, err = strconv.Atoi(text); err != nil {
			t.Fatalf("SLIPWAY_FAULTS is %q, not a number", text)
		}
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := &robustness{newRealCluster(t), rand.New(rand.NewPCG(seed, 0))}
	w := &traffic{start: time.Now()}
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for i := range 4 {
		c := r.client(i % 3)
		clients.Go(func() { w.run(ctx, c, i) })
	}
	w.awaitWrites(t)
	gaps := map[string]time.Duration{}
	for n := range faults {
		fault := kinds[n%len(kinds)]
		w.epoch.Add(1)
		since := time.Since(w.start)
		r.inject(fault)
		w.awaitWrites(t)
		gaps[fault] = max(gaps[fault], w.longestGap(since))
	}
	stop()
	clients.Wait()
	for epoch := range w.epoch.Load() + 1 { // what was acknowledged is there
		for n := range keysOfFault {
			w.ask(t.Context(), r.client(int(epoch)%3), 9, request{key: w.key(epoch, n)})
		}
	}
	if result := porcupine.CheckOperationsTimeout(newHistoryModel(), w.history, 2*time.Minute); result != porcupine.Ok {
		t.Fatalf("the history is not linearizable: %s (seed %d)", result, seed)
	}
	var text []string
	for _, fault := range kinds {
		text = append(text, fmt.Sprintf("%s %.1f s", fault, gaps[fault].Seconds()))
	}
	t.Logf("COUNT %d operations on etcd, %d of them without an answer, and %d faults: linearizable; longest time without a write: %s",
		len(w.history), w.unknown, faults, strings.Join(text, ", "))
}

// TestHistories: the model accepts what may happen, and rejects lost writes and stale reads.
func TestHistories(t *testing.T) {
	write := func(value string, call, end int64) porcupine.Operation {
		return porcupine.Operation{Input: request{"k", value}, Call: call, Return: end}
	}
	read := func(value string, call, end int64) porcupine.Operation {
		return porcupine.Operation{Input: request{key: "k"}, Output: value, Call: call, Return: end}
	}
	for name, c := range map[string]struct {
		history []porcupine.Operation
		want    bool
	}{
		"a write is read":                     {[]porcupine.Operation{write("1", 0, 1), read("1", 2, 3)}, true},
		"a lost write":                        {[]porcupine.Operation{write("1", 0, 1), read("", 2, 3)}, false},
		"a stale read":                        {[]porcupine.Operation{write("1", 0, 1), write("2", 2, 3), read("1", 4, 5)}, false},
		"either of two writes":                {[]porcupine.Operation{write("1", 0, 9), write("2", 0, 9), read("1", 10, 11)}, true},
		"a write without an answer was late":  {[]porcupine.Operation{write("1", 0, math.MaxInt64), read("", 2, 3), read("1", 4, 5)}, true},
		"a write without an answer vanishes":  {[]porcupine.Operation{write("1", 0, math.MaxInt64), read("1", 2, 3), read("", 4, 5)}, false},
		"a write without an answer never was": {[]porcupine.Operation{write("1", 0, math.MaxInt64), read("", 2, 3)}, true},
		"another key":                         {[]porcupine.Operation{write("1", 0, 1), {Input: request{key: "other"}, Output: "", Call: 2, Return: 3}}, true},
	} {
		if got := porcupine.CheckOperations(newHistoryModel(), c.history); got != c.want {
			t.Errorf("%s: linearizable is %t, want %t", name, got, c.want)
		}
	}
}
