// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
)

// slot is what a control-plane slot of the cluster demo has in EC2.
type slot struct{ instance, volume string }

// slotOf returns the machine and the volume of a slot.
func (l *lab) slotOf(name string) slot {
	l.Helper()
	volumes, err := ec2.NewFromConfig(l.config(caller{})).DescribeVolumes(l.Context(), &ec2.DescribeVolumesInput{
		Filters: []types.Filter{
			{Name: sdk.String("tag:slipway.dev/cluster"), Values: []string{"demo"}},
			{Name: sdk.String("tag:slipway.dev/etcd-slot"), Values: []string{name}},
			{Name: sdk.String("tag:slipway.dev/address"), Values: []string{"volume/etcd-" + name}},
		},
	})
	l.check(err)
	if len(volumes.Volumes) != 1 {
		l.Fatalf("slot %s has %d volumes", name, len(volumes.Volumes))
	}

	return slot{
		instance: l.awaitInstance(autoscaling.NewFromConfig(l.config(caller{})), "control-plane-"+name+".demo"),
		volume:   *volumes.Volumes[0].VolumeId,
	}
}

// roleOfSlot returns the name of the role that the machines of a slot have.
func (l *lab) roleOfSlot(name string) string {
	l.Helper()
	instance := l.slotOf(name).instance
	found, err := ec2.NewFromConfig(l.config(caller{})).DescribeInstances(l.Context(), &ec2.DescribeInstancesInput{
		InstanceIds: []string{instance},
	})
	l.check(err)
	arn := *found.Reservations[0].Instances[0].IamInstanceProfile.Arn
	profile, err := iam.NewFromConfig(l.config(caller{})).GetInstanceProfile(l.Context(), &iam.GetInstanceProfileInput{
		InstanceProfileName: sdk.String(arn[strings.LastIndex(arn, "/")+1:]),
	})
	l.check(err)

	return *profile.InstanceProfile.Roles[0].RoleName
}

// TestVolumesOfOtherSlots: root on the machine of slot a attaches the volume of slot b, detaches it from its machine,
// and so stops another member of etcd or reads its data; or it makes itself a machine of slot b by a tag. Attaching
// and detaching were seen to succeed while all slots had one role.
func TestVolumesOfOtherSlots(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	own, other := l.slotOf("a"), l.slotOf("b")
	role := l.roleOfSlot("a")
	machine := l.assumed(role)
	attacker := ec2.NewFromConfig(l.config(machine))
	root := ec2.NewFromConfig(l.config(caller{}))
	attach := func(api *ec2.Client, volume, instance string) error {
		_, err := api.AttachVolume(t.Context(), &ec2.AttachVolumeInput{
			VolumeId: &volume, InstanceId: &instance, Device: sdk.String("/dev/xvdf"),
		})

		return err
	}
	detach := func(volume, instance string) error {
		_, err := attacker.DetachVolume(t.Context(), &ec2.DetachVolumeInput{VolumeId: &volume, InstanceId: &instance})
		return err
	}

	l.check(attach(attacker, own.volume, own.instance)) // what the agent does
	l.check(detach(own.volume, own.instance))           // when it hands over its slot
	l.denied("attach the volume of another slot", attach(attacker, other.volume, own.instance))
	l.denied("attach the volume of another slot to its machine", attach(attacker, other.volume, other.instance))
	if err := attach(root, other.volume, other.instance); err != nil && !strings.Contains(err.Error(), "VolumeInUse") {
		t.Fatal(err)
	}

	l.denied("detach the volume of another slot", detach(other.volume, other.instance))
	l.denied("attach the own volume to the machine of another slot", attach(attacker, own.volume, other.instance))
	l.tagOtherwise(machine, role, map[string]string{
		"the own volume": own.volume, "the volume of another slot": other.volume, "the own machine": own.instance,
	})
}

// tagOtherwise tries to become a machine of slot b by a tag, as a machine of slot a with a role.
func (l *lab) tagOtherwise(machine caller, role string, resources map[string]string) {
	l.Helper()
	attacker := ec2.NewFromConfig(l.config(machine))
	key, value := sdk.String("slipway.dev/etcd-slot"), sdk.String("b")
	for what, id := range resources {
		_, err := attacker.CreateTags(l.Context(), &ec2.CreateTagsInput{
			Resources: []string{id}, Tags: []types.Tag{{Key: key, Value: value}},
		})
		l.denied("tag "+what, err)
	}

	_, err := iam.NewFromConfig(l.config(machine)).TagRole(l.Context(), &iam.TagRoleInput{
		RoleName: &role, Tags: []iamtypes.Tag{{Key: key, Value: value}},
	})
	l.denied("tag the own role", err)
}
