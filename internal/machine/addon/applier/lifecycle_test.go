// SPDX-License-Identifier: Apache-2.0

package applier_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/addon/applier"
	"github.com/slipway-k8s/slipway/internal/machine/addon/bundle"
)

func checkUnhealthy(f *fixture) {
	broken := release(f.t, v1alpha1.Addon{Name: "broken", Version: "1.0.0", Timeout: "6s"}, 1, deployment("default", "broken", 1))
	dependent := release(f.t, v1alpha1.Addon{Name: "dependent", Version: "1.0.0", DependsOn: []string{"broken"}}, 2, configMap("default", "dependent", "1"))
	free := release(f.t, v1alpha1.Addon{Name: "free", Version: "1.0.0"}, 1, configMap("default", "free", "1"))
	pod := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "broken-1", "namespace": "default", "labels": map[string]any{"app": "broken"}},
		"spec": map[string]any{"containers": []any{map[string]any{"name": "main", "image": "example.com/none"}}},
	}}
	if _, err := f.client.Resource(pods).Namespace("default").Create(f.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		f.t.Fatal(err)
	}
	_, err := f.client.Resource(pods).Namespace("default").Patch(f.t.Context(), "broken-1", types.MergePatchType,
		[]byte(`{"status":{"containerStatuses":[{"name":"main","image":"x","imageID":"","ready":false,"restartCount":0,"state":{"waiting":{"reason":"ImagePullBackOff","message":"no such image"}}}]}}`),
		metav1.PatchOptions{}, "status")
	if err != nil {
		f.t.Fatal(err)
	}
	a, _, notes := f.applier(-1, f.makeHealthy)
	plan, err := a.Plan(f.t.Context(), "test", []applier.Release{broken, free, dependent})
	if err != nil {
		f.t.Fatal(err)
	}
	results, err := a.Apply(f.t.Context(), plan)
	if err == nil || !strings.Contains(err.Error(), "Deployment default/broken is not healthy after 6s") ||
		!strings.Contains(err.Error(), "pod broken-1: ImagePullBackOff: no such image") {
		f.t.Errorf("got %v", err)
	}
	var outcomes []applier.Outcome
	for _, r := range results {
		outcomes = append(outcomes, r.Outcome)
	}
	if diff := cmp.Diff([]applier.Outcome{applier.OutcomeFailed, applier.OutcomeApplied, applier.OutcomeSkipped}, outcomes); diff != "" {
		f.t.Error(diff)
	}
	if i := f.inventory("broken"); i.State != applier.Failed || i.Version != "" || i.Target != "1.0.0" || i.Message == "" {
		f.t.Errorf("%+v", i)
	}
	if f.inventory("dependent").Name != "" || f.inventory("free").State != applier.Ready {
		f.t.Error("the dependent add-on was applied, or the free one was not")
	}
	if !slices.ContainsFunc(*notes, func(n string) bool { return strings.Contains(n, "broken: waiting for Deployment default/broken") }) {
		f.t.Errorf("no progress was reported: %q", *notes)
	}
	f.apply(release(f.t, v1alpha1.Addon{Name: "broken", Version: "1.0.1"}, 1, deployment("default", "repaired", 1)), free, dependent)
	if i := f.inventory("dependent"); i.State != applier.Ready {
		f.t.Errorf("%+v", i)
	}
}

// checkKilled updates an add-on again and again, killed before or after each write, and applies it again.
func checkKilled(f *fixture) {
	for _, answerLost := range []bool{false, true} {
		checkKilledAt(f, answerLost)
	}
}

func checkKilledAt(f *fixture, answerLost bool) {
	before := release(f.t, v1alpha1.Addon{Name: "killed", Version: "1.0.0"}, 1,
		namespace("killed")+configMap("killed", "same", "1")+configMap("killed", "changes", "1")+configMap("killed", "leaves-1", "1")+
			configMap("killed", "leaves-2", "1")+deployment("killed", "web", 1))
	after := release(f.t, v1alpha1.Addon{Name: "killed", Version: "2.0.0"}, 1,
		namespace("killed")+configMap("killed", "same", "1")+configMap("killed", "changes", "2")+configMap("killed", "new-1", "1")+
			configMap("killed", "new-2", "1")+deployment("killed", "web", 2))
	want := []string{"killed/changes", "killed/new-1", "killed/new-2", "killed/same"}
	interrupted := 0
	for n := 0; ; n++ {
		f.apply(before)
		a, counter, _ := f.applier(n, f.makeHealthy)
		counter.answerLost = answerLost
		plan, err := a.Plan(f.t.Context(), "test", []applier.Release{after})
		if err != nil {
			f.t.Fatal(err)
		}
		_, err = a.Apply(f.t.Context(), plan)
		if !counter.killed {
			if err != nil {
				f.t.Fatal(err)
			}
			break
		}
		interrupted++
		if err == nil {
			f.t.Errorf("killed after %d writes: no error", n)
		}
		f.apply(after)
		maps := slices.DeleteFunc(f.names(configMaps), func(name string) bool { return !strings.HasPrefix(name, "killed/") })
		if diff := cmp.Diff(want, maps); diff != "" {
			f.t.Errorf("killed after %d writes: %s", n, diff)
		}
		if i := f.inventory("killed"); i.State != applier.Ready || i.Version != "2.0.0" || len(i.Objects) != 6 {
			f.t.Errorf("killed after %d writes: %+v", n, i)
		}
		again, counter2, _ := f.applier(-1, nil)
		if plan, err := again.Plan(f.t.Context(), "test", []applier.Release{after}); err != nil || !plan.IsEmpty() || counter2.dryRuns > 0 {
			f.t.Errorf("killed after %d writes, the third plan: %+v, %v, %d dry runs", n, plan, err, counter2.dryRuns)
		}
	}
	if interrupted != 10 { // 2 inventories, 2 creations, 2 updates, 2 deletions, a new revision and the deletion of an old one
		f.t.Errorf("%d interruptions, want 10", interrupted)
	}
}

func checkDeletion(f *fixture) {
	base := release(f.t, v1alpha1.Addon{Name: "base", Version: "1.0.0"}, 1, namespace("base")+configMap("base", "base", "1"))
	top := release(f.t, v1alpha1.Addon{Name: "top", Version: "1.0.0", DependsOn: []string{"base"}}, 2, configMap("base", "top", "1"))
	f.apply(base, top)
	a, _, _ := f.applier(-1, nil)
	all, err := a.Inventories(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	if _, err := a.PlanDeletion(all, []string{"base"}); err == nil || !strings.Contains(err.Error(), "add-on top depends on base") {
		f.t.Errorf("got %v", err)
	}
	if _, err := a.PlanDeletion(all, []string{"none"}); err == nil || !strings.Contains(err.Error(), "the cluster has no add-on none") {
		f.t.Errorf("got %v", err)
	}
	deletions, err := a.PlanDeletion(all, []string{"base", "top"})
	if err != nil || deletions[0].Name != "top" {
		f.t.Fatalf("%+v, %v", deletions, err)
	}
	for _, d := range deletions {
		if err := a.Delete(f.t.Context(), d); err != nil {
			f.t.Fatal(err)
		}
	}
	if f.inventory("top").Name != "" {
		f.t.Error("the inventory of top is left")
	}
	if i := f.inventory("base"); i.State != applier.Deleted || len(i.Objects) != 1 || i.Objects[0].Kind != "Namespace" {
		f.t.Errorf("%+v", i)
	}
	f.apply(base)
	if i := f.inventory("base"); i.State != applier.Ready || i.Version != "1.0.0" {
		f.t.Errorf("after another apply: %+v", i)
	}
}

func checkMove(f *fixture) {
	one := v1alpha1.Addon{Name: "move-one", Version: "1.0.0"}
	two := v1alpha1.Addon{Name: "move-two", Version: "1.0.0"}
	shared := configMap("default", "moves", "1")
	both := []applier.Release{release(f.t, one, 1, shared), release(f.t, two, 1, shared)}
	a, _, _ := f.applier(-1, nil)
	if _, err := a.Plan(f.t.Context(), "test", both); err == nil || !strings.Contains(err.Error(), "ConfigMap default/moves is in add-on move-one, too") {
		f.t.Errorf("got %v", err)
	}
	f.apply(release(f.t, one, 1, shared+configMap("default", "one", "1")), release(f.t, two, 1, configMap("default", "two", "1")))
	get := func() *unstructured.Unstructured {
		live, err := f.client.Resource(configMaps).Namespace("default").Get(f.t.Context(), "moves", metav1.GetOptions{})
		if err != nil {
			f.t.Fatal(err)
		}
		return live
	}
	before := get().GetUID()
	f.apply(release(f.t, one, 1, configMap("default", "one", "1")), release(f.t, two, 1, shared+configMap("default", "two", "1")))
	if live := get(); live.GetUID() != before || live.GetLabels()[bundle.OwnerLabel] != "move-two" {
		f.t.Errorf("the object was created again, or has labels %v", live.GetLabels())
	}
	if n, m := len(f.inventory("move-one").Objects), len(f.inventory("move-two").Objects); n != 1 || m != 2 {
		f.t.Errorf("the inventories have %d and %d objects, want 1 and 2", n, m)
	}
	other := release(f.t, v1alpha1.Addon{Name: "thief", Version: "1.0.0"}, 1, shared)
	other.Channel = "other"
	if _, err := a.Plan(f.t.Context(), "other", []applier.Release{other}); err == nil || !strings.Contains(err.Error(), "belongs to add-on move-two of channel test") {
		f.t.Errorf("got %v", err)
	}
}

// checkRefusal: all objects that the API server refuses are named at once, and nothing is written.
func checkRefusal(f *fixture) {
	bad := release(f.t, v1alpha1.Addon{Name: "bad", Version: "1.0.0"}, 1,
		configMap("default", "fine", "1")+strings.Replace(deployment("default", "bad", 1), "image: example.com/image:1", "imagee: typo", 1)+
			"apiVersion: v1\nkind: Service\nmetadata: {namespace: default, name: bad}\nspec: {ports: [{port: 99999}]}\n---\n"+
			"apiVersion: example.org/v1\nkind: Missing\nmetadata: {namespace: default, name: bad}\n")
	a, counter, _ := f.applier(-1, nil)
	_, err := a.Plan(f.t.Context(), "test", []applier.Release{bad})
	if err == nil || !strings.Contains(err.Error(), "does not have kind Missing of example.org/v1") {
		f.t.Errorf("got %v", err)
	}
	bad.Objects = slices.DeleteFunc(bad.Objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Missing" })
	_, err = a.Plan(f.t.Context(), "test", []applier.Release{bad})
	for _, want := range []string{"apply Deployment default/bad", "imagee", "apply Service default/bad", "99999"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			f.t.Errorf("got %v, want %s", err, want)
		}
	}
	if counter.writes > 0 || f.inventory("bad").Name != "" {
		f.t.Error("a refusal was followed by writes")
	}
}

func checkPruneByLabels(f *fixture) {
	for _, name := range []string{"old", "foreign"} {
		labels := map[string]any{"addon.kops.k8s.io/name": name}
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "kops-" + name, "namespace": "kube-system", "labels": labels}}}
		if _, err := f.client.Resource(configMaps).Namespace("kube-system").Create(f.t.Context(), o, metav1.CreateOptions{}); err != nil {
			f.t.Fatal(err)
		}
	}
	addon := v1alpha1.Addon{
		Name: "kops", Version: "9.99.0", Selector: map[string]string{"addon.kops.k8s.io/name": "old"},
		Prune: []v1alpha1.AddonPruneKind{{Kind: "ConfigMap", LabelSelector: "addon.kops.k8s.io/name=old", Namespaces: []string{"kube-system"}}},
	}
	f.apply(release(f.t, addon, 1, configMap("kube-system", "kops-new", "1")))
	list, err := f.client.Resource(configMaps).Namespace("kube-system").List(f.t.Context(), metav1.ListOptions{LabelSelector: "addon.kops.k8s.io/name"})
	if err != nil {
		f.t.Fatal(err)
	}
	var names []string
	for _, o := range list.Items {
		names = append(names, o.GetName())
	}
	if diff := cmp.Diff([]string{"kops-foreign", "kops-new"}, names); diff != "" {
		f.t.Error(diff)
	}
}

func checkTwoProcesses(f *fixture) {
	r := release(f.t, v1alpha1.Addon{Name: "both", Version: "1.0.0"}, 1, configMap("default", "both", "1"))
	a, _, _ := f.applier(-1, nil)
	plan, err := a.Plan(f.t.Context(), "test", []applier.Release{r})
	if err != nil {
		f.t.Fatal(err)
	}
	f.apply(r)
	if _, err := a.Apply(f.t.Context(), plan); err == nil || !strings.Contains(err.Error(), "another process changes add-on both") {
		f.t.Errorf("got %v", err)
	}
}

// checkFifty applies 50 add-ons of 40 objects and measures it. It prints what docs/design/0014 cites.
func checkFifty(f *fixture) {
	if os.Getenv("SLIPWAY_LONG") == "" {
		f.t.Skip("SKIPPED: takes a minute; set SLIPWAY_LONG=1")
	}
	var all []applier.Release
	for n := range 50 {
		name := fmt.Sprintf("many-%02d", n)
		text := []string{namespace(name)}
		for m := range 39 {
			text = append(text, configMap(name, fmt.Sprintf("object-%02d", m), "value"))
		}
		all = append(all, release(f.t, v1alpha1.Addon{Name: name, Version: "1.0.0"}, 1, strings.Join(text, "")))
	}
	for _, round := range []string{"first", "second"} {
		a, counter, _ := f.applier(-1, nil)
		started := time.Now()
		plan, err := a.Plan(f.t.Context(), "test", all)
		if err == nil {
			_, err = a.Apply(f.t.Context(), plan)
		}
		if err != nil {
			f.t.Fatal(err)
		}
		took := time.Since(started)
		f.t.Logf("%s apply of 2000 objects: %s, %d reads, %d dry runs, %d writes", round, took.Round(time.Millisecond), counter.reads, counter.dryRuns, counter.writes)
		if round == "second" && (counter.writes+counter.dryRuns > 0 || counter.reads > 60 || took > 5*time.Second) {
			f.t.Error("the second apply is more than one request for each kind and namespace, or takes more than 5 s")
		}
	}
}
