// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"encoding/base64"
	"fmt"
	"hash"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// uploadChecksum is the checksum of a multipart upload.
type uploadChecksum struct {
	name string // as [wire.NewChecksum] takes it; empty for S3's default
	kind string // FULL_OBJECT or COMPOSITE; empty without a name
}

// chooseChecksum returns the checksum that a new upload asks for: an algorithm and a type, each of which may be
// empty.
func chooseChecksum(algorithm *string, kind string) (uploadChecksum, error) {
	name := strings.ToLower(stringValue(algorithm))

	switch {
	case name == "" && kind == "":
		return uploadChecksum{}, nil
	case name == "":
		return uploadChecksum{}, newErrorf(
			invalidRequest,
			"The x-amz-checksum-type header can only be used with the x-amz-checksum-algorithm header.",
		).with()

	case wire.NewChecksum(name) == nil:
		return uploadChecksum{}, newChecksumAlgorithmError(*algorithm)
	case kind != "" && kind != s3ChecksumFullObject && kind != s3ChecksumComposite:
		return uploadChecksum{}, newErrorf(
			invalidRequest,
			"Value for x-amz-checksum-type header is invalid.",
		).with()
	}

	return chooseChecksumType(name, kind)
}

// chooseChecksumType returns a checksum with its type; an empty kind is the default of the algorithm.
func chooseChecksumType(name, kind string) (uploadChecksum, error) {
	fullOnly := name == defaultChecksum
	compositeOnly := name == "sha1" || name == "sha256"
	if kind == "" {
		kind = s3ChecksumComposite
		if fullOnly {
			kind = s3ChecksumFullObject
		}
	}

	if fullOnly && kind == s3ChecksumComposite || compositeOnly && kind == s3ChecksumFullObject {
		return uploadChecksum{}, newErrorf(
			invalidRequest,
			"The %s checksum type cannot be used with the %s checksum algorithm.",
			kind,
			name,
		).with()
	}

	return uploadChecksum{name: name, kind: kind}, nil
}

func newChecksumAlgorithmError(name string) error {
	return newErrorf(
		invalidRequest,
		"Checksum algorithm provided is unsupported. Please try again with any of the valid types: "+
			"[CRC32, CRC32C, CRC64NVME, SHA1, SHA256]",
	).with(detail("ChecksumAlgorithm", name))
}

// partChecksum returns the checksum that the parts of an upload have.
func (s *Service) partChecksum(name, key, id *string) (checksum string, err error) {
	err = s.viewBucket(name, func(b *bucket) error {
		u, err := b.findUpload(id, key)
		if err == nil {
			checksum = u.Checksum
		}

		return err
	})

	if checksum == "" {
		checksum = defaultChecksum
	}

	return checksum, err
}

// setUploadHeaders adds the encryption of an upload to the response for one of its parts.
func (s *Service) setUploadHeaders(ctx context.Context, name, key, id *string) error {
	return s.viewBucket(name, func(b *bucket) error {
		u, err := b.findUpload(id, key)
		if err == nil {
			setEncryptionHeaders(ctx, u.Headers)
		}

		return err
	})
}

// checkPartChecksum refuses a part whose checksum is not the one of its upload.
func (u *multipartUpload) checkPartChecksum(part objectVersion) error {
	names := part.checksumNames()
	if u.Checksum == "" || slices.Contains(names, u.Checksum) {
		return nil
	}

	return newErrorf(
		invalidRequest,
		"Checksum Type mismatch occurred, expected checksum Type: %s, actual checksum Type: %s",
		u.Checksum,
		strings.Join(names, ","),
	).with()
}

// checkListedChecksums compares the checksums that the list of a completion has for a part with those of the
// part. An upload with a checksum of checksums needs the one of each part, and one without a checksum takes none.
func (u *multipartUpload) checkListedChecksums(p *completedPart, part objectVersion) error {
	listed := map[string]*string{
		"crc32":     p.ChecksumCRC32,
		"crc32c":    p.ChecksumCRC32C,
		"crc64nvme": p.ChecksumCRC64NVME,
		"sha1":      p.ChecksumSHA1,
		"sha256":    p.ChecksumSHA256,
	}
	for name, value := range listed {
		if value != nil && (u.Checksum == "" || stringValue(part.checksum(name)) != *value) {
			return newInvalidPartError(*p.PartNumber)
		}
	}

	if u.ChecksumType == s3ChecksumComposite && listed[u.Checksum] == nil {
		return newErrorf(
			invalidRequest,
			"The upload was created using a %s checksum. The complete request must include the checksum for each "+
				"part. It was missing for part %d in the request.",
			u.Checksum,
			*p.PartNumber,
		).with()
	}

	return nil
}

// completion is what a request that completes an upload says about the object, besides its parts.
type completion struct {
	size      int64             // bytes; -1 if the request does not say
	kind      string            // of the checksum; empty if the request does not say
	checksums map[string]string // by the name of [wire.NewChecksum]
}

// readCompletion returns the completion in a request's headers.
func readCompletion(h http.Header) (completion, error) {
	out := completion{size: -1, kind: h.Get(checksumTypeHeader), checksums: map[string]string{}}
	for _, name := range wire.ChecksumNames() {
		if value := h.Get(checksumPrefix + name); value != "" {
			out.checksums[name] = value
		}
	}

	text := h.Get("X-Amz-Mp-Object-Size")
	if text == "" {
		return out, nil
	}

	var err error
	if out.size, err = strconv.ParseInt(text, 10, 64); err != nil || out.size < 0 {
		return out, newErrorf(invalidRequest, "Value for x-amz-mp-object-size header is invalid.").with()
	}

	return out, nil
}

// checkUpload compares the completion with an upload and with the object that it becomes.
func (c completion) checkUpload(u *multipartUpload, v objectVersion) error {
	size := int64(0)
	for _, part := range v.Parts {
		size += part
	}

	if c.size >= 0 && c.size != size {
		return newErrorf(
			invalidRequest,
			"The provided 'x-amz-mp-object-size' header value %d does not match what was computed: %d",
			c.size,
			size,
		).with()
	}

	created := u.ChecksumType
	if created == "" {
		created = "null" // as S3 says it
	}

	if c.kind != "" && c.kind != created {
		return newErrorf(
			invalidRequest,
			"The upload was created using the %s checksum mode. The complete request must use the same checksum mode.",
			created,
		).with()
	}

	return nil
}

// checkChecksums compares the checksums of the request with those of the new object. S3 writes the number of parts
// behind a checksum of checksums; clients may leave it out.
func (c completion) checkChecksums(v objectVersion) error {
	for name, want := range c.checksums {
		have := stringValue(v.checksum(name))
		sum, _, _ := strings.Cut(have, "-")
		if have == "" || want != have && want != sum {
			return newErrorf(
				badDigest,
				"The %s you specified did not match the calculated checksum.",
				name,
			).with()
		}
	}

	return nil
}

// setUploadChecksum notes in the headers of an object which checksum its parts give it.
func (v objectVersion) setUploadChecksum(u *multipartUpload) {
	name := u.Checksum
	kind := u.ChecksumType
	if name == "" {
		name = defaultChecksum
		kind = s3ChecksumFullObject
	}

	v.Headers[checksumPrefix+name] = "" // set by sumParts
	v.Headers[checksumTypeHeader] = kind
}

// newPartsChecksum returns the hash for the body of an object that is joined from parts, and the name of its
// checksum. Checksums of checksums ignore what is written.
func (v objectVersion) newPartsChecksum() (io.Writer, string) {
	name := v.checksumNames()[0]
	if v.Headers[checksumTypeHeader] == s3ChecksumComposite {
		return io.Discard, name
	}

	return wire.NewChecksum(name), name
}

// sumParts sets the checksum of an object whose body was written to whole, or which is the checksum of the
// checksums of its parts.
func (v objectVersion) sumParts(name string, whole io.Writer, parts []objectVersion) {
	if h, ok := whole.(hash.Hash); ok {
		v.Headers[checksumPrefix+name] = base64.StdEncoding.EncodeToString(h.Sum(nil))
		return
	}

	sums := wire.NewChecksum(name)
	for _, part := range parts {
		raw, err := base64.StdEncoding.DecodeString(stringValue(part.checksum(name)))
		if err == nil {
			sums.Write(raw)
		}
	}

	sum := base64.StdEncoding.EncodeToString(sums.Sum(nil))
	v.Headers[checksumPrefix+name] = fmt.Sprintf("%s-%d", sum, len(parts))
}
