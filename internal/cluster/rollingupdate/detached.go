// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/infra/aws/driver"
)

// addDetaching corrects the state of a machine that leaves its group and keeps running: a group waits until its target
// groups have drained the machine's connections.
func (a *awsMachines) addDetaching(m *rollout.Machine, i ec2types.Instance) {
	tags := driver.FromEC2Tags(i.Tags)
	if m.State == stateDetaching && tags[detachedTag] != "" {
		m.State = rollout.StateRunning
		m.Detached = true
		m.DetachedSince = parseTagTime(tags[detachedTag])
	}

	if m.State == stateDetaching {
		m.State = rollout.StateTerminating
	}
}

// stateDetaching is the state of a machine that leaves its group, until it is known whether an update detached it.
const stateDetaching rollout.MachineState = "detaching"

// parseTagTime returns the time in the value of a tag; zero if it has none, as an earlier slipway wrote it.
func parseTagTime(value string) time.Time {
	at, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return time.Time{}
	}

	return at
}

// addCapacity sets why the groups of detached control-plane machines cannot launch another one. It asks only for groups
// without a machine.
func (a *awsMachines) addCapacity(ctx context.Context, groups []rollout.Group, machines []rollout.Machine) error {
	for n := range groups {
		g := &groups[n]
		var detached rollout.Machine
		hasOther := false
		for _, m := range machines {
			switch {
			case m.Group != g.Name || m.Slot != g.Slot || m.State == rollout.StateTerminating:
			case m.Detached:
				detached = m
			default:
				hasOther = true
			}
		}

		if g.Slot == "" || hasOther || detached.ID == "" {
			continue
		}

		var err error
		if g.NoCapacity, err = a.launchFailure(ctx, *g, detached.DetachedSince); err != nil {
			return err
		}
	}

	return nil
}

// launchFailure returns why a group's last launch failed, if it began after since; empty otherwise.
func (a *awsMachines) launchFailure(ctx context.Context, g rollout.Group, since time.Time) (string, error) {
	name := aws.ToString(a.scalingGroup(g.Name, g.Slot).AutoScalingGroupName)
	out, err := a.autoscaling.DescribeScalingActivities(ctx, &autoscaling.DescribeScalingActivitiesInput{
		AutoScalingGroupName: &name,
		MaxRecords:           aws.Int32(maxActivities),
	})
	if err != nil {
		return "", fmt.Errorf("list the activities of auto scaling group %s: %w", name, err)
	}

	for _, activity := range out.Activities { // the newest is first
		if aws.ToTime(activity.StartTime).Before(since) {
			break
		}

		if activity.StatusCode == types.ScalingActivityStatusCodeFailed {
			return strings.TrimSuffix(aws.ToString(activity.StatusMessage), "."), nil
		}
	}

	return "", nil
}

// maxActivities is how many activities of a group are searched for a launch that failed.
const maxActivities = 10
