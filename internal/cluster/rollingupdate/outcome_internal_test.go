// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/drain"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
)

// A new configuration with which no machine joins stops after one machine, which is replaced by one of the former
// version; the others are never touched.
func TestRunRollsBack(t *testing.T) {
	f := newFakeCluster(t, 1, 3)
	f.brokenTemplate = "2"
	f.groups[0].Version = "1" // only the workers have a new launch template
	u := f.updater(Request{Name: "demo", AutomaticRollback: true, JoinTimeout: 50 * time.Millisecond})
	_, err := run(t.Context(), u)
	if err == nil || !strings.Contains(err.Error(), "stopped after 1 machines") || !strings.Contains(err.Error(), "rolled back") ||
		!strings.Contains(err.Error(), "it stopped at stage start: kubelet: exit status 1") {
		t.Errorf("got %v", err)
	}

	if len(f.terminated) != 2 || f.terminated[1] != "i-5" || f.launches["workers/"] != "1" {
		t.Errorf("terminated %v, versions %v", f.terminated, f.launches)
	}

	for _, m := range f.machines {
		if m.Version != "1" {
			t.Errorf("machine %s has version %s", m.ID, m.Version)
		}
	}

	result, err := run(t.Context(), f.updater(Request{Name: "demo"}))
	if err != nil || !result.UpToDate {
		t.Errorf("after the rollback: %+v, %v", result, err)
	}

	if !slices.Contains(f.messages, "workers stays at launch template version 1, since a rollback has returned from version 2: "+
		"apply corrected manifests, or add --retry") {
		t.Errorf("messages %q", f.messages)
	}

	f.brokenTemplate = ""
	for range 2 { // the second time there is nothing to do
		if result, err = run(t.Context(), f.updater(Request{Name: "demo", Retry: true})); err != nil {
			t.Fatal(err)
		}
	}

	if !result.UpToDate || f.launches["workers/"] != "2" || countVersion(f.machines, "2") != 3 {
		t.Errorf("when it is tried again: %+v, %+v", result, f.machines)
	}

	if result, err = run(t.Context(), f.updater(Request{Name: "demo"})); err != nil || !result.UpToDate {
		t.Errorf("a version that serves is avoided: %+v, %v", result, err)
	}
}

// TestStackIsNotRolledBack: the groups of a stack keep their versions, by request and after a failure.
func TestStackIsNotRolledBack(t *testing.T) {
	f := newFakeCluster(t, 1, 2)
	if _, err := run(t.Context(), f.updater(Request{Name: "demo"})); err != nil {
		t.Fatal(err)
	}

	if err := clusterstate.EnsureProvisioner(t.Context(), f.state, "demo", clusterstate.CloudFormation); err != nil {
		t.Fatal(err)
	}

	f.groups[1].Version = "3"
	f.launches["workers/"] = "3" // the stack has set it
	f.brokenTemplate = "3"
	_, err := run(t.Context(), f.updater(Request{Name: "demo", AutomaticRollback: true, JoinTimeout: 50 * time.Millisecond}))
	if err == nil || !strings.Contains(err.Error(), "not rolled back: the groups of this cluster belong to a CloudFormation stack") {
		t.Errorf("after a failure: %v", err)
	}

	u := f.updater(Request{Name: "demo", Rollback: true})
	if err := u.loadRollback(t.Context(), updateSource{state: f.state}); err == nil || !strings.Contains(err.Error(), "CloudFormation") {
		t.Errorf("by request: %v", err)
	}

	if f.launches["workers/"] != "3" {
		t.Errorf("the group has version %s, want 3", f.launches["workers/"])
	}
}

// A rollback by request returns to the version of the last update that succeeded.
func TestRunRollbackByRequest(t *testing.T) {
	f := newFakeCluster(t, 1, 2)
	if _, err := run(t.Context(), f.updater(Request{Name: "demo"})); err != nil {
		t.Fatal(err)
	}

	from := updateSource{state: f.state}
	u := f.updater(Request{Name: "demo", Rollback: true})
	if err := u.loadRollback(t.Context(), from); err == nil || !strings.Contains(err.Error(), "nothing to roll back") {
		t.Errorf("without a newer version: %v", err)
	}

	f.groups[1].Version = "3"
	f.brokenTemplate = "3"
	_, err := run(t.Context(), f.updater(Request{Name: "demo", JoinTimeout: 50 * time.Millisecond}))
	if err == nil || f.launches["workers/"] != "3" {
		t.Fatalf("the update did not fail: %v", err)
	}

	u = f.updater(Request{Name: "demo", Rollback: true})
	if err := u.loadRollback(t.Context(), from); err != nil {
		t.Fatal(err)
	}

	result, err := run(t.Context(), u)
	if err != nil || result.Replaced != 1 || f.launches["workers/"] != "2" {
		t.Errorf("%+v, %+v, %v", result, f.launches, err)
	}
}

// A gate that does not pass keeps further machines in service, and stops the update in the end.
func TestRunWaitsForGates(t *testing.T) {
	f := newFakeCluster(t, 0, 2)
	f.set.Cluster.Spec.RollingUpdate.Gates = []v1alpha1.Gate{{Name: "smoke", Command: []string{"./smoke.sh", "--all"}}}
	passes := true
	commands := 0
	req := Request{Name: "demo", JoinTimeout: 50 * time.Millisecond, RunCommand: func(_ context.Context, argv []string) (string, error) {
		commands++
		if !slices.Equal(argv, []string{"./smoke.sh", "--all"}) {
			t.Errorf("ran %v", argv)
		}

		if passes {
			passes = false
			return "", nil
		}

		return "checking\nno answer from web\n", errors.New("exit status 3")
	}}
	_, err := run(t.Context(), f.updater(req))
	if err == nil || !strings.Contains(err.Error(), "gate smoke: command ./smoke.sh: exit status 3: no answer from web") {
		t.Errorf("got %v", err)
	}

	if len(f.terminated) != 1 || commands < 2 {
		t.Errorf("terminated %v after %d commands", f.terminated, commands)
	}
}

func TestRunStopsWhenADrainTakesTooLong(t *testing.T) {
	f := newFakeCluster(t, 1, 1)
	f.refuse = func(string) error { return apierrors.NewTooManyRequests("the disruption budget web", 1) }
	_, err := run(t.Context(), f.updater(Request{Name: "demo", DrainTimeout: 10 * time.Millisecond}))
	if !errors.Is(err, drain.ErrTimeout) || len(f.terminated) > 0 {
		t.Errorf("terminated %v, %v", f.terminated, err)
	}

	if !slices.ContainsFunc(f.messages, func(m string) bool { return strings.Contains(m, "default/pod-i-1") }) {
		t.Errorf("the blocking pod was not reported: %v", f.messages)
	}
}

func TestRunStopsAfterOneMachineThatDoesNotJoin(t *testing.T) {
	f := newFakeCluster(t, 1, 3)
	u := f.updater(Request{Name: "demo", Groups: []string{"workers"}})
	u.request.JoinTimeout = 50 * time.Millisecond
	f.neverReady = true
	_, err := run(t.Context(), u)
	if err == nil || !strings.Contains(err.Error(), "stopped after 1 machines") || len(f.terminated) != 1 {
		t.Errorf("terminated %v, %v", f.terminated, err)
	}
}

// Nodes named after their addresses are used again by later machines, which must not inherit the mark.
func TestObserveUncordonsAReusedNode(t *testing.T) {
	f := newFakeCluster(t, 1, 0)
	if err := drain.Cordon(t.Context(), f.client, drain.CordonRequest{
		Node: "node-i-1", Annotation: rollout.StartedAnnotation, Value: "i-0",
	}); err != nil {
		t.Fatal(err)
	}
	f.setExcluded("node-i-1", "drain")

	u := f.updater(Request{})
	o, err := u.observer.observe(t.Context())
	if err != nil || o.Machines[0].Started {
		t.Errorf("%+v, %v", o.Machines, err)
	}

	node, err := f.client.CoreV1().Nodes().Get(t.Context(), "node-i-1", metav1.GetOptions{})
	if err != nil || !node.Spec.Unschedulable {
		t.Errorf("a plan, without the lock, has changed the node: %+v, %v", node, err)
	}

	u.observer.holdsLock = true
	if o, err = u.observer.observe(t.Context()); err != nil || o.Machines[0].Started {
		t.Errorf("%+v, %v", o.Machines, err)
	}

	node, err = f.client.CoreV1().Nodes().Get(t.Context(), "node-i-1", metav1.GetOptions{})
	if err != nil || node.Spec.Unschedulable || node.Annotations[rollout.StartedAnnotation] != "" || len(node.Labels) > 0 {
		t.Errorf("%+v, %v", node, err)
	}
}

// TestForcedUpdateIsContinued: a forced update that was stopped replaces what is left when it is run again, and everything
// when it is run once more after its end.
func TestForcedUpdateIsContinued(t *testing.T) {
	f := newFakeCluster(t, 1, 3)
	for i := range f.groups {
		f.groups[i].Version = "1" // no machine is outdated
	}

	ctx, cancel := context.WithCancel(t.Context())
	stopped, err := run(ctx, f.updater(Request{Name: "demo", Force: true, OnEvent: func(e Event) {
		if e.Type == EventJoined {
			cancel()
		}
	}}))
	if !errors.Is(err, context.Canceled) || stopped.Replaced == 0 || stopped.Replaced == 4 {
		t.Fatalf("%+v, %v", stopped, err)
	}

	rest, err := run(t.Context(), f.updater(Request{Name: "demo", Force: true}))
	if err != nil || stopped.Replaced+rest.Replaced != 4 {
		t.Errorf("%d and then %+v were replaced, %v", stopped.Replaced, rest, err)
	}

	if again, err := run(t.Context(), f.updater(Request{Name: "demo", Force: true})); err != nil || again.Replaced != 4 {
		t.Errorf("a later forced update: %+v, %v", again, err)
	}
}
