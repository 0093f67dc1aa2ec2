// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"

	"github.com/slipway-k8s/slipway/internal/machine/join"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// The tags that CloudFormation gives what it creates. Users cannot set tags that begin with aws:.
const (
	tagStackName = "aws:cloudformation:stack-name"
	tagLogicalID = "aws:cloudformation:logical-id"
)

// stackSignals sends and passes on signals to the stack that the machines are of.
type stackSignals struct{ *Agent }

// passSignal signals the stack for a worker: success only if its Node is Ready. The resource is the worker's Auto
// Scaling group, so that a worker cannot signal others.
func (a stackSignals) passSignal(ctx context.Context, api kube.Client, m join.Machine, status join.Signal) error {
	id, err := a.findLogicalID(ctx, m.ScalingGroup)
	if err != nil {
		return err
	}

	if id == "" {
		return join.Refuse("auto scaling group " + m.ScalingGroup + " is not in stack " + a.Boot.StackName)
	}

	if status == join.SignalSuccess {
		if err := checkNodeReady(ctx, api, m.Name); err != nil {
			return join.Refuse(err.Error())
		}
	}

	return a.signalResource(ctx, stackSignal{
		resource: id,
		machine:  m.ID,
		status:   types.ResourceSignalStatus(status),
	})
}

// findLogicalID returns the logical id of an Auto Scaling group in this machine's stack; empty if it is not in it.
func (a stackSignals) findLogicalID(ctx context.Context, group string) (string, error) {
	found, err := a.Scaling.DescribeAutoScalingGroups(ctx, &autoscaling.DescribeAutoScalingGroupsInput{
		AutoScalingGroupNames: []string{group},
	})
	if err != nil {
		return "", fmt.Errorf("find the stack of auto scaling group %s: %w", group, err)
	}

	for _, g := range found.AutoScalingGroups {
		tags := map[string]string{}
		for _, t := range g.Tags {
			tags[aws.ToString(t.Key)] = aws.ToString(t.Value)
		}

		if aws.ToString(g.AutoScalingGroupName) == group && a.Boot.StackName != "" && tags[tagStackName] == a.Boot.StackName {
			return tags[tagLogicalID], nil
		}
	}

	return "", nil
}
