// SPDX-License-Identifier: Apache-2.0

// Package awskind declares the AWS resources that a cluster is made of, one plain struct a kind on top of package graph.
// It knows no SDK and does nothing: package aws reads and writes them, package model decides what they hold.
package awskind

import "github.com/slipway-k8s/slipway/internal/infra/graph"

// Tags are the tags of a resource.
type Tags = map[string]string

// The tags that say what a resource is to us.
const (
	// TagCluster names the cluster that a resource belongs to.
	TagCluster = "slipway.dev/cluster"
	// TagAddress holds a resource's address in the graph: its identity between runs.
	TagAddress = "slipway.dev/address"
	// TagRole of an instance: control-plane, worker or bastion.
	TagRole = "slipway.dev/role"
	// TagGroup is the InstanceGroup of an instance.
	TagGroup = "slipway.dev/group"
	// TagSlot is the control-plane slot of an instance or of an etcd volume.
	TagSlot = "slipway.dev/etcd-slot"
	// TagClusterOwned plus the cluster's name, with the value owned, is what in-cluster controllers look for.
	TagClusterOwned = "kubernetes.io/cluster/"
)

// AllKinds returns the zero of every kind, in the order in which they are documented.
func AllKinds() []graph.Resource {
	return []graph.Resource{
		VPC{},
		InternetGateway{},
		GatewayAttachment{},
		Subnet{},
		EIP{},
		NATGateway{},
		RouteTable{},
		VPCPeering{},
		Route{},
		RouteTableAssociation{},
		VPCEndpoint{},
		SecurityGroup{},
		SecurityGroupIngress{},
		SecurityGroupEgress{},
		IAMRole{},
		IAMRolePolicy{},
		InstanceProfile{},
		KMSKey{},
		KMSAlias{},
		LoadBalancer{},
		TargetGroup{},
		Listener{},
		HostedZone{},
		DNSRecord{},
		KeyPair{},
		LaunchTemplate{},
		AutoScalingGroup{},
		Volume{},
	}
}

// KindNamed returns the kind called name; false if there is none.
func KindNamed(name string) (graph.Kind, bool) {
	for _, r := range AllKinds() {
		if r.Kind().Name == name {
			return r.Kind(), true
		}
	}

	return graph.Kind{}, false
}
