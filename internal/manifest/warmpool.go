// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"strconv"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// The supported states of machines in a warm pool. AWS also has Hibernated, which saves the memory
// to an encrypted root volume.
const (
	poolStopped = "Stopped"
	poolRunning = "Running"
)

// defaultWarmPool sets the pool state of groups that have a warm pool.
func defaultWarmPool(g *v1alpha1.InstanceGroup, _ *Set) {
	if p := &g.Spec.WarmPool; p.MinSize != 0 || p.MaxGroupPreparedCapacity != 0 {
		setDefaultText(&p.PoolState, poolStopped)
	}
}

func (v validator) checkWarmPool(spec v1alpha1.InstanceGroupSpec) {
	p := spec.WarmPool
	if p == (v1alpha1.WarmPool{}) {
		return
	}

	checkReuse(v, spec)

	v.checkChoice("spec.warmPool.poolState", p.PoolState, poolStopped, poolRunning)
	v.checkRange("spec.warmPool.minSize", p.MinSize, 0, maxGroupSize)
	if spec.Role != v1alpha1.RoleWorker {
		v.errorf("spec.warmPool", "", "leave it out", "is for workers only")
	}

	if len(spec.MixedInstancesPolicy.Instances) > 0 {
		v.errorf(
			"spec.warmPool",
			"",
			"leave out one of the two",
			"cannot be combined with mixedInstancesPolicy: Auto Scaling rejects it",
		)
	}

	if n := p.MaxGroupPreparedCapacity; n != 0 && n < spec.MinMachines() {
		v.errorf(
			"spec.warmPool.maxGroupPreparedCapacity",
			strconv.Itoa(n),
			"raise it, or leave it out: it defaults to maxSize",
			"is less than minSize %d, which it includes",
			spec.MinMachines(),
		)
	}

	if p.MinSize == 0 && p.MaxGroupPreparedCapacity == 0 && spec.MinMachines() == spec.MaxMachines() {
		v.warnf("spec.warmPool", "", "raise maxSize, or set warmPool.minSize", "is empty while the group's minSize equals maxSize")
	}
}

// checkReuse checks reuseOnScaleIn.
func checkReuse(v validator, spec v1alpha1.InstanceGroupSpec) {
	p := spec.WarmPool
	if p.ReuseOnScaleIn && p.PoolState == poolRunning {
		v.errorf(
			"spec.warmPool.reuseOnScaleIn",
			"true",
			"use poolState Stopped, or leave out reuseOnScaleIn",
			"needs machines that are stopped in the pool: the kubelet of a running one would keep its node",
		)
	}

	if p.ReuseOnScaleIn && spec.Autoscale {
		v.warnf(
			"spec.warmPool.reuseOnScaleIn",
			"true",
			"leave out one of the two if that is not wanted",
			"does not hold for the cluster autoscaler, which terminates the machines that it removes",
		)
	}
}
