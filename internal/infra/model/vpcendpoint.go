// SPDX-License-Identifier: Apache-2.0

package model

import (
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/lib/ecraddress"
	"github.com/slipway-k8s/slipway/internal/lib/partition"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// portHTTPS is the port of AWS services.
const portHTTPS = 443

// addVPCEndpoints adds the VPC endpoints that the manifest lists. Machines depend on them as on a NAT
// gateway.
func (b *builder) addVPCEndpoints() {
	services := endpointServices(b.Cluster.Spec)
	if len(services) == 0 {
		return
	}

	group := b.addSecurityGroup("endpoints", "VPC endpoints of ")
	cp := b.controlPlane.securityGroup
	b.allowFlow(newFlow("endpoints-control-plane", cp, group, portHTTPS, "AWS services"))

	b.allowFlow(newFlow("endpoints-worker", b.worker.securityGroup, group, portHTTPS, "AWS services"))

	var endpoints []graph.Reference

	for _, service := range services {
		e := awskind.VPCEndpoint{
			VPC:            b.vpc,
			Service:        partition.EndpointService(b.Region, service),
			Type:           awskind.EndpointInterface,
			Subnets:        b.subnetRefs(b.internalSubnets()),
			SecurityGroups: []graph.Ref[awskind.SecurityGroup]{group},
			PrivateDNS:     true,
		}
		if IsGatewayEndpoint(service) {
			e = awskind.VPCEndpoint{
				VPC:         b.vpc,
				Service:     e.Service,
				Type:        awskind.EndpointGateway,
				RouteTables: b.routeTables,
			}
		}

		name := strings.ReplaceAll(service, ".", "-")
		e.Tags = b.resourceTags(e.Kind(), name, nil)
		endpoints = append(endpoints, graph.Add(b.graph, name, e))
	}

	for _, s := range b.internalSubnets() {
		b.egressDeps[s.Name] = append(b.egressDeps[s.Name], endpoints...)
	}
}

// sessionServices returns the services of Session Manager: its agent registers with the first, and the second carries
// sessions.
func sessionServices() []string { return []string{"ssm", "ssmmessages"} }

// endpointServices returns the services that get VPC endpoints: those that the manifest lists. Machines that reach AWS
// through endpoints only also get those of Session Manager, and those of a registry in Amazon ECR, if they use them.
func endpointServices(spec v1alpha1.ClusterSpec) []string {
	services := slices.Clone(spec.Networking.VPCEndpoints)
	if len(services) == 0 || spec.Networking.NATGateways != manifest.NATNone {
		return services
	}

	var needed []string
	if spec.MachineAccess.SessionManager {
		needed = append(needed, sessionServices()...)
	}

	if _, ok := ecraddress.Parse(spec.Assets.ContainerRegistry); ok {
		needed = append(needed, ecraddress.EndpointServices()...)
	}

	for _, s := range needed {
		if !slices.Contains(services, s) {
			services = append(services, s)
		}
	}

	return services
}

// IsGatewayEndpoint reports whether a service has endpoints of type Gateway, which are free of charge.
func IsGatewayEndpoint(service string) bool { return service == "s3" || service == "dynamodb" }
