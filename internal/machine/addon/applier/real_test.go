// SPDX-License-Identifier: Apache-2.0

package applier_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/machine/addon/apitest"
	"github.com/slipway-k8s/slipway/internal/machine/addon/applier"
	"github.com/slipway-k8s/slipway/internal/machine/addon/bundle"
)

// errKilled is what requests get after the process was "killed".
var errKilled = errors.New("killed")

// requests counts requests, and fails all of them from a given write on.
type requests struct {
	next http.RoundTripper

	mu            sync.Mutex
	reads, writes int
	dryRuns       int
	killAt        int // number of writes that succeed; negative: all
	killed        bool
	answerLost    bool // the write at which the process is killed is carried out
	paths         []string
}

func (r *requests) RoundTrip(req *http.Request) (*http.Response, error) {
	r.mu.Lock()
	dry := strings.Contains(req.URL.RawQuery, "dryRun=All")
	switch {
	case req.Method == http.MethodGet:
		r.reads++
	case dry:
		r.dryRuns++
	default:
		if r.killAt >= 0 && r.writes >= r.killAt {
			r.killed = true
		}
		r.writes++
	}
	r.paths = append(r.paths, req.Method+" "+req.URL.String())
	killed := r.killed
	last := killed && r.answerLost
	if killed {
		r.answerLost = false
	}
	r.mu.Unlock()
	if last {
		if resp, err := r.next.RoundTrip(req); err == nil {
			_ = resp.Body.Close()
		}
	}
	if killed {
		return nil, errKilled
	}

	return r.next.RoundTrip(req)
}

// fixture is an API server, and an applier that counts its requests.
type fixture struct {
	t      *testing.T
	config *rest.Config
	client dynamic.Interface
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", apitest.Start(t).Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1

	return &fixture{t: t, config: config, client: dynamic.NewForConfigOrDie(config)}
}

// applier returns a new one, as another process would have it. Its clock moves only by waiting; whenever it waits,
// controllers is called, which stands for the controllers.
func (f *fixture) applier(killAt int, controllers func()) (*applier.Applier, *requests, *[]string) {
	f.t.Helper()
	counter := &requests{killAt: killAt}
	config := rest.CopyConfig(f.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { counter.next = next; return counter })
	now := time.Now()
	var notes []string

	return &applier.Applier{
		Client: dynamic.NewForConfigOrDie(config),
		Mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discovery.NewDiscoveryClientForConfigOrDie(config))),
		Now:    func() time.Time { return now },
		Wait: func(ctx context.Context, d time.Duration) error {
			now = now.Add(d)
			if controllers != nil {
				controllers()
			}
			time.Sleep(20 * time.Millisecond)
			return ctx.Err()
		},
		Notify: func(m string) { notes = append(notes, m) },
	}, counter, &notes
}

func release(t *testing.T, a v1alpha1.Addon, wave int, text string) applier.Release {
	t.Helper()
	objects, err := bundle.ReadObjects([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	objects, err = bundle.Prepare(a.Name, objects, nil, a.Selector)
	if err != nil {
		t.Fatal(err)
	}

	return applier.Release{Addon: a, Channel: "test", Wave: wave, Objects: objects}
}

// apply plans and applies releases with a new applier.
func (f *fixture) apply(releases ...applier.Release) {
	f.t.Helper()
	a, _, _ := f.applier(-1, f.makeHealthy)
	plan, err := a.Plan(f.t.Context(), "test", releases)
	if err == nil {
		_, err = a.Apply(f.t.Context(), plan)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

var (
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	configMaps  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	crds        = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	pods        = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
)

// makeHealthy reports all Deployments as available, as their controller would.
func (f *fixture) makeHealthy() {
	f.t.Helper()
	list, err := f.client.Resource(deployments).List(f.t.Context(), metav1.ListOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	for _, d := range list.Items {
		if strings.HasPrefix(d.GetName(), "broken") {
			continue
		}
		replicas, _, _ := unstructured.NestedInt64(d.Object, "spec", "replicas")
		status := fmt.Sprintf(`{"status":{"observedGeneration":%d,"replicas":%d,"updatedReplicas":%d,"readyReplicas":%d,"availableReplicas":%d}}`,
			d.GetGeneration(), replicas, replicas, replicas, replicas)
		_, err := f.client.Resource(deployments).Namespace(d.GetNamespace()).Patch(f.t.Context(), d.GetName(), types.MergePatchType,
			[]byte(status), metav1.PatchOptions{FieldManager: "controller"}, "status")
		if err != nil {
			f.t.Fatal(err)
		}
	}
}

func configMap(namespace, name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: %s, name: %s}\ndata: {key: %q}\n---\n", namespace, name, value)
}

func namespace(name string) string {
	return "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + name + "}\n---\n"
}

func deployment(namespace, name string, replicas int) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {namespace: %s, name: %s}
spec:
  replicas: %d
  selector: {matchLabels: {app: %s}}
  template:
    metadata: {labels: {app: %s}}
    spec:
      containers:
      - name: main
        image: example.com/image:1
        ports: [{containerPort: 80}]
        resources: {requests: {cpu: 1000m, memory: 0.5Gi}}
---
`, namespace, name, replicas, name, name)
}

const definition = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets, singular: widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}
---
`

// names returns the objects of a kind that belong to add-ons, as namespace/name.
func (f *fixture) names(resource schema.GroupVersionResource) []string {
	f.t.Helper()
	list, err := f.client.Resource(resource).List(f.t.Context(), metav1.ListOptions{LabelSelector: bundle.OwnerLabel})
	if err != nil {
		f.t.Fatal(err)
	}
	var out []string
	for _, o := range list.Items {
		out = append(out, strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/"))
	}
	slices.Sort(out)

	return out
}

// inventory returns the inventory of an add-on.
func (f *fixture) inventory(name string) applier.Inventory {
	f.t.Helper()
	a, _, _ := f.applier(-1, nil)
	all, err := a.Inventories(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	for _, i := range all {
		if i.Name == name {
			return i
		}
	}

	return applier.Inventory{}
}

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
	if interrupted != 8 { // 2 inventories, 2 creations, 2 updates, 2 deletions
		f.t.Errorf("%d interruptions, want 8", interrupted)
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
		text := namespace(name)
		for m := range 39 {
			text += configMap(name, fmt.Sprintf("object-%02d", m), "value")
		}
		all = append(all, release(f.t, v1alpha1.Addon{Name: name, Version: "1.0.0"}, 1, text))
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
