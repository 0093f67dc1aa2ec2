// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
)

// ebsReplay makes the calls to EC2 that the EBS CSI driver makes for one claim, in their order, with their parameters: pkg/cloud/cloud.go
// of https://github.com/kubernetes-sigs/aws-ebs-csi-driver, v1.64.0. The driver itself cannot be built here.
type ebsReplay struct {
	context.Context
	api      *ec2.Client
	instance ec2types.Instance // of the pod with the claim
	claim    string            // name of the persistent volume

	volume, snapshot string
}

// run makes all calls, until one fails.
func (r *ebsReplay) run() error {
	for _, step := range []struct {
		name string
		call func() error
	}{
		{"check the health", r.checkHealth},
		{"create the volume", r.createVolume},
		{"attach the volume", r.attach},
		{"let the volume grow", r.grow},
		{"take a snapshot", r.takeSnapshot},
		{"restore the snapshot", r.restore},
		{"detach the volume", r.detach},
		{"delete snapshot and volume", r.remove},
	} {
		if err := step.call(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}

	return nil
}

// refusedAs returns nil for a refusal with this code, which the driver expects, and an error for everything else.
func refusedAs(err error, code string) error {
	var refusal smithy.APIError
	switch {
	case err == nil:
		return fmt.Errorf("the call succeeded, want %s", code)
	case !errors.As(err, &refusal) || refusal.ErrorCode() != code:
		return fmt.Errorf("want %s: %w", code, err)
	}

	return nil
}

// until repeats a call until it returns true, as the driver polls.
func (r *ebsReplay) until(call func() (bool, error)) error {
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		ok, err := call()
		switch {
		case err != nil || ok:
			return err
		case time.Now().After(end):
			return errors.New("not within 20 s")
		}
	}
}

// tags are those that the driver gives what it creates with --k8s-tag-cluster-id=demo and --extra-tags=team=shop.
func (r *ebsReplay) tags(kind ec2types.ResourceType, nameKey string, more ...string) []ec2types.TagSpecification {
	pairs := append([]string{
		nameKey, r.claim,
		"ebs.csi.aws.com/cluster", "true",
		"ebs.csi.aws.com/cluster-name", "demo",
		"kubernetes.io/cluster/demo", "owned",
		"Name", "demo-dynamic-" + r.claim,
		"team", "shop",
	}, more...)
	var all []ec2types.Tag
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, ec2types.Tag{Key: &pairs[i], Value: &pairs[i+1]})
	}

	return []ec2types.TagSpecification{{ResourceType: kind, Tags: all}}
}

// checkHealth asks for a dry run, as the probe of the driver does.
func (r *ebsReplay) checkHealth() error {
	_, err := r.api.DescribeAvailabilityZones(r, &ec2.DescribeAvailabilityZonesInput{DryRun: sdk.Bool(true)})

	return refusedAs(err, "DryRunOperation")
}

// volumeRequest is that of a claim of the channel's StorageClass.
func (r *ebsReplay) volumeRequest() *ec2.CreateVolumeInput {
	token := sha256.Sum256([]byte(r.claim))

	return &ec2.CreateVolumeInput{
		AvailabilityZone:   r.instance.Placement.AvailabilityZone,
		ClientToken:        sdk.String(hex.EncodeToString(token[:])),
		Size:               sdk.Int32(4),
		VolumeType:         ec2types.VolumeTypeGp3,
		Encrypted:          sdk.Bool(true),
		MultiAttachEnabled: sdk.Bool(false),
		TagSpecifications: r.tags(ec2types.ResourceTypeVolume, "CSIVolumeName",
			"KubernetesCluster", "demo", "kubernetes.io/created-for/pvc/namespace", "shop", "kubernetes.io/created-for/pvc/name", "data",
			"kubernetes.io/created-for/pv/name", r.claim),
	}
}

// createVolume asks for the limits of the volume's type, which the policy denies, since that request names no cluster: the driver then
// takes its own limits. Then it creates the volume, twice as after a restart of the driver, and waits for it.
func (r *ebsReplay) createVolume() error {
	limits := ec2types.TagSpecification{ResourceType: ec2types.ResourceTypeVolume, Tags: []ec2types.Tag{{Key: sdk.String("CSIVolumeName"), Value: sdk.String("IopsLimitDryRun")}}}
	_, err := r.api.CreateVolume(r, &ec2.CreateVolumeInput{
		AvailabilityZone: r.instance.Placement.AvailabilityZone, VolumeType: ec2types.VolumeTypeGp3, Size: sdk.Int32(4), Iops: sdk.Int32(1<<31 - 1),
		DryRun: sdk.Bool(true), TagSpecifications: []ec2types.TagSpecification{limits},
	})
	if err := refusedAs(err, "UnauthorizedOperation"); err != nil {
		return err
	}

	for range 2 {
		made, err := r.api.CreateVolume(r, r.volumeRequest())
		if err != nil {
			return err
		}
		if r.volume != "" && r.volume != *made.VolumeId {
			return fmt.Errorf("the repeated request created %s after %s", *made.VolumeId, r.volume)
		}
		r.volume = *made.VolumeId
	}
	other := r.volumeRequest()
	other.Size = sdk.Int32(8)
	_, err = r.api.CreateVolume(r, other)
	if err := refusedAs(err, "IdempotentParameterMismatch"); err != nil {
		return err
	}
	byName, err := r.api.DescribeVolumes(r, &ec2.DescribeVolumesInput{Filters: []ec2types.Filter{{Name: sdk.String("tag:CSIVolumeName"), Values: []string{r.claim, "pvc-of-nobody"}}}})
	if err != nil {
		return err
	}
	if len(byName.Volumes) != 1 || *byName.Volumes[0].VolumeId != r.volume {
		return fmt.Errorf("%d volumes have the name of the claim", len(byName.Volumes))
	}

	return r.untilVolume(func(v ec2types.Volume) bool { return v.State == ec2types.VolumeStateAvailable })
}

// untilVolume waits for a state of the volume.
func (r *ebsReplay) untilVolume(ready func(ec2types.Volume) bool) error {
	return r.until(func() (bool, error) {
		out, err := r.api.DescribeVolumes(r, &ec2.DescribeVolumesInput{VolumeIds: []string{r.volume}})
		if err != nil {
			return false, err
		}

		return ready(out.Volumes[0]), nil
	})
}

// attach attaches the volume as the first device that the machine does not have.
func (r *ebsReplay) attach() error {
	out, err := r.api.DescribeInstances(r, &ec2.DescribeInstancesInput{InstanceIds: []string{*r.instance.InstanceId}})
	if err != nil {
		return err
	}
	if _, err := r.api.DescribeInstanceTypes(r, &ec2.DescribeInstanceTypesInput{InstanceTypes: []ec2types.InstanceType{r.instance.InstanceType}}); err != nil {
		return err
	}
	used := map[string]bool{}
	for _, m := range out.Reservations[0].Instances[0].BlockDeviceMappings {
		used[*m.DeviceName] = true
	}
	device := ""
	for c := 'z'; c >= 'a'; c-- {
		if name := "/dev/xvda" + string(c); !used[name] {
			device = name
		}
	}
	request := &ec2.AttachVolumeInput{Device: &device, InstanceId: r.instance.InstanceId, VolumeId: &r.volume}
	if _, err := r.api.AttachVolume(r, request); err != nil {
		return err
	}
	_, err = r.api.AttachVolume(r, request)
	if err := refusedAs(err, "VolumeInUse"); err != nil {
		return err
	}

	return r.untilVolume(func(v ec2types.Volume) bool {
		return len(v.Attachments) == 1 && v.Attachments[0].State == ec2types.VolumeAttachmentStateAttached && *v.Attachments[0].Device == device
	})
}

// grow enlarges the attached volume and waits until the new size is in force; the next change has to wait longer.
func (r *ebsReplay) grow() error {
	modifications := &ec2.DescribeVolumesModificationsInput{VolumeIds: []string{r.volume}}
	_, err := r.api.DescribeVolumesModifications(r, modifications)
	if err := refusedAs(err, "InvalidVolumeModification.NotFound"); err != nil {
		return err
	}
	request := &ec2.ModifyVolumeInput{VolumeId: &r.volume, Size: sdk.Int32(6)}
	made, err := r.api.ModifyVolume(r, request)
	if err != nil {
		return err
	}
	if made.VolumeModification.ModificationState != ec2types.VolumeModificationStateModifying {
		return fmt.Errorf("the modification is %s", made.VolumeModification.ModificationState)
	}
	_, err = r.api.ModifyVolume(r, request)
	if err := refusedAs(err, "IncorrectModificationState"); err != nil {
		return err
	}
	err = r.until(func() (bool, error) {
		out, err := r.api.DescribeVolumesModifications(r, modifications)
		if err != nil {
			return false, err
		}
		state := out.VolumesModifications[0].ModificationState

		return state == ec2types.VolumeModificationStateOptimizing || state == ec2types.VolumeModificationStateCompleted, nil
	})
	if err != nil {
		return err
	}

	return r.untilVolume(func(v ec2types.Volume) bool { return *v.Size == 6 })
}

// takeSnapshot looks for a snapshot of that name, makes one, waits until it is completed, and lists those of the volume.
func (r *ebsReplay) takeSnapshot() error {
	byName := &ec2.DescribeSnapshotsInput{Filters: []ec2types.Filter{{Name: sdk.String("tag:CSIVolumeSnapshotName"), Values: []string{r.claim}}}}
	out, err := r.api.DescribeSnapshots(r, byName)
	if err != nil {
		return err
	}
	if len(out.Snapshots) > 0 {
		return fmt.Errorf("there are %d snapshots of that name", len(out.Snapshots))
	}
	made, err := r.api.CreateSnapshot(r, &ec2.CreateSnapshotInput{
		VolumeId: &r.volume, Description: sdk.String("Created by AWS EBS CSI driver for volume " + r.volume),
		TagSpecifications: r.tags(ec2types.ResourceTypeSnapshot, "CSIVolumeSnapshotName"),
	})
	if err != nil {
		return err
	}
	r.snapshot = *made.SnapshotId
	if made.State != ec2types.SnapshotStatePending || *made.VolumeSize != 6 {
		return fmt.Errorf("the new snapshot is %s with %d GiB", made.State, *made.VolumeSize)
	}
	err = r.until(func() (bool, error) {
		out, err := r.api.DescribeSnapshots(r, &ec2.DescribeSnapshotsInput{SnapshotIds: []string{r.snapshot}})
		if err != nil {
			return false, err
		}

		return out.Snapshots[0].State == ec2types.SnapshotStateCompleted, nil
	})
	if err != nil {
		return err
	}
	list, err := r.api.DescribeSnapshots(r, &ec2.DescribeSnapshotsInput{
		MaxResults: sdk.Int32(5), Filters: []ec2types.Filter{{Name: sdk.String("volume-id"), Values: []string{r.volume}}},
	})
	if err == nil && len(list.Snapshots) != 1 {
		return fmt.Errorf("the volume has %d snapshots", len(list.Snapshots))
	}

	return err
}

// restore asks for a volume with the data of the snapshot. It is permitted, and the region refuses it by name: it copies no data.
func (r *ebsReplay) restore() error {
	request := r.volumeRequest()
	request.ClientToken = sdk.String(r.claim + "-restored")
	request.SnapshotId = &r.snapshot
	request.Size = sdk.Int32(6)
	_, err := r.api.CreateVolume(r, request)

	return refusedAs(err, "UnsupportedOperation")
}

// detach detaches the volume, twice as after a restart of the driver.
func (r *ebsReplay) detach() error {
	request := &ec2.DetachVolumeInput{InstanceId: r.instance.InstanceId, VolumeId: &r.volume}
	_, err := r.api.DeleteVolume(r, &ec2.DeleteVolumeInput{VolumeId: &r.volume})
	if err := refusedAs(err, "VolumeInUse"); err != nil {
		return err
	}
	if _, err := r.api.DetachVolume(r, request); err != nil {
		return err
	}
	if err := r.untilVolume(func(v ec2types.Volume) bool { return v.State == ec2types.VolumeStateAvailable }); err != nil {
		return err
	}
	_, err = r.api.DetachVolume(r, request)

	return refusedAs(err, "IncorrectState")
}

// remove deletes the snapshot and the volume, which the driver takes for deleted if they are gone.
func (r *ebsReplay) remove() error {
	snapshot := &ec2.DeleteSnapshotInput{SnapshotId: &r.snapshot, DryRun: sdk.Bool(false)}
	if _, err := r.api.DeleteSnapshot(r, snapshot); err != nil {
		return err
	}
	_, err := r.api.DeleteSnapshot(r, snapshot)
	if err := refusedAsGone(err, "InvalidSnapshot.NotFound"); err != nil {
		return err
	}
	if _, err := r.api.DeleteVolume(r, &ec2.DeleteVolumeInput{VolumeId: &r.volume}); err != nil {
		return err
	}

	return r.until(func() (bool, error) {
		_, err := r.api.DeleteVolume(r, &ec2.DeleteVolumeInput{VolumeId: &r.volume})
		if refusedAs(err, "IncorrectState") == nil { // it is being deleted
			return false, nil
		}

		return true, refusedAsGone(err, "InvalidVolume.NotFound")
	})
}

// refusedAsGone is refusedAs for something that was deleted. The region answers like IAM, which finds no tags of it; whether AWS
// does so too, or answers that nothing has this name, is not documented.
func refusedAsGone(err error, code string) error {
	if refusedAs(err, "UnauthorizedOperation") == nil {
		return nil
	}

	return refusedAs(err, code)
}
