// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"crypto/md5" //nolint:gosec // what S3's ETag is
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/aws/aws-sdk-go/service/s3"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

func (s *Service) createUpload(ctx context.Context, in *s3.CreateMultipartUploadInput) (*s3.CreateMultipartUploadOutput, error) {
	if err := allowed(ctx, "PutObject", *in.Bucket, *in.Key); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := s.find(in.Bucket)
	if err != nil {
		return nil, err
	}
	id := random()
	b.Uploads[id] = &upload{Key: *in.Key, Started: s.cfg.Now().UTC(), Type: text(in.ContentType), Meta: values(in.Metadata), Parts: map[int64]version{}}
	return &s3.CreateMultipartUploadOutput{Bucket: in.Bucket, Key: in.Key, UploadId: &id}, s.save(b)
}

// find returns an upload under way. The caller holds mu.
func (b *bucket) upload(id, key *string) (*upload, error) {
	u := b.Uploads[text(id)]
	if u == nil || u.Key != *key {
		return nil, &wire.Error{Code: "NoSuchUpload", Message: "The specified upload does not exist.", Status: http.StatusNotFound}
	}
	return u, nil
}

func (s *Service) uploadPart(ctx context.Context, in *s3.UploadPartInput) (*s3.UploadPartOutput, error) {
	if err := allowed(ctx, "PutObject", *in.Bucket, *in.Key); err != nil {
		return nil, err
	}
	v, err := s.receive(ctx, in.Bucket)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := s.find(in.Bucket)
	if err != nil {
		return nil, err
	}
	u, err := b.upload(in.UploadId, in.Key)
	if err != nil {
		s.discard(b, []version{v})
		return nil, err
	}
	old, had := u.Parts[*in.PartNumber]
	u.Parts[*in.PartNumber] = v
	if err := s.save(b); err != nil {
		return nil, err
	}
	if had {
		s.discard(b, []version{old})
	}
	return &s3.UploadPartOutput{ETag: &v.ETag}, nil
}

func (s *Service) completeUpload(ctx context.Context, in *s3.CompleteMultipartUploadInput) (*s3.CompleteMultipartUploadOutput, error) {
	if err := allowed(ctx, "PutObject", *in.Bucket, *in.Key); err != nil {
		return nil, err
	}
	v, parts, err := s.join(in)
	if err != nil {
		return nil, err
	}
	v, err = s.commit(ctx, in.Bucket, *in.Key, v)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := s.find(in.Bucket)
	if err != nil {
		return nil, err
	}
	delete(b.Uploads, *in.UploadId)
	s.discard(b, parts)
	return &s3.CompleteMultipartUploadOutput{Bucket: in.Bucket, Key: in.Key, ETag: &v.ETag, VersionId: shownVersion(v), Location: new("/" + *in.Bucket + "/" + *in.Key)}, s.save(b)
}

// join writes the parts of an upload to one file, in the order that the request lists them.
func (s *Service) join(in *s3.CompleteMultipartUploadInput) (version, []version, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	b, err := s.find(in.Bucket)
	if err != nil {
		return version{}, nil, err
	}
	u, err := b.upload(in.UploadId, in.Key)
	if err != nil {
		return version{}, nil, err
	}
	v := version{File: random(), Type: u.Type, Metadata: u.Meta, Headers: map[string]string{}}
	f, err := os.OpenFile(filepath.Join(s.folder(b.Name), v.File), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return v, nil, fmt.Errorf("join an upload: %w", err)
	}
	defer f.Close() //nolint:errcheck // every write is checked
	if in.MultipartUpload == nil || len(in.MultipartUpload.Parts) == 0 {
		return v, nil, wire.Errorf("MalformedXML", "You must specify at least one part")
	}
	sum := md5.New() //nolint:gosec // what S3's ETag is
	var parts []version
	for _, p := range in.MultipartUpload.Parts {
		part, ok := u.Parts[*p.PartNumber]
		if !ok || strings.Trim(part.ETag, `"`) != strings.Trim(text(p.ETag), `"`) {
			return v, nil, wire.Errorf("InvalidPart", "One or more of the specified parts could not be found.")
		}
		n, err := appendFile(f, filepath.Join(s.folder(b.Name), part.File))
		if err != nil {
			return v, nil, err
		}
		raw, err := hex.DecodeString(strings.Trim(part.ETag, `"`))
		if err != nil {
			return v, nil, err
		}
		sum.Write(raw)
		v.Size += n
		parts = append(parts, part)
	}
	v.ETag = fmt.Sprintf(`"%x-%d"`, sum.Sum(nil), len(parts))
	return v, parts, nil
}

func appendFile(w io.Writer, path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, fmt.Errorf("join an upload: %w", err)
	}
	defer f.Close() //nolint:errcheck // read only
	return io.Copy(w, f)
}

func (s *Service) abortUpload(ctx context.Context, in *s3.AbortMultipartUploadInput) (*s3.AbortMultipartUploadOutput, error) {
	if err := allowed(ctx, "AbortMultipartUpload", *in.Bucket, *in.Key); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := s.find(in.Bucket)
	if err != nil {
		return nil, err
	}
	u, err := b.upload(in.UploadId, in.Key)
	if err != nil {
		return nil, err
	}
	delete(b.Uploads, *in.UploadId)
	for _, part := range u.Parts {
		s.discard(b, []version{part})
	}
	wire.SetStatus(ctx, http.StatusNoContent)
	return &s3.AbortMultipartUploadOutput{}, s.save(b)
}

// copyObject is PutObject with a source: S3 tells the two apart by a header, and answers with another shape.
func (s *Service) copyObject(ctx context.Context, in *s3.PutObjectInput) error {
	source, err := url.PathUnescape(strings.TrimPrefix(wire.Request(ctx).Header.Get("X-Amz-Copy-Source"), "/"))
	if err != nil {
		return wire.Errorf("InvalidArgument", "Copy Source must mention the source bucket and key: sourcebucket/sourcekey")
	}
	return &wire.Error{Code: "NotImplemented", Message: "this region copies no objects; read " + source + " and write " + *in.Key, Status: http.StatusNotImplemented}
}
