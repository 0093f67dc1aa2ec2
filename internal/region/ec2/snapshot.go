// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"slices"
	"strconv"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// snapshotHandlers serves snapshots. They have no data, and no volume can be created from them.
type snapshotHandlers struct{ *Service }

func (s snapshotHandlers) ops() []wire.Operation {
	return []wire.Operation{
		writeOperation(s.Service, "CreateSnapshot", s.createSnapshot),
		writeOperation(s.Service, "DeleteSnapshot", s.deleteSnapshot),
		readOperation(s.Service, "DescribeSnapshots", s.describeSnapshots),
	}
}

func (s snapshotHandlers) createSnapshot(in *sdk.CreateSnapshotInput) (*sdk.Snapshot, error) {
	v, err := s.st.findVolume(in.VolumeId)
	if err != nil {
		return nil, err
	}

	tags, err := parseTagSpecs(in.TagSpecifications, "snapshot")
	if err != nil {
		return nil, err
	}

	n := &sdk.Snapshot{
		SnapshotId:  new(s.newID(snapshotPrefix)),
		VolumeId:    v.VolumeId,
		VolumeSize:  v.Size,
		Encrypted:   v.Encrypted,
		KmsKeyId:    v.KmsKeyId,
		Description: new(str(in.Description)),
		OwnerId:     new(s.cfg.Account),
		Progress:    new(""),
		StartTime:   new(s.cfg.Now().UTC()),
		State:       new(sdk.SnapshotStatePending),
		StorageTier: new(sdk.StorageTierStandard),
	}

	id := str(n.SnapshotId)
	s.st.Snapshots[id] = n
	s.st.setTags(id, tags)
	n.Tags = s.st.tagList(id)
	s.scheduleTransition(transitionSnapshotCompleted, id)
	answer := *n

	return &answer, nil
}

// applySnapshotTransition completes a snapshot, unless it was deleted meanwhile.
func (s snapshotHandlers) applySnapshotTransition(t transition) {
	if n := s.st.Snapshots[t.ID]; n != nil {
		n.State = new(sdk.SnapshotStateCompleted)
		n.Progress = new("100%")
	}
}

func (s snapshotHandlers) deleteSnapshot(in *sdk.DeleteSnapshotInput) (*sdk.DeleteSnapshotOutput, error) {
	id := str(in.SnapshotId)
	if id == "" {
		return nil, missingParameter("snapshotId")
	}

	if s.st.Snapshots[id] == nil {
		return nil, newErrorf(codeInvalidSnapshotNotFound, "The snapshot '%s' does not exist.", id)
	}

	if image := s.st.imageOfSnapshot(id); image != "" {
		return nil, newErrorf(
			codeInvalidSnapshotInUse,
			"The snapshot %s is currently in use by %s",
			id,
			image,
		)
	}

	s.st.removeTags(id)
	delete(s.st.Snapshots, id)

	return &sdk.DeleteSnapshotOutput{}, nil
}

func (s snapshotHandlers) describeSnapshots(
	in *sdk.DescribeSnapshotsInput,
) (*sdk.DescribeSnapshotsOutput, error) {
	field := func(n *sdk.Snapshot, name string) ([]string, bool) {
		var size string
		if n.VolumeSize != nil {
			size = strconv.FormatInt(*n.VolumeSize, 10)
		}

		v, known := map[string]string{
			"snapshot-id":  str(n.SnapshotId),
			"volume-id":    str(n.VolumeId),
			"owner-id":     str(n.OwnerId),
			"status":       str(n.State),
			"description":  str(n.Description),
			"volume-size":  size,
			"encrypted":    boolText(n.Encrypted),
			"progress":     str(n.Progress),
			"storage-tier": str(n.StorageTier),
		}[name]

		return []string{v}, known
	}

	got, next, err := listResources(
		s.Service,
		s.st.Snapshots,
		describeQuery{in.SnapshotIds, in.Filters, in.MaxResults, in.NextToken},
		resourceLister[sdk.Snapshot]{codeInvalidSnapshotNotFound, "snapshot", field},
	)

	for _, n := range got {
		n.Tags = s.st.tagList(str(n.SnapshotId))
	}

	if owners := strs(in.OwnerIds); len(owners) > 0 && !slices.Contains(owners, "self") &&
		!slices.Contains(owners, s.cfg.Account) {
		got = []*sdk.Snapshot{} // the account owns all snapshots
	}

	return &sdk.DescribeSnapshotsOutput{Snapshots: got, NextToken: next}, err
}
