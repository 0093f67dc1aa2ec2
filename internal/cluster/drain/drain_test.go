// SPDX-License-Identifier: Apache-2.0

package drain_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/slipway-k8s/slipway/internal/cluster/drain"
)

func pod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	controller := true
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       "default",
			Name:            name,
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web", Controller: &controller}},
		},
		Spec: corev1.PodSpec{NodeName: "node-1"},
	}
	for _, c := range change {
		c(p)
	}

	return p
}

func TestClassify(t *testing.T) {
	now := metav1.Now()
	pods := []corev1.Pod{
		*pod("plain"),
		*pod("static", func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }),
		*pod("daemon", func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "DaemonSet" }),
		*pod("finished", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
		*pod("terminating", func(p *corev1.Pod) { p.DeletionTimestamp = &now }),
		*pod("unmanaged", func(p *corev1.Pod) { p.OwnerReferences = nil }),
		*pod("data", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		}),
	}

	got := drain.Classify(pods)
	names := func(pods []corev1.Pod) []string {
		var out []string
		for _, p := range pods {
			out = append(out, p.Name)
		}

		return out
	}
	want := map[string][]string{
		"evict":       {"plain", "unmanaged", "data"},
		"terminating": {"terminating"},
		"unmanaged":   {"default/unmanaged"},
		"local data":  {"default/data"},
	}
	if diff := cmp.Diff(want, map[string][]string{
		"evict": names(got.Evict), "terminating": names(got.Terminating), "unmanaged": got.Unmanaged, "local data": got.LocalData,
	}); diff != "" {
		t.Error(diff)
	}

	if got.IsDrained() || !drain.Classify(pods[1:4]).IsDrained() {
		t.Error("IsDrained does not depend on the pods to evict and to wait for")
	}
}

// cluster is a fake API whose evictions answer with the errors that refuse returns, and else delete the pod.
type cluster struct {
	*fake.Clientset
	evicted []string
	refuse  func(name string, attempt int) error
}

func newCluster(t *testing.T, refuse func(string, int) error, pods ...*corev1.Pod) *cluster {
	t.Helper()
	c := &cluster{Clientset: fake.NewClientset(), refuse: refuse}
	for _, p := range pods {
		if err := c.Tracker().Add(p); err != nil {
			t.Fatal(err)
		}
	}

	attempts := map[string]int{}
	c.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() != "eviction" {
			return false, nil, nil
		}

		name := a.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction).Name
		attempts[name]++
		if c.refuse != nil {
			if err := c.refuse(name, attempts[name]); err != nil {
				return true, nil, err
			}
		}

		c.evicted = append(c.evicted, name)

		return true, nil, c.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), a.GetNamespace(), name)
	})

	return c
}

// violates is what an API server answers to an eviction that a disruption budget does not allow.
func violates(budget string) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 10)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type:    policyv1.DisruptionBudgetCause,
		Message: "The disruption budget " + budget + " needs 1 healthy pods and has 1 currently",
	})

	return err
}

func drainer(c *cluster, timeout time.Duration, tell func([]drain.Blocker)) drain.Drainer {
	return drain.Drainer{
		Client:   c,
		Timeout:  timeout,
		Now:      time.Now,
		Interval: time.Millisecond,
		OnBlocked: func(_ string, b []drain.Blocker) {
			if tell != nil {
				tell(b)
			}
		},
	}
}

func TestRunRetriesWhatABudgetRefuses(t *testing.T) {
	c := newCluster(t, func(name string, attempt int) error {
		if name == "web-1" && attempt < 3 {
			return violates("web")
		}

		return nil
	}, pod("web-1"), pod("web-2"))

	var told []string
	d := drainer(c, time.Minute, func(b []drain.Blocker) {
		for _, x := range b {
			told = append(told, x.Pod+": "+x.Reason)
		}
	})
	if err := d.Run(t.Context(), "node-1"); err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff([]string{"web-2", "web-1"}, c.evicted); diff != "" {
		t.Error(diff)
	}

	want := []string{"default/web-1: The disruption budget web needs 1 healthy pods and has 1 currently"}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("what the drain waits for is told once: %s", diff)
	}
}

func TestRunNamesTheBlockersWhenTimeIsOver(t *testing.T) {
	c := newCluster(t, func(string, int) error { return violates("web") }, pod("web-1"))
	err := drainer(c, 20*time.Millisecond, nil).Run(t.Context(), "node-1")
	if !errors.Is(err, drain.ErrTimeout) || !strings.Contains(err.Error(), "default/web-1") || !strings.Contains(err.Error(), "budget web") {
		t.Errorf("the error does not name pod and budget: %v", err)
	}
}

func TestRunSurvivesAFailingWebhook(t *testing.T) {
	c := newCluster(t, func(_ string, attempt int) error {
		if attempt < 3 {
			return apierrors.NewInternalError(errors.New("failed calling webhook \"x\": connection refused"))
		}

		return nil
	}, pod("web-1"))
	if err := drainer(c, time.Minute, nil).Run(t.Context(), "node-1"); err != nil {
		t.Error(err)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	c := newCluster(t, func(string, int) error { return violates("web") }, pod("web-1"))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := drainer(c, 0, nil).Run(ctx, "node-1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// TestRunStaysForLoadBalancers: the drain of a node without pods continues until load balancers had the time to take it
// out, also if that is longer than its timeout.
func TestRunStaysForLoadBalancers(t *testing.T) {
	c := newCluster(t, nil, pod("web-1"))
	var told []string
	d := drainer(c, 10*time.Millisecond, func(b []drain.Blocker) { told = append(told, drain.FormatBlockers(b, time.Now())) })
	d.Delay = 50 * time.Millisecond
	begin := time.Now()
	if err := d.Run(t.Context(), "node-1"); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took < d.Delay {
		t.Errorf("the drain ended after %s", took)
	}
	if diff := cmp.Diff([]string{"load balancers of Services to take it out"}, told); diff != "" {
		t.Error(diff)
	}
}

func TestHasLoadBalancers(t *testing.T) {
	c := newCluster(t, nil)
	for _, step := range []struct {
		add  corev1.ServiceType
		want bool
	}{{corev1.ServiceTypeClusterIP, false}, {corev1.ServiceTypeNodePort, false}, {corev1.ServiceTypeLoadBalancer, true}} {
		service := corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: strings.ToLower(string(step.add))}}
		service.Spec.Type = step.add
		if err := c.Tracker().Add(&service); err != nil {
			t.Fatal(err)
		}
		if got, err := drain.HasLoadBalancers(t.Context(), c); err != nil || got != step.want {
			t.Errorf("with a Service of type %s: %t, %v", step.add, got, err)
		}
	}
}

// TestCordon: a node is cordoned and taken out of load balancers, and both are undone. What somebody else has set stays.
func TestCordon(t *testing.T) {
	label := corev1.LabelNodeExcludeBalancers
	for name, c := range map[string]struct {
		labels, during map[string]string
		exclude        bool
	}{
		"in load balancers":    {map[string]string{"keep": "y"}, map[string]string{"keep": "y", label: "drain"}, true},
		"excluded by a person": {map[string]string{label: ""}, map[string]string{label: ""}, false},
	} {
		api := newCluster(t, nil)
		if err := api.Tracker().Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: "node-1", Annotations: map[string]string{"keep": "x"}, Labels: c.labels,
		}}); err != nil {
			t.Fatal(err)
		}
		check := func(annotations, labels map[string]string, unschedulable bool) corev1.Node {
			t.Helper()
			got, err := api.CoreV1().Nodes().Get(t.Context(), "node-1", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(annotations, got.Annotations) + cmp.Diff(labels, got.Labels); diff != "" || got.Spec.Unschedulable != unschedulable {
				t.Errorf("%s: unschedulable %t\n%s", name, got.Spec.Unschedulable, diff)
			}
			if drain.IsExcluded(*got) == c.exclude {
				t.Errorf("%s: somebody else has excluded the node: %t", name, !c.exclude)
			}

			return *got
		}
		request := drain.CordonRequest{Node: "node-1", Annotation: "a/b", Value: "i-1"}
		if err := drain.Cordon(t.Context(), api, request); err != nil {
			t.Fatal(err)
		}
		check(map[string]string{"keep": "x", "a/b": "i-1"}, c.labels, true)
		if err := drain.Exclude(t.Context(), api, "node-1"); err != nil {
			t.Fatal(err)
		}
		node := check(map[string]string{"keep": "x", "a/b": "i-1"}, c.during, true)
		if err := drain.Uncordon(t.Context(), api, node, "a/b"); err != nil {
			t.Fatal(err)
		}
		check(map[string]string{"keep": "x"}, c.labels, false)
	}
}

// TestDrainOutlivesFailures: a drain continues when the API answers again, and ends with the cause when its time is over.
func TestDrainOutlivesFailures(t *testing.T) {
	for name, c := range map[string]struct{ verb, kind string }{
		"list pods": {"list", "pods"}, "read the node": {"get", "nodes"}, "change the node": {"patch", "nodes"},
	} {
		c1 := newCluster(t, nil, pod("web-1"))
		if err := c1.Tracker().Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}); err != nil {
			t.Fatal(err)
		}

		failures := 3
		c1.PrependReactor(c.verb, c.kind, func(clienttesting.Action) (bool, runtime.Object, error) {
			if failures--; failures >= 0 {
				return true, nil, errors.New("connection refused")
			}

			return false, nil, nil
		})
		var told []string
		d := drainer(c1, time.Minute, func(b []drain.Blocker) { told = append(told, drain.FormatBlockers(b, time.Now())) })
		d.Exclude = true
		if err := d.Run(t.Context(), "node-1"); err != nil || len(c1.evicted) != 1 {
			t.Errorf("%s: %v, evicted %v", name, err, c1.evicted)
		}

		if all := strings.Join(told, "\n"); !strings.Contains(all, "connection refused") {
			t.Errorf("%s: told %q", name, all)
		}

		failures = 1 << 30
		d.Timeout = 10 * time.Millisecond
		if err := d.Run(t.Context(), "node-1"); !errors.Is(err, drain.ErrTimeout) || !strings.Contains(err.Error(), "connection refused") {
			if c.verb == "list" {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
