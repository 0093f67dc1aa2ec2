// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// karpenterSet returns a cluster with a discovery store whose workers are Karpenter's, with a change and defaults.
func karpenterSet(t *testing.T, change func(*manifest.Set, *v1alpha1.InstanceGroupSpec)) manifest.Set {
	t.Helper()
	set := podSet(t, func(*v1alpha1.ClusterSpec) {})
	set.Cluster.Spec.IAM = v1alpha1.ClusterIAM{}
	g := &set.Groups[1].Spec
	g.Manager = v1alpha1.ManagerKarpenter
	g.MinSize = nil
	g.MaxSize = new(5)
	g.MixedInstancesPolicy = v1alpha1.MixedInstancesPolicy{Instances: []string{"m5.large", "m5.xlarge"}}
	g.MachineType = "m5.large"
	g.Repair = v1alpha1.Repair{}
	change(&set, g)

	return manifest.Default(set)
}

// TestKarpenterGroup: a group of Karpenter has no minimum and no strategies, and everything that contradicts Karpenter is refused with
// field, value and fix.
func TestKarpenterGroup(t *testing.T) {
	set := karpenterSet(t, func(*manifest.Set, *v1alpha1.InstanceGroupSpec) {})
	if err := manifest.Validate(set).Err(); err != nil {
		t.Fatal(err)
	}
	if s := set.Groups[1].Spec; s.MinMachines() != 0 || s.MaxMachines() != 5 || s.MixedInstancesPolicy.SpotAllocationStrategy != "" {
		t.Errorf("sizes %d and %d, strategy %q", s.MinMachines(), s.MaxMachines(), s.MixedInstancesPolicy.SpotAllocationStrategy)
	}

	const policy = `{"Version":"2012-10-17","Statement":[]}`
	for want, change := range map[string]func(*manifest.Set, *v1alpha1.InstanceGroupSpec){
		`spec.manager "Kapenter": is not one of`: func(_ *manifest.Set, g *v1alpha1.InstanceGroupSpec) { g.Manager = "Kapenter" },
		`instancegroup/control-plane: spec.manager "Karpenter": is for workers only (leave it out)`: func(s *manifest.Set, _ *v1alpha1.InstanceGroupSpec) {
			s.Groups[0].Spec.Manager = v1alpha1.ManagerKarpenter
		},
		`spec.minSize "1": is not possible with spec.manager Karpenter, which starts machines for pending pods only (leave it out, or set it to 0)`: func(_ *manifest.Set, g *v1alpha1.InstanceGroupSpec) { g.MinSize = new(1) },
		`spec.maxSize: is required with spec.manager Karpenter`: func(_ *manifest.Set, g *v1alpha1.InstanceGroupSpec) { g.MaxSize = nil },
		`spec.mixedInstancesPolicy.onDemandBase "1": is not possible`: func(_ *manifest.Set, g *v1alpha1.InstanceGroupSpec) {
			g.MixedInstancesPolicy.OnDemandBase = 1
		},
		`spec.mixedInstancesPolicy.onDemandAboveBase "50": is not possible with spec.manager Karpenter, which keeps no share (use 0`: func(_ *manifest.Set, g *v1alpha1.InstanceGroupSpec) {
			g.MixedInstancesPolicy.OnDemandAboveBase = 50
		},
		`spec.mixedInstancesPolicy.spotAllocationStrategy "lowest-price": is for Auto Scaling`: func(_ *manifest.Set, g *v1alpha1.InstanceGroupSpec) {
			g.MixedInstancesPolicy.SpotAllocationStrategy = "lowest-price"
		},
		`spec.autoscale: is for Auto Scaling groups`: func(_ *manifest.Set, g *v1alpha1.InstanceGroupSpec) { g.Autoscale = true },
		`spec.maxPrice: is for Auto Scaling groups`:  func(_ *manifest.Set, g *v1alpha1.InstanceGroupSpec) { g.MaxPrice = "0.05" },
		`spec.warmPool: is for Auto Scaling groups`:  func(_ *manifest.Set, g *v1alpha1.InstanceGroupSpec) { g.WarmPool.MinSize = 1 },
		`spec.repair: is for Auto Scaling groups`:    func(_ *manifest.Set, g *v1alpha1.InstanceGroupSpec) { g.Repair.Disabled = true },
		`spec.iam.inlinePolicy: is not possible with spec.manager Karpenter: whoever has its role could start machines that have it (grant the permissions to the service account of a pod)`: func(_ *manifest.Set, g *v1alpha1.InstanceGroupSpec) {
			g.IAM.InlinePolicy = policy
		},
		`spec.iam.policies: is not possible`: func(_ *manifest.Set, g *v1alpha1.InstanceGroupSpec) {
			g.IAM.Policies = []string{"arn:aws:iam::123456789012:policy/x"}
		},
		`spec.additionalSecurityGroups: is not possible`: func(_ *manifest.Set, g *v1alpha1.InstanceGroupSpec) {
			g.AdditionalSecurityGroups = []string{"sg-0123456789abcdef0"}
		},
		`spec.rollingUpdate.canary: has no effect with spec.manager Karpenter`: func(_ *manifest.Set, g *v1alpha1.InstanceGroupSpec) { g.RollingUpdate.Canary = "2" },
		`spec.rollingUpdate.maxUnavailable "0": would keep Karpenter from replacing machines`: func(_ *manifest.Set, g *v1alpha1.InstanceGroupSpec) {
			g.RollingUpdate.MaxUnavailable = "0"
		},
		`spec.nodeLabels[node.kubernetes.io/kind] "x": is of a domain`: func(_ *manifest.Set, g *v1alpha1.InstanceGroupSpec) {
			g.NodeLabels = map[string]string{"node.kubernetes.io/kind": "x"}
		},
		`spec.machineType "m9.large": is not in Slipway's list of instance types, which spec.manager Karpenter needs`: func(_ *manifest.Set, g *v1alpha1.InstanceGroupSpec) {
			g.MixedInstancesPolicy = v1alpha1.MixedInstancesPolicy{}
			g.MachineType = "m9.large"
		},
		`spec.manager "Karpenter": needs a discovery store: Karpenter gets its credentials as a pod`: func(s *manifest.Set, _ *v1alpha1.InstanceGroupSpec) {
			s.Cluster.Spec.ServiceAccountIssuerDiscovery.DiscoveryStore = ""
			s.Cluster.Spec.KubeAPIServer.ServiceAccountIssuer = ""
		},
		`spec.manager "Karpenter": is not possible with an instance profile of yours`: func(s *manifest.Set, _ *v1alpha1.InstanceGroupSpec) {
			s.Cluster.Spec.CloudProvider.AWS.InstanceProfiles.Worker = "workers"
		},
		`spec.manager "Karpenter": is not possible with a security group of yours`: func(s *manifest.Set, _ *v1alpha1.InstanceGroupSpec) {
			s.Cluster.Spec.CloudProvider.AWS.SecurityGroups.Worker = "sg-0123456789abcdef0"
		},
		`spec.manager "Karpenter": is not possible with spec.networking.cni amazon-vpc`: func(s *manifest.Set, _ *v1alpha1.InstanceGroupSpec) {
			s.Cluster.Spec.Networking.CNI = v1alpha1.CNIAmazonVPC
		},
		`spec.manager "Karpenter": is not possible in the existing subnet `: func(s *manifest.Set, _ *v1alpha1.InstanceGroupSpec) {
			*s = manifest.Default(*s)
			for i := range s.Cluster.Spec.Networking.Subnets {
				s.Cluster.Spec.Networking.Subnets[i].ID = "subnet-0123456789abcdef0"
			}
		},
		`spec.iam.serviceAccountExternalPermissions[0] "kube-system/karpenter": is the service account of Karpenter`: func(s *manifest.Set, _ *v1alpha1.InstanceGroupSpec) {
			s.Cluster.Spec.IAM.ServiceAccountExternalPermissions = []v1alpha1.ServiceAccountPermissions{
				{Namespace: "kube-system", Name: "karpenter", AWS: v1alpha1.ServiceAccountAWS{InlinePolicy: policy}},
			}
		},
	} {
		err := manifest.Validate(karpenterSet(t, change)).Err()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %s, got %v", want, err)
		}
	}
}
