// SPDX-License-Identifier: Apache-2.0

package model

import (
	"strconv"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

const portSSH = 22

func (b *builder) hasBastion() bool { return len(b.groups(v1alpha1.RoleBastion)) > 0 }

// ssh adds the key pair, and the one way that SSH may take: from the given ranges to the bastions' load balancer, from
// there to the bastions, from them to every other machine. Without a bastion no rule opens port 22 anywhere (S1.40).
func (b *builder) ssh() {
	switch spec := b.Cluster.Spec; {
	case spec.SSHKeyName != "":
		b.keyPair = graph.ExistingAs[awskind.KeyPair]("main", spec.SSHKeyName)
	case spec.SSHKey != "":
		b.keyPair = graph.Add(b.g, "main", awskind.KeyPair{
			Name: "slipway." + b.name(), Public: publicKey(spec.SSHKey), Tags: b.tags(awskind.KeyPair{}.Kind(), "main", nil),
		})
	}
	b.instanceConnect()
	if !b.hasBastion() {
		return
	}
	b.bastion.group = b.group("bastion", "Bastions of ")
	front := b.bastion.group
	if b.bastionBalancer() != "None" {
		b.lb.bastionGroup = b.group("bastion-balancer", "Load balancer of the bastions of ")
		front = b.lb.bastionGroup
		b.allow(flow{name: "ssh-bastion", from: front, to: b.bastion.group, port: portSSH, why: "SSH and its health"})
	}
	for _, f := range []flow{
		{name: "ssh-control-plane", from: b.bastion.group, to: b.cp.group, port: portSSH, why: "SSH from bastions"},
		{name: "ssh-worker", from: b.bastion.group, to: b.worker.group, port: portSSH, why: "SSH from bastions"},
	} {
		b.allow(f)
	}
	for i, cidr := range b.Cluster.Spec.SSHAccess {
		graph.Add(b.g, "ssh-"+strconv.Itoa(i), awskind.SecurityGroupIngress{
			Group: front, CIDR: cidr, Protocol: "tcp", FromPort: portSSH, ToPort: portSSH, Description: "SSH for operators",
		})
	}
	b.bastion.egress = b.out("bastion", b.bastion.group)
}

// instanceConnect lets the VPC's EC2 Instance Connect Endpoint reach the machines. It is others': its group's own rules
// must let it out.
func (b *builder) instanceConnect() {
	id := b.Cluster.Spec.MachineAccess.InstanceConnectSecurityGroup
	if id == "" {
		return
	}
	from := graph.Existing[awskind.SecurityGroup](id)
	b.allow(flow{name: "connect-control-plane", from: from, to: b.cp.group, port: portSSH, why: "SSH by EC2 Instance Connect"})
	b.allow(flow{name: "connect-worker", from: from, to: b.worker.group, port: portSSH, why: "SSH by EC2 Instance Connect"})
}

// bastions adds their load balancer, and a launch template and an auto scaling group for each group of them.
func (b *builder) bastions() {
	groups := b.groups(v1alpha1.RoleBastion)
	var targets []graph.Ref[awskind.TargetGroup]
	if len(groups) > 0 && b.bastionBalancer() != "None" {
		targets = append(targets, b.bastionFront())
	}
	for _, ig := range groups {
		b.launch(launch{
			group: ig, name: ig.Metadata.Name, of: &b.bastion, min: ig.Spec.MinSize, max: ig.Spec.MaxSize,
			subnets: ig.Spec.Subnets, targets: targets,
		})
	}
}

func (b *builder) bastionBalancer() string { return b.Cluster.Spec.Topology.Bastion.LoadBalancer.Type }

// bastionFront is the load balancer's target group. Clients keep their address: the bastion's log shows who came.
func (b *builder) bastionFront() graph.Ref[awskind.TargetGroup] {
	scheme, subnets := "internal", b.refs(b.inner())
	if b.bastionBalancer() == "Public" {
		scheme, subnets = "internet-facing", b.refs(b.edges())
	}
	lb := b.balancer("bastion", scheme, b.lb.bastionGroup, subnets)
	target := graph.Add(b.g, "bastion", awskind.TargetGroup{
		Name: balancerName(b.name(), "bastion"), VPC: b.vpc, Protocol: "TCP", Port: portSSH, TargetType: "instance",
		HealthCheckProtocol: "TCP", HealthCheckPort: strconv.Itoa(portSSH),
		HealthCheckInterval: checkInterval, HealthCheckTimeout: checkTimeout,
		HealthyThreshold: checkThreshold, UnhealthyThreshold: checkThreshold,
		Attributes: map[string]string{
			// A session lives as long as its machine.
			"deregistration_delay.timeout_seconds": "300",
			"preserve_client_ip.enabled":           "true",
		},
		Tags: b.tags(awskind.TargetGroup{}.Kind(), "bastion", nil),
	})
	b.listen("bastion", lb, portSSH, target)
	return target
}

// bastionScript makes SSH accept keys only, for nobody but the first user, who may go on to another machine. It is
// written where every supported distribution's sshd reads it.
const bastionScript = `#!/bin/sh
set -eu
mkdir -p /etc/ssh/sshd_config.d
cat >/etc/ssh/sshd_config.d/10-slipway.conf <<'EOF'
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin no
AllowAgentForwarding no
X11Forwarding no
AllowTcpForwarding local
MaxAuthTries 3
ClientAliveInterval 60
ClientAliveCountMax 3
EOF
systemctl try-reload-or-restart ssh.service sshd.service || true
`
