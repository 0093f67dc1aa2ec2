// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"slices"
	"strconv"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// volumeHandlers serves EBS volumes.
type volumeHandlers struct{ *Service }

func (s volumeHandlers) ops() []wire.Operation {
	return []wire.Operation{
		writeOperation(s.Service, "CreateVolume", s.createVolume),
		writeOperation(s.Service, "DeleteVolume", s.deleteVolume),
		readOperation(s.Service, "DescribeVolumes", s.describeVolumes),
		readOperation(s.Service, "DescribeVolumeStatus", s.describeVolumeStatus),
		writeOperation(s.Service, "AttachVolume", s.attachVolume),
		writeOperation(s.Service, "DetachVolume", s.detachVolume),
		writeOperation(s.Service, "ModifyVolume", s.modifyVolume),
		readOperation(s.Service, "DescribeVolumesModifications", s.describeVolumesModifications),
	}
}

// newVolume returns a new volume in state creating, not yet in the state of the service. fallback is the size
// in GiB if the request has none.
func (s volumeHandlers) newVolume(zone string, e *sdk.EbsBlockDevice, fallback int64) (*sdk.Volume, error) {
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

	if e.SnapshotId != nil {
		return nil, s.st.refuseSnapshot(*e.SnapshotId)
	}

	l, err := checkVolumeSize(v)
	if err != nil {
		return nil, err
	}

	switch {
	case e.KmsKeyId != nil && !*v.Encrypted:
		return nil, newErrorf(
			codeInvalidParameterDependency,
			"The parameter KmsKeyId requires the parameter Encrypted to be set.",
		)

	case len(s.st.Volumes) >= s.cfg.Quotas.Volumes:
		return nil, newErrorf(
			codeVolumeLimitExceeded,
			"You have exceeded your maximum number of volumes.",
		)
	}

	v.KmsKeyId = s.cfg.volumeKeyARN(v)
	if err := l.checkPerformance(v, e.Iops, e.Throughput); err != nil {
		return nil, err
	}

	l.setPerformance(v, e.Iops, e.Throughput)
	v.VolumeId = new(s.newID("vol"))

	return v, nil
}

// refuseSnapshot returns the error for a volume of a snapshot: the region does not copy the data of snapshots.
func (st *serviceState) refuseSnapshot(id string) error {
	if st.Snapshots[id] == nil {
		return newErrorf(codeInvalidSnapshotNotFound, "The snapshot '%s' does not exist.", id)
	}

	return newErrorf(codeUnsupportedOperation, "This region does not create volumes from snapshots")
}

// checkVolumeRequest refuses a request without what each volume needs, and volumes for several machines at once, which the region
// does not have.
func (s volumeHandlers) checkVolumeRequest(in *sdk.CreateVolumeInput) error {
	switch {
	case in.Size == nil && in.SnapshotId == nil:
		return missingParameter("size/snapshot")
	case str(in.AvailabilityZone) == "":
		return missingParameter("AvailabilityZone")
	case !slices.Contains(s.cfg.zoneNames(), *in.AvailabilityZone):
		return newErrorf(
			codeInvalidZoneNotFound,
			"The zone '%s' does not exist.",
			*in.AvailabilityZone,
		)
	case isTrue(in.MultiAttachEnabled):
		return notImplemented("MultiAttachEnabled")
	}

	return nil
}

func (s volumeHandlers) createVolume(in *sdk.CreateVolumeInput) (*sdk.Volume, error) {
	if ids, err := s.idempotentResult("CreateVolume", in.ClientToken, in); err != nil {
		return nil, err
	} else if len(ids) == 1 {
		return s.findCreatedVolume(ids[0], in), nil
	}

	if err := s.checkVolumeRequest(in); err != nil {
		return nil, err
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
	s.st.setTags(id, tags)
	v.Tags = s.st.tagList(id)
	s.saveIdempotentResult("CreateVolume", in.ClientToken, in, id)
	s.beginCreateVolume(id)

	return v, nil
}

// findCreatedVolume returns the volume that an earlier request with the same token has created. EC2 does nothing further for
// such a request, also if the volume was deleted meanwhile.
func (s volumeHandlers) findCreatedVolume(id string, in *sdk.CreateVolumeInput) *sdk.Volume {
	if v := s.st.Volumes[id]; v != nil {
		return v
	}

	return &sdk.Volume{
		VolumeId:         &id,
		AvailabilityZone: in.AvailabilityZone,
		Size:             in.Size,
		VolumeType:       in.VolumeType,
		Encrypted:        in.Encrypted,
		State:            new(sdk.VolumeStateDeleted),
	}
}

func (st *serviceState) findVolume(id *string) (*sdk.Volume, error) {
	if str(id) == "" {
		return nil, missingParameter("volumeId")
	}

	v := st.Volumes[str(id)]
	if v == nil {
		return nil, newErrorf(codeInvalidVolumeNotFound, "The volume '%s' does not exist.", str(id))
	}

	return v, nil
}

func (s volumeHandlers) deleteVolume(in *sdk.DeleteVolumeInput) (*sdk.DeleteVolumeOutput, error) {
	v, err := s.st.findVolume(in.VolumeId)
	if err != nil {
		return nil, err
	}

	switch st := str(v.State); st {
	case sdk.VolumeStateInUse:
		return nil, newErrorf(
			codeVolumeInUse,
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

// volumeFilterValues returns the values of a volume that a filter looks at.
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
		"volume-id":                        {str(v.VolumeId)},
		"status":                           {str(v.State)},
		"availability-zone":                {str(v.AvailabilityZone)},
		"encrypted":                        {boolText(v.Encrypted)},
		"volume-type":                      {str(v.VolumeType)},
		"size":                             {strconv.FormatInt(size, 10)},
		"snapshot-id":                      {str(v.SnapshotId)},
		"attachment.instance-id":           instance,
		"attachment.status":                status,
		"attachment.device":                device,
		"attachment.delete-on-termination": del,
	}[name]

	return out, known
}

func (s volumeHandlers) describeVolumes(in *sdk.DescribeVolumesInput) (*sdk.DescribeVolumesOutput, error) {
	got, next, err := listResources(
		s.Service,
		s.st.Volumes,
		describeQuery{in.VolumeIds, in.Filters, in.MaxResults, in.NextToken},
		resourceLister[sdk.Volume]{codeInvalidVolumeNotFound, "volume", volumeFilterValues},
	)

	for _, v := range got {
		v.Tags = s.st.tagList(str(v.VolumeId))
	}

	return &sdk.DescribeVolumesOutput{Volumes: got, NextToken: next}, err
}
