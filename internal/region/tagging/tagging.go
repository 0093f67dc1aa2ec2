// SPDX-License-Identifier: Apache-2.0

// Package tagging is the region's Resource Groups Tagging API. It finds resources of all services by their tags, and
// has no state: each service tells the tags of its resources when it is asked. As at AWS, it does not know IAM's users
// and roles and Auto Scaling groups, and it knows the resources of global services in us-east-1 only. At AWS it also
// lists deleted resources for a while, and resources that had tags once; here it does not.
package tagging

import (
	"context"
	"maps"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/resourcegroupstaggingapi"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// Source returns the tags of a service's resources by ARN. It may omit resources without tags.
type Source func() map[string]map[string]string

// GlobalRegion is the region in which the API knows the resources of global services.
const GlobalRegion = "us-east-1"

// Limits of a request (API reference, GetResources and TagFilter).
const (
	maxFilters     = 50
	maxValues      = 20
	maxKeyLength   = 128
	maxValueLength = 256
	maxTypes       = 100
	maxPage        = 100
	defaultPage    = 50
)

// Service returns the operations over the resources of sources.
func Service(sources ...Source) wire.Service {
	return wire.Service{
		Name:         "tagging",
		Protocol:     wire.JSONProtocol,
		Version:      "2017-01-26",
		TargetPrefix: "ResourceGroupsTaggingAPI_20170126",
		// The prefix of the actions is not the signing name.
		Authorize: func(ctx context.Context, op string, _ any) error {
			return wire.Authorize(ctx, wire.AccessCheck{Action: "tag:" + op, Resource: "*"})
		},
		Operations: []wire.Operation{
			wire.NewOperation("GetResources", handlers{sources}.getResources),
		},
	}
}

type handlers struct{ sources []Source }

func newInvalidError(format string, args ...any) error {
	return newErrorf(codeInvalidParameter, format, args...)
}

func (h handlers) getResources(_ context.Context, in *sdk.GetResourcesInput) (*sdk.GetResourcesOutput, error) {
	if err := validateRequest(in); err != nil {
		return nil, err
	}

	found := map[string]map[string]string{}
	for _, source := range h.sources {
		for arn, tags := range source() {
			if len(tags) > 0 && hasType(arn, sdkshape.Strings(in.ResourceTypeFilters)) && matchesAll(tags, in.TagFilters) {
				found[arn] = tags
			}
		}
	}

	limit := int64(defaultPage)
	if in.ResourcesPerPage != nil {
		limit = *in.ResourcesPerPage
	}

	arns, next, err := sdkshape.Paginate(
		slices.Sorted(maps.Keys(found)),
		limit,
		in.PaginationToken,
		newInvalidError("The PaginationToken is not valid"),
	)
	if err != nil {
		return nil, err
	}

	out := &sdk.GetResourcesOutput{
		PaginationToken:        new(sdkshape.String(next)), // empty on the last page
		ResourceTagMappingList: []*sdk.ResourceTagMapping{},
	}
	for _, arn := range arns {
		out.ResourceTagMappingList = append(
			out.ResourceTagMappingList,
			&sdk.ResourceTagMapping{ResourceARN: &arn, Tags: toTags(found[arn])},
		)
	}

	return out, nil
}

func toTags(tags map[string]string) []*sdk.Tag {
	var out []*sdk.Tag
	for _, k := range sdkshape.SortedKeys(tags) {
		out = append(out, &sdk.Tag{Key: &k, Value: new(tags[k])})
	}

	return out
}

// validateRequest refuses what AWS refuses.
func validateRequest(in *sdk.GetResourcesInput) error {
	switch {
	case len(in.TagFilters) > maxFilters:
		return newInvalidError("TagFilters can have up to %d keys, not %d", maxFilters, len(in.TagFilters))
	case len(in.ResourceTypeFilters) > maxTypes:
		return newInvalidError(
			"ResourceTypeFilters can have up to %d items, not %d",
			maxTypes,
			len(in.ResourceTypeFilters),
		)

	case in.ResourcesPerPage != nil && (*in.ResourcesPerPage < 1 || *in.ResourcesPerPage > maxPage):
		return newInvalidError("ResourcesPerPage must be between 1 and %d, not %d", maxPage, *in.ResourcesPerPage)
	}

	for _, f := range in.TagFilters {
		if err := validateFilter(f); err != nil {
			return err
		}
	}

	return nil
}

func validateFilter(f *sdk.TagFilter) error {
	key := sdkshape.String(f.Key)
	if n := len([]rune(key)); n < 1 || n > maxKeyLength {
		return newInvalidError("A tag filter needs a key of 1 to %d characters, not %q", maxKeyLength, key)
	}

	if len(f.Values) > maxValues {
		return newInvalidError("The filter of tag %q can have up to %d values, not %d", key, maxValues, len(f.Values))
	}

	for _, v := range sdkshape.Strings(f.Values) {
		if len([]rune(v)) > maxValueLength {
			return newInvalidError("A value of the filter of tag %q is longer than %d characters", key, maxValueLength)
		}
	}

	return nil
}

// matchesAll reports whether tags match each of the filters: one of its values, or any if it has none.
func matchesAll(tags map[string]string, filters []*sdk.TagFilter) bool {
	for _, f := range filters {
		value, has := tags[sdkshape.String(f.Key)]
		if !has || len(f.Values) > 0 && !slices.Contains(sdkshape.Strings(f.Values), value) {
			return false
		}
	}

	return true
}

// hasType reports whether an ARN is of one of the types, such as ec2 or ec2:instance; no types are all.
func hasType(arn string, types []string) bool {
	service, kind := splitARN(arn)

	return len(types) == 0 || slices.Contains(types, service) || slices.Contains(types, service+":"+kind)
}

// splitARN returns the service of an ARN, and the type of its resource. Those of S3 are buckets.
func splitARN(arn string) (service, kind string) {
	const fields = 6 // arn, partition, service, region, account, resource
	parts := strings.SplitN(arn, ":", fields)
	if len(parts) < fields {
		return "", ""
	}

	if parts[2] == "s3" {
		return "s3", "bucket"
	}

	end := strings.IndexAny(parts[5]+"/", "/:")

	return parts[2], parts[5][:min(end, len(parts[5]))]
}
