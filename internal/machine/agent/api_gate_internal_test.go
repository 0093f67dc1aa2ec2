// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// TestAPIGate starts, restarts and loses an API server: others reach it only when it authorizes requests.
func TestAPIGate(t *testing.T) {
	a := testAgent(t)
	now := time.Now()
	a.Now = func() time.Time { return now }
	listener, readiness := "", apiStarting
	kernel, loads := "", 0
	newGate := func() *apiGate {
		return &apiGate{
			agent:    a,
			failures: failureLog{agent: a, task: gateTask},
			listener: func() string { return listener },
			check:    func(context.Context) apiReadiness { return readiness },
			load:     func(_ context.Context, ruleset string) error { kernel = ruleset; loads++; return nil },
		}
	}
	g := newGate()
	step := func(what string, open bool) {
		t.Helper()
		now = now.Add(gateInterval)
		g.step(t.Context())
		if got := kernel == openRuleset; got != open || a.apiOpen.Load() != open {
			t.Errorf("%s: open %v, reported %v; want %v", what, got, a.apiOpen.Load(), open)
		}
	}
	step("nothing listens", false)
	listener = "100"
	step("it listens", false)
	readiness = apiAuthorizes
	step("it is no endpoint yet", false)
	readiness = apiServes
	step("it serves", true)
	readiness = apiStarting
	step("it lost etcd", true)
	listener = "200"
	step("another process", false)
	readiness = apiServes
	step("it serves too", true)
	listener = ""
	step("it stopped", false)
	listener, readiness = "300", apiAuthorizes
	step("administrators have no rules", false)
	now = now.Add(gateGrace)
	step("still not", true)

	before := loads
	for range 10 {
		step("nothing changes", true)
	}
	if loads != before {
		t.Errorf("loaded the same rules %d times", loads-before)
	}
	g = newGate() // the agent restarts
	kernel = closedRuleset + "#"
	readiness = apiServes
	step("a new agent finds a ready server", true)
	if loads != before+1 {
		t.Errorf("%d rulesets after the restart of the agent, want 1: new connections were rejected", loads-before)
	}
	g = newGate()
	readiness = apiStarting
	step("a new agent finds a starting server", false)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := g.keepUntilDone(ctx); !errors.Is(err, context.Canceled) || kernel != openRuleset {
		t.Errorf("after the agent stopped with %v, the gate is not open", err)
	}
}

// TestGateWithoutNft: a machine that runs and cannot filter any more reports it, and serves.
func TestGateWithoutNft(t *testing.T) {
	a := testAgent(t)
	readiness := apiStarting
	loadErr := errors.New("no nft")
	g := newAPIGate(a)
	g.listener = func() string { return "1" }
	g.check = func(context.Context) apiReadiness { return readiness }
	g.load = func(context.Context, string) error { return loadErr }
	for range reportedFailures {
		g.step(t.Context())
	}
	if c := a.conditions.Conditions(); len(c) != 1 || c[0].Component != report.Task(gateTask) || !strings.Contains(c[0].Cause, "no nft") {
		t.Errorf("the conditions are %+v", c)
	}
	if a.apiOpen.Load() {
		t.Error("a starting API server is reported as ready")
	}
	readiness = apiServes
	g.step(t.Context())
	if !a.apiOpen.Load() {
		t.Error("an API server that serves is not reported as ready")
	}
	loadErr = nil
	g.close(t.Context())
	if c := a.conditions.Conditions(); len(c) != 0 {
		t.Errorf("rules were loaded, and the conditions are %+v", c)
	}
}

func TestCheckAPIServer(t *testing.T) {
	var ready, rules, admins, endpoint bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/readyz" && !ready:
			w.WriteHeader(http.StatusInternalServerError)
		case strings.HasSuffix(r.URL.Path, "/subjectaccessreviews"):
			var review struct {
				Spec struct {
					User   string
					Groups []string
				}
			}
			body, _ := io.ReadAll(r.Body)
			_ = json.Unmarshal(body, &review)
			allowed := rules && review.Spec.User == "system:kube-scheduler" ||
				admins && len(review.Spec.Groups) == 1 && review.Spec.Groups[0] == pki.AdminGroup
			_ = json.NewEncoder(w).Encode(map[string]any{"status": map[string]any{"allowed": allowed}})
		case strings.HasSuffix(r.URL.Path, "/endpointslices/kubernetes"):
			address := "10.9.9.9"
			if endpoint {
				address = "10.0.0.4"
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"endpoints": []any{map[string]any{"addresses": []string{address}}}})
		}
	}))
	defer server.Close()
	check := apiServerCheck{api: kube.Client{Server: server.URL, HTTP: server.Client()}, address: "10.0.0.4"}
	step := func(set *bool, want apiReadiness) {
		t.Helper()
		if set != nil {
			*set = true
		}
		if got := check.readiness(t.Context()); got != want {
			t.Errorf("got %d, want %d", got, want)
		}
	}
	step(nil, apiStarting)
	step(&ready, apiStarting)
	step(&rules, apiAuthorizes)
	step(&admins, apiAuthorizes)
	step(&endpoint, apiServes)
}

func TestParseListener(t *testing.T) {
	const table = `  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000000000000000000000000000:1F90 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4001 1 0 100 0
   1: 00000000000000000000000000000000:192B 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0
   2: 0000000000000000FFFF00000100007F:192B 0000000000000000FFFF00000100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 5000 1 0 100 0
`
	if got := parseListener(table, "6443"); got != "4711" {
		t.Errorf("inode %q, want 4711", got)
	}
	if got := parseListener(table, "50000"); got != "" {
		t.Errorf("nothing listens at port 50000: inode %q", got)
	}
}

func FuzzParseListener(f *testing.F) {
	f.Add("   1: 0:192B 0:0000 0A 0:0 0:0 0 0 0 4711 1")
	f.Fuzz(func(_ *testing.T, table string) { parseListener(table, "6443") })
}

func FuzzParseVolumeMount(f *testing.F) {
	f.Add("70 42 7:4 / /var/lib/slipway/etcd rw - ext4 /dev/nvme1n1 rw")
	f.Fuzz(func(t *testing.T, text string) {
		if m := parseVolumeMount(text); m.readOnly && !m.mounted {
			t.Error("nothing is mounted, read-only")
		}
	})
}
