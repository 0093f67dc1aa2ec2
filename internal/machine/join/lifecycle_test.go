// SPDX-License-Identifier: Apache-2.0

package join_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/machine/join"
)

// TestLifecycleActionsAreForTheCaller: the control plane acts for the machine that asks, tells whether Auto Scaling waited
// for it, and keeps its own errors to itself.
func TestLifecycleActionsAreForTheCaller(t *testing.T) {
	w := newWorld(t)
	drained := join.LifecycleAction{Hook: "slipway-drain", Kind: join.LifecycleComplete}
	if _, err := w.client().SendLifecycle(t.Context(), drained); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("a control plane of an earlier version: %v", err)
	}

	var acted []string
	var answer error
	waits := true
	w.server.ActForMachine = func(_ context.Context, m join.Machine, a join.LifecycleAction) (bool, error) {
		acted = append(acted, m.ID+" "+string(a.Kind)+" "+a.Hook)
		return waits, answer
	}
	if waited, err := w.client().SendLifecycle(t.Context(), drained); err != nil || !waited {
		t.Errorf("waited %t: %v", waited, err)
	}

	waits = false
	beat := join.LifecycleAction{Hook: "slipway-launch", Kind: join.LifecycleHeartbeat}
	if waited, err := w.client().SendLifecycle(t.Context(), beat); err != nil || waited {
		t.Errorf("waited %t: %v", waited, err)
	}

	if got := strings.Join(acted, ", "); got != instance+" COMPLETE slipway-drain, "+instance+" HEARTBEAT slipway-launch" {
		t.Errorf("acted %s", got)
	}

	answer = errors.New("secret of the control plane")
	if _, err := w.client().SendLifecycle(t.Context(), drained); err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "503") {
		t.Errorf("an error: %v", err)
	}

	for _, unknown := range []join.LifecycleAction{{Hook: "backup", Kind: join.LifecycleComplete}, {Hook: "slipway-launch", Kind: "ABANDON"}, {}} {
		if _, err := w.client().SendLifecycle(t.Context(), unknown); err == nil || !strings.Contains(err.Error(), "400") {
			t.Errorf("%+v: %v", unknown, err)
		}
	}
}

// TestDrainsBlockNoJoins: lifecycle actions have a limit of their own, so that the end of many workers keeps no other from
// joining.
func TestDrainsBlockNoJoins(t *testing.T) {
	w := newWorld(t)
	w.server.ActForMachine = func(context.Context, join.Machine, join.LifecycleAction) (bool, error) { return true, nil }
	limited := false
	for range 100 {
		_, err := w.client().SendLifecycle(t.Context(), join.LifecycleAction{Hook: "slipway-drain", Kind: join.LifecycleHeartbeat})
		limited = limited || err != nil && strings.Contains(err.Error(), "429")
	}
	if !limited {
		t.Error("lifecycle actions have no limit")
	}
	if _, err := w.client().Join(t.Context()); err != nil {
		t.Errorf("a worker cannot join: %v", err)
	}
}
