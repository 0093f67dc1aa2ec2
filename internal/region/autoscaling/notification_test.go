// SPDX-License-Identifier: Apache-2.0

package autoscaling_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	as "github.com/aws/aws-sdk-go-v2/service/autoscaling"
)

const (
	notifyTopic     = "arn:aws:sns:eu-west-1:000000000000:launches"
	notifyLaunch    = "autoscaling:EC2_INSTANCE_LAUNCH"
	notifyTerminate = "autoscaling:EC2_INSTANCE_TERMINATE"
)

// putNotification configures notifications of the group.
func (s *stack) putNotification(tb testing.TB, group, topic string, types ...string) error {
	tb.Helper()
	_, err := s.as.PutNotificationConfiguration(tb.Context(), &as.PutNotificationConfigurationInput{
		AutoScalingGroupName: &group, TopicARN: &topic, NotificationTypes: types,
	})

	return err
}

// messages returns the types of the notifications that were sent since the last call, with their instances.
func (s *stack) messages(tb testing.TB) []string {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, n := range s.notified {
		var body struct {
			Event, AutoScalingGroupName, Service, Destination string
			EC2InstanceID                                     string `json:"EC2InstanceId"`
		}
		if err := json.Unmarshal([]byte(n.Body), &body); err != nil || body.AutoScalingGroupName != "nodes" || body.Service != "AWS Auto Scaling" ||
			n.Topic != notifyTopic || !strings.HasSuffix(n.Role, "/AWSServiceRoleForAutoScaling") || !strings.HasSuffix(n.Subject, ` for group "nodes"`) {
			tb.Errorf("notification %+v: %v", n, err)
		}
		out = append(out, strings.TrimSpace(body.Event+" "+body.EC2InstanceID))
	}
	s.notified = nil

	return out
}

// TestNotifications: a group sends a test notification when it is configured, and then those of the types that were asked for.
func TestNotifications(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.createGroup(t, s.createTestNetwork(t.Context(), t), 1)
	s.advanceClock(t)
	if err := s.putNotification(t, "nodes", notifyTopic, notifyTerminate, notifyLaunch); err != nil {
		t.Fatal(err)
	}
	if have := s.messages(t); fmt.Sprint(have) != "[autoscaling:TEST_NOTIFICATION]" {
		t.Errorf("after the configuration: %v", have)
	}

	list := must[*as.DescribeNotificationConfigurationsOutput](t)(s.as.DescribeNotificationConfigurations(
		t.Context(), &as.DescribeNotificationConfigurationsInput{AutoScalingGroupNames: []string{"nodes"}, MaxRecords: aws.Int32(1)},
	))
	if len(list.NotificationConfigurations) != 1 || *list.NotificationConfigurations[0].NotificationType != notifyLaunch || list.NextToken == nil {
		t.Errorf("the first page is %+v", list)
	}

	var before string
	for id := range s.states(t) {
		before = id
	}
	s.terminate(t, before)
	for range 5 {
		s.advanceClock(t)
	}
	var after string
	for id := range s.states(t) {
		after = id
	}
	have := s.messages(t)
	if len(have) != 2 || !strings.Contains(fmt.Sprint(have), notifyTerminate+" "+before) || !strings.Contains(fmt.Sprint(have), notifyLaunch+" "+after) {
		t.Errorf("after %s was replaced by %s: %v", before, after, have)
	}

	must[*as.DeleteNotificationConfigurationOutput](t)(s.as.DeleteNotificationConfiguration(
		t.Context(), &as.DeleteNotificationConfigurationInput{AutoScalingGroupName: aws.String("nodes"), TopicARN: aws.String(notifyTopic)},
	))
	s.terminate(t, after)
	for range 5 {
		s.advanceClock(t)
	}
	if have := s.messages(t); len(have) != 0 {
		t.Errorf("without a configuration: %v", have)
	}
}

// TestNotificationRequests: requests that Auto Scaling refuses change nothing.
func TestNotificationRequests(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.createGroup(t, s.createTestNetwork(t.Context(), t), 0)
	for want, in := range map[string][3]string{
		"AutoScalingGroup 'none' not found": {"none", notifyTopic, notifyLaunch},
		"is not a valid notification type":  {"nodes", notifyTopic, "autoscaling:EC2_INSTANCE_LAUNCHING"},
		"Invalid SNS topic ARN 'launches'":  {"nodes", "launches", notifyLaunch},
	} {
		if err := s.putNotification(t, in[0], in[1], in[2]); code(err) != "ValidationError" || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", in, err, want)
		}
	}

	s.noPublish = errors.New("NotFound: Topic does not exist")
	if err := s.putNotification(t, "nodes", notifyTopic, notifyLaunch); code(err) != "ValidationError" || !strings.Contains(err.Error(), "Topic does not exist") {
		t.Errorf("a topic that does not exist: %v", err)
	}
	s.noPublish = nil

	for i := range 11 {
		err := s.putNotification(t, "nodes", fmt.Sprint(notifyTopic, i), notifyLaunch)
		if (err != nil) != (i == 10) || err != nil && code(err) != "LimitExceeded" {
			t.Errorf("topic %d: %v", i+1, err)
		}
	}
}
