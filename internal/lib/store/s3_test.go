// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/lib/store/storetest"
	"github.com/slipway-k8s/slipway/test/moto"
)

func testBucket() string { return "slipway-test-" + strings.ToLower(rand.Text()) }

func TestS3AgainstMoto(t *testing.T) {
	cfg := moto.Start(t)
	opts := store.Options{AWS: func(context.Context) (aws.Config, error) { return cfg, nil }}
	bucket := testBucket()
	url := "s3://" + bucket + "/some/prefix"
	_, _, err := store.Open(t.Context(), url, opts)
	if !errors.Is(err, store.ErrNotFound) {
		t.Errorf("opening a bucket that is not there gave %v", err)
	}
	initialise(t, url, opts)
	initialise(t, "s3://"+bucket+"/another/prefix", opts) // in the same bucket, with the same key
	t.Run("bucket", func(t *testing.T) { testBucketSettings(t, cfg, bucket) })
	t.Run("key", func(t *testing.T) { testBucketKey(t, cfg, bucket) })
	storetest.Run(t, func(t *testing.T) store.Store {
		t.Helper()
		return store.NewS3Store(s3.NewFromConfig(cfg), bucket, "conformance/"+rand.Text())
	})
	t.Run("sealer", func(t *testing.T) {
		_, sealer, err := store.Open(t.Context(), url, opts)
		if err != nil {
			t.Fatal(err)
		}
		other := testBucket()
		initialise(t, "s3://"+other, opts)
		_, otherSealer, err := store.Open(t.Context(), "s3://"+other, opts)
		if err != nil {
			t.Fatal(err)
		}
		storetest.RunSealer(t, sealer, otherSealer)
	})
}

func testBucketSettings(t *testing.T, cfg aws.Config, bucket string) {
	t.Helper()
	c := s3.NewFromConfig(cfg)
	access, err := c.GetPublicAccessBlock(t.Context(), &s3.GetPublicAccessBlockInput{Bucket: &bucket})
	if err != nil {
		t.Fatal(err)
	}
	b := access.PublicAccessBlockConfiguration
	for name, on := range map[string]*bool{
		"BlockPublicAcls": b.BlockPublicAcls, "BlockPublicPolicy": b.BlockPublicPolicy,
		"IgnorePublicAcls": b.IgnorePublicAcls, "RestrictPublicBuckets": b.RestrictPublicBuckets,
	} {
		if !aws.ToBool(on) {
			t.Errorf("%s is off", name)
		}
	}
	v, err := c.GetBucketVersioning(t.Context(), &s3.GetBucketVersioningInput{Bucket: &bucket})
	if err != nil || v.Status != "Enabled" {
		t.Errorf("versioning is %q (%v)", v.Status, err)
	}
	e, err := c.GetBucketEncryption(t.Context(), &s3.GetBucketEncryptionInput{Bucket: &bucket})
	if err != nil || e.ServerSideEncryptionConfiguration.Rules[0].ApplyServerSideEncryptionByDefault.SSEAlgorithm != "aws:kms" {
		t.Errorf("encryption is %+v (%v)", e, err)
	}
}

func testBucketKey(t *testing.T, cfg aws.Config, bucket string) {
	t.Helper()
	c := kms.NewFromConfig(cfg)
	key, err := c.DescribeKey(t.Context(), &kms.DescribeKeyInput{KeyId: aws.String("alias/slipway-" + bucket)})
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.GetKeyRotationStatus(t.Context(), &kms.GetKeyRotationStatusInput{KeyId: key.KeyMetadata.KeyId})
	if err != nil || !r.KeyRotationEnabled {
		t.Errorf("rotation is %v (%v)", r.KeyRotationEnabled, err)
	}
}
