// SPDX-License-Identifier: Apache-2.0

package iam

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go/service/iam"

	"github.com/slipway-k8s/slipway/internal/region/authz"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// The quotas of IAM, from the IAM user guide ("IAM and AWS STS quotas"). Sizes of policies do not include
// white space.
const (
	maxRoleNameLength     = 64
	maxPolicyNameLength   = 128 // also of instance profiles
	maxTrustPolicyBytes   = 2048
	maxRoleInlineBytes    = 10240 // all inline policies of a role together
	maxUserInlineBytes    = 2048  // all inline policies of a user together
	maxManagedPolicyBytes = 6144
	maxAttachedPolicies   = 10
	maxTags               = 50
	maxPolicyVersions     = 5
	maxAccessKeys         = 2 // access keys of a user
	defaultPageSize       = 100
	maxPageSize           = 1000
	defaultSessionSeconds = 3600  // seconds
	maxSessionSeconds     = 43200 // seconds
)

func stringValue(p *string) string {
	if p == nil {
		return ""
	}

	return *p
}

func newNotFoundError(format string, args ...any) error {
	return newErrorf(codeNoSuchEntity, format, args...)
}

func newExistsError(format string, args ...any) error {
	return newErrorf(codeEntityAlreadyExists, format, args...)
}

// newDeleteConflictError returns the error for an entity that is in use. remedy continues "must", such as
// "detach all policies".
func newDeleteConflictError(remedy string) error {
	return newErrorf(codeDeleteConflict, "Cannot delete entity, must %s first.", remedy)
}

func newLimitError(format string, args ...any) error {
	return newErrorf(codeLimitExceeded, format, args...)
}

func newValidationError(format string, args ...any) error {
	return newErrorf(codeValidation, format, args...)
}

// validateName checks a name's characters and length.
func validateName(field, name string, longest int) error {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+=,.@-"
	if strings.ContainsFunc(name, func(r rune) bool { return !strings.ContainsRune(letters, r) }) ||
		name == "" {
		return newValidationError(
			"The specified value for %s is invalid. "+
				"It must contain only alphanumeric characters and/or the following: +=,.@_-",
			field,
		)
	}

	if len(name) > longest {
		return newValidationError(
			"1 validation error detected: Value '%s' at '%s' failed to satisfy constraint: "+
				"Member must have length less than or equal to %d",
			name,
			field,
			longest,
		)
	}

	return nil
}

// resolvePath returns the path of a new entity: "/" if p is nil.
func resolvePath(p *string) (string, error) {
	if p == nil {
		return "/", nil
	}

	if !strings.HasPrefix(*p, "/") || !strings.HasSuffix(*p, "/") || len(*p) > 512 ||
		strings.ContainsAny(*p, " \t\n") {
		return "", newValidationError(
			"The specified value for path is invalid. " +
				"It must begin and end with / and contain only alphanumeric characters and/or / characters.",
		)
	}

	return *p, nil
}

// validateDocument checks a policy document and its size.
func validateDocument(kind authz.PolicyKind, document string, maxBytes int) error {
	if n := documentSize(document); n > maxBytes {
		return newLimitError("Cannot exceed quota for PolicySize: %d", maxBytes)
	}

	p, err := authz.ParsePolicy(kind, document)

	switch {
	case kind == authz.TrustPolicy && errors.Is(err, authz.ErrSyntax):
		return newMalformedError("This policy contains invalid Json")
	case err != nil:
		return newMalformedError(authz.ServiceMessage(err))
	case kind == authz.IdentityPolicy && p.Version != "2012-10-17":
		return newMalformedError("Policy document must be version 2012-10-17 or greater.")
	}

	return nil
}

func newMalformedError(message string) error {
	return newErrorf(codeMalformedPolicyDocument, "%s", message)
}

// documentSize returns the size of a document without white space, in bytes.
func documentSize(document string) int {
	return len(strings.Join(strings.Fields(document), ""))
}

// mergeTags returns a new map with the old and the added tags. Keys are unique regardless of case.
func mergeTags(old map[string]string, added []*iam.Tag) (map[string]string, error) {
	out := map[string]string{}
	maps.Copy(out, old)
	seen := map[string]bool{}

	for i, t := range added {
		k := stringValue(t.Key)
		v := stringValue(t.Value)
		switch {
		case !wire.IsTagText(k):
			return nil, newValidationError("%s", wire.TagTextMessage(k, fmt.Sprintf("tags.%d.member.key", i+1), "%s+"))
		case !wire.IsTagText(v):
			return nil, newValidationError("%s", wire.TagTextMessage(v, fmt.Sprintf("tags.%d.member.value", i+1), "%s*"))
		case k == "" || len(k) > 128 || len(v) > 256:
			return nil, newValidationError(
				"a tag's key must have 1 to 128 characters and its value up to 256: %q",
				k,
			)
		case strings.HasPrefix(strings.ToLower(k), "aws:"):
			return nil, newErrorf(codeInvalidInput, "Tag keys beginning with aws: are reserved")

		case seen[strings.ToLower(k)]:
			return nil, newErrorf(
				codeInvalidInput,
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
		return nil, newLimitError("Cannot exceed quota for TagsPerResource: %d", maxTags)
	}

	return out, nil
}

// removeTags returns a new map without the tags of the keys, regardless of case.
func removeTags(tags map[string]string, keys []*string) map[string]string {
	out := map[string]string{}
	for k, v := range tags {
		if !slices.ContainsFunc(
			keys,
			func(key *string) bool { return strings.EqualFold(stringValue(key), k) },
		) {
			out[k] = v
		}
	}

	return out
}

// tagList returns tags for a response; nil for none, which has no element then.
func tagList(tags map[string]string) []*iam.Tag {
	var out []*iam.Tag
	for _, k := range sortedKeys(tags) {
		out = append(out, &iam.Tag{Key: new(k), Value: new(tags[k])})
	}

	return out
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}

	slices.Sort(keys)

	return keys
}

// encodeDocument returns a document as IAM's responses contain it: percent-encoded as in RFC 3986.
func encodeDocument(document string) *string {
	return new(strings.ReplaceAll(url.QueryEscape(document), "+", "%20"))
}

// keyPage is one page of sorted keys.
type keyPage struct {
	keys        []string
	isTruncated *bool   // more pages follow
	marker      *string // of the next page; nil for the last page
}

// indexPage is one page of the indexes of a list.
type indexPage struct {
	indexes     []int
	isTruncated *bool   // more pages follow
	marker      *string // of the next page; nil for the last page
}

// paginateIndexes is [paginateKeys] for a list of n entries that have no keys, or another order.
func paginateIndexes(n int, marker *string, items *int64) (indexPage, error) {
	keys := make([]string, 0, n)
	for i := range n {
		keys = append(keys, fmt.Sprintf("%09d", i))
	}

	page, err := paginateKeys(keys, marker, items)
	if err != nil {
		return indexPage{}, err
	}

	out := indexPage{isTruncated: page.isTruncated, marker: page.marker}

	for _, key := range page.keys {
		i, err := strconv.Atoi(key)
		if err != nil {
			return indexPage{}, newValidationError("Invalid Marker.")
		}

		out.indexes = append(out.indexes, i)
	}

	return out, nil
}

// paginateKeys returns the page of sorted keys after marker, which is the marker of the page before.
func paginateKeys(keys []string, marker *string, items *int64) (keyPage, error) {
	count := defaultPageSize
	if items != nil {
		if *items > maxPageSize {
			return keyPage{}, newValidationError(
				"1 validation error detected: Value '%d' at 'maxItems' failed to satisfy constraint: "+
					"Member must have value less than or equal to %d",
				*items,
				maxPageSize,
			)
		}

		count = int(*items)
	}

	page, next, err := sdkshape.Paginate(keys, int64(count), marker, newValidationError("Invalid Marker."))
	if err != nil {
		return keyPage{}, err
	}

	return keyPage{keys: page, isTruncated: new(next != nil), marker: next}, nil
}
