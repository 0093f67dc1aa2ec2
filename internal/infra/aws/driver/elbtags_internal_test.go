// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"fmt"
	"slices"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// vanishingBalancers lists load balancers of which some are deleted before their tags are read.
type vanishingBalancers struct {
	listed, gone []string
	calls        int
	// failure is the error of each call for tags; nil: none.
	failure error
}

func (v *vanishingBalancers) DescribeLoadBalancers(
	context.Context, *elb.DescribeLoadBalancersInput, ...func(*elb.Options),
) (*elb.DescribeLoadBalancersOutput, error) {
	out := &elb.DescribeLoadBalancersOutput{}
	for _, arn := range v.listed {
		out.LoadBalancers = append(out.LoadBalancers, elbtypes.LoadBalancer{LoadBalancerArn: &arn})
	}

	return out, nil
}

func (v *vanishingBalancers) DescribeTargetGroups(
	context.Context, *elb.DescribeTargetGroupsInput, ...func(*elb.Options),
) (*elb.DescribeTargetGroupsOutput, error) {
	return &elb.DescribeTargetGroupsOutput{}, nil
}

func (v *vanishingBalancers) DescribeTags(
	_ context.Context, in *elb.DescribeTagsInput, _ ...func(*elb.Options),
) (*elb.DescribeTagsOutput, error) {
	v.calls++
	if v.failure != nil {
		return nil, v.failure
	}

	out := &elb.DescribeTagsOutput{}
	for _, arn := range in.ResourceArns {
		if slices.Contains(v.gone, arn) {
			return nil, &smithy.GenericAPIError{Code: "LoadBalancerNotFound", Message: "'" + arn + "' not found"}
		}

		out.TagDescriptions = append(out.TagDescriptions, elbtypes.TagDescription{ResourceArn: sdk.String(arn)})
	}

	return out, nil
}

// TestGoneBalancersAreSkipped: load balancers that others delete between the list and the read of the tags do not end a
// plan, and cost few calls.
func TestGoneBalancersAreSkipped(t *testing.T) {
	var all []string
	for i := range 50 {
		all = append(all, fmt.Sprintf("arn:%02d", i))
	}

	gone := []string{"arn:03", "arn:29", "arn:49"}
	api := &vanishingBalancers{listed: all, gone: gone}
	found, err := ListAllBalancing(t.Context(), api)
	if err != nil {
		t.Fatal(err)
	}

	if len(found.Tags) != 47 || len(found.Balancers) != 47 {
		t.Errorf("%d tags, %d load balancers, want 47", len(found.Tags), len(found.Balancers))
	}

	for _, lb := range found.Balancers {
		if slices.Contains(gone, *lb.LoadBalancerArn) {
			t.Errorf("%s is gone", *lb.LoadBalancerArn)
		}
	}

	if api.calls > 35 {
		t.Errorf("%d calls", api.calls)
	}

	api.failure = &smithy.GenericAPIError{Code: "AccessDenied"}
	if _, err := ListAllBalancing(t.Context(), api); plan.ErrorClassOf(err) != plan.AccessDenied {
		t.Errorf("another error: %v", err)
	}
}
