// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"encoding/base64"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go/service/s3"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// maxListedKeys is S3's limit of the entries on one page of a list.
const maxListedKeys = 1000

func (s *Service) listObjectsV2(
	ctx context.Context,
	in *s3.ListObjectsV2Input,
) (*s3.ListObjectsV2Output, error) {
	if err := s.authorizeList(ctx, *in.Bucket, stringValue(in.Prefix)); err != nil {
		return nil, err
	}

	page, err := newListPage(in)
	if err != nil {
		return nil, err
	}

	out := &s3.ListObjectsV2Output{
		Name:              in.Bucket,
		Prefix:            in.Prefix,
		Delimiter:         in.Delimiter,
		EncodingType:      in.EncodingType,
		MaxKeys:           new(int64(page.limit)),
		ContinuationToken: in.ContinuationToken,
		StartAfter:        in.StartAfter,
		IsTruncated:       new(false),
	}
	err = s.viewBucket(in.Bucket, func(b *bucket) error {
		addListedObjects(out, b, page)
		return nil
	})

	return out, err
}

// addListedObjects adds the objects and common prefixes of a page to a list.
func addListedObjects(out *s3.ListObjectsV2Output, b *bucket, page listPage) {
	entries, more := page.selectEntries(
		slices.Sorted(maps.Keys(b.Versions)),
		func(key string) bool { _, ok := b.currentVersion(key); return ok },
	)

	for _, e := range entries {
		key := encodeListedKey(out.EncodingType, e.key)
		if e.isPrefix {
			out.CommonPrefixes = append(out.CommonPrefixes, &s3.CommonPrefix{Prefix: key})
			continue
		}

		v, _ := b.currentVersion(e.key)
		out.Contents = append(out.Contents, &s3.Object{
			Key:          key,
			ETag:         &v.ETag,
			Size:         &v.Size,
			LastModified: &v.Modified,
			StorageClass: new(s3.ObjectStorageClassStandard),
		})
	}

	out.KeyCount = new(int64(len(entries)))
	if more {
		last := entries[len(entries)-1].key
		out.IsTruncated = new(true)
		out.NextContinuationToken = new(base64.RawURLEncoding.EncodeToString([]byte(last)))
	}
}

// encodeListedKey returns a key in the encoding that a list request asks for: none, or "url".
func encodeListedKey(encodingType *string, key string) *string {
	if stringValue(encodingType) == s3.EncodingTypeUrl {
		key = strings.ReplaceAll(url.QueryEscape(key), "%2F", "/")
	}

	return &key
}

// newListPage returns the page that a list request asks for.
func newListPage(in *s3.ListObjectsV2Input) (listPage, error) {
	p := listPage{
		prefix:    stringValue(in.Prefix),
		delimiter: stringValue(in.Delimiter),
		after:     stringValue(in.StartAfter),
		limit:     maxListedKeys,
	}
	if in.ContinuationToken != nil {
		last, err := base64.RawURLEncoding.DecodeString(*in.ContinuationToken)
		if err != nil {
			return p, wire.Errorf("InvalidArgument", "The continuation token provided is incorrect")
		}

		p.after = string(last)
	}

	if in.MaxKeys != nil {
		p.limit = min(p.limit, int(*in.MaxKeys))
	}

	return p, nil
}

// listPage is the part of a list of keys that a request asks for.
type listPage struct {
	prefix    string // of the keys
	delimiter string // keys with the same text up to the delimiter become one common prefix; empty for none
	after     string // the last entry of the page before; empty for the first page
	limit     int    // maximum number of entries
}

type listEntry struct {
	key      string // a key, or a common prefix
	isPrefix bool
}

// selectEntries returns the entries of the page out of all keys, which are sorted, and whether there are
// more.
func (p listPage) selectEntries(keys []string, visible func(string) bool) (out []listEntry, more bool) {
	for _, key := range keys {
		if !strings.HasPrefix(key, p.prefix) || !visible(key) {
			continue
		}

		e := listEntry{key: key}
		if p.delimiter != "" {
			if at := strings.Index(key[len(p.prefix):], p.delimiter); at >= 0 {
				e = listEntry{key: key[:len(p.prefix)+at+len(p.delimiter)], isPrefix: true}
			}
		}

		if e.key <= p.after && p.after != "" || len(out) > 0 && out[len(out)-1] == e {
			continue
		}

		if len(out) == p.limit {
			return out, true
		}

		out = append(out, e)
	}

	return out, false
}

func (s *Service) listObjectVersions(
	ctx context.Context,
	in *s3.ListObjectVersionsInput,
) (*s3.ListObjectVersionsOutput, error) {
	check := wire.AccessCheck{
		Action:   "s3:ListBucketVersions",
		Resource: "arn:aws:s3:::" + *in.Bucket,
		Context:  map[string][]string{"s3:prefix": {stringValue(in.Prefix)}},
	}
	if err := s.evaluateAccess(ctx, *in.Bucket, check); err != nil {
		return nil, err
	}

	out := &s3.ListObjectVersionsOutput{
		Name:        in.Bucket,
		Prefix:      in.Prefix,
		IsTruncated: new(false),
		MaxKeys:     new(int64(maxListedKeys)),
	}
	err := s.viewBucket(in.Bucket, func(b *bucket) error {
		addListedKeys(out, b, in.KeyMarker)
		return nil
	})

	return out, err
}

// addListedKeys adds the versions of the keys with the prefix of a list to it, from the key after marker.
func addListedKeys(out *s3.ListObjectVersionsOutput, b *bucket, marker *string) {
	last := ""

	for _, key := range slices.Sorted(maps.Keys(b.Versions)) {
		if !strings.HasPrefix(key, stringValue(out.Prefix)) || marker != nil && key <= *marker {
			continue
		}

		if len(out.Versions)+len(out.DeleteMarkers) >= maxListedKeys {
			out.IsTruncated = new(true)
			out.NextKeyMarker = &last

			break
		}

		addListedVersions(out, key, b.Versions[key])
		last = key
	}
}

// addListedVersions adds the versions and delete markers of a key to a list.
func addListedVersions(out *s3.ListObjectVersionsOutput, key string, versions []objectVersion) {
	for i, v := range versions {
		if v.Marker {
			out.DeleteMarkers = append(out.DeleteMarkers, &s3.DeleteMarkerEntry{
				Key:          &key,
				VersionId:    &v.ID,
				IsLatest:     new(i == 0),
				LastModified: &v.Modified,
			})

			continue
		}

		out.Versions = append(out.Versions, &s3.ObjectVersion{
			Key:          &key,
			VersionId:    &v.ID,
			IsLatest:     new(i == 0),
			LastModified: &v.Modified,
			ETag:         &v.ETag,
			Size:         &v.Size,
			StorageClass: new(s3.ObjectVersionStorageClassStandard),
		})
	}
}

func (s *Service) deleteObject(
	ctx context.Context,
	in *s3.DeleteObjectInput,
) (*s3.DeleteObjectOutput, error) {
	v, err := s.removeVersion(ctx, in.Bucket, *in.Key, in.VersionId, wire.HTTPRequest(ctx).Header)
	if err != nil {
		return nil, err
	}

	wire.SetResponseStatus(ctx, http.StatusNoContent)
	out := &s3.DeleteObjectOutput{VersionId: responseVersionID(v)}
	if v.Marker {
		out.DeleteMarker = new(true)
	}

	return out, nil
}

// removeVersion deletes a version permanently, or a key if id is nil: by a delete marker if the bucket has
// versioning, else permanently. It returns the deleted version or the delete marker.
func (s *Service) removeVersion(
	ctx context.Context,
	name *string,
	key string,
	id *string,
	h http.Header,
) (objectVersion, error) {
	action := "DeleteObject"
	if id != nil {
		action = "DeleteObjectVersion"
	}

	if err := s.authorizeObject(ctx, action, *name, key); err != nil {
		return objectVersion{}, err
	}

	var removed objectVersion
	var old []objectVersion
	err := s.updateBucket(name, func(b *bucket) error {
		if h.Get("If-Match") != "" {
			if err := b.checkWriteConditions(h, key); err != nil {
				return err
			}
		}

		if id == nil && b.hasVersioningConfig() {
			b.addVersion(key, objectVersion{Marker: true, Modified: s.cfg.Now().UTC()})
			removed = b.Versions[key][0]
		} else {
			removed, old = b.deleteVersion(key, id)
		}

		return nil
	})
	if err != nil {
		return removed, err
	}

	s.removeFiles(*name, old)

	return removed, nil
}

// deleteVersion removes a version of a key from the index; the version "null" if id is nil. It returns the
// version, which has only an id if it did not exist, and the versions whose bodies must be removed.
func (b *bucket) deleteVersion(key string, id *string) (removed objectVersion, old []objectVersion) {
	removed.ID = "null"
	if id != nil {
		removed.ID = *id
	}

	wanted := removed.ID
	b.Versions[key] = slices.DeleteFunc(b.Versions[key], func(v objectVersion) bool {
		if v.ID == wanted {
			old = append(old, v)
			removed = v
		}

		return v.ID == wanted
	})
	if len(b.Versions[key]) == 0 {
		delete(b.Versions, key)
	}

	return removed, old
}

// maxDeletions is how many objects one request may delete.
const maxDeletions = 1000

// checkDeletions checks what S3 requires of a request that deletes objects: a checksum of its body, and a list
// of 1 to 1000 keys.
func checkDeletions(ctx context.Context, list *s3.Delete) error {
	if !wire.HasBodyChecksum(wire.HTTPRequest(ctx)) {
		return wire.Errorf("InvalidRequest", "Missing required header for this request: Content-MD5")
	}

	if list == nil || len(list.Objects) == 0 || len(list.Objects) > maxDeletions {
		return wire.Errorf(
			"MalformedXML",
			"The XML you provided was not well-formed or did not validate against our published schema",
		)
	}

	return nil
}

func (s *Service) deleteObjects(
	ctx context.Context,
	in *s3.DeleteObjectsInput,
) (*s3.DeleteObjectsOutput, error) {
	if err := checkDeletions(ctx, in.Delete); err != nil {
		return nil, err
	}

	if err := s.checkBucket(in.Bucket); err != nil {
		return nil, err
	}

	out := &s3.DeleteObjectsOutput{}
	for _, o := range in.Delete.Objects {
		v, err := s.removeVersion(ctx, in.Bucket, *o.Key, o.VersionId, http.Header{})
		if err != nil {
			code := "InternalError"
			message := err.Error()
			if e, ok := errors.AsType[*wire.Error](err); ok {
				code = e.Code
				message = e.Message
			}

			out.Errors = append(out.Errors, &s3.Error{
				Key:       o.Key,
				VersionId: o.VersionId,
				Code:      &code,
				Message:   &message,
			})

			continue
		}

		if in.Delete.Quiet == nil || !*in.Delete.Quiet {
			d := &s3.DeletedObject{Key: o.Key, VersionId: o.VersionId}
			if v.Marker && o.VersionId == nil {
				d.DeleteMarker = new(true)
				d.DeleteMarkerVersionId = &v.ID
			}

			out.Deleted = append(out.Deleted, d)
		}
	}

	return out, nil
}
