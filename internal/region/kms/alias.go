// SPDX-License-Identifier: Apache-2.0

package kms

import (
	"context"
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go/service/kms"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

func (s *Service) listAliases(ctx context.Context, in *kms.ListAliasesInput) (*kms.ListAliasesOutput, error) {
	if err := wire.Authorize(ctx, wire.AccessCheck{Action: "kms:ListAliases"}); err != nil {
		return nil, err
	}

	keyID := ""
	if in.KeyId != nil {
		k, err := s.findKey(in.KeyId)
		if err != nil {
			return nil, err
		}

		keyID = k.ID
	}

	var all []string

	for _, name := range slices.Sorted(maps.Keys(s.st.Aliases)) {
		if keyID == "" || s.st.Aliases[name].Key == keyID {
			all = append(all, name)
		}
	}

	page := listPage{marker: in.Marker, limit: in.Limit, sizes: pageSizes{usual: 50, most: 100}}
	names, next, err := page.selectNames(all)
	if err != nil {
		return nil, err
	}

	out := &kms.ListAliasesOutput{
		Aliases:    []*kms.AliasListEntry{},
		NextMarker: next,
		Truncated:  new(next != nil),
	}

	for _, name := range names {
		a := s.st.Aliases[name]
		out.Aliases = append(out.Aliases, &kms.AliasListEntry{
			AliasName:       &name,
			AliasArn:        new(s.aliasARN(name)),
			TargetKeyId:     &a.Key,
			CreationDate:    &a.Created,
			LastUpdatedDate: &a.Created,
		})
	}

	return out, nil
}

// authorizeAlias checks the right to an alias. Operations on aliases also need the right to the key.
func (s *Service) authorizeAlias(ctx context.Context, action string, name *string) error {
	return wire.Authorize(ctx, wire.AccessCheck{
		Action:   "kms:" + action,
		Resource: s.aliasARN(stringValue(name)),
	})
}

func (s *Service) createAlias(ctx context.Context, in *kms.CreateAliasInput) (*kms.CreateAliasOutput, error) {
	if err := s.authorizeAlias(ctx, "CreateAlias", in.AliasName); err != nil {
		return nil, err
	}

	return &kms.CreateAliasOutput{}, s.withKey(ctx, in.TargetKeyId, "CreateAlias", func(k *key) error {
		if err := validateAliasName(*in.AliasName); err != nil {
			return err
		}

		if _, ok := s.st.Aliases[*in.AliasName]; ok {
			return newErrorf(
				aliasExists,
				"An alias with the name %s already exists",
				s.aliasARN(*in.AliasName),
			)
		}

		s.keepMarks(k)
		s.st.Aliases[*in.AliasName] = &alias{Key: k.ID, Created: s.cfg.Now().UTC()}
		s.unseen.Track(*in.AliasName, s.aliasARN(*in.AliasName))

		return nil
	})
}

func (s *Service) updateAlias(ctx context.Context, in *kms.UpdateAliasInput) (*kms.UpdateAliasOutput, error) {
	if err := s.authorizeAlias(ctx, "UpdateAlias", in.AliasName); err != nil {
		return nil, err
	}

	if err := validateAliasName(*in.AliasName); err != nil {
		return nil, err
	}

	return &kms.UpdateAliasOutput{}, s.withKey(ctx, in.TargetKeyId, "UpdateAlias", func(k *key) error {
		former, err := s.findKey(in.AliasName)
		if err != nil {
			return err
		}

		s.keepMarks(former)
		s.keepMarks(k)
		s.st.Aliases[*in.AliasName].Key = k.ID
		return nil
	})
}

func (s *Service) deleteAlias(ctx context.Context, in *kms.DeleteAliasInput) (*kms.DeleteAliasOutput, error) {
	if err := s.authorizeAlias(ctx, "DeleteAlias", in.AliasName); err != nil {
		return nil, err
	}

	if err := validateAliasName(*in.AliasName); err != nil {
		return nil, err
	}

	return &kms.DeleteAliasOutput{}, s.withKey(ctx, in.AliasName, "DeleteAlias", func(k *key) error {
		s.keepMarks(k)
		delete(s.st.Aliases, *in.AliasName)
		return nil
	})
}
