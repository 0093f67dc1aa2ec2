// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// maxControlPlaneSlots bounds the slot names, control-plane-a to control-plane-z. Valid control
// planes have at most 5.
const maxControlPlaneSlots = 26

// maxGroupSize limits the machines of one group. AWS's default quota is far lower.
const maxGroupSize = 1000

// minControlPlaneMiB is the memory that kubeadm requires of a control-plane machine (1700 MB).
const minControlPlaneMiB = 1700

// minRootGiB is the size of the Debian image.
const minRootGiB = 8

func (v validator) checkGroups(s Set) {
	controlPlanes := 0
	names := map[string]bool{}
	machines := 0

	for _, g := range s.Groups {
		gv := validator{fs: v.fs, pathPrefix: "instancegroup/" + g.Metadata.Name + ": ", types: s}
		gv.checkGroup(g, s.Cluster)
		if names[g.Metadata.Name] {
			gv.errorf(
				"metadata.name",
				g.Metadata.Name,
				"use each name once",
				"is also the name of another InstanceGroup",
			)
		}

		names[g.Metadata.Name] = true
		if g.Spec.Role != v1alpha1.RoleBastion {
			machines += max(0, g.Spec.MaxMachines())
		}

		if g.Spec.Role == v1alpha1.RoleControlPlane {
			controlPlanes++
		}
	}

	v.checkSlotNames(s.Groups, names)
	checkKarpenterAccount(v, s)
	if s.Cluster.Kind == "" {
		return
	}

	if controlPlanes != 1 {
		v.errorf(
			"instance groups",
			"",
			"keep one InstanceGroup of role ControlPlane; its minSize is the number of machines",
			"%d have role ControlPlane, but exactly 1 is required",
			controlPlanes,
		)
	}

	v.checkBastion(s)
	if !HasVPCPods(s.Cluster) {
		v.checkPodCapacity(s.Cluster.Spec.Networking.PodCIDR, machines)
	}
}

// checkSlotNames checks that no group has the name of a control-plane slot, since both are names of
// Auto Scaling groups.
func (v validator) checkSlotNames(groups []v1alpha1.InstanceGroup, names map[string]bool) {
	for _, g := range groups {
		if g.Spec.Role != v1alpha1.RoleControlPlane {
			continue
		}

		for i := range min(g.Spec.MinMachines(), maxControlPlaneSlots) {
			if name := g.Metadata.Name + "-" + string(rune('a'+i)); names[name] {
				gv := validator{fs: v.fs, pathPrefix: "instancegroup/" + name + ": "}
				gv.errorf(
					"metadata.name",
					name,
					"choose another name",
					"is the name of a machine of %s",
					g.Metadata.Name,
				)
			}
		}
	}
}

// checkPodCapacity checks that the pod range has a /24 for each of the machines that the groups can
// have.
func (v validator) checkPodCapacity(podCIDR string, machines int) {
	pods, err := netip.ParsePrefix(podCIDR)
	if err != nil || !pods.Addr().Is4() || pods.Bits() > nodePodPrefix {
		return // checkNetworking reports it
	}

	if room := 1 << (nodePodPrefix - pods.Bits()); machines > room {
		v.errorf("spec.networking.podCIDR", podCIDR, "use a larger range, or smaller groups",
			"has a /24 for %d machines, but the groups may have %d", room, machines)
	}
}

func (v validator) checkGroup(g v1alpha1.InstanceGroup, c v1alpha1.Cluster) {
	v.checkName(g.Metadata.Name)
	if label := g.Metadata.Labels[v1alpha1.ClusterLabel]; label != c.Metadata.Name && c.Kind != "" {
		v.errorf(
			"metadata.labels["+v1alpha1.ClusterLabel+"]",
			label,
			"write "+c.Metadata.Name+" or leave it out",
			"is not the cluster's name",
		)
	}

	v.checkChoice(
		"spec.role",
		string(g.Spec.Role),
		string(v1alpha1.RoleControlPlane),
		string(v1alpha1.RoleWorker),
		string(v1alpha1.RoleBastion),
	)

	v.checkMachineType(g.Spec)
	if !imagePattern().MatchString(g.Spec.Image) {
		v.errorf(
			"spec.image",
			g.Spec.Image,
			"write it as "+strings.Join(
				slices.Sorted(maps.Keys(knownDistributions())),
				", ",
			)+", ssm:/PARAMETER, 136693071363/debian-12-amd64-* or ami-0123456789abcdef0",
			"is not a distribution, an SSM parameter, OWNER/NAME or an AMI ID",
		)
	}

	v.checkSizes(g.Spec)
	v.checkGroupSubnets(g.Spec, c)
	v.checkVolume("spec.rootVolume", toVolume(g.Spec.RootVolume))
	if g.Spec.RootVolume.Size < minRootGiB {
		v.errorf(
			"spec.rootVolume.size",
			strconv.Itoa(g.Spec.RootVolume.Size),
			fmt.Sprintf("use at least %d", minRootGiB),
			"is smaller than the image",
		)
	}

	v.checkGroupVersion(g.Spec, c)
	v.checkGroupOptions(g.Spec)
	checkGroupTags(v, g.Spec, c.Spec.Tags)
	v.checkNodeLabels(g.Spec.NodeLabels)
	for i, t := range g.Spec.Taints {
		v.checkTaint(fmt.Sprintf("spec.taints[%d]", i), t)
	}

	checkInstanceMetadata(v, g.Spec)
	checkGroupPods(v, g.Spec, c)
	checkKarpenterCluster(v, g.Spec, c)
}

// reportUnknownType reports a type that the embedded list does not contain: an error if AWS has no such names,
// else a warning, since EC2 may have the type.
func (v validator) reportUnknownType(path, name string) {
	if !instanceTypePattern().MatchString(name) {
		v.errorf(path, name, unknownTypeHint(name), "is not a known EC2 instance type")
		return
	}

	v.warnf(path, name, unknownTypeHint(name),
		"is not in Slipway's list of instance types: plan asks EC2 for it; until then it counts as %s", archOfName(name))
}

func (v validator) checkMachineType(spec v1alpha1.InstanceGroupSpec) {
	t, ok := v.types.FindInstanceType(spec.MachineType)
	if !ok {
		v.reportUnknownType("spec.machineType", spec.MachineType)
		t = InstanceType{Arch: archOfName(spec.MachineType), MemoryMiB: minControlPlaneMiB}
	}

	if spec.Role == v1alpha1.RoleControlPlane && t.MemoryMiB < minControlPlaneMiB {
		v.warnf(
			"spec.machineType",
			spec.MachineType,
			"use t3.medium or larger",
			"has %d MiB of memory, too little for a control plane",
			t.MemoryMiB,
		)
	}

	if right := imageForArch(spec.Image, t.Arch); right != spec.Image {
		v.errorf(
			"spec.image",
			spec.Image,
			"use "+right,
			"does not match %s, whose architecture is %s",
			spec.MachineType,
			t.Arch,
		)
	}
}

func (v validator) checkSizes(spec v1alpha1.InstanceGroupSpec) {
	if spec.Role == v1alpha1.RoleControlPlane {
		if n := spec.MinMachines(); n != 1 && n != 3 && n != 5 {
			v.errorf(
				"spec.minSize",
				strconv.Itoa(n),
				"use 1, 3 or 5: an even number of etcd members tolerates no more failures",
				"is not a valid number of control-plane machines",
			)
		}

		if spec.MaxMachines() != spec.MinMachines() {
			v.errorf(
				"spec.maxSize",
				strconv.Itoa(spec.MaxMachines()),
				"leave it out, or set it to minSize",
				"must equal minSize %d in a control plane",
				spec.MinMachines(),
			)
		}

		return
	}

	least := 0
	if spec.Role == v1alpha1.RoleBastion {
		least = 1
	}

	v.checkRange("spec.minSize", spec.MinMachines(), least, maxGroupSize)
	v.checkRange("spec.maxSize", spec.MaxMachines(), least, maxGroupSize)
	if spec.MinMachines() > spec.MaxMachines() {
		v.errorf(
			"spec.maxSize",
			strconv.Itoa(spec.MaxMachines()),
			"raise it, or lower minSize",
			"is less than minSize %d",
			spec.MinMachines(),
		)
	}
}

func (v validator) checkGroupSubnets(spec v1alpha1.InstanceGroupSpec, c v1alpha1.Cluster) {
	known := map[string]v1alpha1.Subnet{}
	for _, s := range c.Spec.Networking.Subnets {
		known[s.Name] = s
	}

	seen := map[string]int{}
	zones := map[string]bool{}

	for i, name := range spec.Subnets {
		at := fmt.Sprintf("spec.subnets[%d]", i)
		v.checkUnique(at, name, seen, i, "duplicates subnets[%d]")
		s, ok := known[name]
		zones[s.Zone] = true

		switch {
		case c.Kind == "": // the manifest contains no cluster, so its subnets are unknown
		case !ok:
			v.errorf(
				at,
				name,
				"use one of "+strings.Join(slices.Sorted(maps.Keys(known)), ", "),
				"is not a subnet of the cluster",
			)

		case s.Type == v1alpha1.SubnetUtility:
			v.errorf(at, name, "use a Private or a Public subnet", "is a Utility subnet, which cannot contain machines")
		}
	}

	if c.Kind != "" && spec.Role == v1alpha1.RoleControlPlane && spec.MinMachines() > 1 &&
		len(zones) < min(spec.MinMachines(), 3) {
		v.warnf("spec.subnets", strings.Join(spec.Subnets, ", "), "use Private subnets in three zones",
			"are in too few zones (%d): losing one zone can lose the majority of etcd", len(zones))
	}
}

// volumeLimits are the limits of an EBS volume type (EC2 User Guide, Amazon EBS volume types).
type volumeLimits struct {
	minGiB, maxGiB, minIOPS, maxIOPS, iopsPerGiB int
}

func volumeLimitsByType() map[string]volumeLimits {
	return map[string]volumeLimits{
		"gp3": {1, 65536, 3000, 80000, 500},
		"io1": {4, 16384, 100, 64000, 50},
		"io2": {4, 65536, 100, 256000, 1000},
	}
}

// Limits of the throughput of gp3 in MiB/s: at most 2000, and at most a quarter MiB/s for each
// IOPS.
const (
	maxThroughput      = 2000
	iopsPerMiBs        = 4
	includedThroughput = 125
)

func (v validator) checkVolume(path string, vol v1alpha1.Volume) {
	limits, ok := volumeLimitsByType()[vol.Type]
	if !ok {
		v.checkChoice(path+".type", vol.Type, slices.Sorted(maps.Keys(volumeLimitsByType()))...)
		return
	}

	v.checkRange(path+".size", vol.Size, limits.minGiB, limits.maxGiB)
	// The IOPS that are included in the price of a gp3 volume do not depend on its size.
	most := min(limits.maxIOPS, max(limits.iopsPerGiB*vol.Size, limits.minIOPS))
	if vol.IOPS < limits.minIOPS || vol.IOPS > most {
		v.errorf(
			path+".iops",
			strconv.Itoa(vol.IOPS),
			fmt.Sprintf("use %d to %d", limits.minIOPS, most),
			"is not a valid number of IOPS for %s with %d GiB",
			vol.Type,
			vol.Size,
		)
	}

	v.checkThroughput(path+".throughput", vol)
}

func (v validator) checkThroughput(path string, vol v1alpha1.Volume) {
	if vol.Type != "gp3" {
		if vol.Throughput != 0 {
			v.errorf(path, strconv.Itoa(vol.Throughput), "leave it out, or use gp3", "is for gp3 only")
		}

		return
	}

	most := min(maxThroughput, max(includedThroughput, vol.IOPS/iopsPerMiBs))
	if vol.Throughput < includedThroughput || vol.Throughput > most {
		v.errorf(
			path,
			strconv.Itoa(vol.Throughput),
			fmt.Sprintf("use %d to %d, or more iops", includedThroughput, most),
			"is not a valid throughput for gp3 with %d IOPS",
			vol.IOPS,
		)
	}
}

func (v validator) checkNodeLabels(labels map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		at := "spec.nodeLabels[" + key + "]"
		if problems := validation.IsQualifiedName(key); len(problems) > 0 {
			v.errorf(at, "", "write the key as example.com/name", "is not a valid label key: %s", problems[0])
		}

		if problems := validation.IsValidLabelValue(labels[key]); len(problems) > 0 {
			v.errorf(
				at,
				labels[key],
				"use letters, digits, dashes, dots and underscores",
				"is not a valid label value: %s",
				problems[0],
			)
		}

		if isRestrictedLabel(key) {
			v.errorf(
				at,
				"",
				"use node.kubernetes.io/ or a domain of your own",
				"is a label that Kubernetes does not allow kubelets to set",
			)
		}
	}
}

// isRestrictedLabel reports whether the NodeRestriction admission plugin forbids kubelets to set a
// label. Of the Kubernetes domains, only node.kubernetes.io and kubelet.kubernetes.io are allowed.
func isRestrictedLabel(key string) bool {
	domain, _, found := strings.Cut(key, "/")
	if !found {
		return false
	}

	under := func(parent string) bool { return domain == parent || strings.HasSuffix(domain, "."+parent) }
	if under("node.kubernetes.io") || under("kubelet.kubernetes.io") {
		return false
	}

	return under("kubernetes.io") || under("k8s.io")
}

func (v validator) checkTaint(path, taint string) {
	hint := "write it as key=value:NoSchedule"
	rest, effect, ok := strings.Cut(taint, ":")
	if !ok {
		v.errorf(path, taint, hint, "has no taint effect")
		return
	}

	v.checkChoice(path, effect, "NoSchedule", "PreferNoSchedule", "NoExecute")
	key, value, _ := strings.Cut(rest, "=")
	if problems := validation.IsQualifiedName(key); len(problems) > 0 {
		v.errorf(path, taint, hint, "has an invalid key: %s", problems[0])
	}

	if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
		v.errorf(path, taint, hint, "has an invalid value: %s", problems[0])
	}
}

func imagePattern() *regexp.Regexp {
	return regexp.MustCompile(
		`^(ssm:(/[A-Za-z0-9_.-]+)+|(\d{12}|amazon|self)/[A-Za-z0-9()\[\] ./'@_*?-]{3,128}|ami-([0-9a-f]{8}|[0-9a-f]{17}))$`,
	)
}
