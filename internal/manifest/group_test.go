// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// found defaults and checks the default cluster after a change of its workers, and returns what is wrong.
func found(t *testing.T, change func(*manifest.Set, *v1alpha1.InstanceGroupSpec)) string {
	t.Helper()
	set, fs := manifest.New("demo", threeZones(), manifest.NewOptions{})
	change(&set, &set.Groups[1].Spec)
	return render(append(fs, manifest.Validate(manifest.Default(set))...))
}

func bastion(s *manifest.Set) {
	s.Groups = append(s.Groups, v1alpha1.InstanceGroup{
		APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.KindInstanceGroup, Metadata: v1alpha1.Metadata{Name: "bastion"},
		Spec: v1alpha1.InstanceGroupSpec{Role: v1alpha1.RoleBastion},
	})
}

func TestGroupsAreChecked(t *testing.T) {
	type spec = v1alpha1.InstanceGroupSpec
	for want, change := range map[string]func(*manifest.Set, *spec){
		"additionalSecurityGroups[0] \"web\": is not the id": func(_ *manifest.Set, g *spec) { g.AdditionalSecurityGroups = []string{"web"} },
		"are more than an interface may have": func(_ *manifest.Set, g *spec) {
			for i := range 5 {
				g.AdditionalSecurityGroups = append(g.AdditionalSecurityGroups, fmt.Sprintf("sg-%08d", i))
			}
		},
		"policies[0] \"admin\": is not a managed policy":          func(_ *manifest.Set, g *spec) { g.IAM.Policies = []string{"admin"} },
		"inlinePolicy: is not a policy document":                  func(_ *manifest.Set, g *spec) { g.IAM.InlinePolicy = "allow all" },
		"control-plane: spec.iam: is for workers only":            func(s *manifest.Set, _ *spec) { s.Groups[0].Spec.IAM.Policies = []string{"arn:aws:iam::aws:policy/A"} },
		"encryptionKey \"alias/x\": is not a KMS key":             func(_ *manifest.Set, g *spec) { g.RootVolume.EncryptionKey = "alias/x" },
		"kubeReserved[memory] \"lots\": is not a quantity":        func(_ *manifest.Set, g *spec) { g.Kubelet.KubeReserved = map[string]string{"memory": "lots"} },
		"systemReserved[gpu] \"gpu\": is not one of":              func(_ *manifest.Set, g *spec) { g.Kubelet.SystemReserved = map[string]string{"gpu": "1"} },
		"evictionHard[nodefs.available] \"110%\": is not a share": func(_ *manifest.Set, g *spec) { g.Kubelet.EvictionHard = map[string]string{"nodefs.available": "110%"} },
		"additionalUserData[0].type \"text/x-shelscript\"": func(_ *manifest.Set, g *spec) {
			g.AdditionalUserData = []v1alpha1.UserData{{Name: "a", Type: "text/x-shelscript", Content: "x"}}
		},
		"additionalUserData[1].name \"a\": is the name of": func(_ *manifest.Set, g *spec) {
			g.AdditionalUserData = []v1alpha1.UserData{{Name: "a", Type: "text/cloud-config", Content: "x"}, {Name: "a", Type: "text/cloud-config", Content: "x"}}
		},
		"has more bytes than the 12288 that EC2 leaves": func(_ *manifest.Set, g *spec) {
			g.AdditionalUserData = []v1alpha1.UserData{{Name: "a", Type: "text/cloud-config", Content: strings.Repeat("x", 13000)}}
		},
		"warning: instancegroup/workers: spec.autoscale":                   func(_ *manifest.Set, g *spec) { g.Autoscale = true },
		"is for workers: a control plane's size":                           func(s *manifest.Set, _ *spec) { s.Groups[0].Spec.Autoscale = true },
		"cloudLabels[slipway.dev/x]: is a key that Slipway":                func(_ *manifest.Set, g *spec) { g.CloudLabels = map[string]string{"slipway.dev/x": "y"} },
		"spec.sshAccess: must not be empty: nobody could reach":            func(s *manifest.Set, _ *spec) { bastion(s) },
		"spec.sshAccess \"10.0.0.0/8\": has no effect without a bastion":   func(s *manifest.Set, _ *spec) { s.Cluster.Spec.SSHAccess = []string{"10.0.0.0/8"} },
		"warning: cluster/demo: spec.sshAccess[0] \"0.0.0.0/0\": lets the": func(s *manifest.Set, _ *spec) { bastion(s); s.Cluster.Spec.SSHAccess = []string{"0.0.0.0/0"} },
		"spec.sshKey: is a private key":                                    func(s *manifest.Set, _ *spec) { s.Cluster.Spec.SSHKey = "-----BEGIN OPENSSH PRIVATE KEY-----" },
		"spec.sshKey: is not a whole ssh-ed25519 key":                      func(s *manifest.Set, _ *spec) { s.Cluster.Spec.SSHKey = "ssh-ed25519 AAAA" },
		"instancegroup/bastion: spec.taints: has no effect":                func(s *manifest.Set, _ *spec) { bastion(s); s.Groups[2].Spec.Taints = []string{"a=b:NoSchedule"} },
	} {
		if got := found(t, change); !strings.Contains(got, want) {
			t.Errorf("want %s, got\n%s", want, got)
		}
	}
	if got := found(t, func(*manifest.Set, *spec) {}); got != "" {
		t.Error(got)
	}
}

// TestPrivateKeyIsNotShown: what was pasted by mistake must not reach a log.
func TestPrivateKeyIsNotShown(t *testing.T) {
	const secret = "b3BlbnNzaC1rZXktdjE"
	got := found(t, func(s *manifest.Set, _ *v1alpha1.InstanceGroupSpec) {
		s.Cluster.Spec.SSHKey = "-----BEGIN OPENSSH PRIVATE KEY-----\n" + secret
	})
	if strings.Contains(got, secret) {
		t.Error(got)
	}
}
