// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"regexp"

	sdk "github.com/aws/aws-sdk-go/service/ec2"
)

// copiedImage is an image of the account: a copy, which has the content of its source.
type copiedImage struct {
	Image
	Source       string // id of the image that machines boot, which is none of the account's own
	Snapshot     string // id of the snapshot of its root volume
	Pending      bool   // while it is copied
	Deregistered bool   // no instance can be launched from it; those that exist keep it
}

// imageName is the form of the name of an AMI, by the API reference of CreateImage.
var imageName = regexp.MustCompile(`^[a-zA-Z0-9 ()\[\]./'@_-]{3,128}$`)

// findImage returns an image that instances can be launched from, or the error of EC2.
func (s *Service) findImage(id string) (Image, error) {
	if i, ok := s.cfg.findImage(id); ok {
		return i, nil
	}

	i := s.st.OwnImages[id]
	if i == nil {
		return Image{}, newErrorf(
			codeInvalidAMIIDNotFound,
			"The image id '[%s]' does not exist",
			id,
		)
	}

	if i.Pending || i.Deregistered {
		return Image{}, newImageUnavailableError(id)
	}

	return i.Image, nil
}

func newImageUnavailableError(id string) error {
	return newErrorf(codeInvalidAMIIDUnavailable, "The image ID '%s' is no longer available", id)
}

// bootedImage returns the id of the image whose root file system a machine gets.
func (st *serviceState) bootedImage(id string) string {
	if i := st.OwnImages[id]; i != nil {
		return i.Source
	}

	return id
}

// checkBootable returns the error of EC2 if no machine can boot from an image.
func (s *Service) checkBootable(id string) error {
	if s.cfg.Unbootable == nil {
		return nil
	}

	if reason := s.cfg.Unbootable(s.st.bootedImage(id)); reason != "" {
		return newErrorf(
			codeUnsupported,
			"The requested configuration is currently not supported. %s",
			reason,
		)
	}

	return nil
}

// copyImage copies an image of this region. The copy gets a snapshot of its own.
func (s imageHandlers) copyImage(in *sdk.CopyImageInput) (*sdk.CopyImageOutput, error) {
	if ids, err := s.idempotentResult("CopyImage", in.ClientToken, in); err != nil {
		return nil, err
	} else if len(ids) == 1 {
		return &sdk.CopyImageOutput{ImageId: new(ids[0])}, nil
	}

	source, err := s.checkCopy(in)
	if err != nil {
		return nil, err
	}

	imageTags, err := parseTagSpecs(in.TagSpecifications, "image", "snapshot")
	if err != nil {
		return nil, err
	}

	snapshotTags, err := parseTagSpecs(in.TagSpecifications, "snapshot", "image")
	if err != nil {
		return nil, err
	}

	copied := &copiedImage{Image: source, Source: s.st.bootedImage(source.ID), Pending: true}
	copied.ID = s.newID("ami")
	copied.Name = str(in.Name)
	copied.Owner = s.cfg.Account
	copied.Created = s.cfg.Now().UTC()
	copied.Description = str(in.Description)
	copied.Snapshot = s.addImageSnapshot(source, copied.ID, snapshotTags)

	s.st.OwnImages[copied.ID] = copied
	if isTrue(in.CopyImageTags) {
		s.st.setTags(copied.ID, s.st.Tags[source.ID])
	}

	s.st.setTags(copied.ID, imageTags)
	s.saveIdempotentResult("CopyImage", in.ClientToken, in, copied.ID)
	s.scheduleTransition(transitionImageAvailable, copied.ID)

	return &sdk.CopyImageOutput{ImageId: new(copied.ID)}, nil
}

// checkCopy checks a request to copy an image, and returns the image.
func (s imageHandlers) checkCopy(in *sdk.CopyImageInput) (Image, error) {
	name := str(in.Name)

	switch {
	case str(in.SourceImageId) == "":
		return Image{}, missingParameter("SourceImageId")
	case str(in.SourceRegion) == "":
		return Image{}, missingParameter("SourceRegion")
	case name == "":
		return Image{}, missingParameter("Name")
	case !imageName.MatchString(name):
		return Image{}, newError(codeInvalidAMINameMalformed)
	case in.KmsKeyId != nil && !isTrue(in.Encrypted):
		return Image{}, newErrorf(
			codeInvalidParameterDependency,
			"The parameter KmsKeyId requires the parameter Encrypted to be set.",
		)
	case isTrue(in.Encrypted), in.DestinationOutpostArn != nil, str(in.SourceRegion) != s.cfg.Region:
		return Image{}, newErrorf(
			codeUnsupportedOperation,
			"This region copies its own images only, and unencrypted: see Encrypted, DestinationOutpostArn and SourceRegion",
		)
	}

	for _, id := range sortedKeys(s.st.OwnImages) {
		if other := s.st.OwnImages[id]; other.Name == name && !other.Deregistered {
			return Image{}, newErrorf(
				codeInvalidAMINameDuplicate,
				"AMI name %s is already in use by AMI %s",
				name,
				id,
			)
		}
	}

	return s.findImage(*in.SourceImageId)
}

// addImageSnapshot adds the snapshot of a copy's root volume and returns its id.
func (s imageHandlers) addImageSnapshot(source Image, copied string, tags map[string]string) string {
	id := s.newID(snapshotPrefix)
	s.st.Snapshots[id] = &sdk.Snapshot{
		SnapshotId:  new(id),
		VolumeId:    new("vol-ffffffff"), // what EC2 shows of a snapshot that no volume was the source of
		VolumeSize:  new(source.RootSizeGiB),
		Encrypted:   new(false),
		Description: new("Copied for DestinationAmi " + copied + " from SourceAmi " + source.ID),
		OwnerId:     new(s.cfg.Account),
		Progress:    new("100%"),
		StartTime:   new(s.cfg.Now().UTC()),
		State:       new(sdk.SnapshotStateCompleted),
		StorageTier: new(sdk.StorageTierStandard),
	}
	s.st.setTags(id, tags)

	return id
}

// imageOfSnapshot returns the id of the image that needs a snapshot, or "".
func (st *serviceState) imageOfSnapshot(snapshot string) string {
	for _, id := range sortedKeys(st.OwnImages) {
		if i := st.OwnImages[id]; i.Snapshot == snapshot && !i.Deregistered {
			return id
		}
	}

	return ""
}

// deregisterImage ends the use of a copy. Its snapshot remains, as in AWS.
func (s imageHandlers) deregisterImage(in *sdk.DeregisterImageInput) (*sdk.DeregisterImageOutput, error) {
	id := str(in.ImageId)
	if id == "" {
		return nil, missingParameter("ImageId")
	}

	i := s.st.OwnImages[id]
	if _, public := s.cfg.findImage(id); public {
		return nil, newErrorf(codeAuthFailure, "Not authorized for image:%s", id)
	} else if i == nil {
		return nil, newErrorf(codeInvalidAMIIDNotFound, "The image id '[%s]' does not exist", id)
	}

	if i.Deregistered {
		return nil, newImageUnavailableError(id)
	}

	i.Deregistered = true
	s.st.removeTags(id)

	return &sdk.DeregisterImageOutput{}, nil
}

// applyImageTransition ends the copying of an image.
func (s imageHandlers) applyImageTransition(t transition) {
	if i := s.st.OwnImages[t.ID]; i != nil {
		i.Pending = false
	}
}
