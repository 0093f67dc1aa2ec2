// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	kmstypes "github.com/aws/aws-sdk-go-v2/service/kms/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/kmskey"
)

// newKeySid is the statement with which a key is created. The permission to create a key with tags is also the
// permission to tag every key of the account: KMS asks for kms:TagResource on all keys. So a key is created without
// tags, and its own policy allows the first ones, until the key has the tag of its cluster.
const newKeySid = "SlipwayNewKey"

// newKeyStatement returns that statement for the keys of an account. KMS sees new tags within five minutes; until
// then the statement also allows what else is done with a new key.
func newKeyStatement(account string) map[string]any {
	return map[string]any{
		"Sid":       newKeySid,
		"Effect":    "Allow",
		"Principal": map[string]any{"AWS": "*"},
		"Action":    []any{"kms:CreateAlias", "kms:EnableKeyRotation", "kms:TagResource"},
		"Resource":  "*",
		"Condition": map[string]any{
			"StringEquals": map[string]any{"kms:CallerAccount": account},
			"Null":         map[string]any{"aws:ResourceTag/" + awskind.TagCluster: "true"},
		},
	}
}

// keyPolicyDocument is the policy of a key, whose other elements are kept as they are.
type keyPolicyDocument struct {
	Version   string
	ID        string `json:"Id,omitempty"`
	Statement []map[string]any
}

// accountOfPolicy returns the account whose root a key policy names; empty if there is none.
func accountOfPolicy(policy graph.JSON) string {
	found := regexp.MustCompile(`:iam::(\d{12}):root"`).FindStringSubmatch(string(policy))
	if found == nil {
		return ""
	}

	return found[1]
}

// addNewKeyStatement returns the policy with which a key is created. ok is false if the policy does not tell the
// account; the key then has to be created with its tags.
func addNewKeyStatement(policy graph.JSON) (initial string, ok bool) {
	var p keyPolicyDocument
	account := accountOfPolicy(policy)
	if account == "" || json.Unmarshal([]byte(policy), &p) != nil {
		return string(policy), false
	}

	p.Statement = append(p.Statement, newKeyStatement(account))
	text, err := json.Marshal(p)

	return string(text), err == nil
}

// removeNewKeyStatement returns the policy of a key without the statement of its creation, and whether it had it.
// The statement has no effect once the key has the tag of its cluster, so it is no difference from the desired policy.
func removeNewKeyStatement(text string) (graph.JSON, bool) {
	policy := graph.CanonicalJSON(text)
	var p keyPolicyDocument
	account := accountOfPolicy(policy)
	if account == "" || json.Unmarshal([]byte(text), &p) != nil {
		return policy, false
	}

	want, err := json.Marshal(newKeyStatement(account))
	if err != nil {
		return policy, false
	}

	kept := slices.DeleteFunc(slices.Clone(p.Statement), func(s map[string]any) bool {
		have, err := json.Marshal(s)
		return err == nil && graph.CanonicalJSON(string(have)) == graph.CanonicalJSON(string(want))
	})
	if len(kept) == len(p.Statement) {
		return policy, false
	}

	p.Statement = kept
	out, err := json.Marshal(p)
	if err != nil {
		return policy, false
	}

	return graph.CanonicalJSON(string(out)), true
}

// untaggedKeys are the keys without alias and tags that the last [Cloud.Read] found. Safe for concurrent use.
type untaggedKeys struct {
	mu   sync.Mutex
	read bool
	ids  []string
}

// record keeps what a Read found.
func (u *untaggedKeys) record(ids []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ids = ids
	u.read = true
}

// take returns the ids for the first attempt to create a key after a Read. A later attempt has to list them again:
// the answer of the first one may have been lost, and there is a key that the Read did not see.
func (u *untaggedKeys) take() (ids []string, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	ids = u.ids
	ok = u.read
	u.ids = nil
	u.read = false

	return ids, ok
}

// createUntaggedKey creates a key without tags, with a policy that allows the first ones. A key that a killed run has
// created and could not tag is used instead.
func createUntaggedKey(
	ctx context.Context,
	api keyAPI,
	want awskind.KMSKey,
	known *untaggedKeys,
) (*kmstypes.KeyMetadata, error) {
	policy, allowsTags := addNewKeyStatement(want.Policy)
	if !allowsTags {
		return nil, errors.New("create key: its policy names no account")
	}

	found, err := findUntaggedKey(ctx, api, want, known)
	if err != nil || found != nil {
		return found, err
	}

	out, err := api.CreateKey(ctx, &kms.CreateKeyInput{
		Description: &want.Description, Policy: &policy, BypassPolicyLockoutSafetyCheck: want.BypassLockoutCheck,
	})
	if err != nil {
		return nil, transport.Wrap(err, "create key")
	}

	return out.KeyMetadata, nil
}

// findUntaggedKey returns the key without alias and tags that was created like the wanted one: with its description, its
// policy and the statement of a new key. It returns nil if there is none. Whoever may create keys can create one with that
// description, whose policy or grant lets them use it, so the whole policy is compared, and a key with a grant is not taken.
func findUntaggedKey(
	ctx context.Context,
	api keyAPI,
	want awskind.KMSKey,
	known *untaggedKeys,
) (*kmstypes.KeyMetadata, error) {
	ids, ok := known.take()
	if !ok {
		var err error
		if _, ids, err = listUnaliasedKeyIDs(ctx, api, ""); err != nil {
			return nil, err
		}
	}

	for _, id := range ids {
		meta, policy, err := readUntaggedKey(ctx, api, id)
		if err != nil && plan.ErrorClassOf(err) != plan.AccessDenied {
			return nil, err
		}

		isLike := meta != nil && aws.ToString(meta.Description) == want.Description &&
			policy == graph.CanonicalJSON(string(want.Policy))
		if isLike {
			return meta, nil
		}
	}

	return nil, nil
}

// readUntaggedKey returns a key if it has no tags and the statement of a new key, else nil; and its policy without that
// statement.
func readUntaggedKey(ctx context.Context, api keyAPI, id string) (*kmstypes.KeyMetadata, graph.JSON, error) {
	tags, err := readKeyTags(ctx, api, id)
	if err != nil || len(tags) > 0 {
		return nil, "", err
	}

	key, err := api.DescribeKey(ctx, &kms.DescribeKeyInput{KeyId: &id})
	if err != nil {
		return nil, "", transport.Wrap(err, "read key %s", id)
	}

	if key.KeyMetadata.KeyState != kmstypes.KeyStateEnabled || kmskey.FindOtherUse(key.KeyMetadata) != "" {
		return nil, "", nil
	}

	in := &kms.GetKeyPolicyInput{KeyId: &id, PolicyName: aws.String(keyPolicyName)}
	found, err := api.GetKeyPolicy(ctx, in)
	if err != nil {
		return nil, "", transport.Wrap(err, "read the policy of key %s", id)
	}

	policy, isNew := removeNewKeyStatement(aws.ToString(found.Policy))
	if !isNew {
		return nil, "", nil
	}

	grantee, err := findGrantee(ctx, api, key.KeyMetadata)
	if err != nil || grantee != "" {
		return nil, "", err
	}

	return key.KeyMetadata, policy, nil
}
