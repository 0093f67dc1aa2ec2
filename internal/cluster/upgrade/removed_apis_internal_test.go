// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

const someMetrics = `# HELP apiserver_requested_deprecated_apis [STABLE] Gauge of deprecated APIs that have been requested
# TYPE apiserver_requested_deprecated_apis gauge
apiserver_requested_deprecated_apis{group="",removed_release="",resource="endpoints",subresource="",version="v1"} 1
apiserver_requested_deprecated_apis{group="flowcontrol.apiserver.k8s.io",removed_release="1.32",resource="flowschemas",subresource="",version="v1beta3"} 1
apiserver_requested_deprecated_apis{group="example.k8s.io",removed_release="1.36",resource="things",subresource="status",version="v1beta1"} 1
apiserver_requested_deprecated_apis{group="example.k8s.io",removed_release="1.37",resource="others",subresource="",version="v1beta1"} 1
process_start_time_seconds 1.79522e+09
`

func TestParseRemovedAPIs(t *testing.T) {
	for target, want := range map[Version]string{
		{1, 36, 3}: "[flowschemas.v1beta3.flowcontrol.apiserver.k8s.io (removed in 1.32) things.v1beta1.example.k8s.io (removed in 1.36)]",
		{1, 35, 9}: "[flowschemas.v1beta3.flowcontrol.apiserver.k8s.io (removed in 1.32)]",
		{1, 31, 0}: "[]",
	} {
		if got := fmt.Sprint(parseRemovedAPIs([]byte(someMetrics), target)); got != want {
			t.Errorf("%s: %s, want %s", target, got, want)
		}
	}

	if got := metricValue([]byte(someMetrics), startMetric); got != "1.79522e+09" {
		t.Error(got)
	}
}

// TestFindRemovedAPIs: each API server knows only its own requests, and the load balancer chooses the server.
func TestFindRemovedAPIs(t *testing.T) {
	t.Parallel()
	serve := func(metrics string) *httptest.Server {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/metrics" {
				http.NotFound(w, r)
				return
			}

			_, _ = io.WriteString(w, metrics)
		}))
		t.Cleanup(server.Close)

		return server
	}
	const other = `apiserver_requested_deprecated_apis{group="batch",removed_release="1.25",resource="cronjobs",subresource="",version="v1beta1"} 1
process_start_time_seconds 1.79522e+10
`
	one, two := serve(someMetrics), serve(other)
	for name, c := range map[string]struct {
		answers   []*httptest.Server // in turn
		wantAsked int
		want      string
	}{
		"both answer":       {[]*httptest.Server{one, one, two}, 2, "[cronjobs.v1beta1.batch (removed in 1.25) flowschemas.v1beta3.flowcontrol.apiserver.k8s.io (removed in 1.32)]"},
		"only one is found": {[]*httptest.Server{two}, 1, "[cronjobs.v1beta1.batch (removed in 1.25)]"},
	} {
		calls := 0
		newClient := func(context.Context) (kubernetes.Interface, error) {
			server := c.answers[calls%len(c.answers)]
			calls++

			return kubernetes.NewForConfig(&rest.Config{Host: server.URL})
		}
		got, asked, err := findRemovedAPIs(t.Context(), newClient, 2, Version{1, 35, 9})
		if err != nil || asked != c.wantAsked || fmt.Sprint(got) != c.want {
			t.Errorf("%s: %v of %d servers, %v", name, got, asked, err)
		}

		if calls > 2*maxMetricReads {
			t.Errorf("%s: %d reads", name, calls)
		}
	}
}

// TestRemovedAPIsAreRefused: an upgrade is not begun while clients use what the version does not have.
func TestRemovedAPIsAreRefused(t *testing.T) {
	t.Parallel()
	u := &upgrader{request: Request{Name: "demo"}, target: Version{1, 36, 3}}
	proposal := Proposal{Removed: parseRemovedAPIs([]byte(someMetrics), u.target)}
	err := u.refuse(t.Context(), proposal)
	if want := "clients of cluster demo use 2 APIs that Kubernetes 1.36.3 does not have"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}

	if hints := diag.Hints(err); len(hints) != 1 || !strings.Contains(hints[0], "--ignore-removed-apis") {
		t.Errorf("hints %q", hints)
	}
}

func FuzzParseRemovedAPIs(f *testing.F) {
	f.Add([]byte(someMetrics))
	f.Add([]byte("apiserver_requested_deprecated_apis{"))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, api := range parseRemovedAPIs(body, Version{1, 36, 3}) {
			if api.RemovedIn.Minor > 36 {
				t.Error(api)
			}
		}
	})
}
