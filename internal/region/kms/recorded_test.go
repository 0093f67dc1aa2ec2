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
