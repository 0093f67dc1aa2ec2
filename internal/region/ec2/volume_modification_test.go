// SPDX-License-Identifier: Apache-2.0

package ec2_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	client "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/region/ec2"
	"github.com/slipway-k8s/slipway/internal/region/state"
)

// TestModificationsHaveStates: a modification is modifying, optimizing and then completed, and only then the next one is
// accepted. A volume that was never modified has none.
func TestModificationsHaveStates(t *testing.T) {
	t.Parallel()
	r, ctx := newRegion(t), t.Context()
	made := must[*client.CreateVolumeOutput](t)(r.CreateVolume(ctx, &client.CreateVolumeInput{
		AvailabilityZone: aws.String("us-east-1a"), Size: aws.Int32(4), VolumeType: "gp3",
	}))
	grow := func(size int32) (*client.ModifyVolumeOutput, error) {
		return r.ModifyVolume(ctx, &client.ModifyVolumeInput{VolumeId: made.VolumeId, Size: &size})
	}
	if _, err := grow(8); code(err) != "IncorrectState" {
		t.Errorf("modify a volume that is being created: %v", err)
	}
	r.clock.Add(time.Second)
	of := &client.DescribeVolumesModificationsInput{VolumeIds: []string{*made.VolumeId}}
	if _, err := r.DescribeVolumesModifications(ctx, of); code(err) != "InvalidVolumeModification.NotFound" {
		t.Errorf("the modification of a volume without one: %v", err)
	}
	if all := must[*client.DescribeVolumesModificationsOutput](t)(r.DescribeVolumesModifications(ctx, &client.DescribeVolumesModificationsInput{})); len(all.VolumesModifications) != 0 {
		t.Errorf("there are %d modifications of volumes", len(all.VolumesModifications))
	}

	first := must[*client.ModifyVolumeOutput](t)(grow(8)).VolumeModification
	if first.ModificationState != types.VolumeModificationStateModifying || *first.OriginalSize != 4 || *first.TargetSize != 8 {
		t.Errorf("the modification is %+v", first)
	}
	states := []types.VolumeModificationState{}
	for range 3 {
		m := must[*client.DescribeVolumesModificationsOutput](t)(r.DescribeVolumesModifications(ctx, of)).VolumesModifications[0]
		states = append(states, m.ModificationState)
		if _, err := grow(16); m.ModificationState != types.VolumeModificationStateCompleted && code(err) != "IncorrectModificationState" {
			t.Errorf("modify a volume that is %s: %v", m.ModificationState, err)
		}
		r.clock.Add(250 * time.Millisecond)
	}
	if want := []types.VolumeModificationState{"modifying", "optimizing", "completed"}; !slices.Equal(states, want) {
		t.Errorf("the states are %v, want %v", states, want)
	}
	m := must[*client.DescribeVolumesModificationsOutput](t)(r.DescribeVolumesModifications(ctx, &client.DescribeVolumesModificationsInput{})).VolumesModifications
	if len(m) != 1 || *m[0].OriginalSize != 8 || *m[0].TargetSize != 16 {
		t.Errorf("the last modification is %+v", m)
	}
	_, err := r.CreateVolume(ctx, &client.CreateVolumeInput{AvailabilityZone: aws.String("us-east-1a"), Size: aws.Int32(4), VolumeType: "gp3", Iops: aws.Int32(1 << 30)})
	if code(err) != "InvalidParameterValue" || !strings.Contains(err.Error(), "is too high; maximum is 80000") {
		t.Errorf("too many IOPS: %v", err)
	}
}

// TestVolumesAreModifiedFourTimesADay: a volume can be modified at once when its last modification is completed, but at most
// four times within 24 hours, also across a restart. EC2's documentation says that the message tells when the next one is
// possible.
func TestVolumesAreModifiedFourTimesADay(t *testing.T) {
	t.Parallel()
	dir := state.Dir(t.TempDir())
	open := func() region { return newRegion(t, func(c *ec2.Config) { c.State = dir }) }
	r, ctx := open(), t.Context()
	made := must[*client.CreateVolumeOutput](t)(r.CreateVolume(ctx, &client.CreateVolumeInput{
		AvailabilityZone: aws.String("us-east-1a"), Size: aws.Int32(4), VolumeType: "gp3",
	}))
	other := must[*client.CreateVolumeOutput](t)(r.CreateVolume(ctx, &client.CreateVolumeInput{
		AvailabilityZone: aws.String("us-east-1a"), Size: aws.Int32(4), VolumeType: "gp3",
	}))
	size := int32(4)
	grow := func() error {
		size++
		_, err := r.ModifyVolume(ctx, &client.ModifyVolumeInput{VolumeId: made.VolumeId, Size: new(size)})
		for range 2 { // optimizing, completed
			r.clock.Add(time.Second)
			must[*client.DescribeVolumesOutput](t)(r.DescribeVolumes(ctx, &client.DescribeVolumesInput{}))
		}
		return err
	}

	r.clock.Add(time.Second)
	for i := range 4 {
		if err := grow(); err != nil {
			t.Fatalf("modification %d: %v", i+1, err)
		}
	}
	clock := r.clock
	r = open()
	r.clock.Add(clock.Now().Sub(r.clock.Now()))
	err := grow()
	if code(err) != "VolumeModificationRateExceeded" || !strings.Contains(err.Error(), "2026-01-03T03:04:06Z") {
		t.Errorf("the fifth modification: %v, want VolumeModificationRateExceeded with the time of the next one", err)
	}
	if _, err := r.ModifyVolume(ctx, &client.ModifyVolumeInput{VolumeId: other.VolumeId, Size: aws.Int32(5)}); err != nil {
		t.Errorf("modify another volume: %v", err)
	}

	r.clock.Add(24*time.Hour - 11*time.Second) // one second before the first modification is 24 hours old
	if err := grow(); code(err) != "VolumeModificationRateExceeded" {
		t.Errorf("within 24 hours: %v, want VolumeModificationRateExceeded", err)
	}
	if err := grow(); err != nil {
		t.Errorf("24 hours after the first modification: %v", err)
	}
	if err := grow(); err != nil {
		t.Errorf("24 hours after the second modification: %v", err)
	}
}

// TestModifiedVolumesOfMachinesGrow: the disk behind a volume grows, which ends the modification.
func TestModifiedVolumesOfMachinesGrow(t *testing.T) {
	m := newMachines()
	r := newRegion(t, func(c *ec2.Config) { c.Machines = m })
	start(t, r.svc)
	ctx := t.Context()
	v := must[*client.CreateVolumeOutput](t)(r.CreateVolume(ctx, &client.CreateVolumeInput{
		AvailabilityZone: aws.String("us-east-1a"), Size: aws.Int32(4), VolumeType: "gp3",
	}))
	grow := &client.ModifyVolumeInput{VolumeId: v.VolumeId, Size: aws.Int32(9)}
	waitFor(t, "the volume can be modified", func() bool {
		_, err := r.ModifyVolume(ctx, grow)
		return err == nil
	})
	waitFor(t, "the modification is completed", func() bool {
		r.clock.Add(time.Second)
		out := must[*client.DescribeVolumesModificationsOutput](t)(r.DescribeVolumesModifications(ctx, &client.DescribeVolumesModificationsInput{}))
		return out.VolumesModifications[0].ModificationState == types.VolumeModificationStateCompleted
	})
	if calls := m.lines(); !slices.Contains(calls, "create volume of 9 GiB") {
		t.Errorf("the disk did not grow: %q", calls)
	}
}

// TestSnapshotsArePending: a snapshot is pending first, and completed when its data is stored.
func TestSnapshotsArePending(t *testing.T) {
	t.Parallel()
	r, ctx := newRegion(t), t.Context()
	v := must[*client.CreateVolumeOutput](t)(r.CreateVolume(ctx, &client.CreateVolumeInput{AvailabilityZone: aws.String("us-east-1a"), Size: aws.Int32(4)}))
	r.clock.Add(time.Second)
	made := must[*client.CreateSnapshotOutput](t)(r.CreateSnapshot(ctx, &client.CreateSnapshotInput{VolumeId: v.VolumeId}))
	snapshot := func() types.Snapshot {
		return must[*client.DescribeSnapshotsOutput](t)(r.DescribeSnapshots(ctx, &client.DescribeSnapshotsInput{SnapshotIds: []string{*made.SnapshotId}})).Snapshots[0]
	}
	if got := snapshot(); made.State != types.SnapshotStatePending || got.State != types.SnapshotStatePending {
		t.Errorf("a new snapshot is %s, then %s", made.State, got.State)
	}
	r.clock.Add(time.Second)
	if got := snapshot(); got.State != types.SnapshotStateCompleted || *got.Progress != "100%" {
		t.Errorf("after its creation the snapshot is %s with %s", got.State, *got.Progress)
	}
}
