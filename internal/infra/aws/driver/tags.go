// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// tagAPI changes the tags of any resource of EC2.
type tagAPI interface {
	CreateTags(context.Context, *ec2.CreateTagsInput, ...func(*ec2.Options)) (*ec2.CreateTagsOutput, error)
	DeleteTags(context.Context, *ec2.DeleteTagsInput, ...func(*ec2.Options)) (*ec2.DeleteTagsOutput, error)
}

// clusterFilters select the resources of the cluster that have an address. Instances and their root
// volumes have only the cluster's tag and are left out.
func clusterFilters(s Scope) []ec2types.Filter {
	return []ec2types.Filter{
		{Name: aws.String("tag:" + awskind.TagCluster), Values: []string{s.Cluster}},
		{Name: aws.String("tag-key"), Values: []string{awskind.TagAddress}},
	}
}

// NewFilters returns one EC2 filter, which selects resources with any of values.
func NewFilters(name string, values ...string) []ec2types.Filter {
	return []ec2types.Filter{{Name: &name, Values: values}}
}

// tagSpecifications returns the tags of a resource for the call that creates it, so that it never
// exists without them.
func tagSpecifications(t ec2types.ResourceType, tags awskind.Tags) []ec2types.TagSpecification {
	return []ec2types.TagSpecification{{ResourceType: t, Tags: toEC2Tags(tags)}}
}

func toEC2Tags(tags awskind.Tags) []ec2types.Tag {
	var out []ec2types.Tag
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		out = append(out, ec2types.Tag{Key: aws.String(k), Value: aws.String(tags[k])})
	}

	return out
}

// FromEC2Tags returns tags as the tags of a resource.
func FromEC2Tags(tags []ec2types.Tag) awskind.Tags {
	out := awskind.Tags{}
	for _, t := range tags {
		out[aws.ToString(t.Key)] = aws.ToString(t.Value)
	}

	return out
}

// addressFromTags returns the address in the tags of a resource; empty if they have none.
func addressFromTags(tags awskind.Tags) graph.Addr { return graph.Addr(tags[awskind.TagAddress]) }

// diffTags returns the tags to set, and the keys of those to remove. Only tags that slipway set are
// removed.
func diffTags(want, have awskind.Tags) (set awskind.Tags, remove []string) {
	set = awskind.Tags{}
	for k, v := range want {
		if old, ok := have[k]; !ok || old != v {
			set[k] = v
		}
	}

	for _, k := range slices.Sorted(maps.Keys(have)) {
		if _, wanted := want[k]; !wanted && graph.IsOwnTag(k, have[graph.TagKeysTag]) {
			remove = append(remove, k)
		}
	}

	return set, remove
}

// retagEC2 changes the tags of a resource of EC2 from have to want.
func retagEC2(ctx context.Context, api tagAPI, id string, want, have awskind.Tags) error {
	set, remove := diffTags(want, have)
	if len(set) > 0 {
		in := &ec2.CreateTagsInput{Resources: []string{id}, Tags: toEC2Tags(set)}
		if _, err := api.CreateTags(ctx, in); err != nil {
			return transport.Wrap(err, "tag %s", id)
		}
	}

	if len(remove) > 0 {
		var tags []ec2types.Tag
		for _, k := range remove {
			tags = append(tags, ec2types.Tag{Key: aws.String(k)})
		}

		in := &ec2.DeleteTagsInput{Resources: []string{id}, Tags: tags}
		if _, err := api.DeleteTags(ctx, in); err != nil {
			return transport.Wrap(err, "untag %s", id)
		}
	}

	return nil
}
