// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

type elbTagReadAPI interface {
	DescribeTags(
		context.Context,
		*elb.DescribeTagsInput,
		...func(*elb.Options),
	) (*elb.DescribeTagsOutput, error)
}

type elbTagAPI interface {
	elbTagReadAPI
	AddTags(context.Context, *elb.AddTagsInput, ...func(*elb.Options)) (*elb.AddTagsOutput, error)
	RemoveTags(context.Context, *elb.RemoveTagsInput, ...func(*elb.Options)) (*elb.RemoveTagsOutput, error)
}

// maxDescribeTags is how many ARNs DescribeTags of ELB accepts.
const maxDescribeTags = 20

// selectClusterTags returns those of all tags that belong to the cluster and have an address.
func selectClusterTags(all map[string]awskind.Tags, scope Scope) map[string]awskind.Tags {
	out := maps.Clone(all)
	maps.DeleteFunc(out, func(_ string, tags awskind.Tags) bool {
		return tags[awskind.TagCluster] != scope.Cluster || tags[awskind.TagAddress] == ""
	})

	return out
}

// DescribeELBTags returns the tags of load balancers and target groups by their ARN. Those that do not exist have no
// entry: an account has load balancers of others, which may be deleted after they were listed.
func DescribeELBTags(
	ctx context.Context,
	api elbTagReadAPI,
	arns []string,
) (map[string]awskind.Tags, error) {
	out := map[string]awskind.Tags{}
	for list := range slices.Chunk(arns, maxDescribeTags) {
		if err := collectELBTags(ctx, api, list, out); err != nil {
			return nil, err
		}
	}

	return out, nil
}

// collectELBTags adds the tags of at most maxDescribeTags resources to out. AWS refuses the whole call if one of them does
// not exist, so each half is asked for then.
func collectELBTags(ctx context.Context, api elbTagReadAPI, arns []string, out map[string]awskind.Tags) error {
	page, err := api.DescribeTags(ctx, &elb.DescribeTagsInput{ResourceArns: arns})
	if err = transport.Wrap(err, "list the tags of load balancers"); plan.ErrorClassOf(err) == plan.NotFound {
		if len(arns) == 1 {
			return nil
		}

		half := len(arns) / 2
		if err := collectELBTags(ctx, api, arns[:half], out); err != nil {
			return err
		}

		return collectELBTags(ctx, api, arns[half:], out)
	}

	if err != nil {
		return err
	}

	for _, d := range page.TagDescriptions {
		tags := awskind.Tags{}
		for _, t := range d.Tags {
			tags[aws.ToString(t.Key)] = aws.ToString(t.Value)
		}

		out[aws.ToString(d.ResourceArn)] = tags
	}

	return nil
}

// retagELB changes the tags of a load balancer or target group from have to want.
func retagELB(ctx context.Context, api elbTagAPI, arn string, want, have awskind.Tags) error {
	set, remove := diffTags(want, have)
	if len(set) > 0 {
		in := &elb.AddTagsInput{ResourceArns: []string{arn}, Tags: toELBTags(set)}
		if _, err := api.AddTags(ctx, in); err != nil {
			return transport.Wrap(err, "tag")
		}
	}

	if len(remove) > 0 {
		in := &elb.RemoveTagsInput{ResourceArns: []string{arn}, TagKeys: remove}
		if _, err := api.RemoveTags(ctx, in); err != nil {
			return transport.Wrap(err, "untag")
		}
	}

	return nil
}

func toELBTags(tags awskind.Tags) []elbtypes.Tag {
	var out []elbtypes.Tag
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		out = append(out, elbtypes.Tag{Key: aws.String(k), Value: aws.String(tags[k])})
	}

	return out
}
