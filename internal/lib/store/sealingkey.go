// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/service/kms"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// CheckSealingKey asks KMS for the key behind the alias of the store's bucket, and returns an error with a hint if the
// settings of the store name another one. Whoever can write to the bucket can change the settings, but not the alias.
// A sealer of a store in a folder has no such key.
func CheckSealingKey(ctx context.Context, sealer Sealer) error {
	k, ok := sealer.(kmsSealer)
	if !ok || k.alias == "" {
		return nil
	}

	found, err := k.api.DescribeKey(ctx, &kms.DescribeKeyInput{KeyId: &k.alias})
	if err != nil {
		return k.explainMissingAlias(fmt.Errorf("find the key of %s: %w", k.alias, err))
	}

	return k.compareKey(aws.ToString(found.KeyMetadata.Arn))
}

// compareKey returns an error unless found, the key behind the alias, is that of the settings.
func (k kmsSealer) compareKey(found string) error {
	if k.alias == "" || found == k.keyARN {
		return nil
	}

	return diag.WithHint(
		fmt.Errorf("%s of the state store names %s, but %s is %s", SettingsKey, k.keyARN, k.alias, found),
		"find out who changed the state store, and restore the earlier version of "+SettingsKey,
	)
}

// explainMissingAlias adds a hint to an error of KMS if the alias of the bucket does not exist.
func (k kmsSealer) explainMissingAlias(err error) error {
	if k.alias == "" || errorCode(err) != "NotFoundException" {
		return err
	}

	alias := k.alias
	region := ""
	if parsed, parseErr := arn.Parse(k.alias); parseErr == nil {
		alias = parsed.Resource
		region = parsed.Region
	}

	_, id, _ := strings.Cut(k.keyARN, ":key/")

	return diag.WithHint(err, fmt.Sprintf("the key of the state store needs its alias; if %s is the key that encrypts "+
		"the bucket, run: aws kms create-alias --region %s --alias-name %s --target-key-id %s", k.keyARN, region, alias, id))
}
