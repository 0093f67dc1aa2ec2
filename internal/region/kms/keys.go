// SPDX-License-Identifier: Apache-2.0

package kms

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go/service/kms"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

func (s *Service) createKey(ctx context.Context, in *kms.CreateKeyInput) (*createKeyOutput, error) {
	check := wire.AccessCheck{Action: "kms:CreateKey", Context: bypassKeys(in.BypassPolicyLockoutSafetyCheck)}
	tags := map[string]string{}
	for _, t := range in.Tags {
		tags[*t.TagKey] = *t.TagValue
		check.Context["aws:RequestTag/"+*t.TagKey] = []string{*t.TagValue}
		check.Context["aws:TagKeys"] = append(check.Context["aws:TagKeys"], *t.TagKey)
	}

	checks := []wire.AccessCheck{check}
	if len(in.Tags) > 0 { // a caller who creates a key with tags also needs the right to tag it
		tag := wire.AccessCheck{Action: "kms:TagResource", Resource: s.keyARN("*"), Context: check.Context}
		checks = append(checks, tag)
	}

	if err := wire.Authorize(ctx, checks...); err != nil {
		return nil, err
	}

	if err := checkKeyKind(in); err != nil {
		return nil, err
	}

	if err := checkTags(nil, in.Tags); err != nil {
		return nil, err
	}

	policy := cmp.Or(stringValue(in.Policy), s.defaultPolicy())
	if err := s.cfg.validateKeyPolicy(policy); err != nil {
		return nil, err
	}

	material, err := newMaterial()
	if err != nil {
		return nil, err
	}

	k := &key{
		ID:          newUUID(),
		Description: stringValue(in.Description),
		Created:     s.cfg.Now().UTC(),
		State:       kms.KeyStateEnabled,
		Policy:      policy,
		Tags:        tags,
		Material:    material,
	}

	if in.Policy != nil && !isTrue(in.BypassPolicyLockoutSafetyCheck) {
		if err := s.checkLockout(ctx, k, policy); err != nil {
			return nil, err
		}
	}

	s.stale.keep(k.ID, keyMarks{}) // the tags of a new key count later, too
	s.st.Keys[k.ID] = k
	s.unseen.Track(k.ID, s.keyARN(k.ID))

	return &createKeyOutput{KeyMetadata: s.keyMetadata(k)}, nil
}

func newMaterial() ([]byte, error) {
	material := make([]byte, 32)
	if _, err := rand.Read(material); err != nil {
		return nil, fmt.Errorf("generate key material: %w", err)
	}

	return material, nil
}

// checkKeyKind refuses the kinds of keys that the region does not have: it has symmetric keys of one region, with
// material of KMS.
func checkKeyKind(in *kms.CreateKeyInput) error {
	for member, kind := range map[string]struct{ asked, have string }{
		//nolint:staticcheck // clients still send the former name of KeySpec
		"CustomerMasterKeySpec": {stringValue(in.CustomerMasterKeySpec), kms.CustomerMasterKeySpecSymmetricDefault},
		"KeySpec":               {stringValue(in.KeySpec), kms.KeySpecSymmetricDefault},
		"KeyUsage":              {stringValue(in.KeyUsage), kms.KeyUsageTypeEncryptDecrypt},
		"Origin":                {stringValue(in.Origin), kms.OriginTypeAwsKms},
	} {
		if kind.asked != "" && kind.asked != kind.have {
			return newErrorf(
				unsupportedOperation,
				"%s %s is not supported by this region",
				member,
				kind.asked,
			)
		}
	}

	if isTrue(in.MultiRegion) {
		return newErrorf(unsupportedOperation, "MultiRegion is not supported by this region")
	}

	return nil
}

// defaultPolicy returns the default key policy of AWS: the account's IAM policies decide.
func (s *Service) defaultPolicy() string {
	return `{"Version":"2012-10-17","Id":"key-default-1","Statement":[` +
		`{"Sid":"Enable IAM User Permissions","Effect":"Allow",` +
		`"Principal":{"AWS":"arn:aws:iam::` + s.cfg.Account + `:root"},"Action":"kms:*","Resource":"*"}]}`
}

// newUUID returns a random UUID, the form of the ids of keys and grants.
func newUUID() string {
	var b [16]byte
	rand.Read(b[:])         // never fails since Go 1.24
	b[6] = b[6]&0x0f | 0x40 // version 4
	b[8] = b[8]&0x3f | 0x80 // variant 10

	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func (s *Service) keyMetadata(k *key) *keyMetadata {
	m := kms.KeyMetadata{
		AWSAccountId: &s.cfg.Account,
		Arn:          new(s.keyARN(k.ID)),
		KeyId:        &k.ID,
		CreationDate: &k.Created,
		Description:  &k.Description,
		Enabled:      new(k.State == kms.KeyStateEnabled),
		KeyState:     &k.State,
		KeyManager:   new(kms.KeyManagerTypeCustomer),
		KeySpec:      new(kms.KeySpecSymmetricDefault),

		CustomerMasterKeySpec: new(kms.CustomerMasterKeySpecSymmetricDefault), //nolint:staticcheck // AWS returns it
		KeyUsage:              new(kms.KeyUsageTypeEncryptDecrypt),
		Origin:                new(kms.OriginTypeAwsKms),
		EncryptionAlgorithms:  []*string{new(kms.EncryptionAlgorithmSpecSymmetricDefault)},
		MultiRegion:           new(false),
	}
	if k.State == kms.KeyStatePendingDeletion {
		m.DeletionDate = &k.Deletion
	}

	return &keyMetadata{KeyMetadata: m, CurrentKeyMaterialId: k.materialID()}
}

func (s *Service) describeKey(
	ctx context.Context,
	in *kms.DescribeKeyInput,
) (out *describeKeyOutput, err error) {
	check := keyCheck{action: "DescribeKey", context: s.requestAliasKeys(in.KeyId)}
	err = s.withCheckedKey(ctx, in.KeyId, check, func(k *key) error {
		out = &describeKeyOutput{KeyMetadata: s.keyMetadata(k)}
		return nil
	})

	return out, err
}

// pageSizes are the numbers of entries of a page: usual if the request does not name one, and most.
type pageSizes struct{ usual, most int }

// listPage is the page of a list that a request asks for.
type listPage struct {
	marker *string // of the page before; nil for the first page
	limit  *int64  // number of entries; nil for the usual number
	sizes  pageSizes
}

// selectNames returns the page of sorted names, and the marker of the next page.
func (p listPage) selectNames(names []string) (out []string, next *string, err error) {
	most := p.sizes.usual
	if p.limit != nil {
		most = min(p.sizes.most, int(*p.limit))
	}

	return sdkshape.Paginate(names, int64(most), p.marker, newErrorf(
		invalidMarker,
		"The marker that specifies where pagination should next begin is not valid.",
	))
}

func (s *Service) listKeys(ctx context.Context, in *kms.ListKeysInput) (*kms.ListKeysOutput, error) {
	if err := wire.Authorize(ctx, wire.AccessCheck{Action: "kms:ListKeys"}); err != nil {
		return nil, err
	}

	page := listPage{marker: in.Marker, limit: in.Limit, sizes: pageSizes{usual: 100, most: 1000}}
	ids, next, err := page.selectNames(slices.Sorted(maps.Keys(s.st.Keys)))
	if err != nil {
		return nil, err
	}

	out := &kms.ListKeysOutput{Keys: []*kms.KeyListEntry{}, NextMarker: next, Truncated: new(next != nil)}

	for _, id := range ids {
		if _, err := s.findKey(&id); err == nil {
			out.Keys = append(out.Keys, &kms.KeyListEntry{KeyId: &id, KeyArn: new(s.keyARN(id))})
		}
	}

	return out, nil
}

func (s *Service) tagResource(ctx context.Context, in *kms.TagResourceInput) (*kms.TagResourceOutput, error) {
	requested := map[string][]string{}
	for _, t := range in.Tags {
		requested["aws:RequestTag/"+*t.TagKey] = []string{*t.TagValue}
		requested["aws:TagKeys"] = append(requested["aws:TagKeys"], *t.TagKey)
	}

	check := keyCheck{action: "TagResource", context: requested}

	return &kms.TagResourceOutput{}, s.withCheckedKey(ctx, in.KeyId, check, func(k *key) error {
		if err := checkTags(k.Tags, in.Tags); err != nil {
			return err
		}

		s.keepMarks(k)
		if k.Tags == nil {
			k.Tags = map[string]string{}
		}

		for _, t := range in.Tags {
			k.Tags[*t.TagKey] = *t.TagValue
		}

		return nil
	})
}

func (s *Service) untagResource(
	ctx context.Context,
	in *kms.UntagResourceInput,
) (*kms.UntagResourceOutput, error) {
	requested := map[string][]string{}
	for _, name := range in.TagKeys {
		requested["aws:TagKeys"] = append(requested["aws:TagKeys"], *name)
	}

	check := keyCheck{action: "UntagResource", context: requested}

	return &kms.UntagResourceOutput{}, s.withCheckedKey(ctx, in.KeyId, check, func(k *key) error {
		s.keepMarks(k)
		for _, name := range in.TagKeys {
			delete(k.Tags, *name)
		}

		return nil
	})
}

func (s *Service) listResourceTags(
	ctx context.Context,
	in *kms.ListResourceTagsInput,
) (out *kms.ListResourceTagsOutput, err error) {
	err = s.withKey(ctx, in.KeyId, "ListResourceTags", func(k *key) error {
		page := listPage{marker: in.Marker, limit: in.Limit, sizes: pageSizes{usual: 50, most: 50}}
		names, next, err := page.selectNames(slices.Sorted(maps.Keys(k.Tags)))
		if err != nil {
			return err
		}

		tags := maps.Clone(k.Tags)
		maps.DeleteFunc(tags, func(name, _ string) bool { return !slices.Contains(names, name) })
		out = &kms.ListResourceTagsOutput{Tags: sortedTags(tags), NextMarker: next, Truncated: new(next != nil)}

		return nil
	})

	return out, err
}

// checkPolicyName refuses names of key policies other than default, the only one that KMS has.
func checkPolicyName(name *string) error {
	if v := stringValue(name); v != "" && v != "default" {
		return newErrorf(notFound, "No such policy exists")
	}

	return nil
}

func (s *Service) getKeyPolicy(
	ctx context.Context,
	in *kms.GetKeyPolicyInput,
) (out *kms.GetKeyPolicyOutput, err error) {
	err = s.withKey(ctx, in.KeyId, "GetKeyPolicy", func(k *key) error {
		out = &kms.GetKeyPolicyOutput{Policy: &k.Policy, PolicyName: new("default")}
		return checkPolicyName(in.PolicyName)
	})

	return out, err
}

func (s *Service) putKeyPolicy(
	ctx context.Context,
	in *kms.PutKeyPolicyInput,
) (*kms.PutKeyPolicyOutput, error) {
	check := keyCheck{action: "PutKeyPolicy", context: bypassKeys(in.BypassPolicyLockoutSafetyCheck)}

	return &kms.PutKeyPolicyOutput{}, s.withCheckedKey(ctx, in.KeyId, check, func(k *key) error {
		if err := checkPolicyName(in.PolicyName); err != nil {
			return err
		}

		if err := s.cfg.validateKeyPolicy(*in.Policy); err != nil {
			return err
		}

		if !isTrue(in.BypassPolicyLockoutSafetyCheck) {
			if err := s.checkLockout(ctx, k, *in.Policy); err != nil {
				return err
			}
		}

		k.Policy = *in.Policy
		return nil
	})
}

func (s *Service) scheduleKeyDeletion(
	ctx context.Context,
	in *kms.ScheduleKeyDeletionInput,
) (out *kms.ScheduleKeyDeletionOutput, err error) {
	days := int64(30) // AWS's default
	if in.PendingWindowInDays != nil {
		days = *in.PendingWindowInDays
	}

	if days < 7 || days > 30 {
		return nil, newErrorf(validationFailed, "PendingWindowInDays must be between 7 and 30")
	}

	err = s.withKey(ctx, in.KeyId, "ScheduleKeyDeletion", func(k *key) error {
		if k.State == kms.KeyStatePendingDeletion {
			return s.checkUsable(k)
		}

		k.State = kms.KeyStatePendingDeletion
		k.Deletion = s.cfg.Now().UTC().Add(time.Duration(days) * 24 * time.Hour)
		out = &kms.ScheduleKeyDeletionOutput{
			KeyId:               new(s.keyARN(k.ID)),
			DeletionDate:        &k.Deletion,
			KeyState:            &k.State,
			PendingWindowInDays: &days,
		}

		return nil
	})

	return out, err
}

func (s *Service) cancelKeyDeletion(
	ctx context.Context,
	in *kms.CancelKeyDeletionInput,
) (out *kms.CancelKeyDeletionOutput, err error) {
	err = s.withKey(ctx, in.KeyId, "CancelKeyDeletion", func(k *key) error {
		if k.State != kms.KeyStatePendingDeletion {
			return newErrorf(invalidKeyState, "%s is not pending deletion.", s.keyARN(k.ID))
		}

		k.State = kms.KeyStateDisabled
		k.Deletion = time.Time{}
		out = &kms.CancelKeyDeletionOutput{KeyId: new(s.keyARN(k.ID))}

		return nil
	})

	return out, err
}

func (s *Service) enableKey(ctx context.Context, in *kms.EnableKeyInput) (*kms.EnableKeyOutput, error) {
	return &kms.EnableKeyOutput{}, s.setKeyState(ctx, in.KeyId, "EnableKey", kms.KeyStateEnabled)
}

func (s *Service) disableKey(ctx context.Context, in *kms.DisableKeyInput) (*kms.DisableKeyOutput, error) {
	return &kms.DisableKeyOutput{}, s.setKeyState(ctx, in.KeyId, "DisableKey", kms.KeyStateDisabled)
}

func (s *Service) setKeyState(ctx context.Context, id *string, action, state string) error {
	return s.withKey(ctx, id, action, func(k *key) error {
		if k.State == kms.KeyStatePendingDeletion {
			return s.checkUsable(k)
		}

		k.State = state
		return nil
	})
}
