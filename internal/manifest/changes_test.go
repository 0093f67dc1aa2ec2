// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// leafPaths returns the paths of all fields below a type that have a value of their own.
func leafPaths(t reflect.Type, path string) []string {
	if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct {
		return leafPaths(t.Elem(), path+"[]")
	}
	if t.Kind() != reflect.Struct {
		return []string{path}
	}
	var out []string
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		out = append(out, leafPaths(f.Type, strings.TrimPrefix(path+"."+name, "."))...)
	}
	return out
}

// TestEveryFieldHasAChangeRule: a new field must be classified, and a rule must be about a field.
func TestEveryFieldHasAChangeRule(t *testing.T) {
	rules := map[string]manifest.FieldRule{}
	for _, r := range manifest.FieldRules() {
		key := r.Kind + " " + r.Path
		if _, twice := rules[key]; twice {
			t.Errorf("%s has two rules", key)
		}
		if (r.Instead == "") != (r.Rule == manifest.ChangesFreely) {
			t.Errorf("%s is %q and says %q", key, r.Rule, r.Instead)
		}
		rules[key] = r
	}
	for _, doc := range []any{v1alpha1.Cluster{}, v1alpha1.InstanceGroup{}} {
		typ := reflect.TypeOf(doc)
		for _, path := range leafPaths(typ, "") {
			key := typ.Name() + " " + path
			if _, ok := rules[key]; !ok {
				t.Errorf("%s has no rule: add it to change_rules.go", key)
			}
			delete(rules, key)
		}
	}
	for key := range rules {
		t.Errorf("the rule of %s is about no field", key)
	}
}

// TestBreakingChanges changes one thing of an applied cluster: the only finding names the field, both values
// and what to do instead.
func TestBreakingChanges(t *testing.T) {
	cluster := func(f func(*v1alpha1.ClusterSpec)) func(*manifest.Set) {
		return func(s *manifest.Set) { f(&s.Cluster.Spec) }
	}
	network := func(f func(*v1alpha1.Networking)) func(*manifest.Set) {
		return func(s *manifest.Set) { f(&s.Cluster.Spec.Networking) }
	}
	for want, change := range map[string]func(*manifest.Set){
		`cluster/demo: spec.networking.podCIDR "10.100.0.0/16": cannot change once the cluster is applied; it is 10.244.0.0/16 (keep it: each node`:            network(func(n *v1alpha1.Networking) { n.PodCIDR = "10.100.0.0/16" }),
		`cluster/demo: spec.networking.serviceClusterIPRange "10.97.0.0/16": cannot change once the cluster is applied; it is 10.96.0.0/16`:                    network(func(n *v1alpha1.Networking) { n.ServiceClusterIPRange = "10.97.0.0/16" }),
		`cluster/demo: spec.kubeAPIServer.serviceAccountIssuer "https://a": cannot change once the cluster is applied; it is (not set) (keep it: running pods`: cluster(func(c *v1alpha1.ClusterSpec) { c.KubeAPIServer.ServiceAccountIssuer = "https://a" }),
		`cluster/demo: spec.kubeAPIServer.acceptedServiceAccountIssuers "[\"https://a\"]": cannot change once the cluster is applied`:                          cluster(func(c *v1alpha1.ClusterSpec) { c.KubeAPIServer.AcceptedServiceAccountIssuers = []string{"https://a"} }),
		`cluster/demo: spec.networking.flannel.backend "WireGuard": cannot change once the cluster is applied; it is VXLAN (keep it: machines with the other`:  network(func(n *v1alpha1.Networking) { n.Flannel.Backend = v1alpha1.FlannelWireGuard }),
		`cluster/demo: spec.networking.dnsDomain "k8s.local": cannot change once the cluster is applied; it is cluster.local`:                                  network(func(n *v1alpha1.Networking) { n.DNSDomain = "k8s.local" }),
		`cluster/demo: spec.networking.networkCIDR "10.20.0.0/16": cannot change once the cluster is applied; it is 10.80.0.0/16 (keep it: AWS cannot change`:  network(func(n *v1alpha1.Networking) { n.NetworkCIDR = "10.20.0.0/16" }),
		`cluster/demo: spec.networking.networkID "vpc-0123456789abcdef0": cannot change once the cluster is applied; it is (not set)`: network(func(n *v1alpha1.Networking) {
			n.NetworkID, n.InternetGatewayID = "vpc-0123456789abcdef0", "igw-0123456789abcdef0"
		}),
		`cluster/demo: spec.networking.subnets[4].zone "us-east-1d": cannot change once the cluster is applied; it is us-east-1b`: func(s *manifest.Set) {
			subnet(s, "private-b").Zone = "us-east-1d"
			subnet(s, "public-b").Zone = "us-east-1b"
		},
		`cluster/demo: spec.networking.subnets[0].name "edge-a": cannot change once the cluster is applied; it is public-a (keep the name`: func(s *manifest.Set) { subnet(s, "public-a").Name = "edge-a" },
		`cluster/demo: spec.cloudProvider.aws.region "eu-west-1": cannot change once the cluster is applied; it is us-east-1`:              cluster(func(c *v1alpha1.ClusterSpec) { c.CloudProvider.AWS.Region = "eu-west-1" }),
		`cluster/demo: spec.cloudProvider.aws.kmsKeyARN "arn:aws:kms:us-east-1:123456789012:key/1": cannot change once the cluster is applied; it is (not set) (`: cluster(func(c *v1alpha1.ClusterSpec) {
			c.CloudProvider.AWS.KMSKeyARN = "arn:aws:kms:us-east-1:123456789012:key/1"
		}),
		`cluster/demo: spec.cloudProvider.aws.instanceProfiles.worker "own": cannot change once the cluster is applied; it is (not set)`: cluster(func(c *v1alpha1.ClusterSpec) { c.CloudProvider.AWS.InstanceProfiles.Worker = "own" }),
		`cluster/demo: spec.etcd.volume.size "10": cannot shrink from 20 (set it to the old size or more: EBS volumes cannot shrink)`:    cluster(func(c *v1alpha1.ClusterSpec) { c.Etcd.Volume.Size = 10 }),
		`cluster/demo: spec.kubernetesVersion "1.34.1": cannot follow 1.36.3 (upgrade to each minor`:                                     cluster(func(c *v1alpha1.ClusterSpec) { c.KubernetesVersion = "1.34.1" }),
		`cluster/demo: spec.kubernetesVersion "1.38.0": cannot follow 1.36.3`:                                                            cluster(func(c *v1alpha1.ClusterSpec) { c.KubernetesVersion = "1.38.0" }),
		`cluster/demo: spec.configStore.base "s3://other/x": cannot change once the cluster is applied; it is (not set)`:                 cluster(func(c *v1alpha1.ClusterSpec) { c.ConfigStore.Base = "s3://other/x" }),
		`instancegroup/control-plane: spec.minSize "5": cannot change from 3 together with spec.kubernetesVersion (upgrade first`: func(s *manifest.Set) {
			resize(s, 5)
			s.Cluster.Spec.KubernetesVersion = "1.37.0"
		},
		`instancegroup/control-plane: spec.subnets "private-b, private-a, private-c": would move slot a from us-east-1a to us-east-1b, slot b`: func(s *manifest.Set) {
			resize(s, 5)
			s.Groups[0].Spec.Subnets = []string{"private-b", "private-a", "private-c"}
		},
		`instancegroup/control-plane: spec.subnets "private-b, private-a, private-c": would move slot a from us-east-1a to us-east-1b, slot b from us-east-1b to`: func(s *manifest.Set) { s.Groups[0].Spec.Subnets = []string{"private-b", "private-a", "private-c"} },
		`instancegroup/workers: spec.role "Bastion": cannot change once the cluster is applied; it is Worker`: func(s *manifest.Set) {
			s.Groups[1].Spec.Role = v1alpha1.RoleBastion
			s.Groups[1].Spec.Subnets = []string{"public-a"}
		},
		`instancegroup/workers: spec.minSize "-1": is out of range (use 0 to 1000)`: func(s *manifest.Set) { s.Groups[1].Spec.MinSize = new(-1) },
	} {
		t.Run(want, func(t *testing.T) {
			applied := demo(t)
			now := demo(t)
			change(&now)
			fs := manifest.CheckEdit(applied, now, nil)
			fs = slices.DeleteFunc(fs, func(f diag.Finding) bool { // a moved subnet has no load balancer in its zone
				return f.Severity == diag.Warning && strings.Contains(f.String(), "without a subnet of the load balancer")
			})
			if len(fs) != 1 || !strings.HasPrefix(fs[0].String(), want) {
				t.Errorf("got %d findings, want one:\n%s", len(fs), render(fs))
			}
		})
	}
}

func subnet(s *manifest.Set, name string) *v1alpha1.Subnet {
	for i, n := range s.Cluster.Spec.Networking.Subnets {
		if n.Name == name {
			return &s.Cluster.Spec.Networking.Subnets[i]
		}
	}
	panic("no subnet " + name)
}

// resize sets the number of control-plane machines.
func resize(s *manifest.Set, n int) {
	s.Groups[0].Spec.MinSize, s.Groups[0].Spec.MaxSize = new(n), new(n)
}

// TestStackKeepsSize: CloudFormation creates the machines of a control plane one after the other, and each waits for all.
func TestStackKeepsSize(t *testing.T) {
	now := demo(t)
	if fs := manifest.CheckStackChanges(demo(t), now); len(fs) != 0 {
		t.Errorf("without a change: %s", render(fs))
	}
	resize(&now, 5)
	fs := manifest.CheckStackChanges(demo(t), now)
	if want := `spec.minSize "5": cannot change from 3 in a CloudFormation stack`; len(fs) != 1 || !strings.Contains(fs[0].String(), want) {
		t.Errorf("got %s, want %s", render(fs), want)
	}
	if fs := manifest.CheckStackChanges(manifest.Set{}, now); len(fs) != 0 {
		t.Errorf("a new stack: %s", render(fs))
	}
}

// TestAllowedChanges changes what can change in place.
func TestAllowedChanges(t *testing.T) {
	for name, change := range map[string]func(*manifest.Set){
		"nothing": func(*manifest.Set) {},
		"version": func(s *manifest.Set) { s.Cluster.Spec.KubernetesVersion = "1.37.0" },
		"larger":  func(s *manifest.Set) { resize(s, 5) },
		"smaller": func(s *manifest.Set) { resize(s, 1) },
		"patch":   func(s *manifest.Set) { s.Cluster.Spec.KubernetesVersion = "1.36.1" },
		"volume":  func(s *manifest.Set) { s.Cluster.Spec.Etcd.Volume.Size = 30 },
		"private": func(s *manifest.Set) {
			s.Cluster.Spec.API.LoadBalancer.Type, s.Cluster.Spec.API.Access = "Internal", nil
		},
		"hostnames":     func(s *manifest.Set) { s.Cluster.Spec.Networking.Hostnames = v1alpha1.HostnamesByResource },
		"tags":          func(s *manifest.Set) { s.Cluster.Spec.Tags = map[string]string{"team": "a"} },
		"worker zones":  func(s *manifest.Set) { s.Groups[1].Spec.Subnets = []string{"private-c"} },
		"worker size":   func(s *manifest.Set) { s.Groups[1].Spec.MaxSize = new(9) },
		"another group": func(s *manifest.Set) { g := s.Groups[1]; g.Metadata.Name = "more"; s.Groups = append(s.Groups, g) },
		"subnets in another order": func(s *manifest.Set) {
			n := s.Cluster.Spec.Networking.Subnets
			n[0], n[1] = n[1], n[0]
		},
	} {
		t.Run(name, func(t *testing.T) {
			now := demo(t)
			change(&now)
			if fs := manifest.CheckEdit(demo(t), now, nil); fs.Err() != nil {
				t.Error(render(fs))
			}
			now.Cluster.Spec.Networking.PodCIDR = "10.100.0.0/16"
			if fs := manifest.CheckEdit(manifest.Set{}, now, nil); fs.Err() != nil {
				t.Errorf("a cluster that was never applied: %s", render(fs))
			}
		})
	}
}

// TestOneCauseOneFinding: what follows from a finding is not reported too.
func TestOneCauseOneFinding(t *testing.T) {
	text := string(manifest.EncodeYAML(demo(t)))
	for edit, want := range map[[2]string]string{
		{"  networking:", "  networkng:"}:                                                         "error: cluster/demo: spec.networkng: is not a known field (did you mean networking?)\n",
		{"    networkCIDR: 10.80", "    networkCIDR: 10.90"}:                                      "error: cluster/demo: spec.networking.networkCIDR \"10.90.0.0/16\": cannot change once the cluster is applied; it is 10.80.0.0/16 (keep it: AWS cannot change the range of a VPC; create another cluster and move the workloads)\n",
		{"  role: ControlPlane", "  role: ControlPlan"}:                                           "error: instancegroup/control-plane: spec.role \"ControlPlan\": is not one of ControlPlane, Worker, Bastion (did you mean ControlPlane?)\n",
		{"kind: InstanceGroup\nmetadata:\n  labels:", "kind: InstnceGroup\nmetadata:\n  labels:"}: "error: document 2: kind \"InstnceGroup\": is not a known kind (did you mean InstanceGroup?)\n",
	} {
		t.Run(edit[1], func(t *testing.T) {
			if !strings.Contains(text, edit[0]) {
				t.Fatalf("no %q in\n%s", edit[0], text)
			}
			set, fs := manifest.Parse([]byte(strings.Replace(text, edit[0], edit[1], 1)))
			set = manifest.Default(set)
			if diff := cmp.Diff(want, render(manifest.CheckEdit(demo(t), set, fs))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	broken, fs := manifest.Parse([]byte(text))
	broken.Cluster.Spec.Networking.PodCIDR, broken.Groups[1].Spec.MinSize = "10.0.0.0/33", new(-1)
	if got := manifest.Check(broken, fs); len(got) != 2 {
		t.Errorf("two causes: %s", fmt.Sprint(got))
	}
}
