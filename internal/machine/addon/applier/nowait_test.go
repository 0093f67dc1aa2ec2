// SPDX-License-Identifier: Apache-2.0

package applier_test

import (
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/addon/applier"
)

// checkDoNotWait applies an add-on without waiting for its health, as the control plane does: it becomes Ready with a later
// apply, and nothing is written until then.
func checkDoNotWait(f *fixture) {
	later := release(f.t, v1alpha1.Addon{Name: "later", Version: "1.0.0"}, 1, deployment("default", "later", 1))
	apply := func(want applier.Outcome, mayWrite bool) applier.Plan {
		f.t.Helper()
		a, counter, _ := f.applier(-1, nil)
		a.DoNotWait = true
		a.FieldManager = "machine"
		plan, err := a.Plan(f.t.Context(), "test", []applier.Release{later})
		if err != nil {
			f.t.Fatal(err)
		}

		results, err := a.Apply(f.t.Context(), plan)
		if err != nil || results[0].Outcome != want {
			f.t.Errorf("%+v, %v; want %s", results, err, want)
		}

		if !mayWrite && counter.writes > 0 {
			f.t.Errorf("%d writes although nothing has changed: %q", counter.writes, counter.paths)
		}

		return plan
	}

	apply(applier.OutcomeApplying, true)
	if i := f.inventory("later"); i.State != applier.Applying || i.Target != "1.0.0" || i.Version != "" {
		f.t.Errorf("%+v", i)
	}

	apply(applier.OutcomeApplying, false)
	f.makeHealthy()
	apply(applier.OutcomeApplied, true)
	if i := f.inventory("later"); i.State != applier.Ready || i.Version != "1.0.0" || i.Revision != 1 {
		f.t.Errorf("%+v", i)
	}

	if plan := apply(applier.OutcomeUnchanged, false); !plan.IsEmpty() {
		f.t.Errorf("%+v", plan)
	}

	// What the control plane has is refused to a channel, also by force.
	a, _, _ := f.applier(-1, nil)
	a.Force = true
	a.IsControlPlane = true
	system := release(f.t, v1alpha1.Addon{Name: "slipway-own", Version: "1.0.0"}, 1, configMap("default", "own", "1"))
	system.Channel = v1alpha1.SystemChannel
	plan, err := a.Plan(f.t.Context(), v1alpha1.SystemChannel, []applier.Release{system})
	if err == nil {
		_, err = a.Apply(f.t.Context(), plan)
	}

	if err != nil {
		f.t.Fatal(err)
	}

	a.IsControlPlane = false
	thief := release(f.t, v1alpha1.Addon{Name: "thief", Version: "1.0.0"}, 1, configMap("default", "own", "2"))
	if _, err := a.Plan(f.t.Context(), "test", []applier.Release{thief}); err == nil ||
		!strings.Contains(err.Error(), "ConfigMap default/own belongs to add-on slipway-own, which the control plane applies") {
		f.t.Errorf("got %v", err)
	}

	all, err := a.Inventories(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}

	if _, err := a.PlanDeletion(all, []string{"slipway-own"}); err == nil ||
		!strings.Contains(err.Error(), "add-on slipway-own is part of every cluster") {
		f.t.Errorf("got %v", err)
	}

	if _, _, err := a.PlanRollback(f.t.Context(), "slipway-own", 1); err == nil ||
		!strings.Contains(err.Error(), "add-on slipway-own is part of every cluster") {
		f.t.Errorf("got %v", err)
	}
}
