// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go/service/s3"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// copyObject copies an object to another key, or to its own key with other metadata.
func (s *Service) copyObject(ctx context.Context, in *s3.CopyObjectInput) (*copyObjectOutput, error) {
	if err := s.authorizeObject(ctx, "PutObject", *in.Bucket, *in.Key); err != nil {
		return nil, err
	}

	if err := checkCopyRequest(ctx, in); err != nil {
		return nil, err
	}

	source, err := s.findCopySource(ctx, *in.CopySource)
	if err != nil {
		return nil, err
	}

	encryption, err := s.resolveEncryption(ctx, *in.Bucket, *in.Key)
	if err != nil {
		return nil, err
	}

	v, err := s.copyVersion(source, *in.Bucket, stringValue(in.ChecksumAlgorithm))
	if err != nil {
		return nil, err
	}

	v = v.withMetadata(ctx, in)
	if err := setStorageClass(v.Headers, in.StorageClass); err != nil {
		s.removeFile(*in.Bucket, v.File)
		return nil, err
	}

	maps.Copy(v.Headers, encryption)
	v.ETag = newETag(v.ETag, encryption)
	if v, err = s.commitVersion(ctx, in.Bucket, *in.Key, v); err != nil {
		return nil, err
	}

	setEncryptionHeaders(ctx, v.Headers)

	return &copyObjectOutput{
		CopyObjectOutput: s3.CopyObjectOutput{
			Expiration:          expirationOf(s, in.Bucket, *in.Key, v),
			VersionId:           responseVersionID(v),
			CopySourceVersionId: responseVersionID(source.version),
		},
		CopyObjectResult: v.copyResult(),
	}, nil
}

// copyResult returns what S3 tells about a copy.
func (v objectVersion) copyResult() *copyObjectResult {
	out := &copyObjectResult{ChecksumCRC64NVME: v.checksum("crc64nvme"), ChecksumType: v.checksumType()}
	out.ETag = &v.ETag
	out.LastModified = &v.Modified
	out.ChecksumCRC32 = v.checksum("crc32")
	out.ChecksumCRC32C = v.checksum("crc32c")
	out.ChecksumSHA1 = v.checksum("sha1")
	out.ChecksumSHA256 = v.checksum("sha256")

	return out
}

// checksum returns a checksum of a version; nil if it does not have it.
func (v objectVersion) checksum(name string) *string {
	if sum, ok := v.Headers[checksumPrefix+name]; ok {
		return &sum
	}

	return nil
}

// checkCopyRequest refuses the directives and ACLs that S3 refuses, and a copy that would change nothing.
func checkCopyRequest(ctx context.Context, in *s3.CopyObjectInput) error {
	if err := checkCopyDirectives(in); err != nil {
		return err
	}

	directive := stringValue(in.MetadataDirective)
	source, err := parseCopySource(*in.CopySource)
	if err != nil {
		return err
	}

	ontoItself := source.bucket == *in.Bucket && source.key == *in.Key && source.versionID == nil
	encrypts := wire.HTTPRequest(ctx).Header.Get(sseHeader) != ""
	if ontoItself && directive != s3.MetadataDirectiveReplace && in.StorageClass == nil && !encrypts {
		return newErrorf(
			invalidRequest,
			"This copy request is illegal because it is trying to copy an object to itself without changing the "+
				"object's metadata, storage class, website redirect location or encryption attributes.",
		).with()
	}

	return nil
}

// checkCopyDirectives refuses the directives and ACLs of a copy that S3 or the region refuse.
func checkCopyDirectives(in *s3.CopyObjectInput) error {
	if err := checkACL(in.ACL, s3.ObjectCannedACLBucketOwnerFullControl); err != nil {
		return err
	}

	directive := stringValue(in.MetadataDirective)
	if directive != "" && !slices.Contains(s3.MetadataDirective_Values(), directive) {
		return newArgumentError("x-amz-metadata-directive", directive, "Unknown metadata directive.")
	}

	if tagging := stringValue(in.TaggingDirective); tagging != "" && tagging != s3.TaggingDirectiveCopy {
		return wire.NotImplemented("x-amz-tagging-directive: " + tagging)
	}

	return nil
}

// foundSource is the version that a copy reads.
type foundSource struct {
	bucket  string
	key     string
	version objectVersion
}

// findCopySource returns the version that a copy reads, and checks that the caller may read it and that it meets
// the conditions of the request.
func (s *Service) findCopySource(ctx context.Context, header string) (foundSource, error) {
	source, err := parseCopySource(header)
	if err != nil {
		return foundSource{}, err
	}

	if err := s.authorizeObject(ctx, objectReadAction(source.versionID), source.bucket, source.key); err != nil {
		return foundSource{}, err
	}

	v, err := s.findVersion(ctx, &source.bucket, &source.key, source.versionID)
	if v.Marker && source.versionID != nil {
		err = newErrorf(
			invalidRequest,
			"The source of a copy request may not specifically refer to a delete marker by version id.",
		).with()
	}

	if err != nil {
		return foundSource{}, err
	}

	if failed := v.failedCondition(copyConditions(wire.HTTPRequest(ctx).Header)); failed != "" {
		return foundSource{}, newPreconditionError("x-amz-copy-source-" + failed)
	}

	_, err = s.authorizeKey(ctx, "Decrypt", source.bucket, source.key, v.Headers)

	return foundSource{bucket: source.bucket, key: source.key, version: v}, err
}

// copyConditions returns the conditions of a copy on its source as those of a read.
func copyConditions(h http.Header) http.Header {
	out := http.Header{}
	for _, name := range []string{"If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since"} {
		if value := h.Get("X-Amz-Copy-Source-" + name); value != "" {
			out.Set(name, value)
		}
	}

	return out
}

// openSource opens the body of the source.
func (s *Service) openSource(source foundSource) (*os.File, error) {
	f, err := os.Open(filepath.Join(s.bucketDir(source.bucket), source.version.File))
	if err != nil {
		return nil, newNoSuchKeyError(source.key) // replaced in the meantime
	}

	return f, nil
}

// uploadPartCopy adds a part to an upload that is a copy of an object, or of a range of one.
func (s *Service) uploadPartCopy(
	ctx context.Context,
	in *s3.UploadPartCopyInput,
) (*uploadPartCopyOutput, error) {
	if err := s.authorizeObject(ctx, "PutObject", *in.Bucket, *in.Key); err != nil {
		return nil, err
	}

	source, err := s.findCopySource(ctx, *in.CopySource)
	if err != nil {
		return nil, err
	}

	checksum, err := s.partChecksum(in.Bucket, in.Key, in.UploadId)
	if err != nil {
		return nil, err
	}

	f, err := s.openSource(source)
	if err != nil {
		return nil, err
	}

	defer func() { _ = f.Close() }()
	picked, err := parseCopyRange(in.CopySourceRange, source.version.Size)
	if err != nil {
		return nil, err
	}

	v, err := s.storeBody(*in.Bucket, io.NewSectionReader(f, picked.first, picked.length), checksum)
	if err != nil {
		return nil, err
	}

	v.Modified = s.cfg.Now().UTC()
	if err := s.addPart(in.Bucket, in.Key, in.UploadId, in.PartNumber, &v); err != nil {
		return nil, err
	}

	if err := s.setUploadHeaders(ctx, in.Bucket, in.Key, in.UploadId); err != nil {
		return nil, err
	}

	copied := v.copyResult()

	return &uploadPartCopyOutput{
		UploadPartCopyOutput: s3.UploadPartCopyOutput{CopySourceVersionId: responseVersionID(source.version)},
		CopyPartResult: &copyPartResult{
			CopyPartResult:    s3.CopyPartResult(copied.CopyObjectResult),
			ChecksumCRC64NVME: copied.ChecksumCRC64NVME,
		},
	}, nil
}

// parseCopyRange returns the bytes that a part copies of an object of a size; all if header is nil.
func parseCopyRange(header *string, size int64) (byteRange, error) {
	if header == nil {
		return byteRange{length: size, whole: true}, nil
	}

	const argument = "x-amz-copy-source-range"
	text := *header
	from, to, _ := strings.Cut(strings.TrimPrefix(text, "bytes="), "-")
	first, errFrom := strconv.ParseInt(from, 10, 64)
	last, errTo := strconv.ParseInt(to, 10, 64)
	wellFormed := regexp.MustCompile(`^bytes=[0-9]+-[0-9]+$`).MatchString(text)

	switch {
	case !wellFormed || errFrom != nil || errTo != nil || first > last:
		return byteRange{}, newArgumentError(
			argument,
			text,
			"The x-amz-copy-source-range value must be of the form bytes=first-last where first and last "+
				"are the zero-based offsets of the first and last bytes to copy",
		)

	case first >= size:
		return byteRange{}, newErrorf(
			invalidRequest,
			"The specified copy range is invalid for the source object size",
		).with()

	case last >= size:
		return byteRange{}, newArgumentError(
			argument,
			text,
			fmt.Sprintf("Range specified is not valid for source object of size: %d", size),
		)
	}

	return byteRange{first: first, length: last - first + 1}, nil
}

// copySource is the object that a copy reads.
type copySource struct {
	bucket    string
	key       string
	versionID *string // nil for the current version
}

// parseCopySource parses the header x-amz-copy-source: bucket/key?versionId=id, escaped as in a URL.
func parseCopySource(header string) (copySource, error) {
	path, query, _ := strings.Cut(strings.TrimPrefix(header, "/"), "?")
	path, errPath := url.PathUnescape(path)
	q, errQuery := url.ParseQuery(query)
	bucket, key, ok := strings.Cut(path, "/")
	if errPath != nil || errQuery != nil || !ok || key == "" {
		return copySource{}, newArgumentError(
			"x-amz-copy-source",
			header,
			"Copy Source must mention the source bucket and key: sourcebucket/sourcekey",
		)
	}

	source := copySource{bucket: bucket, key: key}
	if q.Has("versionId") {
		source.versionID = new(q.Get("versionId"))
	}

	return source, nil
}

// copyVersion copies the body of a version to a new file of a bucket, and returns a version with that file
// and the headers and metadata of the source. checksum is the algorithm that the client asks for; empty for that
// of the source.
func (s *Service) copyVersion(source foundSource, toBucket, checksum string) (objectVersion, error) {
	if err := s.checkBucket(&toBucket); err != nil {
		return objectVersion{}, err
	}

	f, err := s.openSource(source)
	if err != nil {
		return objectVersion{}, err
	}

	defer func() { _ = f.Close() }()
	if names := source.version.checksumNames(); checksum == "" && len(names) > 0 {
		checksum = names[0]
	}

	if checksum == "" {
		checksum = defaultChecksum
	}

	if wire.NewChecksum(checksum) == nil {
		return objectVersion{}, newChecksumAlgorithmError(checksum)
	}

	v, err := s.storeBody(toBucket, f, strings.ToLower(checksum))
	if err != nil {
		return v, err
	}

	v.Type = source.version.Type
	v.Metadata = maps.Clone(source.version.Metadata)
	maps.Copy(v.Headers, contentHeaders(toHeader(source.version.Headers)))

	return v, nil
}

// toHeader returns stored headers as those of a request.
func toHeader(stored map[string]string) http.Header {
	h := http.Header{}
	for name, value := range stored {
		h.Set(name, value)
	}

	return h
}

// withMetadata returns a copy with the content headers and metadata of the request, if its directive is REPLACE.
func (v objectVersion) withMetadata(ctx context.Context, in *s3.CopyObjectInput) objectVersion {
	if stringValue(in.MetadataDirective) != s3.MetadataDirectiveReplace {
		return v
	}

	v.Type = stringValue(in.ContentType)
	v.Metadata = stringValues(in.Metadata)
	for name := range contentHeaders(toHeader(v.Headers)) {
		delete(v.Headers, name)
	}

	maps.Copy(v.Headers, contentHeaders(wire.HTTPRequest(ctx).Header))

	return v
}
