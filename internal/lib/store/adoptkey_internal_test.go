// SPDX-License-Identifier: Apache-2.0

package store

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	kmstypes "github.com/aws/aws-sdk-go-v2/service/kms/types"
)

// TestPolicyOfANewKey: an existing key is taken only with the policy of a new one, by whoever created it.
func TestPolicyOfANewKey(t *testing.T) {
	const account = "123456789012"
	build := func(userID string) string {
		policy, err := newStateKeyPolicy("aws", account, userID)
		if err != nil {
			t.Fatal(err)
		}

		return policy
	}

	own := build("AROAEXAMPLE:alice@example.com")
	byDefault := `{
		"Id": "key-default-1", "Version": "2012-10-17",
		"Statement": [{
			"Sid": "Enable IAM User Permissions", "Effect": "Allow",
			"Principal": {"AWS": "arn:aws:iam::123456789012:root"}, "Action": "kms:*", "Resource": "*"
		}]
	}`
	for _, policy := range []string{own, byDefault, strings.ReplaceAll(own, ",", ", ")} {
		if !isNewKeyPolicy(policy, "aws", account) {
			t.Errorf("refused: %s", policy)
		}
	}

	const statement = `{"Effect":"Allow","Action":"kms:*","Resource":"*","Principal":{"AWS":"*"}}`
	for name, policy := range map[string]string{
		"nothing":                 "",
		"no statements":           `{"Version":"2012-10-17","Statement":[]}`,
		"of another account":      strings.ReplaceAll(own, account, "210987654321"),
		"one more statement":      strings.Replace(own, `"Statement":[`, `"Statement":[`+statement+`,`, 1),
		"one more at the end":     strings.Replace(own, `}],"Version"`, `},`+statement+`],"Version"`, 1),
		"two lists of statements": strings.Replace(own, `"Statement"`, `"Statement":[`+statement+`],"Statement"`, 1),
		"more actions":            strings.Replace(own, `"kms:CreateAlias"`, `"kms:CreateAlias","kms:Decrypt"`, 1),
		"another principal":       strings.Replace(byDefault, `"arn:aws:iam::123456789012:root"`, `"*"`, 1),
		"everybody's id":          build("${aws:userid}"),
		"no condition":            strings.Replace(own, `"Condition"`, `"Comment"`, 1),
	} {
		if isNewKeyPolicy(policy, "aws", account) {
			t.Errorf("%s: taken: %s", name, policy)
		}
	}
}

// TestMetadataOfANewKey: who made the material of a key, or can have a replica of it, can use it whatever its policy says.
func TestMetadataOfANewKey(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*kmstypes.KeyMetadata)
		want   string
	}{
		"new":          {func(*kmstypes.KeyMetadata) {}, ""},
		"imported":     {func(m *kmstypes.KeyMetadata) { m.Origin = kmstypes.OriginTypeExternal }, "origin is EXTERNAL"},
		"key store":    {func(m *kmstypes.KeyMetadata) { m.Origin = kmstypes.OriginTypeExternalKeyStore }, "origin is EXTERNAL_KEY_STORE"},
		"multi-Region": {func(m *kmstypes.KeyMetadata) { m.MultiRegion = aws.Bool(true) }, "replicas"},
		"disabled":     {func(m *kmstypes.KeyMetadata) { m.KeyState = kmstypes.KeyStateDisabled }, "Disabled"},
	} {
		meta := &kmstypes.KeyMetadata{
			Origin: kmstypes.OriginTypeAwsKms, KeyState: kmstypes.KeyStateEnabled, MultiRegion: aws.Bool(false),
		}
		tc.change(meta)
		got := compareKeyMetadata(meta)
		if !strings.Contains(got, tc.want) || (got == "") != (tc.want == "") {
			t.Errorf("%s: %q", name, got)
		}
	}
}
