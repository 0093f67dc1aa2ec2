// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
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

func (s *Service) createMultipartUpload(
	ctx context.Context,
	in *s3.CreateMultipartUploadInput,
) (*s3.CreateMultipartUploadOutput, error) {
	if err := s.authorizeObject(ctx, "PutObject", *in.Bucket, *in.Key); err != nil {
		return nil, err
	}

	chosen, err := chooseChecksum(in.ChecksumAlgorithm, wire.HTTPRequest(ctx).Header.Get(checksumTypeHeader))
	if err != nil {
		return nil, err
	}

	headers, err := s.newObjectHeaders(ctx, &s3.PutObjectInput{
		Bucket:       in.Bucket,
		Key:          in.Key,
		ACL:          in.ACL,
		StorageClass: in.StorageClass,
	})
	if err != nil {
		return nil, err
	}

	id := randomHex()
	upload := &multipartUpload{
		Key:          *in.Key,
		Started:      s.cfg.Now().UTC(),
		Type:         stringValue(in.ContentType),
		Meta:         stringValues(in.Metadata),
		Headers:      headers,
		Parts:        map[int64]objectVersion{},
		Checksum:     chosen.name,
		ChecksumType: chosen.kind,
	}

	err = s.updateBucket(in.Bucket, func(b *bucket) error {
		b.Uploads[id] = upload
		return nil
	})
	if err != nil {
		return nil, err
	}

	setEncryptionHeaders(ctx, headers)

	if chosen.name != "" {
		wire.SetResponseHeader(ctx, "X-Amz-Checksum-Algorithm", strings.ToUpper(chosen.name))
		wire.SetResponseHeader(ctx, checksumTypeHeader, chosen.kind)
	}

	return &s3.CreateMultipartUploadOutput{Bucket: in.Bucket, Key: in.Key, UploadId: &id}, nil
}

// findUpload returns an upload in progress. The caller holds the lock.
func (b *bucket) findUpload(id, key *string) (*multipartUpload, error) {
	u := b.Uploads[stringValue(id)]
	if u == nil || u.Key != *key {
		return nil, newError(noSuchUpload, detail("UploadId", stringValue(id)))
	}

	return u, nil
}

func (s *Service) uploadPart(ctx context.Context, in *s3.UploadPartInput) (*s3.UploadPartOutput, error) {
	if err := s.authorizeObject(ctx, "PutObject", *in.Bucket, *in.Key); err != nil {
		return nil, err
	}

	if _, err := s.partChecksum(in.Bucket, in.Key, in.UploadId); err != nil {
		return nil, err
	}

	v, err := s.storeRequestBody(ctx, in.Bucket)
	if err != nil {
		return nil, err
	}

	v.Modified = s.cfg.Now().UTC()
	if err := s.addPart(in.Bucket, in.Key, in.UploadId, in.PartNumber, &v); err != nil {
		return nil, err
	}

	setChecksumHeaders(ctx, v)
	if err := s.setUploadHeaders(ctx, in.Bucket, in.Key, in.UploadId); err != nil {
		return nil, err
	}

	return &s3.UploadPartOutput{ETag: &v.ETag}, nil
}

// addPart adds a body that is already stored to an upload, and sets its ETag. It replaces an older part of the same number.
func (s *Service) addPart(name, key, id *string, number *int64, v *objectVersion) error {
	var old objectVersion
	err := s.updateBucket(name, func(b *bucket) error {
		u, err := b.findPartUpload(id, key, *number)
		if err == nil {
			err = u.checkPartChecksum(*v)
		}

		if err != nil {
			s.removeFile(b.Name, v.File)
			return err
		}

		v.ETag = newETag(v.ETag, u.Headers)
		old = u.Parts[*number]
		u.Parts[*number] = *v

		return nil
	})
	if err == nil {
		s.removeFiles(*name, []objectVersion{old})
	}

	return err
}

// findPartUpload is [bucket.findUpload] for a new part, whose number it checks.
func (b *bucket) findPartUpload(id, key *string, number int64) (*multipartUpload, error) {
	u, err := b.findUpload(id, key)
	if err == nil && (number < 1 || number > maxParts) {
		err = newArgumentError(
			"partNumber",
			strconv.FormatInt(number, 10),
			fmt.Sprintf("Part number must be an integer between 1 and %d, inclusive", maxParts),
		)
	}

	return u, err
}

// maxParts is S3's limit of the parts of an upload.
const maxParts = 10000

func (s *Service) completeMultipartUpload(
	ctx context.Context,
	in *completeMultipartUploadInput,
) (*completeMultipartUploadOutput, error) {
	if err := s.authorizeObject(ctx, "PutObject", *in.Bucket, *in.Key); err != nil {
		return nil, err
	}

	asked, err := readCompletion(wire.HTTPRequest(ctx).Header)
	if err != nil {
		return nil, err
	}

	if v, ok := s.findCompleted(in); ok {
		setEncryptionHeaders(ctx, v.Headers)
		return newCompletion(ctx, in, v, expirationOf(s, in.Bucket, *in.Key, v)), nil
	}

	v, parts, err := s.collectParts(in, asked)
	if err != nil {
		return nil, err
	}

	v.UploadID = *in.UploadId

	if err := s.joinParts(*in.Bucket, &v, parts); err != nil {
		return nil, err
	}

	if err := asked.checkChecksums(v); err != nil {
		s.removeFile(*in.Bucket, v.File)
		return nil, err
	}

	v, err = s.commitVersion(ctx, in.Bucket, *in.Key, v)
	if err != nil {
		return nil, err
	}

	var unused []objectVersion
	err = s.updateBucket(in.Bucket, func(b *bucket) error {
		if u := b.Uploads[*in.UploadId]; u != nil {
			unused = slices.Collect(maps.Values(u.Parts))
		}

		delete(b.Uploads, *in.UploadId)

		return nil
	})
	if err != nil {
		return nil, err
	}

	s.removeFiles(*in.Bucket, slices.Concat(parts, unused))
	setEncryptionHeaders(ctx, v.Headers)

	return newCompletion(ctx, in, v, expirationOf(s, in.Bucket, *in.Key, v)), nil
}

// findCompleted returns the version that an upload became. As in S3, a completed upload can be completed again,
// with the same answer and no effect, as long as its version exists.
func (s *Service) findCompleted(in *completeMultipartUploadInput) (v objectVersion, ok bool) {
	err := s.viewBucket(in.Bucket, func(b *bucket) error {
		if _, err := b.findUpload(in.UploadId, in.Key); err == nil {
			return nil
		}

		for _, version := range b.Versions[*in.Key] {
			if version.UploadID == *in.UploadId {
				v = version
				ok = true
			}
		}

		return nil
	})

	return v, ok && err == nil
}

// newCompletion returns the answer to the completion of the upload that became a version.
func newCompletion(
	ctx context.Context,
	in *completeMultipartUploadInput,
	v objectVersion,
	expiration *string,
) *completeMultipartUploadOutput {
	return &completeMultipartUploadOutput{
		CompleteMultipartUploadOutput: s3.CompleteMultipartUploadOutput{
			Bucket:         in.Bucket,
			Key:            in.Key,
			ETag:           &v.ETag,
			Expiration:     expiration,
			VersionId:      responseVersionID(v),
			Location:       new("http://" + wire.HTTPRequest(ctx).Host + "/" + *in.Bucket + "/" + *in.Key),
			ChecksumCRC32:  v.checksum("crc32"),
			ChecksumCRC32C: v.checksum("crc32c"),
			ChecksumSHA1:   v.checksum("sha1"),
			ChecksumSHA256: v.checksum("sha256"),
		},
		ChecksumCRC64NVME: v.checksum("crc64nvme"),
		ChecksumType:      v.checksumType(),
	}
}

// collectParts returns the parts of an upload in the order of the request, and the version that they become,
// still without a file.
func (s *Service) collectParts(
	in *completeMultipartUploadInput,
	asked completion,
) (v objectVersion, parts []objectVersion, err error) {
	err = s.viewBucket(in.Bucket, func(b *bucket) error {
		u, err := b.findUpload(in.UploadId, in.Key)
		if err != nil {
			return err
		}

		if err := validateParts(in.MultipartUpload, u); err != nil {
			return err
		}

		v = objectVersion{Type: u.Type, Metadata: u.Meta, Headers: map[string]string{}}
		maps.Copy(v.Headers, u.Headers)

		for _, p := range in.MultipartUpload.Parts {
			parts = append(parts, u.Parts[*p.PartNumber])
			v.Parts = append(v.Parts, u.Parts[*p.PartNumber].Size)
		}

		v.setUploadChecksum(u)

		return asked.checkUpload(u, v)
	})

	return v, parts, err
}

// joinParts copies parts into one new file, and sets the file, the size and the ETag of v. It runs without
// the lock: if a part is replaced in the meantime, or the upload is aborted, it returns InvalidPart.
func (s *Service) joinParts(bucket string, v *objectVersion, parts []objectVersion) error {
	v.File = randomHex()
	path := filepath.Join(s.bucketDir(bucket), v.File)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("join the parts of an upload: %w", err)
	}

	sum := md5.New()
	whole, chosen := v.newPartsChecksum()
	to := io.MultiWriter(f, whole)
	for _, part := range parts {
		var n int64
		if n, err = s.appendPart(to, sum, bucket, part); err != nil {
			break
		}

		v.Size += n
	}

	if err = errors.Join(err, f.Close()); err != nil {
		s.removeFile(bucket, v.File)
		return err
	}

	v.ETag = fmt.Sprintf(`"%x-%d"`, sum.Sum(nil), len(parts))
	v.sumParts(chosen, whole, parts)

	return nil
}

// minPartBytes is S3's minimum size of all parts but the last.
const minPartBytes = 5 << 20

// validateParts checks that the parts of a request exist, are in order, and are large enough.
func validateParts(list *completedMultipartUpload, u *multipartUpload) error {
	if list == nil {
		return newErrorf(invalidRequest, "You must specify at least one part").with()
	}

	if len(list.Parts) == 0 {
		return newError(malformedXML)
	}

	for i, p := range list.Parts {
		if p.PartNumber == nil {
			return newError(malformedXML)
		}

		part, ok := u.Parts[*p.PartNumber]
		switch {
		case !ok || strings.Trim(part.ETag, `"`) != strings.Trim(stringValue(p.ETag), `"`):
			return newInvalidPartError(*p.PartNumber)
		case i > 0 && *p.PartNumber <= *list.Parts[i-1].PartNumber:
			return newError(invalidPartOrder)
		case i < len(list.Parts)-1 && part.Size < minPartBytes:
			return newError(
				entityTooSmall,
				detail("ProposedSize", strconv.FormatInt(part.Size, 10)),
				detail("MinSizeAllowed", strconv.Itoa(minPartBytes)),
				detail("PartNumber", strconv.FormatInt(*p.PartNumber, 10)),
			)
		}

		if err := u.checkListedChecksums(p, part); err != nil {
			return err
		}
	}

	return nil
}

// appendPart copies the body of a part to w, and its MD5 sum to sum. It returns the size of the body.
func (s *Service) appendPart(w, sum io.Writer, bucket string, part objectVersion) (int64, error) {
	raw, err := hex.DecodeString(strings.Trim(part.ETag, `"`))
	if err != nil {
		return 0, fmt.Errorf("read the ETag of a part: %w", err)
	}

	f, err := os.Open(filepath.Join(s.bucketDir(bucket), part.File))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, newInvalidPartError(0)
	}

	if err != nil {
		return 0, fmt.Errorf("join the parts of an upload: %w", err)
	}

	defer func() { _ = f.Close() }()
	if _, err := sum.Write(raw); err != nil {
		return 0, err
	}

	return io.Copy(w, f)
}

func newInvalidPartError(number int64) error {
	return newError(invalidPart, detail("PartNumber", strconv.FormatInt(number, 10)))
}

func (s *Service) abortMultipartUpload(
	ctx context.Context,
	in *s3.AbortMultipartUploadInput,
) (*s3.AbortMultipartUploadOutput, error) {
	if err := s.authorizeObject(ctx, "AbortMultipartUpload", *in.Bucket, *in.Key); err != nil {
		return nil, err
	}

	var parts []objectVersion
	err := s.updateBucket(in.Bucket, func(b *bucket) error {
		u, err := b.findUpload(in.UploadId, in.Key)
		if err != nil {
			return err
		}

		delete(b.Uploads, *in.UploadId)
		parts = slices.Collect(maps.Values(u.Parts))

		return nil
	})
	if err != nil {
		return nil, err
	}

	s.removeFiles(*in.Bucket, parts)
	wire.SetResponseStatus(ctx, http.StatusNoContent)

	return &s3.AbortMultipartUploadOutput{}, nil
}
