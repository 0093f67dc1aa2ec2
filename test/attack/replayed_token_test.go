// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// tokenOfPrometheus creates the pod of Prometheus, and returns the token for the gates that a kubelet puts into it.
func (l *gateLab) tokenOfPrometheus() authenticationv1.TokenRequestStatus {
	l.Helper()
	workload, err := l.api.AppsV1().Deployments("monitoring").Get(l.Context(), "prometheus", metav1.GetOptions{})
	l.check(err)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "prometheus-1"}, Spec: workload.Spec.Template.Spec}
	pod, err = l.api.CoreV1().Pods("monitoring").Create(l.Context(), pod, metav1.CreateOptions{})
	l.check(err)
	for _, volume := range pod.Spec.Volumes {
		if volume.Name != "metrics-token" {
			continue
		}

		wanted := volume.Projected.Sources[0].ServiceAccountToken
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			Audiences:         []string{wanted.Audience},
			ExpirationSeconds: wanted.ExpirationSeconds,
			BoundObjectRef:    &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
		}}
		out, err := l.api.CoreV1().ServiceAccounts("monitoring").CreateToken(l.Context(), "prometheus", request, metav1.CreateOptions{})
		l.check(err)

		return out.Status
	}

	l.Fatal("the pod has no token for the gates")

	return authenticationv1.TokenRequestStatus{}
}

// statusOfAPI returns the status with which the API server answers a request with a token.
func (l *gateLab) statusOfAPI(path, token string) int {
	l.Helper()
	config := rest.AnonymousClientConfig(l.config)
	config.BearerToken = token
	client, err := rest.HTTPClientFor(config)
	l.check(err)
	r, err := http.NewRequestWithContext(l.Context(), http.MethodGet, strings.TrimSuffix(config.Host, "/")+path, nil)
	l.check(err)
	answer, err := client.Do(r)
	l.check(err)
	defer answer.Body.Close()

	return answer.StatusCode
}

// TestReplayedTokenOfPrometheus: root on a machine, to which Prometheus sends its token, uses it elsewhere. It reads what
// Prometheus may read from the gates, for an hour; a real API server decides. The API server itself takes the token for
// nothing, not even for the paths that Prometheus may read there. Seen to succeed at the gates in each run, which is accepted.
func TestReplayedTokenOfPrometheus(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}

	l := newGateLab(t)
	stolen := l.tokenOfPrometheus()
	if left := time.Until(stolen.ExpirationTimestamp.Time); left > time.Hour+time.Minute {
		t.Errorf("the token is valid for %s", left)
	}

	if status, _ := l.get("/metrics/etcd", stolen.Token); status != http.StatusOK {
		t.Fatalf("the gate answers %d to Prometheus", status)
	}

	// The gate of the lab has no other source: 404 means that the caller may read, 403 that it may not.
	if status, _ := l.get("/metrics/machine", stolen.Token); status != http.StatusNotFound {
		t.Errorf("the gate answers %d for the metrics of another program", status)
	}

	for _, path := range []string{"/metrics/secrets", "/metrics", "/configz", "/metrics/etcd/../etcd"} {
		if status, _ := l.get(path, stolen.Token); status != http.StatusForbidden && status != http.StatusNotFound {
			t.Errorf("the gate answers %d for %s", status, path)
		}
	}

	for _, path := range []string{"/metrics", "/api/v1/nodes", "/api/v1/namespaces/kube-system/pods", "/version", "/openid/v1/jwks"} {
		if status := l.statusOfAPI(path, stolen.Token); status != http.StatusUnauthorized {
			t.Errorf("the API server answers %d for %s", status, path)
		}
	}
}
