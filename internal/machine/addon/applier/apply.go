// SPDX-License-Identifier: Apache-2.0

package applier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/machine/addon/bundle"
)

// Outcome is how the apply of an add-on ended.
type Outcome string

// The outcomes.
const (
	OutcomeApplied   Outcome = "applied"
	OutcomeUnchanged Outcome = "unchanged"
	OutcomeFailed    Outcome = "failed"
	// OutcomeApplying is of an add-on that was not healthy yet when its objects were written ([Applier.DoNotWait]).
	OutcomeApplying Outcome = "applying"
	// OutcomeSkipped is of an add-on that depends on one that failed.
	OutcomeSkipped Outcome = "skipped"
)

// Result is how the apply of one add-on ended.
type Result struct {
	Name    string  `json:"name"`
	Version string  `json:"version,omitempty"`
	Outcome Outcome `json:"outcome"`
	// Message is why it failed or was skipped.
	Message string `json:"message,omitempty"`
}

// Apply carries out a plan. An add-on that fails stops those that depend on it; the others are applied. Created objects
// are kept, and an apply of the next plan continues.
func (a *Applier) Apply(ctx context.Context, p Plan) ([]Result, error) {
	var results []Result
	var errs []error
	stopped := map[string]bool{}
	waiting := map[string]bool{} // not healthy yet, or depends on one that is not

	for _, planned := range p.Addons {
		result := Result{Name: planned.Name, Version: planned.Update, Outcome: OutcomeApplied}
		blocked := planned.findDependency(stopped)
		awaited := planned.findDependency(waiting)

		switch {
		case blocked != "":
			result.Outcome = OutcomeSkipped
			result.Message = "add-on " + blocked + " is not healthy"
			stopped[planned.Name] = true
			errs = append(errs, fmt.Errorf("add-on %s was not applied: %s", planned.Name, result.Message))

		case awaited != "":
			result.Outcome = OutcomeSkipped
			result.Message = "add-on " + awaited + " is not healthy yet"
			waiting[planned.Name] = true

		case planned.Update == "":
			result.Outcome = OutcomeUnchanged
			result.Version = planned.Current

		default:
			run := addonRun{applier: a, plan: planned, inventory: planned.inventory, saved: planned.inventory}
			err := run.apply(ctx)

			switch {
			case errors.Is(err, errNotHealthyYet):
				result.Outcome = OutcomeApplying
				result.Message = err.Error()
				waiting[planned.Name] = true

			case err != nil:
				result.Outcome = OutcomeFailed
				result.Message = err.Error()
				stopped[planned.Name] = true
				errs = append(errs, fmt.Errorf("add-on %s: %w", planned.Name, err))
			}
		}

		results = append(results, result)
		if ctx.Err() != nil {
			break
		}
	}

	return results, errors.Join(errs...)
}

// findDependency returns the first of the add-ons that this one depends on and that has one of the names; empty: none.
func (p AddonPlan) findDependency(names map[string]bool) string {
	for _, name := range p.release.Addon.DependsOn {
		if names[name] {
			return name
		}
	}

	return ""
}

// addonRun applies one add-on.
type addonRun struct {
	applier   *Applier
	plan      AddonPlan
	inventory Inventory
	saved     Inventory // as it is in the cluster
}

// apply carries out the steps of the add-on and records how that ended.
func (r *addonRun) apply(ctx context.Context) error {
	if err := r.begin(ctx); err != nil {
		return err
	}

	err := r.carryOut(ctx)
	if errors.Is(err, errNotHealthyYet) {
		if saveErr := r.save(ctx); saveErr != nil {
			return saveErr
		}

		return err
	}

	if err != nil {
		r.inventory.State = Failed
		r.inventory.Message = err.Error()
		if _, writeErr := r.applier.write(ctx, r.inventory); writeErr != nil && ctx.Err() == nil {
			err = errors.Join(err, writeErr)
		}

		return err
	}

	r.inventory.Version = r.plan.Update
	r.inventory.Target = ""
	r.inventory.RollbackTo = 0
	r.inventory.State = Ready
	r.inventory.Message = ""

	return r.save(ctx)
}

// save writes the inventory, if it differs from what was written last.
func (r *addonRun) save(ctx context.Context) error {
	if r.applier.DoNotWait && r.inventory.equals(r.saved) {
		return nil
	}

	written, err := r.applier.write(ctx, r.inventory)
	r.inventory = written
	r.saved = written

	return err
}

// begin records all objects that may exist from now on.
func (r *addonRun) begin(ctx context.Context) error {
	release := r.plan.release
	r.inventory.Name = r.plan.Name
	r.inventory.Channel = release.Channel
	r.inventory.DependsOn = release.Addon.DependsOn
	r.inventory.Target = r.plan.Update
	r.inventory.KubernetesVersion = release.Addon.KubernetesVersion
	r.inventory.RollbackTo = r.plan.rollbackTo
	r.inventory.State = Applying
	r.inventory.Message = ""
	for _, step := range r.plan.Steps {
		entry := step.entry
		if step.Action == Create || step.Action == Update {
			entry.Desired = "" // until it was applied
		}

		if !step.byLabels {
			r.inventory = r.inventory.with(entry)
		}
	}

	if err := r.save(ctx); err != nil {
		return err
	}

	return r.dropRevisions(ctx)
}

// carryOut applies the objects, waits for their health and deletes what the add-on no longer has.
func (r *addonRun) carryOut(ctx context.Context) error {
	for _, step := range r.plan.Steps {
		if step.Action != Create && step.Action != Update {
			continue
		}

		if err := r.applyObject(ctx, step); err != nil {
			return err
		}
	}

	if err := r.awaitHealth(ctx); err != nil {
		return err
	}

	if err := r.prune(ctx); err != nil {
		return err
	}

	return r.recordRevision(ctx)
}

// applyObject applies one object and records it.
func (r *addonRun) applyObject(ctx context.Context, step Step) error {
	objects := r.plan.release.Objects
	same := func(o *unstructured.Unstructured) bool { return bundle.ReferenceOf(o) == step.Object }
	o := objects[slices.IndexFunc(objects, same)]

	applied, err := r.applier.sendWhenServed(ctx, o, step)
	if err != nil {
		return explain(step.Object, err)
	}

	entry := step.entry
	entry.Live = bundle.OwnedFingerprint(applied, r.applier.fieldManager())
	r.inventory = r.inventory.with(entry)
	done := map[Action]string{Create: "created", Update: "updated"}
	r.applier.notifyf("%s: %s %s", r.plan.Name, done[step.Action], step.Object)
	if _, _, isDefinition := definedKind(o); !isDefinition {
		return nil
	}

	if err := r.waitFor(ctx, []check{{ref: step.Object, judge: judgeDefinition}}); err != nil {
		return err
	}

	r.applier.Mapper.Reset()

	return nil
}

const (
	// servedTimeout is how long a new kind may take until the API server serves it. It takes a second or two.
	servedTimeout = 30 * time.Second
	servedPoll    = 500 * time.Millisecond
)

// sendWhenServed applies an object. If its kind is new, it waits until the API server serves it.
func (a *Applier) sendWhenServed(ctx context.Context, o *unstructured.Unstructured, step Step) (*unstructured.Unstructured, error) {
	deadline := a.Now().Add(servedTimeout)
	for {
		applied, err := a.send(ctx, o, step.Object, false)
		notServed := meta.IsNoMatchError(err) || apierrors.IsNotFound(err)
		if err == nil || !step.Unchecked || !notServed || a.Now().After(deadline) {
			return applied, err
		}

		if waitErr := a.Wait(ctx, servedPoll); waitErr != nil {
			return nil, errors.Join(err, waitErr)
		}

		a.Mapper.Reset()
	}
}

// prune deletes what the add-on no longer has.
func (r *addonRun) prune(ctx context.Context) error {
	var deleted []Step

	for _, step := range r.plan.Steps {
		if step.Action != Delete {
			continue
		}

		if err := r.applier.deleteObject(ctx, r.plan.Name, step); err != nil {
			return err
		}

		deleted = append(deleted, step)
	}

	if err := r.applier.waitGone(ctx, deleted, r.timeout()); err != nil {
		return err
	}

	for _, step := range deleted {
		r.inventory = r.inventory.without(step.Object)
	}

	r.forgetMoved()

	return nil
}

// forgetMoved removes the objects from the inventory that another add-on of the channel has now.
func (r *addonRun) forgetMoved() {
	for _, e := range r.inventory.Objects {
		planned := func(s Step) bool { return s.Object.Unversioned() == e.Unversioned() }
		if !slices.ContainsFunc(r.plan.Steps, planned) {
			r.inventory = r.inventory.without(e.Reference)
		}
	}
}

// defaultTimeout is how long an add-on may take to become healthy.
const defaultTimeout = 5 * time.Minute

// timeout returns how long the add-on may take.
func (r *addonRun) timeout() time.Duration {
	own, err := time.ParseDuration(r.plan.release.Addon.Timeout)
	if err != nil { // it is not set: the parser has checked it
		own = 0
	}

	return cmp.Or(own, r.applier.Timeout, defaultTimeout)
}

// timeoutError says which object is not healthy.
func timeoutError(ref bundle.Reference, timeout time.Duration, reason string) error {
	return diag.WithHint(
		fmt.Errorf("%s is not healthy after %s: %s", ref, timeout, reason),
		"fix the cause and rerun to continue, or set timeout of the add-on to a longer time",
	)
}
