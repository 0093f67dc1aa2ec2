// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"strings"

	"github.com/aws/aws-sdk-go/service/s3"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// createBucketInput is the input of CreateBucket, with the tags that aws-sdk-go v1 does not have.
type createBucketInput struct {
	_ struct{} `locationName:"CreateBucketRequest" type:"structure" payload:"CreateBucketConfiguration"`

	s3.CreateBucketInput

	CreateBucketConfiguration *createBucketConfiguration `locationName:"CreateBucketConfiguration" type:"structure"`
}

type createBucketConfiguration struct {
	s3.CreateBucketConfiguration

	Tags []*s3.Tag `locationNameList:"Tag" type:"list"`
}

// The limits of S3 for the tags of a bucket.
const (
	maxBucketTags    = 50
	maxTagKeyRunes   = 128
	maxTagValueRunes = 256
)

// validateTags checks the tags of a bucket. systemTags is S3's message about tags of AWS.
func validateTags(tags []*s3.Tag, systemTags string) error {
	if len(tags) > maxBucketTags {
		return newError(tooManyBucketTags)
	}

	seen := map[string]bool{}

	for _, tag := range tags {
		if tag.Key == nil || tag.Value == nil {
			return newError(malformedXML)
		}

		key := *tag.Key

		switch {
		case seen[key]:
			return newErrorf(invalidTag, "Cannot provide multiple Tags with the same key").with(detail("TagKey", key))
		case key == "" || len([]rune(key)) > maxTagKeyRunes || !wire.IsTagText(key):
			return newErrorf(invalidTag, "The TagKey you have provided is invalid").with(detail("TagKey", key))
		case len([]rune(*tag.Value)) > maxTagValueRunes || !wire.IsTagText(*tag.Value):
			return newErrorf(invalidTag, "The TagValue you have provided is invalid").
				with(detail("TagKey", key), detail("TagValue", *tag.Value))

		case strings.HasPrefix(key, "aws:"):
			return newErrorf(invalidTag, "%s", systemTags).with(detail("TagKey", key))
		}

		seen[key] = true
	}

	return nil
}

func validateTagging(v *s3.Tagging) error {
	return validateTags(v.TagSet, "System tags cannot be added/updated by requester")
}

// checkNewTags checks the tags of a new bucket, which the caller must be allowed to set.
func (in *createBucketInput) checkNewTags(ctx context.Context) error {
	tags := in.newTags()
	if len(tags) == 0 {
		return nil
	}

	err := validateTags(tags, "User-defined tag keys can't start with \"aws:\". This prefix is reserved for system "+
		"tags. Remove \"aws:\" from your tag keys and try again.")
	if err != nil {
		return err
	}

	return wire.Authorize(ctx, wire.AccessCheck{Action: "s3:TagResource", Resource: bucketARN(*in.Bucket)})
}

// newTags returns the tags of a new bucket.
func (in *createBucketInput) newTags() []*s3.Tag {
	if in.CreateBucketConfiguration == nil {
		return nil
	}

	return in.CreateBucketConfiguration.Tags
}
