// SPDX-License-Identifier: Apache-2.0

package s3_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
)

// The tests of this file have the answers of AWS that LocalStack's tests recorded in February 2026.

// isRefusal reports an error that is not the wanted one: CODE: MESSAGE.
func isRefusal(t *testing.T, what string, err error, want string) {
	t.Helper()
	failed, ok := errors.AsType[smithy.APIError](err)
	if !ok || failed.ErrorCode()+": "+failed.ErrorMessage() != want {
		t.Errorf("%s:\n got  %v\n want %s", what, err, want)
	}
}

// TestBucketsGetTheirTags: test_create_bucket_with_tags and test_create_bucket_with_tags_exc.
func TestBucketsGetTheirTags(t *testing.T) {
	t.Parallel()
	c, _, _ := serve(t, t.TempDir())
	create := func(key, value string) error {
		_, err := c.CreateBucket(t.Context(), &s3.CreateBucketInput{
			Bucket: aws.String(b1),
			CreateBucketConfiguration: &types.CreateBucketConfiguration{
				LocationConstraint: location(c),
				Tags:               []types.Tag{{Key: &key, Value: &value}},
			},
		})

		return err
	}

	isRefusal(t, "a tag of AWS", create("aws:a", "b"), `InvalidTag: User-defined tag keys can't start with "aws:". `+
		`This prefix is reserved for system tags. Remove "aws:" from your tag keys and try again.`)
	isRefusal(t, "a key", create("a,b", "c"), "InvalidTag: The TagKey you have provided is invalid")
	isRefusal(t, "a value", create("a", "b,c"), "InvalidTag: The TagValue you have provided is invalid")
	if err := create("team", "a b"); err != nil {
		t.Fatal(err)
	}

	out, err := c.GetBucketTagging(t.Context(), &s3.GetBucketTaggingInput{Bucket: aws.String(b1)})
	if err != nil || len(out.TagSet) != 1 || *out.TagSet[0].Key != "team" || *out.TagSet[0].Value != "a b" {
		t.Errorf("the tags are %+v, %v", out, err)
	}

	isRefusal(t, "the bucket again", create("team", "a b"),
		"BucketAlreadyOwnedByYou: Your previous request to create the named bucket succeeded and you already own it.")

	_, err = c.PutBucketTagging(t.Context(), &s3.PutBucketTaggingInput{
		Bucket: aws.String(b1), Tagging: &types.Tagging{TagSet: []types.Tag{{Key: aws.String("a"), Value: aws.String("b;")}}},
	})
	isRefusal(t, "PutBucketTagging", err, "InvalidTag: The TagValue you have provided is invalid")
}

// location returns the location constraint that a client's region needs; empty in us-east-1.
func location(c *s3.Client) types.BucketLocationConstraint {
	if c.Options().Region == "us-east-1" {
		return ""
	}

	return types.BucketLocationConstraint(c.Options().Region)
}

// TestRefusedCopies: test_upload_part_copy_range and test_s3_copy_object_src_not_exists.
func TestRefusedCopies(t *testing.T) {
	t.Parallel()
	c, _, _ := serve(t, t.TempDir())
	bucket(t, c)
	if _, err := put(t, c, "k", "0123456789"); err != nil {
		t.Fatal(err)
	}

	id := newUpload(t, c, "m", "")
	const malformed = "InvalidArgument: The x-amz-copy-source-range value must be of the form bytes=first-last where first and " +
		"last are the zero-based offsets of the first and last bytes to copy"
	for text, want := range map[string]string{
		"bytes=1-0": malformed, "bytes=0-1,3-4": malformed, "bytes=-": malformed, "bytes=1-": malformed,
		"bytes=0-100":   "InvalidArgument: Range specified is not valid for source object of size: 10",
		"bytes=100-200": "InvalidRequest: The specified copy range is invalid for the source object size",
	} {
		_, err := c.UploadPartCopy(t.Context(), &s3.UploadPartCopyInput{
			Bucket: aws.String(b1), Key: aws.String("m"), UploadId: &id, PartNumber: aws.Int32(1), CopySource: aws.String(b1 + "/k"),
			CopySourceRange: &text,
		})
		isRefusal(t, text, err, want)
	}

	_, err := c.PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{
		Bucket: aws.String(b1), VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled},
	})
	if err != nil {
		t.Fatal(err)
	}

	marker, err := c.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: aws.String(b1), Key: aws.String("k")})
	if err != nil {
		t.Fatal(err)
	}

	_, err = c.CopyObject(t.Context(), &s3.CopyObjectInput{
		Bucket: aws.String(b1), Key: aws.String("copy"), CopySource: aws.String(b1 + "/k?versionId=" + *marker.VersionId),
	})
	isRefusal(t, "a delete marker", err,
		"InvalidRequest: The source of a copy request may not specifically refer to a delete marker by version id.")
}

// TestRefusedBodies: test_s3_checksum_no_algorithm, test_s3_invalid_content_md5 and test_bucket_policy_exc; the last one is of
// moto.
func TestRefusedBodies(t *testing.T) {
	t.Parallel()
	c, _, _ := serve(t, t.TempDir())
	bucket(t, c)
	write := func(options ...func(*s3.Options)) error {
		_, err := c.PutObject(t.Context(), &s3.PutObjectInput{
			Bucket: aws.String(b1), Key: aws.String("k"), Body: strings.NewReader("v"), ChecksumCRC32: aws.String("L4Hapg=="),
		}, options...)

		return err
	}

	isRefusal(t, "two checksums", write(withHeader("x-amz-checksum-sha1", "AAAAAAAAAAAAAAAAAAAAAAAAAAA=")),
		"InvalidRequest: Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.")
	isRefusal(t, "no MD5 sum", write(withHeader("Content-MD5", "zz")), "InvalidDigest: The Content-MD5 you specified was invalid.")

	_, err := c.PutBucketPolicy(t.Context(), &s3.PutBucketPolicyInput{Bucket: aws.String(b1), Policy: aws.String("")})
	isRefusal(t, "an empty policy", err, "MalformedPolicy: Policies must be valid JSON and the first byte must be '{'")

	_, err = c.PutPublicAccessBlock(t.Context(), &s3.PutPublicAccessBlockInput{
		Bucket: aws.String(b1), PublicAccessBlockConfiguration: &types.PublicAccessBlockConfiguration{},
	})
	isRefusal(t, "no access block", err, "InvalidRequest: Must specify at least one configuration.")
}
