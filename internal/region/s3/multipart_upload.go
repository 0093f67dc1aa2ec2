// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/aws/aws-sdk-go/service/s3"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

func (s *Service) createMultipartUpload(
	ctx context.Context,
	in *s3.CreateMultipartUploadInput,
) (*s3.CreateMultipartUploadOutput, error) {
	if err := s.authorizeObject(ctx, "PutObject", *in.Bucket, *in.Key); err != nil {
		return nil, err
	}

	headers, err := s.resolveEncryption(ctx, *in.Bucket, *in.Key)
	if err != nil {
		return nil, err
	}

	setEncryptionHeaders(ctx, headers)

	for _, h := range storedHeaders() {
		if value := wire.HTTPRequest(ctx).Header.Get(h); value != "" {
			headers[h] = value
		}
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := s.findBucket(in.Bucket)
	if err != nil {
		return nil, err
	}

	id := randomHex()
	b.Uploads[id] = &multipartUpload{
		Key:     *in.Key,
		Started: s.cfg.Now().UTC(),
		Type:    stringValue(in.ContentType),
		Meta:    stringValues(in.Metadata),
		Headers: headers,
		Parts:   map[int64]objectVersion{},
	}

	return &s3.CreateMultipartUploadOutput{Bucket: in.Bucket, Key: in.Key, UploadId: &id}, s.saveBucket(b)
}

// findUpload returns an upload in progress. The caller holds mu.
func (b *bucket) findUpload(id, key *string) (*multipartUpload, error) {
	u := b.Uploads[stringValue(id)]
	if u == nil || u.Key != *key {
		return nil, &wire.Error{
			Code:    "NoSuchUpload",
			Message: "The specified upload does not exist.",
			Status:  http.StatusNotFound,
		}
	}

	return u, nil
}

func (s *Service) uploadPart(ctx context.Context, in *s3.UploadPartInput) (*s3.UploadPartOutput, error) {
	if err := s.authorizeObject(ctx, "PutObject", *in.Bucket, *in.Key); err != nil {
		return nil, err
	}

	v, err := s.storeRequestBody(ctx, in.Bucket)
	if err != nil {
		return nil, err
	}

	if err := s.addPart(in.Bucket, in.Key, in.UploadId, in.PartNumber, v); err != nil {
		return nil, err
	}

	setChecksumHeaders(ctx, v)

	return &s3.UploadPartOutput{ETag: &v.ETag}, nil
}

// addPart adds a body that is already stored to an upload. It replaces an older part of the same number.
func (s *Service) addPart(name, key, id *string, number *int64, v objectVersion) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := s.findBucket(name)
	if err != nil {
		return err
	}

	u, err := b.findUpload(id, key)
	if err == nil && (*number < 1 || *number > maxParts) {
		err = wire.Errorf(
			"InvalidArgument",
			"Part number must be an integer between 1 and %d, inclusive",
			maxParts,
		)
	}

	if err != nil {
		s.removeFiles(b, []objectVersion{v})
		return err
	}

	old, replaced := u.Parts[*number]
	u.Parts[*number] = v
	if err := s.saveBucket(b); err != nil {
		return err
	}

	if replaced {
		s.removeFiles(b, []objectVersion{old})
	}

	return nil
}

// maxParts is S3's limit of the parts of an upload.
const maxParts = 10000

func (s *Service) completeMultipartUpload(
	ctx context.Context,
	in *s3.CompleteMultipartUploadInput,
) (*s3.CompleteMultipartUploadOutput, error) {
	if err := s.authorizeObject(ctx, "PutObject", *in.Bucket, *in.Key); err != nil {
		return nil, err
	}

	v, parts, err := s.joinParts(in)
	if err != nil {
		return nil, err
	}

	v, err = s.commitVersion(ctx, in.Bucket, *in.Key, v)
	if err != nil {
		return nil, err
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := s.findBucket(in.Bucket)
	if err != nil {
		return nil, err
	}

	delete(b.Uploads, *in.UploadId)
	s.removeFiles(b, parts)

	return &s3.CompleteMultipartUploadOutput{
		Bucket:    in.Bucket,
		Key:       in.Key,
		ETag:      &v.ETag,
		VersionId: responseVersionID(v),
		Location:  new("/" + *in.Bucket + "/" + *in.Key),
	}, s.saveBucket(b)
}

// joinParts writes the parts of an upload to one file, in the order of the request. It returns the new
// version and the parts that it contains.
func (s *Service) joinParts(in *s3.CompleteMultipartUploadInput) (objectVersion, []objectVersion, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	b, err := s.findBucket(in.Bucket)
	if err != nil {
		return objectVersion{}, nil, err
	}

	u, err := b.findUpload(in.UploadId, in.Key)
	if err != nil {
		return objectVersion{}, nil, err
	}

	v := objectVersion{
		File:     randomHex(),
		Type:     u.Type,
		Metadata: u.Meta,
		Headers:  map[string]string{},
	}

	maps.Copy(v.Headers, u.Headers)
	if err := validateParts(in.MultipartUpload, u); err != nil {
		return v, nil, err
	}

	f, err := os.OpenFile(
		filepath.Join(s.bucketDir(b.Name), v.File),
		os.O_CREATE|os.O_EXCL|os.O_WRONLY,
		0o600,
	)
	if err != nil {
		return v, nil, fmt.Errorf("join the parts of an upload: %w", err)
	}

	defer func() { _ = f.Close() }() // every write is checked
	sum := md5.New()
	var parts []objectVersion

	for _, p := range in.MultipartUpload.Parts {
		part := u.Parts[*p.PartNumber]
		n, err := appendFile(f, filepath.Join(s.bucketDir(b.Name), part.File))
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

// minPartBytes is S3's minimum size of all parts but the last.
const minPartBytes = 5 << 20

// validateParts checks that the parts of a request exist, are in order, and are large enough.
func validateParts(list *s3.CompletedMultipartUpload, u *multipartUpload) error {
	if list == nil || len(list.Parts) == 0 {
		return wire.Errorf("MalformedXML", "You must specify at least one part")
	}

	for i, p := range list.Parts {
		if p.PartNumber == nil {
			return wire.Errorf("MalformedXML", "a part has no number")
		}

		part, ok := u.Parts[*p.PartNumber]
		switch {
		case !ok || strings.Trim(part.ETag, `"`) != strings.Trim(stringValue(p.ETag), `"`):
			return wire.Errorf("InvalidPart", "One or more of the specified parts could not be found.")
		case i > 0 && *p.PartNumber <= *list.Parts[i-1].PartNumber:
			return wire.Errorf("InvalidPartOrder", "The list of parts was not in ascending order.")
		case i < len(list.Parts)-1 && part.Size < minPartBytes:
			return wire.Errorf(
				"EntityTooSmall",
				"Your proposed upload is smaller than the minimum allowed size",
			)
		}
	}

	return nil
}

func appendFile(w io.Writer, path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, fmt.Errorf("join the parts of an upload: %w", err)
	}

	defer func() { _ = f.Close() }()

	return io.Copy(w, f)
}

func (s *Service) abortMultipartUpload(
	ctx context.Context,
	in *s3.AbortMultipartUploadInput,
) (*s3.AbortMultipartUploadOutput, error) {
	if err := s.authorizeObject(ctx, "AbortMultipartUpload", *in.Bucket, *in.Key); err != nil {
		return nil, err
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := s.findBucket(in.Bucket)
	if err != nil {
		return nil, err
	}

	u, err := b.findUpload(in.UploadId, in.Key)
	if err != nil {
		return nil, err
	}

	delete(b.Uploads, *in.UploadId)
	for _, part := range u.Parts {
		s.removeFiles(b, []objectVersion{part})
	}

	wire.SetResponseStatus(ctx, http.StatusNoContent)

	return &s3.AbortMultipartUploadOutput{}, s.saveBucket(b)
}
