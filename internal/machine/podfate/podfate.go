// SPDX-License-Identifier: Apache-2.0

// Package podfate decides what the drain of a node does with each of its pods. Operators drain nodes with client-go
// (package internal/cluster/drain), and the agent drains its own node with plain JSON: both decide with this package,
// which knows no client and no type of Kubernetes.
package podfate

// Fate is what a drain does with a pod.
type Fate string

// The fates.
const (
	// Keep: the pod stays until the machine ends. It is a static pod, has finished, or belongs to a DaemonSet, which
	// would create it again on the same node.
	Keep Fate = "keep"
	// Evict: the pod is evicted with the eviction API, which respects disruption budgets.
	Evict Fate = "evict"
	// Await: the pod was evicted or deleted and still runs.
	Await Fate = "await"
)

// Pod holds what the decision depends on.
type Pod struct {
	// Static is set for the mirror of a static pod.
	Static bool
	// Finished is set for a pod in phase Succeeded or Failed.
	Finished bool
	// Terminating is set for a pod with a deletion timestamp.
	Terminating bool
	// Controller is the kind of the pod's controller, such as ReplicaSet; empty for none.
	Controller string
}

// Of returns what a drain does with a pod.
func Of(p Pod) Fate {
	switch {
	case p.Static || p.Finished || p.Controller == "DaemonSet":
		return Keep
	case p.Terminating:
		return Await
	}

	return Evict
}
