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

// Identities decides by the policies of the caller in ctx. IAM implements it.
type Identities interface {
	Decide(ctx context.Context, c wire.Check) authz.Decision
	Request(ctx context.Context, c wire.Check) authz.Request
}

const contextKey = "kms:EncryptionContext:"

// allowed asks whether the caller may do an action with a key: by the key's policy alone, by the caller's own
// policies where the key's leaves that to the account, or by a grant. A Deny in any of them wins.
func (s *Service) allowed(ctx context.Context, k *key, action string, encryption map[string]string) error {
	return s.ask(ctx, k, wire.Check{Action: "kms:" + action, Context: s.conditions(k, encryption)})
}

func (s *Service) ask(ctx context.Context, k *key, c wire.Check) error {
	c.Resource = s.arn(k.ID)
	caller := wire.CallerFrom(ctx)
	if s.cfg.Identities == nil || caller.Root || caller == (wire.Caller{}) {
		return wire.Authorize(ctx, c)
	}

	p, err := authz.Parse(authz.Resource, k.Policy)
	if err != nil {
		return fmt.Errorf("read the policy of %s: %w", c.Resource, err)
	}

	r := s.cfg.Identities.Request(ctx, c)
	own := s.cfg.Identities.Decide(ctx, c)
	byKey := authz.Decide([]authz.Policy{p}, r)

	switch {
	case byKey.Denied:
		return wire.Denied(ctx, c, byKey.Reason)
	case own.Denied:
		return wire.Denied(ctx, c, own.Reason)
	case byKey.Allowed, own.Allowed && authz.NamesAccount(p, s.cfg.Account, r), k.granted(r):
		return nil
	}

	return wire.Denied(ctx, c, own.Reason)
}

// conditions are the condition keys that KMS knows of a key and an encryption context.
func (s *Service) conditions(k *key, encryption map[string]string) map[string][]string {
	keys := map[string][]string{"kms:CallerAccount": {s.cfg.Account}}
	for name, value := range k.Tags {
		keys["aws:ResourceTag/"+name] = []string{value}
	}

	for _, name := range slices.Sorted(maps.Keys(encryption)) {
		keys[contextKey+name] = []string{encryption[name]}
		keys["kms:EncryptionContextKeys"] = append(keys["kms:EncryptionContextKeys"], name)
	}

	for _, name := range slices.Sorted(maps.Keys(s.st.Aliases)) {
		if s.st.Aliases[name].Key == k.ID {
			keys["kms:ResourceAliases"] = append(keys["kms:ResourceAliases"], name)
		}
	}

	return keys
}

// granted tells whether a grant lets the caller do the action.
func (k *key) granted(r authz.Request) bool {
	return slices.ContainsFunc(k.Grants, func(g grant) bool {
		who := g.Principal == r.Principal.ARN || g.Principal == r.Principal.RoleARN
		what := slices.ContainsFunc(g.Operations, func(op string) bool { return "kms:"+op == r.Action })
		return who && what && g.fits(r.Context)
	})
}

// fits tells whether the encryption context is one that the grant is for.
func (g grant) fits(keys map[string][]string) bool {
	if len(g.Equals) > 0 && len(keys["kms:EncryptionContextKeys"]) != len(g.Equals) {
		return false
	}

	for _, want := range []map[string]string{g.Equals, g.Subset} {
		for name, value := range want {
			if !slices.Equal(keys[contextKey+name], []string{value}) {
				return false
			}
		}
	}

	return true
}

// Use is how another service of the region uses a key for the caller in ctx. action is one such as GenerateDataKey,
// via the service, such as s3. It says whether the caller may and whether the key is fit for work, and returns the
// key's ARN. name is an id, an ARN or an alias.
func (s *Service) Use(
	ctx context.Context,
	action, name, via string,
	encryption map[string]string,
) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, err := s.find(&name)
	if err != nil {
		return "", err
	}

	keys := s.conditions(k, encryption)
	keys["kms:ViaService"] = []string{via + "." + s.cfg.Region + ".amazonaws.com"}
	if err := s.ask(ctx, k, wire.Check{Action: "kms:" + action, Context: keys}); err != nil {
		return "", err
	}

	return s.arn(k.ID), s.usable(k)
}

// checkPolicy refuses what is no key policy. 32 KiB is KMS's limit.
func checkPolicy(document string) error {
	if len(document) > 32<<10 {
		return wire.Errorf(kms.ErrCodeLimitExceededException, "a key's policy may have 32 KiB at most")
	}

	if _, err := authz.Parse(authz.Resource, document); err != nil {
		return wire.Errorf(kms.ErrCodeMalformedPolicyDocumentException, "%v", err)
	}

	return nil
}

// checkAlias refuses names that no alias may have.
func checkAlias(name string) error {
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

func (s *Service) describeAs(
	ctx context.Context,
	in *kms.UpdateKeyDescriptionInput,
) (*kms.UpdateKeyDescriptionOutput, error) {
	return &kms.UpdateKeyDescriptionOutput{}, s.with(
		ctx,
		in.KeyId,
		"UpdateKeyDescription",
		func(k *key) error {
			if k.State == kms.KeyStatePendingDeletion {
				return s.usable(k)
			}

			k.Description = *in.Description
			return nil
		},
	)
}
