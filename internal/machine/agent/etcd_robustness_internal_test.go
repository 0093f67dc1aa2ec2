// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/test/history"
)

// etcdStore is a member of etcd.
type etcdStore struct{ *clientv3.Client }

func (s etcdStore) Read(ctx context.Context, key string) (string, error) {
	got, err := s.Get(ctx, key)
	if err != nil || len(got.Kvs) == 0 {
		return "", err
	}

	return string(got.Kvs[0].Value), nil
}

func (s etcdStore) Write(ctx context.Context, key, value string) error {
	_, err := s.Put(ctx, key, value)

	return err
}

// awaitWrites waits until writes are acknowledged again.
func awaitWrites(t *testing.T, w *history.Recorder) {
	t.Helper()
	before := w.Count().Acknowledged
	eventually(t, "writes are acknowledged", func() error {
		if w.Count().Acknowledged < before+10 {
			return errors.New("not yet")
		}
		return nil
	})
}

// robustness injects faults into real members while clients work.
type robustness struct {
	*realCluster
	random *rand.Rand
	// pause is how long a paused member lasts.
	pause time.Duration
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
		time.Sleep(r.pause)
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

// The limits of unavailability. One member of three: two elections of at most 2 s, the first of which splits the vote, a client's request of
// 3 s that is lost, and a second for the one that is answered. Two of three: the time until both run again besides.
const (
	oneMemberLimit  = 8 * time.Second
	twoMembersLimit = oneMemberLimit + 4*time.Second
	// shortFormSlowness: the short form runs next to other tests on a computer whose speed is not known, and boots nothing by which that
	// could be measured.
	shortFormSlowness = 3.0
	// shortPause is how long a paused member lasts in the short form. In the long one it lasts longer than the limit: writes that waited
	// until it goes on would fail the test.
	shortPause = 10 * time.Second
)

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
	r := &robustness{realCluster: newRealCluster(t), random: rand.New(rand.NewPCG(seed, 0))}
	w := history.NewRecorder(3 * time.Second)
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for i := range 4 {
		c := etcdStore{r.client(i % 3)}
		clients.Go(func() { w.Run(ctx, c, i, 10*time.Millisecond) })
	}
	awaitWrites(t, w)
	slowness := shortFormSlowness
	if os.Getenv("SLIPWAY_FAULTS") != "" {
		slowness = 1
	}
	var seen []history.Fault
	for n := range faults {
		fault := kinds[n%len(kinds)]
		since := w.NextRound()
		r.pause = shortPause
		if slowness == 1 {
			r.pause = history.Limit(oneMemberLimit, slowness) + 2*time.Second
		}
		r.inject(fault)
		awaitWrites(t, w)
		gap := w.LongestGap(since)
		seen = append(seen, history.Fault{Kind: fault, Gap: gap, Healing: w.Since(since)})
		limit := oneMemberLimit
		if fault == "kill two" {
			limit = twoMembersLimit
		}
		if limit = history.Limit(limit, slowness); gap > limit {
			t.Errorf("%s: no write was acknowledged for %s, more than %s (seed %d)", fault, gap, limit, seed)
		}
	}
	stop()
	clients.Wait()
	// What was acknowledged is there.
	w.ReadAll(t.Context(), 9, func(round int64) history.Store { return etcdStore{r.client(int(round) % 3)} })
	if err := w.Check(2 * time.Minute); err != nil {
		t.Fatalf("%v (seed %d)", err, seed)
	}
	report := history.Report(w.Count(), seen, nil)
	t.Logf("COUNT etcd under faults: %s", report)
	if file := os.Getenv(history.ReportVariable); file != "" {
		if err := history.WriteReport(file, "robustness", report); err != nil {
			t.Error(err)
		}
	}
}
