// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// vpcSet returns a cluster with the Amazon VPC CNI and a discovery store, without the fields of the overlay, with a change and defaults.
func vpcSet(t *testing.T, change func(*manifest.Set)) manifest.Set {
	t.Helper()
	set := podSet(t, func(*v1alpha1.ClusterSpec) {})
	set.Cluster.Spec.IAM = v1alpha1.ClusterIAM{}
	n := &set.Cluster.Spec.Networking
	n.CNI = v1alpha1.CNIAmazonVPC
	n.PodCIDR = ""
	n.Flannel.Backend = ""
	change(&set)

	return manifest.Default(set)
}

// TestVPCPods: pods have the range of the VPC and no overlay, and what contradicts that is refused with field, value and fix.
func TestVPCPods(t *testing.T) {
	set := vpcSet(t, func(*manifest.Set) {})
	if err := manifest.Validate(set).Err(); err != nil {
		t.Fatal(err)
	}
	n := set.Cluster.Spec.Networking
	if n.PodCIDR != n.NetworkCIDR || n.Flannel.Backend != "" {
		t.Errorf("the range of pods is %s in %s, and the backend of flannel %q", n.PodCIDR, n.NetworkCIDR, n.Flannel.Backend)
	}

	// The range of the VPC need not have a /24 for each machine.
	small := vpcSet(t, func(s *manifest.Set) { s.Groups[1].Spec.MaxSize = new(300) })
	if err := manifest.Validate(small).Err(); err != nil && strings.Contains(err.Error(), "podCIDR") {
		t.Error(err)
	}

	for want, change := range map[string]func(*manifest.Set){
		`spec.networking.podCIDR "10.244.0.0/16": has no effect with spec.networking.cni amazon-vpc: pods have addresses of the subnets (leave it out)`: func(s *manifest.Set) {
			s.Cluster.Spec.Networking.PodCIDR = "10.244.0.0/16"
		},
		`spec.networking.flannel.backend "WireGuard": has no effect with spec.networking.cni amazon-vpc, which has no overlay`: func(s *manifest.Set) {
			s.Cluster.Spec.Networking.Flannel.Backend = v1alpha1.FlannelWireGuard
		},
		`spec.networking.cni "amazon-vpc": needs a discovery store: its daemon gets its credentials as a pod`: func(s *manifest.Set) {
			s.Cluster.Spec.ServiceAccountIssuerDiscovery.DiscoveryStore = ""
			s.Cluster.Spec.KubeAPIServer.ServiceAccountIssuer = ""
		},
		`spec.iam.serviceAccountExternalPermissions[0] "kube-system/aws-node": is the service account of spec.networking.cni`: func(s *manifest.Set) {
			s.Cluster.Spec.IAM.ServiceAccountExternalPermissions = []v1alpha1.ServiceAccountPermissions{
				{Namespace: "kube-system", Name: "aws-node", AWS: v1alpha1.ServiceAccountAWS{InlinePolicy: `{"Version":"2012-10-17","Statement":[]}`}},
			}
		},
		`spec.cloudProvider.aws.securityGroups.worker "sg-0123456789abcdef0": is not possible with spec.networking.cni amazon-vpc`: func(s *manifest.Set) {
			s.Cluster.Spec.CloudProvider.AWS.SecurityGroups.Worker = "sg-0123456789abcdef0"
		},
		`spec.api.loadBalancer.type "ElasticIP": is not possible with spec.networking.cni amazon-vpc`: func(s *manifest.Set) {
			s.Cluster.Spec.API.LoadBalancer.Type = "ElasticIP"
		},
		`spec.additionalSecurityGroups "sg-0123456789abcdef0": is not possible with spec.networking.cni amazon-vpc`: func(s *manifest.Set) {
			s.Groups[1].Spec.AdditionalSecurityGroups = []string{"sg-0123456789abcdef0"}
		},
		`spec.networking.subnets[0].id "subnet-0123456789abcdef0": is not possible with spec.networking.cni amazon-vpc`: func(s *manifest.Set) {
			s.Cluster.Spec.Networking.NetworkID = "vpc-0123456789abcdef0"
			s.Cluster.Spec.Networking.Subnets[0].ID = "subnet-0123456789abcdef0"
		},
		`spec.machineType "t3.micro": has addresses for 4 pods only (use a larger type, such as t3.medium)`: func(s *manifest.Set) {
			s.Groups[1].Spec.MachineType = "t3.micro"
		},
		`spec.kubelet.maxPods "12": is more than the 11 pods that t3.small has addresses for`: func(s *manifest.Set) {
			s.Groups[1].Spec.Kubelet.MaxPods = 12
			s.Groups[1].Spec.MixedInstancesPolicy.Instances = []string{"t3.large", "t3.small"}
		},
		`spec.kubelet.maxPods "36": is more than the 35 pods that t3.large has addresses for (use at most 35, or leave it out)`: func(s *manifest.Set) {
			s.Groups[1].Spec.Kubelet.MaxPods = 36
		},
	} {
		err := manifest.Validate(vpcSet(t, change)).Err()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
}

// TestDescribedTypesLimitPods: what EC2 says of a type that the embedded list does not have limits the pods, too.
func TestDescribedTypesLimitPods(t *testing.T) {
	set := vpcSet(t, func(s *manifest.Set) {
		s.Groups[1].Spec.MachineType = "m9x.large"
		s.Groups[1].Spec.Kubelet.MaxPods = 30
	})
	if err := manifest.Validate(set).Err(); err != nil {
		t.Fatal(err)
	}
	for pods, want := range map[int]string{29: `spec.kubelet.maxPods "30": is more than the 29 pods that m9x.large has`, 38: ""} {
		described := manifest.InstanceType{Name: "m9x.large", Arch: "amd64", MemoryMiB: 8192, Interfaces: 3, AddressesPerInterface: (pods-2)/3 + 1}
		_, fs := set.WithDescribedTypes([]string{"m9x.large"}, []manifest.InstanceType{described})
		if err := fs.Err(); (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d pods: %v, want %q", pods, err, want)
		}
	}
}

// TestCilium: Cilium has an overlay with the range of flannel and none of its settings; groups have no warm pools, whose machines would
// pull images that only a channel names.
func TestCilium(t *testing.T) {
	with := func(change func(*manifest.Set)) manifest.Set {
		return vpcSet(t, func(s *manifest.Set) {
			s.Cluster.Spec.Networking.CNI = v1alpha1.CNICilium
			change(s)
		})
	}
	set := with(func(*manifest.Set) {})
	if err := manifest.Validate(set).Err(); err != nil {
		t.Fatal(err)
	}
	if n := set.Cluster.Spec.Networking; n.PodCIDR != "10.244.0.0/16" || n.Flannel.Backend != "" {
		t.Errorf("the range of pods is %s, and the backend of flannel %q", n.PodCIDR, n.Flannel.Backend)
	}
	for want, change := range map[string]func(*manifest.Set){
		`spec.networking.flannel.backend "WireGuard": has no effect with spec.networking.cni cilium`: func(s *manifest.Set) {
			s.Cluster.Spec.Networking.Flannel.Backend = v1alpha1.FlannelWireGuard
		},
		`spec.warmPool.poolState "Stopped": is not possible with spec.networking.cni cilium`: func(s *manifest.Set) {
			s.Groups[1].Spec.WarmPool.PoolState = "Stopped"
		},
	} {
		if err := manifest.Validate(with(change)).Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
