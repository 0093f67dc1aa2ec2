// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/oidcdiscovery"
	"github.com/slipway-k8s/slipway/internal/lib/partition"
)

// OpenDiscovery opens the discovery store at an s3:// URL: a bucket whose only objects are documents that everybody can
// read. It has no settings and no key. It need not exist.
func OpenDiscovery(ctx context.Context, rawURL string, opts Options) (Store, error) {
	s, _, err := connectDiscovery(ctx, rawURL, opts)
	return s, err
}

func connectDiscovery(ctx context.Context, rawURL string, opts Options) (*S3Store, aws.Config, error) {
	s, cfg, err := connectStore(ctx, rawURL, opts)
	if err != nil {
		return nil, cfg, err
	}

	bucket, ok := s.(*S3Store)
	if !ok || strings.Contains(bucket.bucket, ".") {
		return nil, cfg, diag.WithHint(
			fmt.Errorf("%s is not a discovery store", rawURL),
			"use s3://bucket/prefix: everybody must be able to read it at https://bucket.s3.REGION.amazonaws.com, "+
				"and S3's certificate covers no bucket with a dot in its name",
		)
	}

	return bucket, cfg, nil
}

// discoveryInitializer creates the bucket of a discovery store.
type discoveryInitializer struct {
	s3Initializer
	store *S3Store
}

// PlanDiscoveryInit returns the steps that create the bucket of the discovery store at rawURL, or that make sure that an
// existing one is set up as needed. Every step is idempotent. An existing policy is never replaced.
func PlanDiscoveryInit(ctx context.Context, rawURL string, opts Options) ([]InitStep, error) {
	s, cfg, err := connectDiscovery(ctx, rawURL, opts)
	if err != nil {
		return nil, err
	}

	client := s3.NewFromConfig(cfg, ExpectOwner(s.owner))
	m := discoveryInitializer{
		s3Initializer: s3Initializer{
			buckets:  client,
			bucket:   s.bucket,
			region:   cfg.Region,
			endpoint: aws.ToString(client.Options().BaseEndpoint),
		},
		store: &S3Store{api: s.api, bucket: s.bucket, owner: s.owner}, // the whole bucket
	}

	return []InitStep{
		{Description: "bucket " + s.bucket + ", without other objects", run: m.ensureOwnBucket},
		{Description: "encryption of " + s.bucket + " with keys of S3, so that everybody can read", run: m.setEncryption},
		{Description: "versioning of " + s.bucket, run: m.enableVersioning},
		{
			Description: "public access block of " + s.bucket + ": public ACLs are blocked, a public policy is not",
			run:         m.allowPublicPolicy,
		},
		{
			Description: "policy of " + s.bucket + ": everybody reads */" + oidcdiscovery.ConfigurationPath + " and */" +
				oidcdiscovery.KeySetPath + ", and nothing else",
			run: m.putPolicy,
		},
	}, nil
}

// ensureOwnBucket creates the bucket, or makes sure that an existing one is for nothing else.
func (m discoveryInitializer) ensureOwnBucket(ctx context.Context) error {
	if err := m.ensureBucket(ctx); err != nil {
		return err
	}

	return m.checkObjects(ctx)
}

// checkObjects returns an error if the bucket has other objects than the documents of issuers: it is a bucket for
// something else, such as the state.
func (m discoveryInitializer) checkObjects(ctx context.Context) error {
	keys, err := m.store.List(ctx, "")
	if err != nil {
		return err
	}

	for _, key := range keys {
		if !strings.HasSuffix(key, "/"+oidcdiscovery.ConfigurationPath) &&
			!strings.HasSuffix(key, "/"+oidcdiscovery.KeySetPath) {
			return diag.WithHint(
				fmt.Errorf("the bucket has the object %s", key),
				"use a bucket of its own: everybody can read parts of it",
			)
		}
	}

	return nil
}

// setEncryption sets keys of S3: nobody without credentials can read what a key of KMS encrypts.
func (m discoveryInitializer) setEncryption(ctx context.Context) error {
	_, err := m.buckets.PutBucketEncryption(ctx, &s3.PutBucketEncryptionInput{
		Bucket: &m.bucket,
		ServerSideEncryptionConfiguration: &s3types.ServerSideEncryptionConfiguration{
			Rules: []s3types.ServerSideEncryptionRule{{
				ApplyServerSideEncryptionByDefault: &s3types.ServerSideEncryptionByDefault{
					SSEAlgorithm: s3types.ServerSideEncryptionAes256,
				},
			}},
		},
	})

	return err
}

// allowPublicPolicy blocks public ACLs and allows a public policy. New buckets block both.
func (m discoveryInitializer) allowPublicPolicy(ctx context.Context) error {
	on := aws.Bool(true)
	off := aws.Bool(false)
	_, err := m.buckets.PutPublicAccessBlock(ctx, &s3.PutPublicAccessBlockInput{
		Bucket: &m.bucket,
		PublicAccessBlockConfiguration: &s3types.PublicAccessBlockConfiguration{
			BlockPublicAcls:       on,
			IgnorePublicAcls:      on,
			BlockPublicPolicy:     off,
			RestrictPublicBuckets: off,
		},
	})

	return err
}

// putPolicy sets the policy of the bucket, unless it has this policy already.
func (m discoveryInitializer) putPolicy(ctx context.Context) error {
	policy, err := m.policy()
	if err != nil {
		return err
	}

	have, err := m.buckets.GetBucketPolicy(ctx, &s3.GetBucketPolicyInput{Bucket: &m.bucket})
	switch {
	case err == nil && sameJSON(aws.ToString(have.Policy), policy):
		return nil
	case err == nil:
		return diag.WithHint(fmt.Errorf("bucket %s already has another policy", m.bucket),
			"use a bucket of its own, or delete that policy")
	case errorCode(err) != "NoSuchBucketPolicy":
		return err
	}

	_, err = m.buckets.PutBucketPolicy(ctx, &s3.PutBucketPolicyInput{Bucket: &m.bucket, Policy: &policy})
	if IsAccessDenied(err) {
		return diag.WithHint(err, "block public access may be on for the whole account, which no bucket can override: "+
			"aws s3control get-public-access-block --account-id ACCOUNT")
	}

	return err
}

// policy returns the policy of the bucket: everybody can read the two documents of each issuer, over TLS.
func (m discoveryInitializer) policy() (string, error) {
	bucket := "arn:" + partition.OfRegion(m.region).Name + ":s3:::" + m.bucket
	statements := []map[string]any{{
		"Sid":       "EverybodyReadsIssuers",
		"Effect":    "Allow",
		"Principal": "*",
		"Action":    "s3:GetObject",
		"Resource": []string{
			bucket + "/*/" + oidcdiscovery.ConfigurationPath,
			bucket + "/*/" + oidcdiscovery.KeySetPath,
		},
	}}
	if !m.isPlainHTTP() {
		statements = append(statements, denyPlainHTTP(bucket))
	}

	b, err := json.Marshal(map[string]any{"Version": "2012-10-17", "Statement": statements})

	return string(b), err
}

// sameJSON reports whether two policies have the same content.
func sameJSON(a, b string) bool {
	var x, y any
	if errors.Join(json.Unmarshal([]byte(a), &x), json.Unmarshal([]byte(b), &y)) != nil {
		return false
	}

	ax, errX := json.Marshal(x)
	by, errY := json.Marshal(y)

	return errX == nil && errY == nil && slices.Equal(ax, by)
}
