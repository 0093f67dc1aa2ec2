// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"slices"
	"testing"

	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// TestOnlyCreating: of a plan with all kinds of steps, only the creations at the given addresses are kept and carried out.
func TestOnlyCreating(t *testing.T) {
	from := small()
	from.Zones = 3
	c := &cloud{things: map[string]plan.ActualResource{}}
	p, _ := plan.Compute(from.graph(), nil, plan.Options{})
	if err := walk(c).Apply(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	for id, a := range c.things {
		if a.Addr == "zone/1" {
			delete(c.things, id)
		}
	}

	to := from
	to.Zones, to.Port, to.Tag, to.Rules = 4, 2, "b", nil
	p, _ = plan.Compute(to.graph(), c.actual(), plan.Options{})
	before, changes := len(c.things), c.changes
	only := p.OnlyCreating(to.graph(), "zone/1", "net/main", "gate/door") // these two change, and are not created
	if len(p.Steps) < 5 || len(only.Steps) != 1 || only.Steps[0].Action != plan.Create || only.Steps[0].Addr != "zone/1" {
		t.Fatalf("of %v are kept %v", p.Steps, only.Steps)
	}
	if err := walk(c).Apply(t.Context(), only); err != nil {
		t.Fatal(err)
	}
	if len(c.things) != before+1 || c.changes != changes+1 {
		t.Errorf("%d resources after %d changes, want one more of both than %d, %d", len(c.things), c.changes, before, changes)
	}
	rest, _ := plan.Compute(to.graph(), c.actual(), plan.Options{})
	if slices.ContainsFunc(rest.Steps, func(s plan.Step) bool { return s.Addr == "zone/1" && s.Action == plan.Create }) {
		t.Errorf("zone/1 is created again: %v", rest.Steps)
	}
}
