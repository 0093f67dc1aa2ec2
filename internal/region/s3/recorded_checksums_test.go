// SPDX-License-Identifier: Apache-2.0

package s3_test

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// The tests of this file compare what S3 tells of checksums in its XML with LocalStack's recordings of AWS of February
// 2026: test_complete_multipart_parts_checksum_default, test_complete_multipart_parts_checksum_full_object,
// test_multipart_upload_part_copy_checksum, test_list_parts_pagination and test_object_with_slashes_in_key.

// TestListsTellChecksumTypes: each object, version and upload of a list has the type of its checksum.
func TestListsTellChecksumTypes(t *testing.T) {
	t.Parallel()
	c, _, _ := serve(t, t.TempDir())
	bucket(t, c)
	if _, err := put(t, c, "k", "content"); err != nil {
		t.Fatal(err)
	}

	objects, err := c.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: aws.String(b1)})
	if err != nil || len(objects.Contents) != 1 || objects.Contents[0].ChecksumType != types.ChecksumTypeFullObject {
		t.Errorf("ListObjectsV2: %+v, %v", objects, err)
	}

	first, err := c.ListObjects(t.Context(), &s3.ListObjectsInput{Bucket: aws.String(b1)})
	if err != nil || len(first.Contents) != 1 || first.Contents[0].ChecksumType != types.ChecksumTypeFullObject {
		t.Errorf("ListObjects: %+v, %v", first, err)
	}

	versions, err := c.ListObjectVersions(t.Context(), &s3.ListObjectVersionsInput{Bucket: aws.String(b1)})
	if err != nil || len(versions.Versions) != 1 || versions.Versions[0].ChecksumType != types.ChecksumTypeFullObject {
		t.Errorf("ListObjectVersions: %+v, %v", versions, err)
	}
}

// TestChecksumsOfListedUploads: an upload tells its algorithm and type only if its creator chose one, and its parts
// their checksums only then.
func TestChecksumsOfListedUploads(t *testing.T) {
	t.Parallel()
	c, _, _ := serve(t, t.TempDir())
	bucket(t, c)
	chosen := newUpload(t, c, "chosen", types.ChecksumAlgorithmCrc64nvme)
	plain := newUpload(t, c, "plain", "")
	sum := uploadPart(t, c, "chosen", chosen)
	uploadPart(t, c, "plain", plain)

	uploads, err := c.ListMultipartUploads(t.Context(), &s3.ListMultipartUploadsInput{Bucket: aws.String(b1)})
	if err != nil || len(uploads.Uploads) != 2 {
		t.Fatalf("ListMultipartUploads: %+v, %v", uploads, err)
	}

	first := uploads.Uploads[0]
	if first.ChecksumAlgorithm != types.ChecksumAlgorithmCrc64nvme || first.ChecksumType != types.ChecksumTypeFullObject ||
		first.Initiator == nil {
		t.Errorf("the upload with a checksum: %+v", first)
	}

	if second := uploads.Uploads[1]; second.ChecksumAlgorithm != "" || second.ChecksumType != "" {
		t.Errorf("the upload without a checksum: %+v", second)
	}

	parts := listParts(t, c, "chosen", chosen)
	if parts.ChecksumType != types.ChecksumTypeFullObject || aws.ToString(parts.Parts[0].ChecksumCRC64NVME) != sum ||
		aws.ToString(parts.PartNumberMarker) != "0" || aws.ToString(parts.NextPartNumberMarker) != "1" {
		t.Errorf("ListParts: %+v", parts)
	}

	parts = listParts(t, c, "plain", plain)
	if p := parts.Parts[0]; parts.ChecksumType != "" || p.ChecksumCRC64NVME != nil || p.ChecksumCRC32 != nil {
		t.Errorf("ListParts of an upload without a checksum: %+v", parts)
	}
}

// TestCompletionsListCRC64NVME: the list of parts in a completion may have this checksum, as the AWS CLI sends it.
func TestCompletionsListCRC64NVME(t *testing.T) {
	t.Parallel()
	c, _, _ := serve(t, t.TempDir())
	bucket(t, c)
	id := newUpload(t, c, "k", types.ChecksumAlgorithmCrc64nvme)
	sum := uploadPart(t, c, "k", id)

	wrong := types.CompletedPart{PartNumber: aws.Int32(1), ETag: aws.String(partETag), ChecksumCRC64NVME: aws.String("AAAAAAAAAAA=")}
	if _, err := complete(t, c, id, "", wrong); code(err) != "InvalidPart" {
		t.Errorf("a completion with another checksum: %v, want InvalidPart", err)
	}

	right := types.CompletedPart{PartNumber: aws.Int32(1), ETag: aws.String(partETag), ChecksumCRC64NVME: &sum}
	done, err := complete(t, c, id, types.ChecksumTypeFullObject, right)
	if err != nil {
		t.Fatal(err)
	}

	if aws.ToString(done.ChecksumCRC64NVME) != sum || done.ChecksumType != types.ChecksumTypeFullObject {
		t.Errorf("the completion: %+v, want the checksum %s", done, sum)
	}

	copied, err := c.CopyObject(t.Context(), &s3.CopyObjectInput{
		Bucket: aws.String(b1), Key: aws.String("copy"), CopySource: aws.String(b1 + "/k"),
	})
	if err != nil {
		t.Fatal(err)
	}

	r := copied.CopyObjectResult
	if aws.ToString(r.ChecksumCRC64NVME) != sum || r.ChecksumType != types.ChecksumTypeFullObject {
		t.Errorf("the copy: %+v, want the checksum %s", r, sum)
	}
}

// TestCompletionsOfPlainUploads: who chose no checksum for an upload completes it without one.
func TestCompletionsOfPlainUploads(t *testing.T) {
	t.Parallel()
	c, _, _ := serve(t, t.TempDir())
	bucket(t, c)
	id := newUpload(t, c, "k", "")
	sum := uploadPart(t, c, "k", id)
	part := types.CompletedPart{PartNumber: aws.Int32(1), ETag: aws.String(partETag)}

	listed := part
	listed.ChecksumCRC64NVME = &sum
	if _, err := complete(t, c, id, "", listed); code(err) != "InvalidPart" {
		t.Errorf("a completion with checksums of parts: %v, want InvalidPart", err)
	}

	for _, kind := range []types.ChecksumType{types.ChecksumTypeFullObject, types.ChecksumTypeComposite} {
		_, err := complete(t, c, id, kind, part)
		want := "The upload was created using the null checksum mode. The complete request must use the same checksum mode."
		if code(err) != "InvalidRequest" || !strings.Contains(err.Error(), want) {
			t.Errorf("a completion with %s: %v, want InvalidRequest: %s", kind, err, want)
		}
	}

	if _, err := complete(t, c, id, ""); code(err) != "InvalidRequest" ||
		!strings.Contains(err.Error(), "You must specify at least one part") {
		t.Errorf("a completion without parts: %v", err)
	}

	done, err := complete(t, c, id, "", part)
	if err != nil || aws.ToString(done.ChecksumCRC64NVME) != sum || done.ChecksumType != types.ChecksumTypeFullObject {
		t.Errorf("the completion: %+v, %v", done, err)
	}
}

// TestListsEncodeTheirOwnTexts: with the encoding "url", S3 also encodes the prefix, the delimiter and the markers, which
// boto3 decodes: it asks for this encoding.
func TestListsEncodeTheirOwnTexts(t *testing.T) {
	t.Parallel()
	c, _, _ := serve(t, t.TempDir())
	bucket(t, c)
	name := aws.String(b1)
	text := aws.String("a+b%20c")
	const want = "a%2Bb%2520c"

	v2, err := c.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{
		Bucket: name, Prefix: text, Delimiter: text, StartAfter: text, EncodingType: types.EncodingTypeUrl,
	})
	if err != nil || aws.ToString(v2.Prefix) != want || aws.ToString(v2.Delimiter) != want || aws.ToString(v2.StartAfter) != want {
		t.Errorf("ListObjectsV2: %+v, %v", v2, err)
	}

	v1, err := c.ListObjects(t.Context(), &s3.ListObjectsInput{
		Bucket: name, Prefix: text, Marker: text, EncodingType: types.EncodingTypeUrl,
	})
	if err != nil || aws.ToString(v1.Prefix) != want || aws.ToString(v1.Marker) != want {
		t.Errorf("ListObjects: %+v, %v", v1, err)
	}

	versions, err := c.ListObjectVersions(t.Context(), &s3.ListObjectVersionsInput{
		Bucket: name, Prefix: text, KeyMarker: text, EncodingType: types.EncodingTypeUrl,
	})
	if err != nil || aws.ToString(versions.Prefix) != want || aws.ToString(versions.KeyMarker) != want {
		t.Errorf("ListObjectVersions: %+v, %v", versions, err)
	}

	uploads, err := c.ListMultipartUploads(t.Context(), &s3.ListMultipartUploadsInput{
		Bucket: name, Prefix: text, KeyMarker: text, EncodingType: types.EncodingTypeUrl,
	})
	if err != nil || aws.ToString(uploads.Prefix) != want || aws.ToString(uploads.KeyMarker) != want {
		t.Errorf("ListMultipartUploads: %+v, %v", uploads, err)
	}
}

// partETag is the ETag of the part that [uploadPart] uploads: the MD5 sum of its three bytes.
const partETag = `"900150983cd24fb0d6963f7d28e17f72"`

func newUpload(t *testing.T, c *s3.Client, key string, checksum types.ChecksumAlgorithm) string {
	t.Helper()
	created, err := c.CreateMultipartUpload(t.Context(), &s3.CreateMultipartUploadInput{
		Bucket: aws.String(b1), Key: &key, ChecksumAlgorithm: checksum,
	})
	if err != nil {
		t.Fatal(err)
	}

	return *created.UploadId
}

// uploadPart uploads the part 1 of an upload, and returns its checksum.
func uploadPart(t *testing.T, c *s3.Client, key, id string) string {
	t.Helper()
	out, err := c.UploadPart(t.Context(), &s3.UploadPartInput{
		Bucket: aws.String(b1), Key: &key, UploadId: &id, PartNumber: aws.Int32(1), Body: strings.NewReader("abc"),
		ChecksumAlgorithm: types.ChecksumAlgorithmCrc64nvme,
	})
	if err != nil {
		t.Fatal(err)
	}

	return *out.ChecksumCRC64NVME
}

func listParts(t *testing.T, c *s3.Client, key, id string) *s3.ListPartsOutput {
	t.Helper()
	out, err := c.ListParts(t.Context(), &s3.ListPartsInput{Bucket: aws.String(b1), Key: &key, UploadId: &id})
	if err != nil || len(out.Parts) != 1 {
		t.Fatalf("list the parts of %s: %+v, %v", key, out, err)
	}

	return out
}

// complete completes an upload of the key k with parts; an empty kind sends no type of the checksum.
func complete(
	t *testing.T,
	c *s3.Client,
	id string,
	kind types.ChecksumType,
	parts ...types.CompletedPart,
) (*s3.CompleteMultipartUploadOutput, error) {
	t.Helper()
	in := &s3.CompleteMultipartUploadInput{Bucket: aws.String(b1), Key: aws.String("k"), UploadId: &id, ChecksumType: kind}
	if len(parts) > 0 {
		in.MultipartUpload = &types.CompletedMultipartUpload{Parts: parts}
	}

	return c.CompleteMultipartUpload(t.Context(), in)
}
