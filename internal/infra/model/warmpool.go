// SPDX-License-Identifier: Apache-2.0

package model

import (
	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
)

// warmPoolOf is a group's warm pool; nothing if it has none.
func warmPoolOf(p v1alpha1.WarmPool) awskind.WarmPool {
	if p.PoolState == "" {
		return awskind.WarmPool{}
	}

	prepared := p.MaxGroupPreparedCapacity
	if prepared == 0 {
		prepared = -1 // as many as the group may have
	}

	return awskind.WarmPool{
		MinSize:     p.MinSize,
		MaxPrepared: prepared,
		State:       p.PoolState,
		Reuse:       awskind.ReusePolicy{OnScaleIn: p.ReuseOnScaleIn},
	}
}
