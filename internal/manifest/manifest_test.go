// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/partition"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

func threeZones() []string { return []string{"us-east-1a", "us-east-1b", "us-east-1c"} }

func demo(tb testing.TB) manifest.Set {
	tb.Helper()
	set, fs := manifest.NewSet("demo", threeZones(), manifest.NewSetOptions{})
	if len(fs) > 0 {
		tb.Fatal(fs)
	}
	return manifest.Default(set)
}

func TestDefaultClusterIsValid(t *testing.T) {
	if fs := manifest.Validate(demo(t)); len(fs) > 0 {
		t.Errorf("the default cluster has findings: %v", fs)
	}
}

func TestExampleIsTheDefaultCluster(t *testing.T) {
	const file = "../../examples/ha.yaml"
	want := string(manifest.EncodeYAML(manifest.DefaultNew(demo(t))))
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("run go test ./internal/manifest -update (-want +got):\n%s", diff)
	}
}

func TestEncodedSetIsParsedBack(t *testing.T) {
	set := demo(t)
	got, fs := manifest.Parse(manifest.EncodeYAML(set))
	if len(fs) > 0 {
		t.Fatal(fs)
	}
	if diff := cmp.Diff(set, got); diff != "" {
		t.Errorf("-printed +parsed:\n%s", diff)
	}
	if diff := cmp.Diff(got, manifest.Default(got)); diff != "" {
		t.Errorf("defaulting twice changes something:\n%s", diff)
	}
}

// TestRandomClusters checks that the result of NewSet with random valid options is valid, that
// Default does not change it again, and that it can be encoded and parsed.
func TestRandomClusters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zones := threeZones()[:rapid.IntRange(1, 3).Draw(t, "zones")]
		set, fs := manifest.NewSet("demo", zones, manifest.NewSetOptions{
			ControlPlaneCount: rapid.SampledFrom([]int{0, 1, 3, 5}).Draw(t, "control planes"),
			WorkerCount:       rapid.IntRange(0, 100).Draw(t, "workers"),
			NodeSize:          rapid.SampledFrom([]string{"", "t3.large", "m6g.large", "c5.xlarge"}).Draw(t, "size"),
			NetworkCIDR:       fmt.Sprintf("10.80.0.0/%d", rapid.IntRange(16, 22).Draw(t, "bits")),
			NATGateways:       rapid.SampledFrom([]string{"", "PerZone", "Single"}).Draw(t, "nat"),
		})
		set = manifest.Default(set)
		if err := append(fs, manifest.Validate(set)...).Err(); err != nil {
			t.Fatal(err)
		}
		got, fs := manifest.Parse(manifest.EncodeYAML(set))
		if diff := cmp.Diff(set, manifest.Default(got)); diff != "" || len(fs) > 0 {
			t.Fatal(diff, fs)
		}
	})
}

func render(fs diag.Findings) string {
	var b strings.Builder
	for _, f := range fs {
		fmt.Fprintf(&b, "%s: %s\n", f.Severity, f)
	}
	return b.String()
}

func TestParseFindsEverythingAtOnce(t *testing.T) {
	set, fs := manifest.Parse([]byte(`# a comment
---
apiVersion: slipway.dev/v1alpha1
kind: Cluster
metadata: {name: demo, labels: {a: 1}}
spec:
  kubernetesVersion: 1.36
  networking:
    podCDIR: 10.0.0.0/8
    subnets:
    - name: a
      zone: us-east-1a
      typ: Private
    - just-a-name
  etcd:
    volume: {size: "20", iops: 3000.5}
  tags: [a]
---
apiVersion: slipway.dev/v1alpha1
kind: InstanceGroup
metadata: {name: workers}
spec:
  role: Worker
  minSize: null
  taints: a=b:NoSchedule
---
apiVersion: slipway.dev/v2
kind: Clutser
metadata: {name: x}
---
apiVersion: slipway.dev/v1alpha1
kind: Cluster
metadata: {name: second}
---
- a list
---
kind: [
---
apiVersion: slipway.dev/v1alpha1
kind: Cluster
kind: Cluster
`))
	want := `error: cluster/demo: metadata.labels[a] "1": must be a string, not an integer (write it in quotes)
error: cluster/demo: spec.etcd.volume.iops "3000.5": must be an integer, not a fractional or too large number (write a whole number without quotes)
error: cluster/demo: spec.etcd.volume.size "20": must be an integer, not a string (write a whole number without quotes)
error: cluster/demo: spec.kubernetesVersion "1.36": must be a string, not a fractional or too large number (write it in quotes)
error: cluster/demo: spec.networking.podCDIR: is not a known field (did you mean podCIDR?)
error: cluster/demo: spec.networking.subnets[0].typ: is not a known field (did you mean type?)
error: cluster/demo: spec.networking.subnets[1] "just-a-name": must be a mapping, not a string (write indented fields below it)
error: cluster/demo: spec.tags "[\"a\"]": must be a mapping, not a list (write indented fields below it)
error: instancegroup/workers: spec.taints "a=b:NoSchedule": must be a list, not a string (write one item per line, each with a dash)
error: document 3: apiVersion "slipway.dev/v2": is not supported (write apiVersion: slipway.dev/v1alpha1)
error: document 3: kind "Clutser": is not a known kind (did you mean Cluster?)
error: cluster/second: is a second Cluster (keep one Cluster; move the others to files of their own)
error: document 5: is not a mapping of fields (start it with apiVersion and kind)
`
	got := render(fs)
	if !strings.HasPrefix(got, want) {
		t.Errorf("(-want +got):\n%s", cmp.Diff(want, got))
	}
	for _, broken := range []string{
		"document 6: has no value where one is expected", "document 7: has the field kind twice; first in line 40",
	} {
		if !strings.Contains(got, broken) {
			t.Errorf("no finding has %q in:\n%s", broken, got)
		}
	}
	if set.Cluster.Metadata.Name != "demo" || len(set.Groups) != 1 {
		t.Errorf("the valid documents are missing: %+v", set)
	}
}

func TestParseLimitsItsInput(t *testing.T) {
	if _, fs := manifest.Parse(bytes.Repeat([]byte("# x\n"), 1<<19)); fs.Err() == nil {
		t.Error("a manifest of 2 MiB was accepted")
	}
	if _, fs := manifest.Parse([]byte("a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b]\n" +
		"d: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e]\ng: [*f,*f,*f,*f,*f,*f]\n")); fs.Err() == nil {
		t.Error("nested YAML aliases were accepted")
	}
}

func TestValidate(t *testing.T) {
	cluster := func(f func(*v1alpha1.ClusterSpec)) func(*manifest.Set) {
		return func(s *manifest.Set) { f(&s.Cluster.Spec) }
	}
	group := func(i int, f func(*v1alpha1.InstanceGroupSpec)) func(*manifest.Set) {
		return func(s *manifest.Set) { f(&s.Groups[i].Spec) }
	}
	const controlPlane, workers = 0, 1
	for want, change := range map[string]func(*manifest.Set){
		`cluster/Demo_1: metadata.name "Demo_1": is not a DNS label`:                             func(s *manifest.Set) { s.Cluster.Metadata.Name = "Demo_1" },
		`metadata.name "` + strings.Repeat("a", 41) + `": is not a DNS label`:                    func(s *manifest.Set) { s.Groups[1].Metadata.Name = strings.Repeat("a", 41) },
		`spec.kubernetesVersion "v1.36.3": is not a valid Kubernetes version`:                    cluster(func(c *v1alpha1.ClusterSpec) { c.KubernetesVersion = "v1.36.3" }),
		`spec.cloudProvider.aws.region "mars": is not an AWS region`:                             cluster(func(c *v1alpha1.ClusterSpec) { c.CloudProvider.AWS.Region = "mars" }),
		`spec.networking.podCIDR "10.80.0.0/16": overlaps spec.networking.network`:               cluster(func(c *v1alpha1.ClusterSpec) { c.Networking.PodCIDR = "10.80.0.0/16" }),
		`serviceClusterIPRange "10.244.128.0/20": overlaps spec.networking.podCIDR`:              cluster(func(c *v1alpha1.ClusterSpec) { c.Networking.ServiceClusterIPRange = "10.244.128.0/20" }),
		`spec.networking.podCIDR "10.244.1.0/16": has host bits set`:                             cluster(func(c *v1alpha1.ClusterSpec) { c.Networking.PodCIDR = "10.244.1.0/16" }),
		`spec.networking.podCIDR "fd00::/64": is not a valid IPv4 CIDR`:                          cluster(func(c *v1alpha1.ClusterSpec) { c.Networking.PodCIDR = "fd00::/64" }),
		`spec.networking.networkCIDR "10.0.0.0/8": is too large`:                                 cluster(func(c *v1alpha1.ClusterSpec) { c.Networking.NetworkCIDR = "10.0.0.0/8" }),
		`spec.networking.podCIDR "10.244.0.0/24": has a /24 for 1 machines`:                      cluster(func(c *v1alpha1.ClusterSpec) { c.Networking.PodCIDR = "10.244.0.0/24" }),
		`subnets[1].cidr "10.80.0.0/25": overlaps spec.networking.subnets[0].cidr`:               cluster(func(c *v1alpha1.ClusterSpec) { c.Networking.Subnets[1].CIDR = "10.80.0.0/25" }),
		`subnets[1].cidr "10.81.0.0/24": is not within networkCIDR`:                              cluster(func(c *v1alpha1.ClusterSpec) { c.Networking.Subnets[1].CIDR = "10.81.0.0/24" }),
		`subnets[1].zone "us-east-1a": already has a Public subnet: subnets[0]`:                  cluster(func(c *v1alpha1.ClusterSpec) { c.Networking.Subnets[1].Zone = "us-east-1a" }),
		`subnets[1].zone "eu-west-1a": is not in the cluster's region us-east-1`:                 cluster(func(c *v1alpha1.ClusterSpec) { c.Networking.Subnets[1].Zone = "eu-west-1a" }),
		`subnets[4].zone "us-east-1b": has a Private subnet, but no`:                             cluster(func(c *v1alpha1.ClusterSpec) { c.Networking.Subnets[1].Zone = "us-east-1d" }),
		`subnets[1].name "public-a": is also the name of subnets[0]`:                             cluster(func(c *v1alpha1.ClusterSpec) { c.Networking.Subnets[1].Name = "public-a" }),
		`subnets[0].type "public": is not one of Private, Public, Utility (did`:                  cluster(func(c *v1alpha1.ClusterSpec) { c.Networking.Subnets[0].Type = "public" }),
		`spec.networking.subnets: must not be empty`:                                             cluster(func(c *v1alpha1.ClusterSpec) { c.Networking.Subnets = nil }),
		`spec.networking.cni "weave": is not one of flannel, amazon-vpc`:                         cluster(func(c *v1alpha1.ClusterSpec) { c.Networking.CNI = "weave" }),
		`spec.networking.cni "calico": is not supported: no list of the digests`:                 cluster(func(c *v1alpha1.ClusterSpec) { c.Networking.CNI = "calico" }),
		`spec.networking.flannel.backend "VXLAN": has no effect with spec.networking.cni cilium`: cluster(func(c *v1alpha1.ClusterSpec) { c.Networking.CNI = "cilium" }),
		`spec.networking.natGateways "Perzone": is not one of PerZone, Single, None (`:           cluster(func(c *v1alpha1.ClusterSpec) { c.Networking.NATGateways = "Perzone" }),
		`spec.networking.dnsDomain "cluster_local": is not a DNS domain`:                         cluster(func(c *v1alpha1.ClusterSpec) { c.Networking.DNSDomain = "cluster_local" }),
		`spec.api.access[1] "10.1.2.3/8": has host bits set (u`:                                  cluster(func(c *v1alpha1.ClusterSpec) { c.API.Access = []string{"10.0.0.0/8", "10.1.2.3/8"} }),
		`spec.api.access "0.0.0.0/0": has no effect with an Internal load balancer`:              cluster(func(c *v1alpha1.ClusterSpec) { c.API.LoadBalancer.Type = "Internal" }),
		`spec.api.additionalSANs[0] "a b": is neither a DNS name nor an address`:                 cluster(func(c *v1alpha1.ClusterSpec) { c.API.AdditionalSANs = []string{"a b"} }),
		`spec.api.users[0].arn "arn:aws:iam::123456789012:root": is not the ARN of an IAM role`:  cluster(oneUser("arn:aws:iam::123456789012:root", "dev")),
		`spec.api.users[0].arn "arn:aws:sts::123456789012:assumed-role/x/y": is not the ARN`:     cluster(oneUser("arn:aws:sts::123456789012:assumed-role/x/y", "dev")),
		`spec.api.users[0].arn "arn:aws:iam::123456789012:role/*": is not the ARN of an IAM`:     cluster(oneUser("arn:aws:iam::123456789012:role/*", "dev")),
		`spec.api.users[0].groups: is required (use slipway:cluster-admins`:                      cluster(oneUser("arn:aws:iam::123456789012:role/ops")),
		`spec.api.users[0].groups[1] "system:masters": is not a group for users`:                 cluster(oneUser("arn:aws:iam::123456789012:role/ops", "slipway:cluster-admins", "system:masters")),
		`spec.api.users[0].groups[0] "slipway:instance:i-1": is not a group for`:                 cluster(oneUser("arn:aws:iam::123456789012:role/ops", "slipway:instance:i-1")),
		`spec.api.users[1].arn "arn:aws:iam::123456789012:role/b/ops": is the same role or user as spec`: cluster(func(c *v1alpha1.ClusterSpec) {
			oneUser("arn:aws:iam::123456789012:role/a/ops", "dev")(c)
			c.API.Users = append(c.API.Users, v1alpha1.APIUser{ARN: "arn:aws:iam::123456789012:role/b/ops", Groups: []string{"dev"}})
		}),
		`spec.configStore.base "file:///x": is not a valid s3:// URL`:                    cluster(func(c *v1alpha1.ClusterSpec) { c.ConfigStore.Base = "file:///x" }),
		`spec.assets.fileRepository "https://u:xxxxx@h": must be an http or https URL w`: cluster(func(c *v1alpha1.ClusterSpec) { c.Assets.FileRepository = "https://u:secret@h" }),
		`spec.assets.containerRegistry "https://r": is not a valid registry address`:     cluster(func(c *v1alpha1.ClusterSpec) { c.Assets.ContainerRegistry = "https://r" }),
		`spec.assets.containerRegistry "123456789012.dkr.ecr.us-east-1.amazonaws.com": has no path`: cluster(func(c *v1alpha1.ClusterSpec) {
			c.Assets.ContainerRegistry = "123456789012.dkr.ecr.us-east-1.amazonaws.com"
		}),
		`spec.assets.containerRegistry "123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn/m": is in another partition of AWS`: cluster(func(c *v1alpha1.ClusterSpec) {
			c.Assets.ContainerRegistry = "123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn/m"
		}),
		`spec.assets.containerRegistry "123456789012.dkr.ecr.eu-west-1.amazonaws.com/m": is in another region than us-east-1`: cluster(func(c *v1alpha1.ClusterSpec) {
			c.Assets.ContainerRegistry = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/m"
			c.Networking.NATGateways = "None"
			c.Networking.VPCEndpoints = []string{"s3", "ec2", "sts", "kms", "autoscaling"}
		}),
		`spec.tags[team] "a, b": has a character that AWS does not allow`:                                 cluster(func(c *v1alpha1.ClusterSpec) { c.Tags = map[string]string{"team": "a, b"} }),
		`spec.tags[a;b]: has a character that AWS does not allow`:                                         cluster(func(c *v1alpha1.ClusterSpec) { c.Tags = map[string]string{"a;b": ""} }),
		`spec.tags[team]: differs from Team only in the case of its letters`:                              cluster(func(c *v1alpha1.ClusterSpec) { c.Tags = map[string]string{"team": "a", "Team": "b"} }),
		`spec.tags[name]: differs from Name only in the case of its letters`:                              cluster(func(c *v1alpha1.ClusterSpec) { c.Tags = map[string]string{"name": "a"} }),
		`spec.tags[slipway.dev/x]: is reserved: Slipway`:                                                  cluster(func(c *v1alpha1.ClusterSpec) { c.Tags = map[string]string{"slipway.dev/x": "1"} }),
		`spec.etcd.volume.type "gp2": is not one of gp3, io1, io2`:                                        cluster(func(c *v1alpha1.ClusterSpec) { c.Etcd.Volume.Type = "gp2" }),
		`spec.etcd.volume.iops "20000": is not a valid number of IOPS for gp3 with 20 GiB (use 3000 to 1`: cluster(func(c *v1alpha1.ClusterSpec) { c.Etcd.Volume.IOPS = 20000 }),
		`spec.etcd.volume.throughput "1000": is not a valid throughput for gp3 with 3000 IOPS (use`:       cluster(func(c *v1alpha1.ClusterSpec) { c.Etcd.Volume.Throughput = 1000 }),
		`spec.etcd.volume.throughput "125": is for gp3 only`: cluster(func(c *v1alpha1.ClusterSpec) {
			c.Etcd.Volume = v1alpha1.Volume{Type: "io2", Size: 20, IOPS: 3000, Throughput: 125}
		}),
		`spec.etcd.electionTimeoutMS "400": must be at least five heartbeats`:                    cluster(func(c *v1alpha1.ClusterSpec) { c.Etcd.ElectionTimeoutMS = 400 }),
		`instance groups: 0 have role ControlPlane`:                                              func(s *manifest.Set) { s.Groups = s.Groups[workers:] },
		`instance groups: 2 have role ControlPlane`:                                              group(workers, func(g *v1alpha1.InstanceGroupSpec) { g.Role, g.MinSize, g.MaxSize = "ControlPlane", new(1), new(1) }),
		`instancegroup/control-plane: metadata.name "control-plane": is also the name of`:        func(s *manifest.Set) { s.Groups[1].Metadata.Name = "control-plane" },
		`instancegroup/control-plane-c: metadata.name "control-plane-c": is the name`:            func(s *manifest.Set) { s.Groups[1].Metadata.Name = "control-plane-c" },
		`subnets[3].name "public": is the name of the public route table`:                        cluster(func(c *v1alpha1.ClusterSpec) { c.Networking.Subnets[3].Name = "public" }),
		`instancegroup/workers: metadata.labels[slipway.dev/cluster] "prod": is not`:             func(s *manifest.Set) { s.Groups[1].Metadata.Labels = map[string]string{v1alpha1.ClusterLabel: "prod"} },
		`instancegroup/control-plane: spec.minSize "4": is not a valid number of control-p`:      group(controlPlane, func(g *v1alpha1.InstanceGroupSpec) { g.MinSize, g.MaxSize = new(4), new(4) }),
		`instancegroup/control-plane: spec.maxSize "5": must equal minSize 3 in a control`:       group(controlPlane, func(g *v1alpha1.InstanceGroupSpec) { g.MaxSize = new(5) }),
		`instancegroup/control-plane: spec.subnets "private-a": are in too few zones`:            group(controlPlane, func(g *v1alpha1.InstanceGroupSpec) { g.Subnets = []string{"private-a"} }),
		`instancegroup/workers: spec.maxSize "1": is less than minSize 2`:                        group(workers, func(g *v1alpha1.InstanceGroupSpec) { g.MaxSize = new(1) }),
		`instancegroup/workers: spec.minSize "-1": is out of range`:                              group(workers, func(g *v1alpha1.InstanceGroupSpec) { g.MinSize = new(-1) }),
		`instancegroup/workers: spec.role "Node": is not one of ControlPlane, Worker`:            group(workers, func(g *v1alpha1.InstanceGroupSpec) { g.Role = "Node" }),
		`spec.machineType "t3.larg": is not a known EC2 instance type (did yo`:                   group(workers, func(g *v1alpha1.InstanceGroupSpec) { g.MachineType = "t3.larg" }),
		`spec.machineType "t3.micro": has 1024 MiB of memory, too little`:                        group(controlPlane, func(g *v1alpha1.InstanceGroupSpec) { g.MachineType = "t3.micro" }),
		`spec.image "ssm:/aws/service/debian/release/12/latest/arm64": does not match t3.`:       group(workers, func(g *v1alpha1.InstanceGroupSpec) { g.Image = "ssm:/aws/service/debian/release/12/latest/arm64" }),
		`spec.image "debian": is not a distribution, an SSM`:                                     group(workers, func(g *v1alpha1.InstanceGroupSpec) { g.Image = "debian" }),
		`spec.subnets[0] "private-x": is not a subnet of the cluster (use one of pri`:            group(workers, func(g *v1alpha1.InstanceGroupSpec) { g.Subnets = []string{"private-x"} }),
		`spec.networking.networkID "vpc-x": is not a valid VPC ID`:                               cluster(func(c *v1alpha1.ClusterSpec) { c.Networking.NetworkID = "vpc-x" }),
		`spec.networking.internetGatewayID: is required: Slipway creates subnet public-a`:        cluster(func(c *v1alpha1.ClusterSpec) { c.Networking.NetworkID = "vpc-0123456789abcdef0" }),
		`spec.networking.internetGatewayID "igw-0123456789abcdef0": is for an existing VPC only`: cluster(func(c *v1alpha1.ClusterSpec) { c.Networking.InternetGatewayID = "igw-0123456789abcdef0" }),
		`subnets[0] "public-a": refers to a resource of an existing VPC`:                         cluster(func(c *v1alpha1.ClusterSpec) { c.Networking.Subnets[0].ID = "subnet-0123456789abcdef0" }),
		`subnets[0].egress "External": is for Private subnets that Slipway creates`:              cluster(func(c *v1alpha1.ClusterSpec) { c.Networking.Subnets[0].Egress = "External" }),
		`subnets[3].egress "tgw-1": is not a valid egress`:                                       cluster(func(c *v1alpha1.ClusterSpec) { c.Networking.Subnets[3].Egress = "tgw-1" }),
		`vpcEndpoints[0] "s4": is not one of`:                                                    cluster(func(c *v1alpha1.ClusterSpec) { c.Networking.VPCEndpoints = []string{"s4"} }),
		`spec.networking.vpcEndpoints "s3, ec2, sts": does not include kms`: cluster(func(c *v1alpha1.ClusterSpec) {
			c.Networking.NATGateways, c.Networking.VPCEndpoints = "None", []string{"s3", "ec2", "sts"}
		}),
		`spec.api.loadBalancer.type "ElasticIP": requires exactly one control-plane machine, not 3`: cluster(func(c *v1alpha1.ClusterSpec) { c.API.LoadBalancer.Type = "ElasticIP" }),
		`spec.api.loadBalancer.type "ElasticIP": requires the control plane in Public subnets: private-a`: func(s *manifest.Set) {
			s.Cluster.Spec.API.LoadBalancer.Type = "ElasticIP"
			s.Groups[0].Spec.MinSize, s.Groups[0].Spec.MaxSize, s.Groups[0].Spec.Subnets = new(1), new(1), []string{"private-a"}
		},
		`spec.api.loadBalancer.type "Public": needs a subnet with a route to the internet`: cluster(func(c *v1alpha1.ClusterSpec) {
			c.Networking.NATGateways, c.Networking.Subnets = "None", c.Networking.Subnets[3:]
		}),
		`spec.subnets[0] "public-a": is a Utility subnet`: func(s *manifest.Set) {
			s.Cluster.Spec.Networking.Subnets[0].Type = "Utility"
			s.Groups[1].Spec.Subnets = []string{"public-a"}
		},
		`spec.subnets[1] "private-a": duplicates subnets[0]`:                            group(workers, func(g *v1alpha1.InstanceGroupSpec) { g.Subnets = []string{"private-a", "private-a"} }),
		`spec.rootVolume.size "4": is smaller than the image`:                           group(workers, func(g *v1alpha1.InstanceGroupSpec) { g.RootVolume.Size = 4 }),
		`spec.taints[0] "a": has no taint effect`:                                       group(workers, func(g *v1alpha1.InstanceGroupSpec) { g.Taints = []string{"a"} }),
		`spec.taints[0] "-a=b:NoExecute": has an invalid key`:                           group(workers, func(g *v1alpha1.InstanceGroupSpec) { g.Taints = []string{"-a=b:NoExecute"} }),
		`spec.taints[0] "Never": is not one of NoSchedule`:                              group(workers, func(g *v1alpha1.InstanceGroupSpec) { g.Taints = []string{"a=b:Never"} }),
		`spec.nodeLabels[kubernetes.io/role]: is a label that Kubernetes does not al`:   group(workers, func(g *v1alpha1.InstanceGroupSpec) { g.NodeLabels = map[string]string{"kubernetes.io/role": "x"} }),
		`spec.nodeLabels[a] "b c": is not a valid label value`:                          group(workers, func(g *v1alpha1.InstanceGroupSpec) { g.NodeLabels = map[string]string{"a": "b c"} }),
		`httpPutResponseHopLimit "2": would let pods use the role of the control plane`: group(controlPlane, func(g *v1alpha1.InstanceGroupSpec) { g.InstanceMetadata.HTTPPutResponseHopLimit = 2 }),
		`spec.instanceMetadata.allowedCgroups[1] "/x": is not a valid path of a control group`: group(workers, func(g *v1alpha1.InstanceGroupSpec) {
			g.InstanceMetadata.AllowedCgroups = []string{`system.slice/a\x2db.service`, "/x"}
		}),
		`spec.instanceMetadata.allowedCgroups[0] "a/../kubepods": is not a valid path`:  group(workers, func(g *v1alpha1.InstanceGroupSpec) { g.InstanceMetadata.AllowedCgroups = []string{"a/../kubepods"} }),
		"spec.instanceMetadata.allowedCgroups[0] \"a\\\" accept\": is not a valid path": group(workers, func(g *v1alpha1.InstanceGroupSpec) { g.InstanceMetadata.AllowedCgroups = []string{`a" accept`} }),
		`spec.instanceMetadata.httpPutResponseHopLimit "65": is out of range`:           group(workers, func(g *v1alpha1.InstanceGroupSpec) { g.InstanceMetadata.HTTPPutResponseHopLimit = 65 }),
	} {
		set := demo(t)
		change(&set)
		if got := render(manifest.Validate(set)); !strings.Contains(got, want) {
			t.Errorf("no finding has\n  %s\nin:\n%s", want, got)
		}
	}
}

func TestValidLabelsAndTaints(t *testing.T) {
	set := demo(t)
	set.Groups[1].Spec.NodeLabels = map[string]string{"node.kubernetes.io/pool": "a", "example.com/x": "", "gpu": "yes"}
	set.Groups[1].Spec.Taints = []string{"gpu:NoSchedule", "example.com/x=y:PreferNoSchedule"}
	if fs := manifest.Validate(set); len(fs) > 0 {
		t.Error(fs)
	}
}

func TestDockerRangeIsAWarning(t *testing.T) {
	set, _ := manifest.NewSet("demo", threeZones(), manifest.NewSetOptions{NetworkCIDR: "172.17.0.0/16"})
	fs := manifest.Validate(manifest.Default(set))
	if fs.Err() != nil || !strings.Contains(render(fs), "overlaps Docker's 172.17.0.0/16") {
		t.Errorf("got %s", render(fs))
	}
}

func TestNewSetReportsZones(t *testing.T) {
	_, fs := manifest.NewSet("demo", []string{"us-east-1a", "us-east-1a", "nowhere"}, manifest.NewSetOptions{})
	want := "error: --zones[1] \"us-east-1a\": is listed twice (list each zone once)\n" +
		"error: --zones[2] \"nowhere\": is not an availability zone (write it as us-east-1a)\n"
	if diff := cmp.Diff(want, render(fs)); diff != "" {
		t.Error(diff)
	}
}

func TestSubnetRangesSkipUsedBlocks(t *testing.T) {
	set := demo(t)
	for i := range set.Cluster.Spec.Networking.Subnets {
		set.Cluster.Spec.Networking.Subnets[i].CIDR = ""
	}
	set.Cluster.Spec.Networking.Subnets[3].CIDR = "10.80.0.0/20"
	var got []string
	for _, s := range manifest.Default(set).Cluster.Spec.Networking.Subnets {
		got = append(got, s.CIDR)
	}
	want := []string{"10.80.16.0/24", "10.80.17.0/24", "10.80.18.0/24", "10.80.0.0/20", "10.80.32.0/20", "10.80.48.0/20"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestDiff(t *testing.T) {
	before, after := demo(t), demo(t)
	after.Cluster.Spec.API.Access = []string{"10.0.0.0/8", "192.168.0.0/16"}
	after.Cluster.Spec.Tags = map[string]string{"team": "a"}
	after.Groups[1].Spec.MinSize = new(4)
	after.Groups = append(after.Groups[1:], v1alpha1.InstanceGroup{Kind: "InstanceGroup", Metadata: v1alpha1.Metadata{Name: "gpu"}})
	want := []string{
		"~ cluster/demo: spec.api.access[0] 0.0.0.0/0 → 10.0.0.0/8",
		"+ cluster/demo: spec.api.access[1] 192.168.0.0/16",
		"+ cluster/demo: spec.tags {\"team\":\"a\"}",
		"- instancegroup/control-plane",
		"+ instancegroup/gpu",
		"~ instancegroup/workers: spec.minSize 2 → 4",
	}
	if diff := cmp.Diff(want, manifest.Diff(before, after)); diff != "" {
		t.Error(diff)
	}
	if lines := manifest.Diff(before, before); len(lines) > 0 {
		t.Errorf("a set differs from itself: %v", lines)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(manifest.EncodeYAML(demo(f)))
	f.Add([]byte("apiVersion: slipway.dev/v1alpha1\nkind: Cluster\nspec: {networking: {subnets: [{}, null, 1]}}\n---\nkind: x"))
	f.Add([]byte("{}\n---\n[]\n---\n1"))
	f.Fuzz(func(t *testing.T, text []byte) {
		set, fs := manifest.Parse(text)
		if fs.Err() != nil {
			_ = manifest.Validate(manifest.Default(set)) // must not panic for a set with findings
			return
		}
		printed := manifest.EncodeYAML(set)
		again, fs := manifest.Parse(printed)
		if fs.Err() != nil {
			t.Fatalf("the encoded set is rejected: %v\n%s", fs, printed)
		}
		if diff := cmp.Diff(string(printed), string(manifest.EncodeYAML(again))); diff != "" {
			t.Fatal(diff)
		}
		_ = manifest.Validate(manifest.Default(again))
	})
}

// oneUser gives the API one user.
func oneUser(arn string, groups ...string) func(*v1alpha1.ClusterSpec) {
	return func(c *v1alpha1.ClusterSpec) { c.API.Users = []v1alpha1.APIUser{{ARN: arn, Groups: groups}} }
}

// TestUsersOfAllPartitions: each partition of AWS has users of the API.
func TestUsersOfAllPartitions(t *testing.T) {
	check := func(arn string) error {
		set := demo(t)
		oneUser(arn, "dev")(&set.Cluster.Spec)

		return manifest.Validate(set).Err()
	}

	for _, p := range partition.All() {
		if err := check("arn:" + p.Name + ":iam::123456789012:role/path/ops"); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
	}

	if check("arn:aws-x:iam::123456789012:role/ops") == nil {
		t.Error("an unknown partition is not refused")
	}
}
