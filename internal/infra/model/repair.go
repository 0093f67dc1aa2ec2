// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
)

// repairTags returns the tag with the repair policy of a group; none for the default policy, which agents know. Agents
// of the control plane read it from the Auto Scaling group, so that a change needs no new machine.
func repairTags(ig v1alpha1.InstanceGroup) awskind.Tags {
	r := ig.Spec.Repair
	if ig.Spec.Role == v1alpha1.RoleBastion {
		return nil
	}

	if r.Disabled {
		return awskind.Tags{awskind.TagRepair: "off"}
	}

	wait, waitErr := time.ParseDuration(r.NotReadyFor)
	age, ageErr := time.ParseDuration(r.MinMachineAge)
	isControlPlane := ig.Spec.Role == v1alpha1.RoleControlPlane
	if waitErr != nil || isControlPlane && ageErr != nil {
		return nil
	}

	text := fmt.Sprintf("%s %d%%", wait, r.MaxUnhealthyPercent)
	usual := fmt.Sprintf("%s %d%%", defaultRepairWait, defaultRepairPercent)
	if isControlPlane {
		text = fmt.Sprintf("%s %s", wait, age)
		usual = fmt.Sprintf("%s %s", defaultRepairWait, defaultRepairAge)
	}

	if text == usual {
		return nil
	}

	return awskind.Tags{awskind.TagRepair: text}
}

// The policies of groups without a tag, see package repair.
const (
	defaultRepairWait    = 10 * time.Minute
	defaultRepairPercent = 20
	defaultRepairAge     = 20 * time.Minute
)

// peerStatement allows control-plane machines to report a machine of their own control plane as unhealthy, which its
// Auto Scaling group then replaces. It allows nothing else on these groups.
func (b *builder) peerStatement() policyStatement {
	return policyStatement{
		ID:        "Peer",
		Actions:   []string{"autoscaling:SetInstanceHealth"},
		Resources: []string{"*"},
		Condition: policyCondition{"StringEquals": b.groupTags(v1alpha1.RoleControlPlane)},
	}
}

// repairStatement allows control-plane machines to replace workers of their cluster, and to speak for workers for which
// Auto Scaling waits: a worker proves to the join endpoint which machine it is. IAM cannot limit these rights to one machine,
// so the roles of workers have none of them.
func (b *builder) repairStatement() policyStatement {
	return policyStatement{
		ID: "Repair",
		Actions: []string{
			"autoscaling:CompleteLifecycleAction", "autoscaling:RecordLifecycleActionHeartbeat",
			"autoscaling:TerminateInstanceInAutoScalingGroup",
		},
		Resources: []string{"*"},
		Condition: policyCondition{"StringEquals": b.workerGroupTags()},
	}
}
