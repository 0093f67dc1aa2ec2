// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Masterminds/semver/v3"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/slipway-k8s/slipway/internal/cluster/addons/source"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/metricsgate"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

const (
	metricsAudience = "slipway-metrics"
	gateNamespace   = "monitoring-nodes"
)

// gateLab is a real API server with the objects of the channel examples/monitoring, and a gate that has only those of its own
// account.
type gateLab struct {
	*testing.T
	realAPI
	gate  *httptest.Server
	asked int
}

func newGateLab(t *testing.T) *gateLab {
	t.Helper()
	l := &gateLab{T: t}
	key, err := pki.NewKey(pki.ServiceAccountKey) // as a cluster has it
	l.check(err)
	l.realAPI = startRealAPI(t, signWith(t, key, ""))
	l.createChannel()
	served := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		l.asked++
		_, _ = io.WriteString(w, "measured 1\n")
	}))
	t.Cleanup(served.Close)
	etcd, err := metricsgate.ParseSource("etcd=" + served.URL + "/metrics")
	l.check(err)
	own := rest.AnonymousClientConfig(l.config)
	own.BearerToken = l.token(gateNamespace, "machine-metrics")
	client, err := rest.HTTPClientFor(own)
	l.check(err)
	l.gate = httptest.NewServer(&metricsgate.Gate{
		Sources: map[string]metricsgate.Source{"etcd": etcd},
		Reviews: metricsgate.NewReviewer(kube.Client{Server: l.server.URL, HTTP: client}, metricsAudience, time.Now),
		Client:  metricsgate.NewSourceClient(),
		Token:   func() (string, error) { return own.BearerToken, nil },
		Log:     slog.New(slog.DiscardHandler),
	})
	t.Cleanup(l.gate.Close)

	return l
}

func (l *gateLab) check(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

// createChannel creates the objects of the channel, and checks that the API server admits the pods of its workloads, with the Pod
// Security of their namespaces.
func (l *gateLab) createChannel() {
	l.Helper()
	text, err := os.ReadFile("../../examples/monitoring/channel.yaml")
	l.check(err)
	channel, _ := manifest.ParseAddonChannel(text)
	directory, err := filepath.Abs("../../examples/monitoring")
	l.check(err)
	reader := source.Reader{Directory: directory, Kubernetes: semver.MustParse("1.36.3"), Values: map[string]string{
		"cluster.imagePrefix": "", "cluster.name": "demo", "cluster.networkCIDR": "10.80.0.0/16",
	}}
	client, err := dynamic.NewForConfig(l.config)
	l.check(err)
	for _, a := range channel.Spec.Addons {
		objects, err := reader.Objects(l.Context(), a)
		l.check(err)
		isNamespace := func(o *unstructured.Unstructured) bool { return o.GetKind() == "Namespace" }
		others := slices.DeleteFunc(slices.Clone(objects), isNamespace)
		namespaces := slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool { return !isNamespace(o) })
		for _, o := range slices.Concat(namespaces, others) {
			l.create(client, o, a.Namespace)
			if template, found, _ := unstructured.NestedMap(o.Object, "spec", "template"); found {
				l.admit(client, o.GetName(), template, a.Namespace)
			}
		}
	}
}

// create creates an object, in the namespace if it names none.
func (l *gateLab) create(client dynamic.Interface, o *unstructured.Unstructured, namespace string, dryRun ...string) {
	l.Helper()
	kind := o.GroupVersionKind()
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	options := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict, DryRun: dryRun}
	isGlobal := slices.Contains([]string{"Namespace", "ClusterRole", "ClusterRoleBinding"}, kind.Kind)
	var err error
	if isGlobal {
		_, err = client.Resource(resource).Create(l.Context(), o, options)
	} else {
		_, err = client.Resource(resource).Namespace(cmp.Or(o.GetNamespace(), namespace)).Create(l.Context(), o, options)
	}
	if err != nil {
		l.Fatalf("%s %s: %v", kind.Kind, o.GetName(), err)
	}
}

// admit checks that the API server would create the pod of a template.
func (l *gateLab) admit(client dynamic.Interface, name string, template map[string]any, namespace string) {
	l.Helper()
	pod := &unstructured.Unstructured{Object: template}
	pod.SetAPIVersion("v1")
	pod.SetKind("Pod")
	pod.SetName(name)
	l.create(client, pod, namespace, metav1.DryRunAll)
}

// token returns a token of a service account, which it creates if it does not exist.
func (l *gateLab) token(namespace, name string, audiences ...string) string {
	l.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, _ = l.api.CoreV1().ServiceAccounts(namespace).Create(l.Context(), account, metav1.CreateOptions{})

	return l.accountToken(namespace, name, audiences...)
}

// get returns the status and the body of an answer of the gate.
func (l *gateLab) get(path, token string) (int, string) {
	l.Helper()
	r, err := http.NewRequestWithContext(l.Context(), http.MethodGet, l.gate.URL+path, nil)
	l.check(err)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := http.DefaultClient.Do(r)
	l.check(err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	l.check(err)

	return answer.StatusCode, string(body)
}

// TestMetricsGate: of all pods only Prometheus reads the metrics of etcd, with a token that is good for nothing else; a real API server
// decides. Seen to succeed without the check of the audience, and without that of the right.
func TestMetricsGate(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	l := newGateLab(t)
	good := l.token("monitoring", "prometheus", metricsAudience)
	for attempt, c := range map[string]struct {
		path, token string
		want        int
	}{
		"without a token":                                {"/metrics/etcd", "", 401},
		"with a forged signature":                        {"/metrics/etcd", good[:len(good)-8] + "AAAAAAAA", 401},
		"with Prometheus' token for the API server":      {"/metrics/etcd", l.token("monitoring", "prometheus"), 401},
		"with Prometheus' token for another audience":    {"/metrics/etcd", l.token("monitoring", "prometheus", "sts.amazonaws.com"), 401},
		"as the administrator of the API server":         {"/metrics/etcd", l.config.BearerToken, 401},
		"as another pod with the audience":               {"/metrics/etcd", l.token("default", "pod", metricsAudience), 403},
		"as another account of the namespace monitoring": {"/metrics/etcd", l.token("monitoring", "alertmanager", metricsAudience), 403},
		"as the gate of a worker":                        {"/metrics/etcd", l.token(gateNamespace, "machine-metrics", metricsAudience), 403},
		"as the gate of the control plane":               {"/metrics/etcd", l.token(gateNamespace, "control-plane-metrics", metricsAudience), 403},
		"as Prometheus, but another path":                {"/metrics/etcd/../../v2/keys", good, 403},
	} {
		if status, body := l.get(c.path, c.token); status != c.want || strings.Contains(body, "measured") {
			t.Errorf("read metrics %s: %d %s, want %d", attempt, status, body, c.want)
		}
	}
	if l.asked > 0 {
		t.Errorf("etcd was asked %d times for callers without the right", l.asked)
	}
	if status, body := l.get("/metrics/etcd", good); status != 200 || body != "measured 1\n" {
		t.Errorf("Prometheus gets %d %s", status, body)
	}
	l.checkStolenToken(good)
	l.checkPort()
}

// checkStolenToken uses the token that Prometheus sends to machines at the API server, and looks at what the gates may.
func (l *gateLab) checkStolenToken(token string) {
	l.Helper()
	stolen := rest.AnonymousClientConfig(l.config)
	stolen.BearerToken = token
	api, err := kubernetes.NewForConfig(stolen)
	l.check(err)
	if _, err := api.CoreV1().Nodes().List(l.Context(), metav1.ListOptions{}); err == nil || !strings.Contains(err.Error(), "Unauthorized") {
		l.Errorf("the API server accepts the token that Prometheus sends to machines: %v", err)
	}
	for _, account := range []string{"machine-metrics", "control-plane-metrics"} {
		own := rest.AnonymousClientConfig(l.config)
		own.BearerToken = l.token(gateNamespace, account)
		api, err := kubernetes.NewForConfig(own)
		l.check(err)
		_, err = api.Discovery().RESTClient().Get().AbsPath("/openid/v1/jwks").DoRaw(l.Context()) // to refuse forged tokens by itself
		l.check(err)
		for what, err := range attemptsOfGate(l.Context(), api) {
			if err == nil || !strings.Contains(err.Error(), "forbidden") {
				l.Errorf("%s may %s: %v", account, what, err)
			}
		}
	}
}

// attemptsOfGate are requests that root on a machine would like to make with the account of its gate.
func attemptsOfGate(ctx context.Context, api kubernetes.Interface) map[string]error {
	_, secrets := api.CoreV1().Secrets("").List(ctx, metav1.ListOptions{})
	_, pods := api.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	_, nodes := api.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	_, token := api.CoreV1().ServiceAccounts("monitoring").CreateToken(ctx, "prometheus", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})

	return map[string]error{"read secrets": secrets, "read pods": pods, "read nodes": nodes, "make a token of Prometheus": token}
}

// checkPort makes another Service with the port of the gates, to which Prometheus would then send its token.
func (l *gateLab) checkPort() {
	l.Helper()
	other := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "catcher"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, Selector: map[string]string{"app": "catcher"},
			Ports: []corev1.ServicePort{{Port: 443, NodePort: 30082}},
		},
	}
	if _, err := l.api.CoreV1().Services("default").Create(l.Context(), other, metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), "already allocated") {
		l.Errorf("another Service gets the port of the gates: %v", err)
	}
}
