// SPDX-License-Identifier: Apache-2.0

package model

import (
	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// TerminationHook is the name of the lifecycle hook of every group that runs Kubernetes. The agent of a machine
// completes it when the machine is drained. The agent has a constant of its own for it.
const TerminationHook = "slipway-drain"

// How long a group waits for a sign of life of a terminating machine, in seconds. The agent sends heartbeats while it
// drains, so this is only how long a dead machine holds up its own termination. It is short for the control plane,
// because the machine has the etcd volume of its slot until it ends. AWS's minimum is 30 s.
const (
	workerHookTimeout       = 60
	controlPlaneHookTimeout = 30
)

// addTerminationHook adds the lifecycle hook of a group, so that its machines are drained before they are terminated,
// whoever terminates them. A bastion has nothing to drain.
func (b *builder) addTerminationHook(l machineSet, group graph.Ref[awskind.AutoScalingGroup]) {
	timeout := workerHookTimeout
	switch l.group.Spec.Role {
	case v1alpha1.RoleControlPlane:
		timeout = controlPlaneHookTimeout
	case v1alpha1.RoleBastion:
		return
	case v1alpha1.RoleWorker:
	}

	graph.Add(b.graph, l.name, awskind.LifecycleHook{
		Group:            group,
		Name:             TerminationHook,
		Transition:       "autoscaling:EC2_INSTANCE_TERMINATING",
		DefaultResult:    "CONTINUE",
		HeartbeatTimeout: timeout,
	})
}

// hookStatement allows machines to complete the lifecycle hook of their own group, and to prolong it while they drain.
// Machines of groups that share a role can do so for each other.
func (b *builder) hookStatement(role v1alpha1.Role, group string) policyStatement {
	tags := map[string]any{
		"aws:ResourceTag/" + awskind.TagClusterID: b.ClusterID,
		"aws:ResourceTag/" + awskind.TagRole:      roleTag(role),
	}
	if group != "" {
		tags["aws:ResourceTag/"+awskind.TagGroup] = group
	}

	return policyStatement{
		ID:        "Terminate",
		Actions:   []string{"autoscaling:CompleteLifecycleAction", "autoscaling:RecordLifecycleActionHeartbeat"},
		Resources: []string{b.groupARNs()},
		Condition: policyCondition{"StringEquals": tags},
	}
}

// groupARNs returns the pattern of the ARNs of the cluster's Auto Scaling groups.
func (b *builder) groupARNs() string {
	return "arn:" + b.Partition + ":autoscaling:" + b.Region + ":" + b.Account +
		":autoScalingGroup:*:autoScalingGroupName/*." + b.clusterName()
}
