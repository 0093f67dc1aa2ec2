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

// LoadBalancerNone says that bastions have public addresses of their own.
const LoadBalancerNone = "None"

// HasBastion says whether a set has a group of role Bastion.
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

	setDefaultText(&g.Spec.MachineType, "t3.large")
}

func defaultRootSize(g *v1alpha1.InstanceGroup, _ *Set) {
	if g.Spec.Role == v1alpha1.RoleBastion {
		setDefaultNumber(&g.Spec.RootVolume.Size, 16)
	}

	setDefaultNumber(&g.Spec.RootVolume.Size, 64)
}

// checkBastion checks what the cluster says of SSH against its groups.
func (v validator) checkBastion(s Set) {
	spec := s.Cluster.Spec
	for i, cidr := range spec.SSHAccess {
		at := fmt.Sprintf("spec.sshAccess[%d]", i)
		if p := v.parsePrefix(at, cidr); p.IsValid() && p.Bits() == 0 {
			v.warnf(
				at,
				cidr,
				"name the ranges of your own networks",
				"lets the whole world try the bastions' SSH",
			)
		}
	}

	typ := spec.Topology.Bastion.LoadBalancer.Type
	if !HasBastion(s) {
		if len(spec.SSHAccess) > 0 {
			v.errorf(
				"spec.sshAccess",
				strings.Join(spec.SSHAccess, ", "),
				"add an InstanceGroup of role Bastion, or leave it out: no machine is reached by SSH without one",
				"has no effect without a bastion",
			)
		}

		if typ != "" {
			v.errorf(
				"spec.topology.bastion.loadBalancer.type",
				typ,
				"add an InstanceGroup of role Bastion, or leave it out",
				"has no effect without a bastion",
			)
		}

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
			"list the ranges of your own networks, such as 192.0.2.0/24",
			"must not be empty: nobody could reach the bastion",
		)
	}

	if spec.SSHKey == "" && spec.SSHKeyName == "" {
		v.warnf(
			"spec.sshKeyName",
			"",
			"name a key pair, or give sshKey",
			"is empty: only an image that brings EC2 Instance Connect lets anybody in",
		)
	}
}

// checkBastionSubnets checks that a bastion without a load balancer can be reached.
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
					"use a Public one, or a load balancer",
					"is not Public: nobody could reach a bastion without a load balancer there",
				)
			}
		}
	}
}

func (v validator) checkSSHKeys(spec v1alpha1.ClusterSpec) {
	if spec.SSHKey != "" && spec.SSHKeyName != "" {
		v.errorf("spec.sshKeyName", spec.SSHKeyName, "keep one of them", "is given beside sshKey")
	}

	if name := spec.SSHKeyName; name != "" && !regexp.MustCompile(`^[ -~]{1,255}$`).MatchString(name) {
		v.errorf("spec.sshKeyName", name, "see aws ec2 describe-key-pairs", "is no name of a key pair")
	}

	if spec.SSHKey != "" {
		v.checkSSHKey(spec.SSHKey)
	}
}

// checkSSHKey checks a public key as OpenSSH writes it.
func (v validator) checkSSHKey(key string) {
	const hint = "give the line in the .pub file, ssh-ed25519 AAAA… or ssh-rsa AAAA…"
	f := strings.Fields(key)
	if strings.Contains(key, "PRIVATE KEY") {
		v.errorf(
			"spec.sshKey",
			"",
			hint,
			"is a private key: it must never leave your machine",
		) // and is not shown

		return
	}

	if len(f) < 2 || f[0] != "ssh-ed25519" && f[0] != "ssh-rsa" {
		v.errorf("spec.sshKey", "", hint, "is not a public key that EC2 takes")
		return
	}

	if raw, err := base64.StdEncoding.DecodeString(f[1]); err != nil || len(raw) < 4+len(f[0]) ||
		string(raw[4:4+len(f[0])]) != f[0] {
		v.errorf("spec.sshKey", "", hint, "is not a whole %s key", f[0])
	}
}

// rejectKubernetesFields reports what has no meaning on a bastion, which runs no Kubernetes.
func (v validator) rejectKubernetesFields(spec v1alpha1.InstanceGroupSpec) {
	k := spec.Kubelet
	for _, f := range []struct {
		path string
		set  bool
	}{
		{"spec.nodeLabels", len(spec.NodeLabels) > 0},
		{"spec.taints", len(spec.Taints) > 0},
		{"spec.autoscale", spec.Autoscale},
		{"spec.kubelet", len(k.KubeReserved)+len(k.SystemReserved)+len(k.EvictionHard) > 0},
	} {
		if f.set {
			v.errorf(f.path, "", "leave it out", "has no effect: a bastion runs no Kubernetes")
		}
	}
}
