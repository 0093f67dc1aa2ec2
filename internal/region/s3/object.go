// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"crypto/md5" //nolint:gosec // what S3's ETag is
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go/service/s3"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// kept are the headers of a write that a read gives back.
func kept() []string {
	return []string{"Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language"}
}

func (s *Service) putObject(ctx context.Context, in *s3.PutObjectInput) (*s3.PutObjectOutput, error) {
	if err := allowed(ctx, "PutObject", *in.Bucket, *in.Key); err != nil {
		return nil, err
	}
	if wire.Request(ctx).Header.Get("X-Amz-Copy-Source") != "" {
		return nil, s.copyObject(ctx, in)
	}
	v, err := s.receive(ctx, in.Bucket)
	if err != nil {
		return nil, err
	}
	v.Type = text(in.ContentType)
	v.Metadata = values(in.Metadata)
	v, err = s.commit(ctx, in.Bucket, *in.Key, v)
	if err != nil {
		return nil, err
	}
	return &s3.PutObjectOutput{ETag: &v.ETag, VersionId: shownVersion(v)}, nil
}

// receive writes the request's body to a new file of the bucket.
func (s *Service) receive(ctx context.Context, name *string) (version, error) {
	s.mu.RLock()
	_, err := s.find(name)
	s.mu.RUnlock()
	if err != nil {
		return version{}, err
	}
	r := wire.Request(ctx)
	v := version{File: random(), Headers: map[string]string{}}
	for _, h := range kept() {
		if value := r.Header.Get(h); value != "" && value != "aws-chunked" {
			v.Headers[h] = strings.TrimPrefix(value, "aws-chunked,")
		}
	}
	path := filepath.Join(s.folder(*name), v.File)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return v, fmt.Errorf("store an object: %w", err)
	}
	sum := md5.New() //nolint:gosec // what S3's ETag is
	v.Size, err = io.Copy(io.MultiWriter(f, sum), r.Body)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		os.Remove(path) //nolint:errcheck,gosec // nobody refers to it
		return v, err
	}
	for name, value := range wire.Checksums(r) {
		v.Headers["X-Amz-Checksum-"+name] = value
	}
	v.ETag = `"` + hex.EncodeToString(sum.Sum(nil)) + `"`
	return v, nil
}

// commit makes v the newest version of a key, if the request's conditions hold: the whole of it is atomic.
func (s *Service) commit(ctx context.Context, name *string, key string, v version) (version, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := s.find(name)
	if err != nil {
		return v, err
	}
	have, exists := b.newest(key)
	if err := precondition(wire.Request(ctx).Header, have, exists); err != nil {
		os.Remove(filepath.Join(s.folder(b.Name), v.File)) //nolint:errcheck,gosec // nobody refers to it
		return v, err
	}
	v.Modified = s.cfg.Now().UTC().Truncate(1e9)
	old := b.put(key, v)
	v = b.Versions[key][0]
	if err := s.save(b); err != nil {
		return v, err
	}
	s.discard(b, old)
	return v, nil
}

// put adds v as the newest version of a key and returns the versions that it replaces for good.
func (b *bucket) put(key string, v version) (old []version) {
	v.ID = "null"
	if b.versioned() {
		v.ID = random()
	}
	rest := slices.DeleteFunc(slices.Clone(b.Versions[key]), func(have version) bool {
		if have.ID == v.ID {
			old = append(old, have)
			return true
		}
		return false
	})
	b.Versions[key] = append([]version{v}, rest...)
	return old
}

// discard removes the bodies of versions that are gone.
func (s *Service) discard(b *bucket, old []version) {
	for _, v := range old {
		if v.File != "" {
			os.Remove(filepath.Join(s.folder(b.Name), v.File)) //nolint:errcheck,gosec // an orphan does no harm
		}
	}
}

// newest returns the current version of a key; ok is false where there is none or it was deleted.
func (b *bucket) newest(key string) (v version, ok bool) {
	vs := b.Versions[key]
	if len(vs) == 0 || vs[0].Marker {
		return version{}, false
	}
	return vs[0], true
}

// precondition checks the conditions of a write against what is there.
func precondition(h http.Header, have version, exists bool) error { //nolint:revive // exists belongs to have, as newest returns them
	failed := &wire.Error{Code: "PreconditionFailed", Message: "At least one of the pre-conditions you specified did not hold", Status: http.StatusPreconditionFailed}
	if h.Get("If-None-Match") == "*" && exists {
		return failed
	}
	want := h.Get("If-Match")
	switch {
	case want == "":
		return nil
	case !exists:
		return noSuchKey()
	case want != "*" && strings.Trim(want, `"`) != strings.Trim(have.ETag, `"`):
		return failed
	}
	return nil
}

func noSuchKey() error {
	return &wire.Error{Code: "NoSuchKey", Message: "The specified key does not exist.", Status: http.StatusNotFound}
}

// lookup finds the version that a read asks for. To a caller who may not list, what is missing is forbidden.
func (s *Service) lookup(ctx context.Context, name, key, id *string) (version, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	b, err := s.find(name)
	if err != nil {
		return version{}, err
	}
	v, ok := b.newest(*key)
	if id != nil {
		i := slices.IndexFunc(b.Versions[*key], func(v version) bool { return v.ID == *id })
		if ok = i >= 0; ok {
			v = b.Versions[*key][i]
		}
	}
	if !ok {
		if err := mayList(ctx, *name, *key); err != nil {
			return v, wire.Denied(ctx, wire.Check{Action: "s3:ListBucket", Resource: "arn:aws:s3:::" + *name}, "no identity-based policy allows the action")
		}
		return v, noSuchKey()
	}
	return v, nil
}

func (s *Service) getObject(ctx context.Context, in *s3.GetObjectInput) (*s3.GetObjectOutput, error) {
	if err := allowed(ctx, "GetObject", *in.Bucket, *in.Key); err != nil {
		return nil, err
	}
	v, err := s.lookup(ctx, in.Bucket, in.Key, in.VersionId)
	if err != nil {
		return nil, err
	}
	if err := readCondition(wire.Request(ctx).Header, v); err != nil {
		return nil, err
	}
	f, err := os.Open(filepath.Join(s.folder(*in.Bucket), v.File))
	if err != nil {
		return nil, noSuchKey() // replaced this very moment
	}
	out := &s3.GetObjectOutput{
		AcceptRanges: new("bytes"), Body: f, ContentLength: &v.Size, ETag: &v.ETag, LastModified: &v.Modified,
		Metadata: pointers(v.Metadata), VersionId: shownVersion(v),
	}
	describe(ctx, v, text(in.ChecksumMode) != "")
	if in.Range != nil {
		return out, cut(ctx, out, f, v.Size, *in.Range)
	}
	return out, nil
}

// readCondition checks the conditions of a read.
func readCondition(h http.Header, v version) error {
	switch {
	case h.Get("If-None-Match") != "" && strings.Trim(h.Get("If-None-Match"), `"`) == strings.Trim(v.ETag, `"`):
		return &wire.Error{Code: "NotModified", Message: "Not Modified", Status: http.StatusNotModified}
	case h.Get("If-Match") != "" && h.Get("If-Match") != "*" && strings.Trim(h.Get("If-Match"), `"`) != strings.Trim(v.ETag, `"`):
		return &wire.Error{Code: "PreconditionFailed", Message: "At least one of the pre-conditions you specified did not hold", Status: http.StatusPreconditionFailed}
	}
	return nil
}

// describe sets the headers that come back with an object as it was written.
func describe(ctx context.Context, v version, checksums bool) { //nolint:revive // as the request says
	contentType := v.Type
	if contentType == "" {
		contentType = "binary/octet-stream"
	}
	wire.SetHeader(ctx, "Content-Type", contentType)
	for name, value := range v.Headers {
		if checksums || !strings.HasPrefix(name, "X-Amz-Checksum-") {
			wire.SetHeader(ctx, name, value)
		}
	}
}

// limited is a part of a file.
type limited struct {
	io.Reader
	io.Closer
}

// cut makes out the part of the object that a Range header asks for: bytes=a-b, bytes=a- or bytes=-n.
func cut(ctx context.Context, out *s3.GetObjectOutput, f *os.File, size int64, header string) error {
	bad := &wire.Error{Code: "InvalidRange", Message: "The requested range is not satisfiable", Status: http.StatusRequestedRangeNotSatisfiable}
	from, to, ok := strings.Cut(strings.TrimPrefix(header, "bytes="), "-")
	first, err1 := strconv.ParseInt(from, 10, 64)
	last, err2 := strconv.ParseInt(to, 10, 64)
	switch {
	case !ok || (err1 != nil && err2 != nil):
		return bad
	case err1 != nil:
		first, last = max(0, size-last), size-1
	case err2 != nil:
		last = size - 1
	}
	last = min(last, size-1)
	if first > last {
		return bad
	}
	out.Body = limited{io.NewSectionReader(f, first, last-first+1), f}
	out.ContentLength = new(last - first + 1)
	out.ContentRange = new(fmt.Sprintf("bytes %d-%d/%d", first, last, size))
	wire.SetStatus(ctx, http.StatusPartialContent)
	return nil
}

func (s *Service) headObject(ctx context.Context, in *s3.HeadObjectInput) (*s3.HeadObjectOutput, error) {
	if err := allowed(ctx, "GetObject", *in.Bucket, *in.Key); err != nil {
		return nil, err
	}
	v, err := s.lookup(ctx, in.Bucket, in.Key, in.VersionId)
	if err != nil {
		return nil, err
	}
	if err := readCondition(wire.Request(ctx).Header, v); err != nil {
		return nil, err
	}
	describe(ctx, v, text(in.ChecksumMode) != "")
	wire.SetHeader(ctx, "Content-Length", strconv.FormatInt(v.Size, 10))
	return &s3.HeadObjectOutput{
		AcceptRanges: new("bytes"), ETag: &v.ETag, LastModified: &v.Modified, Metadata: pointers(v.Metadata), VersionId: shownVersion(v),
	}, nil
}

// shownVersion is a version's id as answers carry it: only where versions are kept.
func shownVersion(v version) *string {
	if v.ID == "null" {
		return nil
	}
	return &v.ID
}

func values(m map[string]*string) map[string]string {
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[k] = *v
	}
	return out
}

func pointers(m map[string]string) map[string]*string {
	out := make(map[string]*string, len(m))
	for k, v := range m {
		out[k] = &v
	}
	return out
}
