// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	astypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
)

// versionDeletions records the versions that are deleted, and refuses to.
type versionDeletions []string

func (d *versionDeletions) DeleteLaunchTemplateVersions(_ context.Context, in *ec2.DeleteLaunchTemplateVersionsInput, _ ...func(*ec2.Options)) (*ec2.DeleteLaunchTemplateVersionsOutput, error) {
	*d = append(*d, strings.Join(in.Versions, " "))
	return nil, errors.New("not permitted")
}

// pinnedGroup is a group that launches machines from one version of a template; empty: the groups cannot be listed.
type pinnedGroup string

func (g pinnedGroup) DescribeAutoScalingGroups(context.Context, *autoscaling.DescribeAutoScalingGroupsInput, ...func(*autoscaling.Options)) (*autoscaling.DescribeAutoScalingGroupsOutput, error) {
	if g == "" {
		return nil, errors.New("not permitted")
	}
	spec := &astypes.LaunchTemplateSpecification{LaunchTemplateId: aws.String("lt-1"), Version: aws.String(string(g))}
	return &autoscaling.DescribeAutoScalingGroupsOutput{AutoScalingGroups: []astypes.AutoScalingGroup{{LaunchTemplate: spec}}}, nil
}

// TestOldTemplateVersionsAreDeleted: a template has 10,000 versions at most. An update adds one and deletes those that are older
// than the newest hundred, in one call, but not the one that a group launches machines from; a missing permission does not
// fail it.
func TestOldTemplateVersionsAreDeleted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		latest int64
		pinned pinnedGroup
		want   string
	}{
		{2, "2", ""},
		{100, "100", ""},
		{101, "101", "1"},
		{101, "1", ""},
		{105, "105", "1 2 3 4 5"},
		{105, "3", "1 2 4 5"},
		{105, "", ""},
		{9999, "9999", "9890 9891 9892 9893 9894 9895 9896 9897 9898 9899"},
	} {
		var got versionDeletions
		templatePruner{templates: &got, groups: c.pinned}.deleteOldVersions(t.Context(), "lt-1", c.latest)
		if all := strings.Join(got, ", "); all != c.want || len(got) > 1 {
			t.Errorf("the newest version is %d, a group has %s: deleted %q, want %q", c.latest, c.pinned, all, c.want)
		}
	}
}
