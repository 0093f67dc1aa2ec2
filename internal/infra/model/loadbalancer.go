// SPDX-License-Identifier: Apache-2.0

package model

import (
	"strconv"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// Health checks: the shortest interval that a network load balancer allows, and two in a row, so that a machine that
// is gone gets no more than some 10 s of new connections.
const (
	checkInterval  = 5
	checkTimeout   = 4
	checkThreshold = 2
)

// addAPIBalancers adds the load balancers. The internal one is always there: a machine that went through a public one would
// leave by NAT and come back. A target group serves one load balancer only, so each has its own.
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
		Name: balancerName(b.clusterName(), name), Type: "network", Scheme: scheme, Subnets: subnets,
		SecurityGroups: []graph.Ref[awskind.SecurityGroup]{group},
		// A zone whose control-plane machine is gone goes on serving.
		Attributes: map[string]string{
			"load_balancing.cross_zone.enabled": "true",
			"deletion_protection.enabled":       strconv.FormatBool(b.Cluster.Spec.DeletionProtection),
		},
		Tags: b.resourceTags(awskind.LoadBalancer{}.Kind(), name, nil),
	}, after...)
}

// addTargetGroup adds a target group that keepSource shows the client's address. Not so the internal ones: a machine could not
// reach itself through its load balancer.
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
