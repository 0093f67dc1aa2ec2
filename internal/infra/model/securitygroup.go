// SPDX-License-Identifier: Apache-2.0

package model

import (
	"strconv"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// flow is one permitted connection between security groups.
type flow struct {
	name        string // in the graph
	from, to    graph.Ref[awskind.SecurityGroup]
	protocol    string // empty: tcp
	port        int
	lastPort    int // of a range; 0: only port
	description string
}

// addSecurityGroups adds the security groups and the permitted connections between them, by port. The
// internet can reach only the API.
func (b *builder) addSecurityGroups() {
	given := b.Cluster.Spec.CloudProvider.AWS.SecurityGroups
	b.controlPlane.securityGroup = graph.NamedUnmanagedRef[awskind.SecurityGroup](
		"control-plane",
		given.ControlPlane,
	)

	b.worker.securityGroup = graph.NamedUnmanagedRef[awskind.SecurityGroup]("worker", given.Worker)
	if given.ControlPlane == "" {
		b.controlPlane.securityGroup = b.addSecurityGroup("control-plane", "Control-plane machines of ")
	}

	if given.Worker == "" {
		b.worker.securityGroup = b.addSecurityGroup("worker", "Worker machines of ")
	}

	if b.hasInternalBalancer() {
		b.balancers.internalGroup = b.addSecurityGroup("api-internal", "Internal load balancer of ")
	}

	if b.hasPublicBalancer() {
		b.balancers.publicGroup = b.addSecurityGroup("api-public", "Public load balancer of ")
	}

	for _, f := range b.trafficFlows() {
		if !b.hasInternalBalancer() &&
			(f.from == b.balancers.internalGroup || f.to == b.balancers.internalGroup) {
			continue
		}

		b.allowFlow(f)
	}

	b.allowAPIAccess()
	// Registries, package mirrors and AWS have no fixed addresses and, with a mirror, no fixed ports:
	// machines may open connections to any address.
	b.controlPlane.egressRule = b.allowEgress("control-plane", b.controlPlane.securityGroup)
	b.worker.egressRule = b.allowEgress("worker", b.worker.securityGroup)
}

// trafficFlows returns all permitted connections between machines and load balancers.
func (b *builder) trafficFlows() []flow {
	cp := b.controlPlane.securityGroup
	worker := b.worker.securityGroup
	internal := b.balancers.internalGroup
	fs := []flow{
		{
			name:        "etcd",
			from:        cp,
			to:          cp,
			port:        portEtcd,
			lastPort:    portEtcd + 1,
			description: "etcd clients and peers",
		},
		{
			name:        "api-control-plane",
			from:        cp,
			to:          cp,
			port:        portAPI,
			description: "Kubernetes API, Service kubernetes",
		},
		{
			name:        "api-worker",
			from:        worker,
			to:          cp,
			port:        portAPI,
			description: "Kubernetes API, Service kubernetes",
		},
		{
			name:        "api-internal",
			from:        internal,
			to:          cp,
			port:        portAPI,
			description: "Kubernetes API and its health",
		},
		{
			name:        "join-internal",
			from:        internal,
			to:          cp,
			port:        portJoin,
			description: "join endpoint and its health",
		},
		{
			name:        "kubelet-control-plane",
			from:        cp,
			to:          cp,
			port:        portKubelet,
			description: "kubelet: logs, exec, metrics",
		},
		{
			name:        "kubelet-worker",
			from:        cp,
			to:          worker,
			port:        portKubelet,
			description: "kubelet: logs, exec, metrics",
		},
		{
			name:        "balancer-api-control-plane",
			from:        cp,
			to:          internal,
			port:        portAPI,
			description: "Kubernetes API",
		},
		{
			name:        "balancer-api-worker",
			from:        worker,
			to:          internal,
			port:        portAPI,
			description: "Kubernetes API",
		},
		{
			name:        "balancer-join-control-plane",
			from:        cp,
			to:          internal,
			port:        portJoin,
			description: "join endpoint",
		},
		{
			name:        "balancer-join-worker",
			from:        worker,
			to:          internal,
			port:        portJoin,
			description: "join endpoint",
		},
		{
			name:        "vxlan-control-plane",
			from:        cp,
			to:          cp,
			protocol:    "udp",
			port:        portVXLAN,
			description: "pods, VXLAN",
		},
		{
			name:        "vxlan-control-plane-worker",
			from:        cp,
			to:          worker,
			protocol:    "udp",
			port:        portVXLAN,
			description: "pods, VXLAN",
		},
		{
			name:        "vxlan-worker-control-plane",
			from:        worker,
			to:          cp,
			protocol:    "udp",
			port:        portVXLAN,
			description: "pods, VXLAN",
		},
		{
			name:        "vxlan-worker",
			from:        worker,
			to:          worker,
			protocol:    "udp",
			port:        portVXLAN,
			description: "pods, VXLAN",
		},
	}
	if b.hasPublicBalancer() {
		fs = append(fs, flow{
			name:        "api-public",
			from:        b.balancers.publicGroup,
			to:          cp,
			port:        portAPI,
			description: "Kubernetes API and its health",
		})
	}

	return fs
}

// allowFlow adds the ingress rule of f, and from a load balancer also the egress rule: a load balancer may
// open no other connections.
func (b *builder) allowFlow(f flow) {
	if f.protocol == "" {
		f.protocol = "tcp"
	}

	if f.lastPort == 0 {
		f.lastPort = f.port
	}

	if f.to.Addr() != "" { // Slipway does not manage the rules of an existing group
		graph.Add(b.graph, f.name, awskind.SecurityGroupIngress{
			Group:       f.to,
			Source:      f.from,
			Protocol:    f.protocol,
			FromPort:    f.port,
			ToPort:      f.lastPort,
			Description: f.description,
		})
	}

	if f.from == b.balancers.internalGroup || b.hasPublicBalancer() && f.from == b.balancers.publicGroup ||
		f.from == b.balancers.bastionGroup {
		graph.Add(b.graph, f.name, awskind.SecurityGroupEgress{
			Group:       f.from,
			Destination: f.to,
			Protocol:    f.protocol,
			FromPort:    f.port,
			ToPort:      f.lastPort,
			Description: f.description,
		})
	}
}

// allowAPIAccess opens the API's port to the CIDR ranges of the manifest: at the public load balancer, at the
// machine with the Elastic IP address, or at the internal load balancer.
func (b *builder) allowAPIAccess() {
	group := b.balancers.internalGroup
	ranges := b.Cluster.Spec.API.Access
	port := portAPIPublic

	switch {
	case b.hasPublicBalancer():
		group = b.balancers.publicGroup
	case b.usesElasticIP():
		group = b.controlPlane.securityGroup
		port = portAPI // no load balancer maps the port
	}

	if len(ranges) == 0 && group == b.balancers.internalGroup {
		ranges = []string{b.Cluster.Spec.Networking.NetworkCIDR}
	}

	for i, cidr := range ranges {
		graph.Add(b.graph, "access-"+strconv.Itoa(i), awskind.SecurityGroupIngress{
			Group:       group,
			CIDR:        cidr,
			Protocol:    "tcp",
			FromPort:    port,
			ToPort:      port,
			Description: "Kubernetes API for its users",
		})
	}
}

func (b *builder) addSecurityGroup(name, description string) graph.Ref[awskind.SecurityGroup] {
	return graph.Add(b.graph, name, awskind.SecurityGroup{
		VPC:         b.vpc,
		Name:        name + "." + b.clusterName(),
		Description: description + b.clusterName(),
		Tags:        b.resourceTags(awskind.SecurityGroup{}.Kind(), name, nil),
	})
}

func (b *builder) allowEgress(name string, g graph.Ref[awskind.SecurityGroup]) graph.Reference {
	if g.Addr() == "" {
		return g
	}

	return graph.Add(b.graph, name, awskind.SecurityGroupEgress{
		Group:       g,
		Protocol:    "-1",
		CIDR:        anyIPv4,
		Description: "downloads, registries, AWS",
	})
}
