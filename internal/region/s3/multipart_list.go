// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go/service/s3"
)

func (s *Service) listParts(ctx context.Context, in *s3.ListPartsInput) (*s3.ListPartsOutput, error) {
	if err := s.authorizeObject(ctx, "ListMultipartUploadParts", *in.Bucket, *in.Key); err != nil {
		return nil, err
	}

	limit, err := pageLimit("max-parts", in.MaxParts)
	if err != nil {
		return nil, err
	}

	out := &s3.ListPartsOutput{
		Bucket:           in.Bucket,
		Key:              in.Key,
		UploadId:         in.UploadId,
		IsTruncated:      new(false),
		MaxParts:         new(int64(limit)),
		Initiator:        &s3.Initiator{ID: new(ownerID), DisplayName: new(ownerID)},
		Owner:            newOwner(),
		PartNumberMarker: in.PartNumberMarker,
	}

	err = s.viewBucket(in.Bucket, func(b *bucket) error {
		u, err := b.findUpload(in.UploadId, in.Key)
		if err == nil {
			out.StorageClass = objectVersion{Headers: u.Headers}.storageClass()
			addListedParts(out, u, in.PartNumberMarker)
		}

		return err
	})
	if err != nil {
		return nil, err
	}

	return out, nil
}

// addListedParts adds the parts of an upload to a list, from the one after the number marker.
func addListedParts(out *s3.ListPartsOutput, u *multipartUpload, marker *int64) {
	if u.Checksum != "" {
		out.ChecksumAlgorithm = new(strings.ToUpper(u.Checksum))
	}

	for _, n := range slices.Sorted(maps.Keys(u.Parts)) {
		if marker != nil && n <= *marker {
			continue
		}

		if int64(len(out.Parts)) == *out.MaxParts {
			out.IsTruncated = new(true)
			break
		}

		part := u.Parts[n]
		out.NextPartNumberMarker = &n
		out.Parts = append(out.Parts, &s3.Part{
			PartNumber:     &n,
			ETag:           &part.ETag,
			Size:           &part.Size,
			LastModified:   &part.Modified,
			ChecksumCRC32:  part.checksum("crc32"),
			ChecksumCRC32C: part.checksum("crc32c"),
			ChecksumSHA1:   part.checksum("sha1"),
			ChecksumSHA256: part.checksum("sha256"),
		})
	}
}

func (s *Service) listMultipartUploads(
	ctx context.Context,
	in *s3.ListMultipartUploadsInput,
) (*s3.ListMultipartUploadsOutput, error) {
	if err := s.authorizeObject(ctx, "ListBucketMultipartUploads", *in.Bucket, ""); err != nil {
		return nil, err
	}

	limit, err := pageLimit("max-uploads", in.MaxUploads)
	if err != nil {
		return nil, err
	}

	out := &s3.ListMultipartUploadsOutput{
		Bucket:         in.Bucket,
		Prefix:         in.Prefix,
		EncodingType:   in.EncodingType,
		KeyMarker:      orEmpty(in.KeyMarker),
		UploadIdMarker: orEmpty(in.UploadIdMarker),
		MaxUploads:     new(int64(limit)),
		IsTruncated:    new(false),
	}
	err = s.viewBucket(in.Bucket, func(b *bucket) error {
		addListedUploads(out, b)
		return nil
	})

	return out, err
}

// addListedUploads adds the uploads with the prefix of a list to it, in the order of their keys, from the one after
// the markers.
func addListedUploads(out *s3.ListMultipartUploadsOutput, b *bucket) {
	ids := slices.SortedFunc(maps.Keys(b.Uploads), func(x, y string) int {
		if c := strings.Compare(b.Uploads[x].Key, b.Uploads[y].Key); c != 0 {
			return c
		}

		return strings.Compare(x, y)
	})

	for _, id := range ids {
		u := b.Uploads[id]
		afterKey := u.Key > *out.KeyMarker
		afterID := *out.UploadIdMarker != "" && u.Key == *out.KeyMarker && id > *out.UploadIdMarker
		if !strings.HasPrefix(u.Key, stringValue(out.Prefix)) || !afterKey && !afterID {
			continue
		}

		if int64(len(out.Uploads)) == *out.MaxUploads {
			out.IsTruncated = new(true)
			break
		}

		out.NextKeyMarker = encodeListedKey(out.EncodingType, u.Key)
		out.NextUploadIdMarker = &id
		out.Uploads = append(out.Uploads, &s3.MultipartUpload{
			Key:          out.NextKeyMarker,
			UploadId:     &id,
			Initiated:    &u.Started,
			Owner:        newOwner(),
			StorageClass: objectVersion{Headers: u.Headers}.storageClass(),
		})
	}
}
