// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/join"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// endingMachine is a machine with its instance metadata, its node's part of the Kubernetes API and its Auto Scaling
// group, each with a clock. Killed at a call, the process of the agent ends before or after the call's effect.
type endingMachine struct {
	t    *testing.T
	now  time.Time
	meta map[string]string
	// pods by name; the value is how many evictions a budget still refuses.
	pods map[string]int
	// left counts the rounds until an evicted pod is gone.
	left      map[string]int
	kept      []string
	RepairAPI // other calls are not made
	balanced  bool
	down      atomic.Bool // the API does not answer

	node      map[string]any
	completed time.Time
	beats     int
	yielded   int
	events    []string

	mu            sync.Mutex // held during a call: a killed one ends without an answer
	calls, killAt int
	afterEffect   bool
	killed        bool
}

var errAgentKilled = errors.New("the process was killed")

// call counts a call with an effect, and kills the process at the chosen one.
func (m *endingMachine) call(effect func()) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
	if m.calls != m.killAt {
		effect()
		return nil
	}

	m.killed = true
	if m.afterEffect {
		effect()
	}

	return errAgentKilled
}

func (m *endingMachine) GetMetadata(_ context.Context, in *imds.GetMetadataInput, _ ...func(*imds.Options)) (*imds.GetMetadataOutput, error) {
	v, ok := m.meta[in.Path]
	if !ok {
		return nil, &smithyhttp.ResponseError{
			Response: &smithyhttp.Response{Response: &http.Response{StatusCode: http.StatusNotFound}}, Err: errors.New("none"),
		}
	}

	return &imds.GetMetadataOutput{Content: io.NopCloser(strings.NewReader(v))}, nil
}

func (m *endingMachine) CompleteLifecycleAction(_ context.Context, in *autoscaling.CompleteLifecycleActionInput, _ ...func(*autoscaling.Options)) (*autoscaling.CompleteLifecycleActionOutput, error) {
	if *in.LifecycleHookName == "slipway-launch" { // nothing waits for a launch
		return nil, &smithy.GenericAPIError{Code: "ValidationError", Message: "No active Lifecycle Action found with instance ID i-1"}
	}

	if *in.AutoScalingGroupName != "workers.demo" || *in.LifecycleHookName != "slipway-drain" || *in.InstanceId != "i-1" || *in.LifecycleActionResult != "CONTINUE" {
		m.t.Errorf("completed %v", in)
	}

	if !m.completed.IsZero() {
		return nil, &smithy.GenericAPIError{Code: "ValidationError", Message: "No active Lifecycle Action found with instance ID i-1"}
	}

	return nil, m.call(func() { m.completed = m.now })
}

func (m *endingMachine) RecordLifecycleActionHeartbeat(context.Context, *autoscaling.RecordLifecycleActionHeartbeatInput, ...func(*autoscaling.Options)) (*autoscaling.RecordLifecycleActionHeartbeatOutput, error) {
	return nil, m.call(func() { m.beats++ })
}

// SendLifecycle is a machine of the control plane that was asked by the machine.
func (m *endingMachine) SendLifecycle(ctx context.Context, action join.LifecycleAction) (bool, error) {
	return actForMachine(ctx, m, join.Machine{ID: "i-1", ScalingGroup: "workers.demo"}, action)
}

// ServeHTTP is the Kubernetes API as the node may use it.
func (m *endingMachine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	status := http.StatusOK
	var out any = map[string]any{}
	if m.down.Load() {
		panic(http.ErrAbortHandler)
	}

	if err := m.call(func() { status, out = m.answer(r) }); err != nil {
		panic(http.ErrAbortHandler)
	}

	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(out)
}

func (m *endingMachine) answer(r *http.Request) (int, any) {
	switch {
	case r.Method == http.MethodGet && r.URL.Path == "/api/v1/nodes/node-1":
		return http.StatusOK, m.node
	case r.Method == http.MethodPatch && r.URL.Path == "/api/v1/nodes/node-1":
		if err := json.NewDecoder(r.Body).Decode(&m.node); err != nil {
			m.t.Error(err)
		}
	case r.URL.Path == "/api/v1/services":
		kind := "ClusterIP"
		if m.balanced {
			kind = "LoadBalancer"
		}
		return http.StatusOK, map[string]any{"items": []any{map[string]any{"spec": map[string]any{"type": kind}}}}
	case r.URL.Path == "/api/v1/pods" && r.URL.Query().Get("fieldSelector") == "spec.nodeName=node-1":
		return http.StatusOK, m.listPods()
	case strings.HasSuffix(r.URL.Path, "/events"):
		var e struct{ Reason, Message string }
		if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
			m.t.Error(err)
		}
		m.events = append(m.events, e.Reason+": "+e.Message)
	case strings.HasSuffix(r.URL.Path, "/eviction"):
		name := strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/default/pods/"), "/eviction")
		switch refusals, exists := m.pods[name]; {
		case !exists:
			return http.StatusNotFound, map[string]any{"message": "pods \"" + name + "\" not found"}
		case refusals > 0:
			m.pods[name]--
			return http.StatusTooManyRequests, map[string]any{"message": "Cannot evict pod as it would violate the pod's disruption budget."}
		}
		if _, evicted := m.left[name]; !evicted {
			m.left[name] = 2
		}
	default:
		m.t.Errorf("%s %s: a node may not do that", r.Method, r.URL)
		return http.StatusForbidden, map[string]any{"message": "forbidden"}
	}

	return http.StatusOK, map[string]any{}
}

// listPods returns the pods of the node. Pods that were evicted are gone after some lists.
func (m *endingMachine) listPods() any {
	items := []any{}
	item := func(name string, more map[string]any) {
		meta := map[string]any{"namespace": "default", "name": name, "uid": "uid-" + name}
		maps.Copy(meta, more)
		items = append(items, map[string]any{"metadata": meta})
	}
	for name := range m.pods {
		more := map[string]any{"ownerReferences": []any{map[string]any{"kind": "ReplicaSet", "controller": true}}}
		if n, evicted := m.left[name]; evicted {
			if n == 0 {
				delete(m.pods, name)
				continue
			}
			m.left[name]--
			more["deletionTimestamp"] = "2026-01-01T00:00:00Z"
		}
		item(name, more)
	}
	for _, name := range m.kept {
		item(name, map[string]any{"ownerReferences": []any{map[string]any{"kind": "DaemonSet", "controller": true}}})
	}

	return map[string]any{"items": items}
}

// newEndingMachine returns a machine with two pods, one of which a budget protects for three rounds.
func newEndingMachine(t *testing.T) *endingMachine {
	t.Helper()

	return &endingMachine{
		t: t, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), meta: map[string]string{"autoscaling/target-lifecycle-state": "InService"},
		pods: map[string]int{"web-1": 0, "web-2": 3}, left: map[string]int{}, kept: []string{"flannel"},
	}
}

// start returns the watch of a new process of the agent on the machine.
func (m *endingMachine) start() *terminationWatch {
	server := httptest.NewServer(m)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	m.t.Cleanup(server.Close)
	a := &Agent{
		Metadata: m, Lifecycle: m, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return m.now },
		Report: &Reporter{Open: func() (io.WriteCloser, error) { return nil, errors.New("no console") }, Log: slog.New(slog.DiscardHandler), Now: time.Now},
	}
	a.Boot.Cluster = "demo"
	a.Boot.Group = "workers"
	a.doc.Role = v1alpha1.RoleWorker
	a.instance = Instance{ID: "i-1", Name: "node-1", Lifecycle: "spot"}
	w := newTerminationWatch(a)
	w.drain.api = kube.Client{Server: server.URL, HTTP: server.Client()}
	w.yield = func(context.Context) error { m.yielded++; return nil }

	return w
}

// runUntil lets the agent look once a second until the hook is complete or the time is over, and restarts it when it
// was killed.
func (m *endingMachine) runUntil(limit time.Duration) {
	end := m.now.Add(limit)
	m.runWhile(m.start, func() bool { return m.now.Before(end) })
}

// runWhile lets the agent look once a second while the hook is not complete and goesOn is true. start starts its processes.
func (m *endingMachine) runWhile(start func() *terminationWatch, goesOn func() bool) {
	w := start()
	for ; m.completed.IsZero() && goesOn(); m.now = m.now.Add(time.Second) {
		_, _ = w.look(m.t.Context())
		m.mu.Lock()
		killed := m.killed
		m.killed = false
		m.mu.Unlock()
		if killed {
			w = start()
		}
	}
}

// TestTerminationIsKilledAtEveryCall checks that a terminating machine ends with all of its pods evicted, and not
// before, wherever the agent was killed.
func TestTerminationIsKilledAtEveryCall(t *testing.T) {
	clean := newEndingMachine(t)
	clean.meta["autoscaling/target-lifecycle-state"] = "Terminated"
	clean.runUntil(time.Minute)
	if clean.completed.IsZero() || clean.calls < 10 {
		t.Fatalf("completed %v after %d calls", clean.completed, clean.calls)
	}

	for k := 1; k <= clean.calls; k++ {
		for _, after := range []bool{false, true} {
			m := newEndingMachine(t)
			m.meta["autoscaling/target-lifecycle-state"] = "Terminated"
			m.killAt, m.afterEffect = k, after
			m.runUntil(time.Minute)
			switch spec, _ := m.node["spec"].(map[string]any); {
			case m.completed.IsZero():
				t.Errorf("killed at call %d (after its effect: %t): the hook is not completed", k, after)
			case len(m.pods) > 0:
				t.Errorf("killed at call %d (after its effect: %t): completed with pods %v left", k, after, m.pods)
			case spec["unschedulable"] != true:
				t.Errorf("killed at call %d (after its effect: %t): not cordoned: %v", k, after, m.node)
			case m.yielded == 0:
				t.Errorf("killed at call %d (after its effect: %t): the leadership was not moved", k, after)
			}
		}
	}
}

func TestTermination(t *testing.T) {
	start := newEndingMachine(t).now
	for name, tc := range map[string]struct {
		change      func(m *endingMachine)
		from, until time.Duration // when the hook is completed; zero: never
		left        int
		event       string
	}{
		"in service":                    {func(m *endingMachine) { m.meta["autoscaling/target-lifecycle-state"] = "InService" }, 0, 0, 2, ""},
		"in no group":                   {func(m *endingMachine) { delete(m.meta, "autoscaling/target-lifecycle-state") }, 0, 0, 2, ""},
		"returns to a stopped pool":     {func(m *endingMachine) { m.meta[targetStateKey] = "Warmed:Stopped" }, 0, 10 * time.Second, 0, "drained in "},
		"terminates in its pool":        {func(m *endingMachine) { m.meta[targetStateKey] = "Warmed:Terminated" }, 0, 10 * time.Second, 0, "drained in "},
		"drained already":               {func(m *endingMachine) { m.pods = nil }, 0, time.Second, 0, "drained in 0s"},
		"a budget that never allows it": {func(m *endingMachine) { m.pods["web-2"] = 1 << 30 }, drainLimit, drainLimit + 2*time.Second, 1, "not drained after 15m0s: default/web-2: "},
		"the API is down":               {func(m *endingMachine) { m.down.Store(true) }, unreachableLimit, unreachableLimit + 2*time.Second, 2, ""},
		"load balancers":                {func(m *endingMachine) { m.balanced = true }, balancerDelay, balancerDelay + 2*time.Second, 0, "drained in 30s"},
		"a rebalance recommendation": {func(m *endingMachine) {
			m.meta["autoscaling/target-lifecycle-state"] = "InService"
			m.meta["events/recommendations/rebalance"] = `{"noticeTime":"2026-01-02T03:04:05Z"}`
		}, 0, 0, 2, "RebalanceRecommendation: "},
		"a spot notice": {func(m *endingMachine) {
			m.meta["autoscaling/target-lifecycle-state"] = "InService"
			m.meta["spot/instance-action"] = `{"action":"terminate","time":"2026-01-02T03:06:05Z"}`
		}, 0, 0, 0, "Terminating: drained in "},
		"a spot notice that is too short for a budget": {func(m *endingMachine) {
			m.pods["web-2"] = 1 << 30
			m.meta["spot/instance-action"] = `{"action":"terminate","time":"2026-01-02T03:06:05Z"}`
		}, 105 * time.Second, 107 * time.Second, 1, "not drained after 1m45s"},
	} {
		m := newEndingMachine(t)
		m.meta["autoscaling/target-lifecycle-state"] = "Terminated"
		tc.change(m)
		m.runUntil(drainLimit + time.Minute)
		took := m.completed.Sub(start)
		switch {
		case tc.until == 0 && !m.completed.IsZero():
			t.Errorf("%s: completed after %s", name, took)
		case tc.until > 0 && (m.completed.IsZero() || took < tc.from || took > tc.until):
			t.Errorf("%s: completed after %s, want %s to %s", name, took, tc.from, tc.until)
		}

		if len(m.pods) != tc.left {
			t.Errorf("%s: pods %v are left, want %d", name, m.pods, tc.left)
		}

		if events := strings.Join(m.events, "\n"); !strings.Contains(events, tc.event) || tc.event == "" && events != "" {
			t.Errorf("%s: events %q, want %q", name, events, tc.event)
		}

		if want := int(took/time.Second)/20 - 2; tc.until > time.Minute && m.beats < want {
			t.Errorf("%s: %d heartbeats in %s", name, m.beats, took)
		}
	}
}

// targetStateKey is the metadata with the target lifecycle state.
const targetStateKey = "autoscaling/target-lifecycle-state"

// TestNodeOfAPooledMachine checks that a machine that leaves its warm pool again is schedulable, after a boot and without one, that
// the labels of its group stay, and that a node which a person cordoned stays cordoned.
func TestNodeOfAPooledMachine(t *testing.T) {
	for name, tc := range map[string]struct {
		boots, byPerson bool
		labels          map[string]string
	}{
		"stopped and started":  {boots: true},
		"kept running":         {},
		"with the group's own": {boots: true, labels: map[string]string{excludeLabel: ""}},
		"cordoned by a person": {boots: true, byPerson: true},
	} {
		m := newEndingMachine(t)
		m.meta[targetStateKey] = "Warmed:Stopped"
		w := m.start()
		w.agent.doc = warmDocument()
		w.agent.doc.NodeLabels = tc.labels
		for range 20 {
			if _, err := w.look(t.Context()); err != nil {
				t.Fatal(err)
			}
			m.now = m.now.Add(time.Second)
		}
		if spec, _ := m.node["spec"].(map[string]any); m.completed.IsZero() || spec["unschedulable"] != true || len(m.pods) > 0 {
			t.Fatalf("%s: completed %v, node %v, pods %v", name, m.completed, m.node, m.pods)
		}
		if last := w.agent.Report.last; last.Stage != "warm" || last.State != "running" {
			t.Errorf("%s: the last report is %+v", name, last)
		}

		m.meta[targetStateKey] = "InService"
		if tc.byPerson {
			m.node = map[string]any{"spec": map[string]any{"unschedulable": true}}
		}
		if tc.boots {
			w = m.start()
			w.agent.doc = warmDocument()
			w.agent.doc.NodeLabels = tc.labels
		}
		for range 5 {
			if _, err := w.look(t.Context()); err != nil {
				t.Fatal(err)
			}
			m.now = m.now.Add(time.Second)
		}
		spec, _ := m.node["spec"].(map[string]any)
		meta, _ := m.node["metadata"].(map[string]any)
		labels, _ := meta["labels"].(map[string]any)
		_, changed := labels[excludeLabel]
		if spec["unschedulable"] != tc.byPerson || changed == (tc.byPerson || tc.labels != nil) {
			t.Errorf("%s: back in service: %v", name, m.node)
		}

		m.meta[targetStateKey] = "Terminated"
		m.completed = time.Time{}
		m.pods["web-3"] = 0
		for range 20 {
			_, _ = w.look(t.Context())
			m.now = m.now.Add(time.Second)
		}
		if m.completed.IsZero() || len(m.pods) > 0 {
			t.Errorf("%s: then terminated: completed %v, pods %v", name, m.completed, m.pods)
		}
	}
}

// TestHookErrors checks which errors mean that nothing waits for the machine any more.
func TestHookErrors(t *testing.T) {
	for message, gone := range map[string]bool{
		"No active Lifecycle Action found with instance ID i-1": true,
		"No Lifecycle Hook found with name slipway-drain":       true,
		"AutoScalingGroup name not found":                       false,
	} {
		if got := isNoLifecycleAction(fmt.Errorf("x: %w", &smithy.GenericAPIError{Code: "ValidationError", Message: message})); got != gone {
			t.Errorf("%q: %t", message, got)
		}
	}
}
