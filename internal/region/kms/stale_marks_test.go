// SPDX-License-Identifier: Apache-2.0

package kms_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/kms/types"

	"github.com/slipway-k8s/slipway/internal/region/visibility"
)

// TestTagsAndAliasesDecideLater: KMS shows changed tags and aliases before they count for who may use the key.
func TestTagsAndAliasesDecideLater(t *testing.T) {
	t.Parallel()

	tag := []types.Tag{{TagKey: aws.String("cluster"), TagValue: aws.String("demo")}}
	const (
		byTag   = `{"aws:ResourceTag/cluster":"demo"}`
		byAlias = `{"kms:ResourceAliases":"alias/demo"}`
	)

	for name, test := range map[string]struct {
		condition string
		before    func(*testing.T, world, *string) // at once
		change    func(*testing.T, world, *string) // later
		allowed   bool                             // after the change
	}{
		"tagged": {
			condition: byTag,
			change: func(t *testing.T, w world, id *string) {
				t.Helper()
				_, err := w.root.TagResource(t.Context(), &kms.TagResourceInput{KeyId: id, Tags: tag})
				must(t, err)
			},
			allowed: true,
		},
		"untagged": {
			condition: byTag,
			before: func(t *testing.T, w world, id *string) {
				t.Helper()
				_, err := w.root.TagResource(t.Context(), &kms.TagResourceInput{KeyId: id, Tags: tag})
				must(t, err)
			},
			change: func(t *testing.T, w world, id *string) {
				t.Helper()
				_, err := w.root.UntagResource(t.Context(), &kms.UntagResourceInput{KeyId: id, TagKeys: []string{"cluster"}})
				must(t, err)
			},
		},
		"new alias": {
			condition: byAlias,
			change:    createAlias,
			allowed:   true,
		},
		"alias of another key": {
			condition: byAlias,
			before:    createAlias,
			change: func(t *testing.T, w world, _ *string) {
				t.Helper()
				_, err := w.root.UpdateAlias(t.Context(), &kms.UpdateAliasInput{
					AliasName:   aws.String("alias/demo"),
					TargetKeyId: w.otherKey(t),
				})
				must(t, err)
			},
		},
		"deleted alias": {
			condition: byAlias,
			before:    createAlias,
			change: func(t *testing.T, w world, _ *string) {
				t.Helper()
				_, err := w.root.DeleteAlias(t.Context(), &kms.DeleteAliasInput{AliasName: aws.String("alias/demo")})
				must(t, err)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.policy(t, `{"Effect":"Allow","Action":"kms:Encrypt","Resource":"*","Condition":{"StringEquals":`+test.condition+`}}`)
			made, err := w.root.CreateKey(t.Context(), &kms.CreateKeyInput{})
			must(t, err)
			id := made.KeyMetadata.KeyId

			if test.before != nil {
				test.before(t, w, id)
			}

			_, err = w.root.CreateKey(t.Context(), &kms.CreateKeyInput{Description: aws.String("other")})
			must(t, err)
			w.service.SetVisibility(visibility.Delay{Calls: 2})
			test.change(t, w, id)

			for call := range 4 {
				_, err := w.role.Encrypt(t.Context(), &kms.EncryptInput{KeyId: id, Plaintext: []byte("x")})
				if want := test.allowed == (call >= 2); want != (err == nil) {
					t.Errorf("call %d: %v, want allowed = %t", call, err, want)
				}
			}
		})
	}
}

// TestTagsOfNewKeysDecideLater: that holds for the tags of CreateKey, too.
func TestTagsOfNewKeysDecideLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policy(t, `{"Effect":"Allow","Action":"kms:Encrypt","Resource":"*","Condition":{"StringEquals":{"aws:ResourceTag/cluster":"demo"}}}`)
	w.service.SetVisibility(visibility.Delay{Calls: 2})
	made, err := w.root.CreateKey(t.Context(), &kms.CreateKeyInput{
		Tags: []types.Tag{{TagKey: aws.String("cluster"), TagValue: aws.String("demo")}},
	})
	must(t, err)

	var answers []string
	for range 5 {
		_, err := w.role.Encrypt(t.Context(), &kms.EncryptInput{KeyId: made.KeyMetadata.KeyId, Plaintext: []byte("x")})
		answers = append(answers, code(err))
	}

	// Two calls do not see the key, and the next two not its tags.
	for i, want := range []string{"NotFoundException", "NotFoundException", "AccessDeniedException", "AccessDeniedException", code(nil)} {
		if answers[i] != want {
			t.Errorf("%v: call %d, want %s", answers, i, want)
		}
	}
}

func createAlias(t *testing.T, w world, id *string) {
	t.Helper()
	_, err := w.root.CreateAlias(t.Context(), &kms.CreateAliasInput{AliasName: aws.String("alias/demo"), TargetKeyId: id})
	must(t, err)
}

// otherKey returns the id of the key that is described as the other one.
func (w world) otherKey(t *testing.T) *string {
	t.Helper()
	keys, err := w.root.ListKeys(t.Context(), &kms.ListKeysInput{})
	must(t, err)
	for _, k := range keys.Keys {
		out, err := w.root.DescribeKey(t.Context(), &kms.DescribeKeyInput{KeyId: k.KeyId})
		must(t, err)
		if aws.ToString(out.KeyMetadata.Description) == "other" {
			return k.KeyId
		}
	}

	t.Fatal("there is no other key")

	return nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
