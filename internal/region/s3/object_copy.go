// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go/service/s3"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// copyObject copies an object to another key, or to its own key with other metadata.
func (s *Service) copyObject(ctx context.Context, in *s3.CopyObjectInput) (*s3.CopyObjectOutput, error) {
	if err := s.authorizeObject(ctx, "PutObject", *in.Bucket, *in.Key); err != nil {
		return nil, err
	}

	bucket, source, err := s.findCopySource(ctx, *in.CopySource)
	if err != nil {
		return nil, err
	}

	encryption, err := s.resolveEncryption(ctx, *in.Bucket, *in.Key)
	if err != nil {
		return nil, err
	}

	v, err := s.copyVersion(bucket, *in.Bucket, source)
	if err != nil {
		return nil, err
	}

	v.replaceMetadata(in)
	for _, name := range []string{sseHeader, sseKeyHeader, sseBucketHeader} {
		delete(v.Headers, name)
	}

	maps.Copy(v.Headers, encryption)
	if v, err = s.commitVersion(ctx, in.Bucket, *in.Key, v); err != nil {
		return nil, err
	}

	setEncryptionHeaders(ctx, v.Headers)

	return &s3.CopyObjectOutput{
		CopyObjectResult:    &s3.CopyObjectResult{ETag: &v.ETag, LastModified: &v.Modified},
		VersionId:           responseVersionID(v),
		CopySourceVersionId: responseVersionID(source),
	}, nil
}

// findCopySource returns the bucket and the version that a copy reads, and checks that the caller may read
// it.
func (s *Service) findCopySource(ctx context.Context, header string) (string, objectVersion, error) {
	source, err := parseCopySource(header)
	if err != nil {
		return "", objectVersion{}, err
	}

	if err := s.authorizeObject(ctx, objectReadAction(source.versionID), source.bucket, source.key); err != nil {
		return "", objectVersion{}, err
	}

	v, err := s.findVersion(ctx, &source.bucket, &source.key, source.versionID)
	if err != nil {
		return "", objectVersion{}, err
	}

	_, err = s.authorizeKey(ctx, "Decrypt", source.bucket, source.key, v.Headers)

	return source.bucket, v, err
}

// uploadPartCopy adds a part to an upload that is a copy of an object, or of a range of one.
func (s *Service) uploadPartCopy(
	ctx context.Context,
	in *s3.UploadPartCopyInput,
) (*s3.UploadPartCopyOutput, error) {
	if err := s.authorizeObject(ctx, "PutObject", *in.Bucket, *in.Key); err != nil {
		return nil, err
	}

	bucket, source, err := s.findCopySource(ctx, *in.CopySource)
	if err != nil {
		return nil, err
	}

	f, err := os.Open(filepath.Join(s.bucketDir(bucket), source.File))
	if err != nil {
		return nil, newNoSuchKeyError() // replaced in the meantime
	}

	defer func() { _ = f.Close() }()
	first := int64(0)
	last := source.Size - 1
	if in.CopySourceRange != nil {
		var ok bool
		if first, last, ok = parseByteRange(*in.CopySourceRange, source.Size); !ok {
			return nil, wire.Errorf(
				"InvalidArgument",
				"The x-amz-copy-source-range value must be of the form bytes=first-last where first and last "+
					"are the zero-based offsets of the first and last bytes to copy",
			)
		}
	}

	v, err := s.storeBody(*in.Bucket, io.NewSectionReader(f, first, last-first+1))
	if err != nil {
		return nil, err
	}

	v.Modified = s.cfg.Now().UTC()
	if err := s.addPart(in.Bucket, in.Key, in.UploadId, in.PartNumber, v); err != nil {
		return nil, err
	}

	return &s3.UploadPartCopyOutput{
		CopyPartResult: &s3.CopyPartResult{ETag: &v.ETag, LastModified: &v.Modified},
	}, nil
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
		return copySource{}, wire.Errorf(
			"InvalidArgument",
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
// and the headers and metadata of the source.
func (s *Service) copyVersion(fromBucket, toBucket string, source objectVersion) (objectVersion, error) {
	if err := s.checkBucket(&toBucket); err != nil {
		return objectVersion{}, err
	}

	f, err := os.Open(filepath.Join(s.bucketDir(fromBucket), source.File))
	if err != nil {
		return objectVersion{}, newNoSuchKeyError() // replaced in the meantime
	}

	defer func() { _ = f.Close() }()
	v, err := s.storeBody(toBucket, f)
	if err != nil {
		return v, err
	}

	v.ETag = source.ETag
	v.Type = source.Type
	v.Metadata = maps.Clone(source.Metadata)
	v.Headers = maps.Clone(source.Headers)
	if v.Headers == nil {
		v.Headers = map[string]string{}
	}

	return v, nil
}

// replaceMetadata sets the content headers and metadata of a copy from the request, if its directive is
// REPLACE.
func (v *objectVersion) replaceMetadata(in *s3.CopyObjectInput) {
	if stringValue(in.MetadataDirective) != s3.MetadataDirectiveReplace {
		return
	}

	v.Type = stringValue(in.ContentType)
	v.Metadata = stringValues(in.Metadata)

	for name, value := range map[string]*string{
		"Cache-Control":       in.CacheControl,
		"Content-Disposition": in.ContentDisposition,
		"Content-Encoding":    in.ContentEncoding,
		"Content-Language":    in.ContentLanguage,
	} {
		delete(v.Headers, name)
		if value != nil {
			v.Headers[name] = *value
		}
	}
}

// listObjects is the first version of ListObjects, whose pages continue after a key instead of a token.
func (s *Service) listObjects(ctx context.Context, in *s3.ListObjectsInput) (*s3.ListObjectsOutput, error) {
	out, err := s.listObjectsV2(ctx, &s3.ListObjectsV2Input{
		Bucket:       in.Bucket,
		Prefix:       in.Prefix,
		Delimiter:    in.Delimiter,
		EncodingType: in.EncodingType,
		MaxKeys:      in.MaxKeys,
		StartAfter:   in.Marker,
	})
	if err != nil {
		return nil, err
	}

	page := &s3.ListObjectsOutput{
		Name:           out.Name,
		Prefix:         out.Prefix,
		Delimiter:      out.Delimiter,
		EncodingType:   out.EncodingType,
		MaxKeys:        out.MaxKeys,
		Marker:         in.Marker,
		IsTruncated:    out.IsTruncated,
		Contents:       out.Contents,
		CommonPrefixes: out.CommonPrefixes,
	}
	if isTrue(out.IsTruncated) {
		last := ""
		if n := len(out.Contents); n > 0 {
			last = *out.Contents[n-1].Key
		}

		if n := len(out.CommonPrefixes); n > 0 {
			last = max(last, *out.CommonPrefixes[n-1].Prefix)
		}

		page.NextMarker = &last
	}

	return page, nil
}

func (s *Service) listParts(ctx context.Context, in *s3.ListPartsInput) (*s3.ListPartsOutput, error) {
	if err := s.authorizeObject(ctx, "ListMultipartUploadParts", *in.Bucket, *in.Key); err != nil {
		return nil, err
	}

	out := &s3.ListPartsOutput{
		Bucket:      in.Bucket,
		Key:         in.Key,
		UploadId:    in.UploadId,
		IsTruncated: new(false),
		MaxParts:    new(int64(maxListedKeys)),
	}

	err := s.viewBucket(in.Bucket, func(b *bucket) error {
		u, err := b.findUpload(in.UploadId, in.Key)
		if err == nil {
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
	for _, n := range slices.Sorted(maps.Keys(u.Parts)) {
		if marker != nil && n <= *marker {
			continue
		}

		if len(out.Parts) == maxListedKeys {
			out.IsTruncated = new(true)
			out.NextPartNumberMarker = out.Parts[maxListedKeys-1].PartNumber

			break
		}

		part := u.Parts[n]
		out.Parts = append(out.Parts, &s3.Part{PartNumber: &n, ETag: &part.ETag, Size: &part.Size})
	}
}

func (s *Service) listMultipartUploads(
	ctx context.Context,
	in *s3.ListMultipartUploadsInput,
) (*s3.ListMultipartUploadsOutput, error) {
	if err := s.authorizeObject(ctx, "ListBucketMultipartUploads", *in.Bucket, ""); err != nil {
		return nil, err
	}

	out := &s3.ListMultipartUploadsOutput{Bucket: in.Bucket, Prefix: in.Prefix, IsTruncated: new(false)}
	err := s.viewBucket(in.Bucket, func(b *bucket) error {
		for _, id := range slices.Sorted(maps.Keys(b.Uploads)) {
			if u := b.Uploads[id]; strings.HasPrefix(u.Key, stringValue(in.Prefix)) {
				out.Uploads = append(out.Uploads, &s3.MultipartUpload{
					Key:       new(u.Key),
					UploadId:  &id,
					Initiated: new(u.Started),
				})
			}
		}

		return nil
	})

	return out, err
}
