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

// addresses adds the elastic IP address that the control-plane machine takes when it boots: its tags tell it which (S3.17).
func (b *builder) addresses() {
	if !b.elastic() {
		return
	}
	var after []graph.Pointer
	for _, s := range b.edges() {
		after = append(after, b.wayOut[s.Name]...)
	}
	b.address = graph.Add(b.g, apiAddress, awskind.EIP{
		Domain: "vpc", Tags: b.tags(awskind.EIP{}.Kind(), apiAddress, awskind.Tags{awskind.TagSlot: apiSlot}),
	}, after...)
}

// reach is where the API is for its users, nothing if only machines reach it, and for machines. The only machine of a
// cluster is there itself.
func (b *builder) reach() (public, internal graph.Text) {
	switch {
	case b.public():
		public = b.lb.public.Attr("DNSName")
	case b.elastic():
		public = b.address.Attr("PublicIp")
	}
	if !b.balanced() {
		return public, graph.Lit("127.0.0.1")
	}
	return public, b.lb.internal.Attr("DNSName")
}

// addressStatements let the control-plane machine take the cluster's address, and no other.
func (b *builder) addressStatements(own condition) []statement {
	if !b.elastic() {
		return nil
	}
	ec2 := "arn:" + b.Partition + ":ec2:" + b.Region + ":" + b.Account + ":"
	return []statement{
		{ID: "FindAddress", Actions: []string{"ec2:DescribeAddresses"}, Resources: []string{"*"}}, // EC2 has no narrower right
		{
			ID: "TakeAddress", Actions: []string{"ec2:AssociateAddress"}, Condition: own,
			Resources: []string{ec2 + "elastic-ip/*", ec2 + "instance/*", ec2 + "network-interface/*"},
		},
	}
}
