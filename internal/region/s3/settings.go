// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"encoding/json"

	"github.com/aws/aws-sdk-go/service/s3"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// settingOps lists the operations on a bucket's settings.
func (s *Service) settingOps() []wire.Op {
	versioning := bucketSetting{name: "BucketVersioning", action: "BucketVersioning"}
	policy := bucketSetting{name: "BucketPolicy", action: "BucketPolicy", notFoundCode: "NoSuchBucketPolicy"}
	public := bucketSetting{
		name:         "PublicAccessBlock",
		action:       "BucketPublicAccessBlock",
		notFoundCode: "NoSuchPublicAccessBlockConfiguration",
	}

	encryption := bucketSetting{
		name:         "BucketEncryption",
		action:       "EncryptionConfiguration",
		notFoundCode: "ServerSideEncryptionConfigurationNotFoundError",
	}

	tagging := bucketSetting{name: "BucketTagging", action: "BucketTagging", notFoundCode: "NoSuchTagSet"}
	ownership := bucketSetting{
		name:         "BucketOwnershipControls",
		action:       "BucketOwnershipControls",
		notFoundCode: "OwnershipControlsNotFoundError",
	}

	lifecycle := bucketSetting{
		name:         "BucketLifecycleConfiguration",
		action:       "LifecycleConfiguration",
		notFoundCode: "NoSuchLifecycleConfiguration",
	}

	return []wire.Op{
		newPutOperation[s3.PutBucketVersioningInput, s3.PutBucketVersioningOutput](
			s,
			versioning,
			func(in *s3.PutBucketVersioningInput) (*string, *s3.VersioningConfiguration) {
				return in.Bucket, in.VersioningConfiguration
			},
		),
		newGetOperation(
			s,
			versioning,
			func(in *s3.GetBucketVersioningInput) *string { return in.Bucket },
			func(out *s3.GetBucketVersioningOutput, v *s3.VersioningConfiguration) {
				out.Status = v.Status
			},
		),
		newPutOperation[s3.PutBucketPolicyInput, s3.PutBucketPolicyOutput](
			s,
			policy,
			func(in *s3.PutBucketPolicyInput) (*string, *string) { return in.Bucket, in.Policy },
		),
		newGetOperation(
			s,
			policy,
			func(in *s3.GetBucketPolicyInput) *string { return in.Bucket },
			func(out *s3.GetBucketPolicyOutput, v *string) { out.Policy = v },
		),
		newDeleteOperation[s3.DeleteBucketPolicyInput, s3.DeleteBucketPolicyOutput](
			s,
			"DeleteBucketPolicy",
			policy,
			func(in *s3.DeleteBucketPolicyInput) *string { return in.Bucket },
		),
		newPutOperation[s3.PutPublicAccessBlockInput, s3.PutPublicAccessBlockOutput](
			s,
			public,
			func(in *s3.PutPublicAccessBlockInput) (*string, *s3.PublicAccessBlockConfiguration) {
				return in.Bucket, in.PublicAccessBlockConfiguration
			},
		),
		newGetOperation(
			s,
			public,
			func(in *s3.GetPublicAccessBlockInput) *string { return in.Bucket },
			func(out *s3.GetPublicAccessBlockOutput, v *s3.PublicAccessBlockConfiguration) {
				out.PublicAccessBlockConfiguration = v
			},
		),
		newDeleteOperation[s3.DeletePublicAccessBlockInput, s3.DeletePublicAccessBlockOutput](
			s,
			"DeletePublicAccessBlock",
			public,
			func(in *s3.DeletePublicAccessBlockInput) *string { return in.Bucket },
		),
		newPutOperation[s3.PutBucketEncryptionInput, s3.PutBucketEncryptionOutput](
			s,
			encryption,
			func(in *s3.PutBucketEncryptionInput) (*string, *s3.ServerSideEncryptionConfiguration) {
				return in.Bucket, in.ServerSideEncryptionConfiguration
			},
		),
		newGetOperation(
			s,
			encryption,
			func(in *s3.GetBucketEncryptionInput) *string { return in.Bucket },
			func(out *s3.GetBucketEncryptionOutput, v *s3.ServerSideEncryptionConfiguration) {
				out.ServerSideEncryptionConfiguration = v
			},
		),
		newDeleteOperation[s3.DeleteBucketEncryptionInput, s3.DeleteBucketEncryptionOutput](
			s,
			"DeleteBucketEncryption",
			encryption,
			func(in *s3.DeleteBucketEncryptionInput) *string { return in.Bucket },
		),
		newPutOperation[s3.PutBucketTaggingInput, s3.PutBucketTaggingOutput](
			s,
			tagging,
			func(in *s3.PutBucketTaggingInput) (*string, *s3.Tagging) { return in.Bucket, in.Tagging },
		),
		newGetOperation(
			s,
			tagging,
			func(in *s3.GetBucketTaggingInput) *string { return in.Bucket },
			func(out *s3.GetBucketTaggingOutput, v *s3.Tagging) { out.TagSet = v.TagSet },
		),
		newDeleteOperation[s3.DeleteBucketTaggingInput, s3.DeleteBucketTaggingOutput](
			s,
			"DeleteBucketTagging",
			tagging,
			func(in *s3.DeleteBucketTaggingInput) *string { return in.Bucket },
		),
		newPutOperation[s3.PutBucketOwnershipControlsInput, s3.PutBucketOwnershipControlsOutput](
			s,
			ownership,
			func(in *s3.PutBucketOwnershipControlsInput) (*string, *s3.OwnershipControls) {
				return in.Bucket, in.OwnershipControls
			},
		),
		newGetOperation(
			s,
			ownership,
			func(in *s3.GetBucketOwnershipControlsInput) *string { return in.Bucket },
			func(out *s3.GetBucketOwnershipControlsOutput, v *s3.OwnershipControls) {
				out.OwnershipControls = v
			},
		),
		newPutOperation[s3.PutBucketLifecycleConfigurationInput, s3.PutBucketLifecycleConfigurationOutput](
			s,
			lifecycle,
			func(in *s3.PutBucketLifecycleConfigurationInput) (*string, *s3.BucketLifecycleConfiguration) {
				return in.Bucket, in.LifecycleConfiguration
			},
		),
		newGetOperation(
			s,
			lifecycle,
			func(in *s3.GetBucketLifecycleConfigurationInput) *string { return in.Bucket },
			func(out *s3.GetBucketLifecycleConfigurationOutput, v *s3.BucketLifecycleConfiguration) {
				out.Rules = v.Rules
			},
		),
		newDeleteOperation[s3.DeleteBucketLifecycleInput, s3.DeleteBucketLifecycleOutput](
			s,
			"DeleteBucketLifecycle",
			lifecycle,
			func(in *s3.DeleteBucketLifecycleInput) *string { return in.Bucket },
		),
	}
}

// hasVersioningConfig says whether versions were ever kept: then a deletion leaves a marker, also while they are suspended.
func (b *bucket) hasVersioningConfig() bool {
	_, ok := b.Config["BucketVersioning"]
	return ok
}

// isVersioned says whether writes keep older versions.
func (b *bucket) isVersioned() bool {
	var v s3.VersioningConfiguration
	return json.Unmarshal(b.Config["BucketVersioning"], &v) == nil &&
		stringValue(v.Status) == s3.BucketVersioningStatusEnabled
}
