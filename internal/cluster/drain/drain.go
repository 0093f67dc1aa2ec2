// SPDX-License-Identifier: Apache-2.0

// Package drain evicts the pods of a node with the eviction API, so that disruption budgets are respected.
//
// Pods of DaemonSets, static pods and finished pods stay. All other pods are evicted, also those without a
// controller and those with local storage, because their machine is about to end: [Classify] reports them, so
// that a plan can show what will be lost. [Drainer.Run] ends when no such pod is left, and names the pods and
// the budgets that it waits for.
package drain

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"

	"github.com/slipway-k8s/slipway/internal/machine/podfate"
)

// pollInterval is the time between two looks at the pods of a node. kubectl drain uses 1 s for deletions and 5 s for
// refused evictions.
const pollInterval = 2 * time.Second

// includeTimeout limits the request by which a node whose drain has failed returns to load balancers.
const includeTimeout = 5 * time.Second

// ErrTimeout is wrapped by the error of a drain that did not end in time.
var ErrTimeout = errors.New("the drain did not end in time")

// Blocker is a pod that cannot be evicted yet.
type Blocker struct {
	// Pod is namespace/name; empty if the drain waits for something else.
	Pod string
	// Reason from the API server, such as the disruption budget that the eviction would violate.
	Reason string
	// Since is when the first eviction was refused, or when the pod was first seen terminating.
	Since time.Time
}

// Pods are the pods of one node, by what a drain does with them.
type Pods struct {
	// Evict are the pods to evict that are not terminating yet.
	Evict []corev1.Pod
	// Terminating are pods that were deleted and still run.
	Terminating []corev1.Pod
	// Unmanaged are those of Evict that no controller will create again, as namespace/name.
	Unmanaged []string
	// LocalData are those of Evict whose emptyDir volumes will be lost, as namespace/name.
	LocalData []string
}

// IsDrained reports whether nothing is left to evict or to wait for.
func (p Pods) IsDrained() bool { return len(p.Evict) == 0 && len(p.Terminating) == 0 }

// Classify sorts the pods of one node. Static pods, pods of DaemonSets and finished pods are left out.
func Classify(pods []corev1.Pod) Pods {
	var out Pods
	for _, p := range pods {
		owner := metav1.GetControllerOf(&p)
		switch fateOf(p, owner) {
		case podfate.Keep:
			continue
		case podfate.Await:
			out.Terminating = append(out.Terminating, p)
			continue
		case podfate.Evict:
		}

		out.Evict = append(out.Evict, p)
		if owner == nil {
			out.Unmanaged = append(out.Unmanaged, podName(p))
		}

		if slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.EmptyDir != nil }) {
			out.LocalData = append(out.LocalData, podName(p))
		}
	}

	return out
}

// fateOf returns what the drain does with a pod of a controller, which may be nil.
func fateOf(p corev1.Pod, owner *metav1.OwnerReference) podfate.Fate {
	_, isStatic := p.Annotations[corev1.MirrorPodAnnotationKey]
	facts := podfate.Pod{
		Static:      isStatic,
		Finished:    p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
		Terminating: p.DeletionTimestamp != nil,
	}
	if owner != nil {
		facts.Controller = owner.Kind
	}

	return podfate.Of(facts)
}

// podName returns the name of a pod for people: namespace/name.
func podName(p corev1.Pod) string { return p.Namespace + "/" + p.Name }

// ListPods returns all pods of a node.
func ListPods(ctx context.Context, client kubernetes.Interface, node string) ([]corev1.Pod, error) {
	list, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(),
	})
	if err != nil {
		return nil, fmt.Errorf("list the pods of node %s: %w", node, err)
	}

	return list.Items, nil
}

// Drainer evicts the pods of nodes. Its methods may be called for several nodes at once.
type Drainer struct {
	// Client of the cluster. Required.
	Client kubernetes.Interface
	// Timeout of one drain. Zero: none.
	Timeout time.Duration
	// Now is the clock. Required.
	Now func() time.Time
	// OnBlocked is told what a drain waits for whenever that changes. It may be nil.
	OnBlocked func(node string, blockers []Blocker)
	// Interval between two looks at the pods. Zero: 2 s.
	Interval time.Duration
	// Exclude makes controllers take the node out of load balancers as soon as no pod is left. Before, and after a drain
	// that fails, the node is in them: its pods may be the only targets of a Service.
	Exclude bool
	// Delay is the time between the first look that finds no pod and the end of the drain: so long controllers have to
	// take the node out of load balancers. It may be longer than Timeout.
	Delay time.Duration
	// RepeatInterval is the time after which OnBlocked is told again what has not changed. Zero: never.
	RepeatInterval time.Duration
}

// Run evicts the pods of a node that is cordoned already, and waits until they are gone. It is safe to repeat.
// If the timeout ends first, the error wraps [ErrTimeout] and names the blocking pods.
func (d Drainer) Run(ctx context.Context, node string) error {
	if d.Interval == 0 {
		d.Interval = pollInterval
	}

	err := d.evictAll(ctx, node)
	if err == nil || !d.Exclude {
		return err
	}

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), includeTimeout)
	defer cancel()

	return errors.Join(err, Include(ctx, d.Client, node))
}

// evictAll evicts the pods of a node and waits until they are gone and load balancers have had their time.
func (d Drainer) evictAll(ctx context.Context, node string) error {
	state := drainState{Drainer: d, node: node, blocked: map[string]Blocker{}, start: d.Now()}
	for {
		drained, err := state.evictOnce(ctx)
		if err == nil {
			err = state.exclude(ctx, drained)
		}

		if err != nil { // the API server may restart: its own machine may be the one that is replaced
			drained = false
			state.noteFailure(err)
		}

		if drained && d.Now().Sub(state.drainedAt) >= d.Delay {
			return nil
		}

		if drained {
			state.noteBlockers(map[string]string{"": waitsForBalancers})
		}

		if !drained && d.Timeout > 0 && d.Now().Sub(state.start) >= d.Timeout {
			return fmt.Errorf(
				"drain node %s: %w: %s",
				node,
				ErrTimeout,
				FormatBlockers(state.sorted(), d.Now()),
			)
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("drain node %s: %w", node, ctx.Err())
		case <-time.After(d.Interval):
		}
	}
}

// drainState is one drain in progress.
type drainState struct {
	Drainer
	node  string
	start time.Time
	// drainedAt is when no pod was left for the first time, and the node was taken out of load balancers.
	drainedAt time.Time
	// included is set if the node is known to be in load balancers.
	included bool
	blocked  map[string]Blocker // by pod
	told     []string
	toldAt   time.Time
}

// exclude takes the node out of load balancers when it is drained for the first time. As long as it has pods, it returns
// a node that an earlier drain took out.
func (s *drainState) exclude(ctx context.Context, drained bool) error {
	switch {
	case !s.drainedAt.IsZero():
		return nil

	case drained:
		if s.Exclude {
			if err := Exclude(ctx, s.Client, s.node); err != nil {
				return err
			}
		}

		s.drainedAt = s.Now()

	case s.Exclude && !s.included:
		if err := Include(ctx, s.Client, s.node); err != nil {
			return err
		}

		s.included = true
	}

	return nil
}

// evictOnce tries to evict every pod that is left, and reports whether none was.
func (s *drainState) evictOnce(ctx context.Context) (bool, error) {
	pods, err := ListPods(ctx, s.Client, s.node)
	if err != nil {
		return false, err
	}

	left := Classify(pods)
	if left.IsDrained() {
		return true, nil
	}

	waiting := map[string]string{}
	for _, p := range left.Terminating {
		waiting[podName(p)] = "it is terminating"
	}

	for _, p := range left.Evict {
		reason, err := s.evict(ctx, p)
		if err != nil {
			return false, err
		}

		if reason != "" {
			waiting[podName(p)] = reason
		}
	}

	s.noteBlockers(waiting)

	return false, nil
}

// evict evicts one pod. It returns why the API server refused it for now, or an error if a further try cannot help.
func (s *drainState) evict(ctx context.Context, p corev1.Pod) (string, error) {
	uid := p.UID
	err := s.Client.PolicyV1().Evictions(p.Namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}},
	})
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return "", nil // a conflict is another pod of the same name

	case apierrors.IsForbidden(err) && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return "its namespace is being deleted", nil

	case apierrors.IsTooManyRequests(err):
		return describeBudget(err), nil

	case ctx.Err() != nil:
		return "", fmt.Errorf("evict pod %s: %w", podName(p), err)
	}

	// Two budgets for one pod, a failing admission webhook, an API server that restarts: people can fix these while the
	// drain continues.
	return err.Error(), nil
}

// describeBudget returns the cause of a refused eviction, which names the disruption budget.
func describeBudget(err error) string {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || status.ErrStatus.Details == nil {
		return err.Error()
	}

	for _, c := range status.ErrStatus.Details.Causes {
		if c.Type == policyv1.DisruptionBudgetCause {
			return c.Message
		}
	}

	return err.Error()
}

// noteBlockers remembers since when each pod blocks, and tells when the set has changed.
func (s *drainState) noteBlockers(waiting map[string]string) {
	maps.DeleteFunc(s.blocked, func(pod string, _ Blocker) bool { return waiting[pod] == "" })
	for pod, reason := range waiting {
		b, known := s.blocked[pod]
		if !known {
			b = Blocker{Pod: pod, Since: s.Now()}
		}

		b.Reason = reason
		s.blocked[pod] = b
	}

	var lines []string
	for _, b := range s.sorted() {
		lines = append(lines, b.Pod+" "+b.Reason)
	}

	isDue := s.RepeatInterval > 0 && len(lines) > 0 && s.Now().Sub(s.toldAt) >= s.RepeatInterval
	if s.OnBlocked == nil || slices.Equal(lines, s.told) && !isDue {
		return
	}

	s.OnBlocked(s.node, s.sorted())
	s.told = lines
	s.toldAt = s.Now()
}

// noteFailure remembers a request that failed as what the drain waits for, next to the pods.
func (s *drainState) noteFailure(err error) {
	waiting := map[string]string{}
	for pod, b := range s.blocked {
		waiting[pod] = b.Reason
	}

	waiting[""] = "the API: " + err.Error()
	s.noteBlockers(waiting)
}

// sorted returns the blockers, those that block for the longest time first.
func (s *drainState) sorted() []Blocker {
	return slices.SortedFunc(maps.Values(s.blocked), func(a, b Blocker) int {
		if c := a.Since.Compare(b.Since); c != 0 {
			return c
		}

		return strings.Compare(a.Pod, b.Pod)
	})
}

// FormatBlockers returns the blockers in one line.
func FormatBlockers(blockers []Blocker, now time.Time) string {
	var out []string
	for _, b := range blockers {
		if b.Pod == "" {
			out = append(out, b.Reason)
			continue
		}

		out = append(out, fmt.Sprintf("pod %s for %s: %s", b.Pod, now.Sub(b.Since).Round(time.Second), b.Reason))
	}

	return strings.Join(out, "; ")
}
