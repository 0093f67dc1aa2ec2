// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	kmstypes "github.com/aws/aws-sdk-go-v2/service/kms/types"
	"github.com/aws/smithy-go/middleware"

	"github.com/slipway-k8s/slipway/internal/lib/store"
)

const (
	stateTag   = "slipway.dev/state"
	stateAlias = "alias/slipway-" + bucket
)

// TestStateInitCannotTakeKeys: whoever has the policy for 'slipway state init' gives a key of others, whose policy leaves
// access to IAM, the tag and the alias of the store's key, and decrypts with it. Seen to succeed while the key of a store was
// created with its tag, for which KMS asks for the permission to tag all keys.
func TestStateInitCannotTakeKeys(t *testing.T) {
	l := newLabWithoutStore(t)
	starter := l.user("starter", l.policies("demo", "--state-init"))
	root := kms.NewFromConfig(l.config(caller{}))
	payments, err := root.CreateKey(t.Context(), &kms.CreateKeyInput{})
	l.check(err)
	key := payments.KeyMetadata.KeyId
	sealed, err := root.Encrypt(t.Context(), &kms.EncryptInput{KeyId: key, Plaintext: []byte("of others")})
	l.check(err)

	api := kms.NewFromConfig(l.config(starter))
	_, err = api.TagResource(t.Context(), &kms.TagResourceInput{KeyId: key, Tags: []kmstypes.Tag{{
		TagKey: sdk.String(stateTag), TagValue: sdk.String(bucket),
	}}})
	l.denied("tag a key of others", err)
	_, err = api.CreateAlias(t.Context(), &kms.CreateAliasInput{AliasName: sdk.String(stateAlias), TargetKeyId: key})
	l.denied("give a key of others the alias of the store's key", err)
	_, err = api.Decrypt(t.Context(), &kms.DecryptInput{CiphertextBlob: sealed.CiphertextBlob})
	l.denied("decrypt with a key of others", err)

	// A key that was created for the store is not taken over either: it belongs to the store of another bucket.
	other, err := root.CreateKey(t.Context(), &kms.CreateKeyInput{Tags: []kmstypes.Tag{{
		TagKey: sdk.String(stateTag), TagValue: sdk.String("another-bucket"),
	}}})
	l.check(err)
	_, err = api.CreateAlias(t.Context(), &kms.CreateAliasInput{
		AliasName: sdk.String(stateAlias), TargetKeyId: other.KeyMetadata.KeyId,
	})
	l.denied("give the key of another store the alias", err)

	l.must(starter, 0, "state", "init", "--yes")
}

// killAfter returns a configuration of AWS clients whose process ends after a call of KMS: AWS has answered it, and no later
// call is sent.
func killAfter(cfg sdk.Config, operation string, kill context.CancelFunc) sdk.Config {
	end := func(
		ctx context.Context,
		in middleware.InitializeInput,
		next middleware.InitializeHandler,
	) (middleware.InitializeOutput, middleware.Metadata, error) {
		out, data, err := next.HandleInitialize(ctx, in)
		if awsmiddleware.GetServiceID(ctx) == "KMS" && awsmiddleware.GetOperationName(ctx) == operation {
			kill()

			return out, data, context.Canceled
		}

		return out, data, err
	}

	cfg.APIOptions = append(slices.Clone(cfg.APIOptions), func(stack *middleware.Stack) error {
		return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("Kill", end), middleware.After)
	})

	return cfg
}

// TestKilledStateInit: 'slipway state init' is killed after each call of KMS, and continues when it is run again with its
// policy alone. Somebody else in the account can do nothing with the key that it leaves. Never open: a key had its tag from
// the beginning, and now its policy names who may give it one.
func TestKilledStateInit(t *testing.T) {
	for _, operation := range []string{"CreateKey", "TagResource", "CreateAlias", "EnableKeyRotation"} {
		t.Run(operation, func(t *testing.T) {
			l := newLabWithoutStore(t)
			starter := l.user("starter", l.policies("demo", "--state-init"))
			stranger := l.user("stranger", nil)
			l.killStateInit(starter, operation)

			root := kms.NewFromConfig(l.config(caller{}))
			left, err := root.ListKeys(t.Context(), &kms.ListKeysInput{})
			l.check(err)
			if len(left.Keys) != 1 {
				t.Fatalf("the killed run left %d keys", len(left.Keys))
			}

			l.strangerCannotUse(stranger, left.Keys[0].KeyId)
			l.must(starter, 0, "state", "init", "--yes")
			l.checkStateKey(root)
		})
	}
}

// killStateInit runs the steps of 'slipway state init' until the call of KMS.
func (l *lab) killStateInit(as caller, operation string) {
	l.Helper()
	ctx, kill := context.WithCancel(l.Context())
	defer kill()
	cfg := killAfter(l.config(as), operation, kill)
	steps, err := store.PlanInit(ctx, stateURL, store.Options{
		AWS: func(context.Context) (sdk.Config, error) { return cfg, nil },
	})
	l.check(err)

	err = store.RunInitSteps(ctx, steps, func(store.InitStep) {})
	if err == nil || ctx.Err() == nil {
		l.Fatalf("state init makes no call %s: %v", operation, err)
	}
}

// strangerCannotUse checks what who has no permission can do with the key of a killed run.
func (l *lab) strangerCannotUse(stranger caller, key *string) {
	l.Helper()
	api := kms.NewFromConfig(l.config(stranger))
	for _, name := range []string{stateTag, "slipway.dev/cluster"} {
		_, err := api.TagResource(l.Context(), &kms.TagResourceInput{KeyId: key, Tags: []kmstypes.Tag{{
			TagKey: &name, TagValue: sdk.String(bucket),
		}}})
		l.denied("tag the key of a killed run with "+name, err)
	}

	_, err := api.EnableKeyRotation(l.Context(), &kms.EnableKeyRotationInput{KeyId: key})
	l.denied("change the key of a killed run", err)
	_, err = api.PutKeyPolicy(l.Context(), &kms.PutKeyPolicyInput{
		KeyId: key, PolicyName: sdk.String("default"), Policy: sdk.String(strings.ReplaceAll(anything, `"Resource"`, `"Principal":"*","Resource"`)),
	})
	l.denied("take over the key of a killed run", err)
}

// checkStateKey checks the key that the alias names: it has its tag and is rotated, and its first policy allows nothing to who
// has created it.
func (l *lab) checkStateKey(root *kms.Client) {
	l.Helper()
	found, err := root.DescribeKey(l.Context(), &kms.DescribeKeyInput{KeyId: sdk.String(stateAlias)})
	l.check(err)
	key := found.KeyMetadata.KeyId
	tags, err := root.ListResourceTags(l.Context(), &kms.ListResourceTagsInput{KeyId: key})
	l.check(err)
	if len(tags.Tags) != 1 || *tags.Tags[0].TagKey != stateTag || *tags.Tags[0].TagValue != bucket {
		l.Errorf("the store's key has the tags %v", tags.Tags)
	}

	rotation, err := root.GetKeyRotationStatus(l.Context(), &kms.GetKeyRotationStatusInput{KeyId: key})
	l.check(err)
	if !rotation.KeyRotationEnabled {
		l.Error("the store's key is not rotated")
	}

	text := string(l.readState("slipway-state.json"))
	if !strings.Contains(text, strconv.Quote(*found.KeyMetadata.Arn)) {
		l.Errorf("the settings name another key than %s:\n%s", *found.KeyMetadata.Arn, text)
	}
}
