// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the documents an operator writes: Cluster and InstanceGroup, in API group slipway.dev.
// Names follow kops and Kubernetes where they have one. It holds no behaviour: defaults and checks are in
// internal/manifest.
package v1alpha1

// APIVersion of every document in this package.
const APIVersion = "slipway.dev/v1alpha1"

// The kinds of document.
const (
	KindCluster       = "Cluster"
	KindInstanceGroup = "InstanceGroup"
)

// ClusterLabel on an InstanceGroup names the cluster it belongs to.
const ClusterLabel = "slipway.dev/cluster"

// Metadata identifies a document.
type Metadata struct {
	// Name of the document: a DNS label of at most 40 characters.
	Name string `json:"name"`
	// Labels of the document; an InstanceGroup has slipway.dev/cluster.
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
	// KubernetesVersion to run, without "v". The asset catalogue must hold it.
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
	// CloudProvider says where the cluster runs.
	CloudProvider CloudProvider `json:"cloudProvider"`
	// Networking is the network of machines, pods and services.
	Networking Networking `json:"networking"`
	// API is how the Kubernetes API is reached.
	API APIAccess `json:"api"`
	// Etcd sizes etcd's volumes.
	Etcd Etcd `json:"etcd"`
	// Assets says where machines download from, if not from upstream.
	Assets Assets `json:"assets,omitzero"`
	// ConfigStore is where machines read their documents.
	ConfigStore ConfigStore `json:"configStore,omitzero"`
	// DeletionProtection refuses 'slipway delete cluster', and has AWS itself refuse to delete the load balancers of the API.
	DeletionProtection bool `json:"deletionProtection,omitempty"`
	// SSHAccess lists the ranges that may reach the bastions' port 22.
	SSHAccess []string `json:"sshAccess,omitempty"`
	// SSHKeyName is a key pair in EC2 that exists already, for every machine's first user.
	SSHKeyName string `json:"sshKeyName,omitempty"`
	// SSHKey is a public key in OpenSSH's form, of which a key pair is made.
	SSHKey string `json:"sshKey,omitempty"`
	// Topology of what people reach machines through.
	Topology Topology `json:"topology,omitzero"`
	// DNSZone of Route 53 for the API's name: the name of one to be made, or the id of an existing one, which is never deleted.
	DNSZone string `json:"dnsZone,omitempty"`
	// MachineAccess without SSH from outside.
	MachineAccess MachineAccess `json:"machineAccess,omitzero"`
	// Tags for every AWS resource of the cluster, beside Slipway's own. Keys may not begin with slipway.dev/, aws: or kubernetes.io/.
	Tags map[string]string `json:"tags,omitempty"`
}

// CloudProvider holds one member per cloud; today AWS.
type CloudProvider struct {
	AWS AWSProvider `json:"aws"`
}

// AWSProvider places the cluster in AWS.
type AWSProvider struct {
	// Region such as us-east-1.
	Region string `json:"region,omitempty"`
	// KMSKeyARN of an existing key for all volumes. Its policy must let EC2 use it for the account. Unset: a key is made.
	KMSKeyARN string `json:"kmsKeyARN,omitempty"`
	// InstanceProfiles that exist already, by the role of machine.
	InstanceProfiles Existing `json:"instanceProfiles,omitzero"`
	// SecurityGroups that exist already, by the role of machine. Their own rules are never changed.
	SecurityGroups Existing `json:"securityGroups,omitzero"`
}

// Existing names what exists already for each role of machine; what is unset is made.
type Existing struct {
	// ControlPlane machines have this one: a name of an instance profile, or an id of a security group.
	ControlPlane string `json:"controlPlane,omitempty"`
	// Worker machines have this one.
	Worker string `json:"worker,omitempty"`
}

// Networking is the cluster's network.
type Networking struct {
	// NetworkID of an existing VPC to build in, such as vpc-0123. It is never changed and never deleted. Unset: one is made.
	NetworkID string `json:"networkID,omitempty"`
	// InternetGatewayID of the existing VPC: what the Public and Utility subnets that are made in it lead to.
	InternetGatewayID string `json:"internetGatewayID,omitempty"`
	// NetworkCIDR of the VPC.
	NetworkCIDR string `json:"networkCIDR,omitempty"`
	// PodCIDR for pods; each node gets a /24 of it.
	PodCIDR string `json:"podCIDR,omitempty"`
	// ServiceClusterIPRange for Services.
	ServiceClusterIPRange string `json:"serviceClusterIPRange,omitempty"`
	// Subnets of the VPC.
	Subnets []Subnet `json:"subnets,omitempty"`
	// CNI chooses the network of pods.
	CNI string `json:"cni,omitempty"`
	// NATGateways for Private subnets: PerZone (one a zone), Single, or None.
	NATGateways string `json:"natGateways,omitempty"`
	// VPCEndpoints are AWS services that machines reach without a way out, such as s3, ec2 or ecr.dkr.
	VPCEndpoints []string `json:"vpcEndpoints,omitempty"`
	// VPCPeerings with existing VPCs of this account and region, with routes both ways.
	VPCPeerings []VPCPeering `json:"vpcPeerings,omitempty"`
	// DNSDomain of Services.
	DNSDomain string `json:"dnsDomain,omitempty"`
}

// VPCPeering connects the cluster's VPC with an existing one.
type VPCPeering struct {
	// Name of the peering, a DNS label.
	Name string `json:"name"`
	// NetworkID of the existing VPC.
	NetworkID string `json:"networkID"`
	// CIDRs of that VPC: what the cluster's route tables lead to it.
	CIDRs []string `json:"cidrs"`
	// RouteTables of that VPC that get a route back, by id. Nothing else in it is changed.
	RouteTables []string `json:"routeTables,omitempty"`
}

// SubnetType says what a subnet is for.
type SubnetType string

// The types of subnet.
const (
	SubnetPublic  SubnetType = "Public"  // load balancers, NAT gateways, and machines with public addresses
	SubnetPrivate SubnetType = "Private" // machines
	SubnetUtility SubnetType = "Utility" // load balancers and NAT gateways, no machines
)

// Subnet is a range of the VPC in one zone.
type Subnet struct {
	// Name such as private-a, a DNS label, unique in the cluster.
	Name string `json:"name"`
	// Zone such as us-east-1a.
	Zone string `json:"zone"`
	// Type is Public, Private or Utility.
	Type SubnetType `json:"type"`
	// CIDR within networkCIDR.
	CIDR string `json:"cidr,omitempty"`
	// ID of an existing subnet, such as subnet-0123. It, its route table and its ways out are never changed.
	ID string `json:"id,omitempty"`
	// Egress of a Private subnet that is made: nat-ID of an existing NAT gateway, eipalloc-ID of an existing address for
	// a new one, or External for a way out that others make. Unset: natGateways says it.
	Egress string `json:"egress,omitempty"`
}

// APIAccess is how the Kubernetes API is reached.
type APIAccess struct {
	// Access lists the ranges that may reach the API through the public load balancer.
	Access []string `json:"access,omitempty"`
	// LoadBalancer in front of the API.
	LoadBalancer LoadBalancer `json:"loadBalancer"`
	// PublicName of the API, in the zone of spec.dnsZone. It leads to the load balancer, or to the elastic IP address.
	PublicName string `json:"publicName,omitempty"`
	// AdditionalSANs for the API's certificate.
	AdditionalSANs []string `json:"additionalSANs,omitempty"`
}

// LoadBalancer is the API's network load balancer.
type LoadBalancer struct {
	// Type is Public (an internet-facing one beside the internal one), Internal, or ElasticIP: the API is at the address of
	// the only control-plane machine, which a new one takes over; without workers there is no load balancer at all.
	Type string `json:"type,omitempty"`
}

// Topology of what people reach machines through.
type Topology struct {
	// DNS says where the API's name is known.
	DNS DNSTopology `json:"dns,omitzero"`
	// Bastion is how the groups of role Bastion are reached.
	Bastion BastionTopology `json:"bastion,omitzero"`
}

// DNSTopology says where the API's name is known.
type DNSTopology struct {
	// Type is None (the API has no name of its own; so it is if unset), Private (a zone that only the VPC knows), or Public.
	Type string `json:"type,omitempty"`
}

// BastionTopology is how bastions are reached.
type BastionTopology struct {
	// LoadBalancer in front of the bastions.
	LoadBalancer BastionLoadBalancer `json:"loadBalancer,omitzero"`
}

// BastionLoadBalancer is a network load balancer in front of the bastions.
type BastionLoadBalancer struct {
	// Type is Public, Internal, or None: bastions in Public subnets with addresses of their own.
	Type string `json:"type,omitempty"`
}

// MachineAccess is how people reach machines without a port that is open to anybody.
type MachineAccess struct {
	// SessionManager lets the machines' SSM agents register, if the image brings one.
	SessionManager bool `json:"sessionManager,omitempty"`
	// InstanceConnectSecurityGroup is that of an EC2 Instance Connect Endpoint that exists already in the VPC, which has room
	// for one: it may reach the machines' port 22.
	InstanceConnectSecurityGroup string `json:"instanceConnectSecurityGroup,omitempty"`
}

// Etcd sizes etcd's volumes.
type Etcd struct {
	// Volume of each member.
	Volume Volume `json:"volume"`
	// HeartbeatIntervalMS in milliseconds.
	HeartbeatIntervalMS int `json:"heartbeatIntervalMS,omitempty"`
	// ElectionTimeoutMS in milliseconds.
	ElectionTimeoutMS int `json:"electionTimeoutMS,omitempty"`
}

// Volume is an EBS volume. It is always encrypted.
type Volume struct {
	// Type is gp3, io1 or io2.
	Type string `json:"type,omitempty"`
	// Size in GiB.
	Size int `json:"size,omitempty"`
	// IOPS of the volume.
	IOPS int `json:"iops,omitempty"`
	// Throughput in MiB/s, gp3 only.
	Throughput int `json:"throughput,omitempty"`
}

// Assets says where machines download from.
type Assets struct {
	// FileRepository replaces the scheme and prefixes the host of every file's URL.
	FileRepository string `json:"fileRepository,omitempty"`
	// ContainerRegistry prefixes every image's name.
	ContainerRegistry string `json:"containerRegistry,omitempty"`
}

// ConfigStore is where machines read their documents.
type ConfigStore struct {
	// Base is an s3:// URL.
	Base string `json:"base,omitempty"`
}
