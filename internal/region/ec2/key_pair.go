// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// findKeyPairID returns the id of the key pair of a name, or "" if it does not exist.
func (st *serviceState) findKeyPairID(name string) string {
	for _, id := range sortedKeys(st.Keys) {
		if name != "" && str(st.Keys[id].KeyName) == name {
			return id
		}
	}

	return ""
}

// keyPairHandlers serves key pairs.
type keyPairHandlers struct{ *Service }

func (s keyPairHandlers) ops() []wire.Operation {
	return []wire.Operation{
		writeOperation(s.Service, "CreateKeyPair", s.createKeyPair),
		writeOperation(s.Service, "ImportKeyPair", s.importKeyPair),
		writeOperation(s.Service, "DeleteKeyPair", s.deleteKeyPair),
		readOperation(s.Service, "DescribeKeyPairs", s.describeKeyPairs),
	}
}

// publicKeyOf returns the public key of a key pair in the form of the metadata service, which has the name of the key pair
// as its comment; empty if there is no such key pair.
func (st *serviceState) publicKeyOf(name string) string {
	k := st.Keys[st.findKeyPairID(name)]
	if k == nil {
		return ""
	}

	fields := strings.Fields(str(k.PublicKey))

	return fields[0] + " " + fields[1] + " " + name
}

// createKeyPair is not supported: it would return a private key, for which the region has no store.
func (s keyPairHandlers) createKeyPair(*sdk.CreateKeyPairInput) (*sdk.CreateKeyPairOutput, error) {
	return nil, newErrorf(
		codeUnsupportedOperation,
		"This region does not create private keys: use ImportKeyPair",
	)
}

// maxKeyName is the longest name of a key pair, in characters.
const maxKeyName = 255

func (s keyPairHandlers) importKeyPair(in *sdk.ImportKeyPairInput) (*sdk.ImportKeyPairOutput, error) {
	name := str(in.KeyName)
	if name == "" {
		return nil, missingParameter("KeyName")
	}

	if len(name) > maxKeyName {
		return nil, invalidParameter("KeyName", name, "Key names must have at most 255 ASCII characters.")
	}

	key, err := parsePublicKey(string(in.PublicKeyMaterial))
	if err != nil {
		return nil, err
	}

	tags, err := parseTagSpecs(in.TagSpecifications, "key-pair")
	if err != nil {
		return nil, err
	}

	if s.st.findKeyPairID(name) != "" {
		return nil, newErrorf(codeInvalidKeyPairDuplicate, "The keypair '%s' already exists.", name)
	}

	fingerprint, err := keyFingerprint(key)
	if err != nil {
		return nil, err
	}

	id := s.newID(keyPairPrefix)
	s.st.Keys[id] = &sdk.KeyPairInfo{
		KeyPairId:      new(id),
		KeyName:        new(name),
		KeyFingerprint: new(fingerprint),
		KeyType:        new(strings.TrimPrefix(key.Type(), "ssh-")),
		CreateTime:     new(s.cfg.Now().UTC()),
		PublicKey:      new(publicKeyLine(key, name)),
	}

	s.st.setTags(id, tags)

	return &sdk.ImportKeyPairOutput{
		KeyPairId:      new(id),
		KeyName:        new(name),
		KeyFingerprint: new(fingerprint),
		Tags:           s.st.tagList(id),
	}, nil
}

// deleteKeyPair succeeds if the key pair does not exist, as in AWS.
func (s keyPairHandlers) deleteKeyPair(in *sdk.DeleteKeyPairInput) (*sdk.DeleteKeyPairOutput, error) {
	for id, k := range s.st.Keys {
		if id == str(in.KeyPairId) || str(k.KeyName) == str(in.KeyName) {
			s.st.removeTags(id)
			delete(s.st.Keys, id)
			return &sdk.DeleteKeyPairOutput{Return: new(true), KeyPairId: new(id)}, nil
		}
	}

	return &sdk.DeleteKeyPairOutput{Return: new(true)}, nil
}

func (s keyPairHandlers) describeKeyPairs(
	in *sdk.DescribeKeyPairsInput,
) (*sdk.DescribeKeyPairsOutput, error) {
	field := func(k *sdk.KeyPairInfo, name string) ([]string, bool) {
		v, known := map[string]*string{
			"key-name":    k.KeyName,
			"key-pair-id": k.KeyPairId,
			"fingerprint": k.KeyFingerprint,
		}[name]

		return []string{str(v)}, known
	}

	filters := slices.Clone(in.Filters)
	if len(in.KeyNames) > 0 {
		filters = append(filters, &sdk.Filter{Name: new("key-name"), Values: in.KeyNames})
	}

	got, _, err := listResources(s.Service, s.st.Keys, describeQuery{ids: in.KeyPairIds, filters: filters},
		resourceLister[sdk.KeyPairInfo]{codeInvalidKeyPairNotFound, "key pair", field})

	for _, name := range strs(in.KeyNames) {
		if !slices.ContainsFunc(got, func(k *sdk.KeyPairInfo) bool { return str(k.KeyName) == name }) &&
			err == nil {
			err = newErrorf(codeInvalidKeyPairNotFound, "The key pair '%s' does not exist", name)
		}
	}

	out := &sdk.DescribeKeyPairsOutput{}

	for _, k := range got {
		shown := sdkshape.CloneShape(k)
		shown.Tags = s.st.tagList(str(k.KeyPairId))
		if in.IncludePublicKey == nil || !*in.IncludePublicKey {
			shown.PublicKey = nil
		}

		out.KeyPairs = append(out.KeyPairs, shown)
	}

	return out, err
}
