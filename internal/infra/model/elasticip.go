// SPDX-License-Identifier: Apache-2.0

package model

import (
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// apiAddress is the graph name of the API's Elastic IP address; apiSlot is the slot whose machine takes it.
const (
	apiAddress = "api"
	apiSlot    = "a"
)

// addElasticIP adds the Elastic IP address that the control-plane machine takes when it boots. The machine
// finds it by its tags (requirement S3.17).
func (b *builder) addElasticIP() {
	if !b.usesElasticIP() {
		return
	}

	var after []graph.Reference
	for _, s := range b.edgeSubnets() {
		after = append(after, b.egressDeps[s.Name]...)
	}

	tags := b.resourceTags(awskind.EIP{}.Kind(), apiAddress, awskind.Tags{awskind.TagSlot: apiSlot})
	b.apiElasticIP = graph.Add(b.graph, apiAddress, awskind.EIP{Domain: "vpc", Tags: tags}, after...)
}

// apiHostnames returns the API's address for users, empty if it is internal, and its address for machines,
// which is loopback in a cluster of one machine.
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

// addressStatements allows the control-plane machine to associate the cluster's Elastic IP address, and no
// other.
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
		}, // EC2 does not restrict Describe calls to resources
		{
			ID:        "TakeAddress",
			Actions:   []string{"ec2:AssociateAddress"},
			Condition: own,
			Resources: []string{ec2 + "elastic-ip/*", ec2 + "instance/*", ec2 + "network-interface/*"},
		},
	}
}
