// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go/service/s3"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

func (s *Service) listObjectVersions(
	ctx context.Context,
	in *s3.ListObjectVersionsInput,
) (*listObjectVersionsOutput, error) {
	check := wire.AccessCheck{
		Action:   "s3:ListBucketVersions",
		Resource: "arn:aws:s3:::" + *in.Bucket,
		Context:  map[string][]string{"s3:prefix": {stringValue(in.Prefix)}},
	}
	if err := s.evaluateAccess(ctx, *in.Bucket, check); err != nil {
		return nil, err
	}

	limit, err := pageLimit("max-keys", in.MaxKeys)
	if err != nil {
		return nil, err
	}

	if in.VersionIdMarker != nil && in.KeyMarker == nil {
		return nil, newArgumentError(
			"version-id-marker",
			*in.VersionIdMarker,
			"A version-id marker cannot be specified without a key marker.",
		)
	}

	out := &listObjectVersionsOutput{ListObjectVersionsOutput: s3.ListObjectVersionsOutput{
		Name:            in.Bucket,
		Prefix:          orEmpty(in.Prefix),
		KeyMarker:       orEmpty(in.KeyMarker),
		VersionIdMarker: orEmpty(in.VersionIdMarker),
		EncodingType:    in.EncodingType,
		IsTruncated:     new(false),
		MaxKeys:         new(int64(limit)),
	}}
	err = s.viewBucket(in.Bucket, func(b *bucket) error {
		addListedKeys(out, b)
		return nil
	})

	out.Prefix = encodeListed(in.EncodingType, out.Prefix)
	out.KeyMarker = encodeListed(in.EncodingType, out.KeyMarker)

	return out, err
}

// addListedKeys adds the versions of the keys with the prefix of a list to it, from the one after its markers.
func addListedKeys(out *listObjectVersionsOutput, b *bucket) {
	left := int(*out.MaxKeys)
	lastKey := ""
	lastID := ""

	for _, key := range slices.Sorted(maps.Keys(b.Versions)) {
		if !strings.HasPrefix(key, *out.Prefix) || key < *out.KeyMarker {
			continue
		}

		for i, v := range versionsAfter(b.Versions[key], key, out) {
			if v.ID == "" {
				continue
			}

			if left == 0 {
				if *out.MaxKeys > 0 {
					out.IsTruncated = new(true)
					out.NextKeyMarker = encodeListed(out.EncodingType, &lastKey)
					out.NextVersionIdMarker = &lastID
				}

				return
			}

			addListedVersion(out, key, v, i == 0)
			left--
			lastKey = key
			lastID = v.ID
		}
	}
}

// versionsAfter returns the versions of a key, with empty ones in place of those that come before the markers of
// a list.
func versionsAfter(versions []objectVersion, key string, out *listObjectVersionsOutput) []objectVersion {
	if key != *out.KeyMarker || *out.KeyMarker == "" {
		return versions
	}

	skip := len(versions)
	if *out.VersionIdMarker != "" {
		skip = 1 + slices.IndexFunc(versions, func(v objectVersion) bool { return v.ID == *out.VersionIdMarker })
	}

	return append(make([]objectVersion, skip), versions[skip:]...)
}

// addListedVersion adds a version or a delete marker of a key to a list.
func addListedVersion(out *listObjectVersionsOutput, key string, v objectVersion, latest bool) {
	listed := encodeListed(out.EncodingType, &key)
	if v.Marker {
		out.DeleteMarkers = append(out.DeleteMarkers, &s3.DeleteMarkerEntry{
			Key:          listed,
			VersionId:    &v.ID,
			IsLatest:     &latest,
			LastModified: &v.Modified,
			Owner:        newOwner(),
		})

		return
	}

	out.Versions = append(out.Versions, &listedVersion{
		ObjectVersion: s3.ObjectVersion{
			Key:               listed,
			VersionId:         &v.ID,
			IsLatest:          &latest,
			LastModified:      &v.Modified,
			ETag:              &v.ETag,
			Size:              &v.Size,
			StorageClass:      v.storageClass(),
			Owner:             newOwner(),
			ChecksumAlgorithm: v.listedChecksums(),
		},
		ChecksumType: v.checksumType(),
	})
}
