// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// InstanceGroup is a set of like machines.
type InstanceGroup struct {
	// APIVersion is slipway.dev/v1alpha1.
	APIVersion string `json:"apiVersion"`
	// Kind is InstanceGroup.
	Kind     string            `json:"kind"`
	Metadata Metadata          `json:"metadata"`
	Spec     InstanceGroupSpec `json:"spec"`
}

// Role of a machine.
type Role string

// The roles.
const (
	RoleControlPlane Role = "ControlPlane"
	RoleWorker       Role = "Worker"
	// RoleBastion is a machine that people reach the others through, by SSH. It runs no Kubernetes.
	RoleBastion Role = "Bastion"
)

// InstanceGroupSpec is the desired state of a group.
type InstanceGroupSpec struct {
	// Role is ControlPlane, Worker or Bastion.
	Role Role `json:"role"`
	// MachineType is an EC2 instance type.
	MachineType string `json:"machineType,omitempty"`
	// Image: debian-12, ubuntu-24.04, amazon-linux-2023 or flatcar; ssm:/PARAMETER; OWNER/NAME of which the newest of the
	// machine type's architecture is taken (NAME may hold * and ?); or ami-ID.
	Image string `json:"image,omitempty"`
	// UserDataFormat is CloudInit, or Ignition for Flatcar.
	UserDataFormat string `json:"userDataFormat,omitempty"`
	// MixedInstancesPolicy lets the group take other machine types and spot machines. Workers only.
	MixedInstancesPolicy MixedInstancesPolicy `json:"mixedInstancesPolicy,omitzero"`
	// MaxPrice of a spot machine in dollars an hour, such as "0.05"; unset, the price of an on-demand one.
	MaxPrice string `json:"maxPrice,omitempty"`
	// CapacityRebalance starts another machine as soon as AWS says that a spot machine is likely to be taken away.
	CapacityRebalance bool `json:"capacityRebalance,omitempty"`
	// WarmPool keeps machines that have downloaded everything and wait to join. Workers only.
	WarmPool WarmPool `json:"warmPool,omitzero"`
	// MinSize of the group. For a control plane it is the number of slots: 1, 3 or 5.
	MinSize int `json:"minSize,omitempty"`
	// MaxSize of the group.
	MaxSize int `json:"maxSize,omitempty"`
	// Autoscale lets the cluster autoscaler find the group: tags say that it may, and what its nodes will have.
	Autoscale bool `json:"autoscale,omitempty"`
	// Subnets by name.
	Subnets []string `json:"subnets,omitempty"`
	// RootVolume of each machine.
	RootVolume RootVolume `json:"rootVolume"`
	// NodeLabels for the nodes; keys may not be kubernetes.io ones that kubelets may not set.
	NodeLabels map[string]string `json:"nodeLabels,omitempty"`
	// Taints for the nodes, as key=value:Effect.
	Taints []string `json:"taints,omitempty"`
	// CloudLabels are tags for the group's machines, volumes, launch template and auto scaling group, beside the cluster's.
	CloudLabels map[string]string `json:"cloudLabels,omitempty"`
	// AdditionalSecurityGroups that exist already, by id, beside those of the role.
	AdditionalSecurityGroups []string `json:"additionalSecurityGroups,omitempty"`
	// IAM gives the group's machines rights of their own. Workers only.
	IAM GroupIAM `json:"iam,omitzero"`
	// Kubelet settings of the group's nodes.
	Kubelet Kubelet `json:"kubelet,omitzero"`
	// AdditionalUserData runs on each machine when it first boots, beside what brings the agent. It must hold no secret.
	AdditionalUserData []UserData `json:"additionalUserData,omitempty"`
	// InstanceMetadata service settings.
	InstanceMetadata InstanceMetadata `json:"instanceMetadata"`
}

// MixedInstancesPolicy says which machine types a group takes, and how many of its machines are spot ones.
type MixedInstancesPolicy struct {
	// Instances are machine types of one architecture, best first. machineType is one of them.
	Instances []string `json:"instances,omitempty"`
	// OnDemandBase is how many machines are on-demand ones, before any is a spot one.
	OnDemandBase int `json:"onDemandBase,omitempty"`
	// OnDemandAboveBase is the percentage of the machines above onDemandBase that are on-demand ones; 0: all are spot ones.
	OnDemandAboveBase int `json:"onDemandAboveBase,omitempty"`
	// OnDemandAllocationStrategy is prioritized (the first of instances that there is) or lowest-price.
	OnDemandAllocationStrategy string `json:"onDemandAllocationStrategy,omitempty"`
	// SpotAllocationStrategy is price-capacity-optimized, capacity-optimized, capacity-optimized-prioritized or lowest-price.
	SpotAllocationStrategy string `json:"spotAllocationStrategy,omitempty"`
}

// WarmPool is machines beside those of the group, from which it grows. They are no nodes until then.
type WarmPool struct {
	// MinSize of the pool.
	MinSize int `json:"minSize,omitempty"`
	// MaxGroupPreparedCapacity is how many machines group and pool have together, if that is more than minSize's; unset,
	// maxSize of the group.
	MaxGroupPreparedCapacity int `json:"maxGroupPreparedCapacity,omitempty"`
	// PoolState is Stopped, which costs the volumes only, or Running.
	PoolState string `json:"poolState,omitempty"`
	// ReuseOnScaleIn puts machines back into the pool when the group shrinks, instead of ending them.
	ReuseOnScaleIn bool `json:"reuseOnScaleIn,omitempty"`
}

// RootVolume is the volume that a machine boots from. It is always encrypted.
type RootVolume struct {
	// Type is gp3, io1 or io2.
	Type string `json:"type,omitempty"`
	// Size in GiB.
	Size int `json:"size,omitempty"`
	// IOPS of the volume.
	IOPS int `json:"iops,omitempty"`
	// Throughput in MiB/s, gp3 only.
	Throughput int `json:"throughput,omitempty"`
	// EncryptionKey is the ARN of a KMS key that exists already and that auto scaling's service-linked role may use.
	EncryptionKey string `json:"encryptionKey,omitempty"`
}

// GroupIAM is what a group's machines may do beside what its role needs. Such a group has an IAM role of its own.
type GroupIAM struct {
	// Policies are the ARNs of managed policies.
	Policies []string `json:"policies,omitempty"`
	// InlinePolicy is a policy document in JSON.
	InlinePolicy string `json:"inlinePolicy,omitempty"`
}

// Kubelet are settings of the kubelet, named as in KubeletConfiguration.
type Kubelet struct {
	// KubeReserved is kept for the kubelet and containerd: quantities of cpu, memory, ephemeral-storage and pid.
	KubeReserved map[string]string `json:"kubeReserved,omitempty"`
	// SystemReserved is kept for everything else that is no pod.
	SystemReserved map[string]string `json:"systemReserved,omitempty"`
	// EvictionHard are the signals and the least that must be left, such as memory.available: 200Mi or nodefs.available: 10%.
	EvictionHard map[string]string `json:"evictionHard,omitempty"`
}

// UserData is one more part of a machine's user data.
type UserData struct {
	// Name of the part, as it appears in cloud-init's logs.
	Name string `json:"name"`
	// Type is a MIME type that cloud-init knows, such as text/x-shellscript or text/cloud-config; with userDataFormat Ignition
	// it is application/vnd.coreos.ignition+json, and the part is merged into the machine's configuration.
	Type string `json:"type"`
	// Content of the part.
	Content string `json:"content"`
}

// InstanceMetadata is the metadata service's settings. Tokens (IMDSv2) are always required.
type InstanceMetadata struct {
	// HTTPPutResponseHopLimit, 1 to 64. 1 keeps it from pods.
	HTTPPutResponseHopLimit int `json:"httpPutResponseHopLimit,omitempty"`
}
