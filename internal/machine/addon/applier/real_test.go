// SPDX-License-Identifier: Apache-2.0

package applier_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/machine/addon/applier"
	"github.com/slipway-k8s/slipway/internal/machine/addon/bundle"
)

// TestRealAPIServer applies add-ons to a real kube-apiserver.
func TestRealAPIServer(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	f := newFixture(t)
	for name, check := range map[string]func(*fixture){
		"a second apply writes nothing":             checkSecondApply,
		"a changed field is a conflict":             checkConflict,
		"fields of others are left alone":           checkForeignFields,
		"what left the add-on is deleted":           checkPrune,
		"a custom kind and its object in one apply": checkCustomKind,
		"an unhealthy add-on stops only dependents": checkUnhealthy,
		"killed at every write":                     checkKilled,
		"a deletion goes in the right order":        checkDeletion,
		"an object moves to another add-on":         checkMove,
		"a refusal writes nothing":                  checkRefusal,
		"what kops prunes by labels":                checkPruneByLabels,
		"two processes do not mix":                  checkTwoProcesses,
		"an apply that does not wait":               checkDoNotWait,
		"a rollback":                                checkRollback,
		"a rollback that is killed at every write":  checkRollbackKilled,
		"volumes stay":                              checkVolumes,
		"the range of Kubernetes versions":          checkKubernetesRange,
		"a namespace with claims of others stays":   checkForeignClaim,
		"no labels prune objects of others":         checkPruneOfOthers,
	} {
		t.Run(name, func(t *testing.T) {
			one := *f
			one.t = t
			check(&one)
		})
	}
	t.Run("fifty add-ons", func(t *testing.T) {
		one := *f
		one.t = t
		checkFifty(&one)
	})
}

func checkSecondApply(f *fixture) {
	r := release(f.t, v1alpha1.Addon{Name: "second", Version: "1.0.0"}, 1,
		namespace("second")+deployment("second", "web", 2)+configMap("second", "a", "1")+configMap("second", "b", "2")+
			"apiVersion: v1\nkind: Secret\nmetadata: {namespace: second, name: s}\nstringData: {password: hunter2}\n")
	f.apply(r)
	f.makeHealthy()
	f.apply(r) // records what defaults of the server changed, if anything
	a, counter, _ := f.applier(-1, nil)
	plan, err := a.Plan(f.t.Context(), "test", []applier.Release{r})
	if err != nil {
		f.t.Fatal(err)
	}
	if !plan.IsEmpty() {
		text, _ := json.MarshalIndent(plan, "", " ")
		f.t.Errorf("the second plan changes something: %s", text)
	}
	results, err := a.Apply(f.t.Context(), plan)
	if err != nil || results[0].Outcome != applier.OutcomeUnchanged {
		f.t.Errorf("%+v, %v", results, err)
	}
	lists := 0
	for _, p := range counter.paths {
		if strings.Contains(p, "labelSelector=slipway.dev%2Faddon") && !strings.Contains(p, "inventory") {
			lists++
		}
	}
	if counter.writes+counter.dryRuns > 0 || lists != 4 {
		f.t.Errorf("%d writes, %d dry runs, %d lists, want only one list for each of 4 kinds:\n%s",
			counter.writes, counter.dryRuns, lists, strings.Join(counter.paths, "\n"))
	}
	secret, err := f.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).Namespace("kube-system").Get(f.t.Context(), "slipway-addon-second", metav1.GetOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	if text, _ := json.Marshal(secret); strings.Contains(string(text), "hunter2") || strings.Contains(string(text), "aHVudGVyMg") {
		f.t.Error("the inventory contains a secret")
	}
}

func checkConflict(f *fixture) {
	r := release(f.t, v1alpha1.Addon{Name: "conflict", Version: "1.0.0"}, 1, deployment("default", "conflict", 2))
	f.apply(r)
	_, err := f.client.Resource(deployments).Namespace("default").Patch(f.t.Context(), "conflict", types.MergePatchType,
		[]byte(`{"spec":{"replicas":5}}`), metav1.PatchOptions{FieldManager: "kubectl-edit"})
	if err != nil {
		f.t.Fatal(err)
	}
	a, counter, _ := f.applier(-1, f.makeHealthy)
	_, err = a.Plan(f.t.Context(), "test", []applier.Release{r})
	if !errors.Is(err, applier.ErrConflict) || !strings.Contains(err.Error(), "Deployment default/conflict") ||
		!strings.Contains(err.Error(), ".spec.replicas is owned by kubectl-edit") || !strings.Contains(strings.Join(diag.Hints(err), " "), "--force-conflicts") {
		f.t.Errorf("got %v", err)
	}
	if counter.writes > 0 {
		f.t.Error("a conflict was followed by writes")
	}
	a.Force = true
	plan, err := a.Plan(f.t.Context(), "test", []applier.Release{r})
	if err != nil {
		f.t.Fatal(err)
	}
	want := []bundle.Difference{{Path: ".spec.replicas", Before: "5", After: "2"}}
	if diff := cmp.Diff(want, plan.Addons[0].Steps[0].Differences); diff != "" {
		f.t.Error(diff)
	}
	if _, err := a.Apply(f.t.Context(), plan); err != nil {
		f.t.Fatal(err)
	}
	again, _, _ := f.applier(-1, nil)
	if plan, err := again.Plan(f.t.Context(), "test", []applier.Release{r}); err != nil || !plan.IsEmpty() {
		f.t.Errorf("after the conflict: %+v, %v", plan, err)
	}
}

// checkForeignFields: an annotation of another controller and a scaled Deployment without replicas in the manifest are no
// drift.
func checkForeignFields(f *fixture) {
	text := strings.Replace(deployment("default", "foreign", 1), "  replicas: 1\n", "", 1)
	r := release(f.t, v1alpha1.Addon{Name: "foreign", Version: "1.0.0"}, 1, text)
	f.apply(r)
	_, err := f.client.Resource(deployments).Namespace("default").Patch(f.t.Context(), "foreign", types.MergePatchType,
		[]byte(`{"spec":{"replicas":3},"metadata":{"annotations":{"deployment.kubernetes.io/revision":"1"}}}`), metav1.PatchOptions{FieldManager: "autoscaler"})
	if err != nil {
		f.t.Fatal(err)
	}
	a, counter, _ := f.applier(-1, nil)
	plan, err := a.Plan(f.t.Context(), "test", []applier.Release{r})
	if err != nil || !plan.IsEmpty() || counter.dryRuns > 0 {
		f.t.Errorf("%+v, %v, %d dry runs", plan, err, counter.dryRuns)
	}
}

func checkPrune(f *fixture) {
	addon := v1alpha1.Addon{Name: "prune", Version: "1.0.0"}
	f.apply(release(f.t, addon, 1, namespace("prune")+configMap("prune", "stays", "1")+configMap("prune", "leaves", "1")))
	addon.Version = "1.1.0"
	f.apply(release(f.t, addon, 1, configMap("prune", "stays", "1")))
	maps := slices.DeleteFunc(f.names(configMaps), func(n string) bool { return !strings.HasPrefix(n, "prune/") })
	if diff := cmp.Diff([]string{"prune/stays"}, maps); diff != "" {
		f.t.Error(diff)
	}
	i := f.inventory("prune")
	kept := slices.IndexFunc(i.Objects, func(e applier.Entry) bool { return e.Kind == "Namespace" && e.Kept })
	if i.Version != "1.1.0" || i.State != applier.Ready || len(i.Objects) != 2 || kept < 0 {
		f.t.Errorf("%+v", i)
	}
	f.apply(release(f.t, addon, 1, configMap("prune", "stays", "1")))
	if diff := cmp.Diff(i.Objects, f.inventory("prune").Objects); diff != "" {
		f.t.Error(diff)
	}
	namespaces := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	if live, err := f.client.Resource(namespaces).Get(f.t.Context(), "prune", metav1.GetOptions{}); err != nil || live.GetDeletionTimestamp() != nil {
		f.t.Errorf("the namespace: %v", err)
	}
}

func checkCustomKind(f *fixture) {
	addon := v1alpha1.Addon{
		Name: "custom", Version: "1.0.0", Namespace: "custom", Timeout: "10s",
		HealthChecks: []v1alpha1.AddonHealthCheck{{APIVersion: "example.com/v1", Kind: "Widget", Namespace: "custom", Name: "w", Condition: "Ready"}},
	}
	text := "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\nspec: {size: 3}\n---\n" + definition + namespace("custom")
	a, _, _ := f.applier(-1, nil)
	plan, err := a.Plan(f.t.Context(), "test", []applier.Release{release(f.t, addon, 1, text)})
	if err != nil {
		f.t.Fatal(err)
	}
	_, err = a.Apply(f.t.Context(), plan)
	if err == nil || !strings.Contains(err.Error(), "Widget.example.com custom/w is not healthy after 10s: condition Ready is not set") {
		f.t.Errorf("got %v", err)
	}
	widgets := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	if _, err := f.client.Resource(widgets).Namespace("custom").Get(f.t.Context(), "w", metav1.GetOptions{}); err != nil {
		f.t.Error(err)
	}
	addon.HealthChecks = nil
	f.apply(release(f.t, addon, 1, text))
	f.apply(release(f.t, v1alpha1.Addon{Name: "custom", Version: "2.0.0"}, 1, configMap("default", "instead", "1")))
	if live, err := f.client.Resource(crds).Get(f.t.Context(), "widgets.example.com", metav1.GetOptions{}); err != nil || live.GetDeletionTimestamp() != nil {
		f.t.Errorf("the definition was pruned: %v", err)
	}
	if _, err := f.client.Resource(widgets).Namespace("custom").Get(f.t.Context(), "w", metav1.GetOptions{}); err == nil {
		f.t.Error("the object of the custom kind was not pruned")
	}
	a, _, _ = f.applier(-1, nil)
	a.DeleteProtected = true
	plan, err = a.Plan(f.t.Context(), "test", []applier.Release{release(f.t, v1alpha1.Addon{Name: "custom", Version: "2.0.0"}, 1, configMap("default", "instead", "1"))})
	if err != nil || plan.Addons[0].Changes() != 2 {
		f.t.Errorf("asked to delete the definition and the namespace: %+v, %v", plan, err)
	}
}
