// SPDX-License-Identifier: Apache-2.0

// Package node defines the desired state of a machine.
//
// A node document (Document) lists everything that the machines of one group need: files with their
// hashes, images, network ranges, CA certificates, and kubelet settings. User data (UserData) is
// the script with a small boot configuration that downloads and starts the agent on a new machine.
// A Publication is the set of objects, named by their hash, that the operator uploads to the
// machine store before machines boot.
//
// The package makes no AWS calls and changes no machine; package agent applies the document.
package node

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// DocumentKind is the kind of a Document; its apiVersion is v1alpha1.APIVersion.
const DocumentKind = "NodeDocument"

// Document is the desired state of the machines of one group, except for values that only AWS or
// the machine knows, such as addresses. Documents are readable by the machines' IAM roles and must
// not contain secrets.
type Document struct {
	// APIVersion is v1alpha1.APIVersion.
	APIVersion string `json:"apiVersion"`
	// Kind is DocumentKind.
	Kind string `json:"kind"`
	// Cluster is the name of the cluster.
	Cluster string `json:"cluster"`
	// ClusterID is the cluster's random id. Set for control-plane machines only.
	ClusterID string `json:"clusterID,omitempty"`
	// Group is the name of the instance group.
	Group string `json:"group"`
	// Role of the group: ControlPlane or Worker.
	Role v1alpha1.Role `json:"role"`
	// Region is the AWS region, such as us-east-1.
	Region string `json:"region"`
	// KubernetesVersion without the leading "v", such as 1.36.3.
	KubernetesVersion string `json:"kubernetesVersion"`
	// Files to download, sorted by name.
	Files []File `json:"files"`
	// Images maps a component (kube-apiserver, pause, …) to its image reference with digest.
	Images map[string]string `json:"images"`
	// Network holds the cluster's address ranges and DNS settings.
	Network ClusterNetwork `json:"network"`
	// Trust holds the CA certificates.
	Trust TrustBundle `json:"trust"`
	// Slots of the control plane, sorted by name. Set for control-plane machines only.
	Slots []Slot `json:"slots,omitempty"`
	// Etcd settings. Set for control-plane machines only.
	Etcd EtcdSettings `json:"etcd,omitzero"`
	// APISANs are additional names for kube-apiserver's certificate. Set for control-plane machines
	// only.
	APISANs []string `json:"apiSANs,omitempty"`
	// Store is the machine store with the secrets and the etcd marker. Set for control-plane
	// machines only.
	Store MachineStore `json:"store,omitzero"`
	// Join is the policy for issuing node certificates to workers. Set for control-plane machines
	// only.
	Join JoinPolicy `json:"join,omitzero"`
	// NodeLabels of the Node object, from the manifest.
	NodeLabels map[string]string `json:"nodeLabels,omitempty"`
	// Taints of the Node object, each key=value:Effect.
	Taints []string `json:"taints,omitempty"`
	// NodeController is External if the cloud controller manager of AWS keeps the Nodes. It is left out otherwise, so that the
	// documents of other clusters stay what they were.
	NodeController string `json:"nodeController,omitempty"`
	// BinDirOverride is the directory for binaries. Empty means /usr/local/bin, which is read-only
	// on Flatcar.
	BinDirOverride string `json:"programs,omitempty"`
	// Kubelet settings from the manifest; they override the agent's defaults.
	Kubelet v1alpha1.Kubelet `json:"kubelet,omitzero"`
	// Sysctls are kernel settings from the manifest, such as net.core.somaxconn.
	Sysctls map[string]string `json:"sysctls,omitempty"`
	// MetadataCgroups are the control groups that may reach the instance metadata service, besides those that the agent
	// allows by default.
	MetadataCgroups []string `json:"metadataCgroups,omitempty"`
	// KubeAPIServer settings from the manifest. Set for control-plane machines only.
	KubeAPIServer v1alpha1.KubeAPIServer `json:"kubeAPIServer,omitzero"`
	// KubeControllerManager settings from the manifest. Set for control-plane machines only.
	KubeControllerManager v1alpha1.KubeControllerManager `json:"kubeControllerManager,omitzero"`
}

// File is one file that a machine downloads.
type File struct {
	// Name of the asset, such as kubelet or containerd.
	Name string `json:"name"`
	// URL is an https, http, or s3 URL.
	URL string `json:"url"`
	// SHA256 of the download in lower-case hex.
	SHA256 string `json:"sha256"`
	// Form is FormBinary (the file itself) or FormArchive (a .tar.gz).
	Form string `json:"form"`
	// Size in bytes; zero: not known.
	Size int64 `json:"size,omitempty"`
}

// IgnitionBinDir is the directory for binaries on systems with a read-only /usr, such as Flatcar.
const IgnitionBinDir = "/opt/bin"

// KarpenterTaint is the taint with which the kubelets of Karpenter's machines register. Karpenter removes it once it knows the
// Node, so that no pod is there before.
const KarpenterTaint = "karpenter.sh/unregistered:NoExecute"

// The values of File.Form.
const (
	FormBinary  = "binary"
	FormArchive = "archive"
)

// ClusterNetwork holds the cluster's address ranges and DNS settings.
type ClusterNetwork struct {
	// NetworkCIDR is the primary address range of the VPC.
	NetworkCIDR string `json:"networkCIDR"`
	// CNI is amazon-vpc if pods have addresses of the VPC. It is left out for flannel, so that the documents of clusters with it stay
	// what they were.
	CNI string `json:"cni,omitempty"`
	// VPCCNIRole is the ARN of the IAM role of the Amazon VPC CNI. Set for control-plane machines of clusters with it only.
	VPCCNIRole string `json:"vpcCNIRole,omitempty"`
	// PodCIDR is the address range of all pods.
	PodCIDR string `json:"podCIDR"`
	// ServiceCIDR is the address range of Services.
	ServiceCIDR string `json:"serviceCIDR"`
	// KubernetesIP is the Service address of the Kubernetes API: the first of ServiceCIDR.
	KubernetesIP string `json:"kubernetesIP"`
	// DNSIP is the Service address of CoreDNS: the tenth of ServiceCIDR.
	DNSIP string `json:"dnsIP"`
	// DNSDomain of Services, such as cluster.local.
	DNSDomain string `json:"dnsDomain"`
	// FlannelBackend is WireGuard for an encrypted pod network. It is left out for VXLAN, so that the documents of clusters without encryption
	// stay what they were.
	FlannelBackend string `json:"flannelBackend,omitempty"`
}

// TrustBundle holds CA certificates as PEM. Each field may contain several certificates, so that a
// CA can be rotated.
type TrustBundle struct {
	// KubernetesCA signs the certificates of kube-apiserver, kubelets, and Kubernetes clients.
	KubernetesCA string `json:"kubernetesCA"`
	// EtcdPeerCA signs the certificates that etcd members use among themselves. Control-plane
	// machines only.
	EtcdPeerCA string `json:"etcdPeerCA,omitempty"`
	// EtcdClientCA signs etcd's server certificates and those of its clients. Control-plane
	// machines only.
	EtcdClientCA string `json:"etcdClientCA,omitempty"`
	// FrontProxyCA signs the client certificate that kube-apiserver shows to aggregated APIs.
	// Control-plane only.
	FrontProxyCA string `json:"frontProxyCA,omitempty"`
	// ServiceAccountKeys are the public keys (PEM) that verify service account tokens.
	// Control-plane machines only.
	ServiceAccountKeys string `json:"serviceAccountKeys,omitempty"`
}

// Slot is one position in the control plane. A machine that fills a slot inherits its etcd member,
// name, and volume.
type Slot struct {
	// Name is "a", "b", ….
	Name string `json:"name"`
	// Member is the etcd member name, such as etcd-a.
	Member string `json:"member"`
	// Host is the DNS name in the member's certificate and peer URL.
	Host string `json:"host"`
	// PeerURL never changes: machines resolve Host with entries of /etc/hosts, which the agent writes
	// (docs/design/0002).
	PeerURL string `json:"peerURL"`
}

// EtcdSettings holds etcd's settings from the manifest. Timing parameters are in milliseconds; zero means etcd's default.
type EtcdSettings struct {
	// HeartbeatIntervalMS is etcd's --heartbeat-interval.
	HeartbeatIntervalMS int `json:"heartbeatIntervalMS,omitempty"`
	// ElectionTimeoutMS is etcd's --election-timeout.
	ElectionTimeoutMS int `json:"electionTimeoutMS,omitempty"`
	// QuotaBytes is etcd's --quota-backend-bytes if the volumes are too small for the largest one: see [v1alpha1.EtcdQuota]. It is left
	// out otherwise.
	QuotaBytes int64 `json:"quotaBytes,omitempty"`
	// Backup configures the scheduled backups.
	Backup v1alpha1.EtcdBackup `json:"backup,omitzero"`
	// QuorumLoss is set if the machines recover etcd themselves. It is left out otherwise, so that the documents of clusters
	// without it stay what they were.
	QuorumLoss v1alpha1.EtcdQuorumLoss `json:"quorumLoss,omitzero"`
	// NewVolumes is set if the machine of a slot may create a new volume after the loss of the former one.
	NewVolumes NewVolumes `json:"newVolumes,omitzero"`
	// Discovery is DNS if the members find each other by the records of the cluster's zone. It is left out otherwise.
	Discovery string `json:"discovery,omitempty"`
}

// NewVolumes is what the machine of a slot needs to create its volume as slipway apply would.
type NewVolumes struct {
	// After is for how long the former volume must have been lost.
	After string `json:"after"`
	// Volume is its type, size and performance.
	Volume v1alpha1.Volume `json:"volume"`
	// Tags that the volumes of all slots have. The machine adds those of its slot.
	Tags map[string]string `json:"tags"`
}

// MachineStore is the location of the cluster's machine store.
type MachineStore struct {
	// URL of the whole store, s3://bucket/prefix; keys begin with the cluster's name.
	URL string `json:"url"`
	// KMSKeyARN is the key that machines seal secrets with. Empty in documents of an earlier version, whose machines
	// take no backups.
	KMSKeyARN string `json:"kmsKeyARN,omitempty"`
}

// JoinPolicy is what a control-plane machine checks before it issues a node certificate to a
// worker.
type JoinPolicy struct {
	// WorkerRoles maps the name of a worker group to the name of its IAM role.
	WorkerRoles map[string]string `json:"workerRoles"`
	// Users are who may use the API with an identity of AWS.
	Users []v1alpha1.APIUser `json:"users,omitempty"`
}

// DocumentInput is the input of BuildDocument.
type DocumentInput struct {
	// Cluster is the manifest with defaults applied, validated.
	Cluster v1alpha1.Cluster
	// ClusterID is the cluster's random id.
	ClusterID string
	// Groups are all instance groups of the cluster with defaults applied, validated.
	Groups []v1alpha1.InstanceGroup
	// Group is the instance group to build the document for.
	Group v1alpha1.InstanceGroup
	// Files for the group's role and architecture.
	Files []File
	// Images for the group's role and architecture: component to reference with digest.
	Images map[string]string
	// Trust holds the cluster's CA certificates.
	Trust TrustBundle
	// StoreURL of the machine store, s3://bucket/prefix.
	StoreURL string
	// StoreKeyARN is the KMS key of the machine store.
	StoreKeyARN string
	// WorkerRoles maps the name of a worker group to the name of its IAM role.
	WorkerRoles map[string]string
	// VolumeTags are the tags of the volumes of all slots.
	VolumeTags map[string]string
	// VPCCNIRole is the ARN of the IAM role of the Amazon VPC CNI, if the cluster has it.
	VPCCNIRole string
	// PodCapacity is how many pods a machine of the group can have if each has an address of the VPC. It is not used otherwise.
	PodCapacity int
}

// ControlPlaneSlots returns one slot for each machine of the control-plane groups, named a, b, c,
// ….
func ControlPlaneSlots(cluster string, groups []v1alpha1.InstanceGroup) []Slot {
	var out []Slot
	for _, g := range groups {
		if g.Spec.Role != v1alpha1.RoleControlPlane {
			continue
		}

		for range g.Spec.MinMachines() {
			out = append(out, NewSlot(cluster, string("abcdefghijklmnopqrstuvwxyz"[len(out)])))
		}
	}

	return out
}

// BuildDocument returns the validated document of one group. The same input gives the same bytes.
func BuildDocument(in DocumentInput) (Document, error) {
	network, err := buildNetwork(in.Cluster.Spec.Networking)
	if err != nil {
		return Document{}, fmt.Errorf("node document of group %s: %w", in.Group.Metadata.Name, err)
	}

	d := Document{
		APIVersion:        v1alpha1.APIVersion,
		Kind:              DocumentKind,
		Cluster:           in.Cluster.Metadata.Name,
		Group:             in.Group.Metadata.Name,
		Role:              in.Group.Spec.Role,
		Region:            in.Cluster.Spec.CloudProvider.AWS.Region,
		KubernetesVersion: in.Cluster.Spec.KubernetesVersion,
		Files:             slices.SortedFunc(slices.Values(in.Files), compareFileNames),
		Images:            maps.Clone(in.Images),
		Network:           network,
		Trust:             TrustBundle{KubernetesCA: in.Trust.KubernetesCA},
		NodeLabels:        maps.Clone(in.Group.Spec.NodeLabels),
		Taints:            slices.Clone(in.Group.Spec.Taints),
		Kubelet:           in.Group.Spec.Kubelet,
		Sysctls:           maps.Clone(in.Group.Spec.Sysctls),
		MetadataCgroups:   slices.Clone(in.Group.Spec.InstanceMetadata.AllowedCgroups),
	}
	if in.Group.Spec.UsesKarpenter() {
		d.Taints = append(d.Taints, KarpenterTaint)
	}

	if in.Group.Spec.UserDataFormat == "Ignition" {
		d.BinDirOverride = IgnitionBinDir
	}

	if in.Cluster.Spec.CloudProvider.NodeController == v1alpha1.NodeControllerExternal {
		d.NodeController = v1alpha1.NodeControllerExternal
	}

	if d.HasVPCPods() {
		d.Kubelet.MaxPods = min(cmp.Or(d.Kubelet.MaxPods, in.PodCapacity), in.PodCapacity)
	}

	if d.Role == v1alpha1.RoleControlPlane {
		d.Network.VPCCNIRole = in.VPCCNIRole
		d.Trust = in.Trust
		d.ClusterID = in.ClusterID
		d.Slots = ControlPlaneSlots(d.Cluster, in.Groups)
		d.Etcd = buildEtcdSettings(in, len(d.Slots))
		d.KubeAPIServer = in.Cluster.Spec.KubeAPIServer
		d.KubeControllerManager = in.Cluster.Spec.KubeControllerManager
		d.APISANs = slices.Clone(in.Cluster.Spec.API.AdditionalSANs)
		if name := in.Cluster.Spec.API.PublicName; name != "" {
			d.APISANs = append(d.APISANs, name)
		}

		d.Store = MachineStore{URL: in.StoreURL, KMSKeyARN: in.StoreKeyARN}
		d.Join = JoinPolicy{WorkerRoles: maps.Clone(in.WorkerRoles), Users: slices.Clone(in.Cluster.Spec.API.Users)}
	}

	return d, d.validate()
}

// buildEtcdSettings returns the settings of etcd on the machines of a cluster with so many slots.
func buildEtcdSettings(in DocumentInput, slots int) EtcdSettings {
	spec := in.Cluster.Spec.Etcd
	out := EtcdSettings{
		HeartbeatIntervalMS: spec.HeartbeatIntervalMS,
		ElectionTimeoutMS:   spec.ElectionTimeoutMS,
		Backup:              spec.Backup,
	}

	if quota := v1alpha1.EtcdQuota(spec.Volume.Size); quota < v1alpha1.MaxEtcdQuota {
		out.QuotaBytes = quota
	}

	if spec.QuorumLoss.Recovery == v1alpha1.RecoveryAutomatic {
		out.QuorumLoss = spec.QuorumLoss
	}

	if v1alpha1.RecreatesVolumes(spec, slots) {
		out.NewVolumes = NewVolumes{
			After:  spec.RecreateVolumesAfter,
			Volume: spec.Volume,
			Tags:   maps.Clone(in.VolumeTags),
		}
	}

	if spec.Discovery == v1alpha1.EtcdDiscoveryDNS {
		out.Discovery = spec.Discovery
	}

	return out
}

func compareFileNames(a, b File) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) }

func buildNetwork(n v1alpha1.Networking) (ClusterNetwork, error) {
	services, err := netip.ParsePrefix(n.ServiceClusterIPRange)
	if err != nil {
		return ClusterNetwork{}, fmt.Errorf("spec.networking.serviceClusterIPRange: %w", err)
	}

	first := services.Masked().Addr().Next()
	dns := first
	for range 9 {
		dns = dns.Next()
	}

	out := ClusterNetwork{
		NetworkCIDR:  n.NetworkCIDR,
		PodCIDR:      n.PodCIDR,
		ServiceCIDR:  n.ServiceClusterIPRange,
		KubernetesIP: first.String(),
		DNSIP:        dns.String(),
		DNSDomain:    n.DNSDomain,
	}
	if n.Flannel.Backend != v1alpha1.FlannelVXLAN {
		out.FlannelBackend = n.Flannel.Backend
	}

	if n.CNI != v1alpha1.CNIFlannel {
		out.CNI = n.CNI
	}

	return out, nil
}

// Marshal encodes the document as indented JSON, so that diffs are readable. Map keys are sorted.
func (d Document) Marshal() ([]byte, error) {
	body, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode node document of group %s: %w", d.Group, err)
	}

	return append(body, '\n'), nil
}

// ParseDocument decodes and validates the output of Marshal. It rejects unknown fields and other
// API versions; the error lists every invalid field.
func ParseDocument(body []byte) (Document, error) {
	var d Document
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&d); err != nil {
		return Document{}, fmt.Errorf("parse node document: %w", err)
	}

	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Document{}, errors.New("parse node document: found data after the JSON value")
	}

	return d, d.validate()
}

// File returns the file with the given name, and whether the document has it.
func (d Document) File(name string) (File, bool) {
	i := slices.IndexFunc(d.Files, func(f File) bool { return f.Name == name })
	if i < 0 {
		return File{}, false
	}

	return d.Files[i], true
}

// HasExternalNodeController reports whether the cloud controller manager of AWS keeps the Nodes.
func (d Document) HasExternalNodeController() bool {
	return d.NodeController == v1alpha1.NodeControllerExternal
}

// HasVPCPods reports whether pods have addresses of the VPC.
func (d Document) HasVPCPods() bool { return d.Network.CNI == v1alpha1.CNIAmazonVPC }

// HasNetworkOfChannel reports whether a channel of add-ons installs the network of pods, which enforces NetworkPolicies itself.
func (d Document) HasNetworkOfChannel() bool { return d.Network.CNI == v1alpha1.CNICilium }

// HasWarmPool reports whether the group has a warm pool: its machines pull images that run on every
// node, and Auto Scaling waits for them, see [LaunchHook]. The images tell that and not a field of
// its own, because the agents of earlier versions reject documents with a field that they do not
// know.
func (d Document) HasWarmPool() bool {
	network := networkImages(d.Network.CNI)
	if len(network) == 0 { // groups have no warm pools then
		return false
	}

	_, pullsNetwork := d.Images[network[0]]

	return pullsNetwork && d.Role == v1alpha1.RoleWorker
}

// BinDir returns the directory for binaries: BinDirOverride, or /usr/local/bin.
func (d Document) BinDir() string { return cmp.Or(d.BinDirOverride, "/usr/local/bin") }

// Slot returns the slot with the given name, and whether the document has it.
func (d Document) Slot(name string) (Slot, bool) {
	i := slices.IndexFunc(d.Slots, func(s Slot) bool { return s.Name == name })
	if i < 0 {
		return Slot{}, false
	}

	return d.Slots[i], true
}
