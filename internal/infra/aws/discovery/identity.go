// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsarn "github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
)

// Identity is the caller that credentials belong to.
type Identity struct {
	// Account is the id of the AWS account, of 12 digits.
	Account string
	// Partition is the AWS partition, such as aws or aws-cn.
	Partition string
	// ARN is the ARN of the user, of the assumed role or of the root of the account.
	ARN string
}

// FindAccount returns the id of the account of the credentials of cfg. It asks STS unless the source of the
// credentials knows the account, as roles and single sign-on do. The environment does not: AWS_ACCOUNT_ID may be left from
// something else.
func FindAccount(ctx context.Context, cfg aws.Config) (string, error) {
	if cfg.Credentials != nil {
		found, err := cfg.Credentials.Retrieve(ctx)
		if err == nil && found.AccountID != "" && found.Source != config.CredentialsSourceName {
			return found.AccountID, nil
		}
	}

	who, err := GetCallerIdentity(ctx, cfg)

	return who.Account, err
}

// GetCallerIdentity returns the caller whose credentials cfg has.
func GetCallerIdentity(ctx context.Context, cfg aws.Config) (Identity, error) {
	api := sts.NewFromConfig(cfg)
	out, err := api.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return Identity{}, transport.Wrap(err, "get the caller identity")
	}

	arn, err := awsarn.Parse(aws.ToString(out.Arn))
	if err != nil {
		return Identity{}, fmt.Errorf("parse the caller's ARN: %w", err)
	}

	return Identity{Account: aws.ToString(out.Account), Partition: arn.Partition, ARN: arn.String()}, nil
}
