// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"maps"

	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// markAPI reads and adds tags that are no part of the desired state.
type markAPI interface {
	tagAPI
	describeTagsAPI
}

// AddTagsOnCreate has the volume at addr created with more tags than the plan has. Call it before
// the plan is applied.
func (c *Cloud) AddTagsOnCreate(addr graph.Addr, tags awskind.Tags) {
	c.createTags = map[graph.Addr]awskind.Tags{addr: tags}
}

// withCreateTags returns r with the tags of [Cloud.AddTagsOnCreate].
func (c *Cloud) withCreateTags(addr graph.Addr, r graph.Resource) graph.Resource {
	more := c.createTags[addr]
	v, isVolume := r.(awskind.Volume)
	if !isVolume || len(more) == 0 {
		return r
	}

	tags := maps.Clone(v.Tags)
	maps.Copy(tags, more)
	v.Tags = tags

	return v
}

// ReadTags returns the tags of a resource of EC2 that Slipway marks resources with.
func (c *Cloud) ReadTags(ctx context.Context, id string) (awskind.Tags, error) {
	out := awskind.Tags{}
	pages := ec2.NewDescribeTagsPaginator(c.marks, &ec2.DescribeTagsInput{
		Filters: append(
			NewFilters("resource-id", id),
			NewFilters("key", graph.OwnershipTokenTag, graph.StateStoreTag)...,
		),
	})

	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, transport.Wrap(err, "list the tags of %s", id)
		}

		for _, t := range page.Tags {
			out[*t.Key] = *t.Value
		}
	}

	return out, nil
}

// SetTags sets tags of a resource of EC2. It removes none.
func (c *Cloud) SetTags(ctx context.Context, id string, tags awskind.Tags) error {
	return retagEC2(ctx, c.marks, id, tags, nil)
}
