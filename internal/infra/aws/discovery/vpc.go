// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/driver"
	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// FindVPC returns the id of the VPC that Slipway created for a cluster.
func FindVPC(ctx context.Context, cfg aws.Config, cluster string) (string, error) {
	pages := ec2.NewDescribeVpcsPaginator(ec2.NewFromConfig(cfg), &ec2.DescribeVpcsInput{
		Filters: driver.NewFilters("tag:"+awskind.TagCluster, cluster),
	})

	vpcs, err := transport.CollectPages(ctx, pages, func(p *ec2.DescribeVpcsOutput) []ec2types.Vpc { return p.Vpcs })
	if err != nil {
		return "", transport.Wrap(err, "find the VPC of cluster %s", cluster)
	}

	var ids []string
	for _, v := range vpcs {
		ids = append(ids, aws.ToString(v.VpcId))
	}

	switch len(ids) {
	case 0:
		return "", diag.WithHint(
			fmt.Errorf("cluster %s has no VPC in %s", cluster, cfg.Region),
			"create it: slipway apply "+cluster+" --yes",
		)
	case 1:
		return ids[0], nil
	}

	return "", diag.WithHint(
		fmt.Errorf("%d VPCs have the tag %s=%s: %s", len(ids), awskind.TagCluster, cluster, strings.Join(ids, ", ")),
		"give the parameter a value instead",
	)
}
