// SPDX-License-Identifier: Apache-2.0

package kms

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go/service/kms"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// maxPlaintext is the most that Encrypt takes, in bytes; KMS's own limit.
const maxPlaintext = 4096

// use finds a key that is fit for work and asks IAM, with the encryption context, for an action on it.
func (s *Service) use(ctx context.Context, id *string, action string, encryption map[string]string) (*key, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, err := s.find(id)
	if err != nil {
		return nil, err
	}
	if err := s.allowed(ctx, k, action, encryption); err != nil {
		return nil, err
	}
	return k, s.usable(k)
}

func (s *Service) encrypt(ctx context.Context, in *kms.EncryptInput) (*kms.EncryptOutput, error) {
	context := values(in.EncryptionContext)
	k, err := s.use(ctx, in.KeyId, "Encrypt", context)
	if err != nil {
		return nil, err
	}
	if len(in.Plaintext) > maxPlaintext {
		return nil, wire.Errorf("ValidationException", "plaintext has %d bytes, the most is %d", len(in.Plaintext), maxPlaintext)
	}
	blob, err := seal(k, in.Plaintext, context)
	return &kms.EncryptOutput{CiphertextBlob: blob, KeyId: new(s.arn(k.ID)), EncryptionAlgorithm: new(kms.EncryptionAlgorithmSpecSymmetricDefault)}, err
}

func (s *Service) decrypt(ctx context.Context, in *kms.DecryptInput) (*kms.DecryptOutput, error) {
	const idLength = 36
	if len(in.CiphertextBlob) < idLength {
		return nil, invalidCiphertext()
	}
	context := values(in.EncryptionContext)
	id := string(in.CiphertextBlob[:idLength])
	k, err := s.use(ctx, &id, "Decrypt", context)
	if err != nil {
		return nil, err
	}
	if in.KeyId != nil {
		want, err := s.use(ctx, in.KeyId, "Decrypt", context)
		if err != nil {
			return nil, err
		}
		if want.ID != k.ID {
			return nil, wire.Errorf("IncorrectKeyException", "The key ID in the request does not identify a CMK that can perform this operation.")
		}
	}
	plaintext, err := open(k, in.CiphertextBlob, context)
	if err != nil {
		return nil, err
	}
	return &kms.DecryptOutput{Plaintext: plaintext, KeyId: new(s.arn(k.ID)), EncryptionAlgorithm: new(kms.EncryptionAlgorithmSpecSymmetricDefault)}, nil
}

func (s *Service) dataKey(ctx context.Context, in *kms.GenerateDataKeyInput) (*kms.GenerateDataKeyOutput, error) {
	n := 32
	switch {
	case in.NumberOfBytes != nil && in.KeySpec == nil:
		n = int(*in.NumberOfBytes)
	case text(in.KeySpec) == kms.DataKeySpecAes128:
		n = 16
	case text(in.KeySpec) != kms.DataKeySpecAes256:
		return nil, wire.Errorf("ValidationException", "Please specify either number of bytes or key spec.")
	}
	if n < 1 || n > 1024 {
		return nil, wire.Errorf("ValidationException", "NumberOfBytes must be between 1 and 1024")
	}
	context := values(in.EncryptionContext)
	k, err := s.use(ctx, in.KeyId, "GenerateDataKey", context)
	if err != nil {
		return nil, err
	}
	plaintext := make([]byte, n)
	if _, err := rand.Read(plaintext); err != nil {
		return nil, fmt.Errorf("make a data key: %w", err)
	}
	blob, err := seal(k, plaintext, context)
	return &kms.GenerateDataKeyOutput{Plaintext: plaintext, CiphertextBlob: blob, KeyId: new(s.arn(k.ID))}, err
}

func (s *Service) dataKeyAlone(ctx context.Context, in *kms.GenerateDataKeyWithoutPlaintextInput) (*kms.GenerateDataKeyWithoutPlaintextOutput, error) {
	out, err := s.dataKey(ctx, &kms.GenerateDataKeyInput{KeyId: in.KeyId, KeySpec: in.KeySpec, NumberOfBytes: in.NumberOfBytes, EncryptionContext: in.EncryptionContext})
	if err != nil {
		return nil, err
	}
	return &kms.GenerateDataKeyWithoutPlaintextOutput{CiphertextBlob: out.CiphertextBlob, KeyId: out.KeyId}, nil
}

func (s *Service) createGrant(ctx context.Context, in *kms.CreateGrantInput) (out *kms.CreateGrantOutput, err error) {
	err = s.with(ctx, in.KeyId, "CreateGrant", func(k *key) error {
		g := grant{ID: uuid(), Name: text(in.Name), Principal: *in.GranteePrincipal, Created: s.cfg.Now().UTC()}
		for _, op := range in.Operations {
			g.Operations = append(g.Operations, *op)
		}
		k.Grants = append(k.Grants, g)
		out = &kms.CreateGrantOutput{GrantId: &g.ID, GrantToken: &g.ID}
		return s.usable(k)
	})
	return out, err
}

func (s *Service) listGrants(ctx context.Context, in *kms.ListGrantsInput) (out *kms.ListGrantsResponse, err error) {
	err = s.with(ctx, in.KeyId, "ListGrants", func(k *key) error {
		out = &kms.ListGrantsResponse{Grants: []*kms.GrantListEntry{}, Truncated: new(false)}
		for _, g := range k.Grants {
			e := &kms.GrantListEntry{GrantId: &g.ID, Name: &g.Name, GranteePrincipal: &g.Principal, KeyId: new(s.arn(k.ID)), CreationDate: &g.Created}
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
	return &kms.RevokeGrantOutput{}, s.with(ctx, in.KeyId, "RevokeGrant", func(k *key) error {
		before := len(k.Grants)
		k.Grants = slices.DeleteFunc(k.Grants, func(g grant) bool { return g.ID == *in.GrantId })
		if len(k.Grants) == before {
			return wire.Errorf("NotFoundException", "Grant ID %s not found", *in.GrantId)
		}
		return nil
	})
}
