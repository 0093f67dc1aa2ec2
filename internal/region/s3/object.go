// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go/service/s3"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// storedHeaders returns the headers of a write that a read returns.
func storedHeaders() []string {
	return []string{"Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language"}
}

func (s *Service) putObject(ctx context.Context, in *s3.PutObjectInput) (*s3.PutObjectOutput, error) {
	if err := s.authorizeObject(ctx, "PutObject", *in.Bucket, *in.Key); err != nil {
		return nil, err
	}

	if len(*in.Key) > maxKeyBytes {
		return nil, wire.Errorf("KeyTooLongError", "Your key is too long")
	}

	encryption, err := s.resolveEncryption(ctx, *in.Bucket, *in.Key)
	if err != nil {
		return nil, err
	}

	v, err := s.storeRequestBody(ctx, in.Bucket)
	if err != nil {
		return nil, err
	}

	maps.Copy(v.Headers, encryption)
	v.Type = stringValue(in.ContentType)
	v.Metadata = stringValues(in.Metadata)
	v, err = s.commitVersion(ctx, in.Bucket, *in.Key, v)
	if err != nil {
		return nil, err
	}

	setEncryptionHeaders(ctx, v.Headers)
	setChecksumHeaders(ctx, v)

	return &s3.PutObjectOutput{ETag: &v.ETag, VersionId: responseVersionID(v)}, nil
}

// storeRequestBody writes the request's body to a new file of the bucket. It returns a version with the file,
// the stored headers and the checksums.
func (s *Service) storeRequestBody(ctx context.Context, name *string) (objectVersion, error) {
	if err := s.checkBucket(name); err != nil {
		return objectVersion{}, err
	}

	r := wire.HTTPRequest(ctx)
	headers := map[string]string{}

	for _, h := range storedHeaders() {
		if value := r.Header.Get(h); value != "" {
			headers[h] = value
		}
	}

	v, err := s.storeBody(*name, r.Body)
	if err != nil {
		return v, err
	}

	v.Headers = headers
	for name, value := range wire.BodyChecksums(r) {
		v.Headers[checksumPrefix+name] = value
	}

	return v, nil
}

// storeBody writes a body to a new file of a bucket and returns a version with the file, its size and its
// ETag. It removes the file if the body cannot be read to its end.
func (s *Service) storeBody(bucket string, body io.Reader) (objectVersion, error) {
	v := objectVersion{File: randomHex()}
	path := filepath.Join(s.bucketDir(bucket), v.File)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return v, fmt.Errorf("store an object: %w", err)
	}

	sum := md5.New()
	v.Size, err = io.Copy(io.MultiWriter(f, sum), body)
	if closed := f.Close(); err == nil {
		err = closed
	}

	if err != nil {
		s.removeFile(bucket, v.File)
		return v, err
	}

	v.ETag = `"` + hex.EncodeToString(sum.Sum(nil)) + `"`

	return v, nil
}

// maxKeyBytes is S3's limit of the length of a key.
const maxKeyBytes = 1024

// setChecksumHeaders adds the checksums of an object to the response to a write.
func setChecksumHeaders(ctx context.Context, v objectVersion) {
	for name, value := range v.Headers {
		if strings.HasPrefix(name, checksumPrefix) {
			wire.SetResponseHeader(ctx, name, value)
		}
	}
}

const checksumPrefix = "X-Amz-Checksum-"

// commitVersion makes v the newest version of a key if the conditions of the request are met. The check and
// the change are one atomic step.
func (s *Service) commitVersion(
	ctx context.Context,
	name *string,
	key string,
	v objectVersion,
) (objectVersion, error) {
	var old []objectVersion
	err := s.updateBucket(name, func(b *bucket) error {
		if err := b.checkWriteConditions(wire.HTTPRequest(ctx).Header, key); err != nil {
			s.removeFile(b.Name, v.File)
			return err
		}

		v.Modified = s.cfg.Now().UTC().Truncate(1e9)
		old = b.addVersion(key, v)
		v = b.Versions[key][0]

		return nil
	})
	if err != nil {
		return v, err
	}

	s.removeFiles(*name, old)

	return v, nil
}

// addVersion adds v as the newest version of a key and returns the versions that it replaces permanently.
func (b *bucket) addVersion(key string, v objectVersion) (old []objectVersion) {
	v.ID = "null"
	if b.isVersioned() {
		v.ID = randomHex()
	}

	rest := slices.DeleteFunc(slices.Clone(b.Versions[key]), func(have objectVersion) bool {
		if have.ID == v.ID {
			old = append(old, have)
			return true
		}

		return false
	})

	b.Versions[key] = append([]objectVersion{v}, rest...)

	return old
}

// removeFiles removes the bodies of versions that the saved index does not refer to any more.
func (s *Service) removeFiles(bucket string, old []objectVersion) {
	for _, v := range old {
		if v.File != "" {
			s.removeFile(bucket, v.File)
		}
	}
}

// removeFile removes a body that no version refers to. If that fails, the file only takes up space.
func (s *Service) removeFile(bucket, file string) {
	_ = os.Remove(filepath.Join(s.bucketDir(bucket), file))
}

// currentVersion returns the current version of a key. ok is false if the key does not exist or was deleted.
func (b *bucket) currentVersion(key string) (v objectVersion, ok bool) {
	vs := b.Versions[key]
	if len(vs) == 0 || vs[0].Marker {
		return objectVersion{}, false
	}

	return vs[0], true
}

// lookupVersion returns a version or delete marker of a key; the current version if id is nil.
func (b *bucket) lookupVersion(key string, id *string) (v objectVersion, ok bool) {
	if id == nil {
		return b.currentVersion(key)
	}

	i := slices.IndexFunc(b.Versions[key], func(v objectVersion) bool { return v.ID == *id })
	if i < 0 {
		return objectVersion{}, false
	}

	return b.Versions[key][i], true
}

// checkWriteConditions checks the headers If-Match and If-None-Match of a write against the current version
// of a key.
func (b *bucket) checkWriteConditions(h http.Header, key string) error {
	current, exists := b.currentVersion(key)
	failed := &wire.Error{
		Code:    "PreconditionFailed",
		Message: "At least one of the pre-conditions you specified did not hold",
		Status:  http.StatusPreconditionFailed,
	}
	if h.Get("If-None-Match") == "*" && exists {
		return failed
	}

	want := h.Get("If-Match")

	switch {
	case want == "":
		return nil
	case !exists:
		return newNoSuchKeyError()
	case want != "*" && strings.Trim(want, `"`) != strings.Trim(current.ETag, `"`):
		return failed
	}

	return nil
}

func newNoSuchKeyError() error {
	return &wire.Error{
		Code:    "NoSuchKey",
		Message: "The specified key does not exist.",
		Status:  http.StatusNotFound,
	}
}

// findVersion returns the version that a read asks for; the current one if id is nil. As in S3, a caller who
// may not list the bucket gets AccessDenied instead of NoSuchKey.
func (s *Service) findVersion(ctx context.Context, name, key, id *string) (objectVersion, error) {
	var v objectVersion
	var ok bool
	err := s.viewBucket(name, func(b *bucket) error {
		v, ok = b.lookupVersion(*key, id)
		return nil
	})
	if err != nil {
		return v, err
	}

	switch {
	case ok && v.Marker:
		wire.SetResponseHeader(ctx, "X-Amz-Delete-Marker", "true")
		return v, &wire.Error{
			Code:    "MethodNotAllowed",
			Message: "The specified method is not allowed against this resource.",
			Status:  http.StatusMethodNotAllowed,
		}

	case ok:
		return v, nil
	}

	if err := s.authorizeList(ctx, *name, *key); err != nil {
		return v, wire.AccessDenied(
			ctx,
			wire.AccessCheck{Action: "s3:ListBucket", Resource: "arn:aws:s3:::" + *name},
			"no identity-based policy allows the action",
		)
	}

	if id != nil {
		return v, &wire.Error{
			Code:    "NoSuchVersion",
			Message: "The specified version does not exist.",
			Status:  http.StatusNotFound,
		}
	}

	return v, newNoSuchKeyError()
}

func (s *Service) getObject(ctx context.Context, in *s3.GetObjectInput) (*s3.GetObjectOutput, error) {
	if err := s.authorizeObject(ctx, objectReadAction(in.VersionId), *in.Bucket, *in.Key); err != nil {
		return nil, err
	}

	v, f, err := s.openVersion(ctx, in.Bucket, in.Key, in.VersionId)
	if err != nil {
		return nil, err
	}

	if err := checkReadConditions(wire.HTTPRequest(ctx).Header, v); err != nil {
		return nil, errors.Join(err, f.Close())
	}

	if _, err := s.authorizeKey(ctx, "Decrypt", *in.Bucket, *in.Key, v.Headers); err != nil {
		return nil, errors.Join(err, f.Close())
	}

	out := &s3.GetObjectOutput{
		AcceptRanges:  new("bytes"),
		Body:          f,
		ContentLength: &v.Size,
		ETag:          &v.ETag,
		LastModified:  &v.Modified,
		Metadata:      stringPointers(v.Metadata),
		VersionId:     responseVersionID(v),
	}

	setObjectHeaders(ctx, v, stringValue(in.ChecksumMode) != "")
	if in.Range != nil {
		if err := applyRange(ctx, out, f, *in.Range); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}

	return out, nil
}

// objectReadAction returns the IAM action of a read of the current version (id is nil) or of a given version.
func objectReadAction(id *string) string {
	if id != nil {
		return "GetObjectVersion"
	}

	return "GetObject"
}

// checkReadConditions checks the conditions of a read. As in RFC 9110, ETags take precedence over dates.
func checkReadConditions(h http.Header, v objectVersion) error {
	matches := func(want string) bool {
		return want == "*" || strings.Trim(want, `"`) == strings.Trim(v.ETag, `"`)
	}
	after := func(date string) (newer, ok bool) {
		t, err := http.ParseTime(date)
		return v.Modified.After(t), err == nil
	}

	none := h.Get("If-None-Match")
	match := h.Get("If-Match")
	newer, since := after(h.Get("If-Modified-Since"))
	changed, unless := after(h.Get("If-Unmodified-Since"))

	switch {
	case match != "" && !matches(match), match == "" && unless && changed:
		return &wire.Error{
			Code:    "PreconditionFailed",
			Message: "At least one of the pre-conditions you specified did not hold",
			Status:  http.StatusPreconditionFailed,
		}

	case none != "" && matches(none), none == "" && since && !newer:
		return &wire.Error{Code: "NotModified", Message: "Not Modified", Status: http.StatusNotModified}
	}

	return nil
}

// setObjectHeaders adds the content headers of an object to the response, and its checksums if the request
// asks for them.
func setObjectHeaders(ctx context.Context, v objectVersion, checksums bool) {
	contentType := v.Type
	if contentType == "" {
		contentType = "binary/octet-stream"
	}

	wire.SetResponseHeader(ctx, "Content-Type", contentType)

	for name, value := range v.Headers {
		if checksums || !strings.HasPrefix(name, checksumPrefix) {
			wire.SetResponseHeader(ctx, name, value)
		}
	}
}

// rangeBody reads a part of a file and closes the file.
type rangeBody struct {
	io.Reader
	io.Closer
}

// applyRange reduces out to the range that a Range header asks for: bytes=a-b, bytes=a- or bytes=-n.
func applyRange(ctx context.Context, out *s3.GetObjectOutput, f *os.File, header string) error {
	size := *out.ContentLength
	first, last, ok := parseByteRange(header, size)
	if !ok {
		return &wire.Error{
			Code:    "InvalidRange",
			Message: "The requested range is not satisfiable",
			Status:  http.StatusRequestedRangeNotSatisfiable,
		}
	}

	out.Body = rangeBody{io.NewSectionReader(f, first, last-first+1), f}
	out.ContentLength = new(last - first + 1)
	out.ContentRange = new(fmt.Sprintf("bytes %d-%d/%d", first, last, size))
	wire.SetResponseStatus(ctx, http.StatusPartialContent)

	return nil
}

// parseByteRange returns the first and the last byte of a range of size bytes.
func parseByteRange(header string, size int64) (first, last int64, ok bool) {
	text, bytes := strings.CutPrefix(header, "bytes=")
	from, to, dash := strings.Cut(text, "-")
	first, errFrom := strconv.ParseInt(from, 10, 64)
	last, errTo := strconv.ParseInt(to, 10, 64)

	switch {
	case !bytes || !dash || errFrom != nil && errTo != nil || first < 0 || last < 0:
		return 0, 0, false
	case errFrom != nil:
		first = max(0, size-last)
		last = size - 1
	case errTo != nil:
		last = size - 1
	}

	last = min(last, size-1)

	return first, last, first <= last
}

func (s *Service) headObject(ctx context.Context, in *s3.HeadObjectInput) (*s3.HeadObjectOutput, error) {
	if err := s.authorizeObject(ctx, objectReadAction(in.VersionId), *in.Bucket, *in.Key); err != nil {
		return nil, err
	}

	v, err := s.findVersion(ctx, in.Bucket, in.Key, in.VersionId)
	if err != nil {
		return nil, err
	}

	if err := checkReadConditions(wire.HTTPRequest(ctx).Header, v); err != nil {
		return nil, err
	}

	setObjectHeaders(ctx, v, stringValue(in.ChecksumMode) != "")
	wire.SetResponseHeader(ctx, "Content-Length", strconv.FormatInt(v.Size, 10))

	return &s3.HeadObjectOutput{
		AcceptRanges: new("bytes"),
		ETag:         &v.ETag,
		LastModified: &v.Modified,
		Metadata:     stringPointers(v.Metadata),
		VersionId:    responseVersionID(v),
	}, nil
}

// responseVersionID returns the id of a version for a response; nil if it was written without versioning.
func responseVersionID(v objectVersion) *string {
	if v.ID == "null" {
		return nil
	}

	return &v.ID
}

func stringValues(m map[string]*string) map[string]string {
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[k] = *v
	}

	return out
}

func stringPointers(m map[string]string) map[string]*string {
	out := make(map[string]*string, len(m))
	for k, v := range m {
		out[k] = &v
	}

	return out
}
