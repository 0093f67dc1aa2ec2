// SPDX-License-Identifier: Apache-2.0

// Package awskind declares the kinds of AWS resources that a cluster consists of: one plain struct for each
// kind, whose Kind method also declares how the planner treats it. See package graph for the struct tags. It
// does not use the AWS SDK and has no logic: package aws reads and writes the resources, package model sets
// the fields.
//
// The fields have the names and units of the AWS API, which their aws tags name. Package model sets them all;
// a zero field is unset, unless its tag has the option "always".
package awskind

import "github.com/slipway-k8s/slipway/internal/infra/graph"

// Tags are the tags of a resource, by key.
type Tags = map[string]string

// The keys of the tags that Slipway sets.
const (
	// TagCluster names the cluster that a resource belongs to.
	TagCluster = "slipway.dev/cluster"
	// TagClusterID is the random id of the cluster that a resource belongs to. Clusters of the same name that
	// different state stores manage differ in it.
	TagClusterID = "slipway.dev/id"
	// TagAddress is the resource's address in the graph: its identity between runs.
	TagAddress = "slipway.dev/address"
	// TagRole is the role of an instance: control-plane, worker or bastion.
	TagRole = "slipway.dev/role"
	// TagGroup is the name of the InstanceGroup of an instance.
	TagGroup = "slipway.dev/group"
	// TagSlot is the control-plane slot of an instance or of an etcd volume.
	TagSlot = "slipway.dev/etcd-slot"
	// TagSetAside has the slot whose former data is on a volume that 'slipway etcd move' has taken out of the cluster. Such a
	// volume has neither [TagSlot] nor [TagAddress].
	TagSetAside = "slipway.dev/set-aside"
	// TagRepair has the repair policy of a group, which agents of the control plane read.
	TagRepair = "slipway.dev/repair"
	// TagHooks records the lifecycle hooks of an Auto Scaling group. Only Slipway itself sets it, not CloudFormation or
	// Terraform.
	TagHooks = "slipway.dev/lifecycle-hooks"
	// TagInvoked records the input with which a function was invoked last, see [LambdaInvocation]. Only Slipway itself sets
	// it, not CloudFormation or Terraform.
	TagInvoked = "slipway.dev/invoked"
	// TagClusterOwned plus the cluster's name, with the value "owned", is the tag that in-cluster controllers
	// look for.
	TagClusterOwned = "kubernetes.io/cluster/"
	// TagNodePool is set by Karpenter on what it creates. The value is the name of the NodePool; empty for the launch template
	// with which Karpenter checks an EC2NodeClass.
	TagNodePool = "karpenter.sh/nodepool"
)

// AllKinds returns the zero value of every kind, in the order of the documentation.
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
		OIDCProvider{},
		KMSKey{},
		KMSAlias{},
		LoadBalancer{},
		TargetGroup{},
		Listener{},
		HostedZone{},
		DNSRecord{},
		LogGroup{},
		LambdaFunction{},
		LambdaInvocation{},
		EventRule{},
		LambdaPermission{},
		SNSTopic{},
		SNSSubscription{},
		KeyPair{},
		LaunchTemplate{},
		AutoScalingGroup{},
		LifecycleHook{},
		Volume{},
	}
}

// KindNamed returns the kind with the given [graph.Kind] Name; false if there is none.
func KindNamed(name string) (graph.Kind, bool) {
	for _, r := range AllKinds() {
		if r.Kind().Name == name {
			return r.Kind(), true
		}
	}

	return graph.Kind{}, false
}
