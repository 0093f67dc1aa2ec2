// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"crypto/md5"
	"encoding/base64"
	"encoding/hex"
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

func (s *Service) putObject(ctx context.Context, in *s3.PutObjectInput) (*s3.PutObjectOutput, error) {
	if err := s.authorizeObject(ctx, "PutObject", *in.Bucket, *in.Key); err != nil {
		return nil, err
	}

	headers, err := s.newObjectHeaders(ctx, in)
	if err != nil {
		return nil, err
	}

	v, err := s.storeRequestBody(ctx, in.Bucket)
	if err != nil {
		return nil, err
	}

	maps.Copy(v.Headers, headers)
	v.ETag = newETag(v.ETag, headers)
	v.Type = stringValue(in.ContentType)
	v.Metadata = stringValues(in.Metadata)
	v, err = s.commitVersion(ctx, in.Bucket, *in.Key, v)
	if err != nil {
		return nil, err
	}

	setEncryptionHeaders(ctx, v.Headers)
	setChecksumHeaders(ctx, v)

	return &s3.PutObjectOutput{
		ETag:       &v.ETag,
		Expiration: expirationOf(s, in.Bucket, *in.Key, v),
		VersionId:  responseVersionID(v),
	}, nil
}

// newObjectHeaders returns the headers of an object that a request creates: content headers, storage class and
// encryption. It refuses what S3 refuses before it reads the body.
func (s *Service) newObjectHeaders(ctx context.Context, in *s3.PutObjectInput) (map[string]string, error) {
	if len(*in.Key) > maxKeyBytes {
		return nil, newError(keyTooLong, detail("Size", strconv.Itoa(len(*in.Key))), detail("MaxSizeAllowed", "1024"))
	}

	if err := checkACL(in.ACL, s3.ObjectCannedACLBucketOwnerFullControl); err != nil {
		return nil, err
	}

	headers := contentHeaders(wire.HTTPRequest(ctx).Header)
	if err := setStorageClass(headers, in.StorageClass); err != nil {
		return nil, err
	}

	encryption, err := s.resolveEncryption(ctx, *in.Bucket, *in.Key)
	if err != nil {
		return nil, err
	}

	maps.Copy(headers, encryption)

	return headers, nil
}

// storeRequestBody writes the request's body to a new file of the bucket. It returns a version with the file
// and the checksums. As in S3, a body that the client sent without a checksum gets CRC64NVME.
func (s *Service) storeRequestBody(ctx context.Context, name *string) (objectVersion, error) {
	if err := s.checkBucket(name); err != nil {
		return objectVersion{}, err
	}

	r := wire.HTTPRequest(ctx)
	v, err := s.storeBody(*name, r.Body, defaultChecksum)
	if err != nil {
		return v, err
	}

	sums := wire.BodyChecksums(r)
	if len(sums) > 0 {
		v.dropChecksums()
		for name, value := range sums {
			v.setChecksum(name, value)
		}
	}

	return v, nil
}

// storeBody writes a body to a new file of a bucket and returns a version with the file, its size, its ETag and
// a checksum. It removes the file if the body cannot be read to its end.
func (s *Service) storeBody(bucket string, body io.Reader, checksum string) (objectVersion, error) {
	v := objectVersion{File: randomHex(), Headers: map[string]string{}}
	path := filepath.Join(s.bucketDir(bucket), v.File)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return v, fmt.Errorf("store an object: %w", err)
	}

	sum := md5.New()
	extra := wire.NewChecksum(checksum)
	v.Size, err = io.Copy(io.MultiWriter(f, sum, extra), body)
	if closed := f.Close(); err == nil {
		err = closed
	}

	if err != nil {
		s.removeFile(bucket, v.File)
		return v, err
	}

	v.ETag = `"` + hex.EncodeToString(sum.Sum(nil)) + `"`
	v.setChecksum(checksum, base64.StdEncoding.EncodeToString(extra.Sum(nil)))

	return v, nil
}

// maxKeyBytes is S3's limit of the length of a key.
const maxKeyBytes = 1024

// setChecksum sets a checksum of the whole body. name is that of [wire.NewChecksum].
func (v objectVersion) setChecksum(name, value string) {
	v.Headers[checksumPrefix+name] = value
	v.Headers[checksumTypeHeader] = s3ChecksumFullObject
}

// checksumNames returns the names of the checksums of a version.
func (v objectVersion) checksumNames() []string {
	var names []string
	for header := range v.Headers {
		if name, ok := strings.CutPrefix(header, checksumPrefix); ok && wire.NewChecksum(name) != nil {
			names = append(names, name)
		}
	}

	slices.Sort(names)

	return names
}

// dropChecksums removes the checksums of a version.
func (v objectVersion) dropChecksums() {
	for _, name := range v.checksumNames() {
		delete(v.Headers, checksumPrefix+name)
	}

	delete(v.Headers, checksumTypeHeader)
}

// setChecksumHeaders adds the checksums of an object to the response to a write.
func setChecksumHeaders(ctx context.Context, v objectVersion) {
	for name, value := range v.Headers {
		if strings.HasPrefix(name, checksumPrefix) {
			wire.SetResponseHeader(ctx, name, value)
		}
	}
}

// The checksums of an object: the prefix of their headers, what they are sums of, and the one that S3 computes
// for objects that were written without one.
const (
	checksumPrefix       = "X-Amz-Checksum-"
	checksumTypeHeader   = checksumPrefix + "type"
	s3ChecksumFullObject = "FULL_OBJECT"
	s3ChecksumComposite  = "COMPOSITE" // a sum of the sums of the parts
	defaultChecksum      = "crc64nvme"
)

// commitVersion makes v the newest version of a key if the conditions of the request are met. The check and
// the change are one atomic step.
func (s *Service) commitVersion(
	ctx context.Context,
	name *string,
	key string,
	v objectVersion,
) (objectVersion, error) {
	var old []objectVersion
	err := s.updateKey(name, key, func(b *bucket) error {
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
	v.ID = nullVersion
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
	if none := h.Get("If-None-Match"); none != "" {
		if none != "*" {
			return wire.NotImplemented("If-None-Match: " + none)
		}

		if exists {
			return newPreconditionError("If-None-Match")
		}
	}

	want := h.Get("If-Match")

	switch {
	case want == "":
		return nil
	case !exists:
		return newNoSuchKeyError(key)
	case want != "*" && strings.Trim(want, `"`) != strings.Trim(current.ETag, `"`):
		return newPreconditionError("If-Match")
	}

	return nil
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
