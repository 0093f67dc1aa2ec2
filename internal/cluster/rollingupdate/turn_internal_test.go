// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/machine/follow"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// writeLock stores the control plane's update lock, as an agent does.
func (f *fakeCluster) writeLock(lock follow.Lock) {
	body, err := json.Marshal(lock)
	if err != nil {
		f.t.Fatal(err)
	}
	f.add("leases", &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: metav1.NamespaceSystem, Name: follow.ControlPlaneLease, Annotations: map[string]string{follow.LockAnnotation: string(body)},
	}})
}

// readLock returns the control plane's update lock.
func (f *fakeCluster) readLock() follow.Lock {
	leases := coordinationv1.SchemeGroupVersion.WithResource("leases")
	object, err := f.client.Tracker().Get(leases, metav1.NamespaceSystem, follow.ControlPlaneLease)
	if apierrors.IsNotFound(err) {
		return follow.Lock{}
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return parseLock(object.(*coordinationv1.Lease))
}

// TestUpdateHoldsTheLock: from the first change of a control-plane machine until its slot serves, the update has the lock
// by which machines take turns to restart components. While workers are replaced, it has not. What the machines keep in the
// lock stays.
func TestUpdateHoldsTheLock(t *testing.T) {
	for _, slots := range []int{1, 3} {
		f := newFakeCluster(t, slots, 1)
		f.writeLock(follow.Lock{AddOns: 7, Refused: map[string]string{"control-plane": "x"}})
		var without, with []string
		releases := 0
		f.failAt = func(change string) error {
			_, id, _ := strings.Cut(change, " ")
			isSlot := strings.Contains(change, " of control-plane/") || slices.ContainsFunc(f.machines, func(m rollout.Machine) bool { return m.ID == id && m.Slot != "" })
			switch held := f.readLock().Holder == follow.RollingUpdate; {
			case isSlot && !held:
				without = append(without, change)
			case !isSlot && held:
				with = append(with, change)
			}
			return nil
		}
		f.client.PrependReactor("update", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if parseLock(a.(clienttesting.UpdateAction).GetObject().(*coordinationv1.Lease)).Holder == "" {
				releases++
			}
			return false, nil, nil
		})
		if _, err := run(t.Context(), f.updater(Request{Name: "demo"})); err != nil {
			t.Fatal(err)
		}
		if len(without) > 0 || len(with) > 0 {
			t.Errorf("%d slots: without the lock %v, with it %v", slots, without, with)
		}
		if got := f.readLock(); got.Holder != "" || got.AddOns != 7 || got.Refused["control-plane"] != "x" {
			t.Errorf("at the end: %+v", got)
		}
		if releases != 1 {
			t.Errorf("released %d times", releases)
		}
	}
}

// TestUpdateWaitsForTheLock: no control-plane machine is touched while another one restarts its components; a holder that
// does not renew the lock, and one that ends its turn, let the update go on.
func TestUpdateWaitsForTheLock(t *testing.T) {
	f := newFakeCluster(t, 3, 1)
	claim := follow.Claim{Machine: "i-2", Group: "control-plane", Serial: 2, Document: "b"}
	f.writeLock(follow.Lock{}.Take(claim, time.Now()))
	released := false
	f.failAt = func(change string) error {
		if !released {
			t.Errorf("%s while machine i-2 has the lock", change)
		}
		return nil
	}
	u := f.updater(Request{Name: "demo", OnProgress: func(p Progress) {
		if !released && slices.Contains(p.Waiting, "machine i-2 is applying its node document") {
			released = true
			f.writeLock(follow.Lock{}.Release(claim, ""))
		}
	}})
	if _, err := run(t.Context(), u); err != nil || !released || len(f.terminated) != 4 {
		t.Errorf("%v, released %v, terminated %v", err, released, f.terminated)
	}
}

// TestLockIsTakenOnce: a machine that takes the lock after the update has read it keeps it, and the update does nothing.
func TestLockIsTakenOnce(t *testing.T) {
	f := newFakeCluster(t, 3, 0)
	f.writeLock(follow.Lock{})
	conflicts := 0
	f.client.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		if conflicts++; conflicts > 1 {
			return false, nil, nil
		}
		if len(f.terminated)+len(f.detached) > 0 {
			t.Error("a machine was touched before")
		}
		return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "leases"}, follow.ControlPlaneLease, errors.New("changed"))
	})
	var waits []string
	u := f.updater(Request{Name: "demo", OnProgress: func(p Progress) { waits = append(waits, p.Waiting...) }})
	if _, err := run(t.Context(), u); err != nil || len(f.terminated) != 3 {
		t.Errorf("%v, terminated %v", err, f.terminated)
	}
	if !slices.ContainsFunc(waits, func(w string) bool { return strings.Contains(w, "cannot take the control plane's update lock") }) {
		t.Errorf("it waited for %q", waits)
	}
}

// TestInterruptedUpdateReleasesTheLock: the machines do not have to wait until the lock expires.
func TestInterruptedUpdateReleasesTheLock(t *testing.T) {
	f := newFakeCluster(t, 1, 0)
	ctx, cancel := context.WithCancel(t.Context())
	f.refuse = func(string) error {
		if f.readLock().Holder != follow.RollingUpdate {
			t.Error("the drain has begun without the lock")
		}
		cancel()
		return apierrors.NewTooManyRequests("budget", 1)
	}
	u := f.updater(Request{Name: "demo"})
	_, err := u.showAndRun(t.Context(), func(_ context.Context, do func(context.Context) error) error { return do(ctx) })
	if !errors.Is(err, context.Canceled) || f.readLock().Holder != "" {
		t.Errorf("%v, %+v", err, f.readLock())
	}
}

// TestFindChanging: which machine has the lock, also if the operator's clock is not that of the machines.
func TestFindChanging(t *testing.T) {
	now := time.Now()
	lock := follow.Lock{}.Take(follow.Claim{Machine: "i-1"}, now)
	idle := rollout.Machine{ID: "i-1", Slot: "a"}
	busy := rollout.Machine{ID: "i-1", Slot: "a", IsApplying: true}
	for name, c := range map[string]struct {
		lock    follow.Lock
		machine rollout.Machine
		after   time.Duration
		want    string
	}{
		"nobody's":                        {follow.Lock{}, busy, 0, ""},
		"the update's":                    {follow.Lock{}.Take(follow.Claim{Machine: follow.RollingUpdate}, now), idle, 0, ""},
		"a machine's":                     {lock, idle, time.Minute, "i-1"},
		"expired":                         {lock, idle, follow.HoldTime, ""},
		"expired by the operator's clock": {lock, busy, follow.HoldTime, "i-1"},
		"expired long ago":                {lock, busy, follow.HoldTime + maxClockDifference, ""},
	} {
		o := rollout.Observation{Now: now.Add(c.after), Machines: []rollout.Machine{c.machine}}
		if got := findChanging(c.lock, o); got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestWaitForTurns: no replacement begins while another control-plane machine waits for its turn to apply its document.
func TestWaitForTurns(t *testing.T) {
	f := newFakeCluster(t, 3, 0)
	f.groups[2].Document = "b"
	f.machines[2].DiffersInDocument = true
	f.reportRevision(t.Context(), f.machines[2].ID, report.Revision{State: report.RevisionWaiting, Desired: "b", Followed: "a"})
	o, err := f.updater(Request{Name: "demo"}).observer.observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d := rollout.Decide(o, rollout.Options{JoinTimeout: time.Minute})
	if len(d.Actions) != 0 || !slices.Contains(d.Waiting, "machine "+f.machines[2].ID+" is applying its node document") {
		t.Errorf("%+v", d)
	}
}
