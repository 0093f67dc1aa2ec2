// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"

	"github.com/aws/aws-sdk-go/service/s3"
)

// listObjects is the first version of ListObjects, whose pages continue after a key instead of a token.
func (s *Service) listObjects(ctx context.Context, in *s3.ListObjectsInput) (*listObjectsOutput, error) {
	out, err := s.listObjectsV2(ctx, &s3.ListObjectsV2Input{
		Bucket:       in.Bucket,
		Prefix:       in.Prefix,
		Delimiter:    in.Delimiter,
		EncodingType: in.EncodingType,
		MaxKeys:      in.MaxKeys,
		StartAfter:   in.Marker,
		FetchOwner:   new(true),
	})
	if err != nil {
		return nil, err
	}

	page := &listObjectsOutput{
		ListObjectsOutput: s3.ListObjectsOutput{
			Name:           out.Name,
			Prefix:         out.Prefix,
			Delimiter:      out.Delimiter,
			EncodingType:   out.EncodingType,
			MaxKeys:        out.MaxKeys,
			Marker:         encodeListed(in.EncodingType, orEmpty(in.Marker)),
			IsTruncated:    out.IsTruncated,
			CommonPrefixes: out.CommonPrefixes,
		},
		Contents: out.Contents,
	}
	if isTrue(out.IsTruncated) {
		last := ""
		if n := len(out.Contents); n > 0 {
			last = *out.Contents[n-1].Key
		}

		if n := len(out.CommonPrefixes); n > 0 {
			last = max(last, *out.CommonPrefixes[n-1].Prefix)
		}

		if in.Delimiter != nil { // without one, the marker is the last key of the page
			page.NextMarker = &last
		}
	}

	return page, nil
}
