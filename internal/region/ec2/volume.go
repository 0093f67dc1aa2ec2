// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"slices"
	"strconv"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

func (s *Service) volumeOps() []wire.Op {
	return []wire.Op{
		writeOperation(s, "CreateVolume", s.createVolume),
		writeOperation(s, "DeleteVolume", s.deleteVolume),
		readOperation(s, "DescribeVolumes", s.describeVolumes),
		writeOperation(s, "AttachVolume", s.attachVolume),
		writeOperation(s, "DetachVolume", s.detachVolume),
		writeOperation(s, "ModifyVolume", s.modifyVolume),
		readOperation(s, "DescribeVolumesModifications", s.describeVolumesModifications),
	}
}

// volumeLimits are a volume type's size in GiB, and its input/output operations a second where one may choose them.
type volumeLimits struct{ minGiB, maxGiB, iops, maxIOPS, throughput int64 }

func volumeTypeLimits(kind string) (volumeLimits, bool) {
	l, ok := map[string]volumeLimits{
		"gp3": {1, 16384, 3000, 16000, 125}, "gp2": {1, 16384, 0, 0, 0}, "io1": {4, 16384, 100, 64000, 0},
		"io2": {4, 65536, 100, 256000, 0}, "st1": {125, 16384, 0, 0, 0}, "sc1": {125, 16384, 0, 0, 0}, "standard": {1, 1024, 0, 0, 0},
	}[kind]

	return l, ok
}

// newVolume makes a record of a volume from a request's parameters.
func (s *Service) newVolume(zone string, e *sdk.EbsBlockDevice, fallback int64) (*sdk.Volume, error) {
	v := &sdk.Volume{
		AvailabilityZone:   new(zone),
		Size:               new(fallback),
		VolumeType:         new("gp2"),
		SnapshotId:         new(""),
		State:              new(sdk.VolumeStateCreating),
		CreateTime:         new(s.cfg.Now().UTC()),
		Encrypted:          new(isTrue(e.Encrypted)),
		MultiAttachEnabled: new(false),
		Attachments:        []*sdk.VolumeAttachment{},
		KmsKeyId:           e.KmsKeyId,
	}
	if str(e.VolumeType) != "" {
		v.VolumeType = e.VolumeType
	}

	if e.VolumeSize != nil {
		v.Size = e.VolumeSize
	}

	l, err := checkVolumeSize(v)
	if err != nil {
		return nil, err
	}

	switch {
	case e.SnapshotId != nil:
		return nil, wire.Errorf(
			"InvalidSnapshot.NotFound",
			"The snapshot '%s' does not exist.",
			*e.SnapshotId,
		)

	case e.KmsKeyId != nil && !*v.Encrypted:
		return nil, wire.Errorf(
			"InvalidParameterDependency",
			"The parameter KmsKeyId requires the parameter Encrypted to be set.",
		)

	case len(s.st.Volumes) >= s.cfg.Quotas.Volumes:
		return nil, wire.Errorf("VolumeLimitExceeded", "You have exceeded your maximum number of volumes.")
	}

	v.KmsKeyId = s.volumeKeyARN(v)
	if err := l.checkPerformance(v, e.Iops, e.Throughput); err != nil {
		return nil, err
	}

	l.setPerformance(v, e.Iops, e.Throughput)
	v.VolumeId = new(s.newID("vol"))

	return v, nil
}

// volumeKeyARN names the key of an encrypted volume as DescribeVolumes does: by its ARN, however it was asked for.
func (s *Service) volumeKeyARN(v *sdk.Volume) *string {
	key := str(v.KmsKeyId)
	switch {
	case !*v.Encrypted:
		return nil
	case key == "":
		key = "alias/aws/ebs"
	case strings.HasPrefix(key, "arn:"):
		return v.KmsKeyId
	case !strings.HasPrefix(key, "alias/"):
		key = "key/" + key
	}

	return new("arn:aws:kms:" + s.cfg.Region + ":" + s.cfg.Account + ":" + key)
}

// checkVolumeSize finds the limits of a volume's type and refuses a size outside them.
func checkVolumeSize(v *sdk.Volume) (volumeLimits, error) {
	l, ok := volumeTypeLimits(str(v.VolumeType))
	if !ok {
		return l, wire.Errorf(
			"UnknownVolumeType",
			"Unsupported volume type '%s' for volume creation.",
			str(v.VolumeType),
		)
	}

	if *v.Size < l.minGiB || *v.Size > l.maxGiB {
		return l, wire.Errorf(
			"InvalidParameterValue",
			"Volume of %dGiB is out of the bounds of volume type %s (%d-%dGiB)",
			*v.Size,
			str(v.VolumeType),
			l.minGiB,
			l.maxGiB,
		)
	}

	return l, nil
}

// checkPerformance refuses performance that the type does not have.
func (l volumeLimits) checkPerformance(v *sdk.Volume, iops, throughput *int64) error {
	switch {
	case iops != nil && l.maxIOPS == 0:
		return wire.Errorf(
			"InvalidParameterCombination",
			"The parameter iops is not supported for %s volumes.",
			str(v.VolumeType),
		)

	case throughput != nil && l.throughput == 0:
		return wire.Errorf(
			"InvalidParameterCombination",
			"The parameter throughput is not supported for %s volumes.",
			str(v.VolumeType),
		)

	case iops != nil && (*iops < l.iops || *iops > l.maxIOPS):
		return wire.Errorf(
			"InvalidParameterValue",
			"Volume iops of %d is out of bounds (%d-%d).",
			*iops,
			l.iops,
			l.maxIOPS,
		)

	case throughput != nil && (*throughput < 125 || *throughput > 1000):
		return wire.Errorf(
			"InvalidParameterValue",
			"Throughput of %d is out of bounds (125-1000).",
			*throughput,
		)
	}

	return nil
}

// setPerformance gives a volume the performance asked for, or its type's own.
func (l volumeLimits) setPerformance(v *sdk.Volume, iops, throughput *int64) {
	v.Iops = iops
	v.Throughput = throughput
	switch {
	case iops != nil:
	case l.maxIOPS > 0:
		v.Iops = new(l.iops)
	case str(v.VolumeType) == "gp2":
		v.Iops = new(min(max(*v.Size*3, 100), 16000))
	}

	if throughput == nil && l.throughput > 0 {
		v.Throughput = new(l.throughput)
	}
}

func (s *Service) createVolume(in *sdk.CreateVolumeInput) (*sdk.Volume, error) {
	if ids, err := s.idempotentResult("CreateVolume", in.ClientToken, in); err != nil {
		return nil, err
	} else if len(ids) == 1 && s.st.Volumes[ids[0]] != nil {
		return s.st.Volumes[ids[0]], nil
	}

	if str(in.AvailabilityZone) == "" {
		return nil, missingParameter("AvailabilityZone")
	}

	if !slices.Contains(s.zoneNames(), *in.AvailabilityZone) {
		return nil, wire.Errorf("InvalidZone.NotFound", "The zone '%s' does not exist.", *in.AvailabilityZone)
	}

	if in.Size == nil && in.SnapshotId == nil {
		return nil, missingParameter("size or snapshotId")
	}

	tags, err := parseTagSpecs(in.TagSpecifications, "volume")
	if err != nil {
		return nil, err
	}

	v, err := s.newVolume(*in.AvailabilityZone, &sdk.EbsBlockDevice{
		VolumeSize: in.Size,
		VolumeType: in.VolumeType,
		Encrypted:  in.Encrypted,
		KmsKeyId:   in.KmsKeyId,
		Iops:       in.Iops,
		Throughput: in.Throughput,
		SnapshotId: in.SnapshotId,
	}, 0)
	if err != nil {
		return nil, err
	}

	id := str(v.VolumeId)
	s.st.Volumes[id] = v
	s.setTags(id, tags)
	v.Tags = s.tagList(id)
	s.saveIdempotentResult("CreateVolume", in.ClientToken, in, id)
	s.beginCreateVolume(id)

	return v, nil
}

func (s *Service) findVolume(id *string) (*sdk.Volume, error) {
	if str(id) == "" {
		return nil, missingParameter("volumeId")
	}

	v := s.st.Volumes[str(id)]
	if v == nil {
		return nil, wire.Errorf("InvalidVolume.NotFound", "The volume '%s' does not exist.", str(id))
	}

	return v, nil
}

func (s *Service) deleteVolume(in *sdk.DeleteVolumeInput) (*sdk.DeleteVolumeOutput, error) {
	v, err := s.findVolume(in.VolumeId)
	if err != nil {
		return nil, err
	}

	switch st := str(v.State); st {
	case sdk.VolumeStateInUse:
		return nil, wire.Errorf(
			"VolumeInUse",
			"Volume %s is currently attached to %s",
			str(v.VolumeId),
			str(v.Attachments[0].InstanceId),
		)

	case sdk.VolumeStateAvailable, sdk.VolumeStateError:
	default:
		return nil, incorrectState("The volume '%s' is '%s'", str(v.VolumeId), st)
	}

	v.State = new(sdk.VolumeStateDeleting)
	s.beginDeleteVolume(str(v.VolumeId))

	return &sdk.DeleteVolumeOutput{}, nil
}

// checkAttachable says why a volume cannot be attached as wanted.
func (s *Service) checkAttachable(v *sdk.Volume, i *sdk.Instance, device string, limit int64) error {
	id := str(v.VolumeId)
	switch {
	case device == "":
		return missingParameter("device")
	case str(v.State) == sdk.VolumeStateInUse:
		return wire.Errorf("VolumeInUse", "%s is already attached to an instance", id)
	case str(v.State) != sdk.VolumeStateAvailable:
		return incorrectState("Volume '%s' is in the '%s' state.", id, str(v.State))
	case str(i.State.Name) != sdk.InstanceStateNameRunning && str(i.State.Name) != sdk.InstanceStateNameStopped:
		return incorrectState("Instance '%s' is not 'running'.", str(i.InstanceId))
	case str(v.AvailabilityZone) != str(i.Placement.AvailabilityZone):
		return wire.Errorf(
			"InvalidVolume.ZoneMismatch",
			"The volume '%s' is not in the same availability zone as instance '%s'",
			id,
			str(i.InstanceId),
		)
	}

	if !strings.HasPrefix(device, "/dev/sd") && !strings.HasPrefix(device, "/dev/xvd") {
		return wire.Errorf(
			"InvalidParameterValue",
			"Value (%s) for parameter device is invalid. %s is not a valid EBS device name.",
			device,
			device,
		)
	}

	for _, m := range i.BlockDeviceMappings {
		if str(m.DeviceName) == device {
			return wire.Errorf(
				"InvalidParameterValue",
				"Invalid value '%s' for unixDevice. Attachment point %s is already in use",
				device,
				device,
			)
		}
	}

	if int64(len(i.BlockDeviceMappings)) >= limit {
		return wire.Errorf(
			"AttachmentLimitExceeded",
			"Instance %s has %d volumes, the most that its type takes",
			str(i.InstanceId),
			limit,
		)
	}

	return nil
}

func (s *Service) attachVolume(in *sdk.AttachVolumeInput) (*sdk.VolumeAttachment, error) {
	v, err := s.findVolume(in.VolumeId)
	if err != nil {
		return nil, err
	}

	i, err := s.findInstance(in.InstanceId)
	if err != nil {
		return nil, err
	}

	limit := s.instanceTypes[str(i.InstanceType)].MaxEBSVolumes
	if err := s.checkAttachable(v, i, str(in.Device), limit); err != nil {
		return nil, err
	}

	a := s.recordAttachment(v, i, str(in.Device), false)
	s.beginAttach(v, a)

	return a, nil
}

// recordAttachment records an attachment that is under way.
func (s *Service) recordAttachment(
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

// clearAttachments removes what tie recorded; the volume is available again.
func (s *Service) clearAttachments(v *sdk.Volume) {
	for _, a := range v.Attachments {
		if i := s.st.Instances[str(a.InstanceId)]; i != nil {
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

func (s *Service) detachVolume(in *sdk.DetachVolumeInput) (*sdk.VolumeAttachment, error) {
	v, err := s.findVolume(in.VolumeId)
	if err != nil {
		return nil, err
	}

	if len(v.Attachments) == 0 {
		return nil, incorrectState("Volume '%s' is in the '%s' state.", str(v.VolumeId), str(v.State))
	}

	a := v.Attachments[0]
	if in.InstanceId != nil && *in.InstanceId != str(a.InstanceId) {
		return nil, wire.Errorf(
			"InvalidAttachment.NotFound",
			"Volume '%s' is not attached to instance '%s'",
			str(v.VolumeId),
			*in.InstanceId,
		)
	}

	i := s.st.Instances[str(a.InstanceId)]
	if i != nil && str(i.RootDeviceName) == str(a.Device) &&
		str(i.State.Name) != sdk.InstanceStateNameStopped {
		return nil, wire.Errorf(
			"OperationNotPermitted",
			"'%s' is the root device of a running instance",
			str(v.VolumeId),
		)
	}

	if str(a.State) != sdk.VolumeAttachmentStateDetaching {
		a.State = new(sdk.VolumeAttachmentStateDetaching)
		s.beginDetach(v, a)
	}

	return a, nil
}

// volumeFilterValues gives the values that a filter looks at.
func volumeFilterValues(v *sdk.Volume, name string) ([]string, bool) {
	var instance, status, device, del []string
	for _, a := range v.Attachments {
		instance = append(instance, str(a.InstanceId))
		status = append(status, str(a.State))
		device = append(device, str(a.Device))
		del = append(del, boolText(a.DeleteOnTermination))
	}

	size := int64(0)
	if v.Size != nil {
		size = *v.Size
	}

	out, known := map[string][]string{
		"volume-id": {str(v.VolumeId)}, "status": {str(v.State)}, "availability-zone": {str(v.AvailabilityZone)},
		"encrypted": {boolText(v.Encrypted)}, "volume-type": {str(v.VolumeType)}, "size": {strconv.FormatInt(size, 10)},
		"snapshot-id": {str(v.SnapshotId)}, "attachment.instance-id": instance, "attachment.status": status,
		"attachment.device": device, "attachment.delete-on-termination": del,
	}[name]

	return out, known
}

func (s *Service) describeVolumes(in *sdk.DescribeVolumesInput) (*sdk.DescribeVolumesOutput, error) {
	got, next, err := listResources(
		s,
		s.st.Volumes,
		describeQuery{in.VolumeIds, in.Filters, in.MaxResults, in.NextToken},
		resourceLister[sdk.Volume]{"InvalidVolume.NotFound", "volume", volumeFilterValues},
	)

	for _, v := range got {
		v.Tags = s.tagList(str(v.VolumeId))
	}

	return &sdk.DescribeVolumesOutput{Volumes: got, NextToken: next}, err
}

// modifyVolume changes a volume's type and performance, and lets it grow. The block device of a real volume keeps its
// size until it is attached again.
func (s *Service) modifyVolume(in *sdk.ModifyVolumeInput) (*sdk.ModifyVolumeOutput, error) {
	v, err := s.findVolume(in.VolumeId)
	if err != nil {
		return nil, err
	}

	after := *v
	if in.VolumeType != nil {
		after.VolumeType = in.VolumeType
	}

	if in.Size != nil {
		if *in.Size < *v.Size {
			return nil, wire.Errorf("InvalidParameterValue", "New size cannot be smaller than existing size")
		}

		after.Size = in.Size
	}

	l, err := checkVolumeSize(&after)
	if err != nil {
		return nil, err
	}

	iops := in.Iops
	throughput := in.Throughput
	if keeps := in.VolumeType == nil; keeps {
		iops, throughput = l.keepPerformance(v, iops, throughput)
	}

	if err := l.checkPerformance(&after, iops, throughput); err != nil {
		return nil, err
	}

	l.setPerformance(&after, iops, throughput)
	m := volumeModification(v, &after)
	*v = after

	return &sdk.ModifyVolumeOutput{VolumeModification: m}, nil
}

// keepPerformance fills in a volume's present performance where a change does not name it.
func (l volumeLimits) keepPerformance(
	v *sdk.Volume,
	iops, throughput *int64,
) (newIOPS, newThroughput *int64) {
	if iops == nil && l.maxIOPS > 0 {
		iops = v.Iops
	}

	if throughput == nil && l.throughput > 0 {
		throughput = v.Throughput
	}

	return iops, throughput
}

func volumeModification(v, after *sdk.Volume) *sdk.VolumeModification {
	return &sdk.VolumeModification{
		VolumeId:           v.VolumeId,
		ModificationState:  new(sdk.VolumeModificationStateCompleted),
		Progress:           new(int64(100)),
		OriginalSize:       v.Size,
		OriginalVolumeType: v.VolumeType,
		OriginalIops:       v.Iops,
		OriginalThroughput: v.Throughput,
		TargetSize:         after.Size,
		TargetVolumeType:   after.VolumeType,
		TargetIops:         after.Iops,
		TargetThroughput:   after.Throughput,
		StartTime:          v.CreateTime,
		EndTime:            v.CreateTime,
	}
}

// describeVolumesModifications shows every volume asked for as modified: changes take no time here.
func (s *Service) describeVolumesModifications(
	in *sdk.DescribeVolumesModificationsInput,
) (*sdk.DescribeVolumesModificationsOutput, error) {
	out := &sdk.DescribeVolumesModificationsOutput{}
	for _, id := range in.VolumeIds {
		v, err := s.findVolume(id)
		if err != nil {
			return nil, err
		}

		out.VolumesModifications = append(out.VolumesModifications, volumeModification(v, v))
	}

	return out, nil
}
