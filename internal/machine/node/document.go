// SPDX-License-Identifier: Apache-2.0

// Package node says what a machine is to become: the node document, the user data that brings the agent, and the
// objects that both are published as. It knows no cloud and no machine; package agent carries the document out.
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

// DocumentKind is the kind of a Document; its apiVersion is that of package v1alpha1.
const DocumentKind = "NodeDocument"

// Document is everything that a machine of one group has to become, except what only AWS or the machine itself
// knows. It is public: it holds no secret.
type Document struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Cluster and Group are names.
	Cluster string        `json:"cluster"`
	Group   string        `json:"group"`
	Role    v1alpha1.Role `json:"role"`
	Region  string        `json:"region"`
	// KubernetesVersion without "v".
	KubernetesVersion string `json:"kubernetesVersion"`
	// Files to download, sorted by name.
	Files []File `json:"files"`
	// Images by name (kube-apiserver, pause, …): a reference with digest.
	Images map[string]string `json:"images"`
	// Network of the cluster.
	Network ClusterNetwork `json:"network"`
	// Trust holds the certificates of the CAs.
	Trust TrustBundle `json:"trust"`
	// Slots of the control plane, sorted by name; known to control-plane machines only.
	Slots []Slot `json:"slots,omitempty"`
	// Etcd settings; control-plane machines only.
	Etcd EtcdSettings `json:"etcd,omitzero"`
	// APISANs are additional names for the API's certificate; control-plane machines only.
	APISANs []string `json:"apiSANs,omitempty"`
	// Store is where secrets and the etcd marker lie; control-plane machines only.
	Store MachineStore `json:"store,omitzero"`
	// Join says which machines may get a node certificate; control-plane machines only.
	Join JoinPolicy `json:"join,omitzero"`
	// NodeLabels and Taints of the node.
	NodeLabels map[string]string `json:"nodeLabels,omitempty"`
	Taints     []string          `json:"taints,omitempty"`
	// BinDirOverride is the folder that programs are run from; empty is /usr/local/bin, which Flatcar cannot write.
	BinDirOverride string `json:"programs,omitempty"`
	// Kubelet settings of the manifest, over the agent's own.
	Kubelet v1alpha1.Kubelet `json:"kubelet,omitzero"`
}

// File is a download of a machine.
type File struct {
	// Name of the asset, such as kubelet or containerd.
	Name string `json:"name"`
	URL  string `json:"url"`
	// SHA256 in lower-case hex.
	SHA256 string `json:"sha256"`
	// Form is binary (the file itself) or archive (.tar.gz).
	Form string `json:"form"`
}

// IgnitionBinDir is the folder for programs where /usr is read-only.
const IgnitionBinDir = "/opt/bin"

// The values of File.Form.
const (
	FormBinary  = "binary"
	FormArchive = "archive"
)

// ClusterNetwork is the cluster's network as machines need it.
type ClusterNetwork struct {
	// NetworkCIDR of the VPC, PodCIDR of the pods, ServiceCIDR of the Services.
	NetworkCIDR string `json:"networkCIDR"`
	PodCIDR     string `json:"podCIDR"`
	ServiceCIDR string `json:"serviceCIDR"`
	// KubernetesIP is the Service address of the API: the first of ServiceCIDR.
	KubernetesIP string `json:"kubernetesIP"`
	// DNSIP is the Service address of CoreDNS: the tenth of ServiceCIDR.
	DNSIP string `json:"dnsIP"`
	// DNSDomain of Services, such as cluster.local.
	DNSDomain string `json:"dnsDomain"`
}

// TrustBundle holds CA certificates as PEM; each may hold several, so that a CA can be rotated.
type TrustBundle struct {
	KubernetesCA string `json:"kubernetesCA"`
	EtcdPeerCA   string `json:"etcdPeerCA,omitempty"`
	EtcdClientCA string `json:"etcdClientCA,omitempty"`
	FrontProxyCA string `json:"frontProxyCA,omitempty"`
	// ServiceAccountKeys are public keys that tokens may be signed with.
	ServiceAccountKeys string `json:"serviceAccountKeys,omitempty"`
}

// Slot is one place in the control plane. A machine that takes it keeps the slot's etcd member, name and volume.
type Slot struct {
	// Name is "a", "b", ….
	Name string `json:"name"`
	// Member is etcd's member name.
	Member string `json:"member"`
	// Host is the name that the member's certificate and peer URL have.
	Host string `json:"host"`
	// PeerURL never changes: machines keep Host in step with EC2 (docs/design/0002).
	PeerURL string `json:"peerURL"`
}

// EtcdSettings tunes etcd.
type EtcdSettings struct {
	HeartbeatIntervalMS int `json:"heartbeatIntervalMS,omitempty"`
	ElectionTimeoutMS   int `json:"electionTimeoutMS,omitempty"`
}

// MachineStore is the S3 place of the cluster's machine store.
type MachineStore struct {
	// URL of the whole store, s3://bucket/prefix; keys begin with the cluster's name.
	URL string `json:"url"`
}

// JoinPolicy is what a control-plane machine checks of a machine that asks for a node certificate.
type JoinPolicy struct {
	// WorkerRoles are the names of the IAM roles of workers, by the name of their group.
	WorkerRoles map[string]string `json:"workerRoles"`
}

// DocumentInput is what a document is built from.
type DocumentInput struct {
	Cluster v1alpha1.Cluster
	// Groups are all groups of the cluster, defaulted and valid.
	Groups []v1alpha1.InstanceGroup
	// Group is the one that the document is for.
	Group v1alpha1.InstanceGroup
	// Files and Images of the group's role and architecture.
	Files  []File
	Images map[string]string
	Trust  TrustBundle
	// StoreURL of the machine store, s3://bucket/prefix.
	StoreURL string
	// WorkerRoles are the names of the IAM roles of workers, by the name of their group.
	WorkerRoles map[string]string
}

// ControlPlaneSlots of a cluster: one for each machine of its control-plane group, named a, b, c, ….
func ControlPlaneSlots(cluster string, groups []v1alpha1.InstanceGroup) []Slot {
	var out []Slot
	for _, g := range groups {
		if g.Spec.Role != v1alpha1.RoleControlPlane {
			continue
		}

		for range g.Spec.MinSize {
			name := string("abcdefghijklmnopqrstuvwxyz"[len(out)])
			host := "etcd-" + name + "." + cluster + ".internal"
			out = append(out, Slot{
				Name:    name,
				Member:  "etcd-" + name,
				Host:    host,
				PeerURL: "https://" + host + ":2380",
			})
		}
	}

	return out
}

// BuildDocument makes the document of one group. The same input gives the same bytes.
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
	}
	if in.Group.Spec.UserDataFormat == "Ignition" {
		d.BinDirOverride = IgnitionBinDir
	}

	if d.Role == v1alpha1.RoleControlPlane {
		d.Trust = in.Trust
		d.Slots = ControlPlaneSlots(d.Cluster, in.Groups)
		d.Etcd = EtcdSettings{
			in.Cluster.Spec.Etcd.HeartbeatIntervalMS,
			in.Cluster.Spec.Etcd.ElectionTimeoutMS,
		}

		d.APISANs = slices.Clone(in.Cluster.Spec.API.AdditionalSANs)
		if name := in.Cluster.Spec.API.PublicName; name != "" {
			d.APISANs = append(d.APISANs, name)
		}

		d.Store = MachineStore{URL: in.StoreURL}
		d.Join = JoinPolicy{WorkerRoles: maps.Clone(in.WorkerRoles)}
	}

	return d, d.validate()
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

	return ClusterNetwork{
		NetworkCIDR:  n.NetworkCIDR,
		PodCIDR:      n.PodCIDR,
		ServiceCIDR:  n.ServiceClusterIPRange,
		KubernetesIP: first.String(),
		DNSIP:        dns.String(),
		DNSDomain:    n.DNSDomain,
	}, nil
}

// Marshal prints the document as JSON with sorted keys, indented so that a person can read a difference.
func (d Document) Marshal() ([]byte, error) {
	body, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("print node document of group %s: %w", d.Group, err)
	}

	return append(body, '\n'), nil
}

// ParseDocument reads what Marshal wrote. It refuses unknown fields, other versions and impossible values, all at once.
func ParseDocument(body []byte) (Document, error) {
	var d Document
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&d); err != nil {
		return Document{}, fmt.Errorf("read node document: %w", err)
	}

	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Document{}, errors.New("read node document: more than one JSON value")
	}

	return d, d.validate()
}

// File returns the file of that name.
func (d Document) File(name string) (File, bool) {
	i := slices.IndexFunc(d.Files, func(f File) bool { return f.Name == name })
	if i < 0 {
		return File{}, false
	}

	return d.Files[i], true
}

// BinDir is the folder that programs are run from.
func (d Document) BinDir() string { return cmp.Or(d.BinDirOverride, "/usr/local/bin") }

// Slot returns the slot of that name.
func (d Document) Slot(name string) (Slot, bool) {
	i := slices.IndexFunc(d.Slots, func(s Slot) bool { return s.Name == name })
	if i < 0 {
		return Slot{}, false
	}

	return d.Slots[i], true
}
