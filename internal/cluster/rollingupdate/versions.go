// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
)

// An apply creates a new version of a launch template, and leaves the version from which the Auto Scaling group launches
// machines. An update sets the newest version on a group before the first of its machines is replaced, so that no machine
// gets a new version because it happened to end (design 0021).

// newestVersions returns the newest version of each launch template of the cluster, by id. The groups of a stack do not
// need it.
func (a *awsMachines) newestVersions(ctx context.Context) (map[string]string, error) {
	out := map[string]string{}
	if a.belongsToStack {
		return out, nil
	}

	pages := ec2.NewDescribeLaunchTemplatesPaginator(a.ec2, &ec2.DescribeLaunchTemplatesInput{
		Filters: []ec2types.Filter{{Name: aws.String("tag:" + awskind.TagCluster), Values: []string{a.cluster}}},
	})

	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list the launch templates of cluster %s: %w", a.cluster, err)
		}

		for _, t := range page.LaunchTemplates {
			out[aws.ToString(t.LaunchTemplateId)] = strconv.FormatInt(aws.ToInt64(t.LatestVersionNumber), 10)
		}
	}

	return out, nil
}

// setVersions sets the versions of a group that launches machines from one version while another one is the newest; empty:
// not known.
func (a *awsMachines) setVersions(g *rollout.Group, launches, newest string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	chooseVersion(g, launches, newest, a.avoided)
}

// chooseVersion is [awsMachines.setVersions] with the versions that groups avoid.
func chooseVersion(g *rollout.Group, launches, newest string, avoided map[string]string) {
	g.Launches = launches
	g.Version = launches
	switch {
	case newest == "" || newest == launches:
	case newest == avoided[groupKey(g.Name, g.Slot)]:
		g.Avoided = newest
	default:
		g.Version = newest
	}
}

// Avoid sets the launch template versions that groups do not move to, by group and slot.
func (a *awsMachines) Avoid(versions map[string]string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.avoided = maps.Clone(versions)
}

// templateVersion returns the version of the launch template that new machines of a group get.
func templateVersion(asg types.AutoScalingGroup) string {
	if p := asg.MixedInstancesPolicy; p != nil && p.LaunchTemplate != nil &&
		p.LaunchTemplate.LaunchTemplateSpecification != nil {
		return aws.ToString(p.LaunchTemplate.LaunchTemplateSpecification.Version)
	}

	if asg.LaunchTemplate != nil {
		return aws.ToString(asg.LaunchTemplate.Version)
	}

	return ""
}

// templateID returns the id of the launch template of a group.
func templateID(asg types.AutoScalingGroup) string {
	if p := asg.MixedInstancesPolicy; p != nil && p.LaunchTemplate != nil &&
		p.LaunchTemplate.LaunchTemplateSpecification != nil {
		return aws.ToString(p.LaunchTemplate.LaunchTemplateSpecification.LaunchTemplateId)
	}

	if asg.LaunchTemplate != nil {
		return aws.ToString(asg.LaunchTemplate.LaunchTemplateId)
	}

	return ""
}

// SetVersion makes a group launch machines from another version of its launch template.
func (a *awsMachines) SetVersion(ctx context.Context, g rollout.Group, version string) error {
	group := a.scalingGroup(g.Name, g.Slot)
	in := &autoscaling.UpdateAutoScalingGroupInput{AutoScalingGroupName: group.AutoScalingGroupName}
	if p := group.MixedInstancesPolicy; p != nil && p.LaunchTemplate != nil {
		mixed := *p
		template := *p.LaunchTemplate
		template.LaunchTemplateSpecification = withVersion(template.LaunchTemplateSpecification, version)
		mixed.LaunchTemplate = &template
		in.MixedInstancesPolicy = &mixed
	} else {
		in.LaunchTemplate = withVersion(group.LaunchTemplate, version)
	}

	if _, err := a.autoscaling.UpdateAutoScalingGroup(ctx, in); err != nil {
		return fmt.Errorf("set auto scaling group %s to launch template version %s: %w",
			aws.ToString(group.AutoScalingGroupName), version, err)
	}

	return nil
}

// withVersion returns the specification of another version of the same launch template. AWS refuses a name next to
// an id.
func withVersion(t *types.LaunchTemplateSpecification, version string) *types.LaunchTemplateSpecification {
	if t == nil {
		return nil
	}

	return &types.LaunchTemplateSpecification{LaunchTemplateId: t.LaunchTemplateId, Version: &version}
}

// avoidFailed keeps groups away from the launch template versions from which a rollback has returned, unless the request is to
// try them again.
func (u *updater) avoidFailed(ctx context.Context) error {
	record, _, err := u.good.readRecord(ctx)
	if err != nil {
		return err
	}

	failed := maps.Clone(record.Failed)
	maps.DeleteFunc(failed, func(key, _ string) bool {
		group, _, _ := strings.Cut(key, "/")

		return u.request.Retry && (len(u.request.Groups) == 0 || slices.Contains(u.request.Groups, group))
	})
	u.machines.Avoid(failed)

	return nil
}

// changesVersions reports whether the update changes the launch template version of a group.
func (u *updater) changesVersions(o rollout.Observation, options rollout.Options) bool {
	return len(u.versions) > 0 || len(rollout.GroupsBehind(o, options)) > 0
}

// moveGroups makes groups launch machines from their new version.
func (u *updater) moveGroups(ctx context.Context, groups []rollout.Group) error {
	for _, g := range groups {
		key := groupKey(g.Name, g.Slot)
		if u.moved[key] == g.Version {
			continue // AWS does not show it yet
		}

		if err := u.machines.SetVersion(ctx, g, g.Version); err != nil {
			return err
		}

		if u.moved == nil {
			u.moved = map[string]string{}
		}

		u.moved[key] = g.Version
	}

	return nil
}

// tellVersions tells which groups stay at an earlier version, and, if no machine is replaced, which ones get a new version.
func (u *updater) tellVersions(o rollout.Observation, options rollout.Options, planned int) {
	for _, g := range o.Groups {
		if g.Avoided != "" {
			u.notify("%s stays at launch template version %s, since a rollback has returned from version %s: "+
				"apply corrected manifests, or add --retry", describeGroup(g), g.Version, g.Avoided)
		}
	}

	if planned > 0 || len(u.versions) > 0 {
		return
	}

	for _, g := range rollout.GroupsBehind(o, options) {
		u.notify("new machines of %s get launch template version %s instead of %s", describeGroup(g), g.Version, g.Launches)
	}
}

// describeGroup names a group for messages, with its slot if it has one.
func describeGroup(g rollout.Group) string {
	if g.Slot == "" {
		return g.Name
	}

	return g.Name + " (slot " + g.Slot + ")"
}
