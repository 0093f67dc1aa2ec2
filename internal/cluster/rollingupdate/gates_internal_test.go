// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

func TestDeploymentGate(t *testing.T) {
	deployment := func(replicas *int32, available int32, generation, observed int64) *appsv1.Deployment {
		return &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Generation: generation},
			Spec:       appsv1.DeploymentSpec{Replicas: replicas},
			Status:     appsv1.DeploymentStatus{AvailableReplicas: available, ObservedGeneration: observed},
		}
	}

	for name, c := range map[string]struct {
		deployment *appsv1.Deployment
		want       string // empty: the gate passes
	}{
		"available":             {deployment(new(int32(4)), 4, 2, 2), ""},
		"scaled to zero":        {deployment(new(int32(0)), 0, 1, 1), ""},
		"one is missing":        {deployment(new(int32(4)), 3, 2, 2), "gate web: deployment shop/web has 3 of 4 replicas available"},
		"replicas are unset":    {deployment(nil, 0, 1, 1), "has 0 of 1 replicas available"},
		"changed, not seen":     {deployment(new(int32(4)), 4, 3, 2), "has 4 of 4 replicas available"},
		"it does not exist":     {nil, "gate web: read deployment shop/web: "},
		"more than it requires": {deployment(new(int32(4)), 5, 2, 2), ""},
	} {
		client := fake.NewClientset()
		if c.deployment != nil {
			client = fake.NewClientset(c.deployment)
		}

		checker := gateChecker{client: client}
		got := strings.Join(checker.failed(t.Context(), []v1alpha1.Gate{{Name: "web", Deployment: "shop/web"}}), "; ")
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestURLGate(t *testing.T) {
	hang := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/ok":
			w.WriteHeader(http.StatusNoContent)
		case "/moved":
			http.Redirect(w, r, "/ok", http.StatusFound)
		case "/hangs":
			<-hang
		default:
			http.Error(w, "overloaded", http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()

	checker := gateChecker{http: http.DefaultTransport}
	for path, want := range map[string]string{
		"/ok":    "",
		"/moved": "",
		"/bad":   "gate url: GET " + server.URL + "/bad: 503 Service Unavailable",
		"/hangs": "context deadline exceeded",
	} {
		gate := v1alpha1.Gate{Name: "url", URL: server.URL + path, Timeout: "200ms"}
		got := strings.Join(checker.failed(t.Context(), []v1alpha1.Gate{gate}), "; ")
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}

	close(hang) // a server waits for its requests when it is closed
	server.Close()
	gate := v1alpha1.Gate{Name: "url", URL: server.URL + "/ok"}
	if got := checker.failed(t.Context(), []v1alpha1.Gate{gate}); len(got) != 1 || !strings.Contains(got[0], "connection refused") {
		t.Errorf("a stopped server: %q", got)
	}
}

// Gates are reported in the order of the manifest, and only those that do not pass.
func TestGatesKeepTheirOrder(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ok" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer server.Close()

	checker := gateChecker{http: http.DefaultTransport, client: fake.NewClientset()}
	var gates []v1alpha1.Gate
	for _, name := range []string{"x", "ok", "y", "z"} {
		gates = append(gates, v1alpha1.Gate{Name: name, URL: server.URL + "/" + name})
	}

	var names []string
	for _, text := range checker.failed(t.Context(), gates) {
		name, _, _ := strings.Cut(text, ":")
		names = append(names, name)
	}

	if got := strings.Join(names, ", "); got != "gate x, gate y, gate z" {
		t.Errorf("got %s", got)
	}
}

// TestAddonGates: an update waits while an add-on of kube-system has no available pod.
func TestAddonGates(t *testing.T) {
	t.Parallel()
	one := int32(1)
	meta := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	deployment := func(m metav1.ObjectMeta, available int32) *appsv1.Deployment {
		return &appsv1.Deployment{
			ObjectMeta: m, Spec: appsv1.DeploymentSpec{Replicas: &one}, Status: appsv1.DeploymentStatus{AvailableReplicas: available},
		}
	}
	daemons := func(m metav1.ObjectMeta, desired, available int32) *appsv1.DaemonSet {
		return &appsv1.DaemonSet{
			ObjectMeta: m, Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: desired, NumberAvailable: available},
		}
	}
	o := observer{client: fake.NewClientset(
		deployment(meta("kube-system", "coredns"), 0),
		deployment(meta("kube-system", "metrics-server"), 1),
		deployment(meta("shop", "web"), 0),
		daemons(meta("kube-system", "kube-proxy"), 5, 0),
		daemons(meta("kube-system", "kube-flannel-ds"), 5, 1),
		daemons(meta("kube-system", "nvidia"), 0, 0),
	)}
	got, err := o.failedGates(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	want := []string{
		"deployment kube-system/coredns has no available pod", "daemon set kube-system/kube-proxy has no available pod",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
