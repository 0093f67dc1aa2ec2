// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"context"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	autoscalingtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"

	"github.com/slipway-k8s/slipway/internal/cluster/health"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
)

// readGroups reads the auto scaling groups of the cluster: it adds the newest failed scaling activity to each
// group that has too few machines, and returns the health of the targets that the groups register.
func (g *collector) readGroups(ctx context.Context, groups []health.Group) []health.Target {
	var targetGroups []string
	pages := autoscaling.NewDescribeAutoScalingGroupsPaginator(
		g.autoscaling,
		&autoscaling.DescribeAutoScalingGroupsInput{
			Filters: []autoscalingtypes.Filter{
				{
					Name:   aws.String("tag:" + awskind.TagCluster),
					Values: []string{g.set.Cluster.Metadata.Name},
				},
			},
		},
	)

	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			g.addUnread("the auto scaling groups", err)
			return nil
		}

		for _, asg := range page.AutoScalingGroups {
			if !g.ownership.OwnsTags(groupTags(asg)) {
				continue
			}

			targetGroups = append(targetGroups, asg.TargetGroupARNs...)
			if len(asg.Instances) < int(aws.ToInt32(asg.DesiredCapacity)) {
				g.addScalingFailure(ctx, asg, groups)
			}
		}
	}

	slices.Sort(targetGroups)
	var out []health.Target
	for _, arn := range slices.Compact(targetGroups) {
		out = append(out, g.readTargets(ctx, arn)...)
	}

	return out
}

// addScalingFailure adds the newest scaling activity of one group if it failed.
func (g *collector) addScalingFailure(
	ctx context.Context,
	asg autoscalingtypes.AutoScalingGroup,
	groups []health.Group,
) {
	out, err := g.autoscaling.DescribeScalingActivities(ctx, &autoscaling.DescribeScalingActivitiesInput{
		AutoScalingGroupName: asg.AutoScalingGroupName, MaxRecords: aws.Int32(1),
	})
	if err != nil {
		g.addUnread("the scaling activities of "+aws.ToString(asg.AutoScalingGroupName), err)
		return
	}

	if len(out.Activities) == 0 ||
		out.Activities[0].StatusCode != autoscalingtypes.ScalingActivityStatusCodeFailed {
		return
	}

	tags := groupTags(asg)
	for i := range groups {
		if groups[i].Name == tags[awskind.TagGroup] && groups[i].Slot == tags[awskind.TagSlot] {
			groups[i].ScalingFailure = aws.ToString(out.Activities[0].StatusMessage)
		}
	}
}

// groupTags returns the tags of an auto scaling group.
func groupTags(asg autoscalingtypes.AutoScalingGroup) map[string]string {
	tags := map[string]string{}
	for _, t := range asg.Tags {
		tags[aws.ToString(t.Key)] = aws.ToString(t.Value)
	}

	return tags
}

// readTargets returns the health of all targets of a target group.
func (g *collector) readTargets(ctx context.Context, arn string) []health.Target {
	name := targetGroupName(arn)
	answer, err := g.elb.DescribeTargetHealth(ctx, &elb.DescribeTargetHealthInput{TargetGroupArn: &arn})
	if err != nil {
		g.addUnread("the health of the targets of "+name, err)
		return nil
	}

	var out []health.Target
	for _, d := range answer.TargetHealthDescriptions {
		out = append(out, health.Target{
			Group:       name,
			Instance:    aws.ToString(d.Target.Id),
			State:       string(d.TargetHealth.State),
			Description: aws.ToString(d.TargetHealth.Description),
		})
	}

	return out
}

// targetGroupName returns the name in the ARN of a target group:
// arn:aws:elasticloadbalancing:REGION:ACCOUNT:targetgroup/NAME/ID.
func targetGroupName(arn string) string {
	parts := strings.Split(arn, "/")
	if len(parts) < 3 {
		return arn
	}

	return parts[1]
}
