// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go/service/s3"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

func (s *Service) listParts(ctx context.Context, in *s3.ListPartsInput) (*listPartsOutput, error) {
	if err := s.authorizeObject(ctx, "ListMultipartUploadParts", *in.Bucket, *in.Key); err != nil {
		return nil, err
	}

	limit, err := pageLimit("max-parts", in.MaxParts)
	if err != nil {
		return nil, err
	}

	marker := new(int64(0))
	if in.PartNumberMarker != nil {
		marker = in.PartNumberMarker
	}

	out := &listPartsOutput{ListPartsOutput: s3.ListPartsOutput{
		Bucket:               in.Bucket,
		Key:                  in.Key,
		UploadId:             in.UploadId,
		IsTruncated:          new(false),
		MaxParts:             new(int64(limit)),
		Initiator:            newInitiator(),
		Owner:                newOwner(),
		PartNumberMarker:     marker,
		NextPartNumberMarker: new(int64(0)),
	}}

	err = s.viewBucket(in.Bucket, func(b *bucket) error {
		u, err := b.findUpload(in.UploadId, in.Key)
		if err == nil {
			out.StorageClass = objectVersion{Headers: u.Headers}.storageClass()
			addListedParts(out, u)
		}

		return err
	})
	if err != nil {
		return nil, err
	}

	return out, nil
}

// newInitiator returns who began an upload.
func newInitiator() *s3.Initiator { return &s3.Initiator{ID: new(ownerID), DisplayName: new(ownerID)} }

// addListedParts adds the parts of an upload to a list, from the one after its marker. Parts have their checksums if the
// creator of the upload chose one.
func addListedParts(out *listPartsOutput, u *multipartUpload) {
	out.ChecksumAlgorithm = sdkshape.StringOrNil(strings.ToUpper(u.Checksum))
	out.ChecksumType = sdkshape.StringOrNil(u.ChecksumType)

	for _, n := range slices.Sorted(maps.Keys(u.Parts)) {
		if n <= *out.PartNumberMarker {
			continue
		}

		if int64(len(out.Parts)) == *out.MaxParts {
			out.IsTruncated = new(true)
			break
		}

		part := u.Parts[n]
		out.NextPartNumberMarker = &n
		listed := &listedPart{Part: s3.Part{
			PartNumber:   &n,
			ETag:         &part.ETag,
			Size:         &part.Size,
			LastModified: &part.Modified,
		}}
		if u.Checksum != "" {
			listed.ChecksumCRC32 = part.checksum("crc32")
			listed.ChecksumCRC32C = part.checksum("crc32c")
			listed.ChecksumCRC64NVME = part.checksum("crc64nvme")
			listed.ChecksumSHA1 = part.checksum("sha1")
			listed.ChecksumSHA256 = part.checksum("sha256")
		}

		out.Parts = append(out.Parts, listed)
	}
}

func (s *Service) listMultipartUploads(
	ctx context.Context,
	in *s3.ListMultipartUploadsInput,
) (*listMultipartUploadsOutput, error) {
	if err := s.authorizeObject(ctx, "ListBucketMultipartUploads", *in.Bucket, ""); err != nil {
		return nil, err
	}

	limit, err := pageLimit("max-uploads", in.MaxUploads)
	if err != nil {
		return nil, err
	}

	out := &listMultipartUploadsOutput{ListMultipartUploadsOutput: s3.ListMultipartUploadsOutput{
		Bucket:         in.Bucket,
		Prefix:         in.Prefix,
		EncodingType:   in.EncodingType,
		KeyMarker:      orEmpty(in.KeyMarker),
		UploadIdMarker: orEmpty(in.UploadIdMarker),
		MaxUploads:     new(int64(limit)),
		IsTruncated:    new(false),
	}}
	err = s.viewBucket(in.Bucket, func(b *bucket) error {
		addListedUploads(out, b)
		return nil
	})

	out.Prefix = encodeListed(in.EncodingType, out.Prefix)
	out.KeyMarker = encodeListed(in.EncodingType, out.KeyMarker)

	return out, err
}

// addListedUploads adds the uploads with the prefix of a list to it, in the order of their keys, from the one after
// the markers.
func addListedUploads(out *listMultipartUploadsOutput, b *bucket) {
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

		out.NextKeyMarker = encodeListed(out.EncodingType, &u.Key)
		out.NextUploadIdMarker = &id
		out.Uploads = append(out.Uploads, &listedUpload{
			MultipartUpload: s3.MultipartUpload{
				Key:               out.NextKeyMarker,
				UploadId:          &id,
				Initiated:         &u.Started,
				Initiator:         newInitiator(),
				Owner:             newOwner(),
				StorageClass:      objectVersion{Headers: u.Headers}.storageClass(),
				ChecksumAlgorithm: sdkshape.StringOrNil(strings.ToUpper(u.Checksum)),
			},
			ChecksumType: sdkshape.StringOrNil(u.ChecksumType),
		})
	}
}
