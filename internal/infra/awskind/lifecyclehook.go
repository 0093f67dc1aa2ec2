// SPDX-License-Identifier: Apache-2.0

package awskind

import "github.com/slipway-k8s/slipway/internal/infra/graph"

// Launching is the transition of a hook that waits for instances that start, or that leave a warm
// pool.
const Launching = "autoscaling:EC2_INSTANCE_LAUNCHING"

// LifecycleHook makes an Auto Scaling group wait before it terminates an instance, so that the
// instance can be drained, or before it puts an instance into a warm pool or in service. It is a
// resource of its own and not a property of the group, because CloudFormation's
// LifecycleHookSpecificationList and Terraform's initial_lifecycle_hook are meant for the creation
// of a group. It also is deleted before its group then, so that the deletion of a stack does not
// wait for drains.
type LifecycleHook struct {
	Group graph.Ref[AutoScalingGroup] `aws:"AutoScalingGroupName,immutable" tf:"autoscaling_group_name"`
	// Name is unique in the group.
	Name       string `aws:"LifecycleHookName,immutable" tf:"name"`
	Transition string `aws:"LifecycleTransition"` // Launching, or autoscaling:EC2_INSTANCE_TERMINATING
	// DefaultResult of an action that nobody completes in time: CONTINUE or ABANDON.
	DefaultResult string `aws:"DefaultResult"`
	// HeartbeatTimeout is how long the group waits without a heartbeat of the instance, in seconds.
	HeartbeatTimeout int `aws:"HeartbeatTimeout"`
}

// Kind implements [graph.Resource].
func (LifecycleHook) Kind() graph.Kind {
	return graph.Kind{
		Name:           "lifecycle-hook",
		Terraform:      "aws_autoscaling_lifecycle_hook",
		CloudFormation: "AWS::AutoScaling::LifecycleHook",
		KeyProperties:  []string{"AutoScalingGroupName", "LifecycleHookName"},
		DeletedWith:    graph.Parent{Kind: "autoscaling-group"},
	}
}
