// SPDX-License-Identifier: Apache-2.0

package examples_test

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/Masterminds/semver/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/cluster/addons/source"
	"github.com/slipway-k8s/slipway/internal/lib/asset/assettest"
	"github.com/slipway-k8s/slipway/internal/machine/metrics"
	"github.com/slipway-k8s/slipway/internal/machine/metrics/metricstest"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

const recordedMetrics = "testdata/metrics.json"

func monitoringRuleFiles() []string {
	return []string{"etcd-rules.yaml", "control-plane-rules.yaml", "machine-rules.yaml", "addon-rules.yaml"}
}

// monitoringRules returns all alert rules.
func monitoringRules(t *testing.T) (rules []metricstest.Rule) {
	t.Helper()
	for _, name := range monitoringRuleFiles() {
		rules = append(rules, metricstest.ReadRules(t, "monitoring/"+name)...)
	}
	return rules
}

// dashboardQueries returns the queries of the dashboard, by the panel's title.
func dashboardQueries(t *testing.T) map[string][]string {
	t.Helper()
	body, err := os.ReadFile("monitoring/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(body, &dashboard); err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			out[p.Title] = append(out[p.Title], target.Expr)
		}
	}
	return out
}

// monitoringMetrics returns the metrics that rules and dashboard name, each with one that names it.
func monitoringMetrics(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, r := range monitoringRules(t) {
		for _, name := range metricstest.MetricsIn(r.Expr) {
			out[name] = r.Alert
		}
	}
	for title, queries := range dashboardQueries(t) {
		for _, q := range queries {
			for _, name := range metricstest.MetricsIn(q) {
				out[name] = title
			}
		}
	}
	return out
}

// TestMonitoringRules: each rule is complete, unique, and has a chapter that says what to do. TestRules has those of etcd.
func TestMonitoringRules(t *testing.T) {
	docs, err := os.ReadFile("../docs/operations/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, r := range monitoringRules(t) {
		metricstest.CheckRule(t, r)
		if seen[r.Alert] {
			t.Errorf("%s is there twice", r.Alert)
		}
		seen[r.Alert] = true
		if r.Annotations["runbook_url"] == "docs/operations/etcd.md#metrics-and-alerts" {
			continue // TestRules of package metrics
		}
		if got, want := r.Annotations["runbook_url"], "docs/operations/monitoring.md#"+strings.ToLower(r.Alert); got != want {
			t.Errorf("%s has the runbook %s, want %s", r.Alert, got, want)
		}
		if !strings.Contains(string(docs), "\n### "+r.Alert+"\n") {
			t.Errorf("docs/operations/monitoring.md has no chapter %s", r.Alert)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^### ([A-Z][A-Za-z]+)$`).FindAllStringSubmatch(string(docs), -1) {
		if !seen[m[1]] {
			t.Errorf("docs/operations/monitoring.md has a chapter %s, but there is no such alert", m[1])
		}
	}
}

// TestMonitoringMetricsExist: each metric that a rule or the dashboard names was seen in the output of a real program.
// TestRealMetrics records them; those of the agent are in its own list.
func TestMonitoringMetricsExist(t *testing.T) {
	known := slices.Concat(slices.Collect(maps.Values(readRecorded(t)))...)
	for _, f := range metrics.Families() {
		known = append(known, f.Name)
	}
	for name, where := range monitoringMetrics(t) {
		if !slices.Contains(known, name) && !slices.Contains(metricsOfScraping(), name) && unrecordedMetrics()[name] == "" {
			t.Errorf("%s: no program has the metric %s", where, name)
		}
	}
}

// readRecorded returns the recorded names of metrics by program.
func readRecorded(t *testing.T) map[string][]string {
	t.Helper()
	body, err := os.ReadFile(recordedMetrics)
	if err != nil {
		t.Fatal(err)
	}
	var recorded map[string][]string
	if err := json.Unmarshal(body, &recorded); err != nil {
		t.Fatal(err)
	}
	return recorded
}

// metricsOfScraping are made by Prometheus itself.
func metricsOfScraping() []string { return []string{"up", "ALERTS"} }

// unrecordedMetrics returns metrics that programs have only after an event, or that need a machine, with the place that proves them.
func unrecordedMetrics() map[string]string {
	return map[string]string{
		"apiserver_flowcontrol_rejected_requests_total":            "k8s.io/apiserver/pkg/util/flowcontrol/metrics: only after a refusal",
		"kubeproxy_sync_proxy_rules_last_timestamp_seconds":        "k8s.io/kubernetes/pkg/proxy/metrics; TestMonitoring of test/e2e",
		"kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds": "k8s.io/kubernetes/pkg/proxy/metrics; TestMonitoring of test/e2e",
	}
}

// renderMonitoring returns the objects of the channel by add-on, as they are applied.
func renderMonitoring(t *testing.T) map[string][]*unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile("monitoring/channel.yaml")
	if err != nil {
		t.Fatal(err)
	}
	channel, findings := manifest.ParseAddonChannel(text)
	for _, f := range findings {
		t.Fatal(f)
	}
	directory, err := filepath.Abs("monitoring")
	if err != nil {
		t.Fatal(err)
	}
	reader := source.Reader{Directory: directory, Kubernetes: semver.MustParse("1.36.3"), Values: map[string]string{
		"cluster.imagePrefix": "registry.example.com/", "cluster.name": "demo", "cluster.networkCIDR": "10.80.0.0/16",
	}}
	out := map[string][]*unstructured.Unstructured{}
	for _, a := range channel.Spec.Addons {
		objects, err := reader.Objects(t.Context(), a)
		if err != nil {
			t.Fatalf("%s: %v", a.Name, err)
		}
		out[a.Name] = objects
	}
	return out
}

// TestMonitoringIsLimited: the pods of the channel have no privileges; only those on the network of the machine see its directories,
// read-only; Prometheus may read machines and metrics, and nothing may write.
func TestMonitoringIsLimited(t *testing.T) {
	for addon, objects := range renderMonitoring(t) {
		for _, o := range objects {
			name := addon + ": " + o.GetKind() + " " + o.GetName()
			body, err := json.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			text := string(body)
			if _, rest, found := strings.Cut(text, "${"); found {
				t.Errorf("%s has a parameter without a value: %.20s", name, rest)
			}
			switch o.GetKind() {
			case "ClusterRole", "Role":
				for _, verb := range []string{"create", "update", "patch", "delete", "*", "secrets", "bind", "impersonate"} {
					if strings.Contains(text, `"`+verb+`"`) {
						t.Errorf("%s may %s", name, verb)
					}
				}
			case "Deployment", "DaemonSet":
				checkPod(t, name, o)
			}
		}
	}
}

func checkPod(t *testing.T, name string, o *unstructured.Unstructured) {
	t.Helper()
	spec, _, err := unstructured.NestedMap(o.Object, "spec", "template", "spec")
	if err != nil {
		t.Fatal(err)
	}
	if root, found, _ := unstructured.NestedBool(spec, "securityContext", "runAsNonRoot"); !found || !root {
		t.Errorf("%s may run as root", name)
	}
	isOnHost, _, _ := unstructured.NestedBool(spec, "hostNetwork")
	if isOnHost != (o.GetKind() == "DaemonSet") {
		t.Errorf("%s has hostNetwork %t", name, isOnHost)
	}
	containers, _, _ := unstructured.NestedSlice(spec, "containers")
	for _, c := range containers {
		container, _ := c.(map[string]any)
		body, _ := json.Marshal(container)
		for _, want := range []string{`"allowPrivilegeEscalation":false`, `"drop":["ALL"]`, `"readOnlyRootFilesystem":true`, `"limits":{`, `"requests":{`, `"image":"registry.example.com/quay.io/`} {
			if !strings.Contains(string(body), want) {
				t.Errorf("%s: container %v has no %s", name, container["name"], want)
			}
		}
		mounts, _, _ := unstructured.NestedSlice(container, "volumeMounts")
		for _, m := range mounts {
			mount, _ := m.(map[string]any)
			if mount["readOnly"] != true && mount["name"] != "data" {
				t.Errorf("%s: %v may write to %v", name, container["name"], mount["mountPath"])
			}
		}
	}
}

// writeConfiguration writes the files of the ConfigMaps to a directory that takes the place of /etc/prometheus and of the secrets of the
// pod, and returns it.
func writeConfiguration(t *testing.T) string {
	t.Helper()
	directory := t.TempDir()
	local := strings.NewReplacer("/etc/prometheus/", directory+"/", "/var/run/secrets/", directory+"/")
	for _, o := range renderMonitoring(t)["prometheus"] {
		data, found, _ := unstructured.NestedStringMap(o.Object, "data")
		if o.GetKind() != "ConfigMap" || !found {
			continue
		}
		for name, text := range data {
			writeTestFile(t, filepath.Join(directory, name), local.Replace(text))
		}
	}
	writeTestFile(t, filepath.Join(directory, "slipway-metrics/token"), "x")
	writeTestFile(t, filepath.Join(directory, "kubernetes.io/serviceaccount/token"), "x")
	writeTestFile(t, filepath.Join(directory, "kubernetes.io/serviceaccount/ca.crt"), "x")
	return directory
}

func writeTestFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestRealMonitoringConfiguration: Prometheus' and Alertmanager's own programs accept the configuration and the rules, and the rules
// do what monitoring_rules.yaml says.
func TestRealMonitoringConfiguration(t *testing.T) {
	promtool := assettest.Program(t, "prometheus", "bin/promtool")
	amtool := assettest.Program(t, "alertmanager", "bin/amtool")
	directory := writeConfiguration(t)
	body, err := os.ReadFile("testdata/monitoring_rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	writeTestFile(t, filepath.Join(directory, "tests.yaml"), string(body))
	for _, command := range [][]string{
		{promtool, "check", "config", "--lint=all", "--lint-fatal", filepath.Join(directory, "prometheus.yml")},
		{promtool, "test", "rules", filepath.Join(directory, "tests.yaml")},
		{amtool, "check-config", filepath.Join(directory, "alertmanager.yml")},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		cmd := exec.CommandContext(ctx, command[0], command[1:]...)
		cmd.Dir = directory
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", strings.Join(command[1:3], " "), err, out)
		}
		cancel()
	}
}
