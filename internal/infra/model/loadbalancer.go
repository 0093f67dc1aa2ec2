// SPDX-License-Identifier: Apache-2.0

package model

import (
	"strconv"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// Health checks use the shortest interval that a Network Load Balancer allows and two results in a row, so
// that a lost machine gets new connections for about 10 s at most.
const (
	checkInterval  = 5 // seconds
	checkTimeout   = 4 // seconds
	checkThreshold = 2 // results in a row
)

// addAPIBalancers adds the load balancers of the API. Machines always use the internal one: through the
// public one their traffic would leave by NAT and return. A target group can serve only one load balancer, so
// each has its own.
func (b *builder) addAPIBalancers() {
	if !b.hasInternalBalancer() {
		return
	}

	b.balancers.internal = b.addLoadBalancer(
		"internal",
		"internal",
		b.balancers.internalGroup,
		b.subnetRefs(b.internalSubnets()),
	)

	api := b.addTargetGroup("api-internal", portAPI, "/readyz", false)
	join := b.addTargetGroup("join", portJoin, "/healthz", false)
	b.addListener("api-internal", b.balancers.internal, portAPI, api)
	b.addListener("join", b.balancers.internal, portJoin, join)
	if b.usesElasticIP() {
		return
	}

	if !b.hasPublicBalancer() {
		b.addListener("api", b.balancers.internal, portAPIPublic, api)
		return
	}

	b.balancers.public = b.addLoadBalancer(
		"api",
		"internet-facing",
		b.balancers.publicGroup,
		b.subnetRefs(b.edgeSubnets()),
	)

	b.addListener("api", b.balancers.public, portAPIPublic, b.addTargetGroup("api", portAPI, "/readyz", true))
}

func (b *builder) addLoadBalancer(
	name, scheme string,
	group graph.Ref[awskind.SecurityGroup],
	subnets []graph.Ref[awskind.Subnet],
) graph.Ref[awskind.LoadBalancer] {
	var after []graph.Reference
	if scheme != "internal" {
		for _, s := range b.edgeSubnets() {
			after = append(after, b.egressDeps[s.Name]...)
		}
	}

	return graph.Add(b.graph, name, awskind.LoadBalancer{
		Name:           balancerName(b.clusterName(), name),
		Type:           "network",
		Scheme:         scheme,
		Subnets:        subnets,
		SecurityGroups: []graph.Ref[awskind.SecurityGroup]{group},
		// With cross-zone load balancing, a zone that has lost its control-plane machine still serves the
		// API.
		Attributes: map[string]string{
			"load_balancing.cross_zone.enabled": "true",
			"deletion_protection.enabled":       strconv.FormatBool(b.Cluster.Spec.DeletionProtection),
		},
		Tags: b.resourceTags(awskind.LoadBalancer{}.Kind(), name, nil),
	}, after...)
}

// addTargetGroup adds a target group for an HTTPS port of the control plane. keepSource preserves the
// client's address; the internal target groups do not, since a machine could not reach itself through its
// load balancer.
func (b *builder) addTargetGroup(
	name string,
	port int,
	health string,
	keepSource bool,
) graph.Ref[awskind.TargetGroup] {
	r := graph.Add(b.graph, name, awskind.TargetGroup{
		Name:                balancerName(b.clusterName(), name),
		VPC:                 b.vpc,
		Protocol:            "TCP",
		Port:                port,
		TargetType:          "instance",
		HealthCheckProtocol: "HTTPS",
		HealthCheckPath:     health,
		HealthCheckPort:     strconv.Itoa(port),
		HealthCheckInterval: checkInterval,
		HealthCheckTimeout:  checkTimeout,
		HealthyThreshold:    checkThreshold,
		UnhealthyThreshold:  checkThreshold,
		Attributes: map[string]string{
			"deregistration_delay.timeout_seconds":                "10",
			"deregistration_delay.connection_termination.enabled": "true",
			"preserve_client_ip.enabled":                          strconv.FormatBool(keepSource),
		},
		Tags: b.resourceTags(awskind.TargetGroup{}.Kind(), name, nil),
	})

	b.apiTargetGroups = append(b.apiTargetGroups, r)
	return r
}

func (b *builder) addListener(
	name string,
	lb graph.Ref[awskind.LoadBalancer],
	port int,
	to graph.Ref[awskind.TargetGroup],
) {
	graph.Add(b.graph, name, awskind.Listener{
		LoadBalancer:   lb,
		Port:           port,
		Protocol:       "TCP",
		DefaultActions: []awskind.ListenerAction{{Type: "forward", TargetGroup: to}},
	})
}
