// SPDX-License-Identifier: Apache-2.0

package applier

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/machine/addon/bundle"
)

// planner makes one plan.
type planner struct {
	applier     *Applier
	channel     string
	releases    []Release
	inventories map[string]Inventory
	// partial is set if the releases are not all of the channel.
	partial bool
	// custom are the kinds that CustomResourceDefinitions of the releases define, and whether they have namespaces.
	custom map[schema.GroupKind]bool
	// changing are those of them whose definition is created or updated.
	changing map[schema.GroupKind]bool
	// namespaces are those that the plan creates.
	namespaces map[string]bool
	// owners are the add-ons of the releases' objects.
	owners map[bundle.Reference]string
	// live are the objects of add-ons, by kind and namespace.
	live map[bundle.Reference]map[string]*unstructured.Unstructured
}

func newPlanner(a *Applier, channel string, releases []Release, inventories []Inventory) *planner {
	p := &planner{
		applier:     a,
		channel:     channel,
		inventories: map[string]Inventory{},
		custom:      map[schema.GroupKind]bool{},
		changing:    map[schema.GroupKind]bool{},
		namespaces:  map[string]bool{},
		owners:      map[bundle.Reference]string{},
		live:        map[bundle.Reference]map[string]*unstructured.Unstructured{},
	}

	for _, i := range inventories {
		p.inventories[i.Name] = i
	}

	for _, r := range releases {
		objects := r.Objects
		r.Objects = nil
		for _, o := range objects {
			r.Objects = append(r.Objects, o.DeepCopy())
		}

		p.releases = append(p.releases, r)
	}

	return p
}

// locateObjects finds the namespaces of all objects, and refuses those that two add-ons have.
func (p *planner) locateObjects() error {
	for _, r := range p.releases {
		for _, o := range r.Objects {
			if kind, namespaced, ok := definedKind(o); ok {
				p.custom[kind] = namespaced
			}
		}
	}

	var errs []error

	for _, r := range p.releases {
		for _, o := range r.Objects {
			ref, err := p.applier.locate(o, r.Addon.Namespace, p.custom)
			if err != nil {
				errs = append(errs, fmt.Errorf("add-on %s: %w", r.Addon.Name, explain(ref, err)))
				continue
			}

			if other, taken := p.owners[ref.Unversioned()]; taken {
				err := fmt.Errorf("add-on %s: %s is in add-on %s, too", r.Addon.Name, ref, other)
				errs = append(errs, diag.WithHint(err, "keep it in one of them"))

				continue
			}

			p.owners[ref.Unversioned()] = r.Addon.Name
		}
	}

	return errors.Join(errs...)
}

// definedKind returns the kind that a CustomResourceDefinition defines.
func definedKind(o *unstructured.Unstructured) (kind schema.GroupKind, namespaced, ok bool) {
	if o.GetKind() != "CustomResourceDefinition" || o.GroupVersionKind().Group != "apiextensions.k8s.io" {
		return kind, false, false
	}

	kind.Group, _, _ = unstructured.NestedString(o.Object, "spec", "group")
	kind.Kind, _, _ = unstructured.NestedString(o.Object, "spec", "names", "kind")
	scope, _, _ := unstructured.NestedString(o.Object, "spec", "scope")

	return kind, scope == "Namespaced", kind.Kind != ""
}

// planObject plans the apply of one object.
func (p *planner) planObject(ctx context.Context, r Release, o *unstructured.Unstructured) (Step, error) {
	ref := bundle.ReferenceOf(o)
	step := Step{Object: ref, Action: Create, entry: Entry{Reference: ref, Desired: bundle.Fingerprint(o)}}
	if _, err := p.applier.resourceOf(ref); meta.IsNoMatchError(err) || p.namespaces[ref.Namespace] {
		step.Unchecked = true
		return p.record(step, o), nil
	}

	live, err := p.find(ctx, ref)
	if err != nil {
		return step, err
	}

	if live != nil {
		if err := p.checkOwner(ref, live, r); err != nil {
			return step, err
		}

		step.Action = Unchanged
		step.entry.Live = bundle.OwnedFingerprint(live, p.applier.fieldManager())
		known, _ := p.inventories[r.Addon.Name].find(ref)
		if step.entry.Live != "" && known == step.entry {
			return step, nil
		}
	}

	if live == nil && p.applier.DoNotWait { // at the first boot every request counts, and the apply says what is refused
		step.Unchecked = true
		return p.record(step, o), nil
	}

	return p.tryObject(ctx, step, o, live)
}

// tryObject asks the API server what an apply would do.
func (p *planner) tryObject(ctx context.Context, step Step, o, live *unstructured.Unstructured) (Step, error) {
	result, err := p.applier.send(ctx, o, step.Object, true)
	kind := schema.GroupKind{Group: step.Object.Group, Kind: step.Object.Kind}

	switch {
	case err != nil && p.changing[kind] && len(conflicts(err)) == 0:
		step.Unchecked = true
		if live != nil {
			step.Action = Update
		}

	case err != nil:
		return step, explain(step.Object, err)

	case live != nil:
		step.Differences = bundle.Compare(live, result)
		owned := bundle.OwnedFingerprint(result, p.applier.fieldManager())
		if len(step.Differences) == 0 && owned != step.entry.Live {
			step.Differences = []bundle.Difference{{Path: ".metadata.managedFields", After: "owned by " + p.applier.fieldManager()}}
		}

		if len(step.Differences) > 0 {
			step.Action = Update
		}
	}

	return p.record(step, o), nil
}

// record remembers what later steps depend on.
func (p *planner) record(step Step, o *unstructured.Unstructured) Step {
	if kind, _, ok := definedKind(o); ok && step.Action != Unchanged {
		p.changing[kind] = true
	}

	if step.Object.Kind == "Namespace" && step.Object.Group == "" && step.Action == Create {
		p.namespaces[step.Object.Name] = true
	}

	return step
}

// find returns an object as it is. The objects of add-ons are read with one request per kind and namespace.
func (p *planner) find(ctx context.Context, ref bundle.Reference) (*unstructured.Unstructured, error) {
	group := ref
	group.Name = ""
	listed, done := p.live[group]
	if !done {
		resource, err := p.applier.resourceOf(ref)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", ref, err)
		}

		list, err := resource.List(ctx, metav1.ListOptions{LabelSelector: bundle.OwnerLabel})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("list objects of kind %s: %w", ref.Kind, err)
		}

		listed = map[string]*unstructured.Unstructured{}
		if err == nil {
			for i := range list.Items {
				listed[list.Items[i].GetName()] = &list.Items[i]
			}
		}

		p.live[group] = listed
	}

	if live := listed[ref.Name]; live != nil {
		return live, nil
	}

	return p.applier.read(ctx, ref)
}

// checkOwner refuses an object of another add-on, unless that add-on gives it up.
func (p *planner) checkOwner(ref bundle.Reference, live *unstructured.Unstructured, r Release) error {
	owner := live.GetLabels()[bundle.OwnerLabel]
	other, installed := p.inventories[owner]
	if installed && other.Channel == v1alpha1.SystemChannel && !p.applier.IsControlPlane {
		return diag.WithHint(
			fmt.Errorf("%s belongs to add-on %s, which the control plane applies", ref, owner),
			"remove it from the add-on",
		)
	}

	released := func(o Release) bool { return o.Addon.Name == owner }
	leaves := !p.partial && other.Channel == p.channel && !slices.ContainsFunc(p.releases, released)
	if owner == "" || owner == r.Addon.Name || !installed || leaves || p.applier.Force {
		return nil
	}

	if slices.ContainsFunc(p.releases, released) {
		return nil // locateObjects has made sure that the other add-on no longer has it
	}

	return diag.WithHint(
		fmt.Errorf("%s belongs to add-on %s of channel %s", ref, owner, other.Channel),
		"remove it from one of the add-ons, or take it over with --force-conflicts",
	)
}

// planDeletions plans the deletion of what an add-on no longer has, in the order in which it is deleted.
func (p *planner) planDeletions(ctx context.Context, r Release, before Inventory) ([]Step, error) {
	var steps []Step

	for _, e := range slices.Backward(before.Objects) {
		if _, wanted := p.owners[e.Unversioned()]; wanted {
			continue
		}

		step := Step{Object: e.Reference, Action: Delete, entry: e}
		if !p.applier.Deletes(e.Reference, slices.Collect(maps.Values(p.inventories))) {
			step.Action = Keep
			step.entry.Kept = true
		}

		steps = append(steps, step)
	}

	for _, kind := range r.Addon.Prune {
		found, err := p.findPruned(ctx, kind, r.Addon.Name, before)
		if err != nil {
			return nil, fmt.Errorf("add-on %s: prune %s: %w", r.Addon.Name, kind.Kind, err)
		}

		steps = append(steps, found...)
	}

	return steps, nil
}

// findPruned returns the deletion of the objects that match labels, that neither the channel nor the inventory has, and
// that belong to no other add-on.
func (p *planner) findPruned(
	ctx context.Context,
	kind v1alpha1.AddonPruneKind,
	addon string,
	before Inventory,
) ([]Step, error) {
	mapping, err := p.applier.Mapper.RESTMapping(schema.GroupKind{Group: kind.Group, Kind: kind.Kind})
	if meta.IsNoMatchError(err) {
		return nil, nil
	}

	if err != nil {
		return nil, err
	}

	namespaces := kind.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}

	var steps []Step

	for _, namespace := range namespaces {
		resource := p.applier.Client.Resource(mapping.Resource, namespace)
		list, err := resource.List(ctx, metav1.ListOptions{LabelSelector: kind.LabelSelector})
		if err != nil {
			return nil, err
		}

		for _, o := range list.Items {
			ref := bundle.ReferenceOf(&o)
			_, wanted := p.owners[ref.Unversioned()]
			_, known := before.find(ref)
			step := Step{Object: ref, Action: Delete, entry: Entry{Reference: ref}, byLabels: true}
			if !wanted && !known && !ref.IsProtected() && step.isOwnedBy(addon, &o) {
				steps = append(steps, step)
			}
		}
	}

	return steps, nil
}
