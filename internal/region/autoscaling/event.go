// SPDX-License-Identifier: Apache-2.0

package autoscaling

import (
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/autoscaling"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// Event is an event of a group, as EventBridge's rules see it (Auto Scaling user guide, "Amazon EC2 Auto Scaling event
// reference").
type Event struct {
	DetailType string         // such as EC2 Instance Launch Successful
	Resources  []string       // ARNs of the group and of the instance
	Detail     map[string]any // as JSON
}

// The types of the events that the region emits.
const (
	launchSucceeded    = "EC2 Instance Launch Successful"
	launchFailed       = "EC2 Instance Launch Unsuccessful"
	terminateSucceeded = "EC2 Instance Terminate Successful"
	launchWaits        = "EC2 Instance-launch Lifecycle Action"
	terminateWaits     = "EC2 Instance-terminate Lifecycle Action"
)

// The places between which instances move, in events.
const (
	placeEC2   = "EC2"
	placeGroup = "AutoScalingGroup"
	placePool  = "WarmPool"
)

// emitAction emits the event of an instance that begins to wait for a hook. Whoever completes the
// action finds its token in the event.
func emitAction(s *Service, g *group, id string, m movement, a *lifecycleAction) {
	detail := map[string]any{
		"LifecycleActionToken": a.Token,
		"AutoScalingGroupName": sdkshape.String(g.Shape.AutoScalingGroupName),
		"LifecycleHookName":    a.Hook,
		"EC2InstanceId":        id,
		"LifecycleTransition":  m.transition,
		"Origin":               m.origin,
		"Destination":          m.destination,
	}
	if metadata := g.Hooks[a.Hook].Metadata; metadata != "" {
		detail["NotificationMetadata"] = metadata
	}

	detailType := launchWaits
	if m.transition == terminating {
		detailType = terminateWaits
	}

	s.cfg.Emit(Event{
		DetailType: detailType,
		Resources:  []string{sdkshape.String(g.Shape.AutoScalingGroupARN)},
		Detail:     detail,
	})
}

// emitCompletion emits the event of an activity that has just succeeded: a launch or a termination.
func emitCompletion(s *Service, g *group, a *sdk.Activity) {
	switch description := sdkshape.String(a.Description); {
	case strings.HasPrefix(description, "Launching"):
		emitEvent(s, g, a, launchSucceeded)
	case strings.HasPrefix(description, "Terminating"):
		emitEvent(s, g, a, terminateSucceeded)
	}
}

// emitEvent emits an event about an activity of a group.
func emitEvent(s *Service, g *group, a *sdk.Activity, detailType string) {
	const timeFormat = "2006-01-02T15:04:05.000Z"
	id := sdkshape.String(a.Details)
	status := sdkshape.String(a.StatusCode)
	if status == sdk.ScalingActivityStatusCodeSuccessful {
		status = sdk.ScalingActivityStatusCodeInProgress // as in AWS: the activity ends after the event
	}

	detail := map[string]any{
		"StatusCode":           status,
		"AutoScalingGroupName": sdkshape.String(g.Shape.AutoScalingGroupName),
		"ActivityId":           sdkshape.String(a.ActivityId),
		"RequestId":            sdkshape.String(a.ActivityId),
		"Description":          sdkshape.String(a.Description),
		"Cause":                sdkshape.String(a.Cause),
		"StatusMessage":        sdkshape.String(a.StatusMessage),
		"EC2InstanceId":        id,
		"StartTime":            a.StartTime.Format(timeFormat),
		"EndTime":              a.EndTime.Format(timeFormat),
		"Details":              g.placement(id),
	}

	pool := placeGroup
	if slices.ContainsFunc(g.Warm, func(i *sdk.Instance) bool { return sdkshape.String(i.InstanceId) == id }) {
		pool = placePool
	}

	detail["Origin"] = placeEC2
	detail["Destination"] = pool
	if detailType == terminateSucceeded {
		detail["Origin"] = pool
		detail["Destination"] = placeEC2
	}

	resources := []string{sdkshape.String(g.Shape.AutoScalingGroupARN)}
	if id != "" {
		resources = append(resources, "arn:aws:ec2:"+s.cfg.Region+":"+s.cfg.Account+":instance/"+id)
	}

	s.cfg.Emit(Event{DetailType: detailType, Resources: resources, Detail: detail})
	notificationHandlers{s}.notify(g, detailType, detail)
}

// placement returns where an instance of a group runs, for its events.
func (g *group) placement(id string) map[string]any {
	out := map[string]any{}
	for _, i := range slices.Concat(g.Shape.Instances, g.Warm) {
		if sdkshape.String(i.InstanceId) == id {
			out["Availability Zone"] = sdkshape.String(i.AvailabilityZone)
		}
	}

	return out
}
