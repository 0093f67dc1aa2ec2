// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// InstanceGroup is a set of identical machines.
type InstanceGroup struct {
	// APIVersion is slipway.dev/v1alpha1.
	APIVersion string `json:"apiVersion"`

	// Kind is InstanceGroup.
	Kind     string            `json:"kind"`
	Metadata Metadata          `json:"metadata"`
	Spec     InstanceGroupSpec `json:"spec"`
}

// Role is the purpose of a machine.
type Role string

// The roles of machines.
const (
	// RoleControlPlane is a machine that runs the control plane and an etcd member.
	RoleControlPlane Role = "ControlPlane"
	// RoleWorker is a machine that runs the users' pods.
	RoleWorker Role = "Worker"
	// RoleBastion is an SSH jump host. It does not run Kubernetes.
	RoleBastion Role = "Bastion"
)

// InstanceGroupSpec is the desired state of a group.
type InstanceGroupSpec struct {
	// Role is ControlPlane, Worker or Bastion.
	Role Role `json:"role"`

	// MachineType is an EC2 instance type, such as t3.large.
	MachineType string `json:"machineType,omitempty"`

	// Image is one of: the name of a distribution (debian-12, ubuntu-24.04, amazon-linux-2023 or
	// flatcar); ssm:/PARAMETER; OWNER/NAME, which selects the newest image of the machine type's
	// architecture (NAME may contain * and ?); or ami-ID.
	Image string `json:"image,omitempty"`

	// KubernetesVersion is the version of the group's kubelets, at most three minor versions older than the
	// cluster's and never newer. If unset, it is the cluster's. Workers only. An upgrade sets it until the
	// control plane is upgraded, and unsets it then.
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`

	// UserDataFormat is CloudInit, or Ignition for Flatcar.
	UserDataFormat string `json:"userDataFormat,omitempty"`

	// MixedInstancesPolicy allows the group to use other machine types, for the control plane if EC2 has no capacity for
	// the first ones, and spot instances, for workers only.
	MixedInstancesPolicy MixedInstancesPolicy `json:"mixedInstancesPolicy,omitzero"`

	// MaxPrice is the highest price of a spot instance in dollars an hour, such as "0.05". If
	// unset, it is the on-demand price.
	MaxPrice string `json:"maxPrice,omitempty"`

	// Repair replaces workers whose node is not Ready for too long. Workers only.
	Repair Repair `json:"repair,omitzero"`

	// CapacityRebalance starts a replacement as soon as AWS reports that a spot instance is likely
	// to be interrupted.
	CapacityRebalance bool `json:"capacityRebalance,omitempty"`

	// WarmPool keeps instances that have downloaded everything and wait to join the cluster.
	// Workers only.
	WarmPool WarmPool `json:"warmPool,omitzero"`

	// MinSize is the smallest number of machines: 0 or more for workers. For a control plane it is
	// the number of slots: 1, 3 or 5.
	MinSize *int `json:"minSize,omitempty"`

	// MaxSize is the largest number of machines. With 0, the group has none.
	MaxSize *int `json:"maxSize,omitempty"`

	// Manager starts and ends the group's machines: CloudGroup, an Auto Scaling group, which is the default,
	// or Karpenter, which starts a machine for pods that fit nowhere and ends it when it is empty. Workers only. With
	// Karpenter, minSize is 0, maxSize is the largest number of machines, and mixedInstancesPolicy with
	// onDemandAboveBase 0 prefers spot instances and takes on-demand ones if EC2 has no capacity for them. The cluster
	// needs a discovery store and the add-on Karpenter.
	Manager string `json:"manager,omitempty"`

	// Autoscale adds the tags with which the cluster autoscaler finds the group and learns the
	// labels and taints of its nodes.
	Autoscale bool `json:"autoscale,omitempty"`

	// Subnets are the names of the subnets that the machines are in.
	Subnets []string `json:"subnets,omitempty"`

	// RootVolume of each machine.
	RootVolume RootVolume `json:"rootVolume"`

	// NodeLabels are set on the nodes. Keys must not be kubernetes.io labels that kubelets are not
	// allowed to set.
	NodeLabels map[string]string `json:"nodeLabels,omitempty"`

	// Taints are set on the nodes, each as key=value:Effect.
	Taints []string `json:"taints,omitempty"`

	// CloudLabels are tags for the group's machines, volumes, launch template and Auto Scaling
	// group, in addition to the cluster's tags.
	CloudLabels map[string]string `json:"cloudLabels,omitempty"`

	// AdditionalSecurityGroups are the IDs of existing security groups to use in addition to those
	// of the role.
	AdditionalSecurityGroups []string `json:"additionalSecurityGroups,omitempty"`

	// IAM gives the group's machines permissions of their own. Workers only.
	IAM GroupIAM `json:"iam,omitzero"`

	// Kubelet settings of the group's nodes.
	Kubelet Kubelet `json:"kubelet,omitzero"`

	// Sysctls are kernel settings of the group's machines by name, such as net.core.somaxconn. A setting that is taken
	// out keeps its value until the machine boots again.
	Sysctls map[string]string `json:"sysctls,omitempty"`

	// RollingUpdate configures how the group's machines are replaced. Not for bastions.
	RollingUpdate RollingUpdate `json:"rollingUpdate,omitzero"`

	// AdditionalUserData runs on each machine at first boot, in addition to the part that installs
	// the agent. It must not contain secrets.
	AdditionalUserData []UserData `json:"additionalUserData,omitempty"`

	// InstanceMetadata configures the instance metadata service.
	InstanceMetadata InstanceMetadata `json:"instanceMetadata"`
}

// The values of spec.manager of a group.
const (
	ManagerCloudGroup = "CloudGroup"
	ManagerKarpenter  = "Karpenter"
)

// UsesKarpenter reports whether Karpenter starts and ends the machines of the group.
func (s InstanceGroupSpec) UsesKarpenter() bool { return s.Manager == ManagerKarpenter }

// MinMachines returns the smallest number of machines of the group, 0 if it is unset.
func (s InstanceGroupSpec) MinMachines() int { return numberOrZero(s.MinSize) }

// MaxMachines returns the largest number of machines of the group, 0 if it is unset.
func (s InstanceGroupSpec) MaxMachines() int { return numberOrZero(s.MaxSize) }

func numberOrZero(n *int) int {
	if n == nil {
		return 0
	}

	return *n
}

// MixedInstancesPolicy configures the machine types of a group, and how many of its machines are
// spot instances.
type MixedInstancesPolicy struct {
	// Instances are machine types of one architecture, in order of preference. machineType is one
	// of them.
	Instances []string `json:"instances,omitempty"`

	// OnDemandBase is the number of on-demand instances that the group has before any spot
	// instance.
	OnDemandBase int `json:"onDemandBase,omitempty"`

	// OnDemandAboveBase is the percentage of on-demand instances among those above onDemandBase. 0
	// means that all of them are spot instances. A control plane has none: it is 100.
	OnDemandAboveBase int `json:"onDemandAboveBase,omitempty"`

	// OnDemandAllocationStrategy is prioritized (the first available type of instances) or
	// lowest-price.
	OnDemandAllocationStrategy string `json:"onDemandAllocationStrategy,omitempty"`

	// SpotAllocationStrategy is price-capacity-optimized, capacity-optimized,
	// capacity-optimized-prioritized or lowest-price.
	SpotAllocationStrategy string `json:"spotAllocationStrategy,omitempty"`
}

// WarmPool configures initialized instances from which the group grows. They are not nodes until
// the group uses them.
type WarmPool struct {
	// MinSize is the smallest number of instances in the pool.
	MinSize int `json:"minSize,omitempty"`

	// MaxGroupPreparedCapacity is the number of machines that group and pool have together, if that
	// is more than minSize requires. If unset, it is the group's maxSize.
	MaxGroupPreparedCapacity int `json:"maxGroupPreparedCapacity,omitempty"`

	// PoolState is Stopped, for which AWS charges the volumes only, or Running.
	PoolState string `json:"poolState,omitempty"`

	// ReuseOnScaleIn returns machines to the pool when the group shrinks, instead of terminating
	// them. They are drained first, and are no nodes while they are stopped. The pool must be
	// Stopped.
	ReuseOnScaleIn bool `json:"reuseOnScaleIn,omitempty"`
}

// RootVolume is the volume that a machine boots from. It is always encrypted.
type RootVolume struct {
	// Type is gp3, io1 or io2.
	Type string `json:"type,omitempty"`

	// Size in GiB.
	Size int `json:"size,omitempty"`

	// IOPS of the volume: I/O operations a second.
	IOPS int `json:"iops,omitempty"`

	// Throughput in MiB/s, for gp3 only.
	Throughput int `json:"throughput,omitempty"`

	// EncryptionKey is the ARN of an existing KMS key. Auto Scaling's service-linked role must be
	// allowed to use it.
	EncryptionKey string `json:"encryptionKey,omitempty"`
}

// GroupIAM configures permissions of a group's machines in addition to those of its role. A group
// with such permissions has its own IAM role.
type GroupIAM struct {
	// Policies are the ARNs of managed policies.
	Policies []string `json:"policies,omitempty"`

	// InlinePolicy is a policy document in JSON.
	InlinePolicy string `json:"inlinePolicy,omitempty"`
}

// Kubelet configures the kubelet. The fields have the names of KubeletConfiguration.
type Kubelet struct {
	// KubeReserved is reserved for the kubelet and containerd: quantities of cpu, memory,
	// ephemeral-storage and pid.
	KubeReserved map[string]string `json:"kubeReserved,omitempty"`

	// SystemReserved is reserved for all other processes that are not in a pod: quantities as in
	// kubeReserved.
	SystemReserved map[string]string `json:"systemReserved,omitempty"`

	// EvictionHard are the eviction signals and the least that must be left, such as
	// memory.available: 200Mi or nodefs.available: 10%.
	EvictionHard map[string]string `json:"evictionHard,omitempty"`

	// EvictionSoft are thresholds as in evictionHard at which pods are evicted after a grace period, with their own
	// termination grace period.
	EvictionSoft map[string]string `json:"evictionSoft,omitempty"`

	// EvictionSoftGracePeriod is how long each signal of evictionSoft must be below its threshold, such as 2m.
	EvictionSoftGracePeriod map[string]string `json:"evictionSoftGracePeriod,omitempty"`

	// MaxPods is the largest number of pods on a node, 10 to 250: a node has 254 pod addresses. Unset means Kubernetes'
	// default, 110. With spec.networking.cni amazon-vpc of the cluster, unset means the number that the machine type with the
	// fewest addresses has, and it can only be lowered.
	MaxPods int `json:"maxPods,omitempty"`

	// PodPidsLimit is the largest number of processes in a pod, 64 or more. Unset means 4096.
	PodPidsLimit int `json:"podPidsLimit,omitempty"`

	// ImageGCHighThresholdPercent is the share of the disk in use above which unused images are deleted, 1 to 100.
	// Unset means Kubernetes' default, 85.
	ImageGCHighThresholdPercent int `json:"imageGCHighThresholdPercent,omitempty"`

	// ImageGCLowThresholdPercent is the share of the disk in use down to which unused images are deleted. Unset means
	// Kubernetes' default, 80.
	ImageGCLowThresholdPercent int `json:"imageGCLowThresholdPercent,omitempty"`

	// ContainerLogMaxSize is the size at which a new log file of a container begins, such as 50Mi. Unset means
	// Kubernetes' default, 10Mi.
	ContainerLogMaxSize string `json:"containerLogMaxSize,omitempty"`

	// ContainerLogMaxFiles is how many log files of a container are kept, 2 or more. Unset means Kubernetes' default, 5.
	ContainerLogMaxFiles int `json:"containerLogMaxFiles,omitempty"`

	// MaxParallelImagePulls is how many images are pulled at the same time, 1 to 64. Unset means 4.
	MaxParallelImagePulls int `json:"maxParallelImagePulls,omitempty"`

	// AllowedUnsafeSysctls are kernel settings that pods may set for themselves although they are not known to be safe,
	// such as net.core.somaxconn or net.ipv4.*.
	AllowedUnsafeSysctls []string `json:"allowedUnsafeSysctls,omitempty"`
}

// UserData is one additional part of a machine's user data.
type UserData struct {
	// Name of the part, as it appears in cloud-init's logs.
	Name string `json:"name"`

	// Type is a MIME type that cloud-init supports, such as text/x-shellscript or
	// text/cloud-config. With userDataFormat Ignition it is application/vnd.coreos.ignition+json,
	// and the part is merged into the machine's Ignition configuration.
	Type string `json:"type"`

	// Content of the part.
	Content string `json:"content"`
}

// InstanceMetadata configures the instance metadata service. Tokens (IMDSv2) are always required.
type InstanceMetadata struct {
	// HTTPPutResponseHopLimit is the hop limit of token responses, 1 to 64. With 1, pods cannot
	// reach the service.
	HTTPPutResponseHopLimit int `json:"httpPutResponseHopLimit,omitempty"`
	// AllowedCgroups are control groups of a machine whose processes may reach the service, besides Slipway's agent and
	// the operating system's own programs, such as system.slice/amazon-cloudwatch-agent.service. All others are
	// refused, also containers in the network of the machine; kubepods allows all of these.
	AllowedCgroups []string `json:"allowedCgroups,omitempty"`
}
