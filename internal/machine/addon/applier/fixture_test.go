// SPDX-License-Identifier: Apache-2.0

package applier_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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
	"github.com/slipway-k8s/slipway/internal/machine/addon/apitest"
	"github.com/slipway-k8s/slipway/internal/machine/addon/applier"
	"github.com/slipway-k8s/slipway/internal/machine/addon/applier/dynamicclient"
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
		Client: dynamicclient.New(dynamic.NewForConfigOrDie(config)),
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
