// SPDX-License-Identifier: Apache-2.0

package model

import (
	"strconv"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

const portSSH = 22

func (b *builder) hasBastion() bool { return len(b.groupsByRole(v1alpha1.RoleBastion)) > 0 }

// addSSHAccess adds the key pair and the permitted SSH connections: from the CIDR ranges of the manifest to
// the bastions' load balancer, from there to the bastions, and from them to every other machine. Without a
// bastion no rule opens port 22 (requirement S1.40).
func (b *builder) addSSHAccess() {
	switch spec := b.Cluster.Spec; {
	case spec.SSHKeyName != "":
		b.keyPair = graph.NamedUnmanagedRef[awskind.KeyPair]("main", spec.SSHKeyName)
	case spec.SSHKey != "":
		b.keyPair = graph.Add(b.graph, "main", awskind.KeyPair{
			Name:      "slipway." + b.clusterName(),
			PublicKey: publicKey(spec.SSHKey),
			Tags:      b.resourceTags(awskind.KeyPair{}.Kind(), "main", nil),
		})
	}

	b.allowInstanceConnect()
	if !b.hasBastion() {
		return
	}

	b.bastion.securityGroup = b.addSecurityGroup("bastion", "Bastions of ")
	b.allowPathMTU("bastion", b.bastion.securityGroup)
	front := b.bastion.securityGroup
	if b.bastionBalancerType() != "None" {
		b.balancers.bastionGroup = b.addBalancerGroup("bastion-balancer", "Load balancer of the bastions of ")
		front = b.balancers.bastionGroup
		b.allowFlow(newFlow("ssh-bastion", front, b.bastion.securityGroup, portSSH, "SSH and its health"))
	}

	bastions := b.bastion.securityGroup
	for _, f := range []flow{
		newFlow("ssh-control-plane", bastions, b.controlPlane.securityGroup, portSSH, "SSH from bastions"),
		newFlow("ssh-worker", bastions, b.worker.securityGroup, portSSH, "SSH from bastions"),
	} {
		b.allowFlow(f)
	}

	for i, cidr := range b.Cluster.Spec.SSHAccess {
		graph.Add(b.graph, "ssh-"+strconv.Itoa(i), awskind.SecurityGroupIngress{
			Group:       front,
			CIDR:        cidr,
			Protocol:    "tcp",
			FromPort:    portSSH,
			ToPort:      portSSH,
			Description: "SSH for operators",
		})
	}

	b.bastion.egressRule = b.allowEgress("bastion", b.bastion.securityGroup)
}

// allowInstanceConnect allows the VPC's EC2 Instance Connect Endpoint to reach the machines. Slipway does not
// manage its security group, which must allow egress.
func (b *builder) allowInstanceConnect() {
	id := b.Cluster.Spec.MachineAccess.InstanceConnectSecurityGroup
	if id == "" {
		return
	}

	const description = "SSH by EC2 Instance Connect"
	from := graph.UnmanagedRef[awskind.SecurityGroup](id)
	b.allowFlow(newFlow("connect-control-plane", from, b.controlPlane.securityGroup, portSSH, description))

	b.allowFlow(newFlow("connect-worker", from, b.worker.securityGroup, portSSH, description))
}

// addBastions adds the bastions' load balancer, and a launch template and an Auto Scaling group for each
// bastion group.
func (b *builder) addBastions() {
	groups := b.groupsByRole(v1alpha1.RoleBastion)
	var targets []graph.Ref[awskind.TargetGroup]
	if len(groups) > 0 && b.bastionBalancerType() != "None" {
		targets = append(targets, b.addBastionBalancer())
	}

	for _, ig := range groups {
		b.addMachineSet(machineSet{
			group:       ig,
			name:        ig.Metadata.Name,
			machineRole: &b.bastion,
			min:         ig.Spec.MinMachines(),
			max:         ig.Spec.MaxMachines(),
			subnets:     ig.Spec.Subnets,
			targets:     targets,
		})
	}
}

func (b *builder) bastionBalancerType() string {
	return b.Cluster.Spec.Topology.Bastion.LoadBalancer.Type
}

// addBastionBalancer adds the bastions' load balancer and returns its target group. Client addresses are
// preserved, so that the bastion's log shows them.
func (b *builder) addBastionBalancer() graph.Ref[awskind.TargetGroup] {
	scheme := "internal"
	subnets := b.subnetRefs(b.internalSubnets())
	if b.bastionBalancerType() == "Public" {
		scheme = "internet-facing"
		subnets = b.subnetRefs(b.edgeSubnets())
	}

	lb := b.addLoadBalancer("bastion", scheme, b.balancers.bastionGroup, subnets)
	target := graph.Add(b.graph, "bastion", awskind.TargetGroup{
		Name:                balancerName(b.clusterName(), "bastion"),
		VPC:                 b.vpc,
		Protocol:            "TCP",
		Port:                portSSH,
		TargetType:          "instance",
		HealthCheckProtocol: "TCP",
		HealthCheckPort:     strconv.Itoa(portSSH),
		HealthCheckInterval: checkInterval,
		HealthCheckTimeout:  checkTimeout,
		HealthyThreshold:    checkThreshold,
		UnhealthyThreshold:  checkThreshold,
		Attributes: map[string]string{
			// Auto Scaling keeps the machine for so long before it terminates it.
			"deregistration_delay.timeout_seconds": "10",
			"preserve_client_ip.enabled":           "true",
		},
		Tags: b.resourceTags(awskind.TargetGroup{}.Kind(), "bastion", nil),
	})

	b.addListener("bastion", lb, portSSH, target)

	return target
}

// bastionScript configures SSH: only keys, no root login, and forwarding to other machines. Every supported
// distribution's sshd reads the directory.
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
