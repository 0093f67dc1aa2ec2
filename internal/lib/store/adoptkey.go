// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	kmstypes "github.com/aws/aws-sdk-go-v2/service/kms/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/kmskey"
	"github.com/slipway-k8s/slipway/internal/lib/partition"
)

// adoptKey takes the key that the alias of the bucket names, which an earlier run, or the
// initialization of another store in the bucket, has created. Whoever may create keys and the alias
// can have planted it, so it must be like a new key of this program in all that decides who can use
// it; otherwise the error says in what it differs. It gets its tag if it has none.
func (m s3Initializer) adoptKey(ctx context.Context, meta *kmstypes.KeyMetadata) error {
	m.key.isNew = meta.CreationDate != nil && time.Since(*meta.CreationDate) < newKeyAge
	var difference string
	err := m.key.wait(ctx, "read who may use the key", func() (err error) {
		difference, err = m.compareNewKey(ctx, meta)
		return err
	})
	if err != nil {
		return fmt.Errorf("check the existing key %s: %w", aws.ToString(meta.Arn), err)
	}

	if difference != "" {
		return diag.WithHint(
			fmt.Errorf("%s names the existing key %s, but %s", keyAlias(m.bucket), aws.ToString(meta.Arn), difference),
			"others may be able to use this key, and it is not used for the state store: find out who created it and delete "+
				"its alias ("+keyAlias(m.bucket)+"), or choose another bucket",
		)
	}

	m.key.found = "KMS key " + keyAlias(m.bucket) + ": " + aws.ToString(meta.Arn)
	if meta.CreationDate != nil {
		m.key.found += ", created at " + meta.CreationDate.UTC().Format(time.RFC3339)
	}

	return nil
}

// compareNewKey returns in what a key differs from a new one of this program; empty if in nothing.
func (m s3Initializer) compareNewKey(ctx context.Context, meta *kmstypes.KeyMetadata) (string, error) {
	if difference := compareKeyMetadata(meta); difference != "" {
		return difference, nil
	}

	isNewPolicy, err := m.hasNewKeyPolicy(ctx, meta)
	if err != nil {
		return "", err
	}

	if !isNewPolicy {
		return "its key policy is not that of a new key", nil
	}

	isAllowed := func(string) bool { return false } // a new key has no grants
	grantee, err := kmskey.FindGrantee(ctx, m.keys, aws.ToString(meta.Arn), isAllowed)
	if err != nil {
		return "", err
	}

	if grantee != "" {
		return fmt.Sprintf("it has a grant for %q", grantee), nil
	}

	return m.compareTags(ctx, meta)
}

// compareKeyMetadata returns in what the metadata of a key differ from those of a new one; empty if
// in nothing.
func compareKeyMetadata(meta *kmstypes.KeyMetadata) string {
	if meta.KeyState != kmstypes.KeyStateEnabled {
		return fmt.Sprintf("its state is %s", meta.KeyState)
	}

	return kmskey.FindOtherUse(meta)
}

// compareTags returns in what the tags of a key differ from that of the store; empty if in nothing.
// A key without tags gets it.
func (m s3Initializer) compareTags(ctx context.Context, meta *kmstypes.KeyMetadata) (string, error) {
	hasTag := false
	pages := kms.NewListResourceTagsPaginator(m.keys, &kms.ListResourceTagsInput{KeyId: meta.Arn})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return "", err
		}

		for _, t := range page.Tags {
			if aws.ToString(t.TagKey) != stateKeyTag || aws.ToString(t.TagValue) != m.bucket {
				return fmt.Sprintf("it has the tag %q: %q", aws.ToString(t.TagKey), aws.ToString(t.TagValue)), nil
			}

			hasTag = true
		}
	}

	if hasTag {
		return "", nil
	}

	return "", m.tagKey(ctx)
}

// hasNewKeyPolicy reports whether the policy of a key is that with which KMS or this program
// creates one, whoever ran it.
func (m s3Initializer) hasNewKeyPolicy(ctx context.Context, meta *kmstypes.KeyMetadata) (bool, error) {
	caller, err := m.caller.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return false, err
	}

	found, err := m.keys.GetKeyPolicy(ctx, &kms.GetKeyPolicyInput{KeyId: meta.Arn, PolicyName: aws.String("default")})
	if err != nil {
		return false, err
	}

	return isNewKeyPolicy(
		aws.ToString(found.Policy),
		partition.OfRegion(m.region).Name,
		aws.ToString(caller.Account),
	), nil
}

// userIDPattern matches the values of aws:userid. A policy variable, which would match others, has
// other characters.
var userIDPattern = regexp.MustCompile(`^[A-Za-z0-9:+=,.@_-]+$`)

// isNewKeyPolicy reports whether a key policy is KMS's default, or that of [newStateKeyPolicy] for
// any creator.
func isNewKeyPolicy(document, partitionName, account string) bool {
	var p struct {
		Statement []struct {
			Condition struct {
				StringEquals map[string]any
			}
		}
	}
	if json.Unmarshal([]byte(document), &p) != nil || len(p.Statement) == 0 {
		return false
	}

	if len(p.Statement) == 1 {
		return isSameDocument(document, `{"Version":"2012-10-17","Id":"key-default-1","Statement":[{`+
			`"Sid":"Enable IAM User Permissions","Effect":"Allow",`+
			`"Principal":{"AWS":"arn:`+partitionName+`:iam::`+account+`:root"},"Action":"kms:*","Resource":"*"}]}`)
	}

	userID, ok := p.Statement[1].Condition.StringEquals["aws:userid"].(string)
	if !ok || !userIDPattern.MatchString(userID) {
		return false
	}

	want, err := newStateKeyPolicy(partitionName, account, userID)

	return err == nil && isSameDocument(document, want)
}

// isSameDocument reports whether two JSON documents are equal but for white space and the order of
// members. Their lengths are compared too, since a decoder drops all but the last member of a name,
// and KMS may not.
func isSameDocument(a, b string) bool {
	var compactA, compactB bytes.Buffer
	if json.Compact(&compactA, []byte(a)) != nil || json.Compact(&compactB, []byte(b)) != nil {
		return false
	}

	return compactA.Len() == compactB.Len() && sameJSON(a, b)
}
