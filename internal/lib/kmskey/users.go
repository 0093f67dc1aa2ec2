// SPDX-License-Identifier: Apache-2.0

// Package kmskey tells who can use a KMS key that somebody else may have created, besides those whom its policy names.
package kmskey

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	kmstypes "github.com/aws/aws-sdk-go-v2/service/kms/types"
)

// FindOtherUse returns why others may be able to use a key whatever its policy says; empty if they cannot. The creator of a key
// with imported material has a copy of it, and a replica of a multi-Region key has a policy of its own. Grants are not read.
func FindOtherUse(meta *kmstypes.KeyMetadata) string {
	switch {
	case meta.Origin != kmstypes.OriginTypeAwsKms:
		return fmt.Sprintf("its material does not come from KMS (its origin is %s)", meta.Origin)
	case aws.ToBool(meta.MultiRegion):
		return "it can have replicas in other regions"
	}

	return ""
}

// FindGrantee returns to whom a grant gives the use of a key, if isAllowed is false for that principal; empty if to nobody. The
// error is KMS's.
func FindGrantee(
	ctx context.Context,
	api kms.ListGrantsAPIClient,
	id string,
	isAllowed func(principal string) bool,
) (string, error) {
	pages := kms.NewListGrantsPaginator(api, &kms.ListGrantsInput{KeyId: &id})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return "", err
		}

		for _, g := range page.Grants {
			if principal := aws.ToString(g.GranteePrincipal); !isAllowed(principal) {
				return principal, nil
			}
		}
	}

	return "", nil
}
