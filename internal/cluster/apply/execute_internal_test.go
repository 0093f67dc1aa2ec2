// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// fakeProvisioner notes which of its methods are called.
type fakeProvisioner struct {
	calls *[]string
	fails string // the method that fails
}

func (p fakeProvisioner) note(call string) error {
	*p.calls = append(*p.calls, call)
	if call == p.fails {
		return errors.New(call + " failed")
	}

	return nil
}

func (p fakeProvisioner) Propose(context.Context) (*cluster.Review, error) { return nil, nil }

func (p fakeProvisioner) Record(context.Context) error { return p.note("record") }

func (p fakeProvisioner) Execute(context.Context) error { return p.note("execute") }

func (p fakeProvisioner) Unchanged(context.Context) error { return p.note("unchanged") }

func (p fakeProvisioner) Discard(context.Context) error { return p.note("discard") }

// TestExecute: a review is shown, then approved, then executed; one that is not executed is discarded, and
// one without changes needs no approval.
func TestExecute(t *testing.T) {
	changes := plan.Plan{Steps: []plan.Step{{Action: plan.Create, Addr: "vpc/vpc", Kind: "vpc"}}}
	for name, c := range map[string]struct {
		plan    plan.Plan
		fails   string
		want    []string
		changed bool
	}{
		"changes":          {changes, "", []string{"show", "approve", "execute"}, true},
		"no changes":       {plan.Plan{}, "", []string{"show", "unchanged"}, false},
		"not shown":        {changes, "show", []string{"show", "discard"}, false},
		"not approved":     {changes, "approve", []string{"show", "approve", "discard"}, false},
		"execution failed": {changes, "execute", []string{"show", "approve", "execute"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var calls []string
			p := fakeProvisioner{calls: &calls, fails: c.fails}
			env := &cluster.Env{Now: time.Now}
			env.Hooks.Show = func(cluster.Review) error { return p.note("show") }
			env.Hooks.Approve = func(context.Context, cluster.Review) error { return p.note("approve") }
			r := &run{session: &cluster.Session{Env: env, Name: "demo"}, desired: &cluster.Desired{}, provisioner: p}
			result, err := r.execute(t.Context(), cluster.Review{Cluster: "demo", Plan: c.plan})
			if (err != nil) != (c.fails != "") || result.Changed != c.changed || !slices.Equal(calls, c.want) {
				t.Errorf("called %v, result %+v, %v; want %v", calls, result, err, c.want)
			}
		})
	}
}

// TestPreparation: it is done before the plan is carried out, and undone if one of both fails, unless the request was interrupted.
func TestPreparation(t *testing.T) {
	changes := plan.Plan{Steps: []plan.Step{{Action: plan.Create, Addr: "vpc/vpc", Kind: "vpc"}}}
	for name, c := range map[string]struct {
		fails       string
		interrupted bool
		want        []string
	}{
		"succeeds":              {"", false, []string{"approve", "prepare", "execute"}},
		"not approved":          {"approve", false, []string{"approve", "discard"}},
		"the preparation fails": {"prepare", false, []string{"approve", "prepare", "undo"}},
		"the execution fails":   {"execute", false, []string{"approve", "prepare", "execute", "undo"}},
		"interrupted":           {"execute", true, []string{"approve", "prepare", "execute"}},
	} {
		t.Run(name, func(t *testing.T) {
			var calls []string
			p := fakeProvisioner{calls: &calls, fails: c.fails}
			env := &cluster.Env{Now: time.Now}
			env.Hooks.Show = func(cluster.Review) error { return nil }
			env.Hooks.Approve = func(context.Context, cluster.Review) error { return p.note("approve") }
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r := &run{session: &cluster.Session{Env: env, Name: "demo"}, desired: &cluster.Desired{}, provisioner: p}
			r.preparation.Do = func(context.Context) error {
				if c.interrupted {
					cancel()
				}

				return p.note("prepare")
			}
			r.preparation.Undo = func(context.Context) error { return p.note("undo") }
			_, err := r.execute(ctx, cluster.Review{Cluster: "demo", Plan: changes})
			if (err != nil) != (c.fails != "") || !slices.Equal(calls, c.want) {
				t.Errorf("called %v, %v; want %v", calls, err, c.want)
			}
		})
	}
}
