// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	astypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
)

// AWS allows 10,000 versions of a launch template. An update adds one, so each deletes a few old ones: the newest
// keptVersions stay, for groups whose update was interrupted and for people who compare versions.
const (
	keptVersions         = 100
	deletedVersionsBatch = 10
)

// templateVersionAPI deletes versions of launch templates.
type templateVersionAPI interface {
	DeleteLaunchTemplateVersions(
		context.Context,
		*ec2.DeleteLaunchTemplateVersionsInput,
		...func(*ec2.Options),
	) (*ec2.DeleteLaunchTemplateVersionsOutput, error)
}

// templatePruner deletes old versions of the launch templates of a cluster.
type templatePruner struct {
	templates templateVersionAPI
	groups    autoscaling.DescribeAutoScalingGroupsAPIClient
	cluster   string
}

// deleteOldVersions deletes the newest of the versions of the template id that are too old to keep, but none that a group
// launches machines from. latest is the newest version. A failure is ignored, also a missing permission: nothing depends
// on it, and the next update tries again.
func (p templatePruner) deleteOldVersions(ctx context.Context, id string, latest int64) {
	in := &ec2.DeleteLaunchTemplateVersionsInput{LaunchTemplateId: &id}
	newest := latest - keptVersions
	for n := max(1, newest-deletedVersionsBatch+1); n <= newest; n++ {
		in.Versions = append(in.Versions, strconv.FormatInt(n, 10))
	}

	if len(in.Versions) == 0 {
		return
	}

	used, err := p.listUsedVersions(ctx, id)
	in.Versions = slices.DeleteFunc(in.Versions, func(v string) bool { return slices.Contains(used, v) })
	if err != nil || len(in.Versions) == 0 {
		return
	}

	_, _ = p.templates.DeleteLaunchTemplateVersions(ctx, in) // versions that do not exist are no error of the call
}

// listUsedVersions returns the versions of a template that the cluster's groups launch machines from, and those of their
// machines.
func (p templatePruner) listUsedVersions(ctx context.Context, id string) ([]string, error) {
	var out []string
	pages := autoscaling.NewDescribeAutoScalingGroupsPaginator(p.groups, &autoscaling.DescribeAutoScalingGroupsInput{
		Filters: []astypes.Filter{{Name: aws.String("tag:" + awskind.TagCluster), Values: []string{p.cluster}}},
	})

	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list the auto scaling groups of cluster %s: %w", p.cluster, err)
		}

		for _, g := range page.AutoScalingGroups {
			specs := []*astypes.LaunchTemplateSpecification{g.LaunchTemplate}
			if m := g.MixedInstancesPolicy; m != nil && m.LaunchTemplate != nil {
				specs = append(specs, m.LaunchTemplate.LaunchTemplateSpecification)
			}

			for _, i := range g.Instances {
				specs = append(specs, i.LaunchTemplate)
			}

			for _, s := range specs {
				if s != nil && aws.ToString(s.LaunchTemplateId) == id {
					out = append(out, aws.ToString(s.Version))
				}
			}
		}
	}

	return out, nil
}
