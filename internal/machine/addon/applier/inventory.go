// SPDX-License-Identifier: Apache-2.0

package applier

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/machine/addon/bundle"
)

// State is how far an add-on has come.
type State string

// The states. An add-on that is Applying was interrupted, or another process applies it.
const (
	Applying State = "Applying"
	Ready    State = "Ready"
	Failed   State = "Failed"
	Deleting State = "Deleting"
	// Deleted is the state of an add-on of which only namespaces, CustomResourceDefinitions and volumes are left.
	Deleted State = "Deleted"
)

// Inventory is what a cluster has of one add-on.
type Inventory struct {
	// Name of the add-on.
	Name string `json:"name"`
	// Channel that the add-on was applied from.
	Channel string `json:"channel"`
	// Version that was applied last and became healthy. Empty: none.
	Version string `json:"version"`
	// Target is the version that is being applied, or that failed.
	Target string `json:"target,omitempty"`
	// KubernetesVersion is the range of versions of Kubernetes that it is for. Empty: all, or it was applied by a
	// slipway that did not record the range.
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
	State             State  `json:"state"`
	// Message is why the state is Failed.
	Message string `json:"message,omitempty"`
	// DependsOn are the add-ons that must not be deleted before this one.
	DependsOn []string `json:"dependsOn,omitempty"`
	// Revision is the number of the version that became healthy last, and RevisionHash the hash of its content.
	Revision     int    `json:"revision,omitempty"`
	RevisionHash string `json:"revisionHash,omitempty"`
	// OldestRevision is the oldest one that may exist.
	OldestRevision int `json:"oldestRevision,omitempty"`
	// RollbackTo is the revision that a rollback returns to, until it has ended.
	RollbackTo int `json:"rollbackTo,omitempty"`
	// Objects that may exist, in the order in which they are applied.
	Objects []Entry `json:"objects"`

	resourceVersion string // of the Secret; empty: there is none yet
}

// Entry is one object of an inventory.
type Entry struct {
	bundle.Reference

	// Desired is the hash of the object in its manifest; empty: it was not applied yet.
	Desired string `json:"desired,omitempty"`
	// Live is the hash of the fields that were applied, as the API server has stored them.
	Live string `json:"live,omitempty"`
	// Kept is set for an object that the add-on no longer has and that was not deleted.
	Kept bool `json:"kept,omitempty"`
}

// equals reports whether two inventories are the same in the cluster.
func (i Inventory) equals(other Inventory) bool {
	left, leftErr := json.Marshal(i)
	right, rightErr := json.Marshal(other)

	return leftErr == nil && rightErr == nil && i.resourceVersion == other.resourceVersion && bytes.Equal(left, right)
}

// find returns the entry of an object.
func (i Inventory) find(ref bundle.Reference) (Entry, bool) {
	at := slices.IndexFunc(i.Objects, func(e Entry) bool { return e.Unversioned() == ref.Unversioned() })
	if at < 0 {
		return Entry{}, false
	}

	return i.Objects[at], true
}

// with returns the inventory with an entry set.
func (i Inventory) with(e Entry) Inventory {
	i = i.without(e.Reference)
	i.Objects = append(i.Objects, e)
	slices.SortStableFunc(i.Objects, func(a, b Entry) int { return bundle.CompareReferences(a.Reference, b.Reference) })

	return i
}

// without returns the inventory without an object.
func (i Inventory) without(ref bundle.Reference) Inventory {
	same := func(e Entry) bool { return e.Unversioned() == ref.Unversioned() }
	i.Objects = slices.DeleteFunc(slices.Clone(i.Objects), same)

	return i
}

const (
	inventoryNamespace = metav1.NamespaceSystem
	inventoryPrefix    = "slipway-addon-"
	inventoryLabel     = "slipway.dev/addon-inventory"
	inventoryType      = "slipway.dev/addon-inventory"
	inventoryKey       = "inventory.json"
)

// inventories returns the resource of the Secrets.
func (a *Applier) inventories() Resource {
	secrets := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	return a.Client.Resource(secrets, inventoryNamespace)
}

// Inventories returns the inventories of all add-ons, sorted by name.
func (a *Applier) Inventories(ctx context.Context) ([]Inventory, error) {
	list, err := a.inventories().List(ctx, metav1.ListOptions{LabelSelector: inventoryLabel})
	if err != nil {
		return nil, fmt.Errorf("read the inventories of add-ons: %w", err)
	}

	var out []Inventory

	for _, secret := range list.Items {
		i, err := decodeInventory(secret)
		if err != nil {
			return nil, diag.WithHint(
				fmt.Errorf("read Secret %s/%s: %w", secret.GetNamespace(), secret.GetName(), err),
				"restore the Secret from a backup, or delete it and apply the add-on again",
			)
		}

		out = append(out, i)
	}

	slices.SortFunc(out, func(a, b Inventory) int { return strings.Compare(a.Name, b.Name) })

	return out, nil
}

// decodeInventory reads the inventory in a Secret.
func decodeInventory(secret unstructured.Unstructured) (Inventory, error) {
	var out Inventory

	encoded, _, err := unstructured.NestedString(secret.Object, "data", inventoryKey)
	if err != nil {
		return out, err
	}

	text, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return out, err
	}

	if err := json.Unmarshal(text, &out); err != nil {
		return out, err
	}

	if inventoryPrefix+out.Name != secret.GetName() {
		return out, fmt.Errorf("it has the inventory of add-on %q", out.Name)
	}

	out.resourceVersion = secret.GetResourceVersion()

	return out, nil
}

// write writes an inventory and returns it as it is stored. It fails if another process has written it since it was
// read.
func (a *Applier) write(ctx context.Context, i Inventory) (Inventory, error) {
	text, err := json.Marshal(i)
	if err != nil {
		return i, fmt.Errorf("encode the inventory of add-on %s: %w", i.Name, err)
	}

	secret := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1",
		"kind":       "Secret",
		"type":       inventoryType,
		"data":       map[string]any{inventoryKey: base64.StdEncoding.EncodeToString(text)},
	}}

	secret.SetName(inventoryPrefix + i.Name)
	secret.SetNamespace(inventoryNamespace)
	secret.SetLabels(map[string]string{inventoryLabel: i.Name})
	secret.SetResourceVersion(i.resourceVersion)

	var stored *unstructured.Unstructured
	if i.resourceVersion == "" {
		stored, err = a.inventories().Create(ctx, secret, metav1.CreateOptions{FieldManager: a.fieldManager()})
	} else {
		stored, err = a.inventories().Update(ctx, secret, metav1.UpdateOptions{FieldManager: a.fieldManager()})
	}

	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return i, diag.WithHint(
			fmt.Errorf("another process changes add-on %s", i.Name),
			"wait until it has ended, and rerun the command",
		)
	}

	if err != nil {
		return i, fmt.Errorf("write the inventory of add-on %s: %w", i.Name, err)
	}

	i.resourceVersion = stored.GetResourceVersion()

	return i, nil
}

// remove deletes an inventory.
func (a *Applier) remove(ctx context.Context, i Inventory) error {
	err := a.inventories().Delete(ctx, inventoryPrefix+i.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{ResourceVersion: &i.resourceVersion},
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete the inventory of add-on %s: %w", i.Name, err)
	}

	return nil
}
