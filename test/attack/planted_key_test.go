// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"slices"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
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
	l := newPlantedKeyLab(t)
	l.plant(strings.ReplaceAll(starterARN, "starter", "attacker"))
	l.mustRefuse()
}

// TestPlantedKeyWithAGrantLikeOfEC2: the grant is for a role of the attacker, whose path makes its ARN contain what those of
// the principals contain for which EC2 gives itself grants. IAM allows nearly every character in a path. Seen to succeed.
func TestPlantedKeyWithAGrantLikeOfEC2(t *testing.T) {
	l := newPlantedKeyLab(t)
	made, err := iam.NewFromConfig(l.config(caller{})).CreateRole(t.Context(), &iam.CreateRoleInput{
		RoleName:                 sdk.String("any"),
		Path:                     sdk.String("/x:assumed-role/aws:ec2-infrastructure/"),
		AssumeRolePolicyDocument: sdk.String(strings.ReplaceAll(selfmade, ":user/operator", ":user/attacker")),
	})
	l.check(err)
	l.plant(*made.Role.Arn)
	l.mustRefuse()
}

// plantedKeyLab is a lab in which an attacker plants a key for a cluster whose key is gone.
type plantedKeyLab struct {
	*lab
	attacker caller
	tags     []kmstypes.Tag
	policy   *string // of the cluster's key
	text     *string // the description of the cluster's key
	planted  string  // the id of the attacker's key
}

// newPlantedKeyLab creates a cluster, remembers what its key looks like, and deletes it.
func newPlantedKeyLab(t *testing.T) *plantedKeyLab {
	t.Helper()
	l := &plantedKeyLab{lab: newLab(t)}
	l.createCluster()
	root := kms.NewFromConfig(l.config(caller{}))
	own, err := root.DescribeKey(t.Context(), &kms.DescribeKeyInput{KeyId: sdk.String("alias/slipway/demo")})
	l.check(err)
	l.text = own.KeyMetadata.Description
	tags, err := root.ListResourceTags(t.Context(), &kms.ListResourceTagsInput{KeyId: own.KeyMetadata.KeyId})
	l.check(err)
	l.tags = slices.DeleteFunc(tags.Tags, func(t kmstypes.Tag) bool { return *t.TagKey == "slipway.dev/id" })
	genuine, err := root.GetKeyPolicy(t.Context(), &kms.GetKeyPolicyInput{KeyId: own.KeyMetadata.KeyId, PolicyName: sdk.String("default")})
	l.check(err)
	l.policy = genuine.Policy
	l.must(caller{}, 0, "delete", "cluster", "demo", "--yes", "--destroy-data")
	l.attacker = l.user("attacker", l.policies("demo", "--state-init"))

	return l
}

// plant creates a key with the tags and the policy of the cluster's key, as the attacker, and a grant for a principal.
func (l *plantedKeyLab) plant(grantee string) {
	l.Helper()
	api := kms.NewFromConfig(l.config(l.attacker))
	planted, err := api.CreateKey(l.Context(), &kms.CreateKeyInput{
		Description: l.text,
		Policy:      sdk.String(strings.ReplaceAll(keyShared, ":user/starter", ":user/attacker")),
	})
	l.check(err)
	key := planted.KeyMetadata.KeyId
	l.planted = *key
	_, err = api.CreateGrant(l.Context(), &kms.CreateGrantInput{
		KeyId: key, GranteePrincipal: &grantee,
		Operations: []kmstypes.GrantOperation{kmstypes.GrantOperationDecrypt},
	})
	l.check(err)
	_, err = api.TagResource(l.Context(), &kms.TagResourceInput{KeyId: key, Tags: l.tags})
	l.check(err)
	_, err = api.PutKeyPolicy(l.Context(), &kms.PutKeyPolicyInput{
		KeyId: key, Policy: l.policy, BypassPolicyLockoutSafetyCheck: true,
	})
	l.check(err)
}

// mustRefuse checks that an apply does not take the attacker's key.
func (l *plantedKeyLab) mustRefuse() {
	l.Helper()
	l.must(caller{}, 0, "create", "cluster", "demo", "--zones", "us-east-1a,us-east-1b,us-east-1c", "--yes")
	_, text, code := l.slipway(caller{}, "apply", "demo", "--yes", "--take-over", "unmarked")
	if code == 0 || !strings.Contains(text, l.planted) || !strings.Contains(text, "has a grant for") {
		l.Errorf("exit %d: %s", code, text)
	}
}
