// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

type describeTagsAPI interface {
	ec2.DescribeTagsAPIClient
}

// conditionalReaders are readers of kinds that most clusters have no resource of, by EC2's resource
// type.
type conditionalReaders map[ec2types.ResourceType]resourceReader

// combineReaders returns one reader, which lists the resource types that the cluster has and calls
// the readers of these.
func (s conditionalReaders) combineReaders(api describeTagsAPI, scope Scope) resourceReader {
	return func(ctx context.Context) ([]plan.ActualResource, error) {
		var types []string
		for t := range s {
			types = append(types, string(t))
		}

		slices.Sort(types)
		found, err := listTaggedTypes(ctx, api, scope, types)
		if err != nil {
			return nil, err
		}

		return readEach(found, func(t ec2types.ResourceType) ([]plan.ActualResource, error) {
			return s[t](ctx)
		})
	}
}

// listTaggedTypes returns those of types that have a resource with the cluster's tag.
func listTaggedTypes(
	ctx context.Context,
	api describeTagsAPI,
	scope Scope,
	types []string,
) ([]ec2types.ResourceType, error) {
	tags, err := listClusterTags(ctx, api, scope, NewFilters("resource-type", types...)...)

	var out []ec2types.ResourceType

	for _, t := range tags {
		if !slices.Contains(out, t.ResourceType) && slices.Contains(types, string(t.ResourceType)) {
			out = append(out, t.ResourceType)
		}
	}

	slices.Sort(out)

	return out, err
}

// maxIDsPerFilter is how many ids one call of DescribeTags asks for. EC2 allows 200 values of all filters together; the
// filters of the cluster's tag have two of them.
const maxIDsPerFilter = 190

// listTaggedIDs returns those of ids that are EC2 resources with the cluster's tag. It does not list all tags of the
// cluster, because each of its machines has some.
func listTaggedIDs(
	ctx context.Context,
	api describeTagsAPI,
	scope Scope,
	ids []string,
) (map[string]bool, error) {
	out := map[string]bool{}
	for chunk := range slices.Chunk(ids, maxIDsPerFilter) {
		tags, err := listClusterTags(ctx, api, scope, NewFilters("resource-id", chunk...)...)
		if err != nil {
			return nil, err
		}

		for _, t := range tags {
			out[aws.ToString(t.ResourceId)] = true
		}
	}

	return out, nil
}

// listClusterTags returns the tags that name the cluster, of the resources that the filters select.
func listClusterTags(
	ctx context.Context,
	api describeTagsAPI,
	scope Scope,
	filters ...ec2types.Filter,
) ([]ec2types.TagDescription, error) {
	var out []ec2types.TagDescription
	pages := ec2.NewDescribeTagsPaginator(api, &ec2.DescribeTagsInput{
		Filters: slices.Concat(
			NewFilters("key", awskind.TagCluster),
			NewFilters("value", scope.Cluster),
			filters,
		),
		MaxResults: aws.Int32(1000),
	})

	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, transport.Wrap(err, "list the resources with the tag of cluster %s", scope.Cluster)
		}

		out = append(out, page.Tags...)
	}

	return out, nil
}
