// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go/service/s3"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// findVersion returns the version that a read asks for; the current one if id is nil. As in S3, a caller who
// may not list the bucket gets AccessDenied instead of NoSuchKey.
func (s *Service) findVersion(ctx context.Context, name, key, id *string) (objectVersion, error) {
	var v objectVersion
	var ok bool
	if err := checkVersionID(id); err != nil {
		return v, err
	}

	err := s.viewBucket(name, func(b *bucket) error {
		if versions := b.Versions[*key]; id == nil && len(versions) > 0 {
			v = versions[0]
			ok = true
		} else {
			v, ok = b.lookupVersion(*key, id)
		}

		return nil
	})
	if err != nil || ok && !v.Marker {
		return v, err
	}

	if v.Marker && id != nil {
		setMarkerHeaders(ctx, v)
		wire.SetResponseHeader(ctx, "Allow", http.MethodDelete)

		return v, newError(methodNotAllowed, detail("Method", wire.HTTPRequest(ctx).Method))
	}

	if err := s.authorizeList(ctx, *name, *key); err != nil {
		return v, wire.AccessDenied(
			ctx,
			wire.AccessCheck{Action: "s3:ListBucket", Resource: "arn:aws:s3:::" + *name},
			"because no identity-based policy allows the s3:ListBucket action",
		)
	}

	if v.Marker {
		setMarkerHeaders(ctx, v)
	}

	if id != nil {
		return v, newError(noSuchVersion, detail("Key", *key), detail("VersionId", *id))
	}

	return v, newNoSuchKeyError(*key)
}

// setMarkerHeaders tells the client of an error that a delete marker hides the object.
func setMarkerHeaders(ctx context.Context, v objectVersion) {
	wire.SetResponseHeader(ctx, "X-Amz-Delete-Marker", "true")
	wire.SetResponseHeader(ctx, "X-Amz-Version-Id", v.ID)
	wire.SetResponseHeader(ctx, "Last-Modified", v.Modified.UTC().Format(http.TimeFormat))
}

// checkVersionID refuses what cannot be the id of a version; nil stands for the current version.
func checkVersionID(id *string) error {
	if id == nil || *id == nullVersion || regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(*id) {
		return nil
	}

	return newArgumentError("versionId", *id, "Invalid version id specified")
}

// objectReadAction returns the IAM action of a read of the current version (id is nil) or of a given version.
func objectReadAction(id *string) string {
	if id != nil {
		return "GetObjectVersion"
	}

	return "GetObject"
}

// objectRead is what a read asks for, besides the object.
type objectRead struct {
	byteRange *string // the header Range
	part      *int64  // number of the part of a multipart upload
	checksums *string // the header x-amz-checksum-mode
}

// byteRange is a part of an object.
type byteRange struct {
	first  int64 // offset of the first byte
	length int64 // bytes
	whole  bool  // the request did not ask for a range
}

// selectRange returns the bytes that a read asks for, and sets the status and the headers of the response.
func (v objectVersion) selectRange(ctx context.Context, in objectRead) (byteRange, error) {
	var picked byteRange
	var err error

	switch {
	case in.part != nil && in.byteRange != nil:
		return picked, newErrorf(
			invalidRequest,
			"Cannot specify both Range header and partNumber query parameter",
		).with()

	case in.part != nil:
		picked, err = v.selectPart(ctx, *in.part)
	case in.byteRange != nil:
		picked, err = v.parseRange(*in.byteRange)
	default:
		picked = byteRange{length: v.Size, whole: true}
	}

	if err != nil || picked.whole {
		return picked, err
	}

	wire.SetResponseStatus(ctx, http.StatusPartialContent)
	if picked.length > 0 {
		last := picked.first + picked.length - 1
		wire.SetResponseHeader(ctx, "Content-Range", fmt.Sprintf("bytes %d-%d/%d", picked.first, last, v.Size))
	}

	return picked, nil
}

// selectPart returns the bytes of one part of a multipart upload. Another object is its only part.
func (v objectVersion) selectPart(ctx context.Context, number int64) (byteRange, error) {
	parts := v.Parts
	if len(parts) == 0 {
		parts = []int64{v.Size}
	} else {
		wire.SetResponseHeader(ctx, "X-Amz-Mp-Parts-Count", strconv.Itoa(len(parts)))
	}

	if number < 1 || number > int64(len(parts)) {
		return byteRange{}, newError(
			invalidPartNumber,
			detail("PartNumberRequested", strconv.FormatInt(number, 10)),
			detail("ActualPartCount", strconv.Itoa(len(parts))),
		)
	}

	picked := byteRange{length: parts[number-1]}
	for _, size := range parts[:number-1] {
		picked.first += size
	}

	return picked, nil
}

// parseRange returns the bytes of a Range header. As in S3, a header that is not a single range of bytes, or
// whose range ends before it begins, has no effect.
func (v objectVersion) parseRange(header string) (byteRange, error) {
	if !regexp.MustCompile(`^bytes=([0-9]+-[0-9]*|-[0-9]+)$`).MatchString(header) {
		return byteRange{length: v.Size, whole: true}, nil
	}

	first, last, ok := parseByteRange(header, v.Size)
	if isReversedRange(header) {
		return byteRange{length: v.Size, whole: true}, nil
	}

	if !ok {
		return byteRange{}, newError(
			invalidRange,
			detail("RangeRequested", header),
			detail("ActualObjectSize", strconv.FormatInt(v.Size, 10)),
		)
	}

	return byteRange{first: first, length: last - first + 1}, nil
}

func (s *Service) getObject(ctx context.Context, in *s3.GetObjectInput) (*s3.GetObjectOutput, error) {
	if err := s.authorizeObject(ctx, objectReadAction(in.VersionId), *in.Bucket, *in.Key); err != nil {
		return nil, err
	}

	v, f, err := s.openVersion(ctx, in.Bucket, in.Key, in.VersionId)
	if err != nil {
		return nil, err
	}

	if _, err := s.authorizeKey(ctx, "Decrypt", *in.Bucket, *in.Key, v.Headers); err != nil {
		return nil, errors.Join(err, f.Close())
	}

	read := objectRead{byteRange: in.Range, part: in.PartNumber, checksums: in.ChecksumMode}
	picked, err := prepareRead(ctx, in, v, read)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}

	out := &s3.GetObjectOutput{
		AcceptRanges:  new("bytes"),
		Body:          rangeBody{io.NewSectionReader(f, picked.first, picked.length), f},
		ContentLength: &picked.length,
		ETag:          &v.ETag,
		LastModified:  &v.Modified,
		Metadata:      stringPointers(v.Metadata),
		VersionId:     responseVersionID(v),
	}
	if in.VersionId == nil { // S3 does not tell it of a version, even of the current one
		out.Expiration = expirationOf(s, in.Bucket, *in.Key, v)
	}

	return out, nil
}

// prepareRead checks the conditions of a read, and sets the headers of its response.
func prepareRead(
	ctx context.Context,
	in *s3.GetObjectInput,
	v objectVersion,
	read objectRead,
) (byteRange, error) {
	if err := checkReadConditions(ctx, wire.HTTPRequest(ctx).Header, v); err != nil {
		return byteRange{}, err
	}

	overrides, err := responseOverrides(ctx, in)
	if err != nil {
		return byteRange{}, err
	}

	picked, err := v.selectRange(ctx, read)
	if err != nil {
		return picked, err
	}

	setObjectHeaders(ctx, v, read.checksums != nil && picked.whole)
	for name, value := range overrides {
		wire.SetResponseHeader(ctx, name, value)
	}

	return picked, nil
}

// responseOverrides returns the headers that the query parameters response-* of a read replace.
func responseOverrides(ctx context.Context, in *s3.GetObjectInput) (map[string]string, error) {
	out := map[string]string{}
	for name, value := range map[string]*string{
		"Cache-Control":       in.ResponseCacheControl,
		"Content-Disposition": in.ResponseContentDisposition,
		"Content-Encoding":    in.ResponseContentEncoding,
		"Content-Language":    in.ResponseContentLanguage,
		"Content-Type":        in.ResponseContentType,
	} {
		if value != nil {
			out[name] = *value
		}
	}

	if in.ResponseExpires != nil {
		out["Expires"] = in.ResponseExpires.UTC().Format(http.TimeFormat)
	}

	if len(out) > 0 && wire.CallerFrom(ctx).IsAnonymous() {
		return nil, newErrorf(
			invalidRequest,
			"Request specific response headers cannot be used for anonymous GET requests.",
		).with()
	}

	return out, nil
}

// checkReadConditions checks the conditions of a read. As in RFC 9110, ETags take precedence over dates. A
// client of an object that did not change gets its ETag and its date.
func checkReadConditions(ctx context.Context, h http.Header, v objectVersion) error {
	switch failed := v.failedCondition(h); failed {
	case "":
		return nil
	case "If-None-Match", "If-Modified-Since":
		wire.SetResponseHeader(ctx, "Etag", v.ETag)
		wire.SetResponseHeader(ctx, "Last-Modified", v.Modified.UTC().Format(http.TimeFormat))

		return newError(notModified)
	default:
		return newPreconditionError(failed)
	}
}

// failedCondition returns the condition in headers that a version does not meet; empty if it meets all.
func (v objectVersion) failedCondition(h http.Header) string {
	matches := func(want string) bool {
		return want == "*" || strings.Trim(want, `"`) == strings.Trim(v.ETag, `"`)
	}
	after := func(date string) (newer, ok bool) {
		t, err := http.ParseTime(date)
		return v.Modified.Truncate(1e9).After(t), err == nil
	}

	none := h.Get("If-None-Match")
	match := h.Get("If-Match")
	newer, since := after(h.Get("If-Modified-Since"))
	changed, unless := after(h.Get("If-Unmodified-Since"))

	switch {
	case match != "" && !matches(match):
		return "If-Match"
	case match == "" && unless && changed:
		return "If-Unmodified-Since"
	case none != "" && matches(none):
		return "If-None-Match"
	case none == "" && since && !newer:
		return "If-Modified-Since"
	}

	return ""
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

// isReversedRange reports whether a range of bytes ends before it begins, such as bytes=5-2.
func isReversedRange(header string) bool {
	from, to, _ := strings.Cut(strings.TrimPrefix(header, "bytes="), "-")
	first, errFrom := strconv.ParseInt(from, 10, 64)
	last, errTo := strconv.ParseInt(to, 10, 64)

	return errFrom == nil && errTo == nil && last < first
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

	if in.ChecksumMode != nil {
		if _, err := s.authorizeKey(ctx, "Decrypt", *in.Bucket, *in.Key, v.Headers); err != nil {
			return nil, err
		}
	}

	read := &s3.GetObjectInput{
		ResponseCacheControl:       in.ResponseCacheControl,
		ResponseContentDisposition: in.ResponseContentDisposition,
		ResponseContentEncoding:    in.ResponseContentEncoding,
		ResponseContentLanguage:    in.ResponseContentLanguage,
		ResponseContentType:        in.ResponseContentType,
		ResponseExpires:            in.ResponseExpires,
	}

	picked, err := prepareRead(ctx, read, v, objectRead{
		byteRange: in.Range,
		part:      in.PartNumber,
		checksums: in.ChecksumMode,
	})
	if err != nil {
		return nil, err
	}

	wire.SetResponseHeader(ctx, "Content-Length", strconv.FormatInt(picked.length, 10))

	out := &s3.HeadObjectOutput{
		AcceptRanges: new("bytes"),
		ETag:         &v.ETag,
		LastModified: &v.Modified,
		Metadata:     stringPointers(v.Metadata),
		VersionId:    responseVersionID(v),
	}
	if in.VersionId == nil { // S3 does not tell it of a version, even of the current one
		out.Expiration = expirationOf(s, in.Bucket, *in.Key, v)
	}

	return out, nil
}

// nullVersion is the id of a version that was written without versioning.
const nullVersion = "null"

// responseVersionID returns the id of a version for a response; nil if it was written without versioning.
func responseVersionID(v objectVersion) *string {
	if v.ID == nullVersion {
		return nil
	}

	return &v.ID
}
