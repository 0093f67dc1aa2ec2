// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// errKilled is what every change answers after the process was killed.
var errKilled = errors.New("the process was killed")

// killer kills a run right after its nth change of AWS, Kubernetes or the state store.
type killer struct {
	mu      sync.Mutex
	nth     int
	changes int
	last    string // the last change that took effect
	dead    bool
	kill    func()
}

// change counts a change. It returns an error once the process is dead.
func (k *killer) change(what string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.dead {
		return errKilled
	}

	k.changes++
	k.last = what
	if k.changes == k.nth {
		k.dead = true
		k.kill()
	}

	return nil
}

// start begins another run, which is killed right after its nth change; 0: never.
func (k *killer) start(nth int, kill func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.nth = nth
	k.changes = 0
	k.dead = false
	k.kill = kill
}

// watch counts the changes of a fake cluster.
func (k *killer) watch(f *fakeCluster) {
	f.failAt = k.change
	count := func(a clienttesting.Action) (bool, runtime.Object, error) {
		err := k.change(a.GetVerb() + " " + a.GetResource().Resource + " " + a.GetSubresource())
		return err != nil, nil, err
	}
	f.client.PrependReactor("patch", "*", count)
	f.client.PrependReactor("create", "*", count)
	f.client.PrependReactor("update", "leases", count)
	f.state = killedState{Store: f.state, killer: k}
}

// killedState is a state store whose writes count as changes.
type killedState struct {
	store.Store

	killer *killer
}

func (s killedState) Put(ctx context.Context, key string, body []byte) (string, error) {
	if err := s.killer.change("put " + key); err != nil {
		return "", err
	}

	return s.Store.Put(context.WithoutCancel(ctx), key, body)
}

func (s killedState) Create(ctx context.Context, key string, body []byte) (string, error) {
	if err := s.killer.change("create " + key); err != nil {
		return "", err
	}

	return s.Store.Create(context.WithoutCancel(ctx), key, body)
}

func (s killedState) Update(ctx context.Context, key string, body []byte, etag string) (string, error) {
	if err := s.killer.change("update " + key); err != nil {
		return "", err
	}

	return s.Store.Update(context.WithoutCancel(ctx), key, body, etag)
}

// runKilled runs an update that is killed after its nth change. It reports whether it was.
func (f *fakeCluster) runKilled(k *killer, nth int, req Request) (bool, error) {
	ctx, kill := context.WithCancel(f.t.Context())
	defer kill()
	k.start(nth, kill)
	u := f.updater(req)
	u.save = func(ctx context.Context, replaced int, remark string) error { // as the operation does with its record
		_, err := f.state.Put(ctx, "demo/journal/1.json", fmt.Appendf(nil, "%d %s", replaced, remark))
		return err
	}
	_, err := u.showAndRun(f.t.Context(), func(_ context.Context, do func(context.Context) error) error { return do(ctx) })
	k.mu.Lock()
	defer k.mu.Unlock()

	return k.dead, err
}

// TestKilledAtEveryChange kills an update after each change that it makes in AWS, in Kubernetes and in the state store. The next run, which
// knows nothing of the killed one, must continue: every old machine is terminated once, no other one is, and no node is
// left cordoned or marked.
func TestKilledAtEveryChange(t *testing.T) {
	for _, req := range []Request{{Name: "demo"}, {Name: "demo", MaxSurge: "1"}} {
		k := &killer{}
		for nth := 1; ; nth++ {
			f := newFakeCluster(t, 1, 3)
			k.watch(f)
			killed, _ := f.runKilled(k, nth, req)
			at := k.last
			if _, err := f.runKilled(k, 0, req); err != nil && killed {
				t.Fatalf("killed after change %d (%s): the next run: %v", nth, at, err)
			}

			f.checkReplaced(nth, at)
			if !killed {
				t.Logf("surge %q: killed after each of %d changes", req.MaxSurge, nth-1)
				break
			}
		}
	}
}

// checkReplaced checks that every old machine was terminated once and that nothing is left over.
func (f *fakeCluster) checkReplaced(nth int, at string) {
	f.t.Helper()
	count := map[string]int{}
	for _, id := range f.terminated {
		count[id]++
	}

	for _, id := range []string{"i-1", "i-2", "i-3", "i-4"} {
		if count[id] != 1 {
			f.t.Errorf("killed after change %d (%s): machine %s was terminated %d times", nth, at, id, count[id])
		}
	}

	if len(f.terminated) != 4 || len(f.machines) != 4 {
		f.t.Errorf("killed after change %d (%s): terminated %v, left %v", nth, at, f.terminated, f.machines)
	}

	if marked := f.markedNodes(); len(marked) > 0 {
		f.t.Errorf("killed after change %d (%s): nodes %v are still marked", nth, at, marked)
	}
}

// TestKilledRequestedRollback kills a rollback that was asked for after each change. The same command continues it.
func TestKilledRequestedRollback(t *testing.T) {
	k := &killer{}
	for nth := 1; ; nth++ {
		f := newFakeCluster(t, 1, 2)
		if _, err := run(t.Context(), f.updater(Request{Name: "demo"})); err != nil {
			t.Fatal(err)
		}

		f.groups[1].Version = "3"
		f.brokenTemplate = "3"
		if _, err := run(t.Context(), f.updater(Request{Name: "demo", JoinTimeout: 20 * time.Millisecond})); err == nil {
			t.Fatal("the update did not fail")
		}

		k.watch(f)
		killed, _ := f.rollBackKilled(k, nth)
		at := k.last
		if _, err := f.rollBackKilled(k, 0); err != nil && !strings.Contains(err.Error(), "nothing to roll back") {
			t.Fatalf("killed after change %d (%s): the next run: %v", nth, at, err)
		}

		for _, m := range f.machines {
			if m.Version != "2" {
				t.Errorf("killed after change %d (%s): machine %s has version %s", nth, at, m.ID, m.Version)
			}
		}

		if !killed {
			t.Logf("killed after each of %d changes", nth-1)
			break
		}
	}
}

// rollBackKilled runs a rollback that is killed after its nth change; 0: never. It reports whether it was.
func (f *fakeCluster) rollBackKilled(k *killer, nth int) (bool, error) {
	ctx, kill := context.WithCancel(f.t.Context())
	defer kill()
	k.start(nth, kill)
	u := f.updater(Request{Name: "demo", Rollback: true})
	err := u.loadRollback(ctx, updateSource{state: f.state})
	if err == nil {
		_, err = u.showAndRun(f.t.Context(), func(_ context.Context, do func(context.Context) error) error { return do(ctx) })
	}

	k.mu.Lock()
	defer k.mu.Unlock()

	return k.dead, err
}

// TestKilledRollback kills an update that fails, and its automatic rollback, after each change. The next run must end with
// every machine on the former launch template.
func TestKilledRollback(t *testing.T) {
	k := &killer{}
	for nth := 1; ; nth++ {
		f := newFakeCluster(t, 1, 2)
		f.groups[0].Version = "1"
		f.brokenTemplate = "2"
		k.watch(f)
		req := Request{Name: "demo", AutomaticRollback: true, JoinTimeout: 100 * time.Millisecond}
		killed, _ := f.runKilled(k, nth, req)
		at := k.last
		_, err := f.runKilled(k, 0, req)
		if err != nil && !strings.Contains(err.Error(), "rolled back") {
			t.Fatalf("killed after change %d (%s): the next run: %v", nth, at, err)
		}

		for _, m := range f.machines {
			if m.Version != "1" {
				t.Errorf("killed after change %d (%s): machine %s has version %s", nth, at, m.ID, m.Version)
			}
		}

		if len(f.terminated) != 2 {
			t.Errorf("killed after change %d (%s): terminated %v instead of one old and one broken machine", nth, at, f.terminated)
		}

		if !killed {
			t.Logf("killed after each of %d changes", nth-1)
			break
		}
	}
}
