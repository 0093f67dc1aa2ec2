// SPDX-License-Identifier: Apache-2.0

// Package applier makes a cluster have the objects of add-ons, with server-side apply.
//
// [Applier.Plan] compares without changing anything: it reads what was applied before from inventories, the objects with
// one request per kind and namespace, and asks the API server for a dry run of those that may have changed. If one of
// them is refused, nothing is written. [Applier.Apply] carries a plan out: add-on by add-on in the order of waves,
// object by object in the order of kinds, then it waits until the workloads are healthy, then it deletes what the add-on
// no longer has.
//
// An inventory is a Secret in kube-system for each add-on. It is written before the first object, so that whatever is
// interrupted can be continued, and nothing that was created is forgotten. It is a Secret because it has hashes of the
// objects, also of Secrets.
//
// The package knows no channel, no file and no AWS.
package applier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/machine/addon/bundle"
)

// FieldManager owns the fields that add-ons set, unless the applier has another one.
const FieldManager = "slipway-addons"

// ErrConflict is wrapped by the error of an object of which another manager owns a field.
var ErrConflict = errors.New("another field manager owns fields of the object")

// Applier applies add-ons to one cluster. It must not be used concurrently.
type Applier struct {
	// Client makes the requests, and Mapper finds the resources of kinds.
	Client Client
	Mapper meta.ResettableRESTMapper
	// FieldManager owns the fields that are set. Empty: the constant of the same name.
	FieldManager string
	// IsControlPlane is set on the control plane, which alone changes the add-ons that every cluster has.
	IsControlPlane bool
	// DoNotWait creates objects without a dry run, and ends an apply when all are written. An add-on that is not healthy by
	// then stays Applying, and becomes Ready with a later plan and apply.
	DoNotWait bool
	// Force takes fields over that other managers own. Otherwise they are an error.
	Force bool
	// DeleteProtected also deletes namespaces and CustomResourceDefinitions.
	DeleteProtected bool
	// DeleteVolumes also deletes PersistentVolumes and PersistentVolumeClaims.
	DeleteVolumes bool
	// Timeout is how long an add-on may take to become healthy if it does not set that itself.
	Timeout time.Duration
	// Now is the clock, and Wait waits until a time has passed or the context ends.
	Now  func() time.Time
	Wait func(context.Context, time.Duration) error
	// Notify reports what was done, in one line.
	Notify func(message string)
}

// Release is one version of an add-on that a cluster is to have.
type Release struct {
	// Addon is the entry of the channel.
	Addon v1alpha1.Addon
	// Channel is the name of the channel.
	Channel string
	// Wave is the number of the wave that the add-on is in, from 1.
	Wave int
	// Objects as package bundle prepares them.
	Objects []*unstructured.Unstructured
}

// checkChangeable refuses to change an add-on that every cluster has.
func (a *Applier) checkChangeable(i Inventory) error {
	if a.IsControlPlane || i.Channel != v1alpha1.SystemChannel {
		return nil
	}

	return diag.WithHint(
		fmt.Errorf("add-on %s is part of every cluster: the control plane would apply it again", i.Name),
		"its version follows the version of Kubernetes: slipway upgrade cluster",
	)
}

// fieldManager returns the manager of the fields that are set.
func (a *Applier) fieldManager() string {
	return cmp.Or(a.FieldManager, FieldManager)
}

// resourceOf returns the resource of a kind. The error for an unknown kind satisfies meta.IsNoMatchError.
func (a *Applier) resourceOf(ref bundle.Reference) (Resource, error) {
	var versions []string
	if ref.Version != "" {
		versions = append(versions, ref.Version)
	}

	mapping, err := a.Mapper.RESTMapping(schema.GroupKind{Group: ref.Group, Kind: ref.Kind}, versions...)
	if err != nil {
		return nil, err
	}

	namespace := ref.Namespace
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		namespace = ""
	}

	return a.Client.Resource(mapping.Resource, namespace), nil
}

// locate gives an object of a kind with namespaces one, and takes that of others away. It returns its reference.
func (a *Applier) locate(o *unstructured.Unstructured, namespace string, custom map[schema.GroupKind]bool) (bundle.Reference, error) {
	gvk := o.GroupVersionKind()
	namespaced := custom[gvk.GroupKind()]

	mapping, err := a.Mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err == nil {
		namespaced = mapping.Scope.Name() == meta.RESTScopeNameNamespace
	}

	if _, defined := custom[gvk.GroupKind()]; err != nil && (!meta.IsNoMatchError(err) || !defined) {
		return bundle.ReferenceOf(o), err
	}

	switch {
	case !namespaced:
		o.SetNamespace("")
	case o.GetNamespace() == "" && namespace != "":
		o.SetNamespace(namespace)
	case o.GetNamespace() == "":
		o.SetNamespace(metav1.NamespaceDefault)
	}

	return bundle.ReferenceOf(o), nil
}

// send applies an object, or tries it without writing.
func (a *Applier) send(
	ctx context.Context,
	o *unstructured.Unstructured,
	ref bundle.Reference,
	dryRun bool,
) (*unstructured.Unstructured, error) {
	resource, err := a.resourceOf(ref)
	if err != nil {
		return nil, err
	}

	options := metav1.ApplyOptions{FieldManager: a.fieldManager(), Force: a.Force}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}

	return resource.Apply(ctx, ref.Name, o, options)
}

// read returns an object, or nil if there is none.
func (a *Applier) read(ctx context.Context, ref bundle.Reference) (*unstructured.Unstructured, error) {
	resource, err := a.resourceOf(ref)
	if meta.IsNoMatchError(err) {
		return nil, nil // an object of a kind that does not exist
	}

	if err != nil {
		return nil, fmt.Errorf("read %s: %w", ref, err)
	}

	live, err := resource.Get(ctx, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}

	if err != nil {
		return nil, fmt.Errorf("read %s: %w", ref, err)
	}

	return live, nil
}

// explain returns an error of an apply with the object and, for a conflict, the fields and their managers.
func explain(ref bundle.Reference, err error) error {
	owners := conflicts(err)

	switch {
	case err == nil:
		return nil

	case len(owners) > 0:
		return diag.WithHint(
			fmt.Errorf("apply %s: %w: %s", ref, ErrConflict, strings.Join(owners, ", ")),
			"remove the fields from the manifest, or take them over with --force-conflicts",
		)

	case meta.IsNoMatchError(err):
		return diag.WithHint(
			fmt.Errorf("apply %s: the cluster does not have kind %s of %s", ref, ref.Kind, ref.Group+"/"+ref.Version),
			"add the CustomResourceDefinition to the add-on, or name the add-on that has it in dependsOn",
		)
	}

	return fmt.Errorf("apply %s: %w", ref, err)
}

// conflicts returns the fields that other managers own, as the API server names them.
func conflicts(err error) []string {
	var status apierrors.APIStatus
	if !apierrors.IsConflict(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}

	manager := regexp.MustCompile(`conflict with "([^"]*)"`)
	var out []string

	for _, cause := range status.Status().Details.Causes {
		if cause.Type != metav1.CauseTypeFieldManagerConflict {
			continue
		}

		owner := cause.Message
		if found := manager.FindStringSubmatch(cause.Message); found != nil {
			owner = found[1]
		}

		out = append(out, fmt.Sprintf("%s is owned by %s", cause.Field, owner))
	}

	return out
}

// notifyf reports a message.
func (a *Applier) notifyf(format string, args ...any) {
	if a.Notify != nil {
		a.Notify(fmt.Sprintf(format, args...))
	}
}
