// SPDX-License-Identifier: Apache-2.0

package ec2_test

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	client "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// TestSnapshotsHaveTags: the EBS CSI driver tags snapshots after it has created them.
func TestSnapshotsHaveTags(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	ctx := t.Context()
	v := must[*client.CreateVolumeOutput](t)(r.CreateVolume(ctx, &client.CreateVolumeInput{AvailabilityZone: aws.String("us-east-1a"), Size: aws.Int32(8)}))
	r.clock.Add(60e9)
	s := must[*client.CreateSnapshotOutput](t)(r.CreateSnapshot(ctx, &client.CreateSnapshotInput{VolumeId: v.VolumeId}))
	must[*client.CreateTagsOutput](t)(r.CreateTags(ctx, &client.CreateTagsInput{
		Resources: []string{*s.SnapshotId}, Tags: []types.Tag{{Key: aws.String("k"), Value: aws.String("v")}},
	}))

	out := must[*client.DescribeSnapshotsOutput](t)(r.DescribeSnapshots(ctx, &client.DescribeSnapshotsInput{Filters: filters("tag:k", "v")}))
	if len(out.Snapshots) != 1 || len(out.Snapshots[0].Tags) != 1 {
		t.Errorf("snapshots with the tag: %+v", out.Snapshots)
	}
}

// TestErrorsAreThoseOfEC2 compares codes and messages with those that moto's and LocalStack's tests record of AWS.
func TestErrorsAreThoseOfEC2(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	ctx := t.Context()
	missing := []string{"i-0123456789abcdef0", "i-0123456789abcdef1"}
	_, several := r.DescribeInstances(ctx, &client.DescribeInstancesInput{InstanceIds: missing})
	_, both := r.DescribeInstances(ctx, &client.DescribeInstancesInput{InstanceIds: missing, MaxResults: aws.Int32(10)})
	_, small := r.DescribeInstances(ctx, &client.DescribeInstancesInput{MaxResults: aws.Int32(4)})
	_, volume := r.CreateVolume(ctx, &client.CreateVolumeInput{AvailabilityZone: aws.String("nowhere")})
	_, template := r.DescribeLaunchTemplates(ctx, &client.DescribeLaunchTemplatesInput{LaunchTemplateNames: []string{"none"}})

	for name, x := range map[string]struct {
		err  error
		want string
	}{
		"several instances":   {several, "InvalidInstanceID.NotFound: The instance IDs 'i-0123456789abcdef0, i-0123456789abcdef1' do not exist"},
		"a page of some":      {both, "InvalidParameterCombination: The parameter instancesSet cannot be used with the parameter maxResults"},
		"a small page":        {small, "InvalidParameterValue: Value ( 4 ) for parameter maxResults is invalid. Expecting a value greater than 5."},
		"a volume of no size": {volume, "MissingParameter: The request must contain the parameter size/snapshot"},
		"a missing template":  {template, "At least one of the launch templates specified in the request does not exist."},
	} {
		if x.err == nil || !strings.Contains(x.err.Error(), x.want) {
			t.Errorf("%s:\n got %v\nwant %s", name, x.err, x.want)
		}
	}
}
