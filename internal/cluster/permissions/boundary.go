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

// EnsureBoundary creates the permissions boundaries of the machines that read the store at a location, and of Karpenter in their
// clusters. It returns the ARN of the former. It does not change an existing boundary, which an administrator may have extended.
func EnsureBoundary(ctx context.Context, cfg sdk.Config, at store.Location) (string, error) {
	who, err := discovery.GetCallerIdentity(ctx, cfg)
	if err != nil {
		return "", err
	}

	in := iampolicy.Input{Partition: who.Partition, Account: who.Account}
	api := iam.NewFromConfig(cfg)
	err = ensurePolicy(ctx, api, newPolicy{
		name:        iampolicy.KarpenterBoundaryName(at.Bucket),
		description: "The most that Karpenter in Slipway's clusters may be allowed",
		document:    iampolicy.BuildKarpenterBoundary(in),
	})
	if err != nil {
		return "", err
	}

	err = ensurePolicy(ctx, api, newPolicy{
		name:        iampolicy.BoundaryName(at.Bucket),
		description: "The most that machines of Slipway's clusters may be allowed",
		document:    iampolicy.BuildBoundary(in, iampolicy.StoreLocation{Bucket: at.Bucket, Prefix: at.Prefix}),
	})

	return iampolicy.BoundaryARN(who.Partition, who.Account, at.Bucket), err
}

// newPolicy is a managed policy to create.
type newPolicy struct {
	name        string
	description string
	document    iampolicy.Policy
}

// ensurePolicy creates a managed policy unless there is one of its name.
func ensurePolicy(ctx context.Context, api *iam.Client, p newPolicy) error {
	document, err := json.Marshal(p.document)
	if err != nil {
		return fmt.Errorf("encode policy %s: %w", p.name, err)
	}

	_, err = api.CreatePolicy(ctx, &iam.CreatePolicyInput{
		PolicyName:     &p.name,
		Path:           sdk.String(iampolicy.BoundaryPath),
		PolicyDocument: sdk.String(string(document)),
		Description:    &p.description,
	})
	if _, exists := errors.AsType[*iamtypes.EntityAlreadyExistsException](err); exists {
		return nil
	}

	if err != nil {
		return fmt.Errorf("create policy %s: %w", p.name, err)
	}

	return nil
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
