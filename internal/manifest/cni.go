// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// defaultPods is the range of pods of an overlay network.
const defaultPods = "10.244.0.0/16"

// leastPods is the smallest number of pods for which a machine is useful: its own and some others.
const leastPods = 10

// HasVPCPods reports whether pods of a cluster have addresses of the VPC.
func HasVPCPods(c v1alpha1.Cluster) bool { return c.Spec.Networking.CNI == v1alpha1.CNIAmazonVPC }

// HasCilium reports whether a channel of add-ons installs Cilium as the network of pods.
func HasCilium(c v1alpha1.Cluster) bool { return c.Spec.Networking.CNI == v1alpha1.CNICilium }

func defaultPodCIDR(s *Set) {
	n := &s.Cluster.Spec.Networking
	if HasVPCPods(s.Cluster) {
		setDefaultText(&n.PodCIDR, n.NetworkCIDR)
		return
	}

	setDefaultText(&n.PodCIDR, defaultPods)
}

func defaultFlannelBackend(s *Set) {
	if !HasVPCPods(s.Cluster) && !HasCilium(s.Cluster) {
		setDefaultText(&s.Cluster.Spec.Networking.Flannel.Backend, v1alpha1.FlannelVXLAN)
	}
}

const pathCNI = "spec.networking.cni"

// checkCNI checks the pod network plugin, and the fields of another one.
func checkCNI(v validator, n v1alpha1.Networking) {
	switch n.CNI {
	case "calico":
		v.errorf(pathCNI, n.CNI, "use flannel, which enforces NetworkPolicies too, amazon-vpc or cilium",
			"is not supported: no list of the digests of its images is known, so its content could not be pinned")
		return
	case v1alpha1.CNICilium:
		if n.Flannel.Backend != "" {
			v.errorf("spec.networking.flannel.backend", n.Flannel.Backend, "leave it out",
				"has no effect with spec.networking.cni %s", n.CNI)
		}

		return
	case v1alpha1.CNIAmazonVPC:
		if n.Flannel.Backend != "" {
			v.errorf("spec.networking.flannel.backend", n.Flannel.Backend, "leave it out",
				"has no effect with spec.networking.cni %s, which has no overlay: packets of pods are those of the VPC", n.CNI)
		}

		if n.PodCIDR != n.NetworkCIDR {
			v.errorf("spec.networking.podCIDR", n.PodCIDR, "leave it out",
				"has no effect with spec.networking.cni %s: pods have addresses of the subnets", n.CNI)
		}

		return
	}

	v.checkChoice(pathCNI, n.CNI, v1alpha1.CNIFlannel, v1alpha1.CNIAmazonVPC, v1alpha1.CNICilium)
	v.checkChoice(
		"spec.networking.flannel.backend",
		n.Flannel.Backend,
		v1alpha1.FlannelVXLAN,
		v1alpha1.FlannelWireGuard,
	)
}

// checkVPCPods checks what the Amazon VPC CNI needs: an identity of its own, and subnets and security groups with the tag
// of the cluster, since its role may use no others.
func checkVPCPods(v validator, c v1alpha1.Cluster) {
	if !HasVPCPods(c) {
		return
	}

	if !HasPodIdentity(c) {
		v.errorf(pathCNI, v1alpha1.CNIAmazonVPC, "set spec.serviceAccountIssuerDiscovery.discoveryStore when you create a cluster",
			"needs a discovery store: its daemon gets its credentials as a pod")
	}

	if c.Spec.API.LoadBalancer.Type == LoadBalancerElasticIP {
		v.errorf("spec.api.loadBalancer.type", c.Spec.API.LoadBalancer.Type, "use Public or Internal",
			"is not possible with spec.networking.cni %s: EC2 associates an address by machine only while it has one interface",
			v1alpha1.CNIAmazonVPC)
	}

	for i, p := range c.Spec.IAM.ServiceAccountExternalPermissions {
		if p.Namespace == v1alpha1.VPCCNINamespace && p.Name == v1alpha1.VPCCNIName {
			v.errorf(fmt.Sprintf("spec.iam.serviceAccountExternalPermissions[%d]", i), p.Namespace+"/"+p.Name, "leave it out",
				"is the service account of spec.networking.cni %s, which has a role already", v1alpha1.CNIAmazonVPC)
		}
	}

	const others = "is not possible with spec.networking.cni amazon-vpc: " +
		"the role of its daemon may use what has the cluster's tag only"
	groups := c.Spec.CloudProvider.AWS.SecurityGroups
	for _, g := range []struct{ field, id string }{{"controlPlane", groups.ControlPlane}, {"worker", groups.Worker}} {
		if g.id != "" {
			v.errorf("spec.cloudProvider.aws.securityGroups."+g.field, g.id, "leave it out: Slipway creates the group", others)
		}
	}

	for i, s := range c.Spec.Networking.Subnets {
		if s.ID != "" && s.Type != v1alpha1.SubnetUtility {
			v.errorf(fmt.Sprintf("spec.networking.subnets[%d].id", i), s.ID, "write a cidr: Slipway creates the subnet", others)
		}
	}
}

// checkGroupPods checks a group of a cluster whose pods have addresses of the VPC.
func checkGroupPods(v validator, spec v1alpha1.InstanceGroupSpec, c v1alpha1.Cluster) {
	if HasCilium(c) && spec.WarmPool.PoolState != "" {
		v.errorf("spec.warmPool.poolState", spec.WarmPool.PoolState, "leave spec.warmPool out",
			"is not possible with spec.networking.cni %s: machines of a pool pull the images of the network, which a channel has",
			v1alpha1.CNICilium)
	}

	if !HasVPCPods(c) || spec.Role == v1alpha1.RoleBastion {
		return
	}

	if len(spec.AdditionalSecurityGroups) > 0 {
		v.errorf("spec.additionalSecurityGroups", spec.AdditionalSecurityGroups[0], "leave it out",
			"is not possible with spec.networking.cni amazon-vpc: pods would need it too, and the role of its daemon may use "+
				"security groups with the cluster's tag only")
	}

	pods, machineType := v.types.PodCapacity(spec)
	path := "spec.machineType"
	if slices.Contains(spec.MixedInstancesPolicy.Instances, machineType) {
		path = "spec.mixedInstancesPolicy.instances"
	}

	switch most := spec.Kubelet.MaxPods; {
	case pods == 0: // EC2 must describe the type
	case pods < leastPods:
		v.errorf(path, machineType, "use a larger type, such as t3.medium", "has addresses for %d pods only", pods)
	case most > pods:
		v.errorf("spec.kubelet.maxPods", strconv.Itoa(most), fmt.Sprintf("use at most %d, or leave it out", pods),
			"is more than the %d pods that %s has addresses for", pods, machineType)
	}
}
