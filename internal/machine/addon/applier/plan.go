// SPDX-License-Identifier: Apache-2.0

package applier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/machine/addon/bundle"
)

// Action is what happens to an object.
type Action string

// The actions.
const (
	Create    Action = "create"
	Update    Action = "update"
	Unchanged Action = "unchanged"
	Delete    Action = "delete"
	// Keep is for a namespace, a CustomResourceDefinition or a volume that the add-on no longer has.
	Keep Action = "keep"
)

// Plan is what an apply would do.
type Plan struct {
	// Addons of the channel, in the order in which they are applied.
	Addons []AddonPlan `json:"addons"`
	// Left are add-ons that were applied from this channel, which no longer has them.
	Left []Inventory `json:"left,omitempty"`
}

// AddonPlan is what an apply would do for one add-on.
type AddonPlan struct {
	Name string `json:"name"`
	// Current is the version in the cluster; empty: none.
	Current string `json:"current,omitempty"`
	// Update is the version that is applied; empty if nothing changes.
	Update string `json:"update,omitempty"`
	// Wave is the number of the wave.
	Wave int `json:"wave"`
	// State of the add-on in the cluster; empty if it is new.
	State State `json:"state,omitempty"`
	// NeedsRollingUpdate names the machines that must be replaced after the update: control-plane, workers or all.
	NeedsRollingUpdate string `json:"needsRollingUpdate,omitempty"`
	// Steps for each object, in the order in which they are carried out.
	Steps []Step `json:"steps"`

	release    Release
	inventory  Inventory
	rollbackTo int // the revision that a rollback returns to
}

// Step is what happens to one object.
type Step struct {
	Object bundle.Reference `json:"object"`
	Action Action           `json:"action"`
	// Differences that an update makes.
	Differences []bundle.Difference `json:"differences,omitempty"`
	// Unchecked is set if the API server did not try the step: the namespace or the kind is created first, or the applier
	// does not try creations.
	Unchecked bool `json:"unchecked,omitempty"`

	entry    Entry
	byLabels bool // a deletion that spec.addons[].prune asks for
}

// isOwnedBy reports whether an add-on may delete an object. What labels prune was applied by another tool, so no add-on
// may own it.
func (s Step) isOwnedBy(addon string, live *unstructured.Unstructured) bool {
	owner := live.GetLabels()[bundle.OwnerLabel]
	return owner == addon || s.byLabels && owner == ""
}

// Changes returns the number of steps that write.
func (p AddonPlan) Changes() int {
	n := 0
	for _, s := range p.Steps {
		if s.Action == Create || s.Action == Update || s.Action == Delete {
			n++
		}
	}

	return n
}

// Inventory returns what the cluster has of the add-on, or will have after the first apply.
func (p AddonPlan) Inventory() Inventory {
	out := p.inventory
	out.Name = p.Name
	out.DependsOn = p.release.Addon.DependsOn

	return out
}

// IsEmpty reports whether an apply would change nothing.
func (p Plan) IsEmpty() bool {
	return !slices.ContainsFunc(p.Addons, func(a AddonPlan) bool { return a.Update != "" })
}

// Plan returns what an apply of these releases of a channel would do. All refusals of the API server are reported at once.
func (a *Applier) Plan(ctx context.Context, channel string, releases []Release) (Plan, error) {
	inventories, err := a.Inventories(ctx)
	if err != nil {
		return Plan{}, err
	}

	p := newPlanner(a, channel, releases, inventories)
	if err := p.locateObjects(); err != nil {
		return Plan{}, err
	}

	var out Plan
	var errs []error

	for n := range p.releases {
		planned, err := p.planRelease(ctx, n)
		if err != nil {
			errs = append(errs, err)
			continue
		}

		out.Addons = append(out.Addons, planned)
	}

	for _, i := range inventories {
		named := func(r Release) bool { return r.Addon.Name == i.Name }
		if i.Channel == channel && i.State != Deleted && !slices.ContainsFunc(releases, named) {
			out.Left = append(out.Left, i)
		}
	}

	return out, errors.Join(errs...)
}

// planRelease plans one add-on.
func (p *planner) planRelease(ctx context.Context, n int) (AddonPlan, error) {
	r := p.releases[n]
	before := p.inventories[r.Addon.Name]
	out := AddonPlan{
		Name:      r.Addon.Name,
		Wave:      r.Wave,
		State:     before.State,
		Current:   before.Version,
		release:   r,
		inventory: before,
	}

	if err := p.checkChannel(before, r); err != nil {
		return out, err
	}

	var errs []error

	for _, o := range r.Objects {
		step, err := p.planObject(ctx, r, o)
		if err != nil {
			errs = append(errs, fmt.Errorf("add-on %s: %w", r.Addon.Name, err))
			continue
		}

		out.Steps = append(out.Steps, step)
	}

	deletions, err := p.planDeletions(ctx, r, before)
	if err := errors.Join(append(errs, err)...); err != nil {
		return out, err
	}

	out.Steps = append(out.Steps, deletions...)
	if out.Changes() > 0 || out.needsInventory() {
		out.Update = cmp.Or(r.Addon.Version, "0.0.0")
	}

	if out.Update != "" && out.Current != "" {
		out.NeedsRollingUpdate = r.Addon.NeedsRollingUpdate
	}

	return out, nil
}

// needsInventory reports whether the inventory differs from the plan although no object does.
func (p AddonPlan) needsInventory() bool {
	if p.inventory.State != Ready || p.inventory.Version != cmp.Or(p.release.Addon.Version, "0.0.0") ||
		p.inventory.KubernetesVersion != p.release.Addon.KubernetesVersion {
		return true
	}

	moved := func(e Entry) bool {
		return !slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Object.Unversioned() == e.Unversioned() })
	}

	return slices.ContainsFunc(p.inventory.Objects, moved) || slices.ContainsFunc(p.Steps, func(s Step) bool {
		entry, known := p.inventory.find(s.Object)
		return s.Action == Keep && !entry.Kept || s.Action == Unchanged && (!known || entry != s.entry)
	})
}

// checkChannel refuses an add-on that another channel has applied.
func (p *planner) checkChannel(before Inventory, r Release) error {
	if before.Name == "" || before.Channel == p.channel || before.State == Deleted || p.applier.Force {
		return nil
	}

	return diag.WithHint(
		fmt.Errorf("add-on %s was applied from channel %s, not %s", r.Addon.Name, before.Channel, p.channel),
		"rename one of them, or take the add-on over with --force-conflicts",
	)
}
