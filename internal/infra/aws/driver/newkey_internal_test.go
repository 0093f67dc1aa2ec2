// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"cmp"
	"context"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	kmstypes "github.com/aws/aws-sdk-go-v2/service/kms/types"
	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// oneKey is a KMS with one key that has no alias and no tags.
type oneKey struct {
	keyAPI
	description, policy string
	origin              kmstypes.OriginType // empty: that of KMS
	grantee             string              // empty: there is no grant
	isMultiRegion       bool
}

func (k oneKey) ListGrants(context.Context, *kms.ListGrantsInput, ...func(*kms.Options)) (*kms.ListGrantsOutput, error) {
	if k.grantee == "" {
		return &kms.ListGrantsOutput{}, nil
	}
	return &kms.ListGrantsOutput{Grants: []kmstypes.GrantListEntry{{GranteePrincipal: &k.grantee}}}, nil
}

func (k oneKey) ListAliases(context.Context, *kms.ListAliasesInput, ...func(*kms.Options)) (*kms.ListAliasesOutput, error) {
	return &kms.ListAliasesOutput{}, nil
}

func (k oneKey) ListKeys(context.Context, *kms.ListKeysInput, ...func(*kms.Options)) (*kms.ListKeysOutput, error) {
	return &kms.ListKeysOutput{Keys: []kmstypes.KeyListEntry{{KeyId: aws.String("k")}}}, nil
}

func (k oneKey) ListResourceTags(context.Context, *kms.ListResourceTagsInput, ...func(*kms.Options)) (*kms.ListResourceTagsOutput, error) {
	return &kms.ListResourceTagsOutput{}, nil
}

func (k oneKey) DescribeKey(_ context.Context, in *kms.DescribeKeyInput, _ ...func(*kms.Options)) (*kms.DescribeKeyOutput, error) {
	if *in.KeyId != "k" {
		return nil, &smithy.GenericAPIError{Code: "NotFoundException"}
	}
	return &kms.DescribeKeyOutput{KeyMetadata: &kmstypes.KeyMetadata{
		KeyId: in.KeyId, AWSAccountId: aws.String("123456789012"), Arn: aws.String("arn"), Description: &k.description, KeyState: kmstypes.KeyStateEnabled, Enabled: true,
		Origin: cmp.Or(k.origin, kmstypes.OriginTypeAwsKms), MultiRegion: &k.isMultiRegion,
	}}, nil
}

func (k oneKey) GetKeyRotationStatus(context.Context, *kms.GetKeyRotationStatusInput, ...func(*kms.Options)) (*kms.GetKeyRotationStatusOutput, error) {
	return &kms.GetKeyRotationStatusOutput{}, nil
}

func (k oneKey) GetKeyPolicy(context.Context, *kms.GetKeyPolicyInput, ...func(*kms.Options)) (*kms.GetKeyPolicyOutput, error) {
	return &kms.GetKeyPolicyOutput{Policy: &k.policy}, nil
}

// TestUntaggedKeyIsFound: the key of an apply that was killed before it could tag it is used by the next one. Keys of
// others are not: they lack the description or the statement of a new key.
func TestUntaggedKeyIsFound(t *testing.T) {
	const policy = `{"Statement":[{"Action":["kms:*"],"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::123456789012:root"},"Resource":["*"],"Sid":"Account"}],"Version":"2012-10-17"}`
	initial, ok := addNewKeyStatement(policy)
	if !ok || initial == policy {
		t.Fatal("a new key gets no statement of its own")
	}
	want := awskind.KMSKey{Description: awskind.KeyDescription("demo"), Policy: policy}
	for name, c := range map[string]struct {
		key  oneKey
		want bool
	}{
		"of this cluster":    {oneKey{description: awskind.KeyDescription("demo"), policy: initial}, true},
		"of another cluster": {oneKey{description: awskind.KeyDescription("demo-2"), policy: initial}, false},
		"with imported material": {oneKey{
			description: awskind.KeyDescription("demo"), policy: initial, origin: kmstypes.OriginTypeExternal,
		}, false},
		"with replicas": {oneKey{description: awskind.KeyDescription("demo"), policy: initial, isMultiRegion: true}, false},
		"with a grant":  {oneKey{description: awskind.KeyDescription("demo"), policy: initial, grantee: "arn:aws:iam::123456789012:user/x"}, false},
		"with a grant for EC2": {oneKey{
			description: awskind.KeyDescription("demo"), policy: initial, grantee: "arn:aws:sts::123456789012:assumed-role/aws:ec2-infrastructure/i-1",
		}, true},
		"with more in its policy": {oneKey{
			description: awskind.KeyDescription("demo"), policy: strings.Replace(initial, `"Statement":[`, `"Statement":[`+
				`{"Action":"kms:*","Effect":"Allow","Principal":{"AWS":"arn:aws:iam::123456789012:user/x"},"Resource":"*"},`, 1),
		}, false},
		"without the statement": {oneKey{description: awskind.KeyDescription("demo"), policy: policy}, false},
	} {
		found, err := findUntaggedKey(t.Context(), c.key, want, &untaggedKeys{})
		if err != nil || (found != nil) != c.want {
			t.Errorf("%s: found %v, %v", name, found, err)
		}
	}
	if back, had := removeNewKeyStatement(initial); !had || back != graph.CanonicalJSON(policy) {
		t.Errorf("without the statement of a new key the policy is %s", back)
	}
}

// TestUntaggedKeysAreListedOnce: the first attempt to create a key uses what the last Read listed; the second one
// finds the key of a first attempt whose answer was lost.
func TestUntaggedKeysAreListedOnce(t *testing.T) {
	const policy = `{"Statement":[{"Action":["kms:*"],"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::123456789012:root"},"Resource":["*"],"Sid":"Account"}],"Version":"2012-10-17"}`
	initial, _ := addNewKeyStatement(policy)
	lost := oneKey{description: awskind.KeyDescription("demo"), policy: initial}
	want := awskind.KMSKey{Description: lost.description, Policy: policy}
	var known untaggedKeys
	known.record(nil) // the Read was before the attempt

	first, err := findUntaggedKey(t.Context(), lost, want, &known)
	if err != nil || first != nil {
		t.Errorf("the first attempt does not use what the Read found: %v, %v", first, err)
	}

	second, err := findUntaggedKey(t.Context(), lost, want, &known)
	if err != nil || second == nil {
		t.Errorf("the second attempt does not find the key of the first: %v, %v", second, err)
	}

	scope := Scope{Cluster: "demo", KeyAlias: "alias/missing"}
	if _, err := readKeys(t.Context(), lost, scope, &known); err != nil {
		t.Fatal(err)
	}

	third, err := findUntaggedKey(t.Context(), oneKeyWithoutList{lost}, want, &known)
	if err != nil || third == nil {
		t.Errorf("the key that the Read found is not used: %v, %v", third, err)
	}
}

// oneKeyWithoutList is a key in an account whose keys cannot be listed.
type oneKeyWithoutList struct{ oneKey }

func (oneKeyWithoutList) ListKeys(context.Context, *kms.ListKeysInput, ...func(*kms.Options)) (*kms.ListKeysOutput, error) {
	return nil, &smithy.GenericAPIError{Code: "AccessDeniedException"}
}
