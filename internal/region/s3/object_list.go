// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"encoding/base64"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go/service/s3"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// maxListedKeys is the most that one page of a list holds, S3's own limit.
const maxListedKeys = 1000

func (s *Service) listObjectsV2(
	ctx context.Context,
	in *s3.ListObjectsV2Input,
) (*s3.ListObjectsV2Output, error) {
	if err := s.authorizeList(ctx, *in.Bucket, stringValue(in.Prefix)); err != nil {
		return nil, err
	}

	s.mu.RLock()
	defer s.mu.RUnlock()
	b, err := s.findBucket(in.Bucket)
	if err != nil {
		return nil, err
	}

	after := stringValue(in.StartAfter)
	if in.ContinuationToken != nil {
		raw, err := base64.RawURLEncoding.DecodeString(*in.ContinuationToken)
		if err != nil {
			return nil, wire.Errorf("InvalidArgument", "The continuation token provided is incorrect")
		}

		after = string(raw)
	}

	limit := int64(maxListedKeys)
	if in.MaxKeys != nil {
		limit = min(limit, *in.MaxKeys)
	}

	out := &s3.ListObjectsV2Output{
		Name:              in.Bucket,
		Prefix:            in.Prefix,
		Delimiter:         in.Delimiter,
		EncodingType:      in.EncodingType,
		MaxKeys:           &limit,
		ContinuationToken: in.ContinuationToken,
		StartAfter:        in.StartAfter,
		IsTruncated:       new(false),
	}

	shown := func(key string) *string {
		if stringValue(in.EncodingType) == s3.EncodingTypeUrl {
			key = strings.ReplaceAll(url.QueryEscape(key), "%2F", "/")
		}

		return &key
	}

	p := listPage{
		prefix:    stringValue(in.Prefix),
		delimiter: stringValue(in.Delimiter),
		after:     after,
		limit:     int(limit),
	}

	entries, more := p.selectEntries(
		slices.Sorted(maps.Keys(b.Versions)),
		func(key string) bool { _, ok := b.currentVersion(key); return ok },
	)

	for _, e := range entries {
		if e.isPrefix {
			out.CommonPrefixes = append(out.CommonPrefixes, &s3.CommonPrefix{Prefix: shown(e.key)})
			continue
		}

		v, _ := b.currentVersion(e.key)
		out.Contents = append(out.Contents, &s3.Object{
			Key:          shown(e.key),
			ETag:         &v.ETag,
			Size:         &v.Size,
			LastModified: &v.Modified,
			StorageClass: new(s3.ObjectStorageClassStandard),
		})
	}

	out.KeyCount = new(int64(len(entries)))
	if more {
		out.IsTruncated, out.NextContinuationToken = new(
			true,
		), new(
			base64.RawURLEncoding.EncodeToString([]byte(entries[len(entries)-1].key)),
		)
	}

	return out, nil
}

// listPage is a part of a list of keys.
type listPage struct {
	prefix, delimiter, after string
	limit                    int
}

type listEntry struct {
	key      string
	isPrefix bool // a common prefix, not a key
}

// selectEntries returns the page of sorted keys, and whether there are more.
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
	check := wire.Check{
		Action:   "s3:ListBucketVersions",
		Resource: "arn:aws:s3:::" + *in.Bucket,
		Context:  map[string][]string{"s3:prefix": {stringValue(in.Prefix)}},
	}
	if err := s.evaluateAccess(ctx, *in.Bucket, check); err != nil {
		return nil, err
	}

	s.mu.RLock()
	defer s.mu.RUnlock()
	b, err := s.findBucket(in.Bucket)
	if err != nil {
		return nil, err
	}

	out := &s3.ListObjectVersionsOutput{
		Name:        in.Bucket,
		Prefix:      in.Prefix,
		IsTruncated: new(false),
		MaxKeys:     new(int64(maxListedKeys)),
	}

	for _, key := range slices.Sorted(maps.Keys(b.Versions)) {
		if !strings.HasPrefix(key, stringValue(in.Prefix)) ||
			key <= stringValue(in.KeyMarker) && in.KeyMarker != nil {
			continue
		}

		if len(out.Versions)+len(out.DeleteMarkers) >= maxListedKeys {
			out.IsTruncated = new(true)
			break
		}

		out.NextKeyMarker = &key

		for i, v := range b.Versions[key] {
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

	if !*out.IsTruncated {
		out.NextKeyMarker = nil
	}

	return out, nil
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

// removeVersion deletes a version for good, or the key: for good in a bucket without versions, else by a marker.
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

	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := s.findBucket(name)
	if err != nil {
		return objectVersion{}, err
	}

	if have, exists := b.currentVersion(key); h.Get("If-Match") != "" {
		if err := checkWriteConditions(h, have, exists); err != nil {
			return objectVersion{}, err
		}
	}

	gone := objectVersion{ID: "null"}
	var old []objectVersion
	if id == nil && b.hasVersioningConfig() {
		gone = objectVersion{Marker: true, Modified: s.cfg.Now().UTC()}
		b.addVersion(key, gone)
		gone = b.Versions[key][0]
	} else {
		want := "null"
		if id != nil {
			want = *id
		}

		gone.ID = want
		b.Versions[key] = slices.DeleteFunc(b.Versions[key], func(v objectVersion) bool {
			if v.ID == want {
				old = append(old, v)
				gone = v
			}

			return v.ID == want
		})
		if len(b.Versions[key]) == 0 {
			delete(b.Versions, key)
		}
	}

	if err := s.saveBucket(b); err != nil {
		return gone, err
	}

	s.removeFiles(b, old)

	return gone, nil
}

func (s *Service) deleteObjects(
	ctx context.Context,
	in *s3.DeleteObjectsInput,
) (*s3.DeleteObjectsOutput, error) {
	out := &s3.DeleteObjectsOutput{}
	for _, o := range in.Delete.Objects {
		v, err := s.removeVersion(ctx, in.Bucket, *o.Key, o.VersionId, http.Header{})
		if err != nil {
			code := "InternalError"
			message := err.Error()
			if e, ok := err.(*wire.Error); ok { //nolint:errorlint // remove does not wrap it
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
