// SPDX-License-Identifier: Apache-2.0

package iam

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go/service/iam"

	"github.com/slipway-k8s/slipway/internal/region/authz"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// IAM's quotas, as the IAM user guide lists them ("IAM and AWS STS quotas"); sizes do not count white space.
const (
	maxRoleName    = 64
	maxPolicyName  = 128 // of instance profiles too
	maxTrust       = 2048
	maxInlineRole  = 10240 // of all inline policies of a role together
	maxInlineUser  = 2048
	maxManaged     = 6144
	maxAttached    = 10
	maxTags        = 50
	maxVersions    = 5
	maxKeys        = 2 // access keys of a user
	defaultItems   = 100
	maxItems       = 1000
	defaultSession = 3600  // seconds
	maxSession     = 43200 // seconds
)

func str(p *string) string {
	if p == nil {
		return ""
	}

	return *p
}

func missing(format string, args ...any) error {
	return &wire.Error{
		Code:    iam.ErrCodeNoSuchEntityException,
		Message: fmt.Sprintf(format, args...),
		Status:  http.StatusNotFound,
	}
}

func exists(format string, args ...any) error {
	return &wire.Error{
		Code:    iam.ErrCodeEntityAlreadyExistsException,
		Message: fmt.Sprintf(format, args...),
		Status:  http.StatusConflict,
	}
}

func conflict(what string) error {
	return &wire.Error{
		Code:    iam.ErrCodeDeleteConflictException,
		Message: "Cannot delete entity, must " + what + " first.",
		Status:  http.StatusConflict,
	}
}

func limit(format string, args ...any) error {
	return &wire.Error{
		Code:    iam.ErrCodeLimitExceededException,
		Message: fmt.Sprintf(format, args...),
		Status:  http.StatusConflict,
	}
}

func invalid(format string, args ...any) error {
	return wire.Errorf("ValidationError", format, args...)
}

// checkName checks a name's characters and length.
func checkName(field, name string, longest int) error {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+=,.@-"
	if strings.ContainsFunc(name, func(r rune) bool { return !strings.ContainsRune(letters, r) }) ||
		name == "" {
		return invalid(
			"The specified value for %s is invalid. It must contain only alphanumeric characters and/or the following: +=,.@_-",
			field,
		)
	}

	if len(name) > longest {
		return invalid(
			"1 validation error detected: Value '%s' at '%s' failed to satisfy constraint: Member must have length less than or equal to %d",
			name,
			field,
			longest,
		)
	}

	return nil
}

// checkPath returns the path of a new entity.
func checkPath(p *string) (string, error) {
	if p == nil {
		return "/", nil
	}

	if !strings.HasPrefix(*p, "/") || !strings.HasSuffix(*p, "/") || len(*p) > 512 ||
		strings.ContainsAny(*p, " \t\n") {
		return "", invalid(
			"The specified value for path is invalid. It must begin and end with / and contain only alphanumeric characters and/or / characters.",
		)
	}

	return *p, nil
}

// checkDocument checks a policy document of a kind, and its size without white space.
func checkDocument(kind authz.Kind, document string, longest int) error {
	if n := size(document); n > longest {
		return limit("Cannot exceed quota for PolicySize: %d", longest)
	}

	if _, err := authz.Parse(kind, document); err != nil {
		return wire.Errorf(iam.ErrCodeMalformedPolicyDocumentException, "%v", err)
	}

	return nil
}

func size(document string) int {
	return len(strings.Join(strings.Fields(document), ""))
}

// merge checks tags and returns the old ones with them. Keys are unique without regard to case.
func merge(old map[string]string, added []*iam.Tag) (map[string]string, error) {
	out := map[string]string{}
	maps.Copy(out, old)
	seen := map[string]bool{}

	for _, t := range added {
		k := str(t.Key)
		v := str(t.Value)
		switch {
		case k == "" || len(k) > 128 || len(v) > 256:
			return nil, invalid("a tag's key must have 1 to 128 characters and its value up to 256: %q", k)
		case strings.HasPrefix(strings.ToLower(k), "aws:"):
			return nil, wire.Errorf(
				iam.ErrCodeInvalidInputException,
				"Tag keys beginning with aws: are reserved",
			)

		case seen[strings.ToLower(k)]:
			return nil, wire.Errorf(
				iam.ErrCodeInvalidInputException,
				"Duplicate tag keys found. Please note that Tag keys are case insensitive.",
			)
		}

		seen[strings.ToLower(k)] = true

		for existing := range out {
			if strings.EqualFold(existing, k) {
				delete(out, existing)
			}
		}

		out[k] = v
	}

	if len(out) > maxTags {
		return nil, limit("Cannot exceed quota for TagsPerResource: %d", maxTags)
	}

	return out, nil
}

func without(tags map[string]string, keys []*string) map[string]string {
	out := map[string]string{}
	for k, v := range tags {
		if !slices.ContainsFunc(keys, func(key *string) bool { return strings.EqualFold(str(key), k) }) {
			out[k] = v
		}
	}

	return out
}

func tagList(tags map[string]string) []*iam.Tag {
	out := []*iam.Tag{}
	for _, k := range sorted(tags) {
		out = append(out, &iam.Tag{Key: new(k), Value: new(tags[k])})
	}

	return out
}

func sorted[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}

	slices.Sort(keys)

	return keys
}

// encoded is a document as IAM's answers carry it: percent-encoded by RFC 3986.
func encoded(document string) *string {
	return new(strings.ReplaceAll(url.QueryEscape(document), "+", "%20"))
}

// window is one page of sorted keys.
type window struct {
	keys   []string
	more   *bool
	marker *string
}

// page cuts the page out of sorted keys that follows a marker.
func page(keys []string, marker *string, items *int64) (window, error) {
	from := 0
	if marker != nil {
		last, err := base64.RawURLEncoding.DecodeString(*marker)
		if err != nil {
			return window{}, invalid("Invalid Marker.")
		}

		index, found := slices.BinarySearch(keys, string(last))
		if from = index; found {
			from++
		}
	}

	count := defaultItems
	if items != nil {
		if *items > maxItems {
			return window{}, invalid(
				"1 validation error detected: Value '%d' at 'maxItems' failed to satisfy constraint: Member must have value less than or equal to %d",
				*items,
				maxItems,
			)
		}

		count = int(*items)
	}

	rest := keys[from:]
	if len(rest) <= count {
		return window{keys: rest, more: new(false)}, nil
	}

	cut := rest[:count]

	return window{
		keys:   cut,
		more:   new(true),
		marker: new(base64.RawURLEncoding.EncodeToString([]byte(cut[count-1]))),
	}, nil
}
