// SPDX-License-Identifier: Apache-2.0

package s3_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// The tests of this file compare the region with answers of AWS that the tests of moto and LocalStack record; see
// docs/aws-facts.md.

const (
	b1 = "b-1"
	// otherAccount is an account that owns nothing here.
	otherAccount = "111122223333"
)

// TestSubresourcesLeaveTheObjectAlone: operations on tags, ACLs and the like of an object must not be taken for
// operations on the object itself.
func TestSubresourcesLeaveTheObjectAlone(t *testing.T) {
	t.Parallel()
	c, _, _ := serve(t, t.TempDir())
	bucket(t, c)
	if _, err := put(t, c, "k", "content"); err != nil {
		t.Fatal(err)
	}

	name := aws.String(b1)
	key := aws.String("k")
	tags := &types.Tagging{TagSet: []types.Tag{}}
	ctx := t.Context()
	errs := map[string]error{}
	_, errs["tagging"] = c.PutObjectTagging(ctx, &s3.PutObjectTaggingInput{Bucket: name, Key: key, Tagging: tags})
	_, errs["tagging of GET"] = c.GetObjectTagging(ctx, &s3.GetObjectTaggingInput{Bucket: name, Key: key})
	_, errs["tagging of DELETE"] = c.DeleteObjectTagging(ctx, &s3.DeleteObjectTaggingInput{Bucket: name, Key: key})
	_, errs["acl"] = c.PutObjectAcl(ctx, &s3.PutObjectAclInput{Bucket: name, Key: key, ACL: types.ObjectCannedACLPrivate})
	_, errs["acl of GET"] = c.GetObjectAcl(ctx, &s3.GetObjectAclInput{Bucket: name, Key: key})
	_, errs["legal-hold"] = c.PutObjectLegalHold(ctx, &s3.PutObjectLegalHoldInput{Bucket: name, Key: key})
	_, errs["retention"] = c.PutObjectRetention(ctx, &s3.PutObjectRetentionInput{Bucket: name, Key: key})
	_, errs["torrent"] = c.GetObjectTorrent(ctx, &s3.GetObjectTorrentInput{Bucket: name, Key: key})
	_, errs["renameObject"] = c.RenameObject(ctx, &s3.RenameObjectInput{Bucket: name, Key: key, RenameSource: aws.String("b-1/x")})
	_, errs["attributes"] = c.GetObjectAttributes(ctx, &s3.GetObjectAttributesInput{
		Bucket: name, Key: key, ObjectAttributes: []types.ObjectAttributes{types.ObjectAttributesEtag},
	})

	for what, err := range errs {
		word, _, _ := strings.Cut(what, " ")
		if code(err) != "NotImplemented" || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v, want NotImplemented with the name %s", what, err, word)
		}
	}

	if got := get(t, c, "k"); got != "content" {
		t.Errorf("the object is %q now", got)
	}
}

// TestUnknownHeadersAreRefused: a header that the region does not implement must not be dropped.
func TestUnknownHeadersAreRefused(t *testing.T) {
	t.Parallel()
	c, _, _ := serve(t, t.TempDir())
	bucket(t, c)

	for header, value := range map[string]string{
		"x-amz-if-match-size":                                "3",
		"x-amz-server-side-encryption-customer-algorithm-v2": "x",
		"x-amz-write-offset-bytes":                           "3",
		"x-amz-checksum-sha512":                              "x",
	} {
		_, err := c.PutObject(t.Context(), &s3.PutObjectInput{Bucket: aws.String(b1), Key: aws.String("k"), Body: strings.NewReader("v")}, withHeader(header, value))
		if code(err) != "NotImplemented" || !strings.Contains(err.Error(), header) {
			t.Errorf("%s: %v, want NotImplemented with its name", header, err)
		}
	}

	for name, x := range map[string]struct {
		change func(*s3.PutObjectInput)
		want   string
	}{
		"another ACL":   {func(in *s3.PutObjectInput) { in.ACL = types.ObjectCannedACLPublicRead }, "AccessControlListNotSupported"},
		"no class":      {func(in *s3.PutObjectInput) { in.StorageClass = "BOGUS" }, "InvalidStorageClass"},
		"an archive":    {func(in *s3.PutObjectInput) { in.StorageClass = types.StorageClassGlacier }, "NotImplemented"},
		"no encryption": {func(in *s3.PutObjectInput) { in.ServerSideEncryption = "aws:bogus" }, "InvalidEncryptionAlgorithmError"},
		"a key's length": {func(in *s3.PutObjectInput) {
			in.Key = aws.String(strings.Repeat("k", 1025))
		}, "KeyTooLongError"},
	} {
		if _, err := put(t, c, "k", "v", x.change); code(err) != x.want {
			t.Errorf("%s: %v, want %s", name, err, x.want)
		}
	}

	_, err := put(t, c, "kept", "v", func(in *s3.PutObjectInput) {
		in.StorageClass = types.StorageClassStandardIa
		in.Expires = aws.Time(time.Unix(1e9, 0))
		in.ACL = types.ObjectCannedACLBucketOwnerFullControl
	})
	if err != nil {
		t.Fatal(err)
	}

	head, err := c.HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: aws.String(b1), Key: aws.String("kept")})
	if err != nil || head.StorageClass != types.StorageClassStandardIa || aws.ToString(head.ExpiresString) != "Sun, 09 Sep 2001 01:46:40 GMT" {
		t.Errorf("%+v, %v: storage class and expiry were not kept", head, err)
	}
}

func withHeader(name, value string) func(*s3.Options) {
	return func(o *s3.Options) {
		o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
			return smithyhttp.SetHeaderValue(name, value)(stack)
		})
	}
}

func TestExpectedBucketOwner(t *testing.T) {
	t.Parallel()
	c, _, _ := serve(t, t.TempDir())
	bucket(t, c)
	if _, err := put(t, c, "k", "v"); err != nil {
		t.Fatal(err)
	}

	for owner, want := range map[string]string{
		"000000000000": "",
		otherAccount:   "AccessDenied",
		"1234":         "InvalidBucketOwnerAWSAccountID",
	} {
		_, read := c.GetObject(t.Context(), &s3.GetObjectInput{Bucket: aws.String(b1), Key: aws.String("k"), ExpectedBucketOwner: &owner})
		_, write := put(t, c, "k", "w", func(in *s3.PutObjectInput) { in.ExpectedBucketOwner = &owner })
		_, copied := c.CopyObject(t.Context(), &s3.CopyObjectInput{
			Bucket: aws.String(b1), Key: aws.String("c"), CopySource: aws.String("b-1/k"), ExpectedSourceBucketOwner: &owner,
		})
		for what, err := range map[string]error{"read": read, "write": write, "copy": copied} {
			if (err == nil) != (want == "") || err != nil && code(err) != want {
				t.Errorf("%s for %s: %v, want %q", what, owner, err, want)
			}
		}
	}

	_, err := c.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: aws.String("none"), ExpectedBucketOwner: aws.String(otherAccount)})
	if code(err) != "NoSuchBucket" {
		t.Errorf("a missing bucket: %v", err)
	}
}

func TestConditionsOfCopies(t *testing.T) {
	t.Parallel()
	c, _, _ := serve(t, t.TempDir())
	bucket(t, c)
	etag, err := put(t, c, "k", "v")
	if err != nil {
		t.Fatal(err)
	}

	hour := aws.Time(time.Now().Add(time.Hour))
	past := aws.Time(time.Now().Add(-time.Hour))
	for name, x := range map[string]struct {
		change func(*s3.CopyObjectInput)
		want   string
	}{
		"no condition":       {func(*s3.CopyObjectInput) {}, ""},
		"the ETag":           {func(in *s3.CopyObjectInput) { in.CopySourceIfMatch = &etag }, ""},
		"another ETag":       {func(in *s3.CopyObjectInput) { in.CopySourceIfMatch = aws.String(`"x"`) }, "PreconditionFailed"},
		"not the ETag":       {func(in *s3.CopyObjectInput) { in.CopySourceIfNoneMatch = &etag }, "PreconditionFailed"},
		"modified since":     {func(in *s3.CopyObjectInput) { in.CopySourceIfModifiedSince = hour }, "PreconditionFailed"},
		"not modified since": {func(in *s3.CopyObjectInput) { in.CopySourceIfUnmodifiedSince = past }, "PreconditionFailed"},
		"onto itself":        {func(in *s3.CopyObjectInput) { in.Key = aws.String("k") }, "InvalidRequest"},
		"onto itself, other metadata": {func(in *s3.CopyObjectInput) {
			in.Key = aws.String("k")
			in.MetadataDirective = types.MetadataDirectiveReplace
		}, ""},
		"an unknown directive": {func(in *s3.CopyObjectInput) { in.MetadataDirective = "BOGUS" }, "InvalidArgument"},
		"with other tags":      {func(in *s3.CopyObjectInput) { in.TaggingDirective = types.TaggingDirectiveReplace }, "NotImplemented"},
	} {
		in := &s3.CopyObjectInput{Bucket: aws.String(b1), Key: aws.String("c"), CopySource: aws.String("b-1/k")}
		x.change(in)
		if _, err := c.CopyObject(t.Context(), in); (err == nil) != (x.want == "") || err != nil && code(err) != x.want {
			t.Errorf("%s: %v, want %q", name, err, x.want)
		}
	}
}

func TestListsAreStrict(t *testing.T) {
	t.Parallel()
	c, _, _ := serve(t, t.TempDir())
	bucket(t, c)
	if _, err := put(t, c, "k", "v"); err != nil {
		t.Fatal(err)
	}

	none, err := c.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: aws.String(b1), MaxKeys: aws.Int32(0)})
	if err != nil || aws.ToBool(none.IsTruncated) || len(none.Contents) != 0 {
		t.Errorf("no keys: %+v, %v", none, err)
	}

	for name, in := range map[string]*s3.ListObjectsV2Input{
		"negative":        {MaxKeys: aws.Int32(-1)},
		"a made-up token": {ContinuationToken: aws.String("aGVsbG8")},
		"no token":        {ContinuationToken: aws.String("")},
	} {
		in.Bucket = aws.String(b1)
		if _, err := c.ListObjectsV2(t.Context(), in); code(err) != "InvalidArgument" {
			t.Errorf("%s: %v, want InvalidArgument", name, err)
		}
	}

	var got []string
	for _, key := range []string{"a", "b"} {
		enableVersioning(t, c)
		for range 2 {
			if _, err := put(t, c, key, "v"); err != nil {
				t.Fatal(err)
			}
		}
	}

	in := &s3.ListObjectVersionsInput{Bucket: aws.String(b1), MaxKeys: aws.Int32(2)}
	pages := s3.NewListObjectVersionsPaginator(c, in)
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		for _, v := range page.Versions {
			got = append(got, fmt.Sprint(*v.Key, aws.ToBool(v.IsLatest)))
		}
	}

	if want := "atrue afalse btrue bfalse ktrue"; strings.Join(got, " ") != want {
		t.Errorf("versions by page: %v, want %s", got, want)
	}
}

func TestDeletionsTellOfMarkers(t *testing.T) {
	t.Parallel()
	c, _, _ := serve(t, t.TempDir())
	bucket(t, c)
	enableVersioning(t, c)
	if _, err := put(t, c, "k", "v"); err != nil {
		t.Fatal(err)
	}

	name := aws.String(b1)
	key := aws.String("k")
	_, err := c.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: name, Key: key, VersionId: aws.String("bogus")})
	if code(err) != "InvalidArgument" {
		t.Errorf("no version id: %v", err)
	}

	marker, err := c.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: name, Key: key})
	if err != nil || !aws.ToBool(marker.DeleteMarker) {
		t.Fatalf("%+v, %v", marker, err)
	}

	var headers http.Header
	read := func(version *string) string {
		_, err := c.GetObject(t.Context(), &s3.GetObjectInput{Bucket: name, Key: key, VersionId: version}, keepHeaders(&headers))
		return code(err)
	}
	for version, want := range map[*string]string{nil: "NoSuchKey", marker.VersionId: "MethodNotAllowed"} {
		if got := read(version); got != want || headers.Get("X-Amz-Delete-Marker") != "true" || headers.Get("X-Amz-Version-Id") != *marker.VersionId {
			t.Errorf("a read of a marker: %s, %v, want %s and the marker", got, headers, want)
		}
	}

	out, err := c.DeleteObjects(t.Context(), &s3.DeleteObjectsInput{Bucket: name, Delete: &types.Delete{Objects: []types.ObjectIdentifier{
		{Key: key, VersionId: marker.VersionId},
		{Key: key, VersionId: aws.String("bogus")},
	}}})
	if err != nil || len(out.Deleted) != 1 || len(out.Errors) != 1 {
		t.Fatalf("%+v, %v", out, err)
	}

	if d := out.Deleted[0]; !aws.ToBool(d.DeleteMarker) || aws.ToString(d.DeleteMarkerVersionId) != *marker.VersionId {
		t.Errorf("the deletion of a marker: %+v", d)
	}

	if e := out.Errors[0]; aws.ToString(e.Code) != "NoSuchVersion" {
		t.Errorf("the deletion of no version: %+v", e)
	}

	_, err = c.DeleteObjects(t.Context(), &s3.DeleteObjectsInput{Bucket: aws.String("none"), Delete: &types.Delete{Objects: []types.ObjectIdentifier{{Key: key}}}})
	if code(err) != "NoSuchBucket" {
		t.Errorf("a missing bucket: %v", err)
	}
}

// keepHeaders stores the headers of the last response.
func keepHeaders(to *http.Header) func(*s3.Options) {
	return func(o *s3.Options) {
		next := o.HTTPClient
		o.HTTPClient = smithyhttp.ClientDoFunc(func(r *http.Request) (*http.Response, error) {
			res, err := next.Do(r)
			if err == nil {
				*to = res.Header
			}

			return res, err
		})
	}
}
