// SPDX-License-Identifier: Apache-2.0

package applier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/machine/addon/bundle"
)

// Deletion is what the deletion of one add-on does.
type Deletion struct {
	Name    string `json:"name"`
	Channel string `json:"channel"`
	Version string `json:"version,omitempty"`
	// Steps are deletions, and objects that are kept.
	Steps []Step `json:"steps"`

	inventory Inventory
}

// PlanDeletion returns what the deletion of these add-ons does, those first that depend on others. It refuses to delete an
// add-on that another one depends on.
func (a *Applier) PlanDeletion(all []Inventory, names []string) ([]Deletion, error) {
	var errs []error
	var out []Deletion

	for _, name := range names {
		inventory, err := findInventory(all, name)
		if err == nil {
			err = a.checkChangeable(inventory)
		}

		if err != nil {
			errs = append(errs, err)
			continue
		}

		for _, other := range all {
			depends := slices.Contains(other.DependsOn, name) && other.State != Deleted
			if depends && !slices.Contains(names, other.Name) {
				err := fmt.Errorf("add-on %s depends on %s", other.Name, name)
				errs = append(errs, diag.WithHint(err, "delete both with one command, or "+other.Name+" first"))
			}
		}

		out = append(out, a.planDeletion(all, inventory))
	}

	if err := errors.Join(errs...); err != nil {
		return nil, err
	}

	return dependentsFirst(out), nil
}

// planDeletion returns what the deletion of one add-on does.
func (a *Applier) planDeletion(all []Inventory, i Inventory) Deletion {
	out := Deletion{Name: i.Name, Channel: i.Channel, Version: i.Version, inventory: i}

	for _, e := range slices.Backward(i.Objects) {
		step := Step{Object: e.Reference, Action: Delete, entry: e}
		if !a.Deletes(e.Reference, all) {
			step.Action = Keep
			step.entry.Kept = true
		}

		out.Steps = append(out.Steps, step)
	}

	return out
}

// dependentsFirst sorts deletions, so that an add-on is deleted before those that it depends on.
func dependentsFirst(all []Deletion) []Deletion {
	var out []Deletion

	for len(all) > 0 {
		free := slices.IndexFunc(all, func(d Deletion) bool {
			return !slices.ContainsFunc(all, func(o Deletion) bool { return slices.Contains(o.inventory.DependsOn, d.Name) })
		})

		free = max(free, 0) // a cycle, which no channel can have
		out = append(out, all[free])
		all = slices.Delete(slices.Clone(all), free, free+1)
	}

	return out
}

// Delete carries a deletion out.
func (a *Applier) Delete(ctx context.Context, d Deletion) error {
	i := d.inventory
	i.State = Deleting
	i, err := a.write(ctx, i)
	if err != nil {
		return err
	}

	var deleted []Step

	for _, step := range d.Steps {
		if step.Action == Keep {
			i = i.with(step.entry)
			continue
		}

		if err := a.deleteObject(ctx, d.Name, step); err != nil {
			return fmt.Errorf("add-on %s: %w", d.Name, err)
		}

		deleted = append(deleted, step)
		i = i.without(step.Object)
	}

	if err := a.waitGone(ctx, deleted, cmp.Or(a.Timeout, defaultTimeout)); err != nil {
		return fmt.Errorf("add-on %s: %w", d.Name, err)
	}

	if err := a.removeRevisions(ctx, i); err != nil {
		return err
	}

	if len(i.Objects) == 0 {
		return a.remove(ctx, i)
	}

	i.State = Deleted
	i.OldestRevision = i.Revision + 1
	i.RevisionHash = ""
	i.RollbackTo = 0
	i.Version = ""
	_, err = a.write(ctx, i)

	return err
}

// keepAnnotation is how a Helm chart asks that an object stays when its release is deleted.
const keepAnnotation = "helm.sh/resource-policy"

// deleteObject deletes an object, unless it no longer belongs to the add-on.
func (a *Applier) deleteObject(ctx context.Context, addon string, step Step) error {
	live, err := a.read(ctx, step.Object)
	if err != nil || live == nil {
		return err
	}

	if !step.isOwnedBy(addon, live) {
		owner := live.GetLabels()[bundle.OwnerLabel]
		a.notifyf("%s: kept %s, which belongs to %s", addon, step.Object, cmp.Or(owner, "nobody"))
		return nil
	}

	if live.GetAnnotations()[keepAnnotation] == "keep" {
		a.notifyf("%s: kept %s, as its annotation %s asks for", addon, step.Object, keepAnnotation)
		return nil
	}

	if err := a.checkVolumes(ctx, step.Object); err != nil {
		return err
	}

	resource, err := a.resourceOf(step.Object)
	if err != nil {
		return fmt.Errorf("delete %s: %w", step.Object, err)
	}

	uid := live.GetUID()
	background := metav1.DeletePropagationBackground
	err = resource.Delete(ctx, step.Object.Name, metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &uid},
		PropagationPolicy: &background,
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s: %w", step.Object, err)
	}

	a.notifyf("%s: deleted %s", addon, step.Object)

	return nil
}

// waitGone waits until deleted objects are gone.
func (a *Applier) waitGone(ctx context.Context, steps []Step, timeout time.Duration) error {
	deadline := a.Now().Add(timeout)
	for _, step := range steps {
		for {
			live, err := a.read(ctx, step.Object)
			if err != nil {
				return err
			}

			if live == nil || live.GetDeletionTimestamp() == nil { // created again, or kept
				break
			}

			if a.Now().After(deadline) {
				return diag.WithHint(
					fmt.Errorf("%s still exists %s after its deletion; finalizers: %s",
						step.Object, timeout, cmp.Or(strings.Join(live.GetFinalizers(), ", "), "none")),
					"start the controller of the finalizers, or remove them with kubectl, and rerun",
				)
			}

			if err := a.Wait(ctx, healthPoll); err != nil {
				return err
			}
		}
	}

	return nil
}
