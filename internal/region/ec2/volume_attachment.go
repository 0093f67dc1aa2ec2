// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/ec2"
)

// checkAttachable refuses an attachment that EC2 refuses. limit is the number of volumes that the instance
// type supports.
func checkAttachable(v *sdk.Volume, i *sdk.Instance, device string, limit int64) error {
	id := str(v.VolumeId)
	switch {
	case device == "":
		return missingParameter("device")
	case str(v.State) == sdk.VolumeStateInUse:
		return newErrorf(codeVolumeInUse, "%s is already attached to an instance", id)
	case str(v.State) != sdk.VolumeStateAvailable:
		return incorrectState("Volume '%s' is in the '%s' state.", id, str(v.State))
	case str(i.State.Name) != sdk.InstanceStateNameRunning && str(i.State.Name) != sdk.InstanceStateNameStopped:
		return incorrectState("Instance '%s' is not 'running'.", str(i.InstanceId))
	case str(v.AvailabilityZone) != str(i.Placement.AvailabilityZone):
		return newErrorf(
			codeInvalidVolumeZoneMismatch,
			"The volume '%s' is not in the same availability zone as instance '%s'",
			id,
			str(i.InstanceId),
		)
	}

	if !strings.HasPrefix(device, "/dev/sd") && !strings.HasPrefix(device, "/dev/xvd") {
		return newErrorf(
			codeInvalidParameterValue,
			"Value (%s) for parameter device is invalid. %s is not a valid EBS device name.",
			device,
			device,
		)
	}

	for _, m := range i.BlockDeviceMappings {
		if str(m.DeviceName) == device {
			return newErrorf(
				codeInvalidParameterValue,
				"Invalid value '%s' for unixDevice. Attachment point %s is already in use",
				device,
				device,
			)
		}
	}

	if int64(len(i.BlockDeviceMappings)) >= limit {
		return newErrorf(
			codeAttachmentLimitExceeded,
			"Instance %s has %d volumes, the maximum of its type",
			str(i.InstanceId),
			limit,
		)
	}

	return nil
}

func (s volumeHandlers) attachVolume(in *sdk.AttachVolumeInput) (*sdk.VolumeAttachment, error) {
	v, err := s.st.findVolume(in.VolumeId)
	if err != nil {
		return nil, err
	}

	i, err := s.st.findInstance(in.InstanceId)
	if err != nil {
		return nil, err
	}

	limit := s.instanceTypes[str(i.InstanceType)].MaxEBSVolumes
	if err := checkAttachable(v, i, str(in.Device), limit); err != nil {
		return nil, err
	}

	a := s.recordAttachment(v, i, str(in.Device), false)
	s.beginAttach(v, a)

	return a, nil
}

// recordAttachment adds an attachment in state attaching. ephemeral deletes the volume with the instance.
func (s volumeHandlers) recordAttachment(
	v *sdk.Volume,
	i *sdk.Instance,
	device string,
	ephemeral bool,
) *sdk.VolumeAttachment {
	a := &sdk.VolumeAttachment{
		VolumeId:            v.VolumeId,
		InstanceId:          i.InstanceId,
		Device:              new(device),
		State:               new(sdk.VolumeAttachmentStateAttaching),
		AttachTime:          new(s.cfg.Now().UTC()),
		DeleteOnTermination: new(ephemeral),
	}

	v.State = new(sdk.VolumeStateInUse)
	v.Attachments = []*sdk.VolumeAttachment{a}
	i.BlockDeviceMappings = append(i.BlockDeviceMappings, &sdk.InstanceBlockDeviceMapping{
		DeviceName: new(device),
		Ebs: &sdk.EbsInstanceBlockDevice{
			VolumeId:            v.VolumeId,
			Status:              new(sdk.AttachmentStatusAttaching),
			AttachTime:          a.AttachTime,
			DeleteOnTermination: new(ephemeral),
		},
	})

	return a
}

// clearAttachments undoes recordAttachment; the volume is available again.
func (st *serviceState) clearAttachments(v *sdk.Volume) {
	for _, a := range v.Attachments {
		if i := st.Instances[str(a.InstanceId)]; i != nil {
			i.BlockDeviceMappings = slices.DeleteFunc(
				i.BlockDeviceMappings,
				func(m *sdk.InstanceBlockDeviceMapping) bool {
					return m.Ebs != nil && str(m.Ebs.VolumeId) == str(v.VolumeId)
				},
			)
		}
	}

	v.State = new(sdk.VolumeStateAvailable)
	v.Attachments = []*sdk.VolumeAttachment{}
}

func (s volumeHandlers) detachVolume(in *sdk.DetachVolumeInput) (*sdk.VolumeAttachment, error) {
	v, err := s.st.findVolume(in.VolumeId)
	if err != nil {
		return nil, err
	}

	if len(v.Attachments) == 0 {
		return nil, incorrectState("Volume '%s' is in the '%s' state.", str(v.VolumeId), str(v.State))
	}

	a := v.Attachments[0]
	if err := checkAttachment(in, a); err != nil {
		return nil, err
	}

	i := s.st.Instances[str(a.InstanceId)]
	if i != nil && str(i.RootDeviceName) == str(a.Device) &&
		str(i.State.Name) != sdk.InstanceStateNameStopped {
		return nil, newErrorf(
			codeOperationNotPermitted,
			"'%s' is the root device of a running instance",
			str(v.VolumeId),
		)
	}

	detaching := str(a.State) == sdk.VolumeAttachmentStateDetaching
	a.State = new(sdk.VolumeAttachmentStateDetaching)

	switch {
	case isTrue(in.Force) && s.cfg.Machines != nil:
		s.beginForceDetach(v, a)
	case !detaching:
		s.beginDetach(v, a)
	}

	return a, nil
}

// completeAttachments sets the attachments of a volume that are attaching to attached.
func (st *serviceState) completeAttachments(v *sdk.Volume) {
	for _, a := range v.Attachments {
		if str(a.State) != sdk.VolumeAttachmentStateAttaching {
			continue
		}

		a.State = new(sdk.VolumeAttachmentStateAttached)
		i := st.Instances[str(a.InstanceId)]
		if i == nil {
			continue
		}

		for _, m := range i.BlockDeviceMappings {
			if m.Ebs != nil && str(m.Ebs.VolumeId) == str(v.VolumeId) {
				m.Ebs.Status = new(sdk.AttachmentStatusAttached)
			}
		}
	}
}

// checkAttachment refuses a request that names another instance or device than that of the volume's attachment.
func checkAttachment(in *sdk.DetachVolumeInput, a *sdk.VolumeAttachment) error {
	switch {
	case in.InstanceId != nil && *in.InstanceId != str(a.InstanceId):
		return newErrorf(
			codeInvalidAttachmentNotFound,
			"Volume '%s' is not attached to instance '%s'",
			str(in.VolumeId),
			*in.InstanceId,
		)

	case in.Device != nil && *in.Device != str(a.Device):
		return newErrorf(
			codeInvalidAttachmentNotFound,
			"Volume '%s' is not attached as device '%s'",
			str(in.VolumeId),
			*in.Device,
		)
	}

	return nil
}
