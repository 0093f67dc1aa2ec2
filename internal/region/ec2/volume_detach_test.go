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

// The detachment of a mounted volume lasts until it is unmounted or the detachment is forced, as on AWS
// (DetachVolume in the EC2 API reference).
func TestDetachMountedVolume(t *testing.T) {
	m := newMachines()
	r := newRegion(t, func(c *ec2.Config) { c.Machines = m })
	start(t, r.svc)
	ctx := t.Context()
	_, subnet := r.createVPCWithSubnet(t)
	id := *r.runInstance(t, subnet).InstanceId
	r.waitForState(t, id, types.InstanceStateNameRunning)
	v := must[*client.CreateVolumeOutput](t)(r.CreateVolume(ctx, &client.CreateVolumeInput{
		AvailabilityZone: aws.String("us-east-1b"), Size: aws.Int32(4), VolumeType: "gp3",
	}))
	volume := func() types.Volume {
		out := must[*client.DescribeVolumesOutput](t)(r.DescribeVolumes(ctx, &client.DescribeVolumesInput{VolumeIds: []string{*v.VolumeId}}))
		return out.Volumes[0]
	}
	available := func() bool { return volume().State == types.VolumeStateAvailable }
	attach := func() {
		t.Helper()
		must[*client.AttachVolumeOutput](t)(r.AttachVolume(ctx, &client.AttachVolumeInput{VolumeId: v.VolumeId, InstanceId: &id, Device: aws.String("/dev/sdf")}))
		waitFor(t, "volume attached", func() bool { return volume().Attachments[0].State == types.VolumeAttachmentStateAttached })
		m.setMounted(*v.VolumeId, true)
	}
	detach := func(force bool) {
		t.Helper()
		out := must[*client.DetachVolumeOutput](t)(r.DetachVolume(ctx, &client.DetachVolumeInput{VolumeId: v.VolumeId, Force: &force}))
		if out.State != types.VolumeAttachmentStateDetaching {
			t.Errorf("detach: state %s, want detaching", out.State)
		}
	}
	waitFor(t, "volume available", available)

	attach()
	_, err := r.DetachVolume(ctx, &client.DetachVolumeInput{VolumeId: v.VolumeId, Device: aws.String("/dev/sdg")})
	if code(err) != "InvalidAttachment.NotFound" {
		t.Errorf("detach from another device: %v", err)
	}
	detach(false)
	time.Sleep(1200 * time.Millisecond) // two attempts
	if got := volume(); got.State != types.VolumeStateInUse || got.Attachments[0].State != types.VolumeAttachmentStateDetaching {
		t.Errorf("while it is mounted, the volume is %s with attachments %+v", got.State, got.Attachments)
	}
	m.setMounted(*v.VolumeId, false)
	waitFor(t, "volume detached after it was unmounted", available)

	attach()
	detach(false)
	detach(true) // while the first detachment waits
	waitFor(t, "forced detachment", available)
	if m.isMounted(*v.VolumeId) {
		t.Error("the device did not fail")
	}
	attach() // the first detachment must not end this attachment
	time.Sleep(1200 * time.Millisecond)
	if got := volume().Attachments; len(got) != 1 || got[0].State != types.VolumeAttachmentStateAttached {
		t.Errorf("after it was attached again: %+v", got)
	}
}
