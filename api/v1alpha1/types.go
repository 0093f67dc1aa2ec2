// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 defines the documents that an operator writes: Cluster and InstanceGroup, in API
// group slipway.dev. A manifest file contains one Cluster and its InstanceGroups. Field names
// follow kops and Kubernetes where those have a name for the same thing.
//
// The package contains types only. Defaults and validation are in internal/manifest, and
// docs/reference/manifest.md is generated from the comments of these fields.
package v1alpha1

// APIVersion is the apiVersion of every document in this package.
const APIVersion = "slipway.dev/v1alpha1"

// The kinds of documents.
const (
	KindCluster       = "Cluster"
	KindInstanceGroup = "InstanceGroup"
)

// ClusterLabel is the label of an InstanceGroup that names the cluster which the group belongs to.
const ClusterLabel = "slipway.dev/cluster"

// Metadata identifies a document.
type Metadata struct {
	// Name of the document: a DNS label of at most 40 characters.
	Name string `json:"name"`

	// Labels of the document. An InstanceGroup has the label slipway.dev/cluster.
	Labels map[string]string `json:"labels,omitempty"`
}

// Cluster is one Kubernetes cluster.
type Cluster struct {
	// APIVersion is slipway.dev/v1alpha1.
	APIVersion string `json:"apiVersion"`

	// Kind is Cluster.
	Kind     string      `json:"kind"`
	Metadata Metadata    `json:"metadata"`
	Spec     ClusterSpec `json:"spec"`
}

// ClusterSpec is the desired state of a cluster.
type ClusterSpec struct {
	// KubernetesVersion is the version of Kubernetes to run, without "v". The asset catalog must
	// contain it.
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`

	// CloudProvider configures the cloud that the cluster runs in.
	CloudProvider CloudProvider `json:"cloudProvider"`

	// Networking configures the network of machines, pods and Services.
	Networking Networking `json:"networking"`

	// API configures how clients reach the Kubernetes API.
	API APIAccess `json:"api"`

	// Etcd configures etcd: its volumes and its timing.
	Etcd Etcd `json:"etcd"`

	// KubeAPIServer configures kube-apiserver.
	KubeAPIServer KubeAPIServer `json:"kubeAPIServer,omitzero"`

	// KubeControllerManager configures kube-controller-manager.
	KubeControllerManager KubeControllerManager `json:"kubeControllerManager,omitzero"`

	// ServiceAccountIssuerDiscovery lets AWS verify tokens of service accounts, for IAM roles of pods.
	ServiceAccountIssuerDiscovery ServiceAccountIssuerDiscovery `json:"serviceAccountIssuerDiscovery,omitzero"`

	// IAM configures IAM roles of pods.
	IAM ClusterIAM `json:"iam,omitzero"`

	// Assets configures mirrors that machines download from instead of the upstream locations.
	Assets Assets `json:"assets,omitzero"`

	// ConfigStore configures the S3 location from which machines read their node documents.
	ConfigStore ConfigStore `json:"configStore,omitzero"`

	// DeletionProtection makes 'slipway delete cluster' fail, and enables AWS's deletion protection
	// on the API's load balancers.
	DeletionProtection bool `json:"deletionProtection,omitempty"`

	// SSHAccess lists the CIDRs that may connect to port 22 of the bastions.
	SSHAccess []string `json:"sshAccess,omitempty"`

	// SSHKeyName is the name of an existing EC2 key pair, which is installed for the first user of
	// every machine.
	SSHKeyName string `json:"sshKeyName,omitempty"`

	// SSHKey is a public key in OpenSSH format, from which Slipway creates a key pair.
	SSHKey string `json:"sshKey,omitempty"`

	// Topology configures the DNS name of the API, and the load balancer of the bastions.
	Topology Topology `json:"topology,omitzero"`

	// DNSZone is the Route 53 hosted zone for the API's name: the name of a zone to create, or the
	// ID of an existing zone, which is never deleted.
	DNSZone string `json:"dnsZone,omitempty"`

	// RollingUpdate configures how machines are replaced, for groups that do not set a field
	// themselves.
	RollingUpdate RollingUpdate `json:"rollingUpdate,omitzero"`

	// Upgrade configures upgrades of Kubernetes that happen by themselves.
	Upgrade Upgrade `json:"upgrade,omitzero"`

	// MachineAccess configures access to machines other than SSH from outside the VPC.
	MachineAccess MachineAccess `json:"machineAccess,omitzero"`

	// Tags are set on every AWS resource of the cluster, in addition to Slipway's own tags. Keys
	// must not begin with slipway.dev/, aws: or kubernetes.io/. Keys and values have letters,
	// digits, spaces and _ . : / = + - @, which all services of AWS allow, and keys differ in more
	// than the case of their letters.
	Tags map[string]string `json:"tags,omitempty"`
}

// CloudProvider has one member per supported cloud, of which AWS is the only one, and what is the same for all clouds.
type CloudProvider struct {
	AWS AWSProvider `json:"aws"`

	// NodeController is who initializes the nodes of new machines, and deletes those of machines that have ended: Agent, which
	// is Slipway, or External, which is the cloud controller manager of AWS. It must be installed then, with the channel
	// examples/addons/cloud-provider.yaml: until it has initialized a node, pods are not scheduled there. External needs
	// spec.serviceAccountIssuerDiscovery and an IAM role for kube-system/aws-cloud-controller-manager in
	// spec.iam.serviceAccountExternalPermissions. Running machines get a change by a rolling update. Unset means Agent.
	NodeController string `json:"nodeController,omitempty"`
}

// The values of NodeController of a [CloudProvider].
const (
	NodeControllerAgent    = "Agent"
	NodeControllerExternal = "External"
)

// The service account of the cloud controller manager of AWS.
const (
	CloudControllerNamespace = "kube-system"
	CloudControllerName      = "aws-cloud-controller-manager"
)

// AWSProvider configures the AWS region, and existing resources of the account that the cluster
// uses.
type AWSProvider struct {
	// Region of the cluster, such as us-east-1.
	Region string `json:"region,omitempty"`

	// KMSKeyARN is the ARN of an existing KMS key that encrypts all volumes. Its key policy must
	// allow EC2 to use it for the account. If unset, Slipway creates a key.
	KMSKeyARN string `json:"kmsKeyARN,omitempty"`

	// InstanceProfiles are existing instance profiles, by machine role.
	InstanceProfiles Existing `json:"instanceProfiles,omitzero"`

	// SecurityGroups are existing security groups, by machine role. Slipway never changes their
	// rules.
	SecurityGroups Existing `json:"securityGroups,omitzero"`
}

// Existing names an existing resource for each machine role. Slipway creates the resources of the
// roles that are unset.
type Existing struct {
	// ControlPlane is the one of control-plane machines: the name of an instance profile, or the ID
	// of a security group.
	ControlPlane string `json:"controlPlane,omitempty"`

	// Worker is the one of workers: the name of an instance profile, or the ID of a security group.
	Worker string `json:"worker,omitempty"`
}

// Networking configures the cluster's network.
type Networking struct {
	// NetworkID is the ID of an existing VPC to create the cluster in, such as vpc-0123. Slipway
	// never changes or deletes it. If unset, Slipway creates a VPC.
	NetworkID string `json:"networkID,omitempty"`

	// InternetGatewayID is the internet gateway of the existing VPC. The Public and Utility subnets
	// that Slipway creates in that VPC route to it.
	InternetGatewayID string `json:"internetGatewayID,omitempty"`

	// NetworkCIDR is the IPv4 CIDR of the VPC.
	NetworkCIDR string `json:"networkCIDR,omitempty"`

	// PodCIDR is the IPv4 CIDR of pods. Each node gets a /24 of it. With the cni amazon-vpc it is networkCIDR.
	PodCIDR string `json:"podCIDR,omitempty"`

	// ServiceClusterIPRange is the IPv4 CIDR of Services.
	ServiceClusterIPRange string `json:"serviceClusterIPRange,omitempty"`

	// Subnets of the VPC.
	Subnets []Subnet `json:"subnets,omitempty"`

	// CNI is the pod network plugin: flannel, amazon-vpc or cilium. With flannel, pods have addresses of podCIDR in an overlay network. With
	// amazon-vpc, the Amazon VPC CNI gives them addresses of the subnets of their machines: a machine has as many pods as its
	// type has addresses, and pods have the security groups of their machine. It needs spec.serviceAccountIssuerDiscovery, and
	// its images in the asset catalogue. With cilium, a channel of add-ons installs Cilium, and Slipway opens its ports. It is fixed
	// when the cluster is created.
	CNI string `json:"cni,omitempty"`

	// Flannel configures the pod network plugin flannel.
	Flannel Flannel `json:"flannel,omitzero"`

	// NATGateways for Private subnets: PerZone (one in each zone), Single, or None.
	NATGateways string `json:"natGateways,omitempty"`

	// VPCEndpoints are the AWS services that machines reach without internet access, such as s3,
	// ec2 or ecr.dkr.
	VPCEndpoints []string `json:"vpcEndpoints,omitempty"`

	// VPCPeerings connect the cluster's VPC with existing VPCs of the same account and region, with
	// routes both ways.
	VPCPeerings []VPCPeering `json:"vpcPeerings,omitempty"`

	// DNSDomain is the DNS domain of Services.
	DNSDomain string `json:"dnsDomain,omitempty"`

	// Hostnames is how EC2 names machines, and so how their nodes are named: ResourceName (by the instance ID, which
	// is never used again) or IPName (by the private address, which the next machine can have). If unset, the
	// machines are named as their subnet says. New clusters get ResourceName. A change applies to new machines.
	Hostnames string `json:"hostnames,omitempty"`
}

// The values of CNI of [Networking].
const (
	// CNIFlannel is an overlay network with addresses of podCIDR.
	CNIFlannel = "flannel"
	// CNIAmazonVPC is the Amazon VPC CNI: pods have addresses of the VPC.
	CNIAmazonVPC = "amazon-vpc"
	// CNICilium is an overlay network with addresses of podCIDR, by Cilium, which a channel of add-ons installs.
	CNICilium = "cilium"
)

// The service account of the Amazon VPC CNI.
const (
	VPCCNINamespace = "kube-system"
	VPCCNIName      = "aws-node"
)

// Flannel configures the pod network plugin flannel.
type Flannel struct {
	// Backend is how packets of pods travel between machines: VXLAN, or WireGuard, which encrypts them. It is fixed
	// when the cluster is created: machines of the two cannot exchange packets of pods.
	Backend string `json:"backend,omitempty"`
}

// The values of Flannel.Backend.
const (
	// FlannelVXLAN wraps packets in UDP. Whoever sees the network between machines can read them.
	FlannelVXLAN = "VXLAN"
	// FlannelWireGuard encrypts packets between machines. The kernel of the machines needs the module wireguard.
	FlannelWireGuard = "WireGuard"
)

// The ways in which EC2 names machines.
const (
	// HostnamesByResource names a machine by its instance ID, such as i-0123456789abcdef0.ec2.internal.
	HostnamesByResource = "ResourceName"
	// HostnamesByAddress names a machine by its private address, such as ip-10-80-0-4.ec2.internal.
	HostnamesByAddress = "IPName"
)

// VPCPeering connects the cluster's VPC with an existing VPC.
type VPCPeering struct {
	// Name of the peering: a DNS label.
	Name string `json:"name"`

	// NetworkID is the ID of the existing VPC.
	NetworkID string `json:"networkID"`

	// CIDRs of the existing VPC. The cluster's route tables get a route to each.
	CIDRs []string `json:"cidrs"`

	// RouteTables are the IDs of the route tables of the existing VPC that get a route back to the
	// cluster. Slipway changes nothing else in that VPC.
	RouteTables []string `json:"routeTables,omitempty"`
}

// SubnetType is the purpose of a subnet.
type SubnetType string

// The types of subnets.
const (
	// SubnetPublic is for load balancers, NAT gateways, and machines with public addresses.
	SubnetPublic SubnetType = "Public"
	// SubnetPrivate is for machines.
	SubnetPrivate SubnetType = "Private"
	// SubnetUtility is for load balancers and NAT gateways, without machines.
	SubnetUtility SubnetType = "Utility"
)

// Subnet is a CIDR of the VPC in one availability zone.
type Subnet struct {
	// Name of the subnet, such as private-a: a DNS label, unique in the cluster.
	Name string `json:"name"`

	// Zone is the availability zone, such as us-east-1a.
	Zone string `json:"zone"`

	// Type is Public, Private or Utility.
	Type SubnetType `json:"type"`

	// CIDR of the subnet, within networkCIDR.
	CIDR string `json:"cidr,omitempty"`

	// ID of an existing subnet, such as subnet-0123. Slipway never changes the subnet, its route
	// table or its routes.
	ID string `json:"id,omitempty"`

	// Egress is the internet access of a Private subnet that Slipway creates: the nat-ID of an
	// existing NAT gateway, the eipalloc-ID of an existing address for a new NAT gateway, or
	// External if something else provides the route. If unset, natGateways applies.
	Egress string `json:"egress,omitempty"`
}

// APIAccess configures how clients reach the Kubernetes API.
type APIAccess struct {
	// Access lists the CIDRs that may reach the API through the public load balancer.
	Access []string `json:"access,omitempty"`

	// LoadBalancer is the load balancer of the API.
	LoadBalancer LoadBalancer `json:"loadBalancer"`

	// PublicName is the DNS name of the API, in the zone spec.dnsZone. It points to the load
	// balancer, or to the elastic IP address.
	PublicName string `json:"publicName,omitempty"`

	// AdditionalSANs are DNS names and IP addresses to add to the API server's certificate.
	AdditionalSANs []string `json:"additionalSANs,omitempty"`

	// Users are IAM roles and users that may use the API with 'slipway token', under their own names and without a
	// certificate. RBAC decides what their groups may do. Who is removed has no access a minute later.
	Users []APIUser `json:"users,omitempty"`
}

// APIUser is an IAM role or user that may use the API.
type APIUser struct {
	// ARN of the IAM role or user, such as arn:aws:iam::123456789012:role/ops. All sessions of a role are in its
	// groups; each has the name arn:aws:sts::123456789012:assumed-role/ops/SESSION.
	ARN string `json:"arn"`

	// Groups of Kubernetes that the user is in: slipway:cluster-admins for administrators of the cluster, or
	// names of yours that RoleBindings refer to. Names that begin with system: are not allowed.
	Groups []string `json:"groups"`
}

// LoadBalancer is the network load balancer of the API.
type LoadBalancer struct {
	// Type is Public (an internet-facing load balancer in addition to the internal one), Internal,
	// or ElasticIP. With ElasticIP the API has the elastic IP address of the only control-plane
	// machine, and a replacement machine takes the address over. A cluster of type ElasticIP
	// without workers has no load balancer at all.
	Type string `json:"type,omitempty"`
}

// Topology configures the DNS name of the API, and the load balancer of the bastions.
type Topology struct {
	// DNS configures where the DNS name of the API resolves.
	DNS DNSTopology `json:"dns,omitzero"`

	// Bastion configures how clients reach the groups of role Bastion.
	Bastion BastionTopology `json:"bastion,omitzero"`
}

// DNSTopology configures where the DNS name of the API resolves.
type DNSTopology struct {
	// Type is None (the API has no DNS name of its own), Private (a private hosted zone, which
	// resolves in the VPC only), or Public. Unset means None.
	Type string `json:"type,omitempty"`
}

// BastionTopology configures how clients reach the bastions.
type BastionTopology struct {
	// LoadBalancer is the load balancer of the bastions.
	LoadBalancer BastionLoadBalancer `json:"loadBalancer,omitzero"`
}

// BastionLoadBalancer is the network load balancer of the bastions.
type BastionLoadBalancer struct {
	// Type is Public, Internal, or None. With None, the bastions are in Public subnets and have
	// public addresses.
	Type string `json:"type,omitempty"`
}

// MachineAccess configures access to machines without a port that is open to the internet.
type MachineAccess struct {
	// SessionManager allows the SSM agents of machines to register with AWS Systems Manager. The
	// image must include the agent, as those of amazon-linux-2023 and ubuntu-24.04 do.
	SessionManager bool `json:"sessionManager,omitempty"`

	// InstanceConnectSecurityGroup is the ID of the security group of an existing EC2 Instance
	// Connect Endpoint. The group may connect to port 22 of the machines. A VPC can have only one
	// such endpoint, so Slipway does not create it.
	InstanceConnectSecurityGroup string `json:"instanceConnectSecurityGroup,omitempty"`
}

// Etcd configures etcd's volumes and timing.
type Etcd struct {
	// Volume of each etcd member.
	Volume Volume `json:"volume"`

	// HeartbeatIntervalMS is etcd's heartbeat interval in milliseconds.
	HeartbeatIntervalMS int `json:"heartbeatIntervalMS,omitempty"`

	// ElectionTimeoutMS is etcd's election timeout in milliseconds: at least five heartbeats.
	ElectionTimeoutMS int `json:"electionTimeoutMS,omitempty"`

	// Backup configures the backups of etcd that the control plane stores in the machine store.
	Backup EtcdBackup `json:"backup,omitzero"`

	// QuorumLoss configures what the machines do when the data of a majority of the etcd members is lost.
	QuorumLoss EtcdQuorumLoss `json:"quorumLoss,omitzero"`

	// RecreateVolumesAfter is for how long the volume of a member must have been lost, while the other members have a quorum,
	// until the machine of its slot creates a new one, such as 5m: 2m to 24h. With Never, machines create no volumes, and cannot.
	// In a Terraform configuration they never do: Terraform creates lost volumes.
	RecreateVolumesAfter string `json:"recreateVolumesAfter,omitempty"`

	// Discovery is how members find the addresses of the others: Tags or DNS. With Tags, machines look for the tags of the
	// others in EC2. With DNS, they look up the records _etcd-server-ssl._tcp and _etcd-client-ssl._tcp of the private hosted
	// zone CLUSTER.internal, which a Lambda function keeps up to date.
	Discovery string `json:"discovery,omitempty"`

	// DiscoveryEvents are the ways in which that function learns of launched and terminated machines of the control plane:
	// EventBridge, SNS or both. With EventBridge, a rule matches the events of the Auto Scaling groups. With SNS, the groups
	// send notifications to a topic of the cluster, to which the function is subscribed. With both, one is enough. The function
	// also runs every 5 minutes. For DNS only.
	DiscoveryEvents []string `json:"discoveryEvents,omitempty"`
}

// RecreateVolumesNever is the value of Etcd.RecreateVolumesAfter with which only 'slipway apply --recreate-lost-volumes' creates
// lost volumes.
const RecreateVolumesNever = "Never"

// RecreatesVolumes reports whether the machines of a cluster with so many slots create lost volumes of etcd members. A single
// member has no others that have its data.
func RecreatesVolumes(e Etcd, slots int) bool {
	return slots > 1 && e.RecreateVolumesAfter != "" && e.RecreateVolumesAfter != RecreateVolumesNever
}

// The values of Etcd.Discovery.
const (
	EtcdDiscoveryTags = "Tags"
	EtcdDiscoveryDNS  = "DNS"
)

// The values in Etcd.DiscoveryEvents.
const (
	EtcdEventsEventBridge = "EventBridge"
	EtcdEventsSNS         = "SNS"
)

// EtcdZone returns the name of the private hosted zone in which the members of a cluster's etcd have their constant names. The
// zone exists if Etcd.Discovery is DNS.
func EtcdZone(cluster string) string { return cluster + ".internal" }

// EtcdQuorumLoss configures the recovery of etcd after the volumes of a majority of its members are lost.
type EtcdQuorumLoss struct {
	// Recovery is Manual or Automatic. Manual waits for 'slipway etcd restore'. Automatic recovers the newest data that a
	// member still has, or the newest backup; what was written after that is lost.
	Recovery string `json:"recovery,omitempty"`

	// After is how long the quorum must have been missing before an automatic recovery, such as 10m.
	After string `json:"after,omitempty"`
}

// The values of EtcdQuorumLoss.Recovery.
const (
	RecoveryManual    = "Manual"
	RecoveryAutomatic = "Automatic"
)

// EtcdBackup configures the scheduled backups of etcd.
type EtcdBackup struct {
	// Disabled turns scheduled backups off. 'slipway etcd snapshot' still takes one.
	Disabled bool `json:"disabled,omitempty"`

	// Interval between two backups, such as 30m: at least 30s.
	Interval string `json:"interval,omitempty"`

	// KeepAll is how long every backup is kept, such as 48h.
	KeepAll string `json:"keepAll,omitempty"`

	// KeepDaily is for how many days the last backup of each day is kept, and those that were asked for.
	KeepDaily int `json:"keepDaily,omitempty"`

	// VerifyEvery is the number of backups for each that is restored as a test, from 1 for all.
	VerifyEvery int `json:"verifyEvery,omitempty"`
}

// Volume is an EBS volume. It is always encrypted.
type Volume struct {
	// Type is gp3, io1 or io2.
	Type string `json:"type,omitempty"`

	// Size in GiB.
	Size int `json:"size,omitempty"`

	// IOPS of the volume: I/O operations a second.
	IOPS int `json:"iops,omitempty"`

	// Throughput in MiB/s, for gp3 only.
	Throughput int `json:"throughput,omitempty"`
}

// Assets configures the mirrors that machines download from.
type Assets struct {
	// FileRepository is the URL of a mirror of files. It replaces the scheme of every file's URL
	// and is put before the host.
	FileRepository string `json:"fileRepository,omitempty"`

	// ContainerRegistry is a registry that mirrors all images. It is put before every image's name.
	// Machines log in to a private registry of Amazon ECR with their IAM roles.
	ContainerRegistry string `json:"containerRegistry,omitempty"`
}

// ConfigStore configures the S3 location from which machines read their node documents.
type ConfigStore struct {
	// Base is the s3:// URL of the location.
	Base string `json:"base,omitempty"`
}
