// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// found changes the default cluster or its worker group, applies the defaults, and returns the
// findings.
func found(t *testing.T, change func(*manifest.Set, *v1alpha1.InstanceGroupSpec)) string {
	t.Helper()
	set, fs := manifest.NewSet("demo", threeZones(), manifest.NewSetOptions{})
	change(&set, &set.Groups[1].Spec)
	return render(append(fs, manifest.Validate(manifest.Default(set))...))
}

func bastion(s *manifest.Set) {
	s.Groups = append(s.Groups, v1alpha1.InstanceGroup{
		APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.KindInstanceGroup, Metadata: v1alpha1.Metadata{Name: "bastion"},
		Spec: v1alpha1.InstanceGroupSpec{Role: v1alpha1.RoleBastion},
	})
}

func mixed(instances ...string) func(*manifest.Set, *v1alpha1.InstanceGroupSpec) {
	return func(_ *manifest.Set, g *v1alpha1.InstanceGroupSpec) {
		g.MachineType, g.MixedInstancesPolicy.Instances = "", instances
	}
}

// spot returns a change of a worker group with spot instances.
func spot(change func(*v1alpha1.InstanceGroupSpec)) func(*manifest.Set, *v1alpha1.InstanceGroupSpec) {
	return func(s *manifest.Set, g *v1alpha1.InstanceGroupSpec) {
		mixed("m6i.large", "m5.large")(s, g)
		change(g)
	}
}

func TestGroupsAreChecked(t *testing.T) {
	type spec = v1alpha1.InstanceGroupSpec
	for want, change := range map[string]func(*manifest.Set, *spec){
		"additionalSecurityGroups[0] \"web\": is not a valid security group ID": func(_ *manifest.Set, g *spec) { g.AdditionalSecurityGroups = []string{"web"} },
		"exceeds the number of security groups": func(_ *manifest.Set, g *spec) {
			for i := range 5 {
				g.AdditionalSecurityGroups = append(g.AdditionalSecurityGroups, fmt.Sprintf("sg-%08d", i))
			}
		},
		"policies[0] \"admin\": is not a valid managed policy":                  func(_ *manifest.Set, g *spec) { g.IAM.Policies = []string{"admin"} },
		"inlinePolicy: is not a policy document":                                func(_ *manifest.Set, g *spec) { g.IAM.InlinePolicy = "allow all" },
		"control-plane: spec.iam: is for workers only":                          func(s *manifest.Set, _ *spec) { s.Groups[0].Spec.IAM.Policies = []string{"arn:aws:iam::aws:policy/A"} },
		"encryptionKey \"alias/x\": is not a valid KMS key":                     func(_ *manifest.Set, g *spec) { g.RootVolume.EncryptionKey = "alias/x" },
		"kubeReserved[memory] \"lots\": is not a valid quantity":                func(_ *manifest.Set, g *spec) { g.Kubelet.KubeReserved = map[string]string{"memory": "lots"} },
		"systemReserved[gpu] \"gpu\": is not one of":                            func(_ *manifest.Set, g *spec) { g.Kubelet.SystemReserved = map[string]string{"gpu": "1"} },
		"evictionHard[nodefs.available] \"110%\": is not a percentage":          func(_ *manifest.Set, g *spec) { g.Kubelet.EvictionHard = map[string]string{"nodefs.available": "110%"} },
		"spec.repair.notReadyFor \"1m\": is not valid":                          func(_ *manifest.Set, g *spec) { g.Repair.NotReadyFor = "1m" },
		"spec.repair.notReadyFor \"25h\": is not valid":                         func(_ *manifest.Set, g *spec) { g.Repair.NotReadyFor = "25h" },
		"spec.repair.maxUnhealthyPercent \"101\"":                               func(_ *manifest.Set, g *spec) { g.Repair.MaxUnhealthyPercent = 101 },
		"bastion: spec.repair: is not for bastions":                             func(s *manifest.Set, _ *spec) { bastion(s); s.Groups[2].Spec.Repair.Disabled = true },
		"workers: spec.repair.minMachineAge \"1h\": is for the control plane":   func(_ *manifest.Set, g *spec) { g.Repair.MinMachineAge = "1h" },
		"control-plane: spec.repair.minMachineAge \"4m\": is not valid":         func(s *manifest.Set, _ *spec) { s.Groups[0].Spec.Repair.MinMachineAge = "4m" },
		"control-plane: spec.repair.minMachineAge \"25h\": is not valid":        func(s *manifest.Set, _ *spec) { s.Groups[0].Spec.Repair.MinMachineAge = "25h" },
		"control-plane: spec.repair.notReadyFor \"1m\": is not valid":           func(s *manifest.Set, _ *spec) { s.Groups[0].Spec.Repair.NotReadyFor = "1m" },
		"control-plane: spec.repair.maxUnhealthyPercent \"50\": is for workers": func(s *manifest.Set, _ *spec) { s.Groups[0].Spec.Repair.MaxUnhealthyPercent = 50 },
		"additionalUserData[0].type \"text/x-shelscript\"": func(_ *manifest.Set, g *spec) {
			g.AdditionalUserData = []v1alpha1.UserData{{Name: "a", Type: "text/x-shelscript", Content: "x"}}
		},
		"additionalUserData[1].name \"a\": is also the name of": func(_ *manifest.Set, g *spec) {
			g.AdditionalUserData = []v1alpha1.UserData{{Name: "a", Type: "text/cloud-config", Content: "x"}, {Name: "a", Type: "text/cloud-config", Content: "x"}}
		},
		"exceeds the 12288 bytes that": func(_ *manifest.Set, g *spec) {
			g.AdditionalUserData = []v1alpha1.UserData{{Name: "a", Type: "text/cloud-config", Content: strings.Repeat("x", 13000)}}
		},
		"warning: cluster/demo: spec.etcd.volume.size \"5\": leaves room for a database of 2080 MiB": func(s *manifest.Set, _ *spec) {
			s.Cluster.Spec.Etcd.Volume.Size = 5
		},
		"warning: instancegroup/workers: spec.autoscale":                    func(_ *manifest.Set, g *spec) { g.Autoscale = true },
		"is for workers: the size of a control plane":                       func(s *manifest.Set, _ *spec) { s.Groups[0].Spec.Autoscale = true },
		"cloudLabels[slipway.dev/x]: is reserved: Slipway":                  func(_ *manifest.Set, g *spec) { g.CloudLabels = map[string]string{"slipway.dev/x": "y"} },
		"spec.sshAccess: must not be empty: the bastion would be":           func(s *manifest.Set, _ *spec) { bastion(s) },
		"spec.sshAccess \"10.0.0.0/8\": has no effect without a bastion":    func(s *manifest.Set, _ *spec) { s.Cluster.Spec.SSHAccess = []string{"10.0.0.0/8"} },
		"warning: cluster/demo: spec.sshAccess[0] \"0.0.0.0/0\": opens SSH": func(s *manifest.Set, _ *spec) { bastion(s); s.Cluster.Spec.SSHAccess = []string{"0.0.0.0/0"} },
		"spec.sshKey: is a private key":                                     func(s *manifest.Set, _ *spec) { s.Cluster.Spec.SSHKey = "-----BEGIN OPENSSH PRIVATE KEY-----" },
		"spec.sshKey: is not a complete ssh-ed25519 key":                    func(s *manifest.Set, _ *spec) { s.Cluster.Spec.SSHKey = "ssh-ed25519 AAAA" },
		"instances[1] \"m7g.large\": is arm64, but m6i.large is amd64":      mixed("m6i.large", "m7g.large"),
		"instances[0] \"m6i.larg\": is not a known EC2 instance type":       mixed("m6i.larg"),
		"instances[1] \"m6i.large\": duplicates instances[0]":               mixed("m6i.large", "m6i.large"),
		"onDemandAboveBase \"101\": is out of range":                        spot(func(g *spec) { g.MixedInstancesPolicy.OnDemandAboveBase = 101 }),
		"onDemandBase \"3\": is out of range":                               spot(func(g *spec) { g.MixedInstancesPolicy.OnDemandBase = 3 }),
		"spotAllocationStrategy \"cheapest\"":                               spot(func(g *spec) { g.MixedInstancesPolicy.SpotAllocationStrategy = "cheapest" }),
		"is not one of mixedInstancesPolicy.instances":                      spot(func(g *spec) { g.MachineType = "t3.large" }),
		"maxPrice \"cheap\": is not a price":                                spot(func(g *spec) { g.MaxPrice = "cheap" }),
		"maxPrice \"0.1\": is for spot instances":                           func(_ *manifest.Set, g *spec) { g.MaxPrice = "0.1" },
		"capacityRebalance \"true\": is for spot instances":                 func(_ *manifest.Set, g *spec) { g.CapacityRebalance = true },
		"mixedInstancesPolicy.instances: must not be empty":                 func(_ *manifest.Set, g *spec) { g.MixedInstancesPolicy.OnDemandBase = 1 },
		"bastion: spec.mixedInstancesPolicy: is for workers and the control plane": func(s *manifest.Set, _ *spec) {
			bastion(s)
			s.Groups[2].Spec.MixedInstancesPolicy.Instances = []string{"t3.micro"}
		},
		"control-plane: spec.mixedInstancesPolicy.onDemandAboveBase \"50\": is for workers only": func(s *manifest.Set, _ *spec) {
			s.Groups[0].Spec.MixedInstancesPolicy = v1alpha1.MixedInstancesPolicy{Instances: []string{"t3.large"}, OnDemandAboveBase: 50}
		},
		"warning: instancegroup/control-plane: spec.mixedInstancesPolicy.instances[1] \"t3.micro\": has 1024 MiB of memory": func(s *manifest.Set, _ *spec) {
			s.Groups[0].Spec.MixedInstancesPolicy.Instances = []string{"t3.large", "t3.micro"}
		},
		"warning: instancegroup/workers: spec.mixedInstancesPolicy": spot(func(g *spec) {
			g.Autoscale, g.MaxSize = true, new(3)
			g.MixedInstancesPolicy.Instances[1] = "m6i.xlarge"
		}),
		"image \"ssm:/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id\": does not match m7g.large,": func(_ *manifest.Set, g *spec) {
			g.MachineType, g.Image = "m7g.large", "ssm:/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"
		},
		"userDataFormat \"CloudInit\": is not supported by Flatcar":   func(_ *manifest.Set, g *spec) { g.Image, g.UserDataFormat = "flatcar", "CloudInit" },
		"userDataFormat \"Ignition\": is not supported by ssm:/aws":   func(_ *manifest.Set, g *spec) { g.Image, g.UserDataFormat = "debian-12", "Ignition" },
		"userDataFormat \"Ignition\": is not supported for a bastion": func(s *manifest.Set, _ *spec) { bastion(s); s.Groups[2].Spec.UserDataFormat = "Ignition" },
		"additionalUserData[0].content: is not an Ignition": func(_ *manifest.Set, g *spec) {
			g.Image, g.AdditionalUserData = "flatcar", []v1alpha1.UserData{{Name: "a", Type: manifest.IgnitionType, Content: "#!/bin/sh"}}
		},
		"additionalUserData[0].type \"text/x-shellscript\": is not one of": func(_ *manifest.Set, g *spec) {
			g.Image, g.AdditionalUserData = "flatcar", []v1alpha1.UserData{{Name: "a", Type: "text/x-shellscript", Content: "#!/bin/sh"}}
		},
		"instanceConnectSecurityGroup \"eice-1\": is not a valid security group ID": func(s *manifest.Set, _ *spec) {
			s.Cluster.Spec.MachineAccess.InstanceConnectSecurityGroup = "eice-1"
		},
		"poolState \"Hibernated\": is not one of": func(_ *manifest.Set, g *spec) { g.WarmPool = v1alpha1.WarmPool{MinSize: 1, PoolState: "Hibernated"} },
		"reuseOnScaleIn \"true\": needs machines that are stopped in the pool": func(_ *manifest.Set, g *spec) {
			g.WarmPool = v1alpha1.WarmPool{MinSize: 1, PoolState: "Running", ReuseOnScaleIn: true}
		},
		"warning: instancegroup/workers: spec.warmPool.reuseOnScaleIn \"true\": does not hold for the cluster autoscaler": func(_ *manifest.Set, g *spec) {
			g.Autoscale, g.MaxSize = true, new(3)
			g.WarmPool = v1alpha1.WarmPool{MinSize: 1, ReuseOnScaleIn: true}
		},
		"control-plane: spec.warmPool: is for workers":           func(s *manifest.Set, _ *spec) { s.Groups[0].Spec.WarmPool.MinSize = 1 },
		"spec.warmPool: cannot be combined with mixed":           spot(func(g *spec) { g.WarmPool.MinSize = 1 }),
		"maxGroupPreparedCapacity \"1\": is less than minSize 2": func(_ *manifest.Set, g *spec) { g.WarmPool.MaxGroupPreparedCapacity = 1 },
		"spec.warmPool: is empty while":                          func(_ *manifest.Set, g *spec) { g.WarmPool.PoolState = "Running" },
		"instancegroup/bastion: spec.taints: has no effect":      func(s *manifest.Set, _ *spec) { bastion(s); s.Groups[2].Spec.Taints = []string{"a=b:NoSchedule"} },
	} {
		if got := found(t, change); !strings.Contains(got, want) {
			t.Errorf("want %s, got\n%s", want, got)
		}
	}
	if got := found(t, func(*manifest.Set, *spec) {}); got != "" {
		t.Error(got)
	}
}

// TestDistributions checks that the name of a distribution is replaced by the image that it
// publishes for the machine type's architecture.
func TestDistributions(t *testing.T) {
	for name, want := range map[string][2]string{
		"":                  {"ssm:/aws/service/debian/release/12/latest/arm64", "CloudInit"},
		"ubuntu-24.04":      {"ssm:/aws/service/canonical/ubuntu/server/24.04/stable/current/arm64/hvm/ebs-gp3/ami-id", "CloudInit"},
		"amazon-linux-2023": {"ssm:/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-arm64", "CloudInit"},
		"flatcar":           {"075585003325/Flatcar-stable-*-hvm", "Ignition"},
	} {
		set, _ := manifest.NewSet("demo", threeZones(), manifest.NewSetOptions{})
		set.Groups[1].Spec.MachineType, set.Groups[1].Spec.Image = "m7g.large", name
		once := manifest.Default(set)
		got := manifest.Default(once).Groups[1].Spec
		if got.Image != want[0] || got.UserDataFormat != want[1] {
			t.Errorf("%q is %s, %s", name, got.Image, got.UserDataFormat)
		}
		if fs := manifest.Validate(once); len(fs) > 0 {
			t.Errorf("%q: %v", name, fs)
		}
	}
}

// TestPrivateKeyIsNotShown checks that a private key in sshKey does not appear in a finding, and so
// in a log.
func TestPrivateKeyIsNotShown(t *testing.T) {
	const secret = "b3BlbnNzaC1rZXktdjE"
	got := found(t, func(s *manifest.Set, _ *v1alpha1.InstanceGroupSpec) {
		s.Cluster.Spec.SSHKey = "-----BEGIN OPENSSH PRIVATE KEY-----\n" + secret
	})
	if strings.Contains(got, secret) {
		t.Error(got)
	}
}

// TestSessionManagerNeedsItsAgent: images without the SSM agent are refused in one finding; unknown images are accepted.
func TestSessionManagerNeedsItsAgent(t *testing.T) {
	images := func(images ...string) string {
		return found(t, func(s *manifest.Set, _ *v1alpha1.InstanceGroupSpec) {
			s.Cluster.Spec.MachineAccess.SessionManager = true
			for i, image := range images {
				s.Groups[i].Spec.Image = image
			}
		})
	}
	want := `spec.machineAccess.sessionManager "true": needs the SSM agent, which the image of control-plane, workers does not contain`
	if got := images("", "flatcar"); strings.Count(got, "SSM agent,") != 1 || !strings.Contains(got, want) {
		t.Errorf("images without the agent: %s", got)
	}
	if got := images("amazon-linux-2023", "debian-12"); !strings.Contains(got, "the image of workers does not contain") {
		t.Errorf("one image without the agent: %s", got)
	}
	if got := images("ami-0123456789abcdef0", "ubuntu-24.04"); got != "" {
		t.Errorf("images with the agent: %s", got)
	}
}
