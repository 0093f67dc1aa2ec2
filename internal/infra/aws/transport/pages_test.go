// SPDX-License-Identifier: Apache-2.0

package transport_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
)

// pagedSubnets lists one subnet in each page, and fails after the last one if it has an error.
type pagedSubnets struct {
	ids []string
	err error
}

func (p pagedSubnets) DescribeSubnets(_ context.Context, in *ec2.DescribeSubnetsInput, _ ...func(*ec2.Options)) (*ec2.DescribeSubnetsOutput, error) {
	at := len(aws.ToString(in.NextToken))
	if at == len(p.ids) {
		return nil, p.err
	}

	out := &ec2.DescribeSubnetsOutput{Subnets: []types.Subnet{{SubnetId: &p.ids[at]}}}
	if at+1 < len(p.ids) || p.err != nil {
		out.NextToken = aws.String(strings.Repeat("x", at+1))
	}

	return out, nil
}

func TestCollectPages(t *testing.T) {
	collect := func(api pagedSubnets) ([]types.Subnet, error) {
		pages := ec2.NewDescribeSubnetsPaginator(api, &ec2.DescribeSubnetsInput{})
		return transport.CollectPages(t.Context(), pages, func(p *ec2.DescribeSubnetsOutput) []types.Subnet { return p.Subnets })
	}

	all, err := collect(pagedSubnets{ids: []string{"a", "b", "c"}})
	if err != nil || len(all) != 3 || *all[2].SubnetId != "c" {
		t.Errorf("%d subnets, %v", len(all), err)
	}

	all, err = collect(pagedSubnets{ids: []string{"a", "b"}, err: errors.New("throttled")})
	if err == nil || all != nil {
		t.Errorf("after an error: %d subnets, %v", len(all), err)
	}
}
