// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"flag"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/asset"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

var update = flag.Bool("update", false, "write golden files")

func cluster() v1alpha1.Cluster {
	c := v1alpha1.Cluster{Metadata: v1alpha1.Metadata{Name: "demo"}}
	c.Spec.KubernetesVersion = "1.36.3"
	c.Spec.CloudProvider.AWS.Region = "us-east-1"
	c.Spec.Networking = v1alpha1.Networking{
		NetworkCIDR: "10.80.0.0/16", PodCIDR: "10.244.0.0/16", ServiceClusterIPRange: "10.96.0.0/16", DNSDomain: "cluster.local",
	}
	return c
}

func groups() []v1alpha1.InstanceGroup {
	cp := v1alpha1.InstanceGroup{Metadata: v1alpha1.Metadata{Name: "control-plane"}}
	cp.Spec = v1alpha1.InstanceGroupSpec{Role: v1alpha1.RoleControlPlane, MinSize: new(3), MaxSize: new(3)}
	cp.Spec.Taints = []string{"node-role.kubernetes.io/control-plane=:NoSchedule"}
	w := v1alpha1.InstanceGroup{Metadata: v1alpha1.Metadata{Name: "nodes"}}
	w.Spec = v1alpha1.InstanceGroupSpec{Role: v1alpha1.RoleWorker, MinSize: new(2), MaxSize: new(2)}
	return []v1alpha1.InstanceGroup{cp, w}
}

func input(group int) node.DocumentInput {
	return node.DocumentInput{
		Cluster: cluster(), Groups: groups(), Group: groups()[group],
		Files: []node.File{
			{Name: "runc", URL: "https://github.com/runc", SHA256: strings.Repeat("b", 64), Form: node.FormBinary},
			{Name: "kubelet", URL: "https://dl.k8s.io/kubelet", SHA256: strings.Repeat("a", 64), Form: node.FormBinary},
		},
		Images:   map[string]string{"pause": "registry.k8s.io/pause:3.10@sha256:" + strings.Repeat("c", 64)},
		Trust:    node.TrustBundle{KubernetesCA: "K\n", EtcdPeerCA: "P\n", EtcdClientCA: "C\n", FrontProxyCA: "F\n"},
		StoreURL: "s3://state/prefix", WorkerRoles: map[string]string{"nodes": "demo-worker"},
	}
}

func TestBuildDocument(t *testing.T) {
	for i, golden := range []string{"testdata/control-plane.json", "testdata/worker.json"} {
		d, err := node.BuildDocument(input(i))
		if err != nil {
			t.Fatal(err)
		}
		body, err := d.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.WriteFile(golden, body, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(body)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", golden, diff)
		}
		back, err := node.ParseDocument(body)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(d, back); diff != "" {
			t.Errorf("parse of print (-want +got):\n%s", diff)
		}
	}
}

func TestParseDocumentSaysEveryFault(t *testing.T) {
	d, err := node.BuildDocument(input(0))
	if err != nil {
		t.Fatal(err)
	}
	d.Files[0].SHA256 = "ABC"
	d.Files[1].Name = "../evil"
	d.Network.PodCIDR = "many"
	d.Slots = d.Slots[:2]
	d.Images["coredns"] = "registry.k8s.io/coredns/coredns:v1.14.2"
	d.Images["flannel"] = "ghcr.io/flannel-io/flannel:v0.28.9@sha256:abc"
	d.Images["kube-proxy"] = "@sha256:" + strings.Repeat("c", 64)
	body, err := d.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	_, err = node.ParseDocument(body)
	if err == nil {
		t.Fatal("want an error")
	}
	for _, want := range []string{"files[0].sha256", "files[1].name", "network.podCIDR", "slots", "images.coredns", "images.flannel", "images.kube-proxy"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error does not name %s:\n%v", want, err)
		}
	}
	if _, err := node.ParseDocument([]byte(`{"surprise":1}`)); err == nil || !strings.Contains(err.Error(), "surprise") {
		t.Errorf("unknown field: %v", err)
	}
}

func FuzzParseDocument(f *testing.F) {
	for _, golden := range []string{"testdata/control-plane.json", "testdata/worker.json"} {
		body, err := os.ReadFile(golden)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		d, err := node.ParseDocument(body)
		if err != nil {
			return
		}
		printed, err := d.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		again, err := node.ParseDocument(printed)
		if err != nil {
			t.Fatalf("print does not parse: %v", err)
		}
		reprinted, err := again.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(printed), string(reprinted)); diff != "" {
			t.Error(diff)
		}
	})
}

// TestDiscoveryInDocument: the documents of clusters with discovery by tags stay what they were.
func TestDiscoveryInDocument(t *testing.T) {
	for discovery, want := range map[string]string{
		"":                         "",
		v1alpha1.EtcdDiscoveryTags: "",
		v1alpha1.EtcdDiscoveryDNS:  v1alpha1.EtcdDiscoveryDNS,
	} {
		in := input(0)
		in.Cluster.Spec.Etcd.Discovery = discovery
		d, err := node.BuildDocument(in)
		if err != nil || d.Etcd.Discovery != want {
			t.Errorf("%q: %+v, %v", discovery, d.Etcd, err)
		}
	}
}

// TestNodeControllerInDocument: the documents of clusters whose nodes agents keep stay what they were.
func TestNodeControllerInDocument(t *testing.T) {
	for value, want := range map[string]string{
		"":                              "",
		v1alpha1.NodeControllerAgent:    "",
		v1alpha1.NodeControllerExternal: v1alpha1.NodeControllerExternal,
	} {
		in := input(0)
		in.Cluster.Spec.CloudProvider.NodeController = value
		d, err := node.BuildDocument(in)
		if err != nil || d.NodeController != want || d.HasExternalNodeController() != (want != "") {
			t.Errorf("%q: %q, %v", value, d.NodeController, err)
		}

		d.NodeController = "external"
		text, err := d.Marshal()
		if err != nil {
			t.Fatal(err)
		}

		if _, err := node.ParseDocument(text); err == nil || !strings.Contains(err.Error(), "nodeController") {
			t.Errorf("a document with another value: %v", err)
		}
	}
}

// TestQuorumLossInDocument: the documents of clusters without automatic recovery stay what they were.
func TestQuorumLossInDocument(t *testing.T) {
	in := input(0)
	in.Cluster.Spec.Etcd.QuorumLoss = v1alpha1.EtcdQuorumLoss{Recovery: v1alpha1.RecoveryManual, After: "10m"}
	for _, want := range []v1alpha1.EtcdQuorumLoss{{}, {Recovery: v1alpha1.RecoveryAutomatic, After: "10m"}} {
		d, err := node.BuildDocument(in)
		if err != nil || d.Etcd.QuorumLoss != want {
			t.Errorf("%+v: %+v, %v", in.Cluster.Spec.Etcd.QuorumLoss, d.Etcd.QuorumLoss, err)
		}
		in.Cluster.Spec.Etcd.QuorumLoss.Recovery = v1alpha1.RecoveryAutomatic
	}
}

// TestNewVolumesInDocument: only if machines may create volumes, the document says how.
func TestNewVolumesInDocument(t *testing.T) {
	in := input(0)
	in.VolumeTags = map[string]string{"team": "x"}
	in.Cluster.Spec.Etcd.Volume = v1alpha1.Volume{Type: "gp3", Size: 20}
	for _, after := range []string{"", "5m"} {
		in.Cluster.Spec.Etcd.RecreateVolumesAfter = after
		if after == "" {
			in.Cluster.Spec.Etcd.RecreateVolumesAfter = v1alpha1.RecreateVolumesNever
		}
		d, err := node.BuildDocument(in)
		got := d.Etcd.NewVolumes
		if err != nil || got.After != after || (got.Volume.Size == 20) != (after != "") || (got.Tags["team"] == "x") != (after != "") {
			t.Errorf("%q: %+v, %v", after, got, err)
		}
		text, err := d.Marshal()
		if err != nil || strings.Contains(string(text), "newVolumes") != (after != "") {
			t.Errorf("%q: %s, %v", after, text, err)
		}
	}
}

// TestEtcdQuotaInDocument: the documents of clusters with volumes for the largest quota stay what they were.
func TestEtcdQuotaInDocument(t *testing.T) {
	for size, want := range map[int]int64{0: 0, 5: v1alpha1.EtcdQuota(5), 18: 0, 20: 0} {
		in := input(0)
		in.Cluster.Spec.Etcd.Volume.Size = size
		d, err := node.BuildDocument(in)
		if err != nil || d.Etcd.QuotaBytes != want {
			t.Errorf("%d GiB: %d, %v", size, d.Etcd.QuotaBytes, err)
		}
		body, err := d.Marshal()
		if err != nil || strings.Contains(string(body), "quotaBytes") != (want != 0) {
			t.Errorf("%d GiB: %v\n%s", size, err, body)
		}
	}
}

// TestFlannelBackendInDocument: the documents of clusters without encryption stay what they were.
func TestFlannelBackendInDocument(t *testing.T) {
	for backend, want := range map[string]string{
		"": "", v1alpha1.FlannelVXLAN: "", v1alpha1.FlannelWireGuard: v1alpha1.FlannelWireGuard,
	} {
		in := input(1)
		in.Cluster.Spec.Networking.Flannel.Backend = backend
		d, err := node.BuildDocument(in)
		if err != nil || d.Network.FlannelBackend != want {
			t.Errorf("%q: %q, %v", backend, d.Network.FlannelBackend, err)
		}
		body, err := d.Marshal()
		if err != nil || strings.Contains(string(body), "flannelBackend") != (want != "") {
			t.Errorf("%q: %v\n%s", backend, err, body)
		}
	}
	in := input(1)
	in.Cluster.Spec.Networking.Flannel.Backend = "IPsec"
	if _, err := node.BuildDocument(in); err == nil || !strings.Contains(err.Error(), "network.flannelBackend") {
		t.Errorf("a document with the backend IPsec: %v", err)
	}
}

// TestImagesOfWarmPools checks that machines of a group with a warm pool have the images of every node, and know the pool from
// them: a field of its own would be unknown to earlier agents.
func TestImagesOfWarmPools(t *testing.T) {
	catalog, err := asset.LoadEmbedded()
	if err != nil {
		t.Fatal(err)
	}
	for i := range catalog.Images {
		catalog.Images[i].Digests = map[string]string{"amd64": "sha256:" + strings.Repeat("0", 64)}
	}
	pool := v1alpha1.WarmPool{MinSize: 1, PoolState: "Stopped"}
	build := func(group int, pool v1alpha1.WarmPool) node.Document {
		t.Helper()
		in := input(group)
		in.Group.Spec.WarmPool = pool
		if _, in.Images, err = node.ResolveAssets(catalog, v1alpha1.ClusterSpec{}, in.Group.Spec, "amd64"); err != nil {
			t.Fatal(err)
		}
		d, err := node.BuildDocument(in)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}

	with, without := build(1, pool), build(1, v1alpha1.WarmPool{})
	if !with.HasWarmPool() || without.HasWarmPool() || build(0, v1alpha1.WarmPool{}).HasWarmPool() {
		t.Errorf("a pool: with %t, without %t", with.HasWarmPool(), without.HasWarmPool())
	}
	want := []string{"flannel", "flannel-cni-plugin", "kube-proxy", "pause"}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(with.Images))); diff != "" {
		t.Errorf("images (-want +got):\n%s", diff)
	}
	with.Images = without.Images
	if diff := cmp.Diff(without, with); diff != "" {
		t.Errorf("more than the images differs (-without +with):\n%s", diff)
	}
}

// TestVPCPods: with the Amazon VPC CNI, a machine has at most as many pods as addresses, its images take the place of flannel's, and only
// the control plane knows the role.
func TestVPCPods(t *testing.T) {
	const role = "arn:aws:iam::123456789012:role/slipway/us-east-1/demo/demo.sa-kube-system.aws-node.us-east-1"
	for name, c := range map[string]struct{ maxPods, capacity, want int }{
		"capacity": {0, 17, 17},
		"less":     {12, 17, 12},
		"more":     {110, 17, 17},
	} {
		for group := range 2 {
			in := input(group)
			in.Cluster.Spec.Networking.CNI = v1alpha1.CNIAmazonVPC
			in.Group.Spec.Kubelet.MaxPods = c.maxPods
			in.PodCapacity = c.capacity
			in.VPCCNIRole = role
			d, err := node.BuildDocument(in)
			if err != nil {
				t.Fatal(err)
			}
			isControlPlane := d.Role == v1alpha1.RoleControlPlane
			if !d.HasVPCPods() || d.Kubelet.MaxPods != c.want || isControlPlane != (d.Network.VPCCNIRole == role) {
				t.Errorf("%s: %s has %d pods and the role %q", name, d.Role, d.Kubelet.MaxPods, d.Network.VPCCNIRole)
			}
		}
	}

	unknown := input(1)
	unknown.Cluster.Spec.Networking.CNI = v1alpha1.CNIAmazonVPC
	if _, err := node.BuildDocument(unknown); err == nil || !strings.Contains(err.Error(), "kubelet.maxPods") {
		t.Errorf("without a known capacity: %v", err)
	}

	cluster := v1alpha1.ClusterSpec{KubernetesVersion: "1.36.3"}
	cluster.Networking.CNI = v1alpha1.CNIAmazonVPC
	pool := v1alpha1.InstanceGroupSpec{Role: v1alpha1.RoleWorker, WarmPool: v1alpha1.WarmPool{PoolState: "Stopped"}}
	want := []string{"amazon-k8s-cni", "amazon-k8s-cni-init", "kube-proxy", "pause"}
	if got := slices.Sorted(maps.Keys(node.ImageVersions(cluster, pool))); !slices.Equal(got, want) {
		t.Errorf("images %q, want %q", got, want)
	}
}

// TestNetworkOfChannel: with Cilium, machines have the range of pods and none of the images of a network; documents of other networks stay
// invalid.
func TestNetworkOfChannel(t *testing.T) {
	in := input(0)
	in.Cluster.Spec.Networking.CNI = v1alpha1.CNICilium
	in.Cluster.Spec.Networking.Flannel.Backend = ""
	d, err := node.BuildDocument(in)
	if err != nil {
		t.Fatal(err)
	}
	if !d.HasNetworkOfChannel() || d.HasVPCPods() || d.HasWarmPool() || d.Network.PodCIDR == "" {
		t.Errorf("the network is %+v", d.Network)
	}
	cluster := v1alpha1.ClusterSpec{KubernetesVersion: "1.36.3"}
	cluster.Networking.CNI = v1alpha1.CNICilium
	for name := range node.ImageVersions(cluster, v1alpha1.InstanceGroupSpec{Role: v1alpha1.RoleControlPlane}) {
		if strings.Contains(name, "flannel") || strings.Contains(name, "cni") {
			t.Errorf("image %s", name)
		}
	}
	in.Cluster.Spec.Networking.CNI = "calico"
	if _, err := node.BuildDocument(in); err == nil || !strings.Contains(err.Error(), "network.cni") {
		t.Errorf("got %v", err)
	}
}
