// SPDX-License-Identifier: Apache-2.0

// Package netpolicy turns the NetworkPolicies of a cluster into the nftables rules of its nodes, for pod networks that do not
// enforce them: flannel and the Amazon VPC CNI.
//
// [Compile] runs on the control plane, which may read all pods. For each node with a pod that a policy selects it returns the
// [NodeRules]: who may connect to each of these pods, and where they may connect to, as addresses and ports only. A node
// reads its own rules and [NodeRules.Ruleset] writes them for nft. So no node has to read the pods of others.
//
// Meaning: https://kubernetes.io/docs/concepts/services-networking/network-policies/. A pod that no policy selects is open. One
// that is selected accepts what at least one of its policies allows. The node of a pod, and the pod itself, can always connect
// to it. Pods in the network of their host are not affected. Connections that are open when rules change go on.
//
// The package makes no requests and runs nothing.
package netpolicy

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Pod holds the fields of a v1 Pod that policies depend on.
type Pod struct {
	Metadata Metadata  `json:"metadata"`
	Spec     PodSpec   `json:"spec"`
	Status   PodStatus `json:"status"`
}

// Metadata holds the fields of the metadata of an object that policies depend on.
type Metadata struct {
	Name      string            `json:"name"`
	Namespace string            `json:"namespace,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
}

// PodSpec holds the fields of a pod's spec that policies depend on.
type PodSpec struct {
	NodeName    string      `json:"nodeName"`
	HostNetwork bool        `json:"hostNetwork,omitempty"`
	Containers  []Container `json:"containers,omitempty"`
	// InitContainers can be sidecars, which have ports, too.
	InitContainers []Container `json:"initContainers,omitempty"`
}

// Container holds the ports of a container, which policies may name.
type Container struct {
	Ports []ContainerPort `json:"ports,omitempty"`
}

// ContainerPort is a port with a name.
type ContainerPort struct {
	Name          string `json:"name,omitempty"`
	ContainerPort int    `json:"containerPort"`
	// Protocol is TCP, UDP or SCTP; empty means TCP.
	Protocol string `json:"protocol,omitempty"`
}

// PodStatus holds the fields of a pod's status that policies depend on.
type PodStatus struct {
	Phase string `json:"phase,omitempty"`
	PodIP string `json:"podIP,omitempty"`
}

// Namespace holds the fields of a v1 Namespace that policies depend on.
type Namespace struct {
	Metadata Metadata `json:"metadata"`
}

// Policy is a networking.k8s.io/v1 NetworkPolicy.
type Policy struct {
	Metadata Metadata   `json:"metadata"`
	Spec     PolicySpec `json:"spec"`
}

// PolicySpec is the spec of a NetworkPolicy.
type PolicySpec struct {
	PodSelector metav1.LabelSelector `json:"podSelector"`
	PolicyTypes []string             `json:"policyTypes,omitempty"`
	Ingress     []PolicyRule         `json:"ingress,omitempty"`
	Egress      []PolicyRule         `json:"egress,omitempty"`
}

// PolicyRule is a rule of a NetworkPolicy. From is that of ingress, To that of egress.
type PolicyRule struct {
	Ports []PolicyPort `json:"ports,omitempty"`
	From  []PolicyPeer `json:"from,omitempty"`
	To    []PolicyPeer `json:"to,omitempty"`
}

// PolicyPort is a port, a range of ports or the name of a port.
type PolicyPort struct {
	Protocol string              `json:"protocol,omitempty"`
	Port     *intstr.IntOrString `json:"port,omitempty"`
	EndPort  *int32              `json:"endPort,omitempty"`
}

// PolicyPeer selects pods or addresses.
type PolicyPeer struct {
	PodSelector       *metav1.LabelSelector `json:"podSelector,omitempty"`
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	IPBlock           *IPBlock              `json:"ipBlock,omitempty"`
}

// IPBlock is a range of addresses without some others.
type IPBlock struct {
	CIDR   string   `json:"cidr"`
	Except []string `json:"except,omitempty"`
}

// The directions, as policyTypes names them.
const (
	ingressType = "Ingress"
	egressType  = "Egress"
)

// NodeRules are the rules of one node.
type NodeRules struct {
	// Pods of the node that a policy selects, sorted by address.
	Pods []PodRules `json:"pods"`
	// Sets of addresses that rules name. The name is a hash of the addresses, which are sorted.
	Sets map[string][]string `json:"sets,omitempty"`
}

// PodRules are the rules of one pod.
type PodRules struct {
	// Address of the pod (IPv4).
	Address string `json:"address"`
	// Ingress are the connections to the pod that are allowed; nil: all, empty: none.
	Ingress []Rule `json:"ingress,omitzero"`
	// Egress are the connections of the pod that are allowed; nil: all, empty: none.
	Egress []Rule `json:"egress,omitzero"`
}

// Rule allows connections with some addresses and ports.
type Rule struct {
	// Set names the set of addresses; empty: see Block.
	Set string `json:"set,omitempty"`
	// Block is a range of addresses (CIDR). Empty as well as Set: all addresses.
	Block string `json:"block,omitempty"`
	// Except are ranges within Block that are not allowed.
	Except []string `json:"except,omitempty"`
	// Ports that are allowed; empty: all ports of all protocols.
	Ports []Ports `json:"ports,omitempty"`
}

// Ports is a range of ports of one protocol.
type Ports struct {
	// Protocol is tcp, udp or sctp.
	Protocol string `json:"protocol"`
	// First and Last port; both zero: all ports.
	First int `json:"first,omitempty"`
	Last  int `json:"last,omitempty"`
}
