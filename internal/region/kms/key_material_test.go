// SPDX-License-Identifier: Apache-2.0

package kms_test

import (
	"regexp"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/kms/types"
)

// TestKeyMaterialIsNamed: KMS names the material of a key when it describes the key, and that with which it encrypted or
// decrypted (LocalStack's recordings of test_create_key and test_encrypt_decrypt_encryption_context).
func TestKeyMaterialIsNamed(t *testing.T) {
	t.Parallel()
	c := serve(t, t.TempDir())
	ctx := t.Context()
	made, err := c.CreateKey(ctx, &kms.CreateKeyInput{})
	if err != nil {
		t.Fatal(err)
	}

	id := made.KeyMetadata.KeyId
	want := aws.ToString(made.KeyMetadata.CurrentKeyMaterialId)
	if !regexp.MustCompile(`^[a-f0-9]{64}$`).MatchString(want) {
		t.Fatalf("CreateKey: material %q, want 64 hexadecimal digits", want)
	}

	other, err := c.CreateKey(ctx, &kms.CreateKeyInput{})
	if err != nil {
		t.Fatal(err)
	}

	otherID := aws.ToString(other.KeyMetadata.CurrentKeyMaterialId)
	if otherID == want {
		t.Error("two keys have the same material")
	}

	described, err := c.DescribeKey(ctx, &kms.DescribeKeyInput{KeyId: id})
	if err != nil || aws.ToString(described.KeyMetadata.CurrentKeyMaterialId) != want || *described.KeyMetadata.KeyId != *id {
		t.Errorf("DescribeKey: %+v, %v, want material %s", described.KeyMetadata, err, want)
	}

	data, err := c.GenerateDataKey(ctx, &kms.GenerateDataKeyInput{KeyId: id, KeySpec: types.DataKeySpecAes256})
	if err != nil || aws.ToString(data.KeyMaterialId) != want {
		t.Fatalf("GenerateDataKey: %+v, %v, want material %s", data, err, want)
	}

	sealed, err := c.GenerateDataKeyWithoutPlaintext(ctx, &kms.GenerateDataKeyWithoutPlaintextInput{
		KeyId:   id,
		KeySpec: types.DataKeySpecAes256,
	})
	if err != nil || aws.ToString(sealed.KeyMaterialId) != want {
		t.Errorf("GenerateDataKeyWithoutPlaintext: %+v, %v, want material %s", sealed, err, want)
	}

	opened, err := c.Decrypt(ctx, &kms.DecryptInput{CiphertextBlob: data.CiphertextBlob})
	if err != nil || aws.ToString(opened.KeyMaterialId) != want {
		t.Errorf("Decrypt: %+v, %v, want material %s", opened, err, want)
	}

	moved, err := c.ReEncrypt(ctx, &kms.ReEncryptInput{CiphertextBlob: data.CiphertextBlob, DestinationKeyId: other.KeyMetadata.KeyId})
	if err != nil || aws.ToString(moved.SourceKeyMaterialId) != want || aws.ToString(moved.DestinationKeyMaterialId) != otherID {
		t.Errorf("ReEncrypt: %+v, %v, want material %s and %s", moved, err, want, otherID)
	}
}
