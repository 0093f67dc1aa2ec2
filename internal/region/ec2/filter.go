// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"slices"
	"strings"
	"unicode/utf8"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// describeQuery holds the parameters that Describe operations have in common.
type describeQuery struct {
	ids        []*string // empty for all
	filters    []*sdk.Filter
	maxResults *int64  // page size; nil for the default
	nextToken  *string // nil for the first page
}

// resourceLister describes a resource type for listResources: the error for an id that does not exist, and
// the values of a resource that a filter looks at.
type resourceLister[T any] struct {
	notFoundCode errorCode // such as codeInvalidVPCIDNotFound
	noun         string    // for the message: The NOUN 'vpc-…' does not exist

	// filterValues returns the values of v for a filter, and whether the filter exists at all. v may be
	// empty: then only known matters.
	filterValues func(v *T, name string) (values []string, known bool)
}

// listResources returns the resources that a Describe operation asks for, in the order of their ids, filtered
// and paged, and the token of the next page.
func listResources[T any](
	s *Service,
	all map[string]*T,
	q describeQuery,
	l resourceLister[T],
) ([]*T, *string, error) {
	for _, id := range q.ids {
		if all[str(id)] == nil {
			return nil, nil, newErrorf(l.notFoundCode, "The %s '%s' does not exist", l.noun, str(id))
		}
	}

	if err := checkFilters(q.filters, l.filterValues); err != nil {
		return nil, nil, err
	}

	ids := sortedKeys(all)
	if len(q.ids) > 0 {
		ids = slices.Compact(slices.Sorted(slices.Values(strs(q.ids))))
	}

	ids = slices.DeleteFunc(ids, func(id string) bool {
		found := s.matchesSeenTags(id, func(tags map[string]string) bool {
			return matchesFilters(tags, all[id], q.filters, l.filterValues)
		})

		return !found || s.isUnseen(id)
	})
	ids, next, err := paginateIDs(ids, q)
	if err != nil {
		return nil, nil, err
	}

	out := make([]*T, 0, len(ids))
	for _, id := range ids {
		out = append(out, all[id])
	}

	return out, next, nil
}

// paginateIDs returns one page of sorted ids and the token of the next page. A page has at most 1000 entries.
func paginateIDs(ids []string, q describeQuery) ([]string, *string, error) {
	limit := int64(1000)
	if q.maxResults != nil {
		if *q.maxResults < 1 {
			return nil, nil, newErrorf(
				codeInvalidParameterValue,
				"Value ( %d ) for parameter maxResults is invalid",
				*q.maxResults,
			)
		}

		limit = min(*q.maxResults, limit)
	}

	return sdkshape.Paginate(
		ids,
		limit,
		q.nextToken,
		newErrorf(codeInvalidParameterValue, "The token '%s' is invalid", str(q.nextToken)),
	)
}

// EC2's limits of the filters of one call: how many values all filters may have together, and the characters of a value.
// See docs/aws-facts.md.
const (
	maxFilterValues      = 200
	maxFilterValueLength = 255
)

// checkFilterLimits refuses more or longer filter values than EC2 takes.
func checkFilterLimits(filters []*sdk.Filter) error {
	values := 0
	for _, f := range filters {
		values += len(f.Values)
		for _, v := range f.Values {
			if utf8.RuneCountInString(str(v)) > maxFilterValueLength {
				return newErrorf(
					codeFilterLimitExceeded,
					"The maximum length for a filter value is %d characters",
					maxFilterValueLength,
				)
			}
		}
	}

	if values > maxFilterValues {
		return newErrorf(
			codeFilterLimitExceeded,
			"The maximum number of filter values specified on a single call is %d",
			maxFilterValues,
		)
	}

	return nil
}

func checkFilters[T any](filters []*sdk.Filter, field func(*T, string) ([]string, bool)) error {
	if err := checkFilterLimits(filters); err != nil {
		return err
	}

	for _, f := range filters {
		name := str(f.Name)
		if name == "tag-key" || name == "tag-value" || strings.HasPrefix(name, "tag:") {
			continue
		}

		if _, known := field(new(T), name); !known {
			return newErrorf(codeInvalidParameterValue, "The filter '%s' is invalid", name)
		}
	}

	return nil
}

// matchesFilters reports whether a resource matches all filters. It matches a filter if one of its values
// matches one of the filter's patterns.
func matchesFilters[T any](
	tags map[string]string,
	v *T,
	filters []*sdk.Filter,
	field func(*T, string) ([]string, bool),
) bool {
	for _, f := range filters {
		have := tagFilterValues(tags, str(f.Name))
		if have == nil {
			have, _ = field(v, str(f.Name))
		}

		if !anyMatch(have, strs(f.Values)) {
			return false
		}
	}

	return true
}

// tagFilterValues returns the values that a tag filter looks at, or nil if the filter is not about tags.
func tagFilterValues(tags map[string]string, name string) []string {
	key, isTag := strings.CutPrefix(name, "tag:")
	have := []string{}
	switch {
	case isTag:
		if v, ok := tags[key]; ok {
			have = append(have, v)
		}

	case name == "tag-key":
		have = append(have, sortedKeys(tags)...)
	case name == "tag-value":
		for _, v := range tags {
			have = append(have, v)
		}

	default:
		return nil
	}

	return have
}

func anyMatch(have, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		return slices.ContainsFunc(have, func(h string) bool { return matchGlob(p, h) })
	})
}

// matchGlob matches the pattern of an AWS filter: * is any text, ? any one character, and \ before either the
// character itself. It backtracks to the last * only, which is enough, so that no pattern takes long.
func matchGlob(pattern, s string) bool {
	p := 0
	i := 0
	star := -1
	mark := 0

	for i < len(s) {
		n, isStar, fits := readGlobElement(pattern[p:], s[i])
		switch {
		case isStar:
			star = p
			mark = i
			p += n

		case fits:
			p += n
			i++
		case star >= 0:
			mark++
			p = star + 1
			i = mark

		default:
			return false
		}
	}

	return strings.Trim(pattern[p:], "*") == ""
}

// readGlobElement reads the first element of a pattern. It returns the element's length, and whether it is a
// * or else matches c.
func readGlobElement(pattern string, c byte) (n int, isStar, fits bool) {
	switch {
	case pattern == "":
		return 0, false, false
	case pattern[0] == '*':
		return 1, true, false
	case pattern[0] == '?':
		return 1, false, true
	case pattern[0] == '\\' && len(pattern) > 1:
		return 2, false, pattern[1] == c
	}

	return 1, false, pattern[0] == c
}

func boolText(b *bool) string {
	if b != nil && *b {
		return "true"
	}

	return "false"
}
