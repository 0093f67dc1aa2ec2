// SPDX-License-Identifier: Apache-2.0

package model

import (
	"strconv"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// flow is one line of the matrix of who may speak to whom.
type flow struct {
	name     string
	from, to graph.Ref[awskind.SecurityGroup]
	protocol string
	port     int
	last     int // of a range; 0: only port
	why      string
}

// security adds the security groups and, by port, what may pass between them. From the world only the API is reached.
func (b *builder) security() {
	given := b.Cluster.Spec.CloudProvider.AWS.SecurityGroups
	b.cp.group = graph.ExistingAs[awskind.SecurityGroup]("control-plane", given.ControlPlane)
	b.worker.group = graph.ExistingAs[awskind.SecurityGroup]("worker", given.Worker)
	if given.ControlPlane == "" {
		b.cp.group = b.group("control-plane", "Control-plane machines of ")
	}
	if given.Worker == "" {
		b.worker.group = b.group("worker", "Worker machines of ")
	}
	if b.balanced() {
		b.lb.internalGroup = b.group("api-internal", "Internal load balancer of ")
	}
	if b.public() {
		b.lb.publicGroup = b.group("api-public", "Public load balancer of ")
	}
	for _, f := range b.flows() {
		if !b.balanced() && (f.from == b.lb.internalGroup || f.to == b.lb.internalGroup) {
			continue
		}
		b.allow(f)
	}
	b.access()
	// Registries, package mirrors and AWS itself have neither fixed addresses nor, behind a mirror, fixed ports:
	// machines may speak to the world, which answers only what it was asked.
	b.cp.egress = b.out("control-plane", b.cp.group)
	b.worker.egress = b.out("worker", b.worker.group)
}

func (b *builder) flows() []flow {
	cp, worker, internal := b.cp.group, b.worker.group, b.lb.internalGroup
	fs := []flow{
		{name: "etcd", from: cp, to: cp, port: portEtcd, last: portEtcd + 1, why: "etcd clients and peers"},
		{name: "api-control-plane", from: cp, to: cp, port: portAPI, why: "Kubernetes API, Service kubernetes"},
		{name: "api-worker", from: worker, to: cp, port: portAPI, why: "Kubernetes API, Service kubernetes"},
		{name: "api-internal", from: internal, to: cp, port: portAPI, why: "Kubernetes API and its health"},
		{name: "join-internal", from: internal, to: cp, port: portJoin, why: "join endpoint and its health"},
		{name: "kubelet-control-plane", from: cp, to: cp, port: portKubelet, why: "kubelet: logs, exec, metrics"},
		{name: "kubelet-worker", from: cp, to: worker, port: portKubelet, why: "kubelet: logs, exec, metrics"},
		{name: "balancer-api-control-plane", from: cp, to: internal, port: portAPI, why: "Kubernetes API"},
		{name: "balancer-api-worker", from: worker, to: internal, port: portAPI, why: "Kubernetes API"},
		{name: "balancer-join-control-plane", from: cp, to: internal, port: portJoin, why: "join endpoint"},
		{name: "balancer-join-worker", from: worker, to: internal, port: portJoin, why: "join endpoint"},
		{name: "vxlan-control-plane", from: cp, to: cp, protocol: "udp", port: portVXLAN, why: "pods, VXLAN"},
		{name: "vxlan-control-plane-worker", from: cp, to: worker, protocol: "udp", port: portVXLAN, why: "pods, VXLAN"},
		{name: "vxlan-worker-control-plane", from: worker, to: cp, protocol: "udp", port: portVXLAN, why: "pods, VXLAN"},
		{name: "vxlan-worker", from: worker, to: worker, protocol: "udp", port: portVXLAN, why: "pods, VXLAN"},
	}
	if b.public() {
		fs = append(fs, flow{name: "api-public", from: b.lb.publicGroup, to: cp, port: portAPI, why: "Kubernetes API and its health"})
	}
	return fs
}

// allow adds the rule that lets f in, and, for a load balancer, the one that lets it out: nothing else leaves one.
func (b *builder) allow(f flow) {
	if f.protocol == "" {
		f.protocol = "tcp"
	}
	if f.last == 0 {
		f.last = f.port
	}
	if f.to.Addr() != "" { // an existing group's rules are its owner's
		graph.Add(b.g, f.name, awskind.SecurityGroupIngress{
			Group: f.to, Source: f.from, Protocol: f.protocol, FromPort: f.port, ToPort: f.last, Description: f.why,
		})
	}
	if f.from == b.lb.internalGroup || b.public() && f.from == b.lb.publicGroup || f.from == b.lb.bastionGroup {
		graph.Add(b.g, f.name, awskind.SecurityGroupEgress{
			Group: f.from, Destination: f.to, Protocol: f.protocol, FromPort: f.port, ToPort: f.last, Description: f.why,
		})
	}
}

// access opens the API's port to the ranges of the manifest, at the public load balancer or else at the internal one.
func (b *builder) access() {
	group, ranges := b.lb.internalGroup, b.Cluster.Spec.API.Access
	port := portAPIPublic
	switch {
	case b.public():
		group = b.lb.publicGroup
	case b.elastic():
		group, port = b.cp.group, portAPI // nothing stands before the machine that could change the port
	}
	if len(ranges) == 0 && group == b.lb.internalGroup {
		ranges = []string{b.Cluster.Spec.Networking.NetworkCIDR}
	}
	for i, cidr := range ranges {
		graph.Add(b.g, "access-"+strconv.Itoa(i), awskind.SecurityGroupIngress{
			Group: group, CIDR: cidr, Protocol: "tcp", FromPort: port, ToPort: port, Description: "Kubernetes API for its users",
		})
	}
}

func (b *builder) group(name, description string) graph.Ref[awskind.SecurityGroup] {
	return graph.Add(b.g, name, awskind.SecurityGroup{
		VPC: b.vpc, Name: name + "." + b.name(), Description: description + b.name(),
		Tags: b.tags(awskind.SecurityGroup{}.Kind(), name, nil),
	})
}

func (b *builder) out(name string, g graph.Ref[awskind.SecurityGroup]) graph.Pointer {
	if g.Addr() == "" {
		return g
	}
	return graph.Add(b.g, name, awskind.SecurityGroupEgress{Group: g, Protocol: "-1", CIDR: world, Description: "downloads, registries, AWS"})
}
