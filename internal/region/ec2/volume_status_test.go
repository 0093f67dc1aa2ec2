// SPDX-License-Identifier: Apache-2.0

package ec2_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	client "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// TestStatusOfVolumes: the EBS CSI driver asks whether a volume is initialized. Volumes here have no snapshot whose blocks would be loaded.
func TestStatusOfVolumes(t *testing.T) {
	t.Parallel()
	r, ctx := newRegion(t), t.Context()
	made := must[*client.CreateVolumeOutput](t)(r.CreateVolume(ctx, &client.CreateVolumeInput{
		AvailabilityZone: aws.String("us-east-1a"), Size: aws.Int32(4), VolumeType: "gp3",
	}))
	r.clock.Add(time.Second)
	out := must[*client.DescribeVolumeStatusOutput](t)(r.DescribeVolumeStatus(ctx, &client.DescribeVolumeStatusInput{VolumeIds: []string{*made.VolumeId}}))
	if len(out.VolumeStatuses) != 1 {
		t.Fatalf("%d volumes", len(out.VolumeStatuses))
	}
	s := out.VolumeStatuses[0]
	if *s.VolumeId != *made.VolumeId || *s.AvailabilityZone != "us-east-1a" || s.VolumeStatus.Status != types.VolumeStatusInfoStatusOk {
		t.Errorf("the status is %+v", s)
	}
	details := map[types.VolumeStatusName]string{}
	for _, d := range s.VolumeStatus.Details {
		details[d.Name] = *d.Status
	}
	if len(details) != 2 || details["io-enabled"] != "passed" || details["io-performance"] != "not-applicable" {
		t.Errorf("the details are %v", details)
	}
	filter := func(name, value string) *client.DescribeVolumeStatusInput {
		return &client.DescribeVolumeStatusInput{Filters: []types.Filter{{Name: &name, Values: []string{value}}}}
	}
	for value, want := range map[string]int{"ok": 1, "impaired": 0} {
		if got := must[*client.DescribeVolumeStatusOutput](t)(r.DescribeVolumeStatus(ctx, filter("volume-status.status", value))); len(got.VolumeStatuses) != want {
			t.Errorf("%s: %d volumes, want %d", value, len(got.VolumeStatuses), want)
		}
	}
	if _, err := r.DescribeVolumeStatus(ctx, filter("size", "4")); code(err) != "InvalidParameterValue" {
		t.Errorf("a filter that the operation does not have: %v", err)
	}
	if _, err := r.DescribeVolumeStatus(ctx, &client.DescribeVolumeStatusInput{VolumeIds: []string{"vol-0123456789abcdef0"}}); code(err) != "InvalidVolume.NotFound" {
		t.Errorf("a volume that does not exist: %v", err)
	}
}
