// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"slices"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	kmstypes "github.com/aws/aws-sdk-go-v2/service/kms/types"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// TestPlantedKey: whoever may create keys in the account, such as the operator of another cluster, creates one that looks like
// the one that a killed apply leaves, and whose policy gives them everything. The next apply must not take it for the key of
// the cluster. Seen to succeed while only the description and the statement of a new key were compared.
func TestPlantedKey(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	root := kms.NewFromConfig(l.config(caller{}))
	own, err := root.DescribeKey(t.Context(), &kms.DescribeKeyInput{KeyId: sdk.String("alias/slipway/demo")})
	l.check(err)
	genuine, err := root.GetKeyPolicy(t.Context(), &kms.GetKeyPolicyInput{KeyId: own.KeyMetadata.KeyId, PolicyName: sdk.String("default")})
	l.check(err)
	l.must(caller{}, 0, "create", "cluster", "demo-2", "--zones", "us-east-1a", "--yes")
	attacker := l.user("attacker", l.policies("demo-2"))

	const statements = `"Statement":[`
	policy := strings.Replace(*genuine.Policy, statements, statements+`{"Effect":"Allow","Action":"kms:*","Resource":"*",`+
		`"Principal":{"AWS":"arn:aws:iam::`+regiontest.AccountID+`:user/attacker"}},`, 1)
	if policy == *genuine.Policy {
		t.Fatalf("the key of the cluster has another policy: %s", policy)
	}

	l.must(caller{}, 0, "delete", "cluster", "demo", "--yes", "--destroy-data")
	planted, err := kms.NewFromConfig(l.config(attacker)).CreateKey(t.Context(), &kms.CreateKeyInput{
		Description: own.KeyMetadata.Description, Policy: &policy,
	})
	l.check(err)

	l.createCluster()
	now, err := root.DescribeKey(t.Context(), &kms.DescribeKeyInput{KeyId: sdk.String("alias/slipway/demo")})
	l.check(err)
	if *now.KeyMetadata.KeyId == *planted.KeyMetadata.KeyId {
		t.Error("the cluster uses the key of an attacker")
	}
}

// TestPlantedTaggedKey: the attacker also gives the key the tags of a cluster whose key is gone, and has a grant for it when
// its policy is that of the cluster's key. The next apply refuses the key and names it. Seen to take it, with the grant.
func TestPlantedTaggedKey(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	root := kms.NewFromConfig(l.config(caller{}))
	own, err := root.DescribeKey(t.Context(), &kms.DescribeKeyInput{KeyId: sdk.String("alias/slipway/demo")})
	l.check(err)
	tags, err := root.ListResourceTags(t.Context(), &kms.ListResourceTagsInput{KeyId: own.KeyMetadata.KeyId})
	l.check(err)
	genuine, err := root.GetKeyPolicy(t.Context(), &kms.GetKeyPolicyInput{KeyId: own.KeyMetadata.KeyId, PolicyName: sdk.String("default")})
	l.check(err)
	l.must(caller{}, 0, "delete", "cluster", "demo", "--yes", "--destroy-data")

	attacker := l.user("attacker", l.policies("demo", "--state-init"))
	api := kms.NewFromConfig(l.config(attacker))
	planted, err := api.CreateKey(t.Context(), &kms.CreateKeyInput{
		Description: own.KeyMetadata.Description,
		Policy:      sdk.String(strings.ReplaceAll(keyShared, ":user/starter", ":user/attacker")),
	})
	l.check(err)
	key := planted.KeyMetadata.KeyId
	_, err = api.CreateGrant(t.Context(), &kms.CreateGrantInput{
		KeyId: key, GranteePrincipal: sdk.String(strings.ReplaceAll(starterARN, "starter", "attacker")),
		Operations: []kmstypes.GrantOperation{kmstypes.GrantOperationDecrypt},
	})
	l.check(err)
	withoutID := slices.DeleteFunc(tags.Tags, func(t kmstypes.Tag) bool { return *t.TagKey == "slipway.dev/id" })
	_, err = api.TagResource(t.Context(), &kms.TagResourceInput{KeyId: key, Tags: withoutID})
	l.check(err)
	_, err = api.PutKeyPolicy(t.Context(), &kms.PutKeyPolicyInput{
		KeyId: key, Policy: genuine.Policy, BypassPolicyLockoutSafetyCheck: true,
	})
	l.check(err)

	l.must(caller{}, 0, "create", "cluster", "demo", "--zones", "us-east-1a,us-east-1b,us-east-1c", "--yes")
	_, text, code := l.slipway(caller{}, "apply", "demo", "--yes", "--take-over", "unmarked")
	if code == 0 || !strings.Contains(text, *key) || !strings.Contains(text, "has a grant for") {
		t.Errorf("exit %d: %s", code, text)
	}
}
