// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/asset/assettest"
	"github.com/slipway-k8s/slipway/internal/machine/backup"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// TestServedMetrics: what the tasks found out is served, and nothing but GET /metrics.
func TestServedMetrics(t *testing.T) {
	a := testAgent(t)
	h := metricsHandler{agent: a, member: &etcdMember{agent: a}}
	get := func(method, path string) (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
		return w.Code, w.Body.String()
	}
	if code, body := get(http.MethodGet, "/metrics"); code != http.StatusOK || !strings.Contains(body, "slipway_etcd_generation 0\n") {
		t.Errorf("at first: %d\n%s", code, body)
	}
	if err := a.Root.MakeDir(etcd.DataDir+"/member", 0o700, 0); err != nil {
		t.Fatal(err)
	}
	a.metrics.noteReport(report.Report{Etcd: &report.Etcd{Quorum: true}})
	a.metrics.noteQuorum(etcd.QuorumReport{LostAt: time.Unix(1000, 0)})
	a.metrics.noteBackups(backup.Policy{Interval: time.Hour}, nil)
	_, body := get(http.MethodGet, "/metrics")
	for _, want := range []string{
		"slipway_etcd_generation 1", "slipway_etcd_member_quorum 1", "slipway_etcd_quorum_lost_timestamp_seconds 1000",
		"slipway_etcd_backup_interval_seconds 3600",
	} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("no %s in\n%s", want, body)
		}
	}
	for path, method := range map[string]string{"/": http.MethodGet, "/metrics": http.MethodPost} {
		if code, _ := get(method, path); code != http.StatusNotFound {
			t.Errorf("%s %s: %d", method, path, code)
		}
	}
}

// TestRealEtcdMetrics: a real etcd has the metrics that the rules of examples/monitoring name.
func TestRealEtcdMetrics(t *testing.T) {
	assettest.Program(t, "etcd", "bin/etcd")
	rules, err := os.ReadFile("../../../examples/monitoring/etcd-rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r := newRealCluster(t)
	text := ""
	eventually(t, "etcd serves its metrics", func() error {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.manager.Peers[0].ClientURL+"/metrics", nil)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		body, err := io.ReadAll(answer.Body)
		text = string(body)
		return errors.Join(err, answer.Body.Close())
	})
	names := regexp.MustCompile(`\betcd_[a-z_]+`).FindAllString(string(rules), -1)
	if len(names) < 5 {
		t.Fatalf("the rules name %q", names)
	}
	for _, name := range names {
		if !strings.Contains(text, "\n"+name+" ") && !strings.Contains(text, "\n"+name+"{") {
			t.Errorf("etcd has no metric %s", name)
		}
	}
}
