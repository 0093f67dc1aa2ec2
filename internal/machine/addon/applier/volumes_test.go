// SPDX-License-Identifier: Apache-2.0

package applier_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/addon/applier"
	"github.com/slipway-k8s/slipway/internal/machine/addon/bundle"
)

func claim(namespace, name string) string {
	return "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {namespace: " + namespace + ", name: " + name + "}\n" +
		"spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n---\n"
}

func volume(name string) string {
	return "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: " + name + "}\n" +
		"spec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, hostPath: {path: /data}}\n---\n"
}

// actions returns what steps do with each object.
func actions(steps []applier.Step) map[string]applier.Action {
	out := map[string]applier.Action{}
	for _, s := range steps {
		out[s.Object.String()] = s.Action
	}

	return out
}

// checkVolumes: a version that renames or drops a claim deletes no data.
func checkVolumes(f *fixture) {
	addon := v1alpha1.Addon{Name: "data", Version: "1.0.0"}
	f.apply(release(f.t, addon, 1, namespace("data")+claim("data", "before")+volume("data-before")+configMap("data", "before", "1")))
	addon.Version = "2.0.0"
	after := release(f.t, addon, 1, namespace("data")+claim("data", "after"))
	f.apply(after)
	claims := f.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}).Namespace("data")
	if live, err := claims.Get(f.t.Context(), "before", metav1.GetOptions{}); err != nil || live.GetDeletionTimestamp() != nil {
		f.t.Errorf("the claim of the version before was deleted: %v", err)
	}
	volumes := f.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumes"})
	if live, err := volumes.Get(f.t.Context(), "data-before", metav1.GetOptions{}); err != nil || live.GetDeletionTimestamp() != nil {
		f.t.Errorf("the volume of the version before was deleted: %v", err)
	}
	a, _, _ := f.applier(-1, nil)
	a.DeleteVolumes = true
	plan, err := a.Plan(f.t.Context(), "test", []applier.Release{after})
	if err != nil || plan.Addons[0].Changes() != 2 {
		f.t.Errorf("asked to delete volumes: %+v, %v", plan, err)
	}
	a.DeleteVolumes = false
	a.DeleteProtected = true
	plan, err = a.Plan(f.t.Context(), "test", []applier.Release{release(f.t, addon, 1, configMap("default", "instead", "1"))})
	if err != nil {
		f.t.Fatal(err)
	}
	if got := actions(plan.Addons[0].Steps)["Namespace data"]; got != applier.Keep {
		f.t.Errorf("asked to delete namespaces, and not volumes: the namespace of the claims has action %q", got)
	}
}

// checkForeignClaim: a namespace with a claim that no add-on has, such as that of a StatefulSet, is not deleted.
func checkForeignClaim(f *fixture) {
	f.apply(release(f.t, v1alpha1.Addon{Name: "stateful", Version: "1.0.0"}, 1, namespace("stateful")))
	objects, err := bundle.ReadObjects([]byte(claim("stateful", "data-web-0")))
	if err != nil {
		f.t.Fatal(err)
	}
	claims := f.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}).Namespace("stateful")
	if _, err := claims.Create(f.t.Context(), objects[0], metav1.CreateOptions{}); err != nil {
		f.t.Fatal(err)
	}
	a, _, _ := f.applier(-1, nil)
	a.DeleteProtected = true
	all, err := a.Inventories(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	deletions, err := a.PlanDeletion(all, []string{"stateful"})
	if err != nil {
		f.t.Fatal(err)
	}
	err = a.Delete(f.t.Context(), deletions[0])
	if err == nil || !strings.Contains(err.Error(), "delete Namespace stateful: it has PersistentVolumeClaim stateful/data-web-0") {
		f.t.Errorf("got %v", err)
	}
	namespaces := f.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	if live, err := namespaces.Get(f.t.Context(), "stateful", metav1.GetOptions{}); err != nil || live.GetDeletionTimestamp() != nil {
		f.t.Errorf("the namespace was deleted: %v", err)
	}
}

// checkPruneOfOthers: labels of kops on an object of another add-on, also of another channel, do not delete it.
func checkPruneOfOthers(f *fixture) {
	selector := map[string]string{"addon.kops.k8s.io/name": "shared"}
	other := release(f.t, v1alpha1.Addon{Name: "other", Version: "1.0.0", Selector: selector}, 1, configMap("default", "of-other", "1"))
	other.Channel = "elsewhere"
	a, _, _ := f.applier(-1, nil)
	plan, err := a.Plan(f.t.Context(), "elsewhere", []applier.Release{other})
	if err == nil {
		_, err = a.Apply(f.t.Context(), plan)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	for _, name := range []string{"leaves", "taken"} {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
		o.SetName(name)
		o.SetLabels(selector)
		if _, err := f.client.Resource(configMaps).Namespace("default").Create(f.t.Context(), o, metav1.CreateOptions{}); err != nil {
			f.t.Fatal(err)
		}
	}
	pruner := v1alpha1.Addon{
		Name: "pruner", Version: "1.0.0",
		Prune: []v1alpha1.AddonPruneKind{{Kind: "ConfigMap", LabelSelector: "addon.kops.k8s.io/name=shared", Namespaces: []string{"default"}}},
	}
	plan, err = a.Plan(f.t.Context(), "test", []applier.Release{release(f.t, pruner, 1, configMap("default", "of-pruner", "1"))})
	if err != nil {
		f.t.Fatal(err)
	}
	want := map[string]applier.Action{
		"ConfigMap default/of-pruner": applier.Create,
		"ConfigMap default/leaves":    applier.Delete,
		"ConfigMap default/taken":     applier.Delete,
	}
	if diff := cmp.Diff(want, actions(plan.Addons[0].Steps)); diff != "" {
		f.t.Error(diff)
	}
	// Between the plan and the apply, another add-on takes an object over.
	taken := release(f.t, v1alpha1.Addon{Name: "taker", Version: "1.0.0"}, 1, configMap("default", "taken", "1"))
	f.apply(taken)
	if _, err := a.Apply(f.t.Context(), plan); err != nil {
		f.t.Fatal(err)
	}
	names := f.names(configMaps)
	if !slices.Contains(names, "default/of-other") || !slices.Contains(names, "default/taken") {
		f.t.Errorf("an object of another add-on was deleted: %q", names)
	}
	if _, err := f.client.Resource(configMaps).Namespace("default").Get(f.t.Context(), "leaves", metav1.GetOptions{}); err == nil {
		f.t.Error("the object of no add-on is left")
	}
}

// TestNamespaceOfClaims: a namespace is kept while an add-on, also another one, has a claim in it that is kept.
func TestNamespaceOfClaims(t *testing.T) {
	entry := func(kind, namespace, name string) applier.Entry {
		var e applier.Entry
		e.Version = "v1"
		e.Kind = kind
		e.Namespace = namespace
		e.Name = name

		return e
	}
	all := []applier.Inventory{
		{Name: "base", Objects: []applier.Entry{entry("Namespace", "", "data"), entry("Namespace", "", "empty")}},
		{Name: "database", Objects: []applier.Entry{entry("PersistentVolume", "", "disk"), entry("PersistentVolumeClaim", "data", "disk")}},
	}
	for _, c := range []struct {
		name string
		a    applier.Applier
		want map[string]applier.Action
	}{
		{"neither", applier.Applier{}, map[string]applier.Action{
			"Namespace data": applier.Keep, "Namespace empty": applier.Keep,
			"PersistentVolume disk": applier.Keep, "PersistentVolumeClaim data/disk": applier.Keep,
		}},
		{"namespaces", applier.Applier{DeleteProtected: true}, map[string]applier.Action{
			"Namespace data": applier.Keep, "Namespace empty": applier.Delete,
			"PersistentVolume disk": applier.Keep, "PersistentVolumeClaim data/disk": applier.Keep,
		}},
		{"volumes", applier.Applier{DeleteVolumes: true}, map[string]applier.Action{
			"Namespace data": applier.Keep, "Namespace empty": applier.Keep,
			"PersistentVolume disk": applier.Delete, "PersistentVolumeClaim data/disk": applier.Delete,
		}},
		{"both", applier.Applier{DeleteProtected: true, DeleteVolumes: true}, map[string]applier.Action{
			"Namespace data": applier.Delete, "Namespace empty": applier.Delete,
			"PersistentVolume disk": applier.Delete, "PersistentVolumeClaim data/disk": applier.Delete,
		}},
	} {
		deletions, err := c.a.PlanDeletion(all, []string{"base", "database"})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, actions(slices.Concat(deletions[0].Steps, deletions[1].Steps))); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}
