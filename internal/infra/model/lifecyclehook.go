// SPDX-License-Identifier: Apache-2.0

package model

import (
	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// TerminationHook is the name of the lifecycle hook of every group of workers. The agent of a machine completes it when
// the machine is drained. The agent has a constant of its own for it.
const TerminationHook = "slipway-drain"

// hookTimeout is how long a group waits for a sign of life of a terminating machine, in seconds. The agent sends
// heartbeats while it drains, so this is only how long a dead machine holds up its own termination. AWS's minimum is 30 s.
const hookTimeout = 60

// LaunchHook is the name of the lifecycle hook of a group with a warm pool. The agent completes it
// when the machine is prepared: Auto Scaling then stops a machine that goes into the pool, and puts
// the others in service. The agent has a constant of its own for it.
const LaunchHook = "slipway-launch"

// continueResult lets Auto Scaling continue with a machine whose agent does not answer.
const continueResult = "CONTINUE"

// LaunchHookNode returns the name in the graph of the launch hook of a group. No group has a name
// with a dot.
func LaunchHookNode(group string) string { return group + ".launch" }

// launchTimeout is how long a group with a warm pool waits for a sign of life of a machine that
// starts, in seconds: it boots, and downloads the agent. The agent then sends heartbeats. Auto
// Scaling continues with a machine without one, as it does without the hook: the agents of earlier
// versions know no launch hook, and their machines must be launched until a rolling update has
// replaced them. Such a machine joins the cluster while Auto Scaling still waits for it.
const launchTimeout = 300

// addLaunchHook adds the launch hook of a group with a warm pool.
func addLaunchHook(g *graph.Graph, l machineSet, group graph.Ref[awskind.AutoScalingGroup]) {
	if l.group.Spec.WarmPool.PoolState == "" {
		return
	}

	graph.Add(g, LaunchHookNode(l.name), awskind.LifecycleHook{
		Group:            group,
		Name:             LaunchHook,
		Transition:       awskind.Launching,
		DefaultResult:    continueResult,
		HeartbeatTimeout: launchTimeout,
	})
}

// addTerminationHook adds the lifecycle hook of a group of workers, so that its machines are drained before they are
// terminated, whoever terminates them. The control plane has none: a machine has the etcd volume of its slot until it
// ends, so each second of a wait is one without a member of etcd, and hardly any pod runs there. Its agent moves the
// etcd leadership away, and the kubelet stops the pods when the operating system shuts down.
func (b *builder) addTerminationHook(l machineSet, group graph.Ref[awskind.AutoScalingGroup]) {
	if l.group.Spec.Role != v1alpha1.RoleWorker {
		return
	}

	graph.Add(b.graph, l.name, awskind.LifecycleHook{
		Group:            group,
		Name:             TerminationHook,
		Transition:       "autoscaling:EC2_INSTANCE_TERMINATING",
		DefaultResult:    continueResult,
		HeartbeatTimeout: hookTimeout,
	})
}

// workerGroupTags are the conditions for an Auto Scaling group of workers of this cluster.
func (b *builder) workerGroupTags() map[string]any { return b.groupTags(v1alpha1.RoleWorker) }

// groupTags are the conditions for an Auto Scaling group of machines of this cluster with a role.
func (b *builder) groupTags(role v1alpha1.Role) map[string]any {
	return map[string]any{
		"aws:ResourceTag/" + awskind.TagClusterID: b.ClusterID,
		"aws:ResourceTag/" + awskind.TagRole:      roleTag(role),
	}
}
