// SPDX-License-Identifier: Apache-2.0

package kms

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go/service/kms"

	"github.com/slipway-k8s/slipway/internal/region/authz"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// IdentityEvaluator evaluates the policies of the caller in ctx. IAM implements it. It is called under the
// store's lock, so it must not call this service.
type IdentityEvaluator interface {
	// EvaluateIdentity decides a check by the caller's own policies.
	EvaluateIdentity(ctx context.Context, c wire.AccessCheck) authz.Decision
	// BuildRequest returns a check with the caller and all condition keys, for the evaluation of key
	// policies.
	BuildRequest(ctx context.Context, c wire.AccessCheck) authz.Request
}

const contextKeyPrefix = "kms:EncryptionContext:"

// authorizeKey checks whether the caller may do an action with a key: by the key policy alone, by the
// caller's own policies if the key policy delegates to the account, or by a grant. A Deny in any policy wins.
// The caller holds the store's lock.
func (s *Service) authorizeKey(
	ctx context.Context,
	k *key,
	action string,
	encryption map[string]string,
) error {
	return s.evaluateAccess(ctx, k, wire.AccessCheck{
		Action:  "kms:" + action,
		Context: s.conditionKeys(k, encryption),
	})
}

func (s *Service) evaluateAccess(ctx context.Context, k *key, c wire.AccessCheck) error {
	c.Resource = s.keyARN(k.ID)
	if s.cfg.Identities == nil || wire.CallerFrom(ctx).System {
		return wire.Authorize(ctx, c)
	}

	isAllowed, reason, err := s.evaluateKeyPolicy(ctx, k, k.Policy, c)
	if err == nil && !isAllowed {
		return wire.AccessDenied(ctx, c, reason)
	}

	return err
}

// evaluateKeyPolicy decides a check by a key policy, the policies of the caller and the grants of the key. reason is why it
// is not allowed. The caller holds the store's lock.
func (s *Service) evaluateKeyPolicy(
	ctx context.Context,
	k *key,
	policy string,
	c wire.AccessCheck,
) (isAllowed bool, reason string, err error) {
	p, err := authz.ParsePolicy(authz.ResourcePolicy, policy)
	if err != nil {
		return false, "", fmt.Errorf("read the policy of %s: %w", c.Resource, err)
	}

	r := s.cfg.Identities.BuildRequest(ctx, c)
	own := s.cfg.Identities.EvaluateIdentity(ctx, c)
	byKey := authz.EvaluateResource(p, r, own)

	switch {
	case byKey.Denied:
		return false, byKey.Reason, nil
	case own.Denied:
		return false, own.Reason, nil
	case byKey.Allowed, own.Allowed && authz.DelegatesToAccount(p, s.cfg.Account, r), k.hasGrant(r):
		return true, "", nil
	}

	return false, own.Reason, nil
}

// checkLockout refuses a key policy with which the caller may not replace it later, as KMS does unless the request bypasses
// its check. A policy that leaves access to IAM lets only those replace it whose own policies allow that. The caller holds the
// store's lock.
func (s *Service) checkLockout(ctx context.Context, k *key, policy string) error {
	if s.cfg.Identities == nil || wire.CallerFrom(ctx).System {
		return nil
	}

	isAllowed, _, err := s.evaluateKeyPolicy(ctx, k, policy, wire.AccessCheck{
		Action:   "kms:PutKeyPolicy",
		Resource: s.keyARN(k.ID),
		Context:  s.conditionKeys(k, nil),
	})
	if err != nil || isAllowed {
		return err
	}

	return newErrorf(
		malformedPolicy,
		"The new key policy will not allow you to update the key policy in the future.",
	)
}

// bypassKeys returns the condition key of a request that says whether it bypasses the check of [Service.checkLockout].
func bypassKeys(bypass *bool) map[string][]string {
	if bypass == nil {
		return map[string][]string{}
	}

	return map[string][]string{"kms:BypassPolicyLockoutSafetyCheck": {strconv.FormatBool(*bypass)}}
}

// requestAliasKeys returns the condition key of a request that names its key by an alias.
func (s *Service) requestAliasKeys(name *string) map[string][]string {
	alias := strings.TrimPrefix(stringValue(name), s.aliasARN(""))
	if !strings.HasPrefix(alias, aliasPrefix) {
		return nil
	}

	return map[string][]string{"kms:RequestAlias": {alias}}
}

func isTrue(flag *bool) bool { return flag != nil && *flag }

// conditionKeys returns KMS's condition keys for a key and an encryption context. The caller holds the
// store's lock.
func (s *Service) conditionKeys(k *key, encryption map[string]string) map[string][]string {
	keys := map[string][]string{"kms:CallerAccount": {s.cfg.Account}}
	marks := s.stale.effective(k.ID, s.marksOf(k))
	if len(marks.aliases) > 0 {
		keys["kms:ResourceAliases"] = marks.aliases
	}

	for name, value := range marks.tags {
		keys["aws:ResourceTag/"+name] = []string{value}
	}

	for _, name := range slices.Sorted(maps.Keys(encryption)) {
		keys[contextKeyPrefix+name] = []string{encryption[name]}
		keys["kms:EncryptionContextKeys"] = append(keys["kms:EncryptionContextKeys"], name)
	}

	return keys
}

// hasGrant reports whether a grant of the key allows a request.
func (k *key) hasGrant(r authz.Request) bool {
	return slices.ContainsFunc(k.Grants, func(g grant) bool {
		isGrantee := g.Principal == r.Principal.ARN || g.Principal == r.Principal.RoleARN
		isGranted := slices.ContainsFunc(g.Operations, func(op string) bool { return "kms:"+op == r.Action })
		return isGrantee && isGranted && g.matchesContext(r.Context)
	})
}

// matchesContext reports whether the encryption context in the condition keys meets the grant's constraints.
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

// UseKey authorizes another service of the region to use a key for the caller in ctx, and returns the key's
// ARN. action is an operation such as GenerateDataKey, name an id, an ARN or an alias, and via the service,
// such as s3. The error is a [wire.Error] with KMS's code if the key does not exist, the caller may not use
// it, or it is disabled.
func (s *Service) UseKey(
	ctx context.Context,
	action, name, via string,
	encryption map[string]string,
) (string, error) {
	if s.unseen.Hides(name) {
		return "", s.newNotFoundError(s.nameOf(name))
	}

	s.store.Lock()
	defer s.store.Unlock()
	k, err := s.findKey(&name)
	if err != nil {
		return "", err
	}

	keys := s.conditionKeys(k, encryption)
	keys["kms:ViaService"] = []string{via + "." + s.cfg.Region + ".amazonaws.com"}
	if err := s.evaluateAccess(ctx, k, wire.AccessCheck{Action: "kms:" + action, Context: keys}); err != nil {
		return "", err
	}

	return s.keyARN(k.ID), s.checkUsable(k)
}

// maxPolicyBytes is KMS's limit of the size of a key policy: 32 KiB.
const maxPolicyBytes = 32 << 10

// validateKeyPolicy checks that a document is a valid key policy whose principals exist.
func (c Config) validateKeyPolicy(document string) error {
	if len(document) > maxPolicyBytes {
		return newErrorf(limitExceeded, "a key policy can have at most 32 KiB")
	}

	p, err := authz.ParsePolicy(authz.ResourcePolicy, document)
	if err != nil {
		return newErrorf(malformedPolicy, "%s", authz.ServiceMessage(err))
	}

	if c.MissingPrincipal == nil {
		return nil
	}

	if _, missing := c.MissingPrincipal(p); missing {
		return newErrorf(malformedPolicy, "Policy contains a statement with one or more invalid principals.")
	}

	return nil
}

// validateAliasName checks the name of a new alias.
func validateAliasName(name string) error {
	rest, ok := strings.CutPrefix(name, aliasPrefix)
	bad := strings.ContainsFunc(rest, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/_-", r)
	})
	switch {
	case !ok:
		return newErrorf(
			validationFailed,
			"Alias must start with the prefix \"alias/\". Please see "+
				"https://docs.aws.amazon.com/kms/latest/developerguide/kms-alias.html",
		)

	case rest == "" || bad || len(name) > 256:
		return newErrorf(
			invalidAliasName,
			"Alias contains invalid characters for an alias: %s",
			name,
		)

	case strings.HasPrefix(rest, "aws/"):
		return newErrorf(notAuthorized, "aliases that begin with alias/aws/ are reserved for AWS")
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
