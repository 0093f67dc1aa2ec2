// SPDX-License-Identifier: Apache-2.0

package model

import (
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// portHTTPS is where AWS's services listen.
const portHTTPS = 443

// endpoints adds the VPC endpoints that the manifest lists. Machines wait for them as for any other way out.
func (b *builder) endpoints() {
	services := b.Cluster.Spec.Networking.VPCEndpoints
	if len(services) == 0 {
		return
	}
	group := b.group("endpoints", "VPC endpoints of ")
	b.allow(flow{name: "endpoints-control-plane", from: b.cp.group, to: group, port: portHTTPS, why: "AWS services"})
	b.allow(flow{name: "endpoints-worker", from: b.worker.group, to: group, port: portHTTPS, why: "AWS services"})
	var made []graph.Pointer
	for _, service := range services {
		e := awskind.VPCEndpoint{
			VPC: b.vpc, Service: "com.amazonaws." + b.Region + "." + service, Type: awskind.EndpointInterface,
			Subnets: b.refs(b.inner()), SecurityGroups: []graph.Ref[awskind.SecurityGroup]{group}, PrivateDNS: true,
		}
		if GatewayEndpoint(service) {
			e = awskind.VPCEndpoint{VPC: b.vpc, Service: e.Service, Type: awskind.EndpointGateway, RouteTables: b.tables}
		}
		name := strings.ReplaceAll(service, ".", "-")
		e.Tags = b.tags(e.Kind(), name, nil)
		made = append(made, graph.Add(b.g, name, e))
	}
	for _, s := range b.inner() {
		b.wayOut[s.Name] = append(b.wayOut[s.Name], made...)
	}
}

// GatewayEndpoint says whether a service has endpoints of type Gateway, which cost nothing.
func GatewayEndpoint(service string) bool { return service == "s3" || service == "dynamodb" }
