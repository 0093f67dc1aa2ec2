// SPDX-License-Identifier: Apache-2.0

package s3_test

import (
	"crypto/md5"
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// TestBucketsAreListedByPage: ListBuckets has pages, a prefix and a region, and names the ARN and the region of each
// bucket when it is asked with one of them (LocalStack's recordings of TestS3ListBuckets).
func TestBucketsAreListedByPage(t *testing.T) {
	t.Parallel()
	c, _, _ := serve(t, t.TempDir())
	for _, name := range []string{"b-1", "b-2", "b-3", "other"} {
		out, err := c.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &name})
		if err != nil || aws.ToString(out.BucketArn) != "arn:aws:s3:::"+name || aws.ToString(out.Location) != "/"+name {
			t.Errorf("CreateBucket: %+v, %v, want the ARN of %s", out, err, name)
		}
	}

	list := func(in *s3.ListBucketsInput) ([]string, *s3.ListBucketsOutput) {
		t.Helper()
		out, err := c.ListBuckets(t.Context(), in)
		if err != nil {
			return []string{code(err)}, &s3.ListBucketsOutput{}
		}

		var names []string
		for _, b := range out.Buckets {
			names = append(names, *b.Name)
			if aws.ToString(b.BucketArn) != "arn:aws:s3:::"+*b.Name {
				t.Errorf("%s has the ARN %q", *b.Name, aws.ToString(b.BucketArn))
			}
		}

		return names, out
	}

	first, page := list(&s3.ListBucketsInput{MaxBuckets: aws.Int32(2), Prefix: aws.String("b-"), ContinuationToken: aws.String("")})
	if !slices.Equal(first, []string{"b-1", "b-2"}) || page.ContinuationToken == nil || aws.ToString(page.Prefix) != "b-" ||
		aws.ToString(page.Buckets[0].BucketRegion) != "us-east-1" {
		t.Fatalf("the first page: %v %+v", first, page)
	}

	second, rest := list(&s3.ListBucketsInput{MaxBuckets: aws.Int32(2), Prefix: aws.String("b-"), ContinuationToken: page.ContinuationToken})
	if !slices.Equal(second, []string{"b-3"}) || rest.ContinuationToken != nil {
		t.Errorf("the second page: %v %+v", second, rest)
	}

	for want, in := range map[string]*s3.ListBucketsInput{
		"":                    {Prefix: aws.String("B-")},
		"b-1 b-2 b-3 other":   {},
		"b-2":                 {BucketRegion: aws.String("us-east-1"), Prefix: aws.String("b-2")},
		"NotImplemented":      {BucketRegion: aws.String("eu-west-1")},
		"InvalidArgument":     {BucketRegion: aws.String("nowhere")},
		"InvalidArgument ":    {MaxBuckets: aws.Int32(0)},
		"InvalidArgument  ":   {MaxBuckets: aws.Int32(10001)},
		"InvalidArgument   ":  {ContinuationToken: aws.String("%")},
		"InvalidArgument    ": {ContinuationToken: aws.String(strings.Repeat("a", 1025))},
	} {
		if names, _ := list(in); strings.Join(names, " ") != strings.TrimSpace(want) {
			t.Errorf("%+v: %v, want %q", in, names, want)
		}
	}
}

// TestLocationsOfNewBuckets: outside of us-east-1, S3 tells the address of a new bucket.
func TestLocationsOfNewBuckets(t *testing.T) {
	t.Parallel()
	c, _, _ := serveIn(t, t.TempDir(), "eu-west-1")
	out, err := c.CreateBucket(t.Context(), &s3.CreateBucketInput{
		Bucket:                    aws.String("b-1"),
		CreateBucketConfiguration: &types.CreateBucketConfiguration{LocationConstraint: "eu-west-1"},
	})
	if err != nil || aws.ToString(out.Location) != "http://b-1.s3.amazonaws.com/" {
		t.Errorf("CreateBucket: %+v, %v", out, err)
	}
}

// TestETagsOfKMSAreNoDigests: the ETag of an object that a key of KMS encrypts is not the MD5 sum of its contents, and
// not the same when it is written again.
func TestETagsOfKMSAreNoDigests(t *testing.T) {
	t.Parallel()
	r := newRegion(t, nil)
	made, err := r.kms.CreateKey(t.Context(), &kms.CreateKeyInput{})
	if err != nil {
		t.Fatal(err)
	}

	encrypt := func(in *s3.PutObjectInput) {
		in.ServerSideEncryption = types.ServerSideEncryptionAwsKms
		in.SSEKMSKeyId = made.KeyMetadata.Arn
	}
	sum := md5.Sum([]byte("v"))
	digest := `"` + hex.EncodeToString(sum[:]) + `"`

	first, err := put(t, r.root, "k", "v", encrypt)
	if err != nil || first == digest || len(first) != len(digest) {
		t.Errorf("with a key of KMS: %s, %v", first, err)
	}

	if second, err := put(t, r.root, "k", "v", encrypt); err != nil || second == first {
		t.Errorf("written again: %s, %v, want another ETag", second, err)
	}

	if plain, err := put(t, r.root, "plain", "v"); err != nil || plain != digest {
		t.Errorf("with SSE-S3: %s, %v, want the MD5 sum %s", plain, err, digest)
	}

	copied, err := r.root.CopyObject(t.Context(), &s3.CopyObjectInput{
		Bucket:               aws.String("b-1"),
		Key:                  aws.String("copy"),
		CopySource:           aws.String("b-1/plain"),
		ServerSideEncryption: types.ServerSideEncryptionAwsKms,
		SSEKMSKeyId:          made.KeyMetadata.Arn,
	})
	if err != nil || aws.ToString(copied.CopyObjectResult.ETag) == digest {
		t.Errorf("copied with a key of KMS: %+v, %v", copied.CopyObjectResult, err)
	}

	head, err := r.root.HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: aws.String("b-1"), Key: aws.String("copy")})
	if err != nil || aws.ToString(head.ETag) != aws.ToString(copied.CopyObjectResult.ETag) {
		t.Errorf("HeadObject: %s, %v, want the ETag of the copy", aws.ToString(head.ETag), err)
	}

	back, err := r.root.CopyObject(t.Context(), &s3.CopyObjectInput{
		Bucket:               aws.String("b-1"),
		Key:                  aws.String("back"),
		CopySource:           aws.String("b-1/copy"),
		ServerSideEncryption: types.ServerSideEncryptionAes256,
	})
	if err != nil || aws.ToString(back.CopyObjectResult.ETag) != digest {
		t.Errorf("copied with SSE-S3: %+v, %v, want the MD5 sum", back.CopyObjectResult, err)
	}
}

// TestSmallestObjectsOfTransitions: S3 tells below which size lifecycle rules leave objects in their storage class
// (LocalStack's recordings of test_lifecycle_*). The region transitions nothing, and takes the default only.
func TestSmallestObjectsOfTransitions(t *testing.T) {
	t.Parallel()
	c, _, _ := serve(t, t.TempDir())
	bucket(t, c)
	name := aws.String(b1)
	put := func(size types.TransitionDefaultMinimumObjectSize) (types.TransitionDefaultMinimumObjectSize, error) {
		out, err := c.PutBucketLifecycleConfiguration(t.Context(), &s3.PutBucketLifecycleConfigurationInput{
			Bucket: name, TransitionDefaultMinimumObjectSize: size,
			LifecycleConfiguration: &types.BucketLifecycleConfiguration{Rules: []types.LifecycleRule{{
				Status:     types.ExpirationStatusEnabled,
				Filter:     &types.LifecycleRuleFilter{Prefix: aws.String("")},
				Expiration: &types.LifecycleExpiration{Days: aws.Int32(1)},
			}}},
		})
		if err != nil {
			return "", err
		}

		return out.TransitionDefaultMinimumObjectSize, nil
	}

	const usual = types.TransitionDefaultMinimumObjectSizeAllStorageClasses128k
	for _, asked := range []types.TransitionDefaultMinimumObjectSize{"", usual} {
		if got, err := put(asked); err != nil || got != usual {
			t.Errorf("%q: %s, %v, want %s", asked, got, err, usual)
		}
	}

	if _, err := put(types.TransitionDefaultMinimumObjectSizeVariesByStorageClass); code(err) != "NotImplemented" {
		t.Errorf("another size: %v, want NotImplemented", err)
	}

	out, err := c.GetBucketLifecycleConfiguration(t.Context(), &s3.GetBucketLifecycleConfigurationInput{Bucket: name})
	if err != nil || out.TransitionDefaultMinimumObjectSize != usual {
		t.Errorf("GetBucketLifecycleConfiguration: %+v, %v, want %s", out, err, usual)
	}
}
