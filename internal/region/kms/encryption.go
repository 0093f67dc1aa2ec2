// SPDX-License-Identifier: Apache-2.0

package kms

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go/service/kms"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// maxPlaintextBytes is KMS's limit of the plaintext of Encrypt.
const maxPlaintextBytes = 4096

// findUsableKey returns a copy of a key that is enabled, after it has checked that the caller may do an
// action with it and the encryption context. The caller uses the copy without the lock.
func (s *Service) findUsableKey(
	ctx context.Context,
	id *string,
	action string,
	encryption map[string]string,
) (*key, error) {
	s.store.Lock()
	defer s.store.Unlock()
	k, err := s.findKey(id)
	if err != nil {
		return nil, err
	}

	if err := s.authorizeKey(ctx, k, action, encryption); err != nil {
		return nil, err
	}

	usable := *k

	return &usable, s.checkUsable(k)
}

// checkAlgorithm refuses the algorithms of asymmetric keys: the region's keys are symmetric.
func checkAlgorithm(name *string) error {
	if v := stringValue(name); v != "" && v != kms.EncryptionAlgorithmSpecSymmetricDefault {
		return newErrorf(
			invalidKeyUsage,
			"Algorithm %s is not valid for a key of KeySpec SYMMETRIC_DEFAULT.",
			v,
		)
	}

	return nil
}

func (s *Service) encrypt(ctx context.Context, in *kms.EncryptInput) (*kms.EncryptOutput, error) {
	if err := checkAlgorithm(in.EncryptionAlgorithm); err != nil {
		return nil, err
	}

	encryption := stringValues(in.EncryptionContext)
	k, err := s.findUsableKey(ctx, in.KeyId, "Encrypt", encryption)
	if err != nil {
		return nil, err
	}

	if len(in.Plaintext) > maxPlaintextBytes {
		return nil, newErrorf(
			validationFailed,
			"1 validation error detected: Value at 'plaintext' failed to satisfy constraint: "+
				"Member must have length less than or equal to %d",
			maxPlaintextBytes,
		)
	}

	if err := checkDryRun(in.DryRun); err != nil {
		return nil, err
	}

	blob, err := encryptBlob(k, in.Plaintext, encryption)

	return &kms.EncryptOutput{
		CiphertextBlob:      blob,
		KeyId:               new(s.keyARN(k.ID)),
		EncryptionAlgorithm: new(kms.EncryptionAlgorithmSpecSymmetricDefault),
	}, err
}

func (s *Service) decrypt(ctx context.Context, in *kms.DecryptInput) (*decryptOutput, error) {
	if err := checkAlgorithm(in.EncryptionAlgorithm); err != nil {
		return nil, err
	}

	encryption := stringValues(in.EncryptionContext)
	k, err := s.findCiphertextKey(ctx, in.CiphertextBlob, in.KeyId, "Decrypt", encryption)
	if err != nil {
		return nil, err
	}

	if err := checkDryRun(in.DryRun); err != nil {
		return nil, err
	}

	plaintext, err := decryptBlob(k, in.CiphertextBlob, encryption)
	if err != nil {
		return nil, err
	}

	out := &decryptOutput{KeyMaterialId: k.materialID()}
	out.Plaintext = plaintext
	out.KeyId = new(s.keyARN(k.ID))
	out.EncryptionAlgorithm = new(kms.EncryptionAlgorithmSpecSymmetricDefault)

	return out, nil
}

func (s *Service) generateDataKey(
	ctx context.Context,
	in *kms.GenerateDataKeyInput,
) (*generateDataKeyOutput, error) {
	return s.newDataKey(ctx, "GenerateDataKey", in)
}

// newDataKey generates a data key and encrypts it. action is the operation that IAM is asked about.
func (s *Service) newDataKey(
	ctx context.Context,
	action string,
	in *kms.GenerateDataKeyInput,
) (*generateDataKeyOutput, error) {
	n := 32
	switch {
	case in.NumberOfBytes != nil && in.KeySpec != nil:
		return nil, newErrorf(validationFailed, "Please specify either number of bytes or key spec.")
	case in.NumberOfBytes != nil:
		n = int(*in.NumberOfBytes)
	case stringValue(in.KeySpec) == kms.DataKeySpecAes128:
		n = 16
	case stringValue(in.KeySpec) != kms.DataKeySpecAes256:
		return nil, newErrorf(validationFailed, "Please specify either number of bytes or key spec.")
	}

	if n < 1 || n > 1024 {
		return nil, newErrorf(validationFailed, "NumberOfBytes must be between 1 and 1024")
	}

	encryption := stringValues(in.EncryptionContext)
	k, err := s.findUsableKey(ctx, in.KeyId, action, encryption)
	if err != nil {
		return nil, err
	}

	if err := checkDryRun(in.DryRun); err != nil {
		return nil, err
	}

	plaintext := make([]byte, n)
	if _, err := rand.Read(plaintext); err != nil {
		return nil, fmt.Errorf("generate a data key: %w", err)
	}

	blob, err := encryptBlob(k, plaintext, encryption)

	out := &generateDataKeyOutput{KeyMaterialId: k.materialID()}
	out.Plaintext = plaintext
	out.CiphertextBlob = blob
	out.KeyId = new(s.keyARN(k.ID))

	return out, err
}

func (s *Service) generateDataKeyWithoutPlaintext(
	ctx context.Context,
	in *kms.GenerateDataKeyWithoutPlaintextInput,
) (*generateDataKeyWithoutPlaintextOutput, error) {
	made, err := s.newDataKey(ctx, "GenerateDataKeyWithoutPlaintext", &kms.GenerateDataKeyInput{
		KeyId:             in.KeyId,
		KeySpec:           in.KeySpec,
		NumberOfBytes:     in.NumberOfBytes,
		EncryptionContext: in.EncryptionContext,
		DryRun:            in.DryRun,
	})
	if err != nil {
		return nil, err
	}

	out := &generateDataKeyWithoutPlaintextOutput{KeyMaterialId: made.KeyMaterialId}
	out.CiphertextBlob = made.CiphertextBlob
	out.KeyId = made.KeyId

	return out, nil
}

// findCiphertextKey returns the key of a ciphertext. If want is not nil, it must name that key. A ciphertext
// that is not from this region is invalid, whatever want names.
func (s *Service) findCiphertextKey(
	ctx context.Context,
	blob []byte,
	want *string,
	action string,
	encryption map[string]string,
) (*key, error) {
	const idLength = 36
	if len(blob) < idLength {
		return nil, newInvalidCiphertextError()
	}

	id := string(blob[:idLength])
	if err := s.checkCiphertextKey(id, want); err != nil {
		return nil, err
	}

	return s.findUsableKey(ctx, &id, action, encryption)
}

// checkCiphertextKey checks that the key of a ciphertext exists and is the one that want names, if want is
// not nil.
func (s *Service) checkCiphertextKey(id string, want *string) error {
	s.store.Lock()
	defer s.store.Unlock()
	if _, err := s.findKey(&id); err != nil {
		return newInvalidCiphertextError()
	}

	if want == nil {
		return nil
	}

	named, err := s.findKey(want)
	if err != nil {
		return err
	}

	if named.ID != id {
		return newError(incorrectKey)
	}

	return nil
}

// checkDryRun returns the error of a dry run, which AWS returns after all other checks.
func checkDryRun(asked *bool) error {
	if isTrue(asked) {
		return newError(dryRun)
	}

	return nil
}

func (s *Service) reEncrypt(ctx context.Context, in *kms.ReEncryptInput) (*reEncryptOutput, error) {
	for _, algorithm := range []*string{in.SourceEncryptionAlgorithm, in.DestinationEncryptionAlgorithm} {
		if err := checkAlgorithm(algorithm); err != nil {
			return nil, err
		}
	}

	from := stringValues(in.SourceEncryptionContext)
	to := stringValues(in.DestinationEncryptionContext)
	source, err := s.findCiphertextKey(ctx, in.CiphertextBlob, in.SourceKeyId, "ReEncryptFrom", from)
	if err != nil {
		return nil, err
	}

	destination, err := s.findUsableKey(ctx, in.DestinationKeyId, "ReEncryptTo", to)
	if err != nil {
		return nil, err
	}

	if err := checkDryRun(in.DryRun); err != nil {
		return nil, err
	}

	plaintext, err := decryptBlob(source, in.CiphertextBlob, from)
	if err != nil {
		return nil, err
	}

	blob, err := encryptBlob(destination, plaintext, to)
	algorithm := new(kms.EncryptionAlgorithmSpecSymmetricDefault)

	out := &reEncryptOutput{
		DestinationKeyMaterialId: destination.materialID(),
		SourceKeyMaterialId:      source.materialID(),
	}
	out.CiphertextBlob = blob
	out.KeyId = new(s.keyARN(destination.ID))
	out.SourceKeyId = new(s.keyARN(source.ID))
	out.SourceEncryptionAlgorithm = algorithm
	out.DestinationEncryptionAlgorithm = algorithm

	return out, err
}

func (s *Service) generateRandom(
	ctx context.Context,
	in *kms.GenerateRandomInput,
) (*kms.GenerateRandomOutput, error) {
	if err := wire.Authorize(ctx, wire.AccessCheck{Action: "kms:GenerateRandom"}); err != nil {
		return nil, err
	}

	if in.NumberOfBytes == nil || *in.NumberOfBytes > 1024 {
		return nil, newErrorf(validationFailed, "NumberOfBytes must be between 1 and 1024")
	}

	b := make([]byte, *in.NumberOfBytes)
	if _, err := rand.Read(b); err != nil {
		return nil, fmt.Errorf("read random bytes: %w", err)
	}

	return &kms.GenerateRandomOutput{Plaintext: b}, nil
}

func (s *Service) createGrant(
	ctx context.Context,
	in *kms.CreateGrantInput,
) (out *kms.CreateGrantOutput, err error) {
	err = s.withKey(ctx, in.KeyId, "CreateGrant", func(k *key) error {
		g := grant{
			ID:        newUUID(),
			Name:      stringValue(in.Name),
			Principal: *in.GranteePrincipal,
			Created:   s.cfg.Now().UTC(),
		}

		for _, op := range in.Operations {
			g.Operations = append(g.Operations, *op)
		}

		if c := in.Constraints; c != nil {
			g.Equals = stringValues(c.EncryptionContextEquals)
			g.Subset = stringValues(c.EncryptionContextSubset)
		}

		if err := s.checkUsable(k); err != nil {
			return err
		}

		k.Grants = append(k.Grants, g)
		s.unseen.Track(grantPrefix + g.ID)
		out = &kms.CreateGrantOutput{GrantId: &g.ID, GrantToken: &g.ID}

		return nil
	})

	return out, err
}

func (s *Service) listGrants(
	ctx context.Context,
	in *kms.ListGrantsInput,
) (out *kms.ListGrantsResponse, err error) {
	err = s.withKey(ctx, in.KeyId, "ListGrants", func(k *key) error {
		byID := map[string]grant{}
		for _, g := range k.Grants {
			byID[g.ID] = g
		}

		page := listPage{marker: in.Marker, limit: in.Limit, sizes: pageSizes{usual: 50, most: 100}}
		ids, next, err := page.selectNames(slices.Sorted(maps.Keys(byID)))
		if err != nil {
			return err
		}

		out = &kms.ListGrantsResponse{
			Grants:     []*kms.GrantListEntry{},
			NextMarker: next,
			Truncated:  new(next != nil),
		}

		for _, id := range ids {
			g := byID[id]
			e := &kms.GrantListEntry{
				GrantId:          &g.ID,
				Name:             &g.Name,
				GranteePrincipal: &g.Principal,
				KeyId:            new(s.keyARN(k.ID)),
				CreationDate:     &g.Created,
			}

			for _, op := range g.Operations {
				e.Operations = append(e.Operations, &op)
			}

			out.Grants = append(out.Grants, e)
		}

		return nil
	})

	return out, err
}

func (s *Service) revokeGrant(ctx context.Context, in *kms.RevokeGrantInput) (*kms.RevokeGrantOutput, error) {
	return &kms.RevokeGrantOutput{}, s.withKey(ctx, in.KeyId, "RevokeGrant", func(k *key) error {
		before := len(k.Grants)
		k.Grants = slices.DeleteFunc(k.Grants, func(g grant) bool { return g.ID == *in.GrantId })
		if len(k.Grants) == before {
			return newMissingGrantError(*in.GrantId)
		}

		return nil
	})
}
