// SPDX-License-Identifier: Apache-2.0

// Package operator says which rights in AWS whoever runs Slipway needs for one cluster, as IAM policies. It calls nothing
// and knows no driver: a test holds its list of actions against the calls that the drivers declare and make.
package iampolicy

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
)

// MaxPolicySize is how many characters IAM lets a managed policy have; white space does not count.
const MaxPolicySize = 6144

// StoreLocation is a place on S3 that holds state, or what machines read.
type StoreLocation struct{ Bucket, Prefix string }

// Input says whose rights are meant. All but Balancers, Stores, Peers, RouteTables, Names and Zones are required.
type Input struct {
	Partition, Region, Account, Cluster string
	// RolePath is the IAM path of the cluster's roles; KeyAlias the alias of its key.
	RolePath, KeyAlias string
	// LoadBalancers are the names of the cluster's load balancers, whose listeners have no tags.
	LoadBalancers []string
	Stores        []StoreLocation
	// PeerVPCs are the ids of the VPCs that the cluster's is connected with, RouteTables those of their tables that get a
	// route back.
	PeerVPCs, RouteTables []string
	// WarmPools says that groups of the cluster have some.
	WarmPools bool
	// DNSNames are the DNS names that the cluster has, Zones the ids of the existing zones they are in; none: it is made.
	DNSNames, HostedZones []string
	// ReadOnly leaves out all that changes something: enough for plan.
	ReadOnly bool
}

// Statement is one statement of a policy. Its fields have IAM's names.
type Statement struct {
	Sid, Effect      string
	Action, Resource []string
	Condition        condition `json:"Condition,omitempty"`
}

// Policy is one document.
type Policy struct {
	Version   string
	Statement []Statement
}

// AllowedActions returns every action that the documents allow, sorted.
func AllowedActions(docs []Policy) []string {
	var out []string
	for _, d := range docs {
		for _, s := range d.Statement {
			out = append(out, s.Action...)
		}
	}

	slices.Sort(out)

	return slices.Compact(out)
}

// Size of a document as IAM counts it.
func (p Policy) Size() int {
	b, err := json.Marshal(p)
	if err != nil {
		return 0 // it holds strings only
	}

	n := 0

	for _, c := range string(b) {
		if !strings.ContainsRune(" \t\r\n", c) {
			n++
		}
	}

	return n
}

// BuildPolicies returns the documents for in, as few as hold the statements in their order.
func BuildPolicies(in Input) []Policy {
	s := policyBuilder{in}
	list := s.readStatements()
	if !in.ReadOnly {
		list = slices.Concat(
			list,
			s.networkStatements(),
			s.peeringStatements(),
			s.dnsStatements(),
			s.machineStatements(),
			s.identityStatements(),
			s.leftoverStatements(),
			s.storeStatements(),
		)
	} else {
		list = slices.Concat(list, s.storeReadStatements())
	}

	docs := []Policy{{Version: "2012-10-17"}}

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

// policyBuilder makes ARNs and conditions of one cluster.
type policyBuilder struct{ Input }

func (s policyBuilder) regionalARN(service, rest string) string {
	return "arn:" + s.Partition + ":" + service + ":" + s.Region + ":" + s.Account + ":" + rest
}

// arnsByID are the ARNs of resources by their ids.
func (s policyBuilder) arnsByID(service, kind string, ids []string) []string {
	var out []string
	for _, id := range ids {
		out = append(out, s.regionalARN(service, kind+id))
	}

	return out
}

func (s policyBuilder) iamARN(kind string) string {
	return "arn:" + s.Partition + ":iam::" + s.Account + ":" + kind + s.RolePath + "*"
}

// ec2ARNs are the ARNs of all resources of kinds.
func (s policyBuilder) ec2ARNs(kinds ...string) []string {
	var out []string
	for _, k := range kinds {
		out = append(out, s.regionalARN("ec2", k+"/*"))
	}

	return out
}

// condition is a statement's: values by operator and key.
type condition map[string]map[string][]string

func stringEquals(key, value string) condition { return condition{"StringEquals": {key: {value}}} }

// requestHasClusterTag asks that what is made bears the cluster's tag, ours that what is touched does.
func (s policyBuilder) requestHasClusterTag() condition {
	return stringEquals("aws:RequestTag/"+awskind.TagCluster, s.Cluster)
}
func (s policyBuilder) resourceHasClusterTag() condition {
	return stringEquals("aws:ResourceTag/"+awskind.TagCluster, s.Cluster)
}

func newStatement(sid string, actions, resources []string, c condition) Statement {
	return Statement{
		Sid:       sid,
		Effect:    "Allow",
		Action:    actions,
		Resource:  resources,
		Condition: c,
	}
}

// qualifyActions puts a service's name in front of its operations.
func qualifyActions(service string, operations ...string) []string {
	out := make([]string, 0, len(operations))
	for _, o := range operations {
		out = append(out, service+":"+o)
	}

	return out
}

// ExampleResources are resources that a statement is about: its patterns with something in the place of each star, so that a
// simulation matches what is meant and no more.
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

// ConditionKeys are the condition keys with which a statement applies.
func (s Statement) ConditionKeys() map[string][]string {
	out := map[string][]string{}
	for _, keys := range s.Condition {
		for k, values := range keys {
			for _, v := range values {
				out[k] = append(out[k], strings.ReplaceAll(v, "*", "x"))
			}
		}
	}

	return out
}
