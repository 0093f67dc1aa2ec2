// SPDX-License-Identifier: Apache-2.0

package s3_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// The tests of this file compare the region with tests of moto that are verified against AWS.

// TestReversedRangesHaveNoEffect: a range that ends before it begins is no range.
func TestReversedRangesHaveNoEffect(t *testing.T) {
	t.Parallel()
	c, _, _ := serve(t, t.TempDir())
	bucket(t, c)
	if _, err := put(t, c, "f1", "f1"); err != nil {
		t.Fatal(err)
	}

	for byteRange, want := range map[string]int64{"bytes=1-0": 2, "bytes=9-3": 2, "bytes=1-1": 1, "bytes=-1": 1, "bytes=0-9": 2, "bytes=5-9": -1} {
		out, err := c.HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: aws.String(b1), Key: aws.String("f1"), Range: &byteRange})
		if (err == nil) != (want >= 0) || err == nil && *out.ContentLength != want {
			t.Errorf("%s: %+v, %v, want %d bytes", byteRange, out, err, want)
		}
	}
}

// TestCompletionsAreRepeatable: an upload that is completed can be completed again, with the same answer.
func TestCompletionsAreRepeatable(t *testing.T) {
	t.Parallel()
	c, _, _ := serve(t, t.TempDir())
	bucket(t, c)
	ctx := t.Context()
	name := aws.String(b1)
	key := aws.String("k")
	upload, err := c.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: name, Key: key})
	if err != nil {
		t.Fatal(err)
	}

	part, err := c.UploadPart(ctx, &s3.UploadPartInput{
		Bucket: name, Key: key, UploadId: upload.UploadId, PartNumber: aws.Int32(1), Body: bytes.NewReader([]byte("part")),
	})
	if err != nil {
		t.Fatal(err)
	}

	complete := func(ifNoneMatch *string) (*s3.CompleteMultipartUploadOutput, error) {
		return c.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
			Bucket: name, Key: key, UploadId: upload.UploadId, IfNoneMatch: ifNoneMatch,
			MultipartUpload: &types.CompletedMultipartUpload{Parts: []types.CompletedPart{{ETag: part.ETag, PartNumber: aws.Int32(1)}}},
		})
	}
	first, err := complete(nil)
	if err != nil {
		t.Fatal(err)
	}

	second, err := complete(aws.String("*"))
	if err != nil || *second.ETag != *first.ETag {
		t.Errorf("the second completion: %+v, %v", second, err)
	}

	if _, err := c.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: name, Key: key}); err != nil {
		t.Fatal(err)
	}

	if _, err := complete(nil); code(err) != "NoSuchUpload" {
		t.Errorf("a completion after the object is gone: %v", err)
	}
}

// TestAnEmptyTagSetIsNone: S3 deletes the tags of a bucket if a request sets none.
func TestAnEmptyTagSetIsNone(t *testing.T) {
	t.Parallel()
	c, _, _ := serve(t, t.TempDir())
	bucket(t, c)
	name := aws.String(b1)

	for _, set := range [][]types.Tag{{{Key: aws.String("k"), Value: aws.String("v")}}, {}} {
		if _, err := c.PutBucketTagging(t.Context(), &s3.PutBucketTaggingInput{Bucket: name, Tagging: &types.Tagging{TagSet: set}}); err != nil {
			t.Fatal(err)
		}

		_, err := c.GetBucketTagging(t.Context(), &s3.GetBucketTaggingInput{Bucket: name})
		if want := map[bool]string{true: "NoSuchTagSet"}[len(set) == 0]; err == nil && want != "" || err != nil && code(err) != want {
			t.Errorf("%d tags: %v, want %q", len(set), err, want)
		}
	}
}

// TestMarkersAllowDelete: the answer to a read of a delete marker names the method that it allows.
func TestMarkersAllowDelete(t *testing.T) {
	t.Parallel()
	c, _, _ := serve(t, t.TempDir())
	bucket(t, c)
	name := aws.String(b1)
	_, err := c.PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{
		Bucket: name, VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled},
	})
	if err != nil {
		t.Fatal(err)
	}

	marker, err := c.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: name, Key: aws.String("k")})
	if err != nil {
		t.Fatal(err)
	}

	_, err = c.HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: name, Key: aws.String("k"), VersionId: marker.VersionId})
	if e, ok := errors.AsType[*smithyhttp.ResponseError](err); !ok || e.Response.Header.Get("Allow") != "DELETE" {
		t.Errorf("got %v", err)
	}
}

// TestListsTellPrefixAndOwner: lists have the prefix, also an empty one, and the owner by its ID alone (LocalStack's
// recordings of AWS of February 2026).
func TestListsTellPrefixAndOwner(t *testing.T) {
	t.Parallel()
	c, _, _ := serve(t, t.TempDir())
	bucket(t, c)
	if _, err := put(t, c, "k", "v"); err != nil {
		t.Fatal(err)
	}

	first, err := c.ListObjects(t.Context(), &s3.ListObjectsInput{Bucket: aws.String(b1)})
	if err != nil {
		t.Fatal(err)
	}

	second, err := c.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: aws.String(b1), FetchOwner: aws.Bool(true)})
	if err != nil {
		t.Fatal(err)
	}

	for name, prefix := range map[string]*string{"ListObjects": first.Prefix, "ListObjectsV2": second.Prefix} {
		if prefix == nil || *prefix != "" {
			t.Errorf("%s: prefix %v, want an empty one", name, prefix)
		}
	}

	for name, object := range map[string]types.Object{"ListObjects": first.Contents[0], "ListObjectsV2": second.Contents[0]} {
		if o := object.Owner; o == nil || aws.ToString(o.ID) == "" || o.DisplayName != nil {
			t.Errorf("%s: the owner is %+v, want an ID alone", name, o)
		}
	}
}
