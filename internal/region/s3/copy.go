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

// copyObject writes an object that the region already has under another key, or again under its own.
func (s *Service) copyObject(ctx context.Context, in *s3.CopyObjectInput) (*s3.CopyObjectOutput, error) {
	if err := s.allowed(ctx, "PutObject", *in.Bucket, *in.Key); err != nil {
		return nil, err
	}

	bucket, from, err := s.source(ctx, *in.CopySource)
	if err != nil {
		return nil, err
	}

	sealed, err := s.encryption(ctx, *in.Bucket, *in.Key)
	if err != nil {
		return nil, err
	}

	v, err := s.duplicate(bucket, *in.Bucket, from)
	if err != nil {
		return nil, err
	}

	v.replace(in)
	for _, name := range []string{sseHeader, sseKeyHeader, sseBucketHeader} {
		delete(v.Headers, name)
	}

	maps.Copy(v.Headers, sealed)
	if v, err = s.commit(ctx, in.Bucket, *in.Key, v); err != nil {
		return nil, err
	}

	showEncryption(ctx, v.Headers)

	return &s3.CopyObjectOutput{
		CopyObjectResult:    &s3.CopyObjectResult{ETag: &v.ETag, LastModified: &v.Modified},
		VersionId:           shownVersion(v),
		CopySourceVersionId: shownVersion(from),
	}, nil
}

// source finds what a copy is made of, and checks that the caller may read it.
func (s *Service) source(ctx context.Context, header string) (string, version, error) {
	bucket, key, id, err := copySource(header)
	if err != nil {
		return "", version{}, err
	}

	if err := s.allowed(ctx, readAction(id), bucket, key); err != nil {
		return "", version{}, err
	}

	from, err := s.lookup(ctx, &bucket, &key, id)
	if err != nil {
		return "", version{}, err
	}

	_, err = s.useKey(ctx, "Decrypt", bucket, key, from.Headers)

	return bucket, from, err
}

// copyPart is a part of an upload that is made of an object, or of a range of one.
func (s *Service) copyPart(
	ctx context.Context,
	in *s3.UploadPartCopyInput,
) (*s3.UploadPartCopyOutput, error) {
	if err := s.allowed(ctx, "PutObject", *in.Bucket, *in.Key); err != nil {
		return nil, err
	}

	bucket, from, err := s.source(ctx, *in.CopySource)
	if err != nil {
		return nil, err
	}

	f, err := os.Open(filepath.Join(s.folder(bucket), from.File))
	if err != nil {
		return nil, noSuchKey() // replaced this very moment
	}

	defer f.Close() //nolint:errcheck // read only
	first := int64(0)
	length := from.Size
	if in.CopySourceRange != nil {
		from, last, ok := byteRange(*in.CopySourceRange, from.Size)
		if !ok {
			return nil, wire.Errorf(
				"InvalidArgument",
				"The x-amz-copy-source-range value must be of the form bytes=first-last where first and last are the zero-based offsets of the first and last bytes to copy",
			)
		}

		first = from
		length = last - from + 1
	}

	v, err := s.store(*in.Bucket, io.NewSectionReader(f, first, length))
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

// copySource reads bucket/key?versionId=id, escaped as in a URL.
func copySource(
	header string,
) (bucket, key string, id *string, err error) { //revive:disable-line:function-result-limit
	path, query, _ := strings.Cut(strings.TrimPrefix(header, "/"), "?")
	path, errPath := url.PathUnescape(path)
	q, errQuery := url.ParseQuery(query)
	bucket, key, ok := strings.Cut(path, "/")
	if errPath != nil || errQuery != nil || !ok || key == "" {
		return "", "", nil, wire.Errorf(
			"InvalidArgument",
			"Copy Source must mention the source bucket and key: sourcebucket/sourcekey",
		)
	}

	if q.Has("versionId") {
		id = new(q.Get("versionId"))
	}

	return bucket, key, id, nil
}

// duplicate copies a version's body into a new file of a bucket.
func (s *Service) duplicate(fromBucket, toBucket string, from version) (version, error) {
	s.mu.RLock()
	_, err := s.find(&toBucket)
	s.mu.RUnlock()
	if err != nil {
		return version{}, err
	}

	src, err := os.Open(filepath.Join(s.folder(fromBucket), from.File))
	if err != nil {
		return version{}, noSuchKey() // replaced this very moment
	}

	defer src.Close() //nolint:errcheck // read only
	v, err := s.store(toBucket, src)
	if err != nil {
		return v, err
	}

	v.ETag, v.Type, v.Metadata, v.Headers = from.ETag, from.Type, maps.Clone(
		from.Metadata,
	), maps.Clone(
		from.Headers,
	)
	if v.Headers == nil {
		v.Headers = map[string]string{}
	}

	return v, nil
}

// replace gives a copy its own description where the request says so.
func (v *version) replace(in *s3.CopyObjectInput) {
	if text(in.MetadataDirective) != s3.MetadataDirectiveReplace {
		return
	}

	v.Type, v.Metadata = text(in.ContentType), values(in.Metadata)
	for name, value := range map[string]*string{
		"Cache-Control": in.CacheControl, "Content-Disposition": in.ContentDisposition,
		"Content-Encoding": in.ContentEncoding, "Content-Language": in.ContentLanguage,
	} {
		delete(v.Headers, name)
		if value != nil {
			v.Headers[name] = *value
		}
	}
}

// listObjectsV1 is the older list: its pages go on after a key instead of a token.
func (s *Service) listObjectsV1(ctx context.Context, in *s3.ListObjectsInput) (*s3.ListObjectsOutput, error) {
	out, err := s.listObjects(ctx, &s3.ListObjectsV2Input{
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

	old := &s3.ListObjectsOutput{
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
	if on(out.IsTruncated) {
		last := ""
		if n := len(out.Contents); n > 0 {
			last = *out.Contents[n-1].Key
		}

		if n := len(out.CommonPrefixes); n > 0 {
			last = max(last, *out.CommonPrefixes[n-1].Prefix)
		}

		old.NextMarker = &last
	}

	return old, nil
}

func (s *Service) listParts(ctx context.Context, in *s3.ListPartsInput) (*s3.ListPartsOutput, error) {
	if err := s.allowed(ctx, "ListMultipartUploadParts", *in.Bucket, *in.Key); err != nil {
		return nil, err
	}

	s.mu.RLock()
	defer s.mu.RUnlock()
	b, err := s.find(in.Bucket)
	if err != nil {
		return nil, err
	}

	u, err := b.upload(in.UploadId, in.Key)
	if err != nil {
		return nil, err
	}

	out := &s3.ListPartsOutput{
		Bucket:      in.Bucket,
		Key:         in.Key,
		UploadId:    in.UploadId,
		IsTruncated: new(false),
		MaxParts:    new(int64(maxKeys)),
	}

	for _, n := range slices.Sorted(maps.Keys(u.Parts)) {
		if in.PartNumberMarker != nil && n <= *in.PartNumberMarker {
			continue
		}

		if len(out.Parts) == maxKeys {
			out.IsTruncated, out.NextPartNumberMarker = new(true), out.Parts[maxKeys-1].PartNumber
			break
		}

		part := u.Parts[n]
		out.Parts = append(out.Parts, &s3.Part{PartNumber: &n, ETag: &part.ETag, Size: &part.Size})
	}

	return out, nil
}

func (s *Service) listUploads(
	ctx context.Context,
	in *s3.ListMultipartUploadsInput,
) (*s3.ListMultipartUploadsOutput, error) {
	if err := s.allowed(ctx, "ListBucketMultipartUploads", *in.Bucket, ""); err != nil {
		return nil, err
	}

	s.mu.RLock()
	defer s.mu.RUnlock()
	b, err := s.find(in.Bucket)
	if err != nil {
		return nil, err
	}

	out := &s3.ListMultipartUploadsOutput{Bucket: in.Bucket, Prefix: in.Prefix, IsTruncated: new(false)}

	for _, id := range slices.Sorted(maps.Keys(b.Uploads)) {
		if u := b.Uploads[id]; strings.HasPrefix(u.Key, text(in.Prefix)) {
			out.Uploads = append(
				out.Uploads,
				&s3.MultipartUpload{Key: &u.Key, UploadId: &id, Initiated: &u.Started},
			)
		}
	}

	return out, nil
}
