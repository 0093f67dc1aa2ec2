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

// balance adds the load balancers. The internal one is always there: a machine that went through a public one would
// leave by NAT and come back. A target group serves one load balancer only, so each has its own.
func (b *builder) balance() {
	if !b.balanced() {
		return
	}
	b.lb.internal = b.balancer("internal", "internal", b.lb.internalGroup, b.refs(b.inner()))
	api := b.target("api-internal", portAPI, "/readyz", false)
	join := b.target("join", portJoin, "/healthz", false)
	b.listen("api-internal", b.lb.internal, portAPI, api)
	b.listen("join", b.lb.internal, portJoin, join)
	if b.elastic() {
		return
	}
	if !b.public() {
		b.listen("api", b.lb.internal, portAPIPublic, api)
		return
	}
	b.lb.public = b.balancer("api", "internet-facing", b.lb.publicGroup, b.refs(b.edges()))
	b.listen("api", b.lb.public, portAPIPublic, b.target("api", portAPI, "/readyz", true))
}

func (b *builder) balancer(name, scheme string, group graph.Ref[awskind.SecurityGroup], subnets []graph.Ref[awskind.Subnet]) graph.Ref[awskind.LoadBalancer] {
	var after []graph.Pointer
	if scheme != "internal" {
		for _, s := range b.edges() {
			after = append(after, b.wayOut[s.Name]...)
		}
	}
	return graph.Add(b.g, name, awskind.LoadBalancer{
		Name: balancerName(b.name(), name), Type: "network", Scheme: scheme, Subnets: subnets,
		SecurityGroups: []graph.Ref[awskind.SecurityGroup]{group},
		// A zone whose control-plane machine is gone goes on serving.
		Attributes: map[string]string{
			"load_balancing.cross_zone.enabled": "true",
			"deletion_protection.enabled":       strconv.FormatBool(b.Cluster.Spec.DeletionProtection),
		},
		Tags: b.tags(awskind.LoadBalancer{}.Kind(), name, nil),
	}, after...)
}

// target adds a target group that keepSource shows the client's address. Not so the internal ones: a machine could not
// reach itself through its load balancer.
func (b *builder) target(name string, port int, health string, keepSource bool) graph.Ref[awskind.TargetGroup] {
	r := graph.Add(b.g, name, awskind.TargetGroup{
		Name: balancerName(b.name(), name), VPC: b.vpc, Protocol: "TCP", Port: port, TargetType: "instance",
		HealthCheckProtocol: "HTTPS", HealthCheckPath: health, HealthCheckPort: strconv.Itoa(port),
		HealthCheckInterval: checkInterval, HealthCheckTimeout: checkTimeout,
		HealthyThreshold: checkThreshold, UnhealthyThreshold: checkThreshold,
		Attributes: map[string]string{
			"deregistration_delay.timeout_seconds":                "10",
			"deregistration_delay.connection_termination.enabled": "true",
			"preserve_client_ip.enabled":                          strconv.FormatBool(keepSource),
		},
		Tags: b.tags(awskind.TargetGroup{}.Kind(), name, nil),
	})
	b.targets = append(b.targets, r)
	return r
}

func (b *builder) listen(name string, lb graph.Ref[awskind.LoadBalancer], port int, to graph.Ref[awskind.TargetGroup]) {
	graph.Add(b.g, name, awskind.Listener{
		LoadBalancer: lb, Port: port, Protocol: "TCP", DefaultActions: []awskind.Action{{Type: "forward", TargetGroup: to}},
	})
}
