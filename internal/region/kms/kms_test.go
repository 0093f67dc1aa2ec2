// SPDX-License-Identifier: Apache-2.0

package kms_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/kms/types"
	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/internal/lib/awsfix/awstest"
	regionkms "github.com/slipway-k8s/slipway/internal/region/kms"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

func serve(t *testing.T, dir string) *kms.Client {
	t.Helper()
	svc, err := regionkms.New(regionkms.Config{Region: "us-east-1", Account: "000000000000", State: state.Dir(dir), Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	endpoint := wire.NewEndpoint(svc.Wire())
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		endpoint.Serve(w, r.WithContext(wire.WithCaller(r.Context(), wire.Caller{Root: true})), "id", nil)
	}))
	t.Cleanup(srv.Close)
	return kms.NewFromConfig(awstest.NewConfig(srv.URL, "us-east-1", credentials.NewStaticCredentialsProvider("AKIAEXAMPLE", "secret", "")))
}

func code(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorCode()
	}
	return fmt.Sprint(err)
}

func TestDataKeysAreBoundToKeyAndContext(t *testing.T) {
	dir := t.TempDir()
	c := serve(t, dir)
	made, err := c.CreateKey(t.Context(), &kms.CreateKeyInput{Tags: []types.Tag{{TagKey: aws.String("a"), TagValue: aws.String("b")}}})
	if err != nil {
		t.Fatal(err)
	}
	id := made.KeyMetadata.KeyId
	if _, err := c.CreateAlias(t.Context(), &kms.CreateAliasInput{AliasName: aws.String("alias/x"), TargetKeyId: id}); err != nil {
		t.Fatal(err)
	}
	context := map[string]string{"cluster": "demo"}
	dk, err := c.GenerateDataKey(t.Context(), &kms.GenerateDataKeyInput{KeyId: aws.String("alias/x"), KeySpec: types.DataKeySpecAes256, EncryptionContext: context})
	if err != nil {
		t.Fatal(err)
	}
	c = serve(t, dir) // a restarted region has the same keys
	out, err := c.Decrypt(t.Context(), &kms.DecryptInput{CiphertextBlob: dk.CiphertextBlob, EncryptionContext: context})
	if err != nil || !bytes.Equal(out.Plaintext, dk.Plaintext) {
		t.Fatalf("decrypt: %v", err)
	}
	if _, err := c.Decrypt(t.Context(), &kms.DecryptInput{CiphertextBlob: dk.CiphertextBlob, EncryptionContext: map[string]string{"cluster": "other"}}); code(err) != "InvalidCiphertextException" {
		t.Errorf("another context: %v", err)
	}
	broken := bytes.Clone(dk.CiphertextBlob)
	broken[len(broken)-1] ^= 1
	if _, err := c.Decrypt(t.Context(), &kms.DecryptInput{CiphertextBlob: broken, EncryptionContext: context}); code(err) != "InvalidCiphertextException" {
		t.Errorf("a changed bit: %v", err)
	}
	if _, err := c.ScheduleKeyDeletion(t.Context(), &kms.ScheduleKeyDeletionInput{KeyId: id, PendingWindowInDays: aws.Int32(7)}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Decrypt(t.Context(), &kms.DecryptInput{CiphertextBlob: dk.CiphertextBlob, EncryptionContext: context}); code(err) != "KMSInvalidStateException" {
		t.Errorf("a key that waits for its deletion: %v", err)
	}
	if _, err := c.ScheduleKeyDeletion(t.Context(), &kms.ScheduleKeyDeletionInput{KeyId: id}); code(err) != "KMSInvalidStateException" {
		t.Errorf("second schedule: %v", err)
	}
}

func TestListsAndTags(t *testing.T) {
	c := serve(t, t.TempDir())
	made, err := c.CreateKey(t.Context(), &kms.CreateKeyInput{})
	if err != nil {
		t.Fatal(err)
	}
	id := made.KeyMetadata.KeyId
	if _, err := c.TagResource(t.Context(), &kms.TagResourceInput{KeyId: id, Tags: []types.Tag{{TagKey: aws.String("a"), TagValue: aws.String("1")}, {TagKey: aws.String("b"), TagValue: aws.String("2")}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.UntagResource(t.Context(), &kms.UntagResourceInput{KeyId: id, TagKeys: []string{"a"}}); err != nil {
		t.Fatal(err)
	}
	tags, err := c.ListResourceTags(t.Context(), &kms.ListResourceTagsInput{KeyId: id})
	if err != nil || len(tags.Tags) != 1 || *tags.Tags[0].TagKey != "b" {
		t.Errorf("tags %+v %v", tags, err)
	}
	if _, err := c.CreateAlias(t.Context(), &kms.CreateAliasInput{AliasName: aws.String("nope"), TargetKeyId: id}); code(err) != "ValidationException" {
		t.Errorf("a bad alias: %v", err)
	}
	for range 2 {
		_, err = c.CreateAlias(t.Context(), &kms.CreateAliasInput{AliasName: aws.String("alias/x"), TargetKeyId: id})
	}
	if code(err) != "AlreadyExistsException" {
		t.Errorf("an alias twice: %v", err)
	}
	list, err := c.ListAliases(t.Context(), &kms.ListAliasesInput{KeyId: id})
	if err != nil || len(list.Aliases) != 1 || *list.Aliases[0].TargetKeyId != *id {
		t.Errorf("aliases %+v %v", list, err)
	}
	if _, err := c.EnableKeyRotation(t.Context(), &kms.EnableKeyRotationInput{KeyId: id}); err != nil {
		t.Fatal(err)
	}
	if r, err := c.GetKeyRotationStatus(t.Context(), &kms.GetKeyRotationStatusInput{KeyId: id}); err != nil || !r.KeyRotationEnabled {
		t.Errorf("rotation %+v %v", r, err)
	}
	if _, err := c.DescribeKey(t.Context(), &kms.DescribeKeyInput{KeyId: aws.String("alias/none")}); code(err) != "NotFoundException" {
		t.Errorf("an alias that is not: %v", err)
	}
}

// TestDecryptByAlias: a request may name the key of a ciphertext by the ARN of an alias, and another key is refused.
func TestDecryptByAlias(t *testing.T) {
	c := serve(t, t.TempDir())
	made, err := c.CreateKey(t.Context(), &kms.CreateKeyInput{})
	if err != nil {
		t.Fatal(err)
	}
	other, err := c.CreateKey(t.Context(), &kms.CreateKeyInput{})
	if err != nil {
		t.Fatal(err)
	}
	id := made.KeyMetadata.KeyId
	if _, err := c.CreateAlias(t.Context(), &kms.CreateAliasInput{AliasName: aws.String("alias/x"), TargetKeyId: id}); err != nil {
		t.Fatal(err)
	}
	dk, err := c.GenerateDataKey(t.Context(), &kms.GenerateDataKeyInput{KeyId: id, KeySpec: types.DataKeySpecAes256})
	if err != nil {
		t.Fatal(err)
	}
	arn := strings.Replace(*made.KeyMetadata.Arn, "key/"+*id, "alias/x", 1)
	for _, name := range []string{arn, "alias/x"} {
		out, err := c.Decrypt(t.Context(), &kms.DecryptInput{CiphertextBlob: dk.CiphertextBlob, KeyId: &name})
		if err != nil || !bytes.Equal(out.Plaintext, dk.Plaintext) {
			t.Errorf("%s: %v", name, err)
		}
	}
	strange, err := c.GenerateDataKey(t.Context(), &kms.GenerateDataKeyInput{KeyId: other.KeyMetadata.KeyId, KeySpec: types.DataKeySpecAes256})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Decrypt(t.Context(), &kms.DecryptInput{CiphertextBlob: strange.CiphertextBlob, KeyId: &arn}); code(err) != "IncorrectKeyException" {
		t.Errorf("a ciphertext of another key: %v", err)
	}
}
