// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/metrics/metricstest"
)

const monitoringFolder = "../../examples/monitoring/"

// TestMonitoring installs the channel of examples/monitoring on machines. Prometheus reads every program through the gates, others are
// refused, and alerts fire when an etcd member dies.
func TestMonitoring(t *testing.T) {
	skipUnlessLong(t)
	e := newEnvironment(t)
	e.runSteps(t, []step{
		{"up", createCluster},
		{"the channel is applied", applyMonitoring},
		{"Prometheus reads every program", checkTargets},
		{"every metric of the rules is there", checkMetricsOfRules},
		{"the gate refuses others", checkGate},
		{"the network policies admit nobody", checkMonitoringPolicies},
		{"only Watchdog fires", checkOnlyWatchdog},
		{"alerts fire when a member dies", checkMemberAlerts},
		{"delete leaves nothing", func(e *environment) { e.runSlipway("delete", "cluster", clusterName, "--yes") }},
	})
}

// applyMonitoring applies a copy of the channel in which each alert fires after 20 seconds. Nothing is left to do afterwards.
func applyMonitoring(e *environment) {
	folder := e.t.TempDir()
	files, err := filepath.Glob(monitoringFolder + "*")
	if err != nil {
		e.t.Fatal(err)
	}
	delay := regexp.MustCompile(`(?m)^( +)for: [0-9]+[mh]$`)
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			e.t.Fatal(err)
		}
		writeFile(e.t, filepath.Join(folder, filepath.Base(file)), delay.ReplaceAllString(string(body), "${1}for: 20s"))
	}
	channel := filepath.Join(folder, "channel.yaml")
	start := time.Now()
	e.t.Log("\n" + e.runSlipway("addons", "apply", clusterName, "-f", channel, "--yes"))
	e.t.Logf("COUNT monitoring is healthy after %s", time.Since(start).Round(time.Second))
	if r := e.runProgram(e.slipway, "addons", "diff", clusterName, "-f", channel); r.code != 0 {
		e.t.Errorf("exit status %d after an apply, want 0:\n%s%s", r.code, r.out, r.err)
	}
	e.t.Log("\n" + e.kubectl("get", "pods", "-A", "-o", "wide", "--selector", "app"))
}

// queryPrometheus returns the samples of a query by the value of a label.
func (e *environment) queryPrometheus(label, query string) (map[string]string, error) {
	e.t.Helper()
	r := e.tryKubectl("-n", "monitoring", "exec", "deployment/prometheus", "--", "promtool", "query", "-o", "json", "instant", "http://127.0.0.1:9090", query)
	var samples []struct {
		Metric map[string]string
		Value  [2]any
	}
	if err := json.Unmarshal([]byte(r.out), &samples); err != nil {
		return nil, fmt.Errorf("%s: exit status %d: %s%s: %w", query, r.code, r.out, r.err, err)
	}
	out := map[string]string{}
	for _, s := range samples {
		out[s.Metric[label]] = fmt.Sprint(s.Value[1])
	}

	return out, nil
}

// checkTargets waits until all programs of all machines answer.
func checkTargets(e *environment) {
	want := map[string]string{
		"apiserver": "3", "etcd": "3", "slipway-agent": "3", "kube-scheduler": "3", "kube-controller-manager": "3",
		"kube-proxy": "5", "machine": "5", "coredns": "2", "prometheus": "1", "alertmanager": "1",
	}
	start := time.Now()
	e.waitUntil("Prometheus reads every program", 3*time.Minute, func() error {
		have, err := e.queryPrometheus("job", "count by (job) (up == 1)")
		if err == nil && !maps.Equal(have, want) {
			missing, _ := e.queryPrometheus("job", "up == 0")
			err = fmt.Errorf("it reads %v, want %v; silent: %v", have, want, missing)
		}

		return err
	})
	e.t.Logf("COUNT Prometheus reads every program after %s", time.Since(start).Round(time.Second))
}

// checkMetricsOfRules looks for each metric that a rule names, but those that appear only after an event.
func checkMetricsOfRules(e *environment) {
	// After a refusal, a test of a backup, a lost quorum, a backup; and file systems that machines of the local region do not have.
	eventual := regexp.MustCompile(`^(apiserver_flowcontrol_rejected_requests_total|slipway_etcd_backup_.*timestamp_seconds` +
		`|slipway_etcd_recovery_step|node_filesystem_.*)$`)
	files, err := filepath.Glob(monitoringFolder + "*-rules.yaml")
	if err != nil || len(files) == 0 {
		e.t.Fatalf("%q %v", files, err)
	}
	e.waitUntil("every metric of the rules is there", 3*time.Minute, func() error {
		have, err := e.queryPrometheus("__name__", `count by (__name__) ({__name__!=""})`)
		if err != nil {
			return err
		}
		var missing []string
		for _, file := range files {
			for _, rule := range metricstest.ReadRules(e.t, file) {
				for _, name := range metricstest.MetricsIn(rule.Expr) {
					if have[name] == "" && !eventual.MatchString(name) {
						missing = append(missing, rule.Alert+": "+name)
					}
				}
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("missing: %q", missing)
		}

		return nil
	})
}

// checkGate asks the gate of a control-plane machine from a worker, with tokens of different accounts and audiences.
func checkGate(e *environment) {
	address := e.kubectl("get", "nodes", "-l", "node-role.kubernetes.io/control-plane", "-o",
		`jsonpath={.items[0].status.addresses[?(@.type=="InternalIP")].address}`)
	worker := e.anyMachine("worker")
	token := func(namespace, account string, more ...string) string {
		return strings.TrimSpace(e.kubectl(append([]string{"create", "token", "-n", namespace, account}, more...)...))
	}
	const audience = "--audience=slipway-metrics"
	for _, c := range []struct{ who, token, path, want string }{
		{"nobody", "", "/metrics/etcd", "401"},
		{"Prometheus with its token for the API server", token("monitoring", "prometheus"), "/metrics/etcd", "401"},
		{"another account", token("default", "default", audience), "/metrics/etcd", "403"},
		{"the gate itself", token("monitoring-nodes", "machine-metrics", audience), "/metrics/etcd", "403"},
		{"Prometheus", token("monitoring", "prometheus", audience), "/metrics/etcd", "200"},
		{"Prometheus, another path", token("monitoring", "prometheus", audience), "/v2/keys", "403"},
	} {
		script := fmt.Sprintf(`curl -sk -m 10 -o /dev/null -w '%%{http_code}' -H 'Authorization: Bearer %s' https://%s:30082%s`, c.token, address, c.path)
		if got := e.mustRunInMachine(worker, script); got != c.want {
			e.t.Errorf("%s gets %s from the gate, want %s", c.who, got, c.want)
		}
	}
	for _, port := range []string{"2381", "2382", "10249", "9100"} {
		if out, err := e.runInMachine(worker, "curl -s -m 3 http://"+address+":"+port+"/metrics"); err == nil {
			e.t.Errorf("port %s of the control plane answers without the gate: %.100s", port, out)
		}
	}
}

// checkMonitoringPolicies connects to Prometheus and Alertmanager from machines that do not run them.
func checkMonitoringPolicies(e *environment) {
	for app, port := range map[string]string{"prometheus": "9090", "alertmanager": "9093"} {
		address := e.kubectl("-n", "monitoring", "get", "pods", "-l", "app="+app, "-o", "jsonpath={.items[0].status.podIP}")
		machine := e.anyMachine("control-plane")
		if out, err := e.runInMachine(machine, "curl -s -m 3 http://"+address+":"+port+"/metrics"); err == nil {
			e.t.Errorf("%s answers a control-plane machine: %.100s", app, out)
		}
	}
}

// firing returns the names of the alerts that Alertmanager has, sorted.
func (e *environment) firing() ([]string, error) {
	e.t.Helper()
	r := e.tryKubectl("-n", "monitoring", "exec", "deployment/alertmanager", "--", "amtool", "alert", "query", "-o", "json", "--active", "--inhibited",
		"--alertmanager.url=http://127.0.0.1:9093")
	var alerts []struct{ Labels map[string]string }
	if err := json.Unmarshal([]byte(r.out), &alerts); err != nil {
		return nil, fmt.Errorf("exit status %d: %s%s: %w", r.code, r.out, r.err, err)
	}
	var names []string
	for _, a := range alerts {
		names = append(names, a.Labels["alertname"])
	}
	slices.Sort(names)

	return slices.Compact(names), nil
}

// alertsOfThisComputer are about the computer that the machines share, or about backups that a young cluster has not taken.
func alertsOfThisComputer() []string {
	return []string{
		"MachineDiskFull", "MachineMemoryLow", "MachineBusy", "MachineInodesUsed", "EtcdSlowDisk", "EtcdSlowCommit", "EtcdSlowPeer", "APIServerSlow",
		"EtcdNoBackup", "EtcdBackupsUnknown", "EtcdManyElections",
	}
}

// waitForAlerts waits until Alertmanager has exactly these alerts, and Watchdog.
func (e *environment) waitForAlerts(limit time.Duration, want ...string) {
	e.t.Helper()
	want = append(want, "Watchdog")
	slices.Sort(want)
	e.waitUntil("the alerts "+strings.Join(want, ", ")+" fire", limit, func() error {
		have, err := e.firing()
		have = slices.DeleteFunc(have, func(name string) bool { return slices.Contains(alertsOfThisComputer(), name) })
		if err == nil && !slices.Equal(have, want) {
			err = fmt.Errorf("these fire: %q", have)
		}

		return err
	})
}

func checkOnlyWatchdog(e *environment) { e.waitForAlerts(5 * time.Minute) }

// checkMemberAlerts cuts the etcd member of a machine off that does not lead. Its agent would start a stopped one again. The alerts fire,
// and end when the member is back.
func checkMemberAlerts(e *environment) {
	leader := e.findLeader()
	machine := ""
	for id := range e.listMachines("control-plane") {
		if id != leader {
			machine = id
		}
	}
	e.mustRunInMachine(machine, dropPorts("2379, 2380"))
	start := time.Now()
	e.waitUntil("EtcdMemberMissing and EtcdQuorumAtRisk reach Alertmanager", 5*time.Minute, func() error {
		have, err := e.firing()
		if err == nil && (!slices.Contains(have, "EtcdMemberMissing") || !slices.Contains(have, "EtcdQuorumAtRisk")) {
			err = fmt.Errorf("these fire: %q", have)
		}

		return err
	})
	e.t.Logf("COUNT the alerts about a member that is cut off are in Alertmanager after %s, with a delay of 20s in the rules", time.Since(start).Round(time.Second))
	e.mustRunInMachine(machine, rejoin)
	start = time.Now()
	e.waitHealthy(5 * time.Minute)
	// Alerts that count failures of the last 15 minutes stay longer.
	e.waitUntil("EtcdMemberMissing and EtcdQuorumAtRisk end", 5*time.Minute, func() error {
		have, err := e.firing()
		if err == nil && (slices.Contains(have, "EtcdMemberMissing") || slices.Contains(have, "EtcdQuorumAtRisk")) {
			err = fmt.Errorf("these fire: %q", have)
		}

		return err
	})
	e.t.Logf("COUNT the alerts have ended %s after the member was back", time.Since(start).Round(time.Second))
}
