// SPDX-License-Identifier: Apache-2.0

package addon_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/machine/addon"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

func values() addon.Values {
	return addon.Values{
		PodCIDR: "10.244.0.0/16", ServiceCIDR: "10.96.0.0/16", DNSIP: "10.96.0.10", DNSDomain: "cluster.local", AdminGroup: "slipway:cluster-admins",
		Images: map[string]string{"kube-proxy": "k:1", "coredns": "c:1", "flannel": "f:1", "flannel-cni-plugin": "p:1"},
	}
}

// vpcValues are those of a cluster with the Amazon VPC CNI.
func vpcValues() addon.Values {
	v := values()
	v.VPCPods = true
	v.Cluster = "demo"
	v.Region = "us-east-1"
	v.VPCCNIRole = "arn:aws:iam::123456789012:role/slipway/us-east-1/demo/x"
	v.PodCIDR = "10.80.0.0/16"
	v.Images = map[string]string{"kube-proxy": "k:1", "coredns": "c:1", "amazon-k8s-cni": "a:1", "amazon-k8s-cni-init": "i:1"}

	return v
}

// TestVPCCNI: it takes the place of flannel and of its admission policy. Its daemon has its own role, reads metadata from the agent alone,
// and names links of pods as the guard of the join endpoint expects it.
func TestVPCCNI(t *testing.T) {
	for endpoint, want := range map[string]string{"": `""`, "http://198.18.0.1": `"http://198.18.0.1"`} {
		v := vpcValues()
		v.AWSEndpoint = endpoint
		objects, err := addon.Render(v)
		if err != nil {
			t.Fatal(err)
		}

		daemon := ""
		for _, o := range objects {
			if strings.Contains(o.Path, "flannel") {
				t.Errorf("%s is rendered", o.Path)
			}
			if strings.HasSuffix(o.Path, "/daemonsets/aws-node") {
				daemon = string(o.Body)
			}
		}

		for _, variable := range []string{
			`{"name":"AWS_ROLE_ARN","value":"arn:aws:iam::123456789012:role/slipway/us-east-1/demo/x"}`,
			`{"name":"AWS_EC2_METADATA_SERVICE_ENDPOINT","value":"http://127.0.0.1:3989"}`,
			`{"name":"CLUSTER_NAME","value":"demo"}`,
			`{"name":"AWS_ENDPOINT_URL","value":` + want + `}`,
			`{"name":"AWS_VPC_K8S_CNI_VETHPREFIX","value":"` + strings.TrimSuffix(addon.VPCPodLinks, "*") + `"}`,
		} {
			if !strings.Contains(daemon, variable) {
				t.Errorf("the DaemonSet has no %s: %s", variable, daemon)
			}
		}
	}

	objects, err := addon.Render(values())
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if strings.Contains(o.Path, "aws-node") {
			t.Errorf("%s is rendered with flannel", o.Path)
		}
	}
}

func TestRender(t *testing.T) {
	objects, err := addon.Render(values())
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, o := range objects {
		if seen[o.Path] {
			t.Errorf("%s is rendered twice", o.Path)
		}
		seen[o.Path] = true
		if bytes.Contains(o.Body, []byte("{{")) || bytes.Contains(o.Body, []byte("no value")) {
			t.Errorf("%s is not rendered: %s", o.Path, o.Body)
		}
	}
	for _, want := range []string{
		"/apis/apps/v1/namespaces/kube-system/daemonsets/flannel", "/apis/apps/v1/namespaces/kube-system/daemonsets/kube-proxy",
		"/apis/apps/v1/namespaces/kube-system/deployments/coredns", "/api/v1/namespaces/kube-system/services/kube-dns",
		"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/slipway:cluster-admins",
		"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/slipway-keep-kubernetes-endpoints",
		"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/slipway-keep-kubernetes-endpointslice",
	} {
		if !seen[want] {
			t.Errorf("%s is missing", want)
		}
	}
	again, err := addon.Render(values())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.EqualFunc(objects, again, func(a, b addon.Object) bool { return a.Path == b.Path && bytes.Equal(a.Body, b.Body) }) {
		t.Error("the same values give other objects")
	}
}

// TestKubeProxyHasUpstreamDefaults: kube-proxy keeps upstream's limits and timeouts of the connection table. Without them
// the kernel's own hold: connections that are half closed stay for a minute only, idle ones for five days. A load balancer
// of a Service checks the health address of each node.
func TestKubeProxyHasUpstreamDefaults(t *testing.T) {
	objects, err := addon.Render(values())
	if err != nil {
		t.Fatal(err)
	}
	var conf struct {
		Data map[string]string `json:"data"`
	}
	for _, o := range objects {
		if strings.HasSuffix(o.Path, "/namespaces/kube-system/configmaps/kube-proxy") {
			if err := json.Unmarshal(o.Body, &conf); err != nil {
				t.Fatal(err)
			}
		}
	}
	text := conf.Data["config.yaml"]
	if !strings.Contains(text, "healthzBindAddress: 0.0.0.0:10256\n") || strings.Contains(text, "conntrack") {
		t.Errorf("configuration of kube-proxy:\n%s", text)
	}
}

// TestKubeProxyStartsWithoutRulesOfOtherVersions guards against a finding of test/e2e's TestUpgrade: after 1.35's rules,
// kube-proxy 1.36 programmed no Services.
func TestKubeProxyStartsWithoutRulesOfOtherVersions(t *testing.T) {
	objects, err := addon.Render(values())
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if !strings.HasSuffix(o.Path, "/daemonsets/kube-proxy") {
			continue
		}
		for _, table := range []string{"delete table ip kube-proxy", "delete table ip6 kube-proxy"} {
			if !bytes.Contains(o.Body, []byte(table)) {
				t.Errorf("the DaemonSet does not %s before kube-proxy starts", table)
			}
		}
	}
}

func TestRenderNeedsEveryImage(t *testing.T) {
	v := values()
	delete(v.Images, "coredns")
	if _, err := addon.Render(v); err == nil || !strings.Contains(err.Error(), "coredns") {
		t.Errorf("want an error that names the image, got %v", err)
	}
}

// TestCorefile checks a requirement of CoreDNS's parser: the opening brace of a block ends its
// line.
func TestCorefile(t *testing.T) {
	objects, err := addon.Render(values())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(objects, func(o addon.Object) bool { return strings.HasSuffix(o.Path, "/configmaps/coredns") })
	var config struct {
		Data map[string]string `json:"data"`
	}
	if err := json.Unmarshal(objects[i].Body, &config); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(config.Data["Corefile"]) {
		if at := strings.IndexByte(line, '{'); at >= 0 && strings.TrimSpace(line[at+1:]) != "" {
			t.Errorf("block on one line: %s", line)
		}
	}
}

// TestNetworkIsAskedForItsStatus checks the CNI version. From CNI 1.1 on, containerd calls the
// plugins' STATUS command, so a node is not Ready before flanneld has written its subnet.
func TestNetworkIsAskedForItsStatus(t *testing.T) {
	objects, err := addon.Render(values())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(objects, func(o addon.Object) bool { return strings.HasSuffix(o.Path, "/configmaps/flannel") })
	if i < 0 {
		t.Fatal("ConfigMap flannel is missing")
	}
	var m struct {
		Data map[string]string `json:"data"`
	}
	if err := json.Unmarshal(objects[i].Body, &m); err != nil {
		t.Fatal(err)
	}
	var conf struct {
		CNIVersion string `json:"cniVersion"`
	}
	if err := json.Unmarshal([]byte(m.Data["cni-conf.json"]), &conf); err != nil {
		t.Fatal(err)
	}
	if conf.CNIVersion != "1.1.0" {
		t.Errorf("the network configuration has CNI version %s: containerd calls STATUS only from 1.1.0 on", conf.CNIVersion)
	}
}

// TestDefaultAccountsMountNoTokens: a pod without a service account of its own has no token, and CoreDNS cannot read
// pods.
func TestDefaultAccountsMountNoTokens(t *testing.T) {
	objects, err := addon.Render(values())
	if err != nil {
		t.Fatal(err)
	}
	without := 0
	for _, o := range objects {
		if strings.HasSuffix(o.Path, "/serviceaccounts/default") && bytes.Contains(o.Body, []byte(`"automountServiceAccountToken":false`)) {
			without++
		}
		if strings.HasSuffix(o.Path, "/clusterroles/slipway:coredns") && bytes.Contains(o.Body, []byte(`"pods"`)) {
			t.Error("CoreDNS can read pods")
		}
	}
	if without != 4 {
		t.Errorf("%d default accounts mount no token, want 4", without)
	}
}

// TestFlannelBackend: flannel gets the backend of the manifest, and with WireGuard no other one.
func TestFlannelBackend(t *testing.T) {
	for wireGuard, want := range map[bool]string{
		false: `{"Network": "10.244.0.0/16", "EnableNFTables": true, "Backend": {"Type": "vxlan", "Port": 8472}}`,
		true:  `{"Network": "10.244.0.0/16", "EnableNFTables": true, "Backend": {"Type": "wireguard", "ListenPort": 51820}}`,
	} {
		v := values()
		v.WireGuard = wireGuard
		objects, err := addon.Render(v)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(objects, func(o addon.Object) bool { return strings.HasSuffix(o.Path, "/configmaps/flannel") })
		var config struct{ Data map[string]string }
		if err := json.Unmarshal(objects[i].Body, &config); err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSpace(config.Data["net-conf.json"]); got != want || !json.Valid([]byte(got)) {
			t.Errorf("WireGuard %t: %s", wireGuard, got)
		}
	}
}

// TestConnectionChecks: each program that watches the API leaves a connection to a dead API server as soon as the kubelet does.
func TestConnectionChecks(t *testing.T) {
	objects, err := addon.Render(values())
	if err != nil {
		t.Fatal(err)
	}
	others, err := addon.Render(vpcValues())
	if err != nil {
		t.Fatal(err)
	}
	objects = append(objects, others...)
	seen := 0
	for _, o := range objects {
		var workload struct {
			Spec struct {
				Template struct {
					Spec struct {
						Containers []struct {
							Name string
							Env  []struct{ Name, Value string }
						}
					}
				}
			}
		}
		if err := json.Unmarshal(o.Body, &workload); err != nil {
			continue // not a workload
		}
		for _, c := range workload.Spec.Template.Spec.Containers {
			seen++
			got := map[string]string{}
			for _, variable := range c.Env {
				got[variable.Name] = variable.Value
			}
			for name, value := range kube.ConnectionChecks() {
				if got[name] != value {
					t.Errorf("%s: container %s has %s=%q, want %s", o.Path, c.Name, name, got[name], value)
				}
			}
		}
	}
	if seen < 3 {
		t.Errorf("%d containers", seen)
	}
}

// TestNetworkOfChannel: without a network of its own a cluster has kube-proxy and CoreDNS, and nothing of flannel or the Amazon VPC CNI.
func TestNetworkOfChannel(t *testing.T) {
	v := values()
	v.NetworkOfChannel = true
	objects, err := addon.Render(v)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, o := range objects {
		names[o.Addon] = true
		if strings.Contains(o.Path, "flannel") || strings.Contains(o.Path, "aws-node") {
			t.Errorf("%s is of another network", o.Path)
		}
	}
	if !names["slipway-kube-proxy"] || !names["slipway-coredns"] || names["slipway-flannel"] {
		t.Errorf("the add-ons are %v", names)
	}
}
