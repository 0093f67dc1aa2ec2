// SPDX-License-Identifier: Apache-2.0

package awskind

// WarmPool of an [AutoScalingGroup]: machines that are ready to serve and do not yet.
type WarmPool struct {
	MinSize int `aws:"MinSize,always"`
	// MaxPrepared counts the group's machines and the pool's; -1: as many as the group may have.
	MaxPrepared int         `aws:"MaxGroupPreparedCapacity"`
	State       string      `aws:"PoolState"` // Stopped or Running; empty: there is no pool
	Reuse       ReusePolicy `aws:"InstanceReusePolicy,always"`
}

// ReusePolicy says what becomes of machines that a group does not need any more.
type ReusePolicy struct {
	OnScaleIn bool `aws:"ReuseOnScaleIn,always"`
}
