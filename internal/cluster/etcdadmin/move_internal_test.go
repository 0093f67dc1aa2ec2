// SPDX-License-Identifier: Apache-2.0

package etcdadmin

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/machine/backup"
)

// twoZones is EC2 with a volume and a machine in each of two zones.
type twoZones struct {
	movedEC2
	volumes    []ec2types.Volume
	instances  []ec2types.Instance
	terminated []string
	refuses    bool
}

func (z *twoZones) DescribeVolumes(context.Context, *ec2.DescribeVolumesInput, ...func(*ec2.Options)) (*ec2.DescribeVolumesOutput, error) {
	return &ec2.DescribeVolumesOutput{Volumes: z.volumes}, nil
}

func (z *twoZones) DescribeInstances(context.Context, *ec2.DescribeInstancesInput, ...func(*ec2.Options)) (*ec2.DescribeInstancesOutput, error) {
	return &ec2.DescribeInstancesOutput{Reservations: []ec2types.Reservation{{Instances: z.instances}}}, nil
}

func (z *twoZones) TerminateInstances(_ context.Context, in *ec2.TerminateInstancesInput, _ ...func(*ec2.Options)) (*ec2.TerminateInstancesOutput, error) {
	z.terminated = append(z.terminated, in.InstanceIds...)
	if z.refuses {
		return nil, errors.New("the zone does not answer")
	}

	return &ec2.TerminateInstancesOutput{}, nil
}

func (z *twoZones) addVolume(id, zone string, state ec2types.VolumeState) {
	z.volumes = append(z.volumes, ec2types.Volume{VolumeId: &id, AvailabilityZone: &zone, State: state})
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
	present, err := mover{ec2: z, zone: p.Zone}.read(t.Context(), &p)
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
	z.refuses = true
	if waits, err := m.endMachines(t.Context(), true); waits != "" || err != nil {
		t.Error(waits, err)
	}

	if _, err := m.endMachines(t.Context(), false); err == nil || !strings.Contains(err.Error(), "terminate machine i-old: the zone does not answer") {
		t.Error(err)
	}

	z.refuses = false
	z.instances[0].State.Name = ec2types.InstanceStateNameTerminated
	z.terminated = nil
	if waits, err := m.endMachines(t.Context(), false); waits != "" || err != nil || z.terminated != nil {
		t.Error(waits, err, z.terminated)
	}
}

func TestNewestUsable(t *testing.T) {
	bad := &backup.Verification{Error: "damaged"}
	all := []backup.Backup{{}, {}, {Verification: bad}}
	all[1].ID = "second"
	if b := newestUsable(all); b == nil || b.ID != "second" {
		t.Errorf("%+v", b)
	}

	if b := newestUsable(all[2:]); b != nil {
		t.Errorf("%+v", b)
	}
}
