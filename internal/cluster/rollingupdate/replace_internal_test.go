// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/drain"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// fakeCluster is a cluster whose groups replace terminated machines at once, and whose new machines join when they
// are listed for the first time.
type fakeCluster struct {
	t      *testing.T
	client *fake.Clientset
	groups []rollout.Group

	mu         sync.Mutex
	machines   []rollout.Machine
	terminated []string
	refuse     func(pod string) error // evictions
	neverReady bool                   // new machines do not join
	messages   []string
	nextID     int
}

func newFakeCluster(t *testing.T, slots, workers int) *fakeCluster {
	t.Helper()
	f := &fakeCluster{t: t, client: fake.NewClientset()}
	f.client.PrependReactor("create", "pods", f.evict)
	f.client.PrependReactor("list", "pods", f.listPods)
	for i := range slots {
		g := rollout.Group{Name: "control-plane", Slot: string(rune('a' + i)), Size: 1, Version: "2"}
		f.groups = append(f.groups, g)
		f.launch(g, "1")
	}

	g := rollout.Group{Name: "workers", Size: workers, Version: "2"}
	f.groups = append(f.groups, g)
	for range workers {
		f.launch(g, "1")
	}

	return f
}

// launch adds a machine, with a Ready node and a healthy member unless new machines do not join.
func (f *fakeCluster) launch(g rollout.Group, version string) {
	f.nextID++
	id := fmt.Sprintf("i-%d", f.nextID)
	f.machines = append(f.machines, rollout.Machine{
		ID: id, Group: g.Name, Slot: g.Slot, State: rollout.StateRunning, Launched: time.Now(), Version: version,
	})
	if f.neverReady {
		return
	}

	f.add("nodes", &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-" + id},
		Spec:       corev1.NodeSpec{ProviderID: "aws:///us-east-1a/" + id},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	})
	f.add("pods", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod-" + id}, Spec: corev1.PodSpec{NodeName: "node-" + id}})
	if g.Slot != "" {
		f.reportMember(g.Slot, id)
	}
}

// add adds an object to the API, or replaces it.
func (f *fakeCluster) add(kind string, object runtime.Object) {
	gvr := corev1.SchemeGroupVersion.WithResource(kind)
	namespace := ""
	switch o := object.(type) {
	case *corev1.Pod:
		namespace = o.Namespace
	case *coordinationv1.Lease:
		namespace = o.Namespace
		gvr = coordinationv1.SchemeGroupVersion.WithResource(kind)
		_ = f.client.Tracker().Delete(gvr, namespace, o.Name)
	}
	if err := f.client.Tracker().Create(gvr, object, namespace); err != nil {
		f.t.Error(err)
	}
}

// reportMember writes the lease of a slot as the agent of a machine does.
func (f *fakeCluster) reportMember(slot, id string) {
	body, err := json.Marshal(report.Report{Machine: id, Etcd: &report.Etcd{Quorum: true}})
	if err != nil {
		f.t.Error(err)
	}

	now := metav1.NowMicro()
	f.add("leases", &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: etcdLeasePrefix + slot, Annotations: map[string]string{report.Annotation: string(body)},
		},
		Spec: coordinationv1.LeaseSpec{RenewTime: &now},
	})
}

// listPods applies the field selector, which the fake client ignores.
func (f *fakeCluster) listPods(a clienttesting.Action) (bool, runtime.Object, error) {
	gvk := corev1.SchemeGroupVersion.WithKind("Pod")
	object, err := f.client.Tracker().List(a.GetResource(), gvk, a.GetNamespace())
	if err != nil {
		return true, nil, err
	}

	list := object.(*corev1.PodList)
	selector := a.(clienttesting.ListAction).GetListRestrictions().Fields
	list.Items = slices.DeleteFunc(list.Items, func(p corev1.Pod) bool {
		return !selector.Matches(fields.Set{"spec.nodeName": p.Spec.NodeName})
	})

	return true, list, nil
}

func (f *fakeCluster) evict(a clienttesting.Action) (bool, runtime.Object, error) {
	if a.GetSubresource() != "eviction" {
		return false, nil, nil
	}

	name := a.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction).Name
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		if err := f.refuse(name); err != nil {
			return true, nil, err
		}
	}

	return true, nil, f.client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), a.GetNamespace(), name)
}

func (f *fakeCluster) List(context.Context) ([]rollout.Group, []rollout.Machine, error) {
	f.mu.Lock()
	defer f.mu.Unlock()

	return slices.Clone(f.groups), slices.Clone(f.machines), nil
}

// Terminate removes a machine and launches its replacement. It checks that the machine was drained.
func (f *fakeCluster) Terminate(ctx context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.terminated = append(f.terminated, id)
	pods, err := drain.ListPods(ctx, f.client, "node-"+id)
	if err != nil || len(pods) > 0 {
		f.t.Errorf("machine %s is terminated with %d pods: %v", id, len(pods), err)
	}

	at := slices.IndexFunc(f.machines, func(m rollout.Machine) bool { return m.ID == id })
	m := f.machines[at]
	f.machines = slices.Delete(f.machines, at, at+1)
	if err := f.client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("nodes"), "", "node-"+id); err != nil {
		f.t.Error(err)
	}

	for _, g := range f.groups {
		if g.Name == m.Group && g.Slot == m.Slot {
			f.launch(g, g.Version)
		}
	}

	return nil
}

func (f *fakeCluster) updater(req Request) *updater {
	env := &cluster.Env{Now: time.Now, Hooks: cluster.Hooks{Notify: func(m string) { f.messages = append(f.messages, m) }}}
	req.JoinTimeout = time.Minute
	req.Show = func([]rollout.Action) error { return nil }
	if req.Approve == nil {
		req.Approve = func(int) error { return nil }
	}

	return &updater{
		env: env, request: req, client: f.client, machines: f, interval: time.Millisecond,
		observer: observer{now: time.Now, machines: f, client: f.client, maxUnavailable: unavailableLimit{number: 1}},
	}
}

func run(ctx context.Context, u *updater) (Result, error) {
	return u.showAndRun(ctx, func(ctx context.Context, do func(context.Context) error) error { return do(ctx) })
}

func TestRunReplacesEveryMachineOnce(t *testing.T) {
	f := newFakeCluster(t, 3, 2)
	result, err := run(t.Context(), f.updater(Request{Name: "demo"}))
	if err != nil {
		t.Fatal(err)
	}

	if result.Replaced != 5 || len(f.terminated) != 5 {
		t.Errorf("replaced %d, terminated %v", result.Replaced, f.terminated)
	}

	for _, m := range f.machines {
		if m.Version != "2" {
			t.Errorf("machine %s has version %s", m.ID, m.Version)
		}
	}

	if !slices.Equal(slices.Sorted(slices.Values(f.terminated[:3])), []string{"i-1", "i-2", "i-3"}) {
		t.Errorf("the control plane is not first: %v", f.terminated)
	}

	again, err := run(t.Context(), f.updater(Request{Name: "demo"}))
	if err != nil || !again.UpToDate {
		t.Errorf("a second run: %+v, %v", again, err)
	}
}

// A run that is killed while a node is drained is continued by the next one, which does not begin another machine.
func TestRunContinues(t *testing.T) {
	f := newFakeCluster(t, 1, 2)
	ctx, cancel := context.WithCancel(t.Context())
	f.refuse = func(pod string) error {
		if pod == "pod-i-2" {
			cancel()
			return apierrors.NewTooManyRequests("budget", 1)
		}

		return nil
	}

	_, err := run(ctx, f.updater(Request{Name: "demo"}))
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "interrupted: 1 machines were replaced") {
		t.Fatalf("got %v", err)
	}

	f.mu.Lock()
	f.refuse = nil
	f.terminated = nil
	f.mu.Unlock()
	result, err := run(t.Context(), f.updater(Request{Name: "demo"}))
	if err != nil || result.Replaced != 2 || f.terminated[0] != "i-2" {
		t.Errorf("%+v, %v, %v", result, f.terminated, err)
	}
}

func TestRunStopsWhenADrainTakesTooLong(t *testing.T) {
	f := newFakeCluster(t, 1, 1)
	f.refuse = func(string) error { return apierrors.NewTooManyRequests("the disruption budget web", 1) }
	_, err := run(t.Context(), f.updater(Request{Name: "demo", DrainTimeout: 10 * time.Millisecond}))
	if !errors.Is(err, drain.ErrTimeout) || len(f.terminated) > 0 {
		t.Errorf("terminated %v, %v", f.terminated, err)
	}

	if !slices.ContainsFunc(f.messages, func(m string) bool { return strings.Contains(m, "default/pod-i-1") }) {
		t.Errorf("the blocking pod was not reported: %v", f.messages)
	}
}

func TestRunStopsAfterOneMachineThatDoesNotJoin(t *testing.T) {
	f := newFakeCluster(t, 1, 3)
	u := f.updater(Request{Name: "demo", Groups: []string{"workers"}})
	u.request.JoinTimeout = 50 * time.Millisecond
	f.neverReady = true
	_, err := run(t.Context(), u)
	if err == nil || !strings.Contains(err.Error(), "stopped after 1 machines") || len(f.terminated) != 1 {
		t.Errorf("terminated %v, %v", f.terminated, err)
	}
}

// Nodes named after their addresses are used again by later machines, which must not inherit the mark.
func TestObserveUncordonsAReusedNode(t *testing.T) {
	f := newFakeCluster(t, 1, 0)
	if err := drain.Cordon(t.Context(), f.client, "node-i-1", rollout.StartedAnnotation, "i-0"); err != nil {
		t.Fatal(err)
	}

	o, err := f.updater(Request{}).observer.observe(t.Context())
	if err != nil || o.Machines[0].Started {
		t.Errorf("%+v, %v", o.Machines, err)
	}

	node, err := f.client.CoreV1().Nodes().Get(t.Context(), "node-i-1", metav1.GetOptions{})
	if err != nil || node.Spec.Unschedulable || node.Annotations[rollout.StartedAnnotation] != "" {
		t.Errorf("%+v, %v", node, err)
	}
}

func TestParseMaxUnavailable(t *testing.T) {
	for text, want := range map[string]int{"": 1, "3": 3, "25%": 2, "1%": 1, "100%": 10} {
		limit, err := parseMaxUnavailable(text)
		if err != nil || limit.machines(10) != want {
			t.Errorf("%q: %d, %v", text, limit.machines(10), err)
		}
	}

	for _, text := range []string{"0", "-1", "x", "101%", "%"} {
		if _, err := parseMaxUnavailable(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}
