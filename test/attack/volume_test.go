// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// TestVolumesThatMachinesCreate: root on the machine of slot a may create a volume for its slot, if the manifest permits it, as
// apply would create it. It creates no other volume: none of another slot or cluster, none that is larger, in another zone, without
// encryption or with more tags; and it gives tags to no volume that exists. Apply knows the volume, and delete deletes it. Never open:
// the right to create volumes and this test were made together.
func TestVolumesThatMachinesCreate(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	former := l.slotOf("a")
	root := ec2.NewFromConfig(l.config(caller{}))
	asked := l.sameVolume(root, former.volume)
	manifest := l.must(caller{}, 0, "get", "cluster", "demo", "-o", "yaml")
	set := func(after string) {
		text := strings.Replace(manifest, "recreateVolumesAfter: 10m\n", "recreateVolumesAfter: "+after+"\n", 1)
		l.must(caller{}, 0, "replace", "-f", l.temporaryFile("demo.yaml", text), "--yes")
		l.must(caller{}, 0, "apply", "demo", "--yes")
	}
	set("Never")
	forbidden := ec2.NewFromConfig(l.config(l.assumed(l.roleOfSlot("c"))))
	_, err := forbidden.CreateVolume(t.Context(), l.sameVolume(root, l.slotOf("c").volume))
	l.denied("create a volume without the setting", err)
	set("5m")

	machine := ec2.NewFromConfig(l.config(l.assumed(l.roleOfSlot("a"))))
	create := func(change func(in *ec2.CreateVolumeInput)) (*ec2.CreateVolumeOutput, error) {
		in := *asked
		in.TagSpecifications = []types.TagSpecification{{
			ResourceType: types.ResourceTypeVolume, Tags: slices.Clone(asked.TagSpecifications[0].Tags),
		}}
		change(&in)

		return machine.CreateVolume(t.Context(), &in)
	}
	tag := func(key, value string) func(*ec2.CreateVolumeInput) {
		return func(in *ec2.CreateVolumeInput) {
			of := &in.TagSpecifications[0]
			of.Tags = slices.DeleteFunc(of.Tags, func(t types.Tag) bool { return *t.Key == key })
			of.Tags = append(of.Tags, types.Tag{Key: &key, Value: &value})
		}
	}
	for what, change := range map[string]func(in *ec2.CreateVolumeInput){
		"of another slot":    tag("slipway.dev/etcd-slot", "b"),
		"for another slot":   tag("slipway.dev/address", "volume/etcd-b"),
		"of another cluster": tag("slipway.dev/cluster", "other"),
		"with another tag":   tag("cost-centre", "none"),
		"without tags":       func(in *ec2.CreateVolumeInput) { in.TagSpecifications = nil },
		"that is larger":     func(in *ec2.CreateVolumeInput) { in.Size = sdk.Int32(16000) },
		"of another type": func(in *ec2.CreateVolumeInput) {
			in.VolumeType = types.VolumeTypeGp2
			in.Iops, in.Throughput = nil, nil
		},
		"in another zone":    func(in *ec2.CreateVolumeInput) { in.AvailabilityZone = sdk.String("us-east-1b") },
		"without encryption": func(in *ec2.CreateVolumeInput) { in.Encrypted, in.KmsKeyId = sdk.Bool(false), nil },
		"of a snapshot":      func(in *ec2.CreateVolumeInput) { in.SnapshotId = sdk.String("snap-0123456789abcdef0") },
	} {
		_, err := create(change)
		l.denied("create a volume "+what, err)
	}

	_, err = machine.CreateTags(t.Context(), &ec2.CreateTagsInput{
		Resources: []string{l.slotOf("b").volume}, Tags: asked.TagSpecifications[0].Tags,
	})
	l.denied("take the volume of another slot by tags", err)

	l.loseVolume(root, former)
	made, err := create(func(*ec2.CreateVolumeInput) {})
	l.check(err)
	if out := l.must(caller{}, 0, "plan", "demo"); !strings.Contains(out, "No changes") {
		t.Errorf("the plan changes what the machine has created:\n%s", out)
	}

	if got := l.slotOf("a").volume; got != *made.VolumeId {
		t.Errorf("slot a has volume %s, the machine has created %s", got, *made.VolumeId)
	}

	l.must(caller{}, 0, "delete", "cluster", "demo", "--yes", "--destroy-data")
	left, err := root.DescribeVolumes(t.Context(), &ec2.DescribeVolumesInput{
		Filters: []types.Filter{{Name: sdk.String("tag-key"), Values: []string{"slipway.dev/etcd-slot"}}}, // no root volumes
	})
	l.check(err)
	for _, v := range left.Volumes {
		if v.State != types.VolumeStateDeleting && v.State != types.VolumeStateDeleted { // EC2 lists them for a while
			t.Errorf("volume %s is left, %s: %v", *v.VolumeId, v.State, v.Tags)
		}
	}
}

// sameVolume returns a request for a volume like another one.
func (l *lab) sameVolume(root *ec2.Client, id string) *ec2.CreateVolumeInput {
	l.Helper()
	found, err := root.DescribeVolumes(l.Context(), &ec2.DescribeVolumesInput{VolumeIds: []string{id}})
	l.check(err)
	v := found.Volumes[0]
	marks := []string{"slipway.dev/state", "slipway.dev/token", "slipway.dev/revision"} // apply adds them to one resource
	v.Tags = slices.DeleteFunc(v.Tags, func(t types.Tag) bool { return slices.Contains(marks, *t.Key) })

	return &ec2.CreateVolumeInput{
		AvailabilityZone:  v.AvailabilityZone,
		VolumeType:        v.VolumeType,
		Size:              v.Size,
		Iops:              v.Iops,
		Throughput:        v.Throughput,
		Encrypted:         v.Encrypted,
		KmsKeyId:          v.KmsKeyId,
		TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeVolume, Tags: v.Tags}},
	}
}

// loseVolume deletes the volume of a slot.
func (l *lab) loseVolume(root *ec2.Client, lost slot) {
	l.Helper()
	_, err := root.DetachVolume(l.Context(), &ec2.DetachVolumeInput{VolumeId: &lost.volume})
	if err != nil && !strings.Contains(err.Error(), "IncorrectState") {
		l.Fatal(err)
	}

	_, err = root.DeleteVolume(l.Context(), &ec2.DeleteVolumeInput{VolumeId: &lost.volume})
	l.check(err)
	gone := ec2.NewVolumeDeletedWaiter(root, func(o *ec2.VolumeDeletedWaiterOptions) {
		o.MinDelay = 100 * time.Millisecond
	})
	l.check(gone.Wait(l.Context(), &ec2.DescribeVolumesInput{VolumeIds: []string{lost.volume}}, time.Minute))
}
