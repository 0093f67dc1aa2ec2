// SPDX-License-Identifier: Apache-2.0

package examples_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/asset/assettest"
	"github.com/slipway-k8s/slipway/internal/machine/addon/apitest"
)

var update = flag.Bool("update", false, "write the recorded names of metrics")

// TestRealMetrics starts the programs that Prometheus reads, and compares the names of their metrics that rules or the dashboard use with
// the recorded ones. etcd's are in TestRealEtcdMetrics, too; kube-proxy and the agents need machines: TestMonitoring of test/e2e.
func TestRealMetrics(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	directory := writeConfiguration(t)
	recorded := map[string][]string{}
	used, expected := monitoringMetrics(t), readRecorded(t)
	record := func(program, url, token string) {
		t.Helper()
		names := metricNames(t, url, token, expected[program])
		names = slices.DeleteFunc(names, func(name string) bool { return used[name] == "" })
		recorded[program] = names
	}
	etcd := startEtcd(t)
	server := apitest.Start(t)
	createNode(t, server)
	record("kube-apiserver", server.URL+"/metrics", server.Token)
	awaitMetric(t, etcd, "etcd_network_peer_round_trip_time_seconds_bucket")
	record("etcd", etcd, "")
	kubernetes := assettest.Program(t, "kubernetes", "bin/kubernetes")
	for _, name := range []string{"kube-controller-manager", "kube-scheduler"} {
		port := apitest.FreePorts(t, 1)[0]
		apitest.Run(t, name, kubernetes, "--kubeconfig="+server.Kubeconfig, "--bind-address=127.0.0.1", "--secure-port="+port,
			"--cert-dir="+t.TempDir(), "--leader-elect=false", "--authorization-always-allow-paths=/metrics", "--authentication-skip-lookup=true")
		record(name, "https://127.0.0.1:"+port+"/metrics", "")
	}
	port := apitest.FreePorts(t, 1)[0]
	apitest.Run(t, "node_exporter", assettest.Program(t, "node-exporter", "bin/node_exporter"), "--web.listen-address=127.0.0.1:"+port)
	record("node_exporter", "http://127.0.0.1:"+port+"/metrics", "")
	port = apitest.FreePorts(t, 1)[0]
	apitest.Run(t, "prometheus", assettest.Program(t, "prometheus", "bin/prometheus"), "--config.file="+filepath.Join(directory, "prometheus.yml"),
		"--storage.tsdb.path="+t.TempDir(), "--web.listen-address=127.0.0.1:"+port)
	record("prometheus", "http://127.0.0.1:"+port+"/metrics", "")
	port = apitest.FreePorts(t, 1)[0]
	apitest.Run(t, "alertmanager", assettest.Program(t, "alertmanager", "bin/alertmanager"), "--config.file="+filepath.Join(directory, "alertmanager.yml"),
		"--storage.path="+t.TempDir(), "--cluster.listen-address=", "--web.listen-address=127.0.0.1:"+port)
	record("alertmanager", "http://127.0.0.1:"+port+"/metrics", "")
	record("coredns", startCoreDNS(t), "")
	compareRecorded(t, recorded)
}

// compareRecorded compares the names with the file, or writes it.
func compareRecorded(t *testing.T, recorded map[string][]string) {
	t.Helper()
	body, err := json.MarshalIndent(recorded, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	body = append(body, '\n')
	if *update {
		writeTestFile(t, recordedMetrics, string(body))
	}
	want, err := os.ReadFile(recordedMetrics)
	if err != nil || !bytes.Equal(want, body) {
		t.Errorf("%v: %s has\n%s\nthe programs have\n%s\nif that is right: go test ./examples -run TestRealMetrics -update", err, recordedMetrics, want, body)
	}
}

// metricNames returns the names of all metrics that a program serves. It waits until the expected ones are there; with -update, or if
// they do not come, until the last new name is some seconds old.
func metricNames(t *testing.T, url, token string, expected []string) []string {
	t.Helper()
	var names []string
	same := 0
	for range 120 {
		if body, err := fetchMetrics(t.Context(), url, token); err == nil {
			found := parseNames(body)
			isMissing := func(name string) bool { return !slices.Contains(found, name) }
			if !*update && len(expected) > 0 && !slices.ContainsFunc(expected, isMissing) {
				return found
			}
			if len(found) != len(names) {
				same = 0
			}
			same++
			names = found
			if same > 20 {
				return names
			}
		}
		time.Sleep(500 * time.Millisecond)
	}
	t.Fatalf("no metrics at %s", url)
	return nil
}

func fetchMetrics(ctx context.Context, url, token string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	answer, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, body)
	}
	return string(body), err
}

// parseNames returns the sorted names of the samples in Prometheus' text format.
func parseNames(text string) (names []string) {
	for _, m := range regexp.MustCompile(`(?m)^([a-zA-Z_:][a-zA-Z0-9_:]*)[{ ]`).FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// createNode creates a node, without which the controller manager counts none, and an API that nobody serves.
func createNode(t *testing.T, server apitest.Server) {
	t.Helper()
	for path, body := range map[string]string{
		"/api/v1/nodes": `{"kind": "Node", "apiVersion": "v1", "metadata": {"name": "a", "labels": {"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r"}}}`,
		"/apis/apiregistration.k8s.io/v1/apiservices": `{"kind": "APIService", "apiVersion": "apiregistration.k8s.io/v1", "metadata": {"name": "v1.example.com"},
			"spec": {"group": "example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100, "insecureSkipTLSVerify": true, "service": {"name": "a", "namespace": "default"}}}`,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+path, bytes.NewReader([]byte(body)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+server.Token)
		r.Header.Set("Content-Type", "application/json")
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(answer.Body)
		if answer.Body.Close(); answer.StatusCode != http.StatusCreated {
			t.Fatalf("%s: %s %s", path, answer.Status, text)
		}
	}
}

// startEtcd starts two members of etcd, and returns the address of the metrics of one. It measures the round trips to the other one
// some seconds later.
func startEtcd(t *testing.T) string {
	t.Helper()
	ports := apitest.FreePorts(t, 6)
	at := func(i int) string { return "http://127.0.0.1:" + ports[i] }
	for i, name := range []string{"a", "b"} {
		clients, peers, served := at(i), at(2+i), at(4+i)
		apitest.Run(t, "etcd", assettest.Program(t, "etcd", "bin/etcd"), "--name="+name, "--data-dir="+t.TempDir(), "--listen-metrics-urls="+served,
			"--listen-client-urls="+clients, "--advertise-client-urls="+clients, "--listen-peer-urls="+peers,
			"--initial-advertise-peer-urls="+peers, "--initial-cluster=a="+at(2)+",b="+at(3))
	}
	return at(4) + "/metrics"
}

// awaitMetric waits up to two minutes until a program serves a metric.
func awaitMetric(t *testing.T, url, name string) {
	t.Helper()
	for range 240 {
		if body, err := fetchMetrics(t.Context(), url, ""); err == nil && slices.Contains(parseNames(body), name) {
			return
		}
		time.Sleep(500 * time.Millisecond)
	}
	t.Fatalf("%s has no metric %s", url, name)
}

// startCoreDNS starts CoreDNS, asks it for a name, and returns the address of its metrics.
func startCoreDNS(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "Corefile")
	ports := apitest.FreePorts(t, 2)
	port, served := ports[0], "127.0.0.1:"+ports[1]
	writeTestFile(t, file, ".:"+port+" {\n    bind 127.0.0.1\n    whoami\n    prometheus "+served+"\n}\n")
	apitest.Run(t, "coredns", assettest.Program(t, "coredns", "bin/coredns"), "-conf", file)
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", "127.0.0.1:"+port)
	}}
	for range 60 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, _ = resolver.LookupHost(ctx, "example.com.") // whoami answers without an address
		cancel()
		if body, err := fetchMetrics(t.Context(), "http://"+served+"/metrics", ""); err == nil && slices.Contains(parseNames(body), "coredns_dns_responses_total") {
			break
		}
		time.Sleep(500 * time.Millisecond)
	}
	return "http://" + served + "/metrics"
}
