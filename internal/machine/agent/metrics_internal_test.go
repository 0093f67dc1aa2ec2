// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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
	a.metrics.noteBackups([]backup.Backup{
		{Metadata: backup.Metadata{TakenAt: time.Unix(2000, 0)}},
		{Metadata: backup.Metadata{TakenAt: a.Now().Add(24 * time.Hour)}}, // the clock was ahead, and was set right
	})
	_, body := get(http.MethodGet, "/metrics")
	for _, want := range []string{
		"slipway_etcd_generation 1", "slipway_etcd_member_quorum 1", "slipway_etcd_quorum_lost_timestamp_seconds 1000",
		"slipway_etcd_backup_interval_seconds 3600", "slipway_etcd_backup_timestamp_seconds 2000",
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

// TestMetricsOfCertificates: each certificate and authority that the agent keeps on a control-plane machine has a metric.
func TestMetricsOfCertificates(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: needs root, as the agent does")
	}
	a := testAgent(t)
	if _, err := a.writeControlPlane(); err != nil {
		t.Fatal(err)
	}
	slot, _ := a.doc.Slot("a")
	m := &etcdMember{agent: a, slot: slot}
	a.metrics.noteReport(report.Report{Certificates: readCertificates(a.Root)})
	w := httptest.NewRecorder()
	metricsHandler{agent: a, member: m}.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	var names []string
	for _, pair := range controlPlanePairs(a.doc, a.Boot, a.instance, etcdUID) {
		name := filepath.Base(pair.path)
		if strings.HasPrefix(pair.path, etcd.PKIDir) {
			name = "etcd-" + name
		}
		names = append(names, name)
		if want := `slipway_certificate_renewal_timestamp_seconds{certificate="` + name + `"} `; !strings.Contains(w.Body.String(), want) {
			t.Errorf("no %s", want)
		}
	}
	for _, name := range append(names, "kubernetes-ca", "front-proxy-ca", "etcd-client-ca", "etcd-peer-ca") {
		if n := strings.Count(w.Body.String(), `slipway_certificate_expiration_timestamp_seconds{certificate="`+name+`"} `); n != 1 {
			t.Errorf("the expiry of %s is there %d times", name, n)
		}
	}
	if t.Failed() {
		t.Log(w.Body.String())
	}
}

// TestRealEtcdMetrics: a real etcd has the metrics that the rules of examples/monitoring name.
func TestRealEtcdMetrics(t *testing.T) {
	assettest.Program(t, "etcd", "bin/etcd")
	rules, err := os.ReadFile("../../../examples/monitoring/etcd-rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`\betcd_[a-z_]+`).FindAllString(string(rules), -1)
	if len(names) < 5 {
		t.Fatalf("the rules name %q", names)
	}
	r := newRealCluster(t)
	eventually(t, "etcd serves its metrics", func() error { // some come a few seconds after its start
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.manager.Peers[0].ClientURL+"/metrics", nil)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		body, err := io.ReadAll(answer.Body)
		if err := errors.Join(err, answer.Body.Close()); err != nil {
			return err
		}
		text := string(body)
		for _, name := range names {
			if !strings.Contains(text, "\n"+name+" ") && !strings.Contains(text, "\n"+name+"{") {
				return errors.New("etcd has no metric " + name)
			}
		}
		return nil
	})
}
