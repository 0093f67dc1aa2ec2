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

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/report"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// fakeCluster is a cluster whose groups replace terminated machines at once, and whose new machines join when they
// are listed for the first time.
type fakeCluster struct {
	t      *testing.T
	client *fake.Clientset
	groups []rollout.Group // with the newest version of their launch templates

	mu             sync.Mutex
	machines       []rollout.Machine
	terminated     []string
	detached       []string
	slotDetached   []string // those of the control plane
	set            manifest.Set
	state          store.Store
	refuse         func(pod string) error // evictions
	neverReady     bool                   // new machines do not join
	brokenTemplate string                 // machines of this launch template version do not join
	launches       map[string]string      // the versions that groups launch machines from
	avoided        map[string]string
	messages       []string
	nextID         int
	holder         map[string]string // the machine that has the volume of each slot
	keepsSlots     bool              // machines ignore that they are asked to hand over
	noCapacity     string            // why no second machine of a slot is launched
	// failAt returns an error for a change, named by its kind and machine, as if the process were killed there.
	failAt func(change string) error
}

// change reports a change of the cluster to failAt.
func (f *fakeCluster) change(what string) error {
	if f.failAt == nil {
		return nil
	}

	return f.failAt(what)
}

func newFakeCluster(t *testing.T, slots, workers int) *fakeCluster {
	t.Helper()
	f := &fakeCluster{t: t, client: fake.NewClientset(), state: store.NewFileStore(t.TempDir()), holder: map[string]string{}, launches: map[string]string{}}
	for _, name := range []string{"control-plane", "workers"} {
		f.set.Groups = append(f.set.Groups, v1alpha1.InstanceGroup{Metadata: v1alpha1.Metadata{Name: name}})
	}

	f.client.PrependReactor("create", "pods", f.evict)
	f.client.PrependReactor("list", "pods", f.listPods)
	for i := range slots {
		g := rollout.Group{Name: "control-plane", Slot: string(rune('a' + i)), Size: 1, Version: "2"}
		f.groups = append(f.groups, g)
		f.launches[groupKey(g.Name, g.Slot)] = "1"
		f.launch(g, "1")
	}

	g := rollout.Group{Name: "workers", Size: workers, Version: "2"}
	f.groups = append(f.groups, g)
	f.launches[groupKey(g.Name, g.Slot)] = "1"
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
	if f.neverReady || version == f.brokenTemplate {
		return
	}

	if g.Slot != "" && f.holder[g.Slot] != "" {
		f.announceStandby(g.Slot, id)
		return
	}

	f.join(g.Slot, id, nil)
}

// join lets a machine register its node. A control-plane machine takes its slot.
func (f *fakeCluster) join(slot, id string, took *report.HandOver) {
	f.add("nodes", &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-" + id},
		Spec:       corev1.NodeSpec{ProviderID: "aws:///us-east-1a/" + id},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(),
		}}},
	})
	f.add("pods", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod-" + id}, Spec: corev1.PodSpec{NodeName: "node-" + id}})
	if slot != "" {
		f.holder[slot] = id
		f.reportMember(slot, id, took)
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
func (f *fakeCluster) reportMember(slot, id string, took *report.HandOver) {
	body, err := json.Marshal(report.Report{Machine: id, Etcd: &report.Etcd{Quorum: true}, HandOver: took})
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
	f.handOverSlots()
	groups := slices.Clone(f.groups)
	for i := range groups {
		chooseVersion(&groups[i], f.launches[groupKey(groups[i].Name, groups[i].Slot)], groups[i].Version, f.avoided)
		if groups[i].Slot != "" {
			groups[i].NoCapacity = f.noCapacity
		}
	}

	return groups, slices.Clone(f.machines), nil
}

// Terminate removes a machine and launches its replacement. It checks that the machine was drained.
func (f *fakeCluster) Terminate(_ context.Context, m rollout.Machine) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.change("terminate " + m.ID); err != nil {
		return err
	}

	f.terminated = append(f.terminated, m.ID)
	pods := corev1.SchemeGroupVersion
	// The client would take its own lock, which evictions hold when they call evict.
	if _, err := f.client.Tracker().Get(pods.WithResource("pods"), "default", "pod-"+m.ID); !apierrors.IsNotFound(err) {
		f.t.Errorf("machine %s is terminated with its pod: %v", m.ID, err)
	}

	at := slices.IndexFunc(f.machines, func(x rollout.Machine) bool { return x.ID == m.ID })
	was := f.machines[at]
	f.machines = slices.Delete(f.machines, at, at+1)
	_ = f.client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("nodes"), "", "node-"+m.ID) // it may not have joined
	if was.Slot != "" && f.holder[was.Slot] == m.ID {
		f.holder[was.Slot] = ""
		f.takeFreeSlot(was.Slot)
	}

	if !was.Detached || f.noCapacity != "" && was.Slot != "" {
		f.replace(was)
	}

	return nil
}

// replace launches a machine in the group of another one.
func (f *fakeCluster) replace(m rollout.Machine) {
	for _, g := range f.groups {
		if g.Name == m.Group && g.Slot == m.Slot {
			f.launch(g, f.launches[groupKey(g.Name, g.Slot)])
		}
	}
}

// Detach takes a machine from its group, which launches a new one.
func (f *fakeCluster) Detach(_ context.Context, m rollout.Machine) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.change("detach " + m.ID); err != nil {
		return err
	}

	f.detached = append(f.detached, m.ID)
	at := slices.IndexFunc(f.machines, func(x rollout.Machine) bool { return x.ID == m.ID })
	f.machines[at].Detached = true
	if m.Slot != "" {
		f.slotDetached = append(f.slotDetached, m.ID)
	}

	if m.Slot == "" || f.noCapacity == "" {
		f.replace(m)
	}

	return nil
}

// SetVersion changes the launch template version of a group.
func (f *fakeCluster) SetVersion(_ context.Context, g rollout.Group, version string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.change("set the version of " + g.Name + "/" + g.Slot); err != nil {
		return err
	}

	f.launches[groupKey(g.Name, g.Slot)] = version

	return nil
}

// Avoid implements fleet.
func (f *fakeCluster) Avoid(versions map[string]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.avoided = versions
}

// BootStage returns what every machine reports that does not join.
func (f *fakeCluster) BootStage(context.Context, string) string {
	return "stage start: kubelet: exit status 1"
}

func (f *fakeCluster) updater(req Request) *updater {
	env := &cluster.Env{Now: time.Now, Hooks: cluster.Hooks{Notify: func(m string) { f.messages = append(f.messages, m) }}}
	if req.JoinTimeout == 0 {
		req.JoinTimeout = time.Minute
	}

	req.Show = func([]rollout.Action) error { return nil }
	if req.Approve == nil {
		req.Approve = func(int) error { return nil }
	}

	onEvent := req.OnEvent
	if onEvent == nil {
		onEvent = func(e Event) { f.messages = append(f.messages, e.Message) }
	}

	settings, err := resolveSettings(f.set, req)
	if err != nil {
		f.t.Fatal(err)
	}

	return &updater{
		request: req, client: f.client, machines: f, interval: time.Millisecond, now: time.Now,
		warn: env.Warn, notify: env.Notifyf,
		report:   newReporter(time.Now, onEvent, req.OnProgress),
		gates:    gateChecker{client: f.client, run: req.RunCommand},
		observer: observer{now: time.Now, machines: f, client: f.client, settings: settings},
		good:     goodVersions{store: f.state, cluster: "demo"},
		turn:     controlPlaneTurn{client: f.client, now: time.Now},
	}
}

// run runs an update under a lock that is always free. As in Run, the work outlives the cancellation of ctx.
func run(ctx context.Context, u *updater) (Result, error) {
	return u.showAndRun(ctx, func(ctx context.Context, do func(context.Context) error) error {
		return do(context.WithoutCancel(ctx))
	})
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

// An update that is asked to stop completes the machine whose drain has begun, begins no other, and is continued by the
// next one.
func TestRunStopsGracefully(t *testing.T) {
	f := newFakeCluster(t, 1, 3)
	ctx, cancel := context.WithCancel(t.Context())
	refusals := 0
	f.refuse = func(pod string) error {
		if pod != "pod-i-2" || refusals > 3 {
			return nil
		}

		refusals++
		cancel()

		return apierrors.NewTooManyRequests("budget", 1)
	}

	_, err := run(ctx, f.updater(Request{Name: "demo"}))
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "interrupted: 2 of 4 machines were replaced") {
		t.Fatalf("got %v", err)
	}

	if !slices.Equal(f.terminated, []string{"i-1", "i-2"}) {
		t.Errorf("terminated %v", f.terminated)
	}

	result, err := run(t.Context(), f.updater(Request{Name: "demo"}))
	if err != nil || result.Replaced != 2 || len(f.terminated) != 4 {
		t.Errorf("%+v, %v, %v", result, f.terminated, err)
	}
}

// A surge starts a machine first: the group never has fewer serving machines than its size.
func TestRunSurges(t *testing.T) {
	f := newFakeCluster(t, 0, 4)
	least := 4
	u := f.updater(Request{Name: "demo", MaxSurge: "50%", OnProgress: func(p Progress) {
		serving := 0
		for _, m := range p.Machines {
			if m.Machine.NodeReady && m.Step != rollout.StepDraining {
				serving++
			}
		}

		least = min(least, serving)
	}})
	if _, err := run(t.Context(), u); err != nil {
		t.Fatal(err)
	}

	if least < 4 || len(f.detached) != 2 || len(f.terminated) != 4 || len(f.machines) != 4 {
		t.Errorf("at least %d served; detached %v, terminated %v, left %v", least, f.detached, f.terminated, f.machines)
	}

	// A detached machine still serves, so others are replaced before it.
	if first := f.terminated[0]; slices.Contains(f.detached, first) {
		t.Errorf("the detached machine %s of %v is the first of %v", first, f.detached, f.terminated)
	}
}

// All outdated nodes are marked before the first drain, and no mark is left at the end.
func TestRunMarksNodesFirst(t *testing.T) {
	f := newFakeCluster(t, 0, 3)
	marked := -1
	f.refuse = func(string) error {
		if marked < 0 {
			marked = len(f.markedNodes())
		}

		return nil
	}

	if _, err := run(t.Context(), f.updater(Request{Name: "demo"})); err != nil {
		t.Fatal(err)
	}

	if left := f.markedNodes(); marked != 3 || len(left) > 0 {
		t.Errorf("%d nodes were marked before the first eviction, left %v", marked, left)
	}
}

// markedNodes returns the names of the nodes with the taint of outdated nodes.
func (f *fakeCluster) markedNodes() []string {
	nodes := corev1.SchemeGroupVersion
	object, err := f.client.Tracker().List(nodes.WithResource("nodes"), nodes.WithKind("Node"), "")
	if err != nil {
		f.t.Error(err)
		return nil
	}

	var out []string
	for _, n := range object.(*corev1.NodeList).Items {
		for _, taint := range n.Spec.Taints {
			if taint.Key == rollout.OutdatedTaint && taint.Effect == corev1.TaintEffectPreferNoSchedule {
				out = append(out, n.Name)
			}
		}
	}

	return out
}
