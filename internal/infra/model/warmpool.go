// SPDX-License-Identifier: Apache-2.0

package model

import (
	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
)

// warmPoolOf returns a group's warm pool; zero if it has none.
func warmPoolOf(p v1alpha1.WarmPool) awskind.WarmPool {
	if p.PoolState == "" {
		return awskind.WarmPool{}
	}

	prepared := p.MaxGroupPreparedCapacity
	if prepared == 0 {
		prepared = -1 // the group's MaxSize
	}

	return awskind.WarmPool{
		MinSize:     p.MinSize,
		MaxPrepared: prepared,
		State:       p.PoolState,
		Reuse:       awskind.ReusePolicy{OnScaleIn: p.ReuseOnScaleIn},
	}
}
