// SPDX-License-Identifier: Apache-2.0

// Package sdkshape has helpers for the request and answer types of aws-sdk-go, which the region's services
// use as their data: optional strings, deep copies, conversion to maps, paging, and tags as condition keys of
// IAM. It knows no service.
package sdkshape

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go/aws"
	"github.com/aws/aws-sdk-go/aws/awsutil"
)

// CloneShape returns a deep copy of a shape.
func CloneShape[T any](v *T) *T {
	c := new(T)
	awsutil.Copy(c, v)
	return c
}

// SortedKeys returns the keys of a map, sorted.
func SortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// String returns the value of an optional string; empty for nil.
func String(p *string) string { return aws.StringValue(p) }

// Strings returns the values of a list of optional strings.
func Strings(p []*string) []string { return aws.StringValueSlice(p) }

// StringPointers returns pointers to copies of strings; it is the reverse of [Strings].
func StringPointers(in []string) []*string {
	out := make([]*string, 0, len(in))
	for _, v := range in {
		out = append(out, new(v))
	}

	return out
}

// RandomHex returns n random hexadecimal digits from r; zeros if r fails.
func RandomHex(r io.Reader, n int) string {
	b := make([]byte, (n+1)/2)
	_, _ = io.ReadFull(r, b) // if it fails, IDs collide, which callers report
	return hex.EncodeToString(b)[:n]
}

// RandomUUID returns a random id in the form of a UUID from r.
func RandomUUID(r io.Reader) string { return FormatUUID(RandomHex(r, uuidDigits)) }

// uuidDigits is the number of hexadecimal digits of a UUID.
const uuidDigits = 32

// FormatUUID returns 32 hexadecimal digits in the form of a UUID.
func FormatUUID(digits string) string {
	return digits[:8] + "-" + digits[8:12] + "-" + digits[12:16] + "-" + digits[16:20] + "-" + digits[20:]
}

// StringOrNil returns nil for an empty string.
func StringOrNil(s string) *string {
	if s == "" {
		return nil
	}

	return &s
}

// tokenSumBytes is the length of the checksum in a token.
const tokenSumBytes = 6

// EncodeToken returns the token of a page that begins after the entry with a key. It has a checksum, so that a token that the
// region did not make is an error, as in AWS, and not an empty page.
func EncodeToken(key string) string {
	sum := sha256.Sum256([]byte(key))
	return base64.RawURLEncoding.EncodeToString(append(sum[:tokenSumBytes], key...))
}

// DecodeToken returns the key in a token. ok is false if [EncodeToken] did not make it.
func DecodeToken(token string) (key string, ok bool) {
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(b) <= tokenSumBytes {
		return "", false
	}

	key = string(b[tokenSumBytes:])

	return key, EncodeToken(key) == token
}

// Paginate returns a page of a sorted list of keys and the token of the next page; bad is the error for an
// invalid token. The token is the last key of the page, so that keys that are added or removed meanwhile do
// not shift the pages.
func Paginate(keys []string, limit int64, next *string, bad error) ([]string, *string, error) {
	if tok := String(next); tok != "" {
		last, ok := DecodeToken(tok)
		if !ok {
			return nil, nil, bad
		}

		at, found := slices.BinarySearch(keys, last)
		if found {
			at++
		}

		keys = keys[at:]
	}

	if int64(len(keys)) <= limit {
		return keys, nil, nil
	}

	return keys[:limit], new(EncodeToken(keys[limit-1])), nil
}

// PaginateList is [Paginate] for a list in another order than that of its keys. The token is the key of the last entry of the page, which
// must still be in the list.
func PaginateList[T any](
	list []T,
	key func(T) string,
	limit int64,
	next *string,
	bad error,
) ([]T, *string, error) {
	if tok := String(next); tok != "" {
		last, ok := DecodeToken(tok)
		if !ok {
			return nil, nil, bad
		}

		at := slices.IndexFunc(list, func(v T) bool { return key(v) == last })
		if at < 0 {
			return nil, nil, bad
		}

		list = list[at+1:]
	}

	if int64(len(list)) <= limit {
		return list, nil, nil
	}

	return list[:limit], new(EncodeToken(key(list[limit-1]))), nil
}

// ShapeToMap converts a shape to a map without null members. The keys are the names of the Go fields.
func ShapeToMap(shape any) (map[string]any, error) {
	b, err := json.Marshal(shape)
	if err != nil {
		return nil, fmt.Errorf("convert a %T to a map: %w", shape, err)
	}

	var out map[string]any
	if err := json.Unmarshal(b, &out); err != nil {
		return nil, fmt.Errorf("convert a %T to a map: %w", shape, err)
	}

	removeNulls(out)

	return out, nil
}

func removeNulls(m map[string]any) {
	for k, v := range m {
		switch v := v.(type) {
		case nil:
			delete(m, k)
		case map[string]any:
			removeNulls(v)
		case []any:
			for _, e := range v {
				if em, ok := e.(map[string]any); ok {
					removeNulls(em)
				}
			}
		}
	}
}

// CollectStrings returns all strings in a tree for which want returns true, sorted, without those below the
// keys in but.
func CollectStrings(v any, want func(string) bool, but ...string) []string {
	found := map[string]bool{}
	collectStringsInto(v, want, but, found)
	return SortedKeys(found)
}

func collectStringsInto(v any, want func(string) bool, but []string, into map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if !slices.Contains(but, k) {
				collectStringsInto(e, want, but, into)
			}
		}

	case []any:
		for _, e := range v {
			collectStringsInto(e, want, but, into)
		}

	case string:
		if want(v) {
			into[v] = true
		}
	}
}

// AddRequestTags adds the condition keys of the tags in a request, which are a list of objects with Key and
// Value.
func AddRequestTags(into map[string][]string, tags any) {
	all, _ := tags.([]any)
	for _, t := range all {
		m, _ := t.(map[string]any)
		key, _ := m["Key"].(string)
		value, _ := m["Value"].(string)
		into["aws:RequestTag/"+key] = []string{value}
		into["aws:TagKeys"] = append(into["aws:TagKeys"], key)
	}
}

// AddResourceTags adds the condition keys of the tags of a resource.
func AddResourceTags(into map[string][]string, tags map[string]string) {
	for k, v := range tags {
		into["aws:ResourceTag/"+k] = []string{v}
	}
}
