// SPDX-License-Identifier: Apache-2.0

package s3_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// TestErrorsHaveDetails: the errors of S3 have fixed messages, and name what they are about in elements of their own,
// without the element Resource (recordings of AWS in LocalStack and moto).
func TestErrorsHaveDetails(t *testing.T) {
	t.Parallel()
	c, _, url := serve(t, t.TempDir())
	bucket(t, c)
	if _, err := put(t, c, "k", "v"); err != nil {
		t.Fatal(err)
	}

	for name, x := range map[string]struct {
		path string
		want []string
	}{
		"no bucket":   {"/none/k?X-Amz-Expires=60", []string{"<Code>NoSuchBucket</Code>", "<Message>The specified bucket does not exist</Message>", "<BucketName>none</BucketName>"}},
		"no upload":   {"/b-1/k?partNumber=1&uploadId=x&X-Amz-Expires=60", []string{"<Code>NoSuchUpload</Code>", "<UploadId>x</UploadId>"}},
		"a condition": {"/b-1/k?if-none-match=*&X-Amz-Expires=60", []string{"<Code>PreconditionFailed</Code>", "<Condition>If-None-Match</Condition>"}},
	} {
		path, condition, _ := strings.Cut(x.path, "if-none-match=*&")
		headers := map[string]string{}
		if condition != "" {
			path += condition
			headers["If-None-Match"] = "*"
		}

		_, body := rawPut(t, presignPut(t, url+path, time.Now()), headers)
		for _, want := range append(x.want, "<HostId>", "<RequestId>") {
			if !strings.Contains(body, want) {
				t.Errorf("%s: %s, want %s", name, body, want)
			}
		}
		if strings.Contains(body, "<Resource>") {
			t.Errorf("%s: %s, want no Resource", name, body)
		}
	}
}

// TestConditionsOfCopiedParts: the conditions of UploadPartCopy on its source fail with 412.
func TestConditionsOfCopiedParts(t *testing.T) {
	t.Parallel()
	c, _, _ := serve(t, t.TempDir())
	bucket(t, c)
	etag, err := put(t, c, "k", "v")
	if err != nil {
		t.Fatal(err)
	}

	up, err := c.CreateMultipartUpload(t.Context(), &s3.CreateMultipartUploadInput{Bucket: aws.String(b1), Key: aws.String("m")})
	if err != nil {
		t.Fatal(err)
	}

	for name, x := range map[string]struct {
		change func(*s3.UploadPartCopyInput)
		status int
	}{
		"no condition":       {func(*s3.UploadPartCopyInput) {}, 0},
		"the ETag":           {func(in *s3.UploadPartCopyInput) { in.CopySourceIfMatch = &etag }, 0},
		"another ETag":       {func(in *s3.UploadPartCopyInput) { in.CopySourceIfMatch = aws.String(`"x"`) }, 412},
		"not the ETag":       {func(in *s3.UploadPartCopyInput) { in.CopySourceIfNoneMatch = &etag }, 412},
		"modified since":     {func(in *s3.UploadPartCopyInput) { in.CopySourceIfModifiedSince = aws.Time(time.Now().Add(time.Hour)) }, 412},
		"not modified since": {func(in *s3.UploadPartCopyInput) { in.CopySourceIfUnmodifiedSince = aws.Time(time.Unix(1, 0)) }, 412},
	} {
		in := &s3.UploadPartCopyInput{
			Bucket: aws.String(b1), Key: aws.String("m"), UploadId: up.UploadId, PartNumber: aws.Int32(1), CopySource: aws.String("b-1/k"),
		}
		x.change(in)
		_, err := c.UploadPartCopy(t.Context(), in)
		status := 0
		if response, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
			status = response.HTTPStatusCode()
		}
		if status != x.status || x.status == 0 && err != nil {
			t.Errorf("%s: %v, want status %d", name, err, x.status)
		}
	}
}

// TestNewBucketsBlockTheirPublic: a new bucket has all four public access blocks.
func TestNewBucketsBlockTheirPublic(t *testing.T) {
	t.Parallel()
	c, _, _ := serve(t, t.TempDir())
	bucket(t, c)
	out, err := c.GetPublicAccessBlock(t.Context(), &s3.GetPublicAccessBlockInput{Bucket: aws.String(b1)})
	want := types.PublicAccessBlockConfiguration{
		BlockPublicAcls: aws.Bool(true), BlockPublicPolicy: aws.Bool(true), IgnorePublicAcls: aws.Bool(true), RestrictPublicBuckets: aws.Bool(true),
	}
	if err != nil || !reflect.DeepEqual(*out.PublicAccessBlockConfiguration, want) {
		t.Errorf("%+v, %v, want all four blocks", out, err)
	}
}
