// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"strconv"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
)

// twoClusters is an account with resources of two clusters of one name.
type twoClusters struct{ usageAPI }

func idTag(id string) []ec2types.Tag {
	return []ec2types.Tag{{Key: aws.String("slipway.dev/id"), Value: &id}}
}

// DescribeVpcs implements [ec2.DescribeVpcsAPIClient].
func (twoClusters) DescribeVpcs(context.Context, *ec2.DescribeVpcsInput, ...func(*ec2.Options)) (*ec2.DescribeVpcsOutput, error) {
	return &ec2.DescribeVpcsOutput{Vpcs: []ec2types.Vpc{{Tags: idTag("ours")}, {Tags: idTag("theirs")}, {}}}, nil
}

// DescribeAddresses implements [usageAPI].
func (twoClusters) DescribeAddresses(context.Context, *ec2.DescribeAddressesInput, ...func(*ec2.Options)) (*ec2.DescribeAddressesOutput, error) {
	return &ec2.DescribeAddressesOutput{Addresses: []ec2types.Address{{Tags: idTag("ours")}, {Tags: idTag("theirs")}}}, nil
}

// TestUsageOfOtherClusters: what another cluster of the same name uses is not available to this one.
func TestUsageOfOtherClusters(t *testing.T) {
	owns := func(tags map[string]string) bool { return tags["slipway.dev/id"] == "ours" }
	vpcs, err := countOtherVPCs(t.Context(), twoClusters{}, owns)
	if err != nil || vpcs != 2 {
		t.Errorf("%d VPCs of others, %v", vpcs, err)
	}
	addresses, err := countOtherAddresses(t.Context(), twoClusters{}, owns)
	if err != nil || addresses != 1 {
		t.Errorf("%d addresses of others, %v", addresses, err)
	}
}

// balancerPages are the load balancers of an account, one a page.
type balancerPages []elbtypes.LoadBalancer

// DescribeLoadBalancers implements [elb.DescribeLoadBalancersAPIClient].
func (p balancerPages) DescribeLoadBalancers(_ context.Context, in *elb.DescribeLoadBalancersInput, _ ...func(*elb.Options)) (*elb.DescribeLoadBalancersOutput, error) {
	at, _ := strconv.Atoi(aws.ToString(in.Marker))
	out := &elb.DescribeLoadBalancersOutput{LoadBalancers: p[at : at+1]}
	if at+1 < len(p) {
		out.NextMarker = aws.String(strconv.Itoa(at + 1))
	}
	return out, nil
}

// TestLoadBalancersOfOthers: application load balancers have a quota of their own.
func TestLoadBalancersOfOthers(t *testing.T) {
	all := balancerPages{
		{LoadBalancerArn: aws.String("ours"), Type: "network"},
		{LoadBalancerArn: aws.String("theirs"), Type: "network"},
		{LoadBalancerArn: aws.String("app"), Type: "application"},
		{LoadBalancerArn: aws.String("last"), Type: "network"},
	}
	if n, err := countOtherLoadBalancers(t.Context(), all, []string{"ours"}); err != nil || n != 2 {
		t.Errorf("%d load balancers of others, %v", n, err)
	}
}
