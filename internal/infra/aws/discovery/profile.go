// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/driver"
	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
)

// IsProfileInUse reports whether an instance that is not terminated has the instance profile with an ARN.
func IsProfileInUse(ctx context.Context, cfg aws.Config, arn string) (bool, error) {
	found, err := hasInstances(ctx, cfg, driver.NewFilters("iam-instance-profile.arn", arn))

	return found, transport.Wrap(err, "find the instances with instance profile %s", arn)
}

// HasKarpenterMachines reports whether a cluster has instances that Karpenter launched and that have not ended.
func HasKarpenterMachines(ctx context.Context, cfg aws.Config, cluster string) (bool, error) {
	found, err := hasInstances(ctx, cfg, slices.Concat(
		driver.NewFilters("tag:"+awskind.TagCluster, cluster),
		driver.NewFilters("tag-key", awskind.TagNodePool),
	))

	return found, transport.Wrap(err, "find the instances of Karpenter in cluster %s", cluster)
}

// hasInstances reports whether an instance matches filters and has not ended.
func hasInstances(ctx context.Context, cfg aws.Config, filters []ec2types.Filter) (bool, error) {
	filters = append(filters, driver.NewFilters(
		"instance-state-name", "pending", "running", "shutting-down", "stopping", "stopped",
	)...)
	pages := ec2.NewDescribeInstancesPaginator(
		ec2.NewFromConfig(cfg),
		&ec2.DescribeInstancesInput{Filters: filters},
	)

	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return false, err
		}

		if len(page.Reservations) > 0 {
			return true, nil
		}
	}

	return false, nil
}
