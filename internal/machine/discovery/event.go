// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Event says why the function runs.
type Event struct {
	// Type is what happened, such as "EC2 Instance Launch Successful" or "autoscaling:EC2_INSTANCE_LAUNCH".
	Type string
	// Group is the name of the Auto Scaling group; empty if the event names none.
	Group string
	// Instance is the id of the instance; empty if the event names none.
	Instance string
	// Remove is set if the records are deleted with what the function belongs to. All other events have the same effect.
	Remove bool

	callback callback // of a custom resource; zero for other events
}

// autoScalingDetail has the fields that EventBridge's events and SNS's notifications of Auto Scaling share.
type autoScalingDetail struct {
	AutoScalingGroupName string
	EC2InstanceID        string `json:"EC2InstanceId"`
}

// envelope is an event of EventBridge, the records that SNS calls a function with, the request of a custom resource of
// CloudFormation, or the input of an invocation of Terraform.
type envelope struct {
	callback

	RequestType string
	Terraform   struct{ Action string } `json:"tf"`

	DetailType string `json:"detail-type"`
	Detail     autoScalingDetail
	Records    []struct {
		Sns struct{ Message string }
	}
}

// notification is the message of Auto Scaling in a record of SNS.
type notification struct {
	autoScalingDetail
	Event string
}

// errUnknownEvent is returned for events of no known form.
var errUnknownEvent = errors.New("it is no event of EventBridge, SNS, CloudFormation or Terraform")

// The kinds of requests with which CloudFormation and Terraform delete a resource.
const (
	requestDelete   = "Delete"
	terraformDelete = "delete"
)

// ParseEvent reads the event that Lambda calls the function with: from EventBridge, by SNS, from CloudFormation or from
// Terraform. SNS delivers one notification at a time.
func ParseEvent(body []byte) (Event, error) {
	var e envelope
	if err := json.Unmarshal(body, &e); err != nil {
		return Event{}, fmt.Errorf("read the event: %w", err)
	}

	switch {
	case e.DetailType != "":
		return newEvent(e.DetailType, e.Detail), nil
	case e.RequestType != "":
		return Event{
			Type:     "custom resource " + e.RequestType,
			Remove:   e.RequestType == requestDelete,
			callback: e.callback,
		}, nil

	case e.Terraform.Action != "":
		return Event{
			Type:   "terraform " + e.Terraform.Action,
			Remove: e.Terraform.Action == terraformDelete,
		}, nil
	}

	if len(e.Records) == 0 {
		return Event{}, fmt.Errorf("read the event: %w", errUnknownEvent)
	}

	var n notification
	if err := json.Unmarshal([]byte(e.Records[0].Sns.Message), &n); err != nil {
		return Event{}, fmt.Errorf("read the notification: %w", err)
	}

	if n.Event == "" {
		return Event{}, fmt.Errorf("read the notification: %w", errUnknownEvent)
	}

	return newEvent(n.Event, n.autoScalingDetail), nil
}

// isShownBy reports whether the machines are as the event says: one that was launched is there, and one that was terminated
// is not. Other events say nothing about machines.
func (e Event) isShownBy(machines []Machine) bool {
	if e.Instance == "" {
		return true
	}

	present := slices.ContainsFunc(machines, func(m Machine) bool { return m.ID == e.Instance })

	switch e.Type {
	case "EC2 Instance Launch Successful", "autoscaling:EC2_INSTANCE_LAUNCH":
		return present
	case "EC2 Instance Terminate Successful", "autoscaling:EC2_INSTANCE_TERMINATE":
		return !present
	}

	return true
}

func newEvent(kind string, detail autoScalingDetail) Event {
	return Event{
		Type:     kind,
		Group:    detail.AutoScalingGroupName,
		Instance: detail.EC2InstanceID,
	}
}
