// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"slices"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// imageHandlers serves AMIs: public ones, which are given, and copies of the account.
type imageHandlers struct{ *Service }

func (s imageHandlers) ops() []wire.Operation {
	return []wire.Operation{
		writeOperation(s.Service, "CopyImage", s.copyImage),
		writeOperation(s.Service, "DeregisterImage", s.deregisterImage),
		readOperation(s.Service, "DescribeImages", s.describeImages),
	}
}

func (cfg *Config) findImage(id string) (Image, bool) {
	at := slices.IndexFunc(cfg.Images, func(i Image) bool { return i.ID == id })
	if at < 0 {
		return Image{}, false
	}

	return cfg.Images[at], true
}

func buildImage(i Image) *sdk.Image {
	out := &sdk.Image{
		ImageId:            new(i.ID),
		Name:               new(i.Name),
		Description:        new(i.Description),
		OwnerId:            new(i.Owner),
		Architecture:       new(i.Architecture),
		ImageLocation:      new(i.Owner + "/" + i.Name),
		ImageType:          new("machine"),
		Public:             new(true),
		State:              new(sdk.ImageStateAvailable),
		RootDeviceName:     new(i.RootDevice),
		RootDeviceType:     new("ebs"),
		VirtualizationType: new("hvm"),
		Hypervisor:         new("xen"),
		EnaSupport:         new(true),
		SriovNetSupport:    new("simple"),
		PlatformDetails:    new("Linux/UNIX"),
		UsageOperation:     new("RunInstances"),
		CreationDate:       new(i.Created.UTC().Format(time.RFC3339)),
		BootMode:           new("uefi-preferred"),
		ImdsSupport:        new("v2.0"),
		BlockDeviceMappings: []*sdk.BlockDeviceMapping{{
			DeviceName: new(i.RootDevice),
			Ebs: &sdk.EbsBlockDevice{
				DeleteOnTermination: new(true),
				VolumeSize:          new(i.RootSizeGiB),
				VolumeType:          new("gp3"),
				Encrypted:           new(false),
			},
		}},
	}
	if !i.Deprecated.IsZero() {
		out.DeprecationTime = new(i.Deprecated.UTC().Format(time.RFC3339))
	}

	return out
}

func buildCopiedImage(c *copiedImage) *sdk.Image {
	i := buildImage(c.Image)
	i.Public = new(false)
	i.BlockDeviceMappings[0].Ebs.SnapshotId = new(c.Snapshot)
	if c.Pending {
		i.State = new(sdk.ImageStatePending)
	}

	return i
}

func imageFilterValues(i *sdk.Image, name string) ([]string, bool) {
	v, known := map[string]*string{
		"image-id":            i.ImageId,
		"name":                i.Name,
		"description":         i.Description,
		"owner-id":            i.OwnerId,
		"architecture":        i.Architecture,
		"state":               i.State,
		"root-device-type":    i.RootDeviceType,
		"root-device-name":    i.RootDeviceName,
		"image-type":          i.ImageType,
		"virtualization-type": i.VirtualizationType,
		"hypervisor":          i.Hypervisor,
		"is-public":           new(boolText(i.Public)),
		"boot-mode":           i.BootMode,
		"creation-date":       i.CreationDate,
		"ena-support":         new(boolText(i.EnaSupport)),
		"owner-alias":         nil,
	}[name]

	return []string{str(v)}, known
}

// checkImagesExist refuses ids of images that do not exist, in EC2's words.
func checkImagesExist(ids []string, all map[string]*sdk.Image) error {
	for _, id := range ids {
		if !strings.HasPrefix(id, "ami-") {
			return newErrorf(
				codeInvalidAMIIDMalformed,
				"Invalid id: \"%s\" (expecting \"ami-...\")",
				id,
			)
		}
	}

	missing := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return all[id] != nil })
	switch len(missing) {
	case 0:
		return nil
	case 1:
		return newErrorf(codeInvalidAMIIDNotFound, "The image id '[%s]' does not exist", missing[0])
	default:
		return newErrorf(
			codeInvalidAMIIDNotFound,
			"The image ids '[%s]' do not exist",
			strings.Join(missing, ", "),
		)
	}
}

func (s imageHandlers) describeImages(in *sdk.DescribeImagesInput) (*sdk.DescribeImagesOutput, error) {
	all := map[string]*sdk.Image{}
	for _, i := range s.cfg.Images {
		all[i.ID] = buildImage(i)
	}

	for id, i := range s.st.OwnImages {
		if !i.Deregistered {
			all[id] = buildCopiedImage(i)
		} else if slices.Contains(strs(in.ImageIds), id) {
			return nil, newImageUnavailableError(id)
		}
	}

	if err := checkImagesExist(strs(in.ImageIds), all); err != nil {
		return nil, err
	}

	owners := strs(in.Owners)
	got, next, err := listResources(
		s.Service,
		all,
		describeQuery{in.ImageIds, in.Filters, in.MaxResults, in.NextToken},
		resourceLister[sdk.Image]{codeInvalidAMIIDNotFound, "image id", imageFilterValues},
	)

	got = slices.DeleteFunc(got, func(i *sdk.Image) bool {
		mine := str(i.OwnerId) == s.cfg.Account && slices.Contains(owners, "self")
		return len(owners) > 0 && !mine && !slices.Contains(owners, str(i.OwnerId))
	})

	got = slices.DeleteFunc(got, func(i *sdk.Image) bool { return s.omitsDeprecated(in, i) })
	for _, i := range got {
		i.Tags = s.st.tagList(str(i.ImageId))
	}

	return &sdk.DescribeImagesOutput{Images: got, NextToken: next}, err
}

// omitsDeprecated reports whether the answer leaves out an image because it is deprecated. Its owner sees it, and so does
// who names its id or asks for deprecated images. A filter of ids does not count.
func (s imageHandlers) omitsDeprecated(in *sdk.DescribeImagesInput, i *sdk.Image) bool {
	isNamed := slices.Contains(strs(in.ImageIds), str(i.ImageId))
	if i.DeprecationTime == nil || str(i.OwnerId) == s.cfg.Account || isNamed || isTrue(in.IncludeDeprecated) {
		return false
	}

	at, err := time.Parse(time.RFC3339, str(i.DeprecationTime))

	return err == nil && !s.cfg.Now().Before(at)
}
