// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// The service account of Karpenter, which has an IAM role of its own.
const (
	KarpenterNamespace = "kube-system"
	KarpenterName      = "karpenter"
)

// KarpenterGroups returns the groups whose machines Karpenter starts and ends, in their order.
func KarpenterGroups(groups []v1alpha1.InstanceGroup) []v1alpha1.InstanceGroup {
	var out []v1alpha1.InstanceGroup
	for _, g := range groups {
		if g.Spec.UsesKarpenter() {
			out = append(out, g)
		}
	}

	return out
}

// checkManager checks spec.manager and what it excludes in the group.
func checkManager(v validator, spec v1alpha1.InstanceGroupSpec) {
	if spec.Manager == "" {
		return
	}

	v.checkChoice(
		"spec.manager",
		spec.Manager,
		v1alpha1.ManagerCloudGroup,
		v1alpha1.ManagerKarpenter,
	)
	if !spec.UsesKarpenter() {
		return
	}

	if spec.Role != v1alpha1.RoleWorker {
		v.errorf("spec.manager", spec.Manager, "leave it out", "is for workers only")
		return
	}

	checkKarpenterSizes(v, spec)
	checkKarpenterMixed(v, spec)
	rejectForKarpenter(v, spec)
	checkKarpenterUpdate(v, spec.RollingUpdate)
	checkKarpenterLabels(v, spec.NodeLabels)
}

// checkKarpenterSizes checks the numbers of machines: Karpenter has an upper limit only.
func checkKarpenterSizes(v validator, spec v1alpha1.InstanceGroupSpec) {
	if n := spec.MinMachines(); n != 0 {
		v.errorf("spec.minSize", strconv.Itoa(n), "leave it out, or set it to 0",
			"is not possible with spec.manager Karpenter, "+
				"which starts machines for pending pods only")
	}

	if spec.MaxSize == nil {
		v.errorf("spec.maxSize", "",
			"set it to the largest number of machines that Karpenter may run",
			"is required with spec.manager Karpenter")
	}
}

// checkKarpenterMixed checks the machine types and the share of spot instances.
func checkKarpenterMixed(v validator, spec v1alpha1.InstanceGroupSpec) {
	const at = "spec.mixedInstancesPolicy"
	p := spec.MixedInstancesPolicy
	if n := p.OnDemandBase; n != 0 {
		v.errorf(at+".onDemandBase", strconv.Itoa(n),
			"leave it out: create another group for on-demand instances",
			"is not possible with spec.manager Karpenter")
	}

	if n := p.OnDemandAboveBase; n != 0 && n != allOnDemand {
		v.errorf(at+".onDemandAboveBase", strconv.Itoa(n),
			"use 0, for spot instances and on-demand ones without capacity for them, "+
				"or 100, for on-demand instances only",
			"is not possible with spec.manager Karpenter, which keeps no share")
	}

	for _, f := range [][2]string{
		{at + ".onDemandAllocationStrategy", p.OnDemandAllocationStrategy},
		{at + ".spotAllocationStrategy", p.SpotAllocationStrategy},
	} {
		if f[1] != "" {
			v.errorf(f[0], f[1], "leave it out",
				"is for Auto Scaling: Karpenter has a strategy of its own")
		}
	}

	for i, name := range spec.MixedInstancesPolicy.Instances {
		if _, known := v.types.FindInstanceType(name); !known {
			v.errorf(fmt.Sprintf(at+".instances[%d]", i), name, "use types of Slipway's list",
				"is not in Slipway's list of instance types, which spec.manager Karpenter needs")
		}
	}

	if _, known := v.types.FindInstanceType(spec.MachineType); !known {
		v.errorf("spec.machineType", spec.MachineType, "use a type of Slipway's list",
			"is not in Slipway's list of instance types, which spec.manager Karpenter needs")
	}
}

// rejectForKarpenter reports the fields that only Auto Scaling groups have, and those that would
// give more rights to machines that whoever has Karpenter's role can launch with user data of their
// own (docs/design/0028-karpenter.md).
func rejectForKarpenter(v validator, spec v1alpha1.InstanceGroupSpec) {
	const (
		scaling = "is for Auto Scaling groups, and spec.manager is Karpenter"
		rights  = "is not possible with spec.manager Karpenter: " +
			"whoever has its role could start machines that have it"
	)

	const account = "grant the permissions to the service account of a pod"

	for _, f := range []struct {
		path, fix, problem string
		set                bool
	}{
		{"spec.autoscale", "leave it out", scaling, spec.Autoscale},
		{"spec.capacityRebalance", "leave it out", scaling, spec.CapacityRebalance},
		{"spec.maxPrice", "leave it out", scaling, spec.MaxPrice != ""},
		{"spec.warmPool", "leave it out", scaling, spec.WarmPool != (v1alpha1.WarmPool{})},
		{"spec.repair", "leave it out", scaling, spec.Repair != usualRepair(spec.Role)},
		{"spec.iam.policies", account, rights, len(spec.IAM.Policies) > 0},
		{"spec.iam.inlinePolicy", account, rights, spec.IAM.InlinePolicy != ""},
		{"spec.additionalSecurityGroups", "leave it out", rights, len(spec.AdditionalSecurityGroups) > 0},
	} {
		if f.set {
			v.errorf(f.path, "", f.fix, "%s", f.problem)
		}
	}
}

// checkKarpenterUpdate checks the settings of rolling updates: Karpenter replaces machines, and
// knows how many at once.
func checkKarpenterUpdate(v validator, u v1alpha1.RollingUpdate) {
	if u.MaxUnavailable == "0" {
		v.errorf("spec.rollingUpdate.maxUnavailable", "0", "use 1 or more",
			"would keep Karpenter from replacing machines")
	}

	u.MaxUnavailable = ""
	others, _ := toJSONTree(u).(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(others)) {
		v.errorf("spec.rollingUpdate."+name, "", "leave it out: only maxUnavailable is possible",
			"has no effect with spec.manager Karpenter, which replaces the machines itself")
	}
}

// checkKarpenterLabels reports labels that Karpenter sets itself, or that it does not allow node
// pools to set.
func checkKarpenterLabels(v validator, labels map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		domain, _, _ := strings.Cut(key, "/")
		for _, own := range []string{"karpenter.sh", "karpenter.k8s.aws", "kubernetes.io", "k8s.io"} {
			if domain == own || strings.HasSuffix(domain, "."+own) {
				v.errorf("spec.nodeLabels["+key+"]", labels[key], "use a domain of your own",
					"is of a domain that spec.manager Karpenter does not allow")
			}
		}
	}
}

// checkKarpenterCluster checks what a group with Karpenter needs of its cluster.
func checkKarpenterCluster(v validator, spec v1alpha1.InstanceGroupSpec, c v1alpha1.Cluster) {
	if !spec.UsesKarpenter() || spec.Role != v1alpha1.RoleWorker || c.Kind == "" {
		return
	}

	const ownOnly = "Karpenter's role may use those of Slipway only"
	reject := func(fix, why string) { v.errorf("spec.manager", spec.Manager, fix, "%s", why) }
	if !HasPodIdentity(c) {
		reject("set spec.serviceAccountIssuerDiscovery.discoveryStore when you create a cluster",
			"needs a discovery store: Karpenter gets its credentials as a pod")
	}

	if c.Spec.CloudProvider.AWS.InstanceProfiles.Worker != "" {
		reject("leave out spec.cloudProvider.aws.instanceProfiles.worker, or use CloudGroup",
			"is not possible with an instance profile of yours: "+ownOnly)
	}

	if c.Spec.CloudProvider.AWS.SecurityGroups.Worker != "" {
		reject("leave out spec.cloudProvider.aws.securityGroups.worker, or use CloudGroup",
			"is not possible with a security group of yours: "+ownOnly)
	}

	if HasVPCPods(c) {
		reject("use spec.networking.cni flannel, or CloudGroup",
			"is not possible with spec.networking.cni amazon-vpc")
	}

	for _, s := range c.Spec.Networking.Subnets {
		if s.ID != "" && slices.Contains(spec.Subnets, s.Name) {
			reject("use a subnet that Slipway creates, or CloudGroup",
				"is not possible in the existing subnet "+s.Name+": "+ownOnly)
		}
	}
}

// checkKarpenterAccount reports a role in the manifest for Karpenter's service account, which has
// one of its own.
func checkKarpenterAccount(v validator, s Set) {
	if len(KarpenterGroups(s.Groups)) == 0 {
		return
	}

	for i, p := range s.Cluster.Spec.IAM.ServiceAccountExternalPermissions {
		if p.Namespace == KarpenterNamespace && p.Name == KarpenterName {
			v.errorf(
				fmt.Sprintf("spec.iam.serviceAccountExternalPermissions[%d]", i),
				p.Namespace+"/"+p.Name,
				"leave it out",
				"is the service account of Karpenter: Slipway creates its role, "+
					"since a group has spec.manager Karpenter",
			)
		}
	}
}
