// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/slipway-k8s/slipway/internal/infra/aws/driver"
	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
)

// IsProfileInUse reports whether an instance that is not terminated has the instance profile with an ARN.
func IsProfileInUse(ctx context.Context, cfg aws.Config, arn string) (bool, error) {
	filters := driver.NewFilters("iam-instance-profile.arn", arn)
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
			return false, transport.Wrap(err, "find the instances with instance profile %s", arn)
		}

		if len(page.Reservations) > 0 {
			return true, nil
		}
	}

	return false, nil
}
