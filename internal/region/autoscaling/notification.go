// SPDX-License-Identifier: Apache-2.0

package autoscaling

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/autoscaling"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// Notification is a message of a group for a topic of SNS (Auto Scaling user guide, "Amazon SNS
// notification options for Amazon EC2 Auto Scaling").
type Notification struct {
	Topic   string // ARN
	Role    string // ARN of the service-linked role that publishes
	Subject string
	Body    string // JSON
}

// maxTopics is the number of topics of a group (Auto Scaling API reference,
// PutNotificationConfiguration).
const maxTopics = 10

// The types of notifications.
const (
	notifyLaunch         = "autoscaling:EC2_INSTANCE_LAUNCH"
	notifyLaunchError    = "autoscaling:EC2_INSTANCE_LAUNCH_ERROR"
	notifyTerminate      = "autoscaling:EC2_INSTANCE_TERMINATE"
	notifyTerminateError = "autoscaling:EC2_INSTANCE_TERMINATE_ERROR"
	notifyTest           = "autoscaling:TEST_NOTIFICATION"
)

func notificationTypes() []string {
	return []string{notifyLaunch, notifyLaunchError, notifyTerminate, notifyTerminateError, notifyTest}
}

// notificationHandlers are the operations of notifications: a type of their own, because [Service]
// has many methods.
type notificationHandlers struct{ *Service }

func (s notificationHandlers) ops() []wire.Operation {
	return []wire.Operation{
		state.WriteOperation(s.store, "PutNotificationConfiguration", s.put),
		state.ReadOperation(s.store, "DescribeNotificationConfigurations", s.describe),
		state.WriteOperation(s.store, "DeleteNotificationConfiguration", s.remove),
	}
}

// put sets the types of the notifications of a group to a topic, and sends a test notification.
func (s notificationHandlers) put(
	in *sdk.PutNotificationConfigurationInput,
) (*sdk.PutNotificationConfigurationOutput, error) {
	g, err := s.findGroup(in.AutoScalingGroupName)
	if err != nil {
		return nil, err
	}

	topic := sdkshape.String(in.TopicARN)
	types := sdkshape.Strings(in.NotificationTypes)
	if err := checkNotification(topic, types); err != nil {
		return nil, err
	}

	if _, exists := g.Notifications[topic]; !exists && len(g.Notifications) >= maxTopics {
		return nil, newErrorf(codeLimitExceeded, "The number of SNS topics of a group has reached its limit of %d", maxTopics)
	}

	if err := s.cfg.Publish(s.newTestNotification(g, topic)); err != nil {
		return nil, validationError(
			"Unable to publish test message to notification target %s using IAM role %s: %v",
			topic,
			s.serviceRoleARN(),
			err,
		)
	}

	if g.Notifications == nil {
		g.Notifications = map[string][]string{}
	}

	slices.Sort(types)
	g.Notifications[topic] = slices.Compact(types)

	return &sdk.PutNotificationConfigurationOutput{}, nil
}

func checkNotification(topic string, types []string) error {
	if !strings.HasPrefix(topic, "arn:aws:sns:") {
		return validationError("Invalid SNS topic ARN '%s'", topic)
	}

	if len(types) == 0 {
		return validationError(
			"1 validation error detected: Value null at 'notificationTypes' failed to satisfy constraint: " +
				"Member must not be null",
		)
	}

	for _, t := range types {
		if !slices.Contains(notificationTypes(), t) {
			return validationError(
				"'%s' is not a valid notification type, must be one of: %s",
				t,
				strings.Join(notificationTypes(), ", "),
			)
		}
	}

	return nil
}

// describe lists one entry for each group, topic and type.
func (s notificationHandlers) describe(
	in *sdk.DescribeNotificationConfigurationsInput,
) (*sdk.DescribeNotificationConfigurationsOutput, error) {
	wanted := sdkshape.Strings(in.AutoScalingGroupNames)
	var list []*sdk.NotificationConfiguration

	for _, name := range sdkshape.SortedKeys(s.st.Groups) {
		if len(wanted) > 0 && !slices.Contains(wanted, name) {
			continue
		}

		g := s.st.Groups[name]
		for _, topic := range sdkshape.SortedKeys(g.Notifications) {
			for _, t := range g.Notifications[topic] {
				list = append(list, &sdk.NotificationConfiguration{
					AutoScalingGroupName: &name,
					TopicARN:             &topic,
					NotificationType:     &t,
				})
			}
		}
	}

	n, err := parsePageSize(in.MaxRecords, pageSizes{usual: defaultPageSize, most: 100})
	if err != nil {
		return nil, err
	}

	key := func(c *sdk.NotificationConfiguration) string {
		return *c.AutoScalingGroupName + " " + *c.TopicARN + " " + *c.NotificationType
	}
	page, next, err := sdkshape.PaginateList(list, key, n, in.NextToken, invalidToken(in.NextToken))

	return &sdk.DescribeNotificationConfigurationsOutput{NotificationConfigurations: page, NextToken: next}, err
}

func (s notificationHandlers) remove(
	in *sdk.DeleteNotificationConfigurationInput,
) (*sdk.DeleteNotificationConfigurationOutput, error) {
	g, err := s.findGroup(in.AutoScalingGroupName)
	if err != nil {
		return nil, err
	}

	delete(g.Notifications, sdkshape.String(in.TopicARN))

	return &sdk.DeleteNotificationConfigurationOutput{}, nil
}

// newTestNotification returns the message that a topic gets when a group begins to send
// notifications to it.
func (s notificationHandlers) newTestNotification(g *group, topic string) Notification {
	name := sdkshape.String(g.Shape.AutoScalingGroupName)

	return s.newNotification(topic, fmt.Sprintf("Auto Scaling: test notification for group %q", name), map[string]any{
		"AccountId":            s.cfg.Account,
		"RequestId":            sdkshape.RandomUUID(s.cfg.Rand),
		"AutoScalingGroupARN":  sdkshape.String(g.Shape.AutoScalingGroupARN),
		"AutoScalingGroupName": name,
		"Service":              "AWS Auto Scaling",
		"Event":                notifyTest,
		"Time":                 s.cfg.Now().UTC().Format(notificationTime),
	})
}

// notificationTime is the form of times in notifications.
const notificationTime = "2006-01-02T15:04:05.000Z"

func (s notificationHandlers) newNotification(topic, subject string, body map[string]any) Notification {
	text, err := json.Marshal(body)
	if err != nil {
		s.cfg.Log.Error("failed to encode a notification", slog.Any("error", err))
	}

	return Notification{Topic: topic, Role: s.serviceRoleARN(), Subject: subject, Body: string(text)}
}

// notify sends the notifications of an activity of a group. detail is that of its event.
func (s notificationHandlers) notify(g *group, detailType string, detail map[string]any) {
	kind, what := notificationOf(detailType)
	if kind == "" {
		return
	}

	const inProgress = 50 // percent: the activity ends after its notification
	body := map[string]any{
		"Service":             "AWS Auto Scaling",
		"Event":               kind,
		"AccountId":           s.cfg.Account,
		"AutoScalingGroupARN": sdkshape.String(g.Shape.AutoScalingGroupARN),
		"Progress":            inProgress,
		"Time":                s.cfg.Now().UTC().Format(notificationTime),
	}
	for _, name := range notificationFields() {
		body[name] = detail[name]
	}

	subject := fmt.Sprintf("Auto Scaling: %s for group %q", what, sdkshape.String(g.Shape.AutoScalingGroupName))

	for _, topic := range sdkshape.SortedKeys(g.Notifications) {
		if !slices.Contains(g.Notifications[topic], kind) {
			continue
		}

		if err := s.cfg.Publish(s.newNotification(topic, subject, body)); err != nil { // as in AWS, it is lost
			s.cfg.Log.Warn("failed to publish a notification", slog.String("topic", topic), slog.Any("error", err))
		}
	}
}

// notificationFields are the fields that notifications share with the details of events.
func notificationFields() []string {
	return []string{
		"ActivityId", "AutoScalingGroupName", "Cause", "Description", "Destination", "Details", "EC2InstanceId",
		"EndTime", "Origin", "RequestId", "StartTime", "StatusCode", "StatusMessage",
	}
}

// notificationOf returns the type of the notification for an event, and what its subject calls it;
// empty for none.
func notificationOf(detailType string) (kind, subject string) {
	switch detailType {
	case launchSucceeded:
		return notifyLaunch, "launch"
	case launchFailed:
		return notifyLaunchError, "failed launch"
	case terminateSucceeded:
		return notifyTerminate, "termination"
	}

	return "", ""
}
