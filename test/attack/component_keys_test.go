// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"path"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// TestComponentsReachNoKeysOfOthers: whoever has taken over the scheduler or the controller manager of a new cluster looks for
// the keys of the API server, that which signs tokens of service accounts among them, in all that its container mounts.
// Seen to succeed while all mounted one directory, and while the controller manager had the key that signs tokens.
func TestComponentsReachNoKeysOfOthers(t *testing.T) {
	c := kube.Config{
		NodeName:   "ip-10-80-0-4.ec2.internal",
		Address:    "10.80.0.4",
		EtcdURL:    "https://127.0.0.1:2379",
		Images:     map[string]string{"kube-apiserver": "a", "kube-controller-manager": "c", "kube-scheduler": "s"},
		MemoryMiB:  8192,
		CPUs:       2,
		APIServer:  "https://127.0.0.1:6443",
		PodCIDR:    "10.244.0.0/16",
		DNSDomain:  "cluster.local",
		ResolvConf: "/etc/resolv.conf",
	}
	created := manifest.DefaultNew(manifest.Set{})
	c.ControllerManagerSettings = created.Cluster.Spec.KubeControllerManager

	keys := keyFiles(kube.APIServerFlags(c))
	if len(keys) < 5 {
		t.Fatalf("the API server has the keys %v", keys)
	}

	pods, err := kube.StaticPods(c)
	if err != nil {
		t.Fatal(err)
	}

	for _, f := range pods {
		var pod corev1.Pod
		if err := yaml.Unmarshal(f.Body, &pod); err != nil {
			t.Fatal(err)
		}

		if pod.Name == kube.APIServer {
			continue
		}

		for _, key := range keys {
			for _, v := range pod.Spec.Volumes {
				if strings.HasPrefix(key, strings.TrimSuffix(v.HostPath.Path, "/")+"/") {
					t.Errorf("%s reads %s by its volume %s", pod.Name, key, v.HostPath.Path)
				}
			}
		}
	}

	for _, key := range keyFiles(kube.ControllerManagerFlags(c)) {
		if strings.Contains(path.Base(key), "service-account") {
			t.Errorf("the controller manager signs tokens of service accounts with %s", key)
		}
	}

	c.ControllerManagerSettings.ServiceAccountTokenSecrets = v1alpha1.TokenSecretsEnabled
	if len(keyFiles(kube.ControllerManagerFlags(c))) == 0 {
		t.Error("the test does not find the key of a controller manager that has it")
	}
}

// TestKeyIsTakenFromOldClusters: the controller manager of a cluster of an older Slipway has the key that signs tokens of
// service accounts. The plan says so, and how to take it away; the machines then follow a document without it, and none is
// replaced. No attack: how the key is taken away.
func TestKeyIsTakenFromOldClusters(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	w := l.writer()
	const setting = "serviceAccountTokenSecrets: Disabled"
	w.edit("cluster.yaml", setting, "terminatedPodGCThreshold: 12500") // an older manifest does not have the field
	l.must(caller{}, 0, "state", "sign", "demo", "--yes")

	_, errs, _ := l.slipway(caller{}, "apply", "demo", "--yes")
	if !strings.Contains(errs, "spec.kubeControllerManager.serviceAccountTokenSecrets") || !strings.Contains(errs, "has the key") {
		t.Errorf("the apply of an old cluster says nothing about the key:\n%s", errs)
	}

	manifests := l.must(caller{}, 0, "get", "cluster", "demo", "-o", "yaml")
	const section = "kubeControllerManager:\n"
	changed := strings.Replace(manifests, section, section+"    "+setting+"\n", 1)
	if changed == manifests {
		t.Fatalf("the manifest has no section %s", manifests)
	}

	l.must(caller{}, 0, "replace", "-f", l.temporaryFile("demo.yaml", changed), "--yes")
	if out := l.must(caller{}, 2, "plan", "demo"); strings.Contains(out, "- launch-template") {
		t.Errorf("the plan replaces something:\n%s", out)
	}

	_, errs, code := l.slipway(caller{}, "apply", "demo", "--yes")
	if code != 0 || !strings.Contains(errs, "running machines of control-plane follow their new node document") || strings.Contains(errs, "has the key") {
		t.Errorf("apply: exit %d\n%s", code, errs)
	}

	if strings.Contains(errs, "need to be replaced") {
		t.Errorf("machines need to be replaced:\n%s", errs)
	}

	l.must(caller{}, 0, "plan", "demo")
}

// keyFiles returns the files of private keys that flags name.
func keyFiles(flags []string) []string {
	var out []string
	for _, flag := range flags {
		name, value, _ := strings.Cut(flag, "=")
		if value != "" && (strings.HasSuffix(value, ".key") || strings.Contains(name, "encryption-provider-config")) {
			out = append(out, value)
		}
	}

	return out
}
