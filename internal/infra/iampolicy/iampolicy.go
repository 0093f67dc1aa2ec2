// SPDX-License-Identifier: Apache-2.0

// Package iampolicy generates the IAM policies that an operator needs to manage one cluster with Slipway. It
// makes no calls and does not know the drivers: a test compares its actions with the calls that the drivers
// declare and make.
//
// Permissions are restricted to the cluster by its tag, its IAM path and its names, as far as IAM allows that
// for an action.
package iampolicy

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/lib/partition"
)

// policyVersion is the version of IAM's policy language.
const policyVersion = "2012-10-17"

// MaxPolicySize is IAM's limit for a managed policy in characters, not counting white space.
const MaxPolicySize = 6144

// StoreLocation is the location of a state store or a machine store in S3.
type StoreLocation struct {
	// Bucket is the bucket's name.
	Bucket string
	// Prefix of the keys, without a trailing slash; may be empty.
	Prefix string
}

// Input describes the cluster that the policies are for. Partition to KeyAlias are required.
type Input struct {
	// Partition is aws, aws-cn or aws-us-gov.
	Partition string
	// Region such as us-east-1.
	Region string
	// Account is the AWS account's 12 digits.
	Account string
	// Cluster is the cluster's name.
	Cluster string
	// RolePath is the IAM path of the cluster's roles, with slashes at both ends.
	RolePath string
	// KeyAlias is the alias of the cluster's KMS key, such as alias/slipway/demo.
	KeyAlias string
	// LoadBalancers lists the names of the cluster's load balancers: listeners have no tags and are
	// restricted by these.
	LoadBalancers []string
	// TargetGroups lists the names of the cluster's target groups: Auto Scaling does not check their tags.
	TargetGroups []string
	// Stores lists the state store and the machine store.
	Stores []StoreLocation
	// PeerVPCs lists the ids of the VPCs that are peered with the cluster's VPC.
	PeerVPCs []string
	// RouteTables lists the ids of their route tables that get a route to the cluster's VPC.
	RouteTables []string
	// Existing are the resources of others that the manifests name.
	Existing ExistingResources
	// HasEndpoints is true if the cluster has VPC endpoints of any type.
	HasEndpoints bool
	// WarmPools is true if a group of the cluster has a warm pool.
	WarmPools bool
	// UnknownTypes is true if a group uses a machine type that the embedded list does not contain.
	UnknownTypes bool
	// InterfaceEndpoints is true if the cluster has VPC endpoints of type Interface, whose private DNS names EC2 puts into
	// a hosted zone of the VPC.
	InterfaceEndpoints bool
	// DNSNames lists the DNS names of the cluster's records.
	DNSNames []string
	// HostedZones lists the ids of existing zones of these names. Empty: Slipway creates the zone.
	HostedZones []string
	// CreatesZones is true if Slipway creates hosted zones for the cluster.
	CreatesZones bool
	// Issuer is the issuer of service-account tokens, an https URL, if the cluster is an OpenID Connect provider in IAM.
	// Empty: it is none.
	Issuer string
	// Discovery is where the documents of the issuer are published, if Issuer is set.
	Discovery StoreLocation
	// Function is the name of the function that keeps the DNS records of etcd's members, of its rule and in that of its log
	// group. Empty: the cluster has none.
	Function string
	// FunctionRole is the name of the role of that function.
	FunctionRole string
	// HasTopic is true if notifications to an SNS topic with the name of that function trigger it.
	HasTopic bool
	// ReadOnly leaves out all changes and all keys: what remains is enough for commands that only read.
	ReadOnly bool
	// RegistryAccounts lists the other AWS accounts from whose private registries machines pull images, 12 digits each, for
	// [BuildBoundary] only.
	RegistryAccounts []string
	// VPCCNI is true if a cluster has the Amazon VPC CNI, for [BuildBoundary] only.
	VPCCNI bool
	// Boundary is the ARN of the permissions boundary that the cluster's roles must have; see [BoundaryARN].
	Boundary string
	// KarpenterRole is the name of the role of Karpenter. Empty: the cluster has no groups of Karpenter.
	KarpenterRole string
	// IsKarpenterBoundary is true if the boundary to build is that of Karpenter's roles, for package permissions only.
	IsKarpenterBoundary bool
	// KarpenterBoundary is the ARN of the permissions boundary that it must have; see [KarpenterBoundaryARN].
	KarpenterBoundary string
	// KeyARN is the ARN of the cluster's KMS key, for [BuildDeletionPolicy] only.
	KeyARN string
}

// Statement is one statement of a policy. Its fields have IAM's names.
type Statement struct {
	// Sid names the statement, such as CreateInVPC.
	Sid string
	// Effect is Allow or Deny.
	Effect string
	// Action lists actions such as ec2:CreateVpc.
	Action []string
	// Resource lists ARN patterns.
	Resource []string
	// Condition is values by operator and key; empty: none.
	Condition condition `json:"Condition,omitempty"`
}

// Policy is one IAM policy document.
type Policy struct {
	// Version of IAM's policy language, 2012-10-17.
	Version   string
	Statement []Statement
}

// AllowedActions returns every action that the policies allow, each once, sorted.
func AllowedActions(docs []Policy) []string {
	var out []string
	for _, d := range docs {
		for _, s := range d.Statement {
			if s.Effect == effectAllow {
				out = append(out, s.Action...)
			}
		}
	}

	slices.Sort(out)

	return slices.Compact(out)
}

// Size returns the size of p in characters as IAM counts it, without white space.
func (p Policy) Size() int {
	b, err := json.Marshal(p)
	if err != nil {
		return 0 // cannot happen: p contains only strings
	}

	n := 0

	for _, c := range string(b) {
		if !strings.ContainsRune(" \t\r\n", c) {
			n++
		}
	}

	return n
}

// BuildPolicies returns the policies for in: as few as fit all statements, in order, within [MaxPolicySize].
func BuildPolicies(in Input) []Policy {
	s := policyBuilder{in}
	list := s.readStatements()
	if !in.ReadOnly {
		list = slices.Concat(
			list,
			s.networkStatements(),
			s.endpointStatements(),
			s.existingStatements(),
			s.peeringStatements(),
			s.dnsStatements(),
			s.machineStatements(),
			s.identityStatements(),
			s.issuerStatements(),
			s.functionStatements(),
			s.topicStatements(),
			s.leftoverStatements(),
			s.progressStatements(),
			s.storeStatements(),
		)
	} else {
		list = slices.Concat(list, s.progressStatements(), s.storeReadStatements())
	}

	docs := []Policy{{Version: policyVersion}}

	for _, st := range list {
		last := &docs[len(docs)-1]
		longer := Policy{Version: last.Version, Statement: append(slices.Clone(last.Statement), st)}
		if len(last.Statement) > 0 && longer.Size() > MaxPolicySize {
			docs = append(docs, Policy{Version: last.Version, Statement: []Statement{st}})
			continue
		}

		*last = longer
	}

	return docs
}

// policyBuilder builds the statements of one cluster.
type policyBuilder struct{ Input }

func (s policyBuilder) regionalARN(service, rest string) string {
	return "arn:" + s.Partition + ":" + service + ":" + s.Region + ":" + s.Account + ":" + rest
}

// arnsByID returns the ARNs of EC2's resources with these ids. kind is the ARN's resource type with a trailing
// slash.
func (s policyBuilder) arnsByID(kind string, ids []string) []string {
	var out []string
	for _, id := range ids {
		out = append(out, s.regionalARN("ec2", kind+id))
	}

	return out
}

func (s policyBuilder) iamARN(kind string) string {
	return "arn:" + s.Partition + ":iam::" + s.Account + ":" + kind + s.RolePath + "*"
}

// ec2ARNs returns ARN patterns for all EC2 resources of these types.
func (s policyBuilder) ec2ARNs(kinds ...string) []string {
	var out []string
	for _, k := range kinds {
		out = append(out, s.regionalARN("ec2", k+"/*"))
	}

	return out
}

// condition is the condition of a statement: values by operator and key.
type condition map[string]map[string][]string

func stringEquals(key string, values ...string) condition {
	return condition{"StringEquals": {key: values}}
}

// dnsSuffix returns the domain of the partition's services.
func (s policyBuilder) dnsSuffix() string { return partition.Named(s.Partition).DNSSuffix }

// requestHasClusterTag requires that the created resource gets the cluster's tag.
func (s policyBuilder) requestHasClusterTag() condition {
	return stringEquals("aws:RequestTag/"+awskind.TagCluster, s.Cluster)
}

// resourceHasClusterTag requires that the changed resource has the cluster's tag.
func (s policyBuilder) resourceHasClusterTag() condition {
	return stringEquals("aws:ResourceTag/"+awskind.TagCluster, s.Cluster)
}

// staysInCluster requires that the changed resource has the cluster's tag, and does not get that of another cluster.
func (s policyBuilder) staysInCluster() condition {
	c := s.resourceHasClusterTag()
	c["StringEqualsIfExists"] = map[string][]string{"aws:RequestTag/" + awskind.TagCluster: {s.Cluster}}

	return c
}

func newStatement(sid string, actions, resources []string, c condition) Statement {
	return Statement{
		Sid:       sid,
		Effect:    effectAllow,
		Action:    actions,
		Resource:  resources,
		Condition: c,
	}
}

// The effects of a statement.
const (
	effectAllow = "Allow"
	effectDeny  = "Deny"
)

// newDeny returns a statement that no other policy can override.
func newDeny(sid string, actions, resources []string, c condition) Statement {
	st := newStatement(sid, actions, resources, c)
	st.Effect = effectDeny

	return st
}

// qualifyActions returns the actions of a service's operations, such as ec2:CreateVpc.
func qualifyActions(service string, operations ...string) []string {
	out := make([]string, 0, len(operations))
	for _, o := range operations {
		out = append(out, service+":"+o)
	}

	return out
}

// ExampleResources returns an example for each of the statement's resource patterns, for a policy simulation:
// each star is replaced by a letter.
func (s Statement) ExampleResources() []string {
	out := make([]string, 0, len(s.Resource))
	for _, r := range s.Resource {
		if r != "*" {
			r = strings.ReplaceAll(r, "*", "x")
		}

		out = append(out, r)
	}

	return out
}

// ConditionKeys returns values of the condition keys for which the statement applies, for a policy
// simulation. A key has none if the statement applies without it.
func (s Statement) ConditionKeys() map[string][]string {
	out := map[string][]string{}
	for operator, keys := range s.Condition {
		if strings.Contains(operator, "Not") {
			continue
		}

		for k, values := range keys {
			for _, v := range values {
				if v != "" {
					out[k] = append(out[k], strings.ReplaceAll(v, "*", "x"))
				}
			}
		}
	}

	return out
}
