// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/aws/aws-sdk-go/service/s3"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// settingOps returns the operations on a bucket's settings.
func (s *Service) settingOps() []wire.Operation {
	return slices.Concat(
		s.versioningOps(),
		s.policyOps(),
		s.publicAccessBlockOps(),
		s.encryptionOps(),
		s.taggingOps(),
		s.ownershipOps(),
		s.lifecycleOps(),
	)
}

func (s *Service) versioningOps() []wire.Operation {
	setting := bucketSetting{name: versioningSettingName, action: "BucketVersioning"}

	return []wire.Operation{
		newPutOperation[s3.PutBucketVersioningInput, s3.PutBucketVersioningOutput](
			s,
			setting,
			func(in *s3.PutBucketVersioningInput) (*string, *s3.VersioningConfiguration) {
				return in.Bucket, in.VersioningConfiguration
			},
			validateVersioning,
		),
		newGetOperation(
			s,
			setting,
			func(in *s3.GetBucketVersioningInput) *string { return in.Bucket },
			func(out *s3.GetBucketVersioningOutput, v *s3.VersioningConfiguration) { out.Status = v.Status },
		),
	}
}

func (s *Service) policyOps() []wire.Operation {
	setting := bucketSetting{
		name:     policySettingName,
		action:   "BucketPolicy",
		notFound: noSuchBucketPolicy,
	}

	return []wire.Operation{
		newPutOperation[s3.PutBucketPolicyInput, s3.PutBucketPolicyOutput](
			s,
			setting,
			func(in *s3.PutBucketPolicyInput) (*string, *string) { return in.Bucket, in.Policy },
			acceptAny[string],
		),
		newGetOperation(
			s,
			setting,
			func(in *s3.GetBucketPolicyInput) *string { return in.Bucket },
			func(out *s3.GetBucketPolicyOutput, v *string) { out.Policy = v },
		),
		newDeleteOperation[s3.DeleteBucketPolicyInput, s3.DeleteBucketPolicyOutput](
			s,
			"DeleteBucketPolicy",
			setting,
			func(in *s3.DeleteBucketPolicyInput) *string { return in.Bucket },
		),
	}
}

func (s *Service) publicAccessBlockOps() []wire.Operation {
	setting := bucketSetting{
		name:     publicBlockSettingName,
		action:   "BucketPublicAccessBlock",
		notFound: noSuchPublicBlock,
	}

	return []wire.Operation{
		newPutOperation[s3.PutPublicAccessBlockInput, s3.PutPublicAccessBlockOutput](
			s,
			setting,
			func(in *s3.PutPublicAccessBlockInput) (*string, *s3.PublicAccessBlockConfiguration) {
				return in.Bucket, in.PublicAccessBlockConfiguration
			},
			validateAccessBlock,
		),
		newGetOperation(
			s,
			setting,
			func(in *s3.GetPublicAccessBlockInput) *string { return in.Bucket },
			func(out *s3.GetPublicAccessBlockOutput, v *s3.PublicAccessBlockConfiguration) {
				out.PublicAccessBlockConfiguration = v
			},
		),
		newDeleteOperation[s3.DeletePublicAccessBlockInput, s3.DeletePublicAccessBlockOutput](
			s,
			"DeletePublicAccessBlock",
			setting,
			func(in *s3.DeletePublicAccessBlockInput) *string { return in.Bucket },
		),
	}
}

func (s *Service) encryptionOps() []wire.Operation {
	setting := bucketSetting{
		name:     encryptionSettingName,
		action:   "EncryptionConfiguration",
		notFound: noEncryption,
	}

	return []wire.Operation{
		newPutOperation[s3.PutBucketEncryptionInput, s3.PutBucketEncryptionOutput](
			s,
			setting,
			func(in *s3.PutBucketEncryptionInput) (*string, *s3.ServerSideEncryptionConfiguration) {
				return in.Bucket, in.ServerSideEncryptionConfiguration
			},
			validateEncryption,
		),
		newGetOperation(
			s,
			setting,
			func(in *s3.GetBucketEncryptionInput) *string { return in.Bucket },
			func(out *s3.GetBucketEncryptionOutput, v *s3.ServerSideEncryptionConfiguration) {
				out.ServerSideEncryptionConfiguration = v
			},
		),
		wire.NewOperation("DeleteBucketEncryption", s.deleteBucketEncryption),
	}
}

// deleteBucketEncryption sets a bucket's encryption to S3's default: every bucket is encrypted.
func (s *Service) deleteBucketEncryption(
	ctx context.Context,
	in *s3.DeleteBucketEncryptionInput,
) (*s3.DeleteBucketEncryptionOutput, error) {
	if err := s.authorizeObject(ctx, "PutEncryptionConfiguration", *in.Bucket, ""); err != nil {
		return nil, err
	}

	raw, err := json.Marshal(defaultEncryption())
	if err != nil {
		return nil, err
	}

	wire.SetResponseStatus(ctx, http.StatusNoContent)

	return &s3.DeleteBucketEncryptionOutput{}, s.updateSetting(in.Bucket, encryptionSettingName, raw)
}

// taggingSettingName is the name under which the tags of a bucket are saved.
const taggingSettingName = "BucketTagging"

func (s *Service) taggingOps() []wire.Operation {
	setting := bucketSetting{
		name:     taggingSettingName,
		action:   "BucketTagging",
		notFound: noSuchTagSet,
		// As S3 answers, verified by a test of moto.
		putStatus: http.StatusNoContent,
		unsets:    isEmptyTagSet,
	}

	return []wire.Operation{
		newPutOperation[s3.PutBucketTaggingInput, s3.PutBucketTaggingOutput](
			s,
			setting,
			func(in *s3.PutBucketTaggingInput) (*string, *s3.Tagging) { return in.Bucket, in.Tagging },
			validateTagging,
		),
		newGetOperation(
			s,
			setting,
			func(in *s3.GetBucketTaggingInput) *string { return in.Bucket },
			func(out *s3.GetBucketTaggingOutput, v *s3.Tagging) { out.TagSet = v.TagSet },
		),
		newDeleteOperation[s3.DeleteBucketTaggingInput, s3.DeleteBucketTaggingOutput](
			s,
			"DeleteBucketTagging",
			setting,
			func(in *s3.DeleteBucketTaggingInput) *string { return in.Bucket },
		),
	}
}

// isEmptyTagSet reports whether the JSON of a bucket's tagging has no tags.
func isEmptyTagSet(raw json.RawMessage) bool {
	return slices.Contains([]string{`{"TagSet":[]}`, `{"TagSet":null}`}, string(raw))
}

func (s *Service) ownershipOps() []wire.Operation {
	setting := bucketSetting{
		name:     ownershipSettingName,
		action:   "BucketOwnershipControls",
		notFound: ownershipControlsUnset,
	}

	return []wire.Operation{
		newPutOperation[s3.PutBucketOwnershipControlsInput, s3.PutBucketOwnershipControlsOutput](
			s,
			setting,
			func(in *s3.PutBucketOwnershipControlsInput) (*string, *s3.OwnershipControls) {
				return in.Bucket, in.OwnershipControls
			},
			validateOwnership,
		),
		newGetOperation(
			s,
			setting,
			func(in *s3.GetBucketOwnershipControlsInput) *string { return in.Bucket },
			func(out *s3.GetBucketOwnershipControlsOutput, v *s3.OwnershipControls) {
				out.OwnershipControls = v
			},
		),
		newDeleteOperation[s3.DeleteBucketOwnershipControlsInput, s3.DeleteBucketOwnershipControlsOutput](
			s,
			"DeleteBucketOwnershipControls",
			setting,
			func(in *s3.DeleteBucketOwnershipControlsInput) *string { return in.Bucket },
		),
	}
}

// transitionSizeHeader is the header with the size below which rules leave objects in their storage class.
const transitionSizeHeader = "x-amz-transition-default-minimum-object-size"

func (s *Service) lifecycleOps() []wire.Operation {
	setting := bucketSetting{
		name:     lifecycleSettingName,
		action:   "LifecycleConfiguration",
		notFound: noSuchLifecycle,
		defaults: map[string]string{transitionSizeHeader: "all_storage_classes_128K"},
	}

	return []wire.Operation{
		newPutOperation[s3.PutBucketLifecycleConfigurationInput, s3.PutBucketLifecycleConfigurationOutput](
			s,
			setting,
			func(in *s3.PutBucketLifecycleConfigurationInput) (*string, *s3.BucketLifecycleConfiguration) {
				return in.Bucket, in.LifecycleConfiguration
			},
			prepareLifecycle,
		),
		newGetOperation(
			s,
			setting,
			func(in *s3.GetBucketLifecycleConfigurationInput) *string { return in.Bucket },
			func(out *s3.GetBucketLifecycleConfigurationOutput, v *s3.BucketLifecycleConfiguration) {
				out.Rules = v.Rules
			},
		),
		newDeleteOperation[s3.DeleteBucketLifecycleInput, s3.DeleteBucketLifecycleOutput](
			s,
			"DeleteBucketLifecycle",
			setting,
			func(in *s3.DeleteBucketLifecycleInput) *string { return in.Bucket },
		),
	}
}

// The settings that the region itself reads, by the name under which they are saved.
const (
	encryptionSettingName  = "BucketEncryption"
	lifecycleSettingName   = "BucketLifecycleConfiguration"
	ownershipSettingName   = "BucketOwnershipControls"
	policySettingName      = "BucketPolicy"
	publicBlockSettingName = "PublicAccessBlock"
	versioningSettingName  = "BucketVersioning"
)

// hasVersioningConfig reports whether versioning was ever enabled: deletions then leave a delete marker, even
// while versioning is suspended.
func (b *bucket) hasVersioningConfig() bool {
	_, ok := b.Config[versioningSettingName]
	return ok
}

// isVersioned reports whether a write keeps older versions.
func (b *bucket) isVersioned() bool {
	var v s3.VersioningConfiguration
	return json.Unmarshal(b.Config[versioningSettingName], &v) == nil &&
		stringValue(v.Status) == s3.BucketVersioningStatusEnabled
}
