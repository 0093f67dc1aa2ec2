// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// TestSettingsOfTheManifest: a set field becomes the flag of its name and wins over the default; an unset one leaves it.
func TestSettingsOfTheManifest(t *testing.T) {
	c := config()
	before := len(kube.APIServerFlags(c))
	c.APIServerSettings = v1alpha1.KubeAPIServer{MaxRequestsInflight: 800, EventTTL: "3h", AuditLogMaxAge: 60, DefaultNotReadyTolerationSeconds: 30}
	c.ControllerManagerSettings = v1alpha1.KubeControllerManager{TerminatedPodGCThreshold: 7, NodeMonitorGracePeriod: "90s"}
	if added := len(kube.APIServerFlags(c)) - before; added != 3 {
		t.Errorf("%d new flags, want 3", added)
	}
	for _, row := range []struct {
		flags      []string
		flag, want string
	}{
		{kube.APIServerFlags(c), "max-requests-inflight", "800"},
		{kube.APIServerFlags(c), "event-ttl", "3h"},
		{kube.APIServerFlags(c), "audit-log-maxage", "60"},
		{kube.APIServerFlags(c), "audit-log-maxsize", "100"},
		{kube.APIServerFlags(c), "default-not-ready-toleration-seconds", "30"},
		{kube.ControllerManagerFlags(c), "terminated-pod-gc-threshold", "7"},
		{kube.ControllerManagerFlags(c), "node-monitor-grace-period", "90s"},
	} {
		if got, _ := flag(row.flags, row.flag); got != row.want {
			t.Errorf("--%s=%s, want %s", row.flag, got, row.want)
		}
	}
}

func TestKubeletSettingsOfTheManifest(t *testing.T) {
	c := config()
	read := func() map[string]any {
		t.Helper()
		body, err := kube.KubeletConfig(c)
		if err != nil {
			t.Fatal(err)
		}
		var out map[string]any
		if err := yaml.Unmarshal(body, &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	want := read()
	c.Kubelet = v1alpha1.Kubelet{
		MaxPods: 200, PodPidsLimit: 512, ImageGCHighThresholdPercent: 70, ImageGCLowThresholdPercent: 60, ContainerLogMaxSize: "20Mi",
		ContainerLogMaxFiles: 3, MaxParallelImagePulls: 8, AllowedUnsafeSysctls: []string{"net.core.somaxconn"},
		EvictionSoft: map[string]string{"memory.available": "1Gi"}, EvictionSoftGracePeriod: map[string]string{"memory.available": "2m"},
	}
	maps.Copy(want, map[string]any{
		"maxPods": 200.0, "podPidsLimit": 512.0, "imageGCHighThresholdPercent": 70.0, "imageGCLowThresholdPercent": 60.0,
		"containerLogMaxSize": "20Mi", "containerLogMaxFiles": 3.0, "maxParallelImagePulls": 8.0,
		"allowedUnsafeSysctls": []any{"net.core.somaxconn"}, "evictionSoft": map[string]any{"memory.available": "1Gi"},
		"evictionSoftGracePeriod": map[string]any{"memory.available": "2m"},
	})
	if diff := cmp.Diff(want, read()); diff != "" {
		t.Errorf("kubelet configuration (-want +got):\n%s", diff)
	}
}
