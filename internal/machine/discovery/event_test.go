// SPDX-License-Identifier: Apache-2.0

package discovery_test

import (
	"testing"

	"github.com/slipway-k8s/slipway/internal/machine/discovery"
)

const (
	launchEvent = `{"version":"0","id":"12345678-1234-1234-1234-123456789012","detail-type":"EC2 Instance Launch Successful",
		"source":"aws.autoscaling","account":"123456789012","time":"2026-01-01T00:00:00Z","region":"us-east-1","resources":[],
		"detail":{"StatusCode":"InProgress","AutoScalingGroupName":"control-plane-a.demo","EC2InstanceId":"i-1"}}`
	launchNotification = `{"Records":[{"EventSource":"aws:sns","EventVersion":"1.0","Sns":{"Type":"Notification","Message":
		"{\"Service\":\"AWS Auto Scaling\",\"Event\":\"autoscaling:EC2_INSTANCE_TERMINATE\",\"AutoScalingGroupName\":\"control-plane-a.demo\",\"EC2InstanceId\":\"i-1\"}"}}]}`
	testNotification = `{"Records":[{"Sns":{"Message":"{\"Event\":\"autoscaling:TEST_NOTIFICATION\",\"AutoScalingGroupName\":\"control-plane-a.demo\"}"}}]}`
)

func TestParseEvent(t *testing.T) {
	t.Parallel()

	const group = "control-plane-a.demo"
	for body, want := range map[string]discovery.Event{
		launchEvent:        {Type: "EC2 Instance Launch Successful", Group: group, Instance: "i-1"},
		launchNotification: {Type: "autoscaling:EC2_INSTANCE_TERMINATE", Group: group, Instance: "i-1"},
		testNotification:   {Type: "autoscaling:TEST_NOTIFICATION", Group: group},
	} {
		if have, err := discovery.ParseEvent([]byte(body)); err != nil || have != want {
			t.Errorf("%s\nis %+v, %v; want %+v", body, have, err, want)
		}
	}
}

// TestParseRequests: CloudFormation and Terraform ask for a comparison or for the removal of the records.
func TestParseRequests(t *testing.T) {
	t.Parallel()

	for body, remove := range map[string]bool{
		`{"RequestType":"Create","ResponseURL":"https://example.com"}`:  false,
		`{"RequestType":"Update"}`:                                      false,
		`{"RequestType":"Delete"}`:                                      true,
		`{"cluster":"demo","tf":{"action":"create"}}`:                   false,
		`{"cluster":"demo","tf":{"action":"delete","prev_input":null}}`: true,
	} {
		if have, err := discovery.ParseEvent([]byte(body)); err != nil || have.Remove != remove || have.Type == "" {
			t.Errorf("%s\nis %+v, %v; want removal: %v", body, have, err, remove)
		}
	}
}

func TestParseEventRefuses(t *testing.T) {
	t.Parallel()

	for body, want := range map[string]string{
		``:     `read the event: unexpected end of JSON input`,
		`[]`:   `read the event: json: cannot unmarshal array into Go value of type discovery.envelope`,
		`null`: `read the event: it is no event of EventBridge, SNS, CloudFormation or Terraform`,
		`{}`:   `read the event: it is no event of EventBridge, SNS, CloudFormation or Terraform`,
		`{"Records":[{"Sns":{"Message":"hello"}}]}`: `read the notification: invalid character 'h' looking for beginning of value`,
		`{"Records":[{"Sns":{"Message":"{}"}}]}`:    `read the notification: it is no event of EventBridge, SNS, CloudFormation or Terraform`,
	} {
		if have, err := discovery.ParseEvent([]byte(body)); err == nil || err.Error() != want || have != (discovery.Event{}) {
			t.Errorf("%s\nis %+v, %v; want %s", body, have, err, want)
		}
	}
}

func FuzzParseEvent(f *testing.F) {
	for _, body := range []string{launchEvent, launchNotification, testNotification, `{}`, `{"Records":[]}`} {
		f.Add([]byte(body))
	}

	f.Fuzz(func(t *testing.T, body []byte) {
		e, err := discovery.ParseEvent(body)
		if (err == nil) != (e.Type != "") {
			t.Errorf("%q is %+v, %v: an event has a type, and an error has none", body, e, err)
		}
	})
}
