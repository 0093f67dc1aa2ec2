// SPDX-License-Identifier: Apache-2.0

package model

import (
	"slices"
	"strconv"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// flow is one permitted connection between security groups.
type flow struct {
	name        string // in the graph
	from, to    graph.Ref[awskind.SecurityGroup]
	protocol    string // tcp or udp; -1: all, without ports
	port        int
	lastPort    int // of a range; 0: only port
	description string
}

// newFlow returns a flow over TCP to one port.
func newFlow(name string, from, to graph.Ref[awskind.SecurityGroup], port int, description string) flow {
	return flow{
		name:        name,
		from:        from,
		to:          to,
		protocol:    "tcp",
		port:        port,
		description: description,
	}
}

// overlayFlows returns the flows of the pod network between the machines of all groups.
func overlayFlows(backend string, controlPlane, worker graph.Ref[awskind.SecurityGroup]) []flow {
	name := "vxlan"
	port := portVXLAN
	description := "pods, VXLAN"
	if backend == v1alpha1.FlannelWireGuard {
		name = "wireguard"
		port = portWireGuard
		description = "pods, WireGuard"
	}

	fs := []flow{
		newFlow(name+"-control-plane", controlPlane, controlPlane, port, description),
		newFlow(name+"-control-plane-worker", controlPlane, worker, port, description),
		newFlow(name+"-worker-control-plane", worker, controlPlane, port, description),
		newFlow(name+"-worker", worker, worker, port, description),
	}
	for i := range fs {
		fs[i].protocol = "udp"
	}

	return fs
}

// ciliumHealthFlows returns the flows with which Cilium's agents check that they reach each other. Its overlay has the port of flannel's.
func ciliumHealthFlows(controlPlane, worker graph.Ref[awskind.SecurityGroup]) []flow {
	const description = "health of Cilium"

	return []flow{
		newFlow("cilium-health-control-plane", controlPlane, controlPlane, portCiliumHealth, description),
		newFlow("cilium-health-control-plane-worker", controlPlane, worker, portCiliumHealth, description),
		newFlow("cilium-health-worker-control-plane", worker, controlPlane, portCiliumHealth, description),
		newFlow("cilium-health-worker", worker, worker, portCiliumHealth, description),
	}
}

// vpcPodFlows returns the flows of pods with addresses of the VPC, which have the security groups of their machines. They may connect
// to each other at all ports, and machines of the control plane to all of them: the API server connects to webhooks and extension
// API servers. From workers, the control plane admits DNS for pods of CoreDNS there, and no more than it does otherwise.
func vpcPodFlows(controlPlane, worker graph.Ref[awskind.SecurityGroup]) []flow {
	all := func(name string, from, to graph.Ref[awskind.SecurityGroup]) flow {
		return flow{name: "pods-" + name, from: from, to: to, protocol: "-1", description: "pods"}
	}

	tcp := newFlow("pods-dns-tcp", worker, controlPlane, portDNS, "DNS of the cluster")
	udp := newFlow("pods-dns-udp", worker, controlPlane, portDNS, "DNS of the cluster")
	udp.protocol = "udp"

	return []flow{
		all("control-plane", controlPlane, controlPlane),
		all("control-plane-worker", controlPlane, worker),
		all("worker", worker, worker),
		tcp,
		udp,
	}
}

// podFlows returns the flows of the pod network, and those to the ports of Services on nodes.
func (b *builder) podFlows(controlPlane, worker graph.Ref[awskind.SecurityGroup]) []flow {
	fromWorkers := newNodePortFlows("nodeport-worker-control-plane", worker, controlPlane)
	if manifest.HasVPCPods(b.Cluster) { // which has the other ports of Services
		return append(vpcPodFlows(controlPlane, worker), fromWorkers...)
	}

	var health []flow
	if manifest.HasCilium(b.Cluster) {
		health = ciliumHealthFlows(controlPlane, worker)
	}

	return slices.Concat(
		overlayFlows(b.Cluster.Spec.Networking.Flannel.Backend, controlPlane, worker),
		health,
		newNodePortFlows("nodeport", worker, worker),
		// kube-proxy runs on control-plane machines too: their addresses serve NodePorts as those of workers do.
		newNodePortFlows("nodeport-control-plane", controlPlane, controlPlane),
		newNodePortFlows("nodeport-control-plane-worker", controlPlane, worker),
		fromWorkers,
	)
}

// newNodePortFlows returns the flows to the ports of Services on the nodes of a group. kube-proxy serves them on each node,
// so a node that forwards a connection may be another one than that with the pod.
func newNodePortFlows(name string, from, to graph.Ref[awskind.SecurityGroup]) []flow {
	var out []flow
	for _, protocol := range []string{"tcp", "udp"} {
		f := newFlow(name+"-"+protocol, from, to, firstNodePort, "") // the ports say it, and the template has little room
		f.protocol = protocol
		f.lastPort = lastNodePort
		out = append(out, f)
	}

	return out
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
		b.balancers.internalGroup = b.addBalancerGroup("api-internal", "Internal load balancer of ")
	}

	if b.hasPublicBalancer() {
		b.balancers.publicGroup = b.addBalancerGroup("api-public", "Public load balancer of ")
	}

	for _, f := range b.trafficFlows() {
		if !b.hasInternalBalancer() &&
			(f.from == b.balancers.internalGroup || f.to == b.balancers.internalGroup) {
			continue
		}

		b.allowFlow(f)
	}

	b.allowAPIAccess()
	b.allowPathMTU("control-plane", b.controlPlane.securityGroup)
	b.allowPathMTU("worker", b.worker.securityGroup)
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
	etcd := newFlow("etcd", cp, cp, portEtcd, "etcd clients and peers")
	etcd.lastPort = portEtcd + 1
	fs := []flow{
		etcd,
		newFlow("api-control-plane", cp, cp, portAPI, "Kubernetes API, Service kubernetes"),
		newFlow("api-worker", worker, cp, portAPI, "Kubernetes API, Service kubernetes"),
		newFlow("api-internal", internal, cp, portAPI, "Kubernetes API and its health"),
		newFlow("join-internal", internal, cp, portJoin, "join endpoint and its health"),
		newFlow("kubelet-control-plane", cp, cp, portKubelet, "kubelet: logs, exec, metrics"),
		newFlow("kubelet-worker", cp, worker, portKubelet, "kubelet: logs, exec, metrics"),
		newFlow("balancer-api-control-plane", cp, internal, portAPI, "Kubernetes API"),
		newFlow("balancer-api-worker", worker, internal, portAPI, "Kubernetes API"),
		newFlow("balancer-join-control-plane", cp, internal, portJoin, "join endpoint"),
		newFlow("balancer-join-worker", worker, internal, portJoin, "join endpoint"),
	}
	fs = append(fs, b.podFlows(cp, worker)...)

	if b.hasPublicBalancer() {
		public := b.balancers.publicGroup
		fs = append(fs, newFlow("api-public", public, cp, portAPI, "Kubernetes API and its health"))
	}

	return fs
}

// allowFlow adds the ingress rule of f, and from a load balancer also the egress rule: a load balancer may
// open no other connections.
func (b *builder) allowFlow(f flow) {
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

// addBalancerGroup adds the security group of a load balancer, to which nothing else is attached.
func (b *builder) addBalancerGroup(name, description string) graph.Ref[awskind.SecurityGroup] {
	group := b.addSecurityGroup(name, description)
	graph.MarkInternal(b.graph, group)
	b.allowPathMTU(name, group)

	return group
}

// allowPathMTU lets routers tell the members of a group that a packet was too large for the path to a client
// (ICMP type 3 code 4). The sender is any router between the two, so the rule cannot name the clients.
func (b *builder) allowPathMTU(name string, g graph.Ref[awskind.SecurityGroup]) {
	if g.Addr() == "" { // Slipway does not manage the rules of an existing group
		return
	}

	graph.Add(b.graph, "path-mtu-"+name, awskind.SecurityGroupIngress{
		Group:    g,
		CIDR:     anyIPv4,
		Protocol: "icmp",
		FromPort: icmpUnreachable,
		ToPort:   icmpFragmentationNeeded,
	})
}

func (b *builder) allowEgress(name string, g graph.Ref[awskind.SecurityGroup]) graph.Reference {
	if g.Addr() == "" {
		return g
	}

	// AWS creates groups with a rule like this one, without a description.
	return graph.Add(b.graph, name, awskind.SecurityGroupEgress{
		Group:    g,
		Protocol: "-1",
		CIDR:     anyIPv4,
	})
}
