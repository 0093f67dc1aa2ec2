// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	kmstypes "github.com/aws/aws-sdk-go-v2/service/kms/types"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

const (
	accountRoot = "arn:aws:iam::" + regiontest.AccountID + ":root"
	starterARN  = "arn:aws:iam::" + regiontest.AccountID + ":user/starter"
	// keyDefault is KMS's default policy, and keyShared one with which the starter can do everything too.
	keyDefault = `{"Version":"2012-10-17","Id":"key-default-1","Statement":[{"Sid":"Enable IAM User Permissions","Effect":"Allow",` +
		`"Principal":{"AWS":"` + accountRoot + `"},"Action":"kms:*","Resource":"*"}]}`
	keyShared = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"kms:*","Resource":"*",` +
		`"Principal":{"AWS":["` + accountRoot + `","` + starterARN + `"]}}]}`
)

// TestPlantedStateKey: whoever has the policy for 'slipway state init' creates a key that they can use, gives it the tag and
// the alias of the store's key, and waits until an administrator runs that command. Seen to succeed: it took the key, and the
// keys of clusters were sealed with it.
func TestPlantedStateKey(t *testing.T) {
	for name, tc := range map[string]struct {
		hide func(l *lab, api *kms.Client, key *string)
		want string
	}{
		"by its policy": {func(*lab, *kms.Client, *string) {}, "key policy is not that of a new key"},
		"by a grant": {func(l *lab, api *kms.Client, key *string) {
			_, err := api.CreateGrant(l.Context(), &kms.CreateGrantInput{
				KeyId: key, GranteePrincipal: sdk.String(starterARN),
				Operations: []kmstypes.GrantOperation{kmstypes.GrantOperationDecrypt},
			})
			l.check(err)
			l.giveDefaultPolicy(api, key)
		}, "a grant for"},
		"by a tag": {func(l *lab, api *kms.Client, key *string) {
			_, err := api.TagResource(l.Context(), &kms.TagResourceInput{KeyId: key, Tags: []kmstypes.Tag{{
				TagKey: sdk.String("team"), TagValue: sdk.String("attackers"),
			}}})
			l.check(err)
			l.giveDefaultPolicy(api, key)
		}, `the tag "team"`},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLabWithoutStore(t)
			starter := l.user("starter", l.policies("demo", "--state-init"))
			key := l.plantStateKey(starter, tc.hide)
			for _, who := range []caller{{}, starter} {
				_, text, code := l.slipway(who, "state", "init", "--yes")
				if code == 0 || !strings.Contains(text, tc.want) || !strings.Contains(text, key) {
					t.Errorf("exit %d: %s", code, text)
				}
			}

			// What the error says to do.
			_, err := kms.NewFromConfig(l.config(caller{})).DeleteAlias(t.Context(), &kms.DeleteAliasInput{AliasName: sdk.String(stateAlias)})
			l.check(err)
			l.must(starter, 0, "state", "init", "--yes")
			if settings := string(l.readState("slipway-state.json")); strings.Contains(settings, key) {
				t.Errorf("the store uses the planted key: %s", settings)
			}
		})
	}
}

// plantStateKey creates a key that the caller can use, with the tag and the alias of the store's key, and returns its id.
func (l *lab) plantStateKey(as caller, hide func(l *lab, api *kms.Client, key *string)) string {
	l.Helper()
	api := kms.NewFromConfig(l.config(as))
	made, err := api.CreateKey(l.Context(), &kms.CreateKeyInput{Policy: sdk.String(keyShared)})
	l.check(err)
	key := made.KeyMetadata.KeyId
	_, err = api.TagResource(l.Context(), &kms.TagResourceInput{KeyId: key, Tags: []kmstypes.Tag{{
		TagKey: sdk.String(stateTag), TagValue: sdk.String(bucket),
	}}})
	l.check(err)
	_, err = api.CreateAlias(l.Context(), &kms.CreateAliasInput{AliasName: sdk.String(stateAlias), TargetKeyId: key})
	l.check(err)
	hide(l, api, key)

	return *key
}

// giveDefaultPolicy gives a key the policy that KMS gives new ones.
func (l *lab) giveDefaultPolicy(api *kms.Client, key *string) {
	l.Helper()
	_, err := api.PutKeyPolicy(l.Context(), &kms.PutKeyPolicyInput{
		KeyId: key, Policy: sdk.String(keyDefault), BypassPolicyLockoutSafetyCheck: true,
	})
	l.check(err)
}

// TestSecondStoreOfABucket: another store in a bucket uses the key of the first, and the command prints that the key was found. No
// attack: what the limits must not break.
func TestSecondStoreOfABucket(t *testing.T) {
	l := newLabWithoutStore(t)
	starter := l.user("starter", l.policies("demo", "--state-init"))
	l.must(starter, 0, "state", "init", "--yes")
	out, errs, code := l.slipway(caller{}, "state", "init", "--state", "s3://"+bucket+"/another", "--yes")
	if text := out + errs; code != 0 || !strings.Contains(text, "found KMS key "+stateAlias+": arn:aws:kms:") {
		t.Errorf("exit %d: %s", code, text)
	}
}
