// SPDX-License-Identifier: Apache-2.0

package model

import (
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// apiAddress is the name of the address that the API is at, and apiSlot the slot whose machine has it.
const (
	apiAddress = "api"
	apiSlot    = "a"
)

// addElasticIP adds the elastic IP address that the control-plane machine takes when it boots: its tags tell it which (S3.17).
func (b *builder) addElasticIP() {
	if !b.usesElasticIP() {
		return
	}

	var after []graph.Reference
	for _, s := range b.edgeSubnets() {
		after = append(after, b.egressDeps[s.Name]...)
	}

	b.apiElasticIP = graph.Add(b.graph, apiAddress, awskind.EIP{
		Domain: "vpc", Tags: b.resourceTags(awskind.EIP{}.Kind(), apiAddress, awskind.Tags{awskind.TagSlot: apiSlot}),
	}, after...)
}

// apiHostnames is where the API is for its users, nothing if only machines reach it, and for machines. The only machine of a
// cluster is there itself.
func (b *builder) apiHostnames() (public, internal graph.Text) {
	switch {
	case b.hasPublicBalancer():
		public = b.balancers.public.Attr("DNSName")
	case b.usesElasticIP():
		public = b.apiElasticIP.Attr("PublicIp")
	}

	if !b.hasInternalBalancer() {
		return public, graph.LiteralText("127.0.0.1")
	}

	return public, b.balancers.internal.Attr("DNSName")
}

// addressStatements let the control-plane machine take the cluster's address, and no other.
func (b *builder) addressStatements(own policyCondition) []policyStatement {
	if !b.usesElasticIP() {
		return nil
	}

	ec2 := "arn:" + b.Partition + ":ec2:" + b.Region + ":" + b.Account + ":"
	return []policyStatement{
		{
			ID:        "FindAddress",
			Actions:   []string{"ec2:DescribeAddresses"},
			Resources: []string{"*"},
		}, // EC2 has no narrower right
		{
			ID:        "TakeAddress",
			Actions:   []string{"ec2:AssociateAddress"},
			Condition: own,
			Resources: []string{ec2 + "elastic-ip/*", ec2 + "instance/*", ec2 + "network-interface/*"},
		},
	}
}
