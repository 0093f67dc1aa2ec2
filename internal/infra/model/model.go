// SPDX-License-Identifier: Apache-2.0

// Package model turns a cluster's manifests into the graph of AWS resources that it is made of, one file a concern.
// It decides what there is to be; it knows no SDK, reads nothing and changes nothing.
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
	// ID such as ami-0123.
	ID string
	// RootDevice such as /dev/xvda: where the root volume is mapped.
	RootDevice string
}

// BootSource is where a group's machines find their agent and their document.
type BootSource struct {
	AgentURL, AgentSHA256       string
	DocumentURL, DocumentSHA256 string
}

// MachineStore is the S3 place that machines read.
type MachineStore struct {
	Bucket, Prefix string
	// KMSKeyARN is the key that the bucket's objects are encrypted under; empty if it has none of its own.
	KMSKeyARN string
}

// Input is all that the model depends on.
type Input struct {
	Cluster v1alpha1.Cluster
	// Groups of the cluster, defaulted and valid.
	Groups []v1alpha1.InstanceGroup
	// Account, Region and Partition (aws, aws-cn, aws-us-gov) to build in.
	Account, Region, Partition string
	// Images and Boot by the name of the group.
	Images map[string]Image
	Boot   map[string]BootSource
	// BootScript is user data with @@CONFIG@@ in the place of the boot configuration.
	BootScript   string
	MachineStore MachineStore
	// SignalStack lets machines tell CloudFormation when they are well. It is for templates only: see [graph.Signals].
	SignalStack bool
}

// The ports that machines and load balancers speak on.
const (
	portAPI       = 6443
	portAPIPublic = 443
	portJoin      = 3988
	portKubelet   = 10250
	portEtcd      = 2379 // and the next one for peers
	portVXLAN     = 8472
)

// builder holds what later concerns need of earlier ones.
type builder struct {
	Input
	graph    *graph.Graph
	findings diag.Findings

	vpc     graph.Ref[awskind.VPC]
	subnets map[string]graph.Ref[awskind.Subnet]
	// egressDeps is what makes a private subnet reach out, by the subnet's name.
	egressDeps map[string][]graph.Reference
	// routeTables are the route tables that are made.
	routeTables []graph.Ref[awskind.RouteTable]
	// volumeKeyARN is the ARN of the key for volumes.
	volumeKeyARN graph.Text
	controlPlane machineRole
	worker       machineRole
	bastion      machineRole
	// keyPair of every machine; unset without SSH.
	keyPair         graph.Ref[awskind.KeyPair]
	balancers       apiBalancers
	apiTargetGroups []graph.Ref[awskind.TargetGroup]
	// apiElasticIP is that of the API, if it is the control-plane machine's own.
	apiElasticIP graph.Ref[awskind.EIP]
}

// machineRole is what the machines of one role share.
type machineRole struct {
	securityGroup graph.Ref[awskind.SecurityGroup]
	egressRule    graph.Reference
	profile       graph.Ref[awskind.InstanceProfile]
	policies      []graph.Reference
}

// apiBalancers are the load balancers and their security groups; public is unset where the API is internal only.
type apiBalancers struct {
	publicGroup, internalGroup, bastionGroup graph.Ref[awskind.SecurityGroup]
	public, internal                         graph.Ref[awskind.LoadBalancer]
}

// Build returns the graph of a cluster. Its order of addition is the order in which it reads: network first.
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
	b.addAPIBalancers()
	b.addDNSRecord()
	b.addControlPlane()
	b.addWorkers()
	b.addBastions()

	return b.graph, b.findings
}

func (b *builder) checkInput() {
	for _, ig := range b.Groups {
		path := "instancegroup/" + ig.Metadata.Name
		if b.Images[ig.Metadata.Name].ID == "" {
			b.findings.Errorf(path+": spec.image", ig.Spec.Image, "", "no machine image was found")
		}

		if ig.Spec.Role != v1alpha1.RoleBastion && b.Boot[ig.Metadata.Name].DocumentURL == "" {
			b.findings.Errorf(path, "", "", "no node document was made")
		}
	}
}

func (b *builder) clusterName() string { return b.Cluster.Metadata.Name }

// usesElasticIP says that the API is at the address of the only control-plane machine.
func (b *builder) usesElasticIP() bool { return b.Cluster.Spec.API.LoadBalancer.Type == "ElasticIP" }

// hasInternalBalancer says whether machines meet at the internal load balancer. The only machine of a cluster needs none.
func (b *builder) hasInternalBalancer() bool {
	return !b.usesElasticIP() || len(b.groupsByRole(v1alpha1.RoleWorker)) > 0
}

func (b *builder) hasPublicBalancer() bool { return b.Cluster.Spec.API.LoadBalancer.Type == "Public" }

// resourceTags of the resource of kind k called name. The manifest's own go first, so that ours win.
func (b *builder) resourceTags(k graph.Kind, name string, more awskind.Tags) awskind.Tags {
	t := awskind.Tags{}
	maps.Copy(t, b.Cluster.Spec.Tags)
	if marks := graph.EncodeTagKeys(slices.Collect(maps.Keys(t))); marks != "" {
		t[graph.TagKeysTag] = marks
	}

	maps.Copy(t, awskind.Tags{
		awskind.TagCluster: b.clusterName(), awskind.TagAddress: string(graph.Address(k, name)),
		awskind.TagClusterOwned + b.clusterName(): "owned", "Name": name + "." + b.clusterName(),
	})

	maps.Copy(t, more)

	return t
}

// groupsByRole of a role, sorted by name.
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
