// SPDX-License-Identifier: Apache-2.0

package manifest

import "github.com/slipway-k8s/slipway/api/v1alpha1"

// podsOfHostNetwork is how many pods of a machine have the address of the machine itself, by the convention of the Amazon VPC CNI:
// its own daemon and kube-proxy.
const podsOfHostNetwork = 2

// PodCapacity returns how many pods a machine of the type can have if each has an address of the VPC: those of all interfaces, of
// which the first one is the interface's own. It is zero if the limits of the type are not known. It is the number in
// https://github.com/aws/amazon-vpc-cni-k8s/blob/master/misc/eni-max-pods.txt.
func (t InstanceType) PodCapacity() int {
	if t.Interfaces == 0 || t.AddressesPerInterface == 0 {
		return 0
	}

	return t.Interfaces*(t.AddressesPerInterface-1) + podsOfHostNetwork
}

// PodCapacity returns how many pods a machine of a group can have if each has an address of the VPC: that of the group's machine type
// with the fewest, and at most what a kubelet may have. It also returns the name of that type. It is zero if EC2 must describe
// the type first.
func (s Set) PodCapacity(spec v1alpha1.InstanceGroupSpec) (pods int, machineType string) {
	for i, name := range MachineTypes(spec) {
		t, _ := s.FindInstanceType(name)
		if n := t.PodCapacity(); i == 0 || n < pods {
			pods = n
			machineType = name
		}
	}

	return min(pods, maxPodsOfNode), machineType
}
