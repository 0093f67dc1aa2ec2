// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/kms"

	"github.com/slipway-k8s/slipway/internal/infra/aws/discovery"
	"github.com/slipway-k8s/slipway/internal/infra/iampolicy"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// EnsureBoundary creates the permissions boundary of the machines that read the store at a location, and returns its
// ARN. It does not change an existing boundary, which an administrator may have extended.
func EnsureBoundary(ctx context.Context, cfg sdk.Config, at store.Location) (string, error) {
	who, err := discovery.GetCallerIdentity(ctx, cfg)
	if err != nil {
		return "", err
	}

	in := iampolicy.Input{Partition: who.Partition, Account: who.Account}
	document, err := json.Marshal(
		iampolicy.BuildBoundary(in, iampolicy.StoreLocation{Bucket: at.Bucket, Prefix: at.Prefix}),
	)
	if err != nil {
		return "", err
	}

	arn := iampolicy.BoundaryARN(who.Partition, who.Account, at.Bucket)
	_, err = iam.NewFromConfig(cfg).CreatePolicy(ctx, &iam.CreatePolicyInput{
		PolicyName:     sdk.String(iampolicy.BoundaryName(at.Bucket)),
		Path:           sdk.String(iampolicy.BoundaryPath),
		PolicyDocument: sdk.String(string(document)),
		Description:    sdk.String("The most that machines of Slipway's clusters may be allowed"),
	})
	if _, exists := errors.AsType[*iamtypes.EntityAlreadyExistsException](err); exists {
		return arn, nil
	}

	if err != nil {
		return "", fmt.Errorf("create policy %s: %w", arn, err)
	}

	return arn, nil
}

// BuildDeletionPolicy returns the policy that the deletion of a cluster's key needs.
func BuildDeletionPolicy(ctx context.Context, cfg sdk.Config, in iampolicy.Input) (iampolicy.Policy, error) {
	key, err := kms.NewFromConfig(cfg).DescribeKey(ctx, &kms.DescribeKeyInput{KeyId: &in.KeyAlias})
	if err != nil {
		return iampolicy.Policy{}, fmt.Errorf("read key %s: %w", in.KeyAlias, err)
	}

	in.KeyARN = sdk.ToString(key.KeyMetadata.Arn)

	return iampolicy.BuildDeletionPolicy(in), nil
}
