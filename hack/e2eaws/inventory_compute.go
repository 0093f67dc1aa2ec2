// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	autoscalingtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	balancingtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
)

// computeKinds are the kinds of machines and their volumes.
func (v inventory) computeKinds() []resourceKind {
	return []resourceKind{
		v.scalingGroupKind(),
		v.instanceKind(),
		v.launchTemplateKind(),
		v.volumeKind(),
		v.snapshotKind(),
	}
}

func (v inventory) scalingGroupKind() resourceKind {
	const name = "auto-scaling-group"
	return resourceKind{
		name: name,
		arn:  "autoscaling:autoScalingGroup",
		list: func(ctx context.Context) ([]resource, error) {
			filters := []autoscalingtypes.Filter{{Name: aws.String("tag:" + runTag), Values: []string{string(v.id)}}}
			in := &autoscaling.DescribeAutoScalingGroupsInput{Filters: filters}
			pages := autoscaling.NewDescribeAutoScalingGroupsPaginator(v.autoscaling, in)
			found, err := transport.CollectPages(ctx, pages, func(p *autoscaling.DescribeAutoScalingGroupsOutput) []autoscalingtypes.AutoScalingGroup {
				return p.AutoScalingGroups
			})
			if err != nil {
				return nil, err
			}

			id := func(g autoscalingtypes.AutoScalingGroup) *string { return g.AutoScalingGroupName }

			return toResources(name, found, id), nil
		},
		remove: func(ctx context.Context, id string) error {
			in := &autoscaling.DeleteAutoScalingGroupInput{AutoScalingGroupName: &id, ForceDelete: aws.Bool(true)}
			_, err := v.autoscaling.DeleteAutoScalingGroup(ctx, in)
			return err
		},
	}
}

func (v inventory) instanceKind() resourceKind {
	const name = "instance"
	return resourceKind{
		name: name,
		arn:  "ec2:instance",
		list: func(ctx context.Context) ([]resource, error) {
			states := filterValues("instance-state-name", "pending", "running", "shutting-down", "stopping", "stopped")
			pages := ec2.NewDescribeInstancesPaginator(v.ec2, &ec2.DescribeInstancesInput{Filters: v.tagFilters(states)})
			reservations, err := transport.CollectPages(ctx, pages, func(p *ec2.DescribeInstancesOutput) []ec2types.Reservation {
				return p.Reservations
			})
			if err != nil {
				return nil, err
			}

			var found []resource
			for _, reservation := range reservations {
				id := func(i ec2types.Instance) *string { return i.InstanceId }
				found = append(found, toResources(name, reservation.Instances, id)...)
			}

			return found, nil
		},
		remove: func(ctx context.Context, id string) error {
			_, err := v.ec2.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{id}})
			return err
		},
	}
}

func (v inventory) launchTemplateKind() resourceKind {
	const name = "launch-template"
	return resourceKind{
		name: name,
		arn:  "ec2:launch-template",
		list: func(ctx context.Context) ([]resource, error) {
			pages := ec2.NewDescribeLaunchTemplatesPaginator(v.ec2, &ec2.DescribeLaunchTemplatesInput{Filters: v.tagFilters()})
			found, err := transport.CollectPages(ctx, pages, func(p *ec2.DescribeLaunchTemplatesOutput) []ec2types.LaunchTemplate {
				return p.LaunchTemplates
			})
			if err != nil {
				return nil, err
			}

			id := func(t ec2types.LaunchTemplate) *string { return t.LaunchTemplateId }

			return toResources(name, found, id), nil
		},
		remove: func(ctx context.Context, id string) error {
			_, err := v.ec2.DeleteLaunchTemplate(ctx, &ec2.DeleteLaunchTemplateInput{LaunchTemplateId: &id})
			return err
		},
	}
}

func (v inventory) volumeKind() resourceKind {
	const name = "volume"
	return resourceKind{
		name: name,
		arn:  "ec2:volume",
		list: func(ctx context.Context) ([]resource, error) {
			states := filterValues("status", "creating", "available", "in-use", "error")
			pages := ec2.NewDescribeVolumesPaginator(v.ec2, &ec2.DescribeVolumesInput{Filters: v.tagFilters(states)})
			found, err := transport.CollectPages(ctx, pages, func(p *ec2.DescribeVolumesOutput) []ec2types.Volume {
				return p.Volumes
			})
			if err != nil {
				return nil, err
			}

			return toResources(name, found, func(d ec2types.Volume) *string { return d.VolumeId }), nil
		},
		remove: func(ctx context.Context, id string) error {
			_, err := v.ec2.DeleteVolume(ctx, &ec2.DeleteVolumeInput{VolumeId: &id})
			return err
		},
	}
}

func (v inventory) snapshotKind() resourceKind {
	const name = "snapshot"
	return resourceKind{
		name: name,
		arn:  "ec2:snapshot",
		list: func(ctx context.Context) ([]resource, error) {
			in := &ec2.DescribeSnapshotsInput{OwnerIds: []string{"self"}, Filters: v.tagFilters()}
			pages := ec2.NewDescribeSnapshotsPaginator(v.ec2, in)
			found, err := transport.CollectPages(ctx, pages, func(p *ec2.DescribeSnapshotsOutput) []ec2types.Snapshot {
				return p.Snapshots
			})
			if err != nil {
				return nil, err
			}

			return toResources(name, found, func(s ec2types.Snapshot) *string { return s.SnapshotId }), nil
		},
		remove: func(ctx context.Context, id string) error {
			_, err := v.ec2.DeleteSnapshot(ctx, &ec2.DeleteSnapshotInput{SnapshotId: &id})
			return err
		},
	}
}

// balancingKinds are the kinds of load balancers. Listeners are deleted with their load balancer.
func (v inventory) balancingKinds() []resourceKind {
	return []resourceKind{
		{
			name: "load-balancer",
			arn:  "elasticloadbalancing:loadbalancer",
			list: v.listLoadBalancers,
			remove: func(ctx context.Context, arn string) error {
				in := &elasticloadbalancingv2.DeleteLoadBalancerInput{LoadBalancerArn: &arn}
				_, err := v.balancing.DeleteLoadBalancer(ctx, in)
				return err
			},
		},
		{
			name: "target-group",
			arn:  "elasticloadbalancing:targetgroup",
			list: v.listTargetGroups,
			remove: func(ctx context.Context, arn string) error {
				in := &elasticloadbalancingv2.DeleteTargetGroupInput{TargetGroupArn: &arn}
				_, err := v.balancing.DeleteTargetGroup(ctx, in)
				return err
			},
		},
	}
}

// listLoadBalancers returns the load balancers of the run. Elastic Load Balancing has no filters.
func (v inventory) listLoadBalancers(ctx context.Context) ([]resource, error) {
	var arns []string
	pages := elasticloadbalancingv2.NewDescribeLoadBalancersPaginator(
		v.balancing, &elasticloadbalancingv2.DescribeLoadBalancersInput{})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}

		for _, balancer := range page.LoadBalancers {
			arns = append(arns, aws.ToString(balancer.LoadBalancerArn))
		}
	}

	return v.selectTagged(ctx, "load-balancer", arns)
}

// listTargetGroups returns the target groups of the run.
func (v inventory) listTargetGroups(ctx context.Context) ([]resource, error) {
	var arns []string
	pages := elasticloadbalancingv2.NewDescribeTargetGroupsPaginator(
		v.balancing, &elasticloadbalancingv2.DescribeTargetGroupsInput{})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}

		for _, group := range page.TargetGroups {
			arns = append(arns, aws.ToString(group.TargetGroupArn))
		}
	}

	return v.selectTagged(ctx, "target-group", arns)
}

// maxTagReads is the most ARNs whose tags Elastic Load Balancing describes in one call.
const maxTagReads = 20

// selectTagged returns those of the resources of Elastic Load Balancing that have the tag of the run.
func (v inventory) selectTagged(ctx context.Context, kind string, arns []string) ([]resource, error) {
	var found []resource
	for chunk := range slices.Chunk(arns, maxTagReads) {
		descriptions, err := v.describeTags(ctx, chunk)
		if err != nil {
			return nil, err
		}

		for _, description := range descriptions {
			for _, tag := range description.Tags {
				if aws.ToString(tag.Key) == runTag && aws.ToString(tag.Value) == string(v.id) {
					found = append(found, resource{kind: kind, id: aws.ToString(description.ResourceArn)})
				}
			}
		}
	}

	return found, nil
}

// describeTags returns the tags of those of the resources that exist. AWS refuses the whole call if one of them was deleted
// after it was listed, so each is asked for alone then.
func (v inventory) describeTags(ctx context.Context, arns []string) ([]balancingtypes.TagDescription, error) {
	out, err := v.balancing.DescribeTags(ctx, &elasticloadbalancingv2.DescribeTagsInput{ResourceArns: arns})
	if err == nil {
		return out.TagDescriptions, nil
	}

	if !strings.HasSuffix(transport.ErrorCode(err), "NotFound") {
		return nil, err
	}

	if len(arns) == 1 {
		return nil, nil
	}

	var found []balancingtypes.TagDescription
	for _, arn := range arns {
		list, err := v.describeTags(ctx, []string{arn})
		if err != nil {
			return nil, err
		}

		found = append(found, list...)
	}

	return found, nil
}
