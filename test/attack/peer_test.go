// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
)

// awaitInstance returns the machine of an Auto Scaling group.
func (l *lab) awaitInstance(api *autoscaling.Client, group string) string {
	l.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		out, err := api.DescribeAutoScalingGroups(l.Context(), &autoscaling.DescribeAutoScalingGroupsInput{
			AutoScalingGroupNames: []string{group},
		})
		l.check(err)
		if len(out.AutoScalingGroups) == 1 && len(out.AutoScalingGroups[0].Instances) > 0 {
			return *out.AutoScalingGroups[0].Instances[0].InstanceId
		}
	}

	l.Fatalf("group %s has no machine", group)

	return ""
}

// TestControlPlaneReportsOnlyItsOwnMachines: the role of the control plane lets Auto Scaling replace machines of its own
// control plane. It does not reach workers, other clusters, also of the same name, and groups of other programs. Never open: the right
// of the control plane and this test were made together.
func TestControlPlaneReportsOnlyItsOwnMachines(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	root := autoscaling.NewFromConfig(l.config(caller{}))
	attacker := autoscaling.NewFromConfig(l.config(l.assumed("demo.control-plane-a.us-east-1")))
	own := l.awaitInstance(root, "control-plane-a.demo")
	report := func(instance string) error {
		_, err := attacker.SetInstanceHealth(t.Context(), &autoscaling.SetInstanceHealthInput{
			InstanceId: &instance, HealthStatus: sdk.String("Healthy"),
		})

		return err
	}
	tag := func(group, key, value string) *autoscaling.CreateOrUpdateTagsInput {
		return &autoscaling.CreateOrUpdateTagsInput{Tags: []types.Tag{{
			ResourceId: &group, ResourceType: sdk.String("auto-scaling-group"), Key: &key, Value: &value,
			PropagateAtLaunch: sdk.Bool(true),
		}}}
	}

	l.check(report(own))
	l.denied("report a worker", report(l.awaitInstance(root, "workers.demo")))

	_, err := root.CreateOrUpdateTags(t.Context(), tag("control-plane-b.demo", "slipway.dev/id", "a1b2c3d4e5f6g7h8"))
	l.check(err)
	l.denied("report a machine of another cluster of this name", report(l.awaitInstance(root, "control-plane-b.demo")))

	_, err = root.CreateOrUpdateTags(t.Context(), tag("control-plane-c.demo", "slipway.dev/role", "database"))
	l.check(err)
	l.denied("report a machine of another program", report(l.awaitInstance(root, "control-plane-c.demo")))

	_, err = attacker.CreateOrUpdateTags(t.Context(), tag("workers.demo", "slipway.dev/role", "control-plane"))
	l.denied("change the tags of a group", err)
}
