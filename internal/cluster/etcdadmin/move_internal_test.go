// SPDX-License-Identifier: Apache-2.0

package etcdadmin

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
)

// twoZones is EC2 with a volume and a machine in each of two zones.
type twoZones struct {
	volumes    []ec2types.Volume
	instances  []ec2types.Instance
	terminated []string
	refusal    error

	staleLists int                       // how many lists do not see what was changed before
	former     map[string][]ec2types.Tag // what they see of a volume
}

// DescribeVolumes knows the filters for tags.
func (z *twoZones) DescribeVolumes(_ context.Context, in *ec2.DescribeVolumesInput, _ ...func(*ec2.Options)) (*ec2.DescribeVolumesOutput, error) {
	out := &ec2.DescribeVolumesOutput{}
	for _, v := range z.volumes {
		tags := v.Tags
		if kept, changed := z.former[*v.VolumeId]; changed && z.staleLists > 0 {
			tags = kept
		}
		matches := func(f ec2types.Filter) bool {
			return slices.ContainsFunc(tags, func(t ec2types.Tag) bool { return "tag:"+*t.Key == *f.Name && *t.Value == f.Values[0] })
		}
		if !slices.ContainsFunc(in.Filters, func(f ec2types.Filter) bool { return !matches(f) }) {
			out.Volumes = append(out.Volumes, v)
		}
	}

	z.staleLists--

	return out, nil
}

// keepTags makes the next lists see the present tags of a volume.
func (z *twoZones) keepTags(v ec2types.Volume) {
	if z.former == nil {
		z.former = map[string][]ec2types.Tag{}
	}
	if _, kept := z.former[*v.VolumeId]; !kept {
		z.former[*v.VolumeId] = slices.Clone(v.Tags)
	}
}

func (z *twoZones) CreateTags(_ context.Context, in *ec2.CreateTagsInput, _ ...func(*ec2.Options)) (*ec2.CreateTagsOutput, error) {
	for i := range z.volumes {
		if *z.volumes[i].VolumeId == in.Resources[0] {
			z.keepTags(z.volumes[i])
			z.volumes[i].Tags = append(z.volumes[i].Tags, in.Tags...)
		}
	}

	return &ec2.CreateTagsOutput{}, nil
}

func (z *twoZones) DeleteTags(_ context.Context, in *ec2.DeleteTagsInput, _ ...func(*ec2.Options)) (*ec2.DeleteTagsOutput, error) {
	for i := range z.volumes {
		if *z.volumes[i].VolumeId != in.Resources[0] {
			continue
		}

		z.volumes[i].Tags = slices.DeleteFunc(z.volumes[i].Tags, func(t ec2types.Tag) bool {
			return slices.ContainsFunc(in.Tags, func(d ec2types.Tag) bool { return *d.Key == *t.Key })
		})
	}

	return &ec2.DeleteTagsOutput{}, nil
}

func (z *twoZones) DescribeInstances(context.Context, *ec2.DescribeInstancesInput, ...func(*ec2.Options)) (*ec2.DescribeInstancesOutput, error) {
	return &ec2.DescribeInstancesOutput{Reservations: []ec2types.Reservation{{Instances: z.instances}}}, nil
}

func (z *twoZones) TerminateInstances(_ context.Context, in *ec2.TerminateInstancesInput, _ ...func(*ec2.Options)) (*ec2.TerminateInstancesOutput, error) {
	z.terminated = append(z.terminated, in.InstanceIds...)
	if z.refusal != nil {
		return nil, z.refusal
	}

	return &ec2.TerminateInstancesOutput{}, nil
}

func (z *twoZones) addVolume(id, zone string, state ec2types.VolumeState) {
	z.volumes = append(z.volumes, ec2types.Volume{
		VolumeId:         &id,
		AvailabilityZone: &zone,
		State:            state,
		Tags: []ec2types.Tag{
			{Key: aws.String(awskind.TagSlot), Value: aws.String("a")},
			{Key: aws.String(awskind.TagAddress), Value: aws.String("volume/etcd-a")},
		},
	})
}

func (z *twoZones) addMachine(id, zone string, state ec2types.InstanceStateName) {
	z.instances = append(z.instances, ec2types.Instance{
		InstanceId: &id,
		Placement:  &ec2types.Placement{AvailabilityZone: aws.String(zone)},
		State:      &ec2types.InstanceState{Name: state},
	})
}

// TestReadMove: what is in another zone is set aside and ended, and what has ended is left out.
func TestReadMove(t *testing.T) {
	z := &twoZones{}
	z.addVolume("vol-old", "us-east-1a", ec2types.VolumeStateInUse)
	z.addVolume("vol-gone", "us-east-1a", ec2types.VolumeStateDeleting)
	z.addVolume("vol-new", "us-east-1b", ec2types.VolumeStateAvailable)
	z.addMachine("i-old", "us-east-1a", ec2types.InstanceStateNameRunning)
	z.addMachine("i-ended", "us-east-1a", ec2types.InstanceStateNameTerminated)
	z.addMachine("i-new", "us-east-1b", ec2types.InstanceStateNamePending)
	p := MovePlan{Cluster: "demo", Slot: "a", Zone: "us-east-1b"}
	present, err := mover{ec2: z, slot: "a", zone: p.Zone}.read(t.Context(), &p)
	want := MovePlan{
		Cluster:    "demo",
		Slot:       "a",
		Zone:       "us-east-1b",
		Volume:     "vol-old",
		VolumeZone: "us-east-1a",
		Machines:   []string{"i-old"},
	}

	if diff := cmp.Diff(want, p); diff != "" || present != "vol-new" || err != nil {
		t.Errorf("%s, %s, %v", diff, present, err)
	}
}

// TestMoveIsDone: a command that was killed at any step continues.
func TestMoveIsDone(t *testing.T) {
	for name, c := range map[string]struct {
		plan            MovePlan
		present, joined string
		want            bool
	}{
		"nothing was done":           {MovePlan{Volume: "vol-old", Machines: []string{"i-old"}}, "", "vol-old", false},
		"the volume was set aside":   {MovePlan{Machines: []string{"i-old"}}, "", "vol-old", false},
		"the manifests were applied": {MovePlan{Machines: []string{"i-old"}}, "vol-new", "vol-old", false},
		"the machine has ended":      {MovePlan{}, "vol-new", "vol-old", false},
		"the data was restored":      {MovePlan{}, "vol-new", "vol-new", true},
		"no data yet":                {MovePlan{}, "vol-new", "", true},
	} {
		if have := c.plan.isDone(c.present, c.joined); have != c.want {
			t.Errorf("%s: done is %v", name, have)
		}
	}
}

// TestMoveOfALostZoneIsDone: after a move with --zone-is-down, EC2 shows the machine of the zone as one that is ending until the zone is
// back. A second run took it for one to move from: it stopped the API server of the new machine for a last backup, and waited.
func TestMoveOfALostZoneIsDone(t *testing.T) {
	for state, want := range map[ec2types.InstanceStateName]bool{
		ec2types.InstanceStateNameShuttingDown: true,
		ec2types.InstanceStateNameRunning:      false,
	} {
		z := &twoZones{}
		z.addVolume("vol-new", "us-east-1b", ec2types.VolumeStateInUse)
		z.addMachine("i-old", "us-east-1a", state)
		z.addMachine("i-new", "us-east-1b", ec2types.InstanceStateNameRunning)
		p := MovePlan{Cluster: "demo", Slot: "a", Zone: "us-east-1b"}
		present, err := mover{ec2: z, slot: "a", zone: p.Zone}.read(t.Context(), &p)
		if err != nil {
			t.Fatal(err)
		}

		if have := p.isDone(present, "vol-new"); have != want {
			t.Errorf("the former machine is %s, the data was restored: done is %t", state, have)
		}

		if p.isDone(present, "vol-old") {
			t.Errorf("the former machine is %s, the data was not restored: done", state)
		}
	}
}

// TestEndMachines: the backup is restored when the machine in the former zone has ended, or when its zone is said to be down.
func TestEndMachines(t *testing.T) {
	z := &twoZones{}
	m := mover{ec2: z, zone: "us-east-1b"}
	z.addMachine("i-old", "us-east-1a", ec2types.InstanceStateNameShuttingDown)
	if waits, err := m.endMachines(t.Context(), false); waits != "machine i-old has not ended yet" || err != nil {
		t.Error(waits, err)
	}

	if waits, err := m.endMachines(t.Context(), true); waits != "no machine runs in zone us-east-1b yet" || err != nil {
		t.Error(waits, err)
	}

	z.addMachine("i-new", "us-east-1b", ec2types.InstanceStateNameRunning)
	z.refusal = errors.New("not permitted")
	for _, lost := range []bool{false, true} {
		if _, err := m.endMachines(t.Context(), lost); err == nil || !strings.Contains(err.Error(), "terminate machine i-old: not permitted") {
			t.Error(err)
		}
	}

	z.refusal = &smithy.GenericAPIError{Code: "InvalidInstanceID.NotFound"}
	if waits, err := m.endMachines(t.Context(), true); waits != "" || err != nil {
		t.Error(waits, err)
	}

	z.refusal = nil
	z.instances[0].State.Name = ec2types.InstanceStateNameTerminated
	z.terminated = nil
	if waits, err := m.endMachines(t.Context(), false); waits != "" || err != nil || z.terminated != nil {
		t.Error(waits, err, z.terminated)
	}
}

// TestReadSeveralVolumes: it cannot be known which of several volumes has the data, so all of them are named.
func TestReadSeveralVolumes(t *testing.T) {
	z := &twoZones{}
	z.addVolume("vol-2", "us-east-1c", ec2types.VolumeStateAvailable)
	z.addVolume("vol-1", "us-east-1a", ec2types.VolumeStateInUse)
	p := MovePlan{Cluster: "demo", Slot: "a", Zone: "us-east-1b"}
	_, err := mover{ec2: z, slot: "a", zone: p.Zone}.read(t.Context(), &p)
	want := "slot a of cluster demo has several volumes: vol-1 in us-east-1a, vol-2 in us-east-1c"
	if err == nil || err.Error() != want {
		t.Error(err)
	}
}

// TestSetAside: a volume is the slot's or set aside at each moment, is found again when it was set aside, and gets the tags that it
// had, unless the slot has another volume.
func TestSetAside(t *testing.T) {
	z := &twoZones{}
	z.addVolume("vol-old", "us-east-1a", ec2types.VolumeStateInUse)
	m := mover{ec2: z, slot: "a", zone: "us-east-1b"}
	before := slices.Clone(z.volumes[0].Tags)
	if err := m.setAside(t.Context(), "vol-old"); err != nil {
		t.Fatal(err)
	}

	p := MovePlan{Cluster: "demo", Slot: "a", Zone: "us-east-1b"}
	if present, err := m.read(t.Context(), &p); present != "" || p.Volume != "" || err != nil {
		t.Fatalf("%+v, %s, %v", p, present, err)
	}

	if err := m.readAside(t.Context(), "vol-other", &p); p.Aside || err != nil {
		t.Fatalf("%+v, %v", p, err)
	}

	if err := m.readAside(t.Context(), "vol-old", &p); p.Volume != "vol-old" || p.VolumeZone != "us-east-1a" || !p.Aside || err != nil {
		t.Fatalf("%+v, %v", p, err)
	}

	z.addVolume("vol-new", "us-east-1b", ec2types.VolumeStateAvailable)
	if given, err := m.giveBack(t.Context(), "vol-old"); given || err != nil {
		t.Fatal(given, err)
	}

	z.volumes[1].State = ec2types.VolumeStateDeleting
	if given, err := m.giveBack(t.Context(), "vol-old"); !given || err != nil {
		t.Fatal(given, err)
	}

	byKey := cmpopts.SortSlices(func(a, b ec2types.Tag) bool { return *a.Key < *b.Key })
	if diff := cmp.Diff(before, z.volumes[0].Tags, byKey, cmpopts.IgnoreUnexported(ec2types.Tag{})); diff != "" {
		t.Error(diff)
	}
}

// TestSetAsideWaitsForEC2: EC2 shows new tags after a while. A machine that starts before would find the volume by its former tags.
func TestSetAsideWaitsForEC2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := &twoZones{staleLists: 5}
		z.addVolume("vol-old", "us-east-1a", ec2types.VolumeStateInUse)
		m := mover{ec2: z, slot: "a", zone: "us-east-1b"}
		if err := m.setAside(t.Context(), "vol-old"); err != nil {
			t.Fatal(err)
		}
		if found, err := m.listVolumes(t.Context(), m.inSlot()); err != nil || len(found) != 0 {
			t.Errorf("after the volume was set aside, machines still find %d, %v", len(found), err)
		}
	})
}

// TestSetAsideEnds: a volume that EC2 continues to show with its former tags is an error that says so.
func TestSetAsideEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := &twoZones{staleLists: 1 << 30}
		z.addVolume("vol-old", "us-east-1a", ec2types.VolumeStateInUse)
		err := mover{ec2: z, slot: "a", zone: "us-east-1b"}.setAside(t.Context(), "vol-old")
		if err == nil || !strings.Contains(err.Error(), "set volume vol-old aside: EC2 still lists it with the tag "+awskind.TagSlot) {
			t.Errorf("%v", err)
		}
	})
}
