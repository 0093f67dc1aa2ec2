// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go/service/s3"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// maxListedKeys is S3's limit of the entries on one page of a list.
const maxListedKeys = 1000

func (s *Service) listObjectsV2(
	ctx context.Context,
	in *s3.ListObjectsV2Input,
) (*listObjectsV2Output, error) {
	if err := s.authorizeList(ctx, *in.Bucket, stringValue(in.Prefix)); err != nil {
		return nil, err
	}

	page, err := newListPage(in)
	if err != nil {
		return nil, err
	}

	out := &listObjectsV2Output{ListObjectsV2Output: s3.ListObjectsV2Output{
		Name:              in.Bucket,
		Prefix:            encodeListed(in.EncodingType, orEmpty(in.Prefix)),
		Delimiter:         encodeListed(in.EncodingType, in.Delimiter),
		EncodingType:      in.EncodingType,
		MaxKeys:           new(int64(page.limit)),
		ContinuationToken: in.ContinuationToken,
		StartAfter:        encodeListed(in.EncodingType, in.StartAfter),
		IsTruncated:       new(false),
	}}
	err = s.viewBucket(in.Bucket, func(b *bucket) error {
		addListedObjects(out, b, page)
		return nil
	})

	if isTrue(in.FetchOwner) {
		for _, o := range out.Contents {
			o.Owner = newOwner()
		}
	}

	return out, err
}

// addListedObjects adds the objects and common prefixes of a page to a list.
func addListedObjects(out *listObjectsV2Output, b *bucket, page listPage) {
	out.KeyCount = new(int64(0))
	if page.limit == 0 {
		return
	}

	entries, more := page.selectEntries(
		slices.Sorted(maps.Keys(b.Versions)),
		func(key string) bool { _, ok := b.currentVersion(key); return ok },
	)

	for _, e := range entries {
		key := encodeListed(out.EncodingType, &e.key)
		if e.isPrefix {
			out.CommonPrefixes = append(out.CommonPrefixes, &s3.CommonPrefix{Prefix: key})
			continue
		}

		v, _ := b.currentVersion(e.key)
		out.Contents = append(out.Contents, &listedObject{
			Object: s3.Object{
				Key:          key,
				ETag:         &v.ETag,
				Size:         &v.Size,
				LastModified: &v.Modified,
				StorageClass: v.storageClass(),

				ChecksumAlgorithm: v.listedChecksums(),
			},
			ChecksumType: v.checksumType(),
		})
	}

	out.KeyCount = new(int64(len(entries)))
	if more {
		last := entries[len(entries)-1].key
		out.IsTruncated = new(true)
		out.NextContinuationToken = new(sdkshape.EncodeToken(last))
	}
}

// listedChecksums returns the algorithms of a version's checksums for a list.
func (v objectVersion) listedChecksums() []*string {
	var out []*string
	for _, name := range v.checksumNames() {
		out = append(out, new(strings.ToUpper(name)))
	}

	return out
}

// ownerID is the canonical ID of the account that owns every object.
const ownerID = "slipway"

// newOwner returns the owner. Since November 2025 S3 does not tell its display name any more.
func newOwner() *s3.Owner { return &s3.Owner{ID: new(ownerID)} }

func orEmpty(text *string) *string {
	if text == nil {
		return new("")
	}

	return text
}

// encodeListed returns a key, prefix or marker in the encoding that a list request asks for: none, or "url".
func encodeListed(encodingType, text *string) *string {
	if text == nil || stringValue(encodingType) != s3.EncodingTypeUrl {
		return text
	}

	return new(strings.ReplaceAll(url.QueryEscape(*text), "%2F", "/"))
}

// newListPage returns the page that a list request asks for.
func newListPage(in *s3.ListObjectsV2Input) (listPage, error) {
	p := listPage{
		prefix:    stringValue(in.Prefix),
		delimiter: stringValue(in.Delimiter),
		after:     stringValue(in.StartAfter),
	}

	var err error
	if p.limit, err = pageLimit("max-keys", in.MaxKeys); err != nil {
		return p, err
	}

	if in.ContinuationToken != nil {
		last, ok := sdkshape.DecodeToken(*in.ContinuationToken)
		if !ok {
			return p, newTokenError(*in.ContinuationToken)
		}

		p.after = last
	}

	return p, nil
}

// pageLimit returns the number of entries of a page; asked is the query parameter name, and nil for S3's limit.
func pageLimit(name string, asked *int64) (int, error) {
	if asked == nil {
		return maxListedKeys, nil
	}

	if *asked < 0 || *asked > math.MaxInt32 {
		return 0, newArgumentError(
			name,
			strconv.FormatInt(*asked, 10),
			"Argument "+name+" must be an integer between 0 and 2147483647",
		)
	}

	return min(maxListedKeys, int(*asked)), nil
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
