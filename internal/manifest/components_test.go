// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// TestComponentSettings: values with which a component would not start are found before any machine gets them.
func TestComponentSettings(t *testing.T) {
	type cluster = v1alpha1.ClusterSpec
	type group = v1alpha1.InstanceGroupSpec
	for want, change := range map[string]func(*cluster, *group){
		"": func(c *cluster, g *group) {
			c.KubeAPIServer = v1alpha1.KubeAPIServer{
				MaxRequestsInflight: 800, MaxMutatingRequestsInflight: 400, EventTTL: "3h", AuditLogMaxAge: 60, AuditLogMaxBackup: 20,
				AuditLogMaxSize: 200, DefaultNotReadyTolerationSeconds: 60, DefaultUnreachableTolerationSeconds: 60,
			}
			c.KubeControllerManager = v1alpha1.KubeControllerManager{
				TerminatedPodGCThreshold: 500, NodeMonitorGracePeriod: "1m30s", HorizontalPodAutoscalerSyncPeriod: "30s",
				ServiceAccountTokenSecrets: "Enabled",
			}
			g.Kubelet = v1alpha1.Kubelet{
				MaxPods: 250, PodPidsLimit: 1024, ImageGCHighThresholdPercent: 75, ImageGCLowThresholdPercent: 60,
				ContainerLogMaxSize: "50Mi", ContainerLogMaxFiles: 3, MaxParallelImagePulls: 8,
				EvictionSoft:            map[string]string{"memory.available": "500Mi"},
				EvictionSoftGracePeriod: map[string]string{"memory.available": "2m"},
				AllowedUnsafeSysctls:    []string{"net.core.somaxconn", "kernel.msg*", "net.ipv4.*", "kernel.shmmax"},
			}
			g.Sysctls = map[string]string{"net.core.somaxconn": "8192", "net.ipv4.tcp_rmem": "4096 87380 16777216", "vm.max_map_count": "262144"}
		},
		`spec.kubeAPIServer.maxRequestsInflight "20": is out of range (use 100 to 10000)`:                               func(c *cluster, _ *group) { c.KubeAPIServer.MaxRequestsInflight = 20 },
		`spec.kubeAPIServer.eventTTL "1 hour": is not a duration in this range (write a duration from 5m0s to 168h0m0s`: func(c *cluster, _ *group) { c.KubeAPIServer.EventTTL = "1 hour" },
		`serviceAccountIssuer "http://issuer.example": is not an https URL`:                                             func(c *cluster, _ *group) { c.KubeAPIServer.ServiceAccountIssuer = "http://issuer.example" },
		`acceptedServiceAccountIssuers[1] "https://a": duplicates`: func(c *cluster, _ *group) {
			c.KubeAPIServer.AcceptedServiceAccountIssuers = []string{"https://a", "https://a"}
		},
		`acceptedServiceAccountIssuers[0] "https://kubernetes.default.svc": is the issuer of the cluster itself`: func(c *cluster, _ *group) {
			c.KubeAPIServer.AcceptedServiceAccountIssuers = []string{"https://kubernetes.default.svc"}
		},
		`acceptedServiceAccountIssuers[0] "https://a?b": is not an https URL`: func(c *cluster, _ *group) {
			c.KubeAPIServer.AcceptedServiceAccountIssuers = []string{"https://a?b"}
		},
		`spec.kubeAPIServer.auditLogMaxAge "7": is out of range (use 30 to`:                                                 func(c *cluster, _ *group) { c.KubeAPIServer.AuditLogMaxAge = 7 },
		`spec.kubeControllerManager.nodeMonitorGracePeriod "10s": is not a duration in this range`:                          func(c *cluster, _ *group) { c.KubeControllerManager.NodeMonitorGracePeriod = "10s" },
		`spec.kubeControllerManager.serviceAccountTokenSecrets "false": is`:                                                 func(c *cluster, _ *group) { c.KubeControllerManager.ServiceAccountTokenSecrets = "false" },
		`spec.kubelet.maxPods "500": is out of range (use 10 to 250)`:                                                       func(_ *cluster, g *group) { g.Kubelet.MaxPods = 500 },
		`spec.kubelet.imageGCLowThresholdPercent "80": is not below imageGCHighThresholdPercent (use less than imageGCHigh`: func(_ *cluster, g *group) { g.Kubelet.ImageGCHighThresholdPercent = 70 },
		`spec.kubelet.containerLogMaxSize "big": is not a valid quantity`:                                                   func(_ *cluster, g *group) { g.Kubelet.ContainerLogMaxSize = "big" },
		`spec.kubelet.containerLogMaxFiles "1": is out of range`:                                                            func(_ *cluster, g *group) { g.Kubelet.ContainerLogMaxFiles = 1 },
		`spec.kubelet.evictionSoft[disk] "disk": is not one of memory.available`:                                            func(_ *cluster, g *group) { g.Kubelet.EvictionSoft = map[string]string{"disk": "1Gi"} },
		`spec.kubelet.evictionSoftGracePeriod[memory.available]: is not set, and evictionSoft has a threshold for it`:       func(_ *cluster, g *group) { g.Kubelet.EvictionSoft = map[string]string{"memory.available": "1Gi"} },
		`spec.kubelet.evictionSoftGracePeriod[memory.available] "2m": has no threshold in evictionSoft`: func(_ *cluster, g *group) {
			g.Kubelet.EvictionSoftGracePeriod = map[string]string{"memory.available": "2m"}
		},
		`spec.kubelet.allowedUnsafeSysctls[0] "vm.swappiness": is not a kernel setting that a pod can have for itself`:  func(_ *cluster, g *group) { g.Kubelet.AllowedUnsafeSysctls = []string{"vm.swappiness"} },
		`spec.sysctls[vm.overcommit_memory] "0": is a setting that Kubernetes needs and Slipway sets`:                   func(_ *cluster, g *group) { g.Sysctls = map[string]string{"vm.overcommit_memory": "0"} },
		`spec.sysctls[net.core/../../etc/passwd]: is not the name of a kernel setting (write it as net.core.somaxconn)`: func(_ *cluster, g *group) { g.Sysctls = map[string]string{"net.core/../../etc/passwd": "0"} },
		`spec.sysctls[net..core]: is not the name of a kernel setting`:                                                  func(_ *cluster, g *group) { g.Sysctls = map[string]string{"net..core": "0"} },
		`spec.sysctls[net.core.somaxconn]: is not a value of a kernel setting`:                                          func(_ *cluster, g *group) { g.Sysctls = map[string]string{"net.core.somaxconn": ""} },
	} {
		set := demo(t)
		change(&set.Cluster.Spec, &set.Groups[1].Spec)
		got := render(manifest.Validate(set))
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("no finding has\n  %s\nin:\n%s", want, got)
		}
	}
	if !slices.IsSorted(manifest.ReservedSysctls()) {
		t.Error("the reserved settings are not sorted")
	}
}
