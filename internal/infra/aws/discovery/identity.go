// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsarn "github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
)

// Identity is whose account we are in.
type Identity struct {
	Account, Partition string
	// ARN of the caller.
	ARN string
}

// GetCallerIdentity asks AWS whose credentials cfg has.
func GetCallerIdentity(ctx context.Context, cfg aws.Config) (Identity, error) {
	api := sts.NewFromConfig(cfg)
	out, err := api.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return Identity{}, transport.Wrap(err, "ask AWS who we are")
	}

	arn, err := awsarn.Parse(aws.ToString(out.Arn))
	if err != nil {
		return Identity{}, fmt.Errorf("parse the caller's ARN: %w", err)
	}

	return Identity{Account: aws.ToString(out.Account), Partition: arn.Partition, ARN: arn.String()}, nil
}
