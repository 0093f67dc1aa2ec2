// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// maxOverrides is the number of machine types that an Auto Scaling group allows in addition to that
// of its launch template (Auto Scaling User Guide).
const maxOverrides = 40

// Allocation strategies, with Auto Scaling's names.
const (
	strategyPriceCapacity = "price-capacity-optimized"
	strategyPrioritized   = "prioritized"
	strategyLowestPrice   = "lowest-price"
)

// defaultMixed sets the allocation strategies of groups with a mixed instances policy. A control plane has no spot
// instances.
func defaultMixed(g *v1alpha1.InstanceGroup, _ *Set) {
	p := &g.Spec.MixedInstancesPolicy
	if len(p.Instances) == 0 || g.Spec.UsesKarpenter() {
		return
	}

	setDefaultText(&p.OnDemandAllocationStrategy, strategyPrioritized)
	setDefaultText(&p.SpotAllocationStrategy, strategyPriceCapacity)
	if g.Spec.Role == v1alpha1.RoleControlPlane {
		setDefaultNumber(&p.OnDemandAboveBase, allOnDemand)
	}
}

// allOnDemand is spec.mixedInstancesPolicy.onDemandAboveBase of a group without spot instances.
const allOnDemand = 100

// HasSpot reports whether a group can have spot instances.
func HasSpot(spec v1alpha1.InstanceGroupSpec) bool {
	return len(spec.MixedInstancesPolicy.Instances) > 0 && spec.MixedInstancesPolicy.OnDemandAboveBase < allOnDemand
}

// MachineTypes returns all machine types that a group can use, its spec.machineType first.
func MachineTypes(spec v1alpha1.InstanceGroupSpec) []string {
	out := []string{spec.MachineType}
	for _, t := range spec.MixedInstancesPolicy.Instances {
		if !slices.Contains(out, t) {
			out = append(out, t)
		}
	}

	return out
}

func (v validator) checkMixedInstances(spec v1alpha1.InstanceGroupSpec) {
	p := spec.MixedInstancesPolicy
	at := "spec.mixedInstancesPolicy"
	v.checkSpotFields(spec)
	if len(p.Instances) == 0 {
		if p.OnDemandBase != 0 || p.OnDemandAboveBase != 0 || p.SpotAllocationStrategy != "" ||
			p.OnDemandAllocationStrategy != "" {
			v.errorf(
				at+".instances",
				"",
				"list the machine types, including "+spec.MachineType,
				"must not be empty if another field of the policy is set",
			)
		}

		return
	}

	checkMixedRole(v, at, spec)
	if len(p.Instances) > maxOverrides {
		v.errorf(
			at+".instances",
			strconv.Itoa(len(p.Instances)),
			fmt.Sprintf("use at most %d", maxOverrides),
			"exceeds the number of machine types that an Auto Scaling group allows",
		)
	}

	if !slices.Contains(p.Instances, spec.MachineType) {
		v.errorf(
			"spec.machineType",
			spec.MachineType,
			"leave it out: it defaults to "+p.Instances[0],
			"is not one of mixedInstancesPolicy.instances",
		)
	}

	v.checkMixedTypes(spec)
	v.checkRange(at+".onDemandBase", p.OnDemandBase, 0, max(0, spec.MaxMachines()))
	v.checkRange(at+".onDemandAboveBase", p.OnDemandAboveBase, 0, 100)
	if spec.UsesKarpenter() {
		return // checkKarpenter reports the strategies of Auto Scaling
	}

	v.checkChoice(
		at+".onDemandAllocationStrategy",
		p.OnDemandAllocationStrategy,
		strategyPrioritized,
		strategyLowestPrice,
	)

	v.checkChoice(at+".spotAllocationStrategy", p.SpotAllocationStrategy,
		strategyPriceCapacity, "capacity-optimized", "capacity-optimized-prioritized", strategyLowestPrice)
}

// checkMixedRole checks that only workers have spot instances.
func checkMixedRole(v validator, at string, spec v1alpha1.InstanceGroupSpec) {
	switch {
	case spec.Role == v1alpha1.RoleBastion:
		v.errorf(at, "", "leave it out", "is for workers and the control plane")
	case spec.Role == v1alpha1.RoleControlPlane && HasSpot(spec):
		v.errorf(
			at+".onDemandAboveBase",
			strconv.Itoa(spec.MixedInstancesPolicy.OnDemandAboveBase),
			"leave it out",
			"is for workers only: machines of the control plane must keep running",
		)
	}
}

// checkMixedTypes checks that all machine types have the same architecture, since a group has one
// image. For an autoscaled group it warns about types of different sizes, since the cluster
// autoscaler assumes that all machines of a group are alike.
func (v validator) checkMixedTypes(spec v1alpha1.InstanceGroupSpec) {
	own, ok := v.types.FindInstanceType(spec.MachineType)
	seen := map[string]int{}
	for i, name := range spec.MixedInstancesPolicy.Instances {
		at := fmt.Sprintf("spec.mixedInstancesPolicy.instances[%d]", i)
		v.checkUnique(at, name, seen, i, "duplicates instances[%d]")
		t, known := v.types.FindInstanceType(name)

		switch {
		case !known:
			v.reportUnknownType(at, name)
		case ok && t.Arch != own.Arch:
			v.errorf(
				at,
				name,
				"create another group for it",
				"is %s, but %s is %s: a group has one image",
				t.Arch,
				own.Name,
				own.Arch,
			)

		case spec.Role == v1alpha1.RoleControlPlane && t.MemoryMiB < minControlPlaneMiB:
			v.warnf(
				at,
				name,
				"use t3.medium or larger",
				"has %d MiB of memory, too little for a control plane",
				t.MemoryMiB,
			)

		case ok && spec.Autoscale && (t.VCPU != own.VCPU || t.MemoryMiB != own.MemoryMiB):
			v.warnf(
				at,
				name,
				"use machine types of the same size",
				"has %d vCPUs and %d MiB, but %s has %d and %d: the cluster autoscaler assumes identical machines",
				t.VCPU,
				t.MemoryMiB,
				own.Name,
				own.VCPU,
				own.MemoryMiB,
			)
		}
	}
}

// checkSpotFields checks the fields that apply to spot instances only.
func (v validator) checkSpotFields(spec v1alpha1.InstanceGroupSpec) {
	const hint = "add mixedInstancesPolicy with onDemandAboveBase below 100, or leave it out"
	if price := spec.MaxPrice; price != "" {
		if !regexp.MustCompile(`^\d{1,4}(\.\d{1,6})?$`).MatchString(price) {
			v.errorf("spec.maxPrice", price, `write it as "0.05"`, "is not a price in dollars an hour")
		}

		if !HasSpot(spec) {
			v.errorf("spec.maxPrice", price, hint, "is for spot instances, and the group has none")
		}
	}

	if spec.CapacityRebalance && !HasSpot(spec) {
		v.errorf("spec.capacityRebalance", "true", hint, "is for spot instances, and the group has none")
	}
}
