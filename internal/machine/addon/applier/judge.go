// SPDX-License-Identifier: Apache-2.0

package applier

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// judgeOf returns how the health of an object is judged; nil if its kind has none.
func judgeOf(o *unstructured.Unstructured) func(*unstructured.Unstructured) verdict {
	gvk := o.GroupVersionKind()

	switch gvk.Group + "/" + gvk.Kind {
	case "apps/Deployment", "apps/ReplicaSet":
		return judgeDeployment
	case "apps/StatefulSet":
		return judgeStatefulSet
	case "apps/DaemonSet":
		return judgeDaemonSet
	case "batch/Job":
		return judgeJob
	case "/Pod":
		return judgePod
	case "apiregistration.k8s.io/APIService":
		return func(o *unstructured.Unstructured) verdict { return judgeCondition(o, "Available") }
	case "apiextensions.k8s.io/CustomResourceDefinition":
		return judgeDefinition
	}

	return nil
}

// number returns an integer of an object, or what it is without one.
func number(o *unstructured.Unstructured, missing int64, path ...string) int64 {
	value, found, err := unstructured.NestedInt64(o.Object, path...)
	if err != nil || !found {
		return missing
	}

	return value
}

// isObserved reports whether the controller has seen the newest generation of an object.
func isObserved(o *unstructured.Unstructured) bool {
	return number(o, 0, "status", "observedGeneration") >= o.GetGeneration()
}

// count returns the verdict for a workload of which want pods must be there.
func count(o *unstructured.Unstructured, ready, updated, want int64) verdict {
	switch {
	case !isObserved(o):
		return verdict{reason: "its controller has not seen the change yet"}
	case updated < want:
		return verdict{reason: fmt.Sprintf("%d of %d pods are updated", updated, want)}
	case ready < want:
		return verdict{reason: fmt.Sprintf("%d of %d pods are available", ready, want)}
	}

	return verdict{healthy: true}
}

func judgeDeployment(o *unstructured.Unstructured) verdict {
	want := number(o, 1, "spec", "replicas")
	updated := number(o, 0, "status", "updatedReplicas")
	if o.GetKind() == "ReplicaSet" {
		updated = want
	}

	out := count(o, number(o, 0, "status", "availableReplicas"), updated, want)
	if c := conditionOf(o, "Progressing"); isObserved(o) && c.reason == "ProgressDeadlineExceeded" && !out.healthy {
		out.final = true
		out.reason += "; " + joinReason(c.reason, c.message)
	}

	if c := conditionOf(o, "ReplicaFailure"); c.status == "True" && !out.healthy {
		out.reason += "; " + joinReason(c.reason, c.message)
	}

	return out
}

func judgeStatefulSet(o *unstructured.Unstructured) verdict {
	want := number(o, 1, "spec", "replicas")
	updated := updatedPods(o, "updatedReplicas", want)

	return count(o, number(o, 0, "status", "readyReplicas"), updated, want)
}

func judgeDaemonSet(o *unstructured.Unstructured) verdict {
	want := number(o, 0, "status", "desiredNumberScheduled")
	updated := updatedPods(o, "updatedNumberScheduled", want)

	return count(o, number(o, 0, "status", "numberAvailable"), updated, want)
}

// updatedPods returns how many pods a field of the status of a StatefulSet or DaemonSet says are updated. With the strategy
// OnDelete none is expected to be, so it is as many as are wanted.
func updatedPods(o *unstructured.Unstructured, field string, want int64) int64 {
	strategy, _, _ := unstructured.NestedString(o.Object, "spec", "updateStrategy", "type")
	if strategy == "OnDelete" {
		return want
	}

	return number(o, 0, "status", field)
}

func judgeJob(o *unstructured.Unstructured) verdict {
	if c := conditionOf(o, "Failed"); c.status == "True" {
		return verdict{final: true, reason: "the job failed: " + joinReason(c.reason, c.message)}
	}

	if conditionOf(o, "Complete").status == "True" {
		return verdict{healthy: true}
	}

	done := number(o, 0, "status", "succeeded")

	return verdict{reason: fmt.Sprintf("%d of %d pods have succeeded", done, number(o, 1, "spec", "completions"))}
}

func judgePod(o *unstructured.Unstructured) verdict {
	phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
	message, _, _ := unstructured.NestedString(o.Object, "status", "message")

	switch {
	case phase == "Succeeded" || conditionOf(o, "Ready").status == "True":
		return verdict{healthy: true}
	case phase == "Failed":
		return verdict{final: true, reason: joinReason("the pod failed", message)}
	}

	return verdict{reason: joinReason("the pod is not ready", podProblem(*o))}
}

func judgeDefinition(o *unstructured.Unstructured) verdict {
	if c := conditionOf(o, "NamesAccepted"); c.status == "False" {
		return verdict{final: true, reason: joinReason(c.reason, c.message)}
	}

	return judgeCondition(o, "Established")
}

// judgeCondition returns whether a condition is true.
func judgeCondition(o *unstructured.Unstructured, name string) verdict {
	c := conditionOf(o, name)
	if c.status == "True" {
		return verdict{healthy: true}
	}

	text := fmt.Sprintf("condition %s is %s", name, cmp.Or(c.status, "not set"))
	if detail := joinReason(c.reason, c.message); detail != "" {
		text += ": " + detail
	}

	return verdict{reason: text}
}

// condition is an entry of status.conditions.
type condition struct{ status, reason, message string }

// conditionOf returns a condition of an object; an empty one if it is not set.
func conditionOf(o *unstructured.Unstructured, name string) condition {
	all, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, item := range all {
		fields, _ := item.(map[string]any)
		if fields["type"] != name {
			continue
		}

		status, _ := fields["status"].(string)
		reason, _ := fields["reason"].(string)
		message, _ := fields["message"].(string)

		return condition{status: status, reason: reason, message: message}
	}

	return condition{}
}
