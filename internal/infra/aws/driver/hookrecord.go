// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	astypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// The value of [awskind.TagHooks] has for each hook its name, transition, default result and heartbeat timeout, divided by
// blanks; hooks are divided by hookDivider. noHooks is the value of a group without hooks.
const (
	hookDivider = " / "
	noHooks     = "none"
	hookFields  = 4
)

// WithRecordedHooks returns a context with which [Cloud.Read] takes the lifecycle hooks of an Auto Scaling group from the
// tag in which Slipway records them, if the group has it. It then does not find hooks that somebody else has changed, and
// needs no call for each group.
func WithRecordedHooks(ctx context.Context) context.Context {
	return context.WithValue(ctx, recordedHooksKey{}, true)
}

// recordedHooksKey is the key of a context whose readers trust recorded hooks; see [WithRecordedHooks].
type recordedHooksKey struct{}

func trustsRecordedHooks(ctx context.Context) bool { return ctx.Value(recordedHooksKey{}) != nil }

// hooksTag returns the tag that records the hooks of a group. Instances do not get it.
func hooksTag(group string, hooks []awskind.LifecycleHook) astypes.Tag {
	var parts []string
	for _, h := range hooks {
		fields := []string{h.Name, h.Transition, h.DefaultResult, strconv.Itoa(h.HeartbeatTimeout)}
		parts = append(parts, strings.Join(fields, " "))
	}

	value := noHooks
	if len(parts) > 0 {
		value = strings.Join(parts, hookDivider)
	}

	return astypes.Tag{
		Key:               aws.String(awskind.TagHooks),
		Value:             &value,
		PropagateAtLaunch: aws.Bool(false),
		ResourceId:        &group,
		ResourceType:      aws.String("auto-scaling-group"),
	}
}

// recordedHooks returns the hooks that a group's tag records. It reports false if there is no such tag, or if it cannot
// be read.
func recordedHooks(g astypes.AutoScalingGroup) ([]awskind.LifecycleHook, bool) {
	value := ""
	for _, tag := range g.Tags {
		if aws.ToString(tag.Key) == awskind.TagHooks {
			value = aws.ToString(tag.Value)
		}
	}

	if value == noHooks {
		return nil, true
	}

	var out []awskind.LifecycleHook
	for part := range strings.SplitSeq(value, hookDivider) {
		fields := strings.Fields(part)
		if len(fields) != hookFields {
			return nil, false
		}

		timeout, err := strconv.Atoi(fields[hookFields-1])
		if err != nil {
			return nil, false
		}

		out = append(out, awskind.LifecycleHook{
			Group:            graph.UnmanagedRef[awskind.AutoScalingGroup](aws.ToString(g.AutoScalingGroupName)),
			Name:             fields[0],
			Transition:       fields[1],
			DefaultResult:    fields[2],
			HeartbeatTimeout: timeout,
		})
	}

	return out, true
}

// toHookSpecs returns hooks in the form of CreateAutoScalingGroup.
func toHookSpecs(hooks []awskind.LifecycleHook) []astypes.LifecycleHookSpecification {
	var out []astypes.LifecycleHookSpecification
	for _, h := range hooks {
		out = append(out, astypes.LifecycleHookSpecification{
			LifecycleHookName:   &h.Name,
			LifecycleTransition: &h.Transition,
			DefaultResult:       &h.DefaultResult,
			HeartbeatTimeout:    int32OrNil(h.HeartbeatTimeout),
		})
	}

	return out
}
