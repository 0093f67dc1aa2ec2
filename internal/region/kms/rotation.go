// SPDX-License-Identifier: Apache-2.0

package kms

import (
	"context"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go/service/kms"
)

// The period of automatic rotation in days, from EnableKeyRotation in the KMS API reference.
const (
	defaultRotationDays = 365
	minRotationDays     = 90
	maxRotationDays     = 2560
)

func (s *Service) enableKeyRotation(
	ctx context.Context,
	in *kms.EnableKeyRotationInput,
) (*kms.EnableKeyRotationOutput, error) {
	days := int64(defaultRotationDays)
	if in.RotationPeriodInDays != nil {
		days = *in.RotationPeriodInDays
	}

	if days < minRotationDays || days > maxRotationDays {
		bound := "less than or equal to " + strconv.Itoa(maxRotationDays)
		if days < minRotationDays {
			bound = "greater than or equal to " + strconv.Itoa(minRotationDays)
		}

		return nil, newErrorf(
			validationFailed,
			"1 validation error detected: Value '%d' at 'rotationPeriodInDays' failed to satisfy constraint: "+
				"Member must have value %s",
			days,
			bound,
		)
	}

	return &kms.EnableKeyRotationOutput{}, s.withKey(ctx, in.KeyId, "EnableKeyRotation", func(k *key) error {
		if err := s.checkUsable(k); err != nil {
			return err
		}

		k.Rotation = true
		k.RotationDays = days
		k.RotationSince = s.cfg.Now().UTC()

		return nil
	})
}

func (s *Service) disableKeyRotation(
	ctx context.Context,
	in *kms.DisableKeyRotationInput,
) (*kms.DisableKeyRotationOutput, error) {
	return &kms.DisableKeyRotationOutput{}, s.withKey(
		ctx,
		in.KeyId,
		"DisableKeyRotation",
		func(k *key) error {
			if err := s.checkUsable(k); err != nil {
				return err
			}

			k.Rotation = false

			return nil
		},
	)
}

func (s *Service) getKeyRotationStatus(
	ctx context.Context,
	in *kms.GetKeyRotationStatusInput,
) (out *kms.GetKeyRotationStatusOutput, err error) {
	err = s.withKey(ctx, in.KeyId, "GetKeyRotationStatus", func(k *key) error {
		out = &kms.GetKeyRotationStatusOutput{KeyId: new(s.keyARN(k.ID)), KeyRotationEnabled: new(k.Rotation)}
		if !k.Rotation {
			return nil
		}

		days := k.RotationDays
		if days == 0 {
			days = defaultRotationDays // enabled before the region kept the period
		}

		since := k.RotationSince
		if since.IsZero() {
			since = k.Created
		}

		out.RotationPeriodInDays = &days
		out.NextRotationDate = new(since.Add(time.Duration(days) * 24 * time.Hour))

		return nil
	})

	return out, err
}
