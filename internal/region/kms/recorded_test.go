// SPDX-License-Identifier: Apache-2.0

package kms_test

import (
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/kms/types"
)

// TestKeysOfOtherKindsAreRefused: a key that is not what the client asked for must not be created.
func TestKeysOfOtherKindsAreRefused(t *testing.T) {
	t.Parallel()
	c := serve(t, t.TempDir())
	for member, in := range map[string]*kms.CreateKeyInput{
		"MultiRegion": {MultiRegion: new(true)},
		"Origin":      {Origin: types.OriginTypeExternal},
		"KeyUsage":    {KeyUsage: types.KeyUsageTypeSignVerify},
		"KeySpec":     {KeySpec: types.KeySpecRsa2048},
	} {
		if _, err := c.CreateKey(t.Context(), in); code(err) != "UnsupportedOperationException" || !strings.Contains(err.Error(), member) {
			t.Errorf("%s: %v, want UnsupportedOperationException with its name", member, err)
		}
	}

	made, err := c.CreateKey(t.Context(), &kms.CreateKeyInput{})
	if err != nil {
		t.Fatal(err)
	}

	_, err = c.GenerateDataKey(t.Context(), &kms.GenerateDataKeyInput{
		KeyId: made.KeyMetadata.KeyId, KeySpec: types.DataKeySpecAes256, NumberOfBytes: new(int32(32)),
	})
	if code(err) != "ValidationException" {
		t.Errorf("a data key of two sizes: %v", err)
	}

	for id, want := range map[string]string{
		"bogus": "Invalid keyId 'bogus'",
		"arn:aws:kms:eu-west-1:000000000000:key/" + *made.KeyMetadata.KeyId: "Invalid arn eu-west-1",
	} {
		if _, err := c.DescribeKey(t.Context(), &kms.DescribeKeyInput{KeyId: &id}); code(err) != "NotFoundException" || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", id, err, want)
		}
	}
}

func TestRotationPeriod(t *testing.T) {
	t.Parallel()
	c := serve(t, t.TempDir())
	made, err := c.CreateKey(t.Context(), &kms.CreateKeyInput{})
	if err != nil {
		t.Fatal(err)
	}

	id := made.KeyMetadata.KeyId
	for days, want := range map[int32]string{89: "ValidationException", 2561: "ValidationException"} {
		if _, err := c.EnableKeyRotation(t.Context(), &kms.EnableKeyRotationInput{KeyId: id, RotationPeriodInDays: &days}); code(err) != want {
			t.Errorf("%d days: %v, want %s", days, err, want)
		}
	}

	if _, err := c.EnableKeyRotation(t.Context(), &kms.EnableKeyRotationInput{KeyId: id, RotationPeriodInDays: new(int32(180))}); err != nil {
		t.Fatal(err)
	}

	out, err := c.GetKeyRotationStatus(t.Context(), &kms.GetKeyRotationStatusInput{KeyId: id})
	if err != nil || *out.RotationPeriodInDays != 180 || time.Until(*out.NextRotationDate) < 179*24*time.Hour {
		t.Errorf("%+v, %v, want 180 days", out, err)
	}
}

// TestAliasesAreNamedByTheirNames: the operations that change an alias take its name only. A key's id or the ARN of an alias
// is not the name of an alias.
func TestAliasesAreNamedByTheirNames(t *testing.T) {
	t.Parallel()
	c := serve(t, t.TempDir())
	made, err := c.CreateKey(t.Context(), &kms.CreateKeyInput{})
	if err != nil {
		t.Fatal(err)
	}

	id := made.KeyMetadata.KeyId
	if _, err := c.CreateAlias(t.Context(), &kms.CreateAliasInput{AliasName: new("alias/x"), TargetKeyId: id}); err != nil {
		t.Fatal(err)
	}

	for name, want := range map[string]string{
		*id:                   "ValidationException",
		*made.KeyMetadata.Arn: "ValidationException",
		"arn:aws:kms:us-east-1:000000000000:alias/x": "ValidationException",
		"alias/none": "NotFoundException",
	} {
		if _, err := c.DeleteAlias(t.Context(), &kms.DeleteAliasInput{AliasName: &name}); code(err) != want {
			t.Errorf("DeleteAlias of %s: %v, want %s", name, err, want)
		}

		if _, err := c.UpdateAlias(t.Context(), &kms.UpdateAliasInput{AliasName: &name, TargetKeyId: id}); code(err) != want {
			t.Errorf("UpdateAlias of %s: %v, want %s", name, err, want)
		}
	}

	list, err := c.ListAliases(t.Context(), &kms.ListAliasesInput{KeyId: id})
	if err != nil || len(list.Aliases) != 1 {
		t.Errorf("aliases: %+v, %v, want alias/x", list, err)
	}
}
