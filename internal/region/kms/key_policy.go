// SPDX-License-Identifier: Apache-2.0

package kms

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go/service/kms"

	"github.com/slipway-k8s/slipway/internal/region/authz"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// IdentityEvaluator decides by the policies of the caller in ctx. IAM implements it.
type IdentityEvaluator interface {
	EvaluateIdentity(ctx context.Context, c wire.Check) authz.Decision
	BuildRequest(ctx context.Context, c wire.Check) authz.Request
}

const contextKeyPrefix = "kms:EncryptionContext:"

// authorizeKey asks whether the caller may do an action with a key: by the key's policy alone, by the caller's own
// policies where the key's leaves that to the account, or by a grant. A Deny in any of them wins.
func (s *Service) authorizeKey(
	ctx context.Context,
	k *key,
	action string,
	encryption map[string]string,
) error {
	return s.evaluateAccess(
		ctx,
		k,
		wire.Check{Action: "kms:" + action, Context: s.conditionKeys(k, encryption)},
	)
}

func (s *Service) evaluateAccess(ctx context.Context, k *key, c wire.Check) error {
	c.Resource = s.keyARN(k.ID)
	if s.cfg.Identities == nil || wire.CallerFrom(ctx).IsUnrestricted() {
		return wire.Authorize(ctx, c)
	}

	p, err := authz.Parse(authz.ResourcePolicy, k.Policy)
	if err != nil {
		return fmt.Errorf("read the policy of %s: %w", c.Resource, err)
	}

	r := s.cfg.Identities.BuildRequest(ctx, c)
	own := s.cfg.Identities.EvaluateIdentity(ctx, c)
	byKey := authz.Decide([]authz.Policy{p}, r)

	switch {
	case byKey.Denied:
		return wire.AccessDenied(ctx, c, byKey.Reason)
	case own.Denied:
		return wire.AccessDenied(ctx, c, own.Reason)
	case byKey.Allowed, own.Allowed && authz.DelegatesToAccount(p, s.cfg.Account, r), k.hasGrant(r):
		return nil
	}

	return wire.AccessDenied(ctx, c, own.Reason)
}

// conditionKeys are the condition keys that KMS knows of a key and an encryption context.
func (s *Service) conditionKeys(k *key, encryption map[string]string) map[string][]string {
	keys := map[string][]string{"kms:CallerAccount": {s.cfg.Account}}
	for name, value := range k.Tags {
		keys["aws:ResourceTag/"+name] = []string{value}
	}

	for _, name := range slices.Sorted(maps.Keys(encryption)) {
		keys[contextKeyPrefix+name] = []string{encryption[name]}
		keys["kms:EncryptionContextKeys"] = append(keys["kms:EncryptionContextKeys"], name)
	}

	for _, name := range slices.Sorted(maps.Keys(s.st.Aliases)) {
		if s.st.Aliases[name].Key == k.ID {
			keys["kms:ResourceAliases"] = append(keys["kms:ResourceAliases"], name)
		}
	}

	return keys
}

// hasGrant tells whether a grant lets the caller do the action.
func (k *key) hasGrant(r authz.Request) bool {
	return slices.ContainsFunc(k.Grants, func(g grant) bool {
		who := g.Principal == r.Principal.ARN || g.Principal == r.Principal.RoleARN
		what := slices.ContainsFunc(g.Operations, func(op string) bool { return "kms:"+op == r.Action })
		return who && what && g.matchesContext(r.Context)
	})
}

// matchesContext tells whether the encryption context is one that the grant is for.
func (g grant) matchesContext(keys map[string][]string) bool {
	if len(g.Equals) > 0 && len(keys["kms:EncryptionContextKeys"]) != len(g.Equals) {
		return false
	}

	for _, want := range []map[string]string{g.Equals, g.Subset} {
		for name, value := range want {
			if !slices.Equal(keys[contextKeyPrefix+name], []string{value}) {
				return false
			}
		}
	}

	return true
}

// UseKey is how another service of the region uses a key for the caller in ctx. action is one such as GenerateDataKey,
// via the service, such as s3. It says whether the caller may and whether the key is fit for work, and returns the
// key's ARN. name is an id, an ARN or an alias.
func (s *Service) UseKey(
	ctx context.Context,
	action, name, via string,
	encryption map[string]string,
) (string, error) {
	s.store.Lock()
	defer s.store.Unlock()
	k, err := s.findKey(&name)
	if err != nil {
		return "", err
	}

	keys := s.conditionKeys(k, encryption)
	keys["kms:ViaService"] = []string{via + "." + s.cfg.Region + ".amazonaws.com"}
	if err := s.evaluateAccess(ctx, k, wire.Check{Action: "kms:" + action, Context: keys}); err != nil {
		return "", err
	}

	return s.keyARN(k.ID), s.checkUsable(k)
}

// validateKeyPolicy refuses what is no key policy. 32 KiB is KMS's limit.
func validateKeyPolicy(document string) error {
	if len(document) > 32<<10 {
		return wire.Errorf(kms.ErrCodeLimitExceededException, "a key's policy may have 32 KiB at most")
	}

	if _, err := authz.Parse(authz.ResourcePolicy, document); err != nil {
		return wire.Errorf(kms.ErrCodeMalformedPolicyDocumentException, "%v", err)
	}

	return nil
}

// validateAliasName refuses names that no alias may have.
func validateAliasName(name string) error {
	rest, ok := strings.CutPrefix(name, "alias/")
	bad := strings.ContainsFunc(rest, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/_-", r)
	})
	switch {
	case !ok:
		return wire.Errorf(
			"ValidationException",
			"Alias must start with the prefix \"alias/\". Please see http://docs.aws.amazon.com/kms/latest/developerguide/programming-aliases.html",
		)

	case rest == "" || bad || len(name) > 256:
		return wire.Errorf(
			kms.ErrCodeInvalidAliasNameException,
			"Alias contains invalid characters for an alias: %s",
			name,
		)

	case strings.HasPrefix(rest, "aws/"):
		return wire.Errorf("NotAuthorizedException", "aliases that begin with alias/aws/ are AWS's own")
	}

	return nil
}

func (s *Service) updateKeyDescription(
	ctx context.Context,
	in *kms.UpdateKeyDescriptionInput,
) (*kms.UpdateKeyDescriptionOutput, error) {
	return &kms.UpdateKeyDescriptionOutput{}, s.withKey(
		ctx,
		in.KeyId,
		"UpdateKeyDescription",
		func(k *key) error {
			if k.State == kms.KeyStatePendingDeletion {
				return s.checkUsable(k)
			}

			k.Description = *in.Description
			return nil
		},
	)
}
