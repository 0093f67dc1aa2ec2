// SPDX-License-Identifier: Apache-2.0

// Package model converts a cluster's manifests to the graph of its AWS resources. Each file covers one area:
// network, security groups, IAM, identities of pods, KMS, load balancers, DNS, machines. It is pure: it does not use
// the AWS SDK, reads nothing and changes nothing.
package model

import (
	"maps"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// Image is the machine image of a group.
type Image struct {
	// ID of the AMI, such as ami-0123.
	ID string
	// RootDevice is the device name of the root volume, such as /dev/xvda.
	RootDevice string
}

// BootSource is where a group's machines download the agent and their node document.
type BootSource struct {
	// AgentURL of the agent binary, such as s3://bucket/key.
	AgentURL string
	// AgentSHA256 is the hash of the agent, in hex.
	AgentSHA256 string
	// DocumentURL of the group's node document.
	DocumentURL string
	// DocumentSHA256 is the hash of the node document, in hex.
	DocumentSHA256 string
}

// MachineStore is the location in S3 that machines read.
type MachineStore struct {
	// Bucket is the name of the bucket.
	Bucket string
	// Prefix of the keys, without a trailing slash; may be empty.
	Prefix string
	// Owner is the account that must own the bucket; empty: any.
	Owner string
	// KMSKeyARN is the key that encrypts the bucket's objects; empty: no customer managed key.
	KMSKeyARN string
	// Boundary is the ARN of the permissions boundary of the machines' roles; empty: none, for a store of an older
	// slipway.
	Boundary string
}

// Input is everything that the model depends on.
type Input struct {
	// Cluster is the manifest, with defaults and validated.
	Cluster v1alpha1.Cluster
	// ClusterID is the cluster's random id, the value of the tag slipway.dev/id.
	ClusterID string
	// Groups are the instance groups of the cluster, with defaults and validated.
	Groups []v1alpha1.InstanceGroup
	// Account is the AWS account's 12 digits.
	Account string
	// Region is the AWS region, such as us-east-1.
	Region string
	// Partition is aws, aws-cn or aws-us-gov.
	Partition string
	// Images by the name of the group.
	Images map[string]Image
	// Boot by the name of the group. A group of bastions needs none.
	Boot map[string]BootSource
	// BootScript is the user data, with @@CONFIG@@ in place of the boot configuration.
	BootScript   string
	MachineStore MachineStore
	// KeepsSharedRole keeps the one role that an older slipway gave all control-plane machines, because some still have
	// it.
	KeepsSharedRole bool
	// KarpenterImages are the ids of the images with which Karpenter may still launch machines, in addition to those of the groups:
	// it has a new one only after a rolling update.
	KarpenterImages []string
	// KeepsKarpenter keeps the role of Karpenter, with which it can only end machines, in a cluster without groups of Karpenter: it
	// has not ended them all.
	KeepsKarpenter bool
	// FunctionCode is the code of the function that keeps DNS records; zero if the cluster needs none.
	FunctionCode FunctionCode
	// SignalStack lets machines signal CloudFormation when they are healthy. Only for graphs that are
	// rendered as a template, since it uses [graph.SignalsPlaceholder].
	SignalStack bool
}

// The ports of machines and load balancers.
const (
	portAPI       = 6443
	portAPIPublic = 443
	portJoin      = 3988
	portKubelet   = 10250
	portEtcd      = 2379 // peers use 2380
	portDNS       = 53
	portVXLAN     = 8472 // of flannel and of Cilium
	// https://docs.cilium.io/en/stable/operations/system_requirements/#firewall-rules
	portCiliumHealth = 4240
	portWireGuard    = 51820 // flannel's default for IPv4
	firstNodePort    = 30000 // the API server's default range
	lastNodePort     = 32767
)

// The message of path MTU discovery: destination unreachable, because fragmentation is needed and DF is set.
const (
	icmpUnreachable         = 3 // the type
	icmpFragmentationNeeded = 4 // the code
)

// builder is the state of one [Build]: the resources that later steps refer to.
type builder struct {
	Input
	graph    *graph.Graph
	findings diag.Findings

	vpc     graph.Ref[awskind.VPC]
	subnets map[string]graph.Ref[awskind.Subnet]
	// egressDeps lists the resources that outbound traffic of a subnet needs, by the subnet's name.
	egressDeps map[string][]graph.Reference
	// routeTables are the managed route tables.
	routeTables []graph.Ref[awskind.RouteTable]
	// volumeKeyARN is the ARN of the KMS key for volumes.
	volumeKeyARN graph.Text
	controlPlane machineRole
	worker       machineRole
	bastion      machineRole
	// keyPair of every machine; unset without SSH.
	keyPair         graph.Ref[awskind.KeyPair]
	balancers       apiBalancers
	apiTargetGroups []graph.Ref[awskind.TargetGroup]
	// apiElasticIP is the address of the API, if it has no load balancer.
	apiElasticIP graph.Ref[awskind.EIP]
	// etcdEvents are what lets launches of machines trigger the function that keeps the records of etcd's members; empty
	// without one. A launch before them is not seen until the next full comparison.
	etcdEvents []graph.Reference
	// etcdNotifications are the notifications of the groups of the control plane that trigger that function by SNS.
	etcdNotifications []awskind.GroupNotification
}

// machineRole holds the resources that the machines of one role share.
type machineRole struct {
	securityGroup graph.Ref[awskind.SecurityGroup]
	egressRule    graph.Reference
	profile       graph.Ref[awskind.InstanceProfile]
	policies      []graph.Reference
}

// apiBalancers holds the load balancers and their security groups; public is unset if the API is internal.
type apiBalancers struct {
	publicGroup, internalGroup, bastionGroup graph.Ref[awskind.SecurityGroup]
	public, internal                         graph.Ref[awskind.LoadBalancer]
}

// Build returns the graph of a cluster. With findings of severity error the graph is incomplete.
func Build(in Input) (*graph.Graph, diag.Findings) {
	b := &builder{
		Input:      in,
		graph:      &graph.Graph{},
		subnets:    map[string]graph.Ref[awskind.Subnet]{},
		egressDeps: map[string][]graph.Reference{},
	}

	b.checkInput()
	if b.findings.Err() != nil {
		return b.graph, b.findings
	}

	b.addNetwork()
	b.addPeerings()
	b.addKMSKey()
	b.addSecurityGroups()
	b.addVPCEndpoints()
	b.addElasticIP()
	b.addSSHAccess()
	b.addIAMRoles()
	b.addPodIdentity()
	b.addAPIBalancers()
	b.addDNSRecord()
	addEtcdDNS(b)
	b.addControlPlane()
	b.addWorkers()
	b.addBastions()

	return b.graph, b.findings
}

func (b *builder) checkInput() {
	if b.ClusterID == "" {
		b.findings.Errorf("cluster/"+b.clusterName(), "", "", "the cluster has no id")
	}

	for _, ig := range b.Groups {
		path := "instancegroup/" + ig.Metadata.Name
		if b.Images[ig.Metadata.Name].ID == "" {
			b.findings.Errorf(path+": spec.image", ig.Spec.Image, "", "no machine image was found")
		}

		if ig.Spec.Role != v1alpha1.RoleBastion && b.Boot[ig.Metadata.Name].DocumentURL == "" {
			b.findings.Errorf(path, "", "", "no node document was created")
		}
	}
}

func (b *builder) clusterName() string { return b.Cluster.Metadata.Name }

// usesElasticIP reports whether the API has an Elastic IP address instead of a load balancer: the only
// control-plane machine takes it.
func (b *builder) usesElasticIP() bool { return b.Cluster.Spec.API.LoadBalancer.Type == "ElasticIP" }

// hasInternalBalancer reports whether machines reach the API through the internal load balancer. A cluster of
// one machine does not need it.
func (b *builder) hasInternalBalancer() bool {
	return !b.usesElasticIP() || len(b.groupsByRole(v1alpha1.RoleWorker)) > 0
}

func (b *builder) hasPublicBalancer() bool { return b.Cluster.Spec.API.LoadBalancer.Type == "Public" }

// hasOwnedTag reports whether resources of kind k have the tag [awskind.TagClusterOwned]. Controllers in a
// cluster look for networks, security groups and instances with it; Auto Scaling groups pass it on to these.
// The operator's policy allows the deletion of the others by it, as of those that controllers create.
func hasOwnedTag(k graph.Kind) bool {
	switch k.Name {
	case awskind.VPC{}.Kind().Name, awskind.Subnet{}.Kind().Name, awskind.SecurityGroup{}.Kind().Name,
		awskind.AutoScalingGroup{}.Kind().Name, awskind.Volume{}.Kind().Name,
		awskind.LoadBalancer{}.Kind().Name, awskind.TargetGroup{}.Kind().Name:
		return true
	}

	return false
}

// resourceTags returns the tags of the resource of kind k with the given name. Slipway's tags override those
// of the manifest.
func (b *builder) resourceTags(k graph.Kind, name string, more awskind.Tags) awskind.Tags {
	t := awskind.Tags{}
	maps.Copy(t, b.Cluster.Spec.Tags)
	if marks := graph.EncodeTagKeys(slices.Collect(maps.Keys(t))); marks != "" {
		t[graph.TagKeysTag] = marks
	}

	maps.Copy(t, b.clusterTags(name))
	t[awskind.TagAddress] = string(graph.Address(k, name))
	if k.Name == (awskind.LaunchTemplate{}).Kind().Name || k.Name == (awskind.TargetGroup{}).Kind().Name {
		delete(t, "Name") // the console shows their own name
	}

	if hasOwnedTag(k) {
		t[awskind.TagClusterOwned+b.clusterName()] = "owned"
	}

	maps.Copy(t, more)

	return t
}

// clusterTags returns the tags that name the cluster of a resource with the given name.
func (b *builder) clusterTags(name string) awskind.Tags {
	return awskind.Tags{
		awskind.TagCluster:   b.clusterName(),
		awskind.TagClusterID: b.ClusterID,
		"Name":               name + "." + b.clusterName(),
	}
}

// groupsByRole returns the instance groups of a role, sorted by name.
func (b *builder) groupsByRole(role v1alpha1.Role) []v1alpha1.InstanceGroup {
	var out []v1alpha1.InstanceGroup
	for _, ig := range b.Groups {
		if ig.Spec.Role == role {
			out = append(out, ig)
		}
	}

	slices.SortFunc(
		out,
		func(x, y v1alpha1.InstanceGroup) int { return strings.Compare(x.Metadata.Name, y.Metadata.Name) },
	)

	return out
}
