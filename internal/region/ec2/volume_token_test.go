// SPDX-License-Identifier: Apache-2.0

package ec2_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	client "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/region/ec2"
)

// TestVolumeTokens: a request with a client token that was used does nothing further, also after the volume was deleted.
func TestVolumeTokens(t *testing.T) {
	m, n := newMachines(), &network{}
	r := newRegion(t, func(c *ec2.Config) { c.Machines, c.Network = m, n })
	start(t, r.svc)
	in := &client.CreateVolumeInput{
		AvailabilityZone: aws.String("us-east-1a"), Size: aws.Int32(1), VolumeType: "gp3", ClientToken: aws.String("one"),
	}
	create := func() string { return *must[*client.CreateVolumeOutput](t)(r.CreateVolume(t.Context(), in)).VolumeId }
	first := create()
	if again := create(); again != first {
		t.Errorf("a repeated request created %s after %s", again, first)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		_, err := r.DeleteVolume(t.Context(), &client.DeleteVolumeInput{VolumeId: &first})
		if code(err) == "InvalidVolume.NotFound" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the volume is not deleted: %v", err)
		}
	}
	answer := must[*client.CreateVolumeOutput](t)(r.CreateVolume(t.Context(), in))
	if *answer.VolumeId != first || answer.State != types.VolumeStateDeleted {
		t.Errorf("the request of a deleted volume created %s in state %s, want %s", *answer.VolumeId, answer.State, first)
	}
	if left := must[*client.DescribeVolumesOutput](t)(r.DescribeVolumes(t.Context(), &client.DescribeVolumesInput{})); len(left.Volumes) != 0 {
		t.Errorf("%d volumes", len(left.Volumes))
	}
	in.Size = aws.Int32(2)
	if _, err := r.CreateVolume(t.Context(), in); code(err) != "IdempotentParameterMismatch" {
		t.Errorf("the token with other parameters: %v", err)
	}
	in.ClientToken = aws.String("two")
	if other := create(); other == first {
		t.Errorf("another token returned %s too", other)
	}
}
