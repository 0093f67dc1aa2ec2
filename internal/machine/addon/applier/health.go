// SPDX-License-Identifier: Apache-2.0

package applier

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/machine/addon/bundle"
)

// healthPoll is the time between two looks at the objects that are not healthy yet.
const healthPoll = 2 * time.Second

// verdict is the health of an object.
type verdict struct {
	healthy bool
	// final is set if the object will not become healthy by itself.
	final bool
	// reason is why it is not healthy.
	reason string
}

// check is an object whose health is awaited.
type check struct {
	ref   bundle.Reference
	judge func(*unstructured.Unstructured) verdict
}

// healthChecks returns the workloads of the add-on and the objects of its health checks.
func (r *addonRun) healthChecks() []check {
	var checks []check

	for _, o := range r.plan.release.Objects {
		if judge := judgeOf(o); judge != nil {
			checks = append(checks, check{ref: bundle.ReferenceOf(o), judge: judge})
		}
	}

	for _, h := range r.plan.release.Addon.HealthChecks {
		gvk := schema.FromAPIVersionAndKind(h.APIVersion, h.Kind)
		ref := bundle.Reference{
			Group:     gvk.Group,
			Version:   gvk.Version,
			Kind:      h.Kind,
			Namespace: h.Namespace,
			Name:      h.Name,
		}

		condition := h.Condition
		checks = append(checks, check{ref: ref, judge: func(o *unstructured.Unstructured) verdict {
			return judgeCondition(o, condition)
		}})
	}

	return checks
}

// errNotHealthyYet says that the objects are written, and that the add-on needs more time.
var errNotHealthyYet = errors.New("not healthy yet")

// awaitHealth waits until the add-on is healthy. If the applier does not wait, it returns errNotHealthyYet instead.
func (r *addonRun) awaitHealth(ctx context.Context) error {
	if !r.applier.DoNotWait {
		return r.waitFor(ctx, r.healthChecks())
	}

	pending, reason, err := r.applier.findUnhealthy(ctx, r.healthChecks())

	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", errNotHealthyYet, err)
	case len(pending) > 0:
		return fmt.Errorf("%w: %s: %s", errNotHealthyYet, pending[0].ref, reason)
	}

	return nil
}

// waitFor waits until all objects are healthy. It reports what it waits for whenever that changes.
func (r *addonRun) waitFor(ctx context.Context, checks []check) error {
	a := r.applier
	timeout := r.timeout()
	deadline := a.Now().Add(timeout)
	reported := ""
	for {
		pending, reason, err := a.findUnhealthy(ctx, checks)
		if err != nil || len(pending) == 0 {
			return err
		}

		if !a.Now().Before(deadline) {
			return timeoutError(pending[0].ref, timeout, reason)
		}

		message := fmt.Sprintf("%s: waiting for %s: %s", r.plan.Name, pending[0].ref, reason)
		if len(pending) > 1 {
			message = fmt.Sprintf("%s (and %d more)", message, len(pending)-1)
		}

		if message != reported {
			a.notifyf("%s", message)
			reported = message
		}

		checks = pending
		if err := a.Wait(ctx, healthPoll); err != nil {
			return errors.Join(timeoutError(pending[0].ref, timeout, reason), err)
		}
	}
}

// findUnhealthy returns the objects that are not healthy, and the reason of the first. The error is of an object that
// will not become healthy.
func (a *Applier) findUnhealthy(ctx context.Context, checks []check) ([]check, string, error) {
	var pending []check
	first := ""
	for _, c := range checks {
		live, err := a.read(ctx, c.ref)
		if err != nil {
			return nil, "", err
		}

		found := verdict{reason: "it does not exist"}
		if live != nil {
			found = c.judge(live)
		}

		if found.healthy {
			continue
		}

		if cause := a.findPodProblem(ctx, live); cause != "" && len(pending) == 0 {
			found.reason += "; " + cause
		}

		if found.final {
			return nil, "", diag.WithHint(
				fmt.Errorf("%s is not healthy: %s", c.ref, found.reason),
				"fix the cause and rerun to continue",
			)
		}

		if len(pending) == 0 {
			first = found.reason
		}

		pending = append(pending, c)
	}

	return pending, first, nil
}

// maxPods limits how many pods of a workload are looked at.
const maxPods = 20

// findPodProblem returns why a pod of a workload does not start; empty if nothing is known.
func (a *Applier) findPodProblem(ctx context.Context, workload *unstructured.Unstructured) string {
	if workload == nil {
		return ""
	}

	match, found, err := unstructured.NestedStringMap(workload.Object, "spec", "selector", "matchLabels")
	if err != nil || !found || len(match) == 0 {
		return ""
	}

	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	list, err := a.Client.Resource(pods, workload.GetNamespace()).List(ctx, metav1.ListOptions{
		LabelSelector: labels.SelectorFromSet(match).String(),
		Limit:         maxPods,
	})
	if err != nil {
		return "" // the workload's own reason is reported
	}

	for _, pod := range list.Items {
		if problem := podProblem(pod); problem != "" {
			return "pod " + pod.GetName() + ": " + problem
		}
	}

	return ""
}

// podProblem returns why a pod does not start.
func podProblem(pod unstructured.Unstructured) string {
	for _, field := range []string{"initContainerStatuses", "containerStatuses"} {
		statuses, _, _ := unstructured.NestedSlice(pod.Object, "status", field)
		for _, s := range statuses {
			status, _ := s.(map[string]any)
			reason, _, _ := unstructured.NestedString(status, "state", "waiting", "reason")
			message, _, _ := unstructured.NestedString(status, "state", "waiting", "message")
			if reason != "" && reason != "ContainerCreating" && reason != "PodInitializing" {
				return joinReason(reason, message)
			}
		}
	}

	if c := conditionOf(&pod, "PodScheduled"); c.status == "False" {
		return joinReason(c.reason, c.message)
	}

	return ""
}

// joinReason joins a reason and a message, of which one may be empty.
func joinReason(reason, message string) string {
	if reason == "" || message == "" {
		return reason + message
	}

	return reason + ": " + message
}
