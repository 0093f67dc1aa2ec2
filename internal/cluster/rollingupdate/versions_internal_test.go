// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
)

// countVersion counts the machines of a launch template version.
func countVersion(machines []rollout.Machine, version string) int {
	n := 0
	for _, m := range machines {
		if m.Version == version {
			n++
		}
	}

	return n
}

// TestGroupsMoveWhenTheyBegin: a group launches machines from its new version only once the first of its machines is replaced.
// A machine that ends before comes back with the version that it had, and is replaced in its turn.
func TestGroupsMoveWhenTheyBegin(t *testing.T) {
	f := newFakeCluster(t, 3, 2)
	f.failAt = func(change string) error {
		began := map[string]string{
			"control-plane/a": "i-1", "control-plane/b": "i-2", "control-plane/c": "i-3", "workers/": "i-4",
		}
		for key, first := range began {
			gone := slices.Contains(f.terminated, first) || slices.Contains(f.detached, first)
			if f.launches[key] != "1" && !gone && !strings.HasSuffix(change, " "+first) {
				t.Errorf("before the change %q, %s launches machines from version %s", change, key, f.launches[key])
			}
		}

		if change == "terminate i-1" { // a worker ends while the control plane is updated
			f.machines = slices.DeleteFunc(f.machines, func(m rollout.Machine) bool { return m.ID == "i-5" })
			f.launch(f.groups[3], f.launches["workers/"])
			if m := f.machines[len(f.machines)-1]; m.Version != "1" {
				t.Errorf("the replacement of i-5 has version %s", m.Version)
			}
		}

		return nil
	}

	if _, err := run(t.Context(), f.updater(Request{Name: "demo"})); err != nil {
		t.Fatal(err)
	}

	if countVersion(f.machines, "2") != 5 || len(f.machines) != 5 {
		t.Errorf("%+v", f.machines)
	}
}

// TestGroupsWithoutMachinesMove: an update also moves groups of which no machine has to be replaced, after an approval.
func TestGroupsWithoutMachinesMove(t *testing.T) {
	f := newFakeCluster(t, 1, 0)
	f.groups[0].Version = "1"
	refused := errors.New("not approved")
	u := f.updater(Request{Name: "demo", Approve: func(int) error { return refused }})
	if _, err := run(t.Context(), u); !errors.Is(err, refused) || f.launches["workers/"] != "1" {
		t.Fatalf("%v, versions %v", err, f.launches)
	}

	result, err := run(t.Context(), f.updater(Request{Name: "demo"}))
	if err != nil || result.UpToDate || result.Replaced != 0 || f.launches["workers/"] != "2" || f.launches["control-plane/a"] != "1" {
		t.Errorf("%+v, %v, versions %v", result, err, f.launches)
	}

	if want := "new machines of workers get launch template version 2 instead of 1"; !slices.Contains(f.messages, want) {
		t.Errorf("messages %q", f.messages)
	}

	if result, err = run(t.Context(), f.updater(Request{Name: "demo"})); err != nil || !result.UpToDate {
		t.Errorf("again: %+v, %v", result, err)
	}
}

// TestStoppedUpdateMovesNoOtherGroup: an update that is asked to stop leaves the groups with which it did not begin.
func TestStoppedUpdateMovesNoOtherGroup(t *testing.T) {
	o := rollout.Observation{APIReady: true, Groups: []rollout.Group{
		{Name: "control-plane", Slot: "a", Version: "2", Launches: "1"}, {Name: "workers", Version: "2", Launches: "1"},
	}}
	options := rollout.Options{Stopping: true}
	if moved := rollout.GroupsToMove(o, options, rollout.Decision{}); len(moved) > 0 {
		t.Errorf("stopping: %+v", moved)
	}

	options.Stopping = false
	options.Only = []string{"workers"}
	if moved := rollout.GroupsToMove(o, options, rollout.Decision{}); len(moved) != 1 || moved[0].Name != "workers" {
		t.Errorf("one group: %+v", moved)
	}
}

// TestRollbackOfWaitingGroups: a rollback that another group needs also keeps the groups with which the update did not begin.
func TestRollbackOfWaitingGroups(t *testing.T) {
	f := newFakeCluster(t, 1, 2)
	f.brokenTemplate = "2"
	u := f.updater(Request{Name: "demo", AutomaticRollback: true, JoinTimeout: 50 * time.Millisecond})
	if _, err := run(t.Context(), u); err == nil || !strings.Contains(err.Error(), "rolled back") {
		t.Fatalf("got %v", err)
	}

	result, err := run(t.Context(), f.updater(Request{Name: "demo"}))
	if err != nil || !result.UpToDate || countVersion(f.machines, "1") != 3 {
		t.Errorf("after the rollback: %+v, %+v, %v", result, f.machines, err)
	}

	f.groups[1].Version = "3" // corrected manifests were applied
	if _, err := run(t.Context(), f.updater(Request{Name: "demo", Groups: []string{"workers"}})); err != nil || countVersion(f.machines, "3") != 2 {
		t.Errorf("a later version: %+v, %v", f.machines, err)
	}
}
