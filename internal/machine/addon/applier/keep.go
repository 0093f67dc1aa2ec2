// SPDX-License-Identifier: Apache-2.0

package applier

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/machine/addon/bundle"
)

// Deletes reports whether the applier deletes an object that its add-on no longer has. All are the inventories that can
// have claims in a namespace: the deletion of a namespace deletes them, too.
func (a *Applier) Deletes(ref bundle.Reference, all []Inventory) bool {
	switch {
	case ref.IsVolume():
		return a.DeleteVolumes
	case !ref.IsProtected():
		return true
	case !a.DeleteProtected:
		return false
	}

	return a.DeleteVolumes || !ref.IsNamespace() || !hasVolumes(all, ref.Name)
}

// hasVolumes reports whether an inventory has a claim in a namespace.
func hasVolumes(all []Inventory, namespace string) bool {
	return slices.ContainsFunc(all, func(i Inventory) bool {
		return slices.ContainsFunc(i.Objects, func(e Entry) bool { return e.IsVolume() && e.Namespace == namespace })
	})
}

// checkVolumes refuses to delete a namespace that has claims, unless volumes may be deleted. No inventory has the claims
// that StatefulSets and users create.
func (a *Applier) checkVolumes(ctx context.Context, ref bundle.Reference) error {
	if !ref.IsNamespace() || a.DeleteVolumes {
		return nil
	}

	claims := schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}
	list, err := a.Client.Resource(claims, ref.Name).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("delete %s: list its PersistentVolumeClaims: %w", ref, err)
	}

	for _, o := range list.Items {
		if o.GetDeletionTimestamp() == nil {
			return diag.WithHint(
				fmt.Errorf("delete %s: it has %s", ref, bundle.ReferenceOf(&o)),
				"rerun with --delete-volumes to delete the volumes, too, or without --delete-namespaces-and-crds",
			)
		}
	}

	return nil
}
