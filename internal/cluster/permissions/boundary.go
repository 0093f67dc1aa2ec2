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

	"github.com/slipway-k8s/slipway/internal/infra/aws"
	"github.com/slipway-k8s/slipway/internal/infra/aws/discovery"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
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

// BuildDeletionPolicy returns the policy that the deletion of a cluster's key needs. A deletion that failed for lack
// of it has deleted the key's alias, so the key is found as a plan finds it.
func BuildDeletionPolicy(ctx context.Context, cfg sdk.Config, in iampolicy.Input) (iampolicy.Policy, error) {
	found, err := aws.New(cfg, aws.Scope{
		Cluster:  in.Cluster,
		Region:   in.Region,
		RolePath: in.RolePath,
		KeyAlias: in.KeyAlias,
	}).Read(aws.WithoutDetails(ctx))
	if err != nil {
		return iampolicy.Policy{}, fmt.Errorf("find the KMS key of cluster %s: %w", in.Cluster, err)
	}

	for _, r := range found {
		if _, isKey := r.Resource.(awskind.KMSKey); isKey {
			in.KeyARN = r.Attributes["Arn"]
			return iampolicy.BuildDeletionPolicy(in), nil
		}
	}

	return iampolicy.Policy{}, fmt.Errorf("cluster %s has no KMS key", in.Cluster)
}
