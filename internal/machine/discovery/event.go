// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Event says why the function runs. It is written to the log and decides nothing.
type Event struct {
	// Type is what happened, such as "EC2 Instance Launch Successful" or "autoscaling:EC2_INSTANCE_LAUNCH".
	Type string
	// Group is the name of the Auto Scaling group; empty if the event names none.
	Group string
	// Instance is the id of the instance; empty if the event names none.
	Instance string
}

// autoScalingDetail has the fields that EventBridge's events and SNS's notifications of Auto Scaling share.
type autoScalingDetail struct {
	AutoScalingGroupName string
	EC2InstanceID        string `json:"EC2InstanceId"`
}

// envelope is an event of EventBridge, or the records that SNS calls a function with.
type envelope struct {
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
var errUnknownEvent = errors.New("it is neither an event of EventBridge nor a notification of SNS")

// ParseEvent reads the event that Lambda calls the function with: from EventBridge, or by SNS. SNS delivers one
// notification at a time.
func ParseEvent(body []byte) (Event, error) {
	var e envelope
	if err := json.Unmarshal(body, &e); err != nil {
		return Event{}, fmt.Errorf("read the event: %w", err)
	}

	if e.DetailType != "" {
		return newEvent(e.DetailType, e.Detail), nil
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

func newEvent(kind string, detail autoScalingDetail) Event {
	return Event{
		Type:     kind,
		Group:    detail.AutoScalingGroupName,
		Instance: detail.EC2InstanceID,
	}
}
