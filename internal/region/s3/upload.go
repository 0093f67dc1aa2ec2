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

func (s *Service) createUpload(
	ctx context.Context,
	in *s3.CreateMultipartUploadInput,
) (*s3.CreateMultipartUploadOutput, error) {
	if err := s.allowed(ctx, "PutObject", *in.Bucket, *in.Key); err != nil {
		return nil, err
	}

	headers, err := s.encryption(ctx, *in.Bucket, *in.Key)
	if err != nil {
		return nil, err
	}

	showEncryption(ctx, headers)

	for _, h := range kept() {
		if value := wire.Request(ctx).Header.Get(h); value != "" {
			headers[h] = value
		}
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := s.find(in.Bucket)
	if err != nil {
		return nil, err
	}

	id := random()
	b.Uploads[id] = &upload{
		Key:     *in.Key,
		Started: s.cfg.Now().UTC(),
		Type:    text(in.ContentType),
		Meta:    values(in.Metadata),
		Headers: headers,
		Parts:   map[int64]version{},
	}

	return &s3.CreateMultipartUploadOutput{Bucket: in.Bucket, Key: in.Key, UploadId: &id}, s.save(b)
}

// find returns an upload under way. The caller holds mu.
func (b *bucket) upload(id, key *string) (*upload, error) {
	u := b.Uploads[text(id)]
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
	if err := s.allowed(ctx, "PutObject", *in.Bucket, *in.Key); err != nil {
		return nil, err
	}

	v, err := s.receive(ctx, in.Bucket)
	if err != nil {
		return nil, err
	}

	if err := s.addPart(in.Bucket, in.Key, in.UploadId, in.PartNumber, v); err != nil {
		return nil, err
	}

	showChecksums(ctx, v)

	return &s3.UploadPartOutput{ETag: &v.ETag}, nil
}

// addPart puts a body that is stored already into an upload, in place of an older one of the same number.
func (s *Service) addPart(name, key, id *string, number *int64, v version) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := s.find(name)
	if err != nil {
		return err
	}

	u, err := b.upload(id, key)
	if err == nil && (*number < 1 || *number > maxParts) {
		err = wire.Errorf(
			"InvalidArgument",
			"Part number must be an integer between 1 and %d, inclusive",
			maxParts,
		)
	}

	if err != nil {
		s.discard(b, []version{v})
		return err
	}

	old, had := u.Parts[*number]
	u.Parts[*number] = v
	if err := s.save(b); err != nil {
		return err
	}

	if had {
		s.discard(b, []version{old})
	}

	return nil
}

// maxParts is the most parts that an upload may have, S3's own limit.
const maxParts = 10000

func (s *Service) completeUpload(
	ctx context.Context,
	in *s3.CompleteMultipartUploadInput,
) (*s3.CompleteMultipartUploadOutput, error) {
	if err := s.allowed(ctx, "PutObject", *in.Bucket, *in.Key); err != nil {
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

	return &s3.CompleteMultipartUploadOutput{
		Bucket:    in.Bucket,
		Key:       in.Key,
		ETag:      &v.ETag,
		VersionId: shownVersion(v),
		Location:  new("/" + *in.Bucket + "/" + *in.Key),
	}, s.save(b)
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

	v := version{
		File:     random(),
		Type:     u.Type,
		Metadata: u.Meta,
		Headers:  map[string]string{},
	}

	maps.Copy(v.Headers, u.Headers)
	if err := checkParts(in.MultipartUpload, u); err != nil {
		return v, nil, err
	}

	f, err := os.OpenFile(filepath.Join(s.folder(b.Name), v.File), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return v, nil, fmt.Errorf("join an upload: %w", err)
	}

	defer f.Close() //nolint:errcheck // every write is checked
	sum := md5.New()
	var parts []version

	for _, p := range in.MultipartUpload.Parts {
		part := u.Parts[*p.PartNumber]
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

// minPart is the least size of every part but the last, in bytes; S3's own limit.
const minPart = 5 << 20

// checkParts checks that the parts a client lists are there, in order, and large enough.
func checkParts(list *s3.CompletedMultipartUpload, u *upload) error {
	if list == nil || len(list.Parts) == 0 {
		return wire.Errorf("MalformedXML", "You must specify at least one part")
	}

	for i, p := range list.Parts {
		if p.PartNumber == nil {
			return wire.Errorf("MalformedXML", "a part has no number")
		}

		part, ok := u.Parts[*p.PartNumber]
		switch {
		case !ok || strings.Trim(part.ETag, `"`) != strings.Trim(text(p.ETag), `"`):
			return wire.Errorf("InvalidPart", "One or more of the specified parts could not be found.")
		case i > 0 && *p.PartNumber <= *list.Parts[i-1].PartNumber:
			return wire.Errorf("InvalidPartOrder", "The list of parts was not in ascending order.")
		case i < len(list.Parts)-1 && part.Size < minPart:
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
		return 0, fmt.Errorf("join an upload: %w", err)
	}

	defer f.Close() //nolint:errcheck // read only

	return io.Copy(w, f)
}

func (s *Service) abortUpload(
	ctx context.Context,
	in *s3.AbortMultipartUploadInput,
) (*s3.AbortMultipartUploadOutput, error) {
	if err := s.allowed(ctx, "AbortMultipartUpload", *in.Bucket, *in.Key); err != nil {
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
