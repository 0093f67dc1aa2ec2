// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"crypto/md5"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

func (s *Service) imageOps() []wire.Op {
	return []wire.Op{
		readOperation(s, "DescribeImages", s.describeImages),
	}
}

func (s *Service) keyPairOps() []wire.Op {
	return []wire.Op{
		writeOperation(s, "CreateKeyPair", s.createKeyPair),
		writeOperation(s, "ImportKeyPair", s.importKeyPair),
		writeOperation(s, "DeleteKeyPair", s.deleteKeyPair),
		readOperation(s, "DescribeKeyPairs", s.describeKeyPairs),
	}
}

func (s *Service) findImage(id string) (Image, bool) {
	at := slices.IndexFunc(s.cfg.Images, func(i Image) bool { return i.ID == id })
	if at < 0 {
		return Image{}, false
	}

	return s.cfg.Images[at], true
}

func (s *Service) buildImage(i Image) *sdk.Image {
	return &sdk.Image{
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
}

func imageFilterValues(i *sdk.Image, name string) ([]string, bool) {
	v, known := map[string]*string{
		"image-id": i.ImageId, "name": i.Name, "description": i.Description, "owner-id": i.OwnerId, "architecture": i.Architecture,
		"state": i.State, "root-device-type": i.RootDeviceType, "root-device-name": i.RootDeviceName, "image-type": i.ImageType,
		"virtualization-type": i.VirtualizationType, "hypervisor": i.Hypervisor, "is-public": new(boolText(i.Public)),
		"boot-mode": i.BootMode, "creation-date": i.CreationDate, "ena-support": new(boolText(i.EnaSupport)), "owner-alias": nil,
	}[name]

	return []string{str(v)}, known
}

func (s *Service) describeImages(in *sdk.DescribeImagesInput) (*sdk.DescribeImagesOutput, error) {
	all := map[string]*sdk.Image{}
	for _, i := range s.cfg.Images {
		all[i.ID] = s.buildImage(i)
	}

	owners := strs(in.Owners)
	got, next, err := listResources(
		s,
		all,
		describeQuery{in.ImageIds, in.Filters, in.MaxResults, in.NextToken},
		resourceLister[sdk.Image]{"InvalidAMIID.NotFound", "image id", imageFilterValues},
	)

	got = slices.DeleteFunc(got, func(i *sdk.Image) bool {
		mine := str(i.OwnerId) == s.cfg.Account && slices.Contains(owners, "self")
		return len(owners) > 0 && !mine && !slices.Contains(owners, str(i.OwnerId))
	})

	for _, i := range got {
		i.Tags = s.tagList(str(i.ImageId))
	}

	return &sdk.DescribeImagesOutput{Images: got, NextToken: next}, err
}

// createKeyPair refuses: the region would have to make and hand out a private key, and machines have no SSH server.
func (s *Service) createKeyPair(*sdk.CreateKeyPairInput) (*sdk.CreateKeyPairOutput, error) {
	return nil, wire.Errorf("UnsupportedOperation", "This region makes no private keys: use ImportKeyPair")
}

func (s *Service) importKeyPair(in *sdk.ImportKeyPairInput) (*sdk.ImportKeyPairOutput, error) {
	name := str(in.KeyName)
	if name == "" {
		return nil, missingParameter("KeyName")
	}

	fields := strings.Fields(string(in.PublicKeyMaterial))
	if len(fields) < 2 {
		return nil, wire.Errorf("InvalidKey.Format", "Key is not in valid OpenSSH public key format")
	}

	raw, err := base64.StdEncoding.DecodeString(fields[1])
	if err != nil {
		return nil, wire.Errorf("InvalidKey.Format", "Key is not in valid OpenSSH public key format")
	}

	tags, err := parseTagSpecs(in.TagSpecifications, "key-pair")
	if err != nil {
		return nil, err
	}

	if s.findKeyPairID(name) != "" {
		return nil, wire.Errorf("InvalidKeyPair.Duplicate", "The keypair '%s' already exists.", name)
	}

	sum := md5.Sum(raw)
	finger := strings.ReplaceAll(fmt.Sprintf("% x", sum[:]), " ", ":")
	id := s.newID("key")
	s.st.Keys[id] = &sdk.KeyPairInfo{
		KeyPairId:      new(id),
		KeyName:        new(name),
		KeyFingerprint: new(finger),
		KeyType:        new(strings.TrimPrefix(fields[0], "ssh-")),
		CreateTime:     new(s.cfg.Now().UTC()),
		PublicKey:      new(string(in.PublicKeyMaterial)),
	}

	s.setTags(id, tags)

	return &sdk.ImportKeyPairOutput{
		KeyPairId:      new(id),
		KeyName:        new(name),
		KeyFingerprint: new(finger),
		Tags:           s.tagList(id),
	}, nil
}

// deleteKeyPair succeeds for a key that is not there, as at AWS.
func (s *Service) deleteKeyPair(in *sdk.DeleteKeyPairInput) (*sdk.DeleteKeyPairOutput, error) {
	for id, k := range s.st.Keys {
		if id == str(in.KeyPairId) || str(k.KeyName) == str(in.KeyName) {
			s.removeTags(id)
			delete(s.st.Keys, id)
			return &sdk.DeleteKeyPairOutput{Return: new(true), KeyPairId: new(id)}, nil
		}
	}

	return &sdk.DeleteKeyPairOutput{Return: new(true)}, nil
}

func (s *Service) describeKeyPairs(in *sdk.DescribeKeyPairsInput) (*sdk.DescribeKeyPairsOutput, error) {
	field := func(k *sdk.KeyPairInfo, name string) ([]string, bool) {
		v, known := map[string]*string{"key-name": k.KeyName, "key-pair-id": k.KeyPairId, "fingerprint": k.KeyFingerprint}[name]
		return []string{str(v)}, known
	}

	filters := slices.Clone(in.Filters)
	if len(in.KeyNames) > 0 {
		filters = append(filters, &sdk.Filter{Name: new("key-name"), Values: in.KeyNames})
	}

	got, _, err := listResources(s, s.st.Keys, describeQuery{ids: in.KeyPairIds, filters: filters},
		resourceLister[sdk.KeyPairInfo]{"InvalidKeyPair.NotFound", "key pair", field})

	for _, name := range strs(in.KeyNames) {
		if !slices.ContainsFunc(got, func(k *sdk.KeyPairInfo) bool { return str(k.KeyName) == name }) &&
			err == nil {
			err = wire.Errorf("InvalidKeyPair.NotFound", "The key pair '%s' does not exist", name)
		}
	}

	out := &sdk.DescribeKeyPairsOutput{}

	for _, k := range got {
		shown := sdkshape.CloneShape(k)
		shown.Tags = s.tagList(str(k.KeyPairId))
		if in.IncludePublicKey == nil || !*in.IncludePublicKey {
			shown.PublicKey = nil
		}

		out.KeyPairs = append(out.KeyPairs, shown)
	}

	return out, err
}
