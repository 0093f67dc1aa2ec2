// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// findServerURL returns the URL of the cluster's API: its elastic IP address, if it has one, else a load balancer.
func findServerURL(ctx context.Context, cfg aws.Config, cluster string) (string, error) {
	out, err := ec2.NewFromConfig(
		cfg,
	).DescribeAddresses(
		ctx,
		&ec2.DescribeAddressesInput{Filters: []ec2types.Filter{
			{Name: aws.String("tag:" + awskind.TagCluster), Values: []string{cluster}},
			{Name: aws.String("tag-key"), Values: []string{awskind.TagSlot}},
		}},
	)
	if err != nil {
		return "", fmt.Errorf("find the address of cluster %s: %w", cluster, err)
	}

	if len(out.Addresses) > 0 {
		return "https://" + aws.ToString(out.Addresses[0].PublicIp) + ":" + kube.APIPort, nil
	}

	return findLoadBalancerURL(ctx, elb.NewFromConfig(cfg), cluster)
}
