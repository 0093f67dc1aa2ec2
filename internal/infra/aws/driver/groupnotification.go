// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	astypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

type notificationAPI interface {
	DescribeNotificationConfigurations(
		context.Context,
		*autoscaling.DescribeNotificationConfigurationsInput,
		...func(*autoscaling.Options),
	) (*autoscaling.DescribeNotificationConfigurationsOutput, error)
	PutNotificationConfiguration(
		context.Context,
		*autoscaling.PutNotificationConfigurationInput,
		...func(*autoscaling.Options),
	) (*autoscaling.PutNotificationConfigurationOutput, error)
	DeleteNotificationConfiguration(
		context.Context,
		*autoscaling.DeleteNotificationConfigurationInput,
		...func(*autoscaling.Options),
	) (*autoscaling.DeleteNotificationConfigurationOutput, error)
}

// syncNotifications sets the notifications that a group lacks, and deletes those that it is not to
// have.
func syncNotifications(
	ctx context.Context,
	api notificationAPI,
	group string,
	want, have []awskind.GroupNotification,
) error {
	for _, n := range want {
		if slices.ContainsFunc(have, func(h awskind.GroupNotification) bool { return isSameNotification(n, h) }) {
			continue
		}

		topic := n.Topic.Literal()
		_, err := api.PutNotificationConfiguration(ctx, &autoscaling.PutNotificationConfigurationInput{
			AutoScalingGroupName: &group,
			TopicARN:             &topic,
			NotificationTypes:    n.Types,
		})
		if err != nil {
			return transport.Wrap(err, "send notifications of %s to %s", group, topic)
		}
	}

	for _, h := range have {
		topic := h.Topic.Literal()
		if slices.ContainsFunc(want, func(n awskind.GroupNotification) bool { return n.Topic.Literal() == topic }) {
			continue
		}

		_, err := api.DeleteNotificationConfiguration(ctx, &autoscaling.DeleteNotificationConfigurationInput{
			AutoScalingGroupName: &group,
			TopicARN:             &topic,
		})
		if err != nil {
			return transport.Wrap(err, "send no notifications of %s to %s", group, topic)
		}
	}

	return nil
}

// isSameNotification reports whether two notifications have the same topic and the same types, in
// any order.
func isSameNotification(a, b awskind.GroupNotification) bool {
	first := slices.Sorted(slices.Values(a.Types))
	second := slices.Sorted(slices.Values(b.Types))

	return a.Topic.Literal() == b.Topic.Literal() && slices.Equal(first, second)
}

// readNotifications returns the notifications that groups send to the topic with a name, by the
// name of the group; none without a name. Those to other topics are their owners'.
func readNotifications(
	ctx context.Context,
	api notificationAPI,
	topic functionSearch,
	groups []astypes.AutoScalingGroup,
) (map[string][]awskind.GroupNotification, error) {
	out := map[string][]awskind.GroupNotification{}
	if topic.name == "" || len(groups) == 0 || omitsDetails(ctx) {
		return out, nil
	}

	const pageSize = 100 // the largest; the default is 50
	in := &autoscaling.DescribeNotificationConfigurationsInput{MaxRecords: aws.Int32(pageSize)}
	for _, g := range groups {
		in.AutoScalingGroupNames = append(in.AutoScalingGroupNames, aws.ToString(g.AutoScalingGroupName))
	}

	pages := autoscaling.NewDescribeNotificationConfigurationsPaginator(api, in)
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, transport.Wrap(err, "list the notifications of auto scaling groups")
		}

		for _, n := range page.NotificationConfigurations {
			if isTopicNamed(aws.ToString(n.TopicARN), topic.name) {
				group := aws.ToString(n.AutoScalingGroupName)
				out[group] = addNotificationType(out[group], aws.ToString(n.TopicARN), aws.ToString(n.NotificationType))
			}
		}
	}

	return out, nil
}

// addNotificationType adds a type to the notifications to a topic. Auto Scaling lists each type by
// itself.
func addNotificationType(list []awskind.GroupNotification, topic, name string) []awskind.GroupNotification {
	i := slices.IndexFunc(list, func(n awskind.GroupNotification) bool { return n.Topic.Literal() == topic })
	if i < 0 {
		list = append(list, awskind.GroupNotification{Topic: graph.UnmanagedRef[awskind.SNSTopic](topic)})
		i = len(list) - 1
	}

	list[i].Types = append(list[i].Types, name)

	return list
}
