// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"path"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// TestReservedResources checks that the manifest's values override the defaults key by key.
func TestReservedResources(t *testing.T) {
	body, err := kube.KubeletConfig(kube.Config{MemoryMiB: 8192, CPUs: 2, Kubelet: v1alpha1.Kubelet{
		KubeReserved:   map[string]string{"memory": "1Gi", "ephemeral-storage": "2Gi"},
		SystemReserved: map[string]string{"cpu": "250m"},
		EvictionHard:   map[string]string{"memory.available": "5%"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ KubeReserved, SystemReserved, EvictionHard map[string]string }
	if err := yaml.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	for what, pair := range map[string][2]map[string]string{
		"kube":     {{"memory": "1Gi", "cpu": "100m", "ephemeral-storage": "2Gi"}, got.KubeReserved},
		"system":   {{"memory": "163Mi", "cpu": "250m"}, got.SystemReserved},
		"eviction": {{"memory.available": "5%", "nodefs.available": "10%", "nodefs.inodesFree": "5%", "imagefs.available": "15%"}, got.EvictionHard},
	} {
		if diff := cmp.Diff(pair[0], pair[1]); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
}

// TestShutdownDelay: logind allows the delay that the kubelet asks for, also on Ubuntu, where unattended-upgrades has a file
// with half of it. Of the files of all folders, systemd takes the last by name.
func TestShutdownDelay(t *testing.T) {
	body, err := kube.KubeletConfig(kube.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ ShutdownGracePeriod string }
	if err := yaml.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	if want := "[Login]\nInhibitDelayMaxSec=" + got.ShutdownGracePeriod + "\n"; kube.LogindConfig() != want {
		t.Errorf("logind's configuration is %q, want %q", kube.LogindConfig(), want)
	}
	if name := path.Base(kube.LogindConfigPath); name < "unattended-upgrades-logind-maxdelay.conf" || name < "99-kubelet.conf" {
		t.Errorf("another file counts instead of %s", name)
	}
}

// TestLogQueryOfEarlierKubelets: a kubelet before 1.36 does not start with enableSystemLogQuery unless the feature gate
// is set; in 1.36 the gate is locked.
func TestLogQueryOfEarlierKubelets(t *testing.T) {
	for version, want := range map[string]map[string]bool{
		"1.33.0":  {"NodeLogQuery": true},
		"1.35.4":  {"NodeLogQuery": true},
		"1.36.0":  nil,
		"1.100.3": nil,
		"":        nil,
	} {
		body, err := kube.KubeletConfig(kube.Config{KubernetesVersion: version})
		if err != nil {
			t.Fatal(err)
		}

		var got struct {
			FeatureGates         map[string]bool
			EnableSystemLogQuery bool
		}
		if err := yaml.Unmarshal(body, &got); err != nil {
			t.Fatal(err)
		}

		if diff := cmp.Diff(want, got.FeatureGates); diff != "" || !got.EnableSystemLogQuery {
			t.Errorf("%s: log query %t, feature gates %s", version, got.EnableSystemLogQuery, diff)
		}
	}
}
