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

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/machine/join"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/node"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// recordingAPI is an API server that records writes, and that fails all requests while down is set.
type recordingAPI struct {
	*httptest.Server
	down   bool
	writes []string          // method and path
	bodies map[string][]byte // the last body by path
}

func newRecordingAPI(t *testing.T) *recordingAPI {
	t.Helper()
	api := &recordingAPI{bodies: map[string][]byte{}}
	api.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if api.down {
			http.Error(w, "etcdserver: request timed out", http.StatusInternalServerError)
			return
		}
		api.writes = append(api.writes, r.Method+" "+r.URL.Path)
		api.bodies[r.URL.Path], _ = io.ReadAll(r.Body)
	}))
	t.Cleanup(api.Close)
	return api
}

func (api *recordingAPI) client() kube.Client {
	return kube.Client{Server: api.URL, HTTP: api.Client()}
}

// takeWrites returns the kinds of objects that were written since the last call.
func (api *recordingAPI) takeWrites() string {
	var kinds []string
	for _, w := range api.writes {
		switch {
		case strings.Contains(w, "/leases/slipway-etcd-a"):
			kinds = append(kinds, "lease")
		case strings.Contains(w, "/api/v1/nodes/") && strings.HasSuffix(w, "/status"):
			kinds = append(kinds, "node")
		default:
			kinds = append(kinds, w)
		}
	}
	api.writes = nil
	return strings.Join(kinds, " ")
}

// publisherAt returns a publisher of an agent whose clock is *now and which measures *r.
func publisherAt(t *testing.T, now *time.Time, r *report.Report, apis ...*recordingAPI) (*reportPublisher, *console) {
	t.Helper()
	a := testAgent(t)
	a.Now = func() time.Time { return *now }
	out := &console{}
	a.Report.Open = func() (io.WriteCloser, error) { return out, nil }
	p := &reportPublisher{agent: a, started: *now, measure: func(context.Context) report.Report {
		m := *r
		m.Time = *now
		return m
	}}
	for _, api := range apis {
		p.apis = append(p.apis, api.client())
	}
	return p, out
}

// TestReportsOfControlPlane: the Lease is renewed by every report, the Node, which everybody watches, only
// when something changes and every few minutes.
func TestReportsOfControlPlane(t *testing.T) {
	now := time.Date(2026, 11, 22, 5, 0, 0, 0, time.UTC)
	api := newRecordingAPI(t)
	r := report.Report{Machine: "i-1", Node: "ip-1", Slot: "a", Etcd: &report.Etcd{Quorum: true}}
	p, _ := publisherAt(t, &now, &r, api)
	p.member = &etcdMember{agent: p.agent, slot: node.Slot{Name: "a", Member: "etcd-a"}}
	step := func(want string) {
		t.Helper()
		if err := p.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := api.takeWrites(); got != want {
			t.Errorf("wrote %q, want %q", got, want)
		}
		now = now.Add(report.Interval)
	}
	step("lease node")
	r.Etcd.RaftIndex++
	step("lease")
	r.Conditions = []report.Condition{{Component: report.Kubelet, State: report.Failed, Cause: "systemd unit kubelet is inactive", Since: now}}
	step("lease node")
	var object struct {
		Metadata struct{ Annotations map[string]string }
		Spec     struct{ RenewTime time.Time }
		Status   struct{ Conditions []map[string]string }
	}
	if err := json.Unmarshal(api.bodies["/api/v1/nodes/ip-1/status"], &object); err != nil {
		t.Fatal(err)
	}
	want := []map[string]string{{
		"type": "MachineHealthy", "status": "False", "reason": "ComponentFailed", "message": "kubelet: systemd unit kubelet is inactive",
		"lastHeartbeatTime": "2026-11-22T05:00:10Z", "lastTransitionTime": "2026-11-22T05:00:10Z",
	}}
	if diff := cmp.Diff(want, object.Status.Conditions); diff != "" {
		t.Errorf("condition of the Node (-want +got):\n%s", diff)
	}
	var read report.Report
	if err := json.Unmarshal([]byte(object.Metadata.Annotations[report.Annotation]), &read); err != nil || read.Machine != "i-1" || read.NextSeconds != 5 {
		t.Errorf("report of the Node: %+v, %v", read, err)
	}
	now = now.Add(report.WorkerRefresh)
	step("lease node")
}

// TestReportsOfWorker: a worker that does not change writes every few minutes only.
func TestReportsOfWorker(t *testing.T) {
	now := time.Now()
	api := newRecordingAPI(t)
	r := report.Report{Machine: "i-2", Node: "ip-2"}
	p, _ := publisherAt(t, &now, &r, api)
	for range 61 { // five minutes and one report
		if err := p.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		now = now.Add(report.Interval)
	}
	if got := api.takeWrites(); got != "node node" {
		t.Errorf("wrote %q in five minutes, want two reports", got)
	}
}

// TestHeartbeatsOfWorker: a worker that misses one heartbeat reports nothing. If it misses more, it writes its Node once,
// and once more when they arrive again.
func TestHeartbeatsOfWorker(t *testing.T) {
	now := time.Now()
	api := newRecordingAPI(t)
	r := report.Report{Machine: "i-2", Node: "ip-2"}
	p, _ := publisherAt(t, &now, &r, api)
	var sent error
	p.heart = &heart{send: func(context.Context) error { return sent }}
	step := func(what string, err error, wrote string, heartbeats bool) {
		t.Helper()
		sent = err
		if got := p.run(t.Context()); !errors.Is(got, err) && !errors.Is(err, join.ErrNoHeartbeats) {
			t.Errorf("%s: ended with %v, want %v", what, got, err)
		}
		if got := api.takeWrites(); got != wrote || p.onNode.Heartbeats != heartbeats {
			t.Errorf("%s: wrote %q (heartbeats %v), want %q (%v)", what, got, p.onNode.Heartbeats, wrote, heartbeats)
		}
		now = now.Add(report.Interval)
	}
	lost := errors.New("connection refused")
	step("first", nil, "node", true)
	step("one missed", lost, "", true)
	step("it arrives again", nil, "", true)
	step("one missed", lost, "", true)
	step("two missed", lost, "node", false)
	step("three missed", lost, "", false)
	step("they arrive again", nil, "node", true)
	step("a control plane from before heartbeats", join.ErrNoHeartbeats, "node", false)
}

// TestReportThroughLoadBalancer: while the own API server cannot write, another one does.
func TestReportThroughLoadBalancer(t *testing.T) {
	now := time.Now()
	own, other := newRecordingAPI(t), newRecordingAPI(t)
	own.down = true
	r := report.Report{Machine: "i-1", Node: "ip-1", Slot: "a", Etcd: &report.Etcd{Error: "connection refused"}}
	p, out := publisherAt(t, &now, &r, own, other)
	p.member = &etcdMember{agent: p.agent, slot: node.Slot{Name: "a", Member: "etcd-a"}}
	if err := p.run(t.Context()); err != nil || other.takeWrites() != "lease node" {
		t.Errorf("not published by the other: %v", err)
	}
	if out.Len() > 0 {
		t.Errorf("console: %s", out.String())
	}
}

// TestReportOnConsole: without an API, changes are on the console. A line after the recovery says that it is
// over.
func TestReportOnConsole(t *testing.T) {
	now := time.Now()
	api := newRecordingAPI(t)
	api.down = true
	failed := report.Condition{Component: report.EtcdMember, State: report.Failed, Cause: "no quorum: answers 1 of 3 members"}
	r := report.Report{Machine: "i-1", Node: "ip-1", Slot: "a", Conditions: []report.Condition{failed}}
	p, out := publisherAt(t, &now, &r, api)
	step := func(lines int) {
		t.Helper()
		if err := p.run(t.Context()); (err == nil) == api.down {
			t.Errorf("ended with %v", err)
		}
		if got := strings.Count(out.String(), "\n"); got != lines {
			t.Errorf("%d lines on the console, want %d:\n%s", got, lines, out.String())
		}
		now = now.Add(report.Interval)
	}
	step(0) // a machine that starts has no API yet
	now = now.Add(consoleGrace)
	step(1)
	step(1)
	got, ok := report.ParseConsole([]byte(out.String()))
	if c, found := got.Condition(report.EtcdMember); !ok || !found || c.Cause != failed.Cause {
		t.Errorf("read back %+v, %v", got, ok)
	}
	api.down, r.Conditions = false, nil
	step(2)
	step(2)
	if got, _ := report.ParseConsole([]byte(out.String())); len(got.Conditions) != 0 {
		t.Errorf("after the recovery the console says %+v", got.Conditions)
	}
}

// TestMeasure measures a machine without etcd: its health checks, disks and certificates.
// TestNoReportOfAStoppedAgent: what an agent measures while systemd stops it says nothing about the machine. On the
// console, such a report would count as the machine's newest one for as long as the agent is stopped.
func TestNoReportOfAStoppedAgent(t *testing.T) {
	now := time.Now()
	api := newRecordingAPI(t)
	r := report.Report{Machine: "i-1", Node: "ip-1"}
	p, console := publisherAt(t, &now, &r, api)
	p.onNodeAt = now.Add(-time.Hour) // the machine is not starting
	ctx, stop := context.WithCancel(t.Context())
	p.measure = func(context.Context) report.Report {
		stop()
		r.Conditions = []report.Condition{{Component: report.Kubelet, State: report.Failed, Cause: "context canceled", Since: now}}
		return r
	}

	if err := p.run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error of a stopped agent: %v", err)
	}
	if got := api.takeWrites(); got != "" {
		t.Errorf("wrote %q to the API", got)
	}
	if got := console.String(); got != "" {
		t.Errorf("wrote to the console: %s", got)
	}
}

func TestMeasure(t *testing.T) {
	a := testAgent(t)
	if err := a.renewCertificates(); err != nil {
		t.Fatal(err)
	}
	a.Run = &runs{}
	checks := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			http.Error(w, "[+]ping ok\n[-]etcd failed: reason withheld\n[-]poststarthook/rbac/bootstrap-roles failed: reason withheld\nreadyz check failed", http.StatusInternalServerError)
		}
	}))
	defer checks.Close()
	m := a.newMeasurer(nil)
	m.kubeletURL, m.apiURL, m.http = checks.URL, checks.URL, checks.Client()
	r := m.measure(t.Context())
	r.APIServer = m.measureAPIServer(t.Context())
	if diff := cmp.Diff([]string{"etcd", "poststarthook/rbac/bootstrap-roles"}, r.APIServer.FailedChecks); diff != "" || r.APIServer.Ready {
		t.Errorf("failed checks of /readyz (-want +got):\n%s", diff)
	}
	if r.Kubelet.Error != "" || len(r.Disks) != 1 || r.Disks[0].SizeBytes == 0 {
		t.Errorf("kubelet %+v, disks %+v", r.Kubelet, r.Disks)
	}
	names := map[string]bool{}
	for _, c := range r.Certificates {
		names[c.Name] = c.NotAfter.After(a.Now()) && (c.CA || c.RenewAt.After(a.Now()))
	}
	for _, name := range []string{"apiserver", "kubelet", "etcd-server", "etcd-peer"} {
		if !names[name] {
			t.Errorf("certificate %s is missing or expired: %+v", name, r.Certificates)
		}
	}
	checks.Close()
	if r := m.measure(t.Context()); r.Kubelet.Error == "" {
		t.Error("a kubelet that does not answer is healthy")
	}
}
