// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	kmstypes "github.com/aws/aws-sdk-go-v2/service/kms/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/slipway-k8s/slipway/internal/lib/partition"
)

// stateKeyTag is the tag of a store's key. Its value is the name of the bucket.
const stateKeyTag = "slipway.dev/state"

// keyAPI are the calls that create a KMS key.
type keyAPI interface {
	keyRightsAPI
	DescribeKey(context.Context, *kms.DescribeKeyInput, ...func(*kms.Options)) (*kms.DescribeKeyOutput, error)
	CreateKey(context.Context, *kms.CreateKeyInput, ...func(*kms.Options)) (*kms.CreateKeyOutput, error)
	TagResource(context.Context, *kms.TagResourceInput, ...func(*kms.Options)) (*kms.TagResourceOutput, error)
	CreateAlias(context.Context, *kms.CreateAliasInput, ...func(*kms.Options)) (*kms.CreateAliasOutput, error)
	EnableKeyRotation(
		context.Context,
		*kms.EnableKeyRotationInput,
		...func(*kms.Options),
	) (*kms.EnableKeyRotationOutput, error)
}

// callerAPI is the call that tells who calls. It needs no permission.
type callerAPI interface {
	GetCallerIdentity(
		context.Context,
		*sts.GetCallerIdentityInput,
		...func(*sts.Options),
	) (*sts.GetCallerIdentityOutput, error)
}

// keyRightsAPI are the calls that tell who may use a KMS key.
type keyRightsAPI interface {
	kms.ListGrantsAPIClient
	kms.ListResourceTagsAPIClient
	GetKeyPolicy(context.Context, *kms.GetKeyPolicyInput, ...func(*kms.Options)) (*kms.GetKeyPolicyOutput, error)
}

// keyAlias returns the alias of the KMS key of the stores in a bucket. A bucket name can contain
// dots, but an alias cannot.
func keyAlias(bucket string) string { return "alias/slipway-" + strings.ReplaceAll(bucket, ".", "_") }

// ensureKMSKey finds the key by its alias and checks it as [s3Initializer.adoptKey] says, or
// creates the key and the alias. An interrupted run can leave a key without alias, which is not
// used again and costs a dollar a month. After a creation it returns KMS's NotFoundException, so
// that it is repeated until KMS sees the alias, by which the next command names the key.
func (m s3Initializer) ensureKMSKey(ctx context.Context) error {
	alias := keyAlias(m.bucket)
	found, err := m.keys.DescribeKey(ctx, &kms.DescribeKeyInput{KeyId: &alias})
	if errorCode(err) == "NotFoundException" {
		if err := m.createKMSKey(ctx, alias); err != nil {
			return err
		}
	}

	if err != nil {
		return err
	}

	m.settings.KMSKeyARN = aws.ToString(found.KeyMetadata.Arn)
	if m.settings.KMSKeyARN != m.key.created {
		if err := m.adoptKey(ctx, found.KeyMetadata); err != nil {
			return err
		}
	}

	return m.key.wait(ctx, "enable the rotation of the key", func() error {
		_, err := m.keys.EnableKeyRotation(ctx, &kms.EnableKeyRotationInput{KeyId: &m.settings.KMSKeyARN})
		return err
	})
}

// createKMSKey creates the key, once, tags it and creates its alias. An alias that exists is not an
// error: this run has created it, or another one at the same time, whose key is used then.
func (m s3Initializer) createKMSKey(ctx context.Context, alias string) error {
	if m.settings.KMSKeyARN == "" {
		if err := m.createUntaggedKey(ctx); err != nil {
			return err
		}
	}

	if !m.key.isTagged { // once the tag counts, the policy of the key does not allow it again
		if err := m.tagKey(ctx); err != nil {
			return err
		}

		m.key.isTagged = true
	}

	return m.key.wait(ctx, "create "+alias, func() error {
		_, err := m.keys.CreateAlias(ctx, &kms.CreateAliasInput{AliasName: &alias, TargetKeyId: &m.settings.KMSKeyARN})
		if errorCode(err) == "AlreadyExistsException" {
			return nil
		}

		return err
	})
}

// createUntaggedKey creates the key with a policy that lets this caller tag it; see
// [newStateKeyPolicy].
func (m s3Initializer) createUntaggedKey(ctx context.Context) error {
	caller, err := m.caller.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return err
	}

	policy, err := newStateKeyPolicy(
		partition.OfRegion(m.region).Name,
		aws.ToString(caller.Account),
		aws.ToString(caller.UserId),
	)
	if err != nil {
		return err
	}

	created, err := m.keys.CreateKey(ctx, &kms.CreateKeyInput{
		Description: aws.String("Slipway: secrets of the clusters in s3://" + m.bucket),
		Policy:      &policy,
		// KMS would ask for the permission to change the policy later, which the policy for
		// 'slipway state init' does not have. Administrators have it: the policy leaves all to IAM.
		BypassPolicyLockoutSafetyCheck: true,
	})
	if err != nil {
		return err
	}

	m.settings.KMSKeyARN = aws.ToString(created.KeyMetadata.Arn)
	m.key.created = m.settings.KMSKeyARN
	m.key.isNew = true

	return nil
}

// tagKey gives the key the tag of the store.
func (m s3Initializer) tagKey(ctx context.Context) error {
	_, err := m.keys.TagResource(ctx, &kms.TagResourceInput{
		KeyId: &m.settings.KMSKeyARN,
		Tags:  []kmstypes.Tag{{TagKey: aws.String(stateKeyTag), TagValue: &m.bucket}},
	})

	return err
}

// newStateKeyPolicy returns the policy of a store's key as JSON. Like KMS's default policy, it
// leaves access to IAM. A key that is created with a tag needs the permission to tag every key of
// the account, so the key is created without one, and its policy lets its creator tag it. userID is
// the creator's value of aws:userid. KMS may take five minutes to see the tag, by which IAM
// policies allow what follows; until then, the statement allows that to the creator too.
func newStateKeyPolicy(partitionName, account, userID string) (string, error) {
	policy, err := json.Marshal(map[string]any{
		"Version": "2012-10-17",
		"Statement": []map[string]any{
			{
				"Sid":       "Enable IAM User Permissions",
				"Effect":    "Allow",
				"Principal": map[string]string{"AWS": "arn:" + partitionName + ":iam::" + account + ":root"},
				"Action":    "kms:*",
				"Resource":  "*",
			},
			{
				"Sid":       "SlipwayNewKey",
				"Effect":    "Allow",
				"Principal": map[string]string{"AWS": "*"},
				"Action":    []string{"kms:CreateAlias", "kms:EnableKeyRotation", "kms:TagResource"},
				"Resource":  "*",
				"Condition": map[string]any{
					"StringEquals": map[string]string{"kms:CallerAccount": account, "aws:userid": userID},
					"Null":         map[string]string{"aws:ResourceTag/" + stateKeyTag: "true"},
				},
			},
		},
	})
	if err != nil {
		return "", fmt.Errorf("encode the policy of the key: %w", err)
	}

	return string(policy), nil
}
