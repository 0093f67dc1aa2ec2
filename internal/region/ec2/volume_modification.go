// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"context"
	"slices"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go/service/ec2"
)

// modifyVolume changes the type and the performance of a volume and lets it grow. A machine sees the new size once the
// modification is in the state optimizing; the file system on it keeps its size.
func (s volumeHandlers) modifyVolume(in *sdk.ModifyVolumeInput) (*sdk.ModifyVolumeOutput, error) {
	v, err := s.st.findVolume(in.VolumeId)
	if err != nil {
		return nil, err
	}

	if err := s.st.checkModifiable(v); err != nil {
		return nil, err
	}

	if err := s.checkModificationRate(str(v.VolumeId)); err != nil {
		return nil, err
	}

	after := *v
	if in.VolumeType != nil {
		after.VolumeType = in.VolumeType
	}

	if in.Size != nil {
		if *in.Size < *v.Size {
			return nil, newErrorf(
				codeInvalidParameterValue,
				"New size cannot be smaller than existing size",
			)
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
	m := s.newModification(v, &after)
	*v = after
	id := str(v.VolumeId)
	s.st.Modifications[id] = m
	s.st.ModificationTimes[id] = append(s.recentModifications(id), *m.StartTime)
	s.scheduleTransition(transitionVolumeOptimizing, id)
	answer := *m

	return &sdk.ModifyVolumeOutput{VolumeModification: &answer}, nil
}

// checkModifiable refuses to modify a volume that does not exist yet or any more, or whose last modification is not completed.
func (st *serviceState) checkModifiable(v *sdk.Volume) error {
	id := str(v.VolumeId)
	state := str(v.State)
	if state != sdk.VolumeStateAvailable && state != sdk.VolumeStateInUse {
		return incorrectState("Volume '%s' is in the '%s' state.", id, state)
	}

	m := st.Modifications[id]
	if m == nil {
		return nil
	}

	if state := str(m.ModificationState); state == sdk.VolumeModificationStateCompleted || state == sdk.VolumeModificationStateFailed {
		return nil
	}

	return newErrorf(
		codeIncorrectModificationState,
		"Volume %s cannot be modified in modification state %s",
		id,
		strings.ToUpper(str(m.ModificationState)),
	)
}

// How often a volume can be modified: so many times within a period that moves.
const (
	maxModifications   = 4
	modificationPeriod = 24 * time.Hour
)

// checkModificationRate refuses more than four modifications of a volume within 24 hours.
func (s volumeHandlers) checkModificationRate(id string) error {
	recent := s.recentModifications(id)
	if len(recent) < maxModifications {
		return nil
	}

	return newErrorf(
		codeVolumeModificationRateExceeded,
		"You've reached the maximum modification rate per volume limit. Volume %s can be modified again at %s.",
		id,
		recent[0].Add(modificationPeriod).Format(time.RFC3339),
	)
}

// recentModifications returns the starts of the modifications of a volume that count for its rate, the oldest first.
func (s volumeHandlers) recentModifications(id string) []time.Time {
	begin := s.cfg.Now().Add(-modificationPeriod)

	return slices.DeleteFunc(slices.Clone(s.st.ModificationTimes[id]), func(t time.Time) bool { return !t.After(begin) })
}

// newModification returns the modification of a volume, which has just begun. The volume shows the new values from now on.
func (s volumeHandlers) newModification(v, after *sdk.Volume) *sdk.VolumeModification {
	return &sdk.VolumeModification{
		VolumeId:           v.VolumeId,
		ModificationState:  new(sdk.VolumeModificationStateModifying),
		Progress:           new(int64(0)),
		OriginalSize:       v.Size,
		OriginalVolumeType: v.VolumeType,
		OriginalIops:       v.Iops,
		OriginalThroughput: v.Throughput,
		TargetSize:         after.Size,
		TargetVolumeType:   after.VolumeType,
		TargetIops:         after.Iops,
		TargetThroughput:   after.Throughput,
		StartTime:          new(s.cfg.Now().UTC()),
	}
}

// applyModificationTransition brings a modification into its next state.
func (s volumeHandlers) applyModificationTransition(t transition) {
	m := s.st.Modifications[t.ID]
	if m == nil {
		return
	}

	if t.Kind == transitionVolumeOptimizing {
		m.ModificationState = new(sdk.VolumeModificationStateOptimizing)
		m.Progress = new(int64(50))
		s.beginGrow(t.ID)

		return
	}

	if t.Arg != "" {
		m.ModificationState = new(sdk.VolumeModificationStateFailed)
		m.StatusMessage = new(t.Arg)

		return
	}

	m.ModificationState = new(sdk.VolumeModificationStateCompleted)
	m.Progress = new(int64(100))
	m.EndTime = new(s.cfg.Now().UTC())
}

// beginGrow lets the disk behind a modified volume grow to its new size.
func (s volumeHandlers) beginGrow(id string) {
	v := s.st.Volumes[id]
	if s.cfg.Machines == nil || v == nil {
		s.scheduleTransition(transitionVolumeModified, id)
		return
	}

	d := toVolumeSpec(v)
	s.enqueueJob(id, func(ctx context.Context) {
		s.completeJob(ctx, transitionVolumeModified, id, s.cfg.Machines.CreateVolume(ctx, d))
	})
}

// describeVolumesModifications shows the last modification of each requested volume, or of all volumes. A volume that was never
// modified has none.
func (s volumeHandlers) describeVolumesModifications(
	in *sdk.DescribeVolumesModificationsInput,
) (*sdk.DescribeVolumesModificationsOutput, error) {
	ids := slices.Compact(slices.Sorted(slices.Values(strs(in.VolumeIds))))
	for _, id := range ids {
		if _, err := s.st.findVolume(&id); err != nil {
			return nil, err
		}

		if s.st.Modifications[id] == nil {
			return nil, newErrorf(
				codeInvalidVolumeModificationNotFound,
				"Modification for volume '%s' does not exist.",
				id,
			)
		}
	}

	if len(ids) == 0 {
		ids = sortedKeys(s.st.Modifications)
	}

	page, next, err := paginateIDs(ids, describeQuery{maxResults: in.MaxResults, nextToken: in.NextToken})
	out := &sdk.DescribeVolumesModificationsOutput{NextToken: next}

	for _, id := range page {
		m := *s.st.Modifications[id]
		out.VolumesModifications = append(out.VolumesModifications, &m)
	}

	return out, err
}
