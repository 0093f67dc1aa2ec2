// SPDX-License-Identifier: Apache-2.0

package awskind

// WarmPool is the warm pool of an [AutoScalingGroup]: machines that are prepared and not yet in service.
type WarmPool struct {
	MinSize int `aws:"MinSize,always"` // machines in the pool at least
	// MaxPrepared limits the machines of the group and its pool together; -1: the group's MaxSize.
	MaxPrepared int         `aws:"MaxGroupPreparedCapacity"`
	State       string      `aws:"PoolState"`                  // Stopped or Running; empty: no warm pool
	Reuse       ReusePolicy `aws:"InstanceReusePolicy,always"` // what happens on scale-in
}

// ReusePolicy sets whether machines return to the warm pool.
type ReusePolicy struct {
	// OnScaleIn returns machines to the pool instead of terminating them.
	OnScaleIn bool `aws:"ReuseOnScaleIn,always"`
}
