// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// LoadBalancerNone is the load balancer type of bastions that have public addresses of their own.
const LoadBalancerNone = "None"

// HasBastion reports whether a set has a group of role Bastion.
func HasBastion(s Set) bool {
	return slices.ContainsFunc(
		s.Groups,
		func(g v1alpha1.InstanceGroup) bool { return g.Spec.Role == v1alpha1.RoleBastion },
	)
}

func defaultBastion(s *Set) {
	if HasBastion(*s) {
		setDefaultText(&s.Cluster.Spec.Topology.Bastion.LoadBalancer.Type, LoadBalancerPublic)
	}
}

func defaultMachineType(g *v1alpha1.InstanceGroup, _ *Set) {
	if g.Spec.Role == v1alpha1.RoleBastion {
		setDefaultText(&g.Spec.MachineType, "t3.micro")
	}

	if mixed := g.Spec.MixedInstancesPolicy.Instances; len(mixed) > 0 {
		setDefaultText(&g.Spec.MachineType, mixed[0])
	}

	setDefaultText(&g.Spec.MachineType, DefaultMachineType)
}

// checkBastion checks the cluster's SSH settings against its groups of role Bastion.
func (v validator) checkBastion(s Set) {
	spec := s.Cluster.Spec
	for i, cidr := range spec.SSHAccess {
		at := fmt.Sprintf("spec.sshAccess[%d]", i)
		if p := v.parsePrefix(at, cidr); p.IsValid() && p.Bits() == 0 {
			v.warnf(
				at,
				cidr,
				"list the CIDRs of your own networks",
				"opens SSH of the bastions to the whole internet",
			)
		}
	}

	typ := spec.Topology.Bastion.LoadBalancer.Type
	if !HasBastion(s) {
		v.rejectBastionFields(spec)
		return
	}

	v.checkChoice(
		"spec.topology.bastion.loadBalancer.type",
		typ,
		LoadBalancerPublic,
		LoadBalancerInternal,
		LoadBalancerNone,
	)

	v.checkBastionSubnets(s, typ)
	if len(spec.SSHAccess) == 0 {
		v.errorf(
			"spec.sshAccess",
			"",
			"list the CIDRs of your own networks, such as 192.0.2.0/24",
			"must not be empty: the bastion would be unreachable",
		)
	}

	if spec.SSHKey == "" && spec.SSHKeyName == "" {
		v.warnf(
			"spec.sshKeyName",
			"",
			"set it to a key pair, or set sshKey",
			"is empty: SSH logins require an image with EC2 Instance Connect",
		)
	}
}

// rejectBastionFields reports the SSH settings of a cluster without bastions.
func (v validator) rejectBastionFields(spec v1alpha1.ClusterSpec) {
	if len(spec.SSHAccess) > 0 {
		v.errorf(
			"spec.sshAccess",
			strings.Join(spec.SSHAccess, ", "),
			"add an InstanceGroup of role Bastion, or leave it out: without one, no machine is reachable by SSH",
			"has no effect without a bastion",
		)
	}

	if typ := spec.Topology.Bastion.LoadBalancer.Type; typ != "" {
		v.errorf(
			"spec.topology.bastion.loadBalancer.type",
			typ,
			"add an InstanceGroup of role Bastion, or leave it out",
			"has no effect without a bastion",
		)
	}
}

// checkBastionSubnets checks that bastions without a load balancer are in Public subnets.
func (v validator) checkBastionSubnets(s Set, typ string) {
	types := map[string]v1alpha1.SubnetType{}
	for _, sub := range s.Cluster.Spec.Networking.Subnets {
		types[sub.Name] = sub.Type
	}

	for _, g := range s.Groups {
		if g.Spec.Role != v1alpha1.RoleBastion || typ != LoadBalancerNone {
			continue
		}

		gv := validator{fs: v.fs, pathPrefix: "instancegroup/" + g.Metadata.Name + ": "}
		if len(g.Spec.Subnets) == 0 {
			gv.errorf(
				"spec.subnets",
				"",
				"add Public subnets",
				"must not be empty: a bastion without a load balancer needs a public address",
			)
		}

		for i, name := range g.Spec.Subnets {
			if types[name] != v1alpha1.SubnetPublic {
				gv.errorf(
					fmt.Sprintf("spec.subnets[%d]", i),
					name,
					"use a Public subnet, or a load balancer",
					"is not Public: a bastion in it is unreachable without a load balancer",
				)
			}
		}
	}
}

func (v validator) checkSSHKeys(spec v1alpha1.ClusterSpec) {
	if spec.SSHKey != "" && spec.SSHKeyName != "" {
		v.errorf("spec.sshKeyName", spec.SSHKeyName, "set only one of the two", "cannot be combined with sshKey")
	}

	if name := spec.SSHKeyName; name != "" && !regexp.MustCompile(`^[ -~]{1,255}$`).MatchString(name) {
		v.errorf("spec.sshKeyName", name, "list the names with: aws ec2 describe-key-pairs", "is not a valid key pair name")
	}

	if spec.SSHKey != "" {
		v.checkSSHKey(spec.SSHKey)
	}
}

// checkSSHKey checks a public key in OpenSSH format.
func (v validator) checkSSHKey(key string) {
	const hint = "use the line of the .pub file: ssh-ed25519 AAAA… or ssh-rsa AAAA…"
	fields := strings.Fields(key)
	if strings.Contains(key, "PRIVATE KEY") {
		// The value is left out of the finding.
		v.errorf("spec.sshKey", "", hint, "is a private key: it must never leave your machine")

		return
	}

	if len(fields) < 2 || fields[0] != "ssh-ed25519" && fields[0] != "ssh-rsa" {
		v.errorf("spec.sshKey", "", hint, "is not a public key that EC2 supports")
		return
	}

	// The encoded key begins with the length of its type in 4 bytes, and the type.
	typ := fields[0]
	raw, err := base64.StdEncoding.DecodeString(fields[1])
	if err != nil || len(raw) < 4+len(typ) || string(raw[4:4+len(typ)]) != typ {
		v.errorf("spec.sshKey", "", hint, "is not a complete %s key", typ)
	}
}

// rejectKubernetesFields reports the fields that have no effect on a bastion, which does not run
// Kubernetes.
func (v validator) rejectKubernetesFields(spec v1alpha1.InstanceGroupSpec) {
	kubelet, _ := toJSONTree(spec.Kubelet).(map[string]any)
	rolling, _ := toJSONTree(spec.RollingUpdate).(map[string]any)
	for _, f := range []struct {
		path string
		set  bool
	}{
		{"spec.kubernetesVersion", spec.KubernetesVersion != ""},
		{"spec.nodeLabels", len(spec.NodeLabels) > 0},
		{"spec.taints", len(spec.Taints) > 0},
		{"spec.autoscale", spec.Autoscale},
		{"spec.kubelet", len(kubelet) > 0},
		{"spec.sysctls", len(spec.Sysctls) > 0},
		{"spec.instanceMetadata.allowedCgroups", len(spec.InstanceMetadata.AllowedCgroups) > 0},
		{"spec.rollingUpdate", len(rolling) > 0},
	} {
		if f.set {
			v.errorf(f.path, "", "leave it out", "has no effect: a bastion does not run Kubernetes")
		}
	}
}
