// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"maps"
	"strconv"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// settings are flags that a manifest sets, by name. Unset fields leave no flag.
type settings map[string]string

// number adds a number unless it is zero.
func (s settings) number(flag string, n int) {
	if n != 0 {
		s[flag] = strconv.Itoa(n)
	}
}

// text adds a text unless it is empty.
func (s settings) text(flag, text string) {
	if text != "" {
		s[flag] = text
	}
}

// withSettings returns flags with those of the manifest, which win.
func withSettings(s settings, flags map[string]string) map[string]string {
	maps.Copy(flags, s)

	return flags
}

// apiServerSettings returns the flags of kube-apiserver that a manifest sets.
func (c Config) apiServerSettings() settings {
	in := c.APIServerSettings
	out := settings{}
	if c.TokenReviewURL != "" {
		out["authentication-token-webhook-config-file"] = tokenReviewConfig
		out["authentication-token-webhook-version"] = "v1"
		// Who is removed from the manifest has access for this long after the agent knows.
		out["authentication-token-webhook-cache-ttl"] = "30s"
	}

	out.number("max-requests-inflight", in.MaxRequestsInflight)
	out.number("max-mutating-requests-inflight", in.MaxMutatingRequestsInflight)
	out.text("event-ttl", in.EventTTL)
	out.number("default-not-ready-toleration-seconds", in.DefaultNotReadyTolerationSeconds)
	out.number("default-unreachable-toleration-seconds", in.DefaultUnreachableTolerationSeconds)
	out.number("audit-log-maxage", in.AuditLogMaxAge)
	out.number("audit-log-maxbackup", in.AuditLogMaxBackup)
	out.number("audit-log-maxsize", in.AuditLogMaxSize)
	out.text("service-account-issuer", in.ServiceAccountIssuer)

	return out
}

// controllerManagerSettings returns the flags of kube-controller-manager that a manifest sets.
func controllerManagerSettings(in v1alpha1.KubeControllerManager) settings {
	out := settings{}
	out.number("terminated-pod-gc-threshold", in.TerminatedPodGCThreshold)
	out.text("node-monitor-grace-period", in.NodeMonitorGracePeriod)
	out.text("horizontal-pod-autoscaler-sync-period", in.HorizontalPodAutoscalerSyncPeriod)

	return out
}

// addKubeletSettings adds the settings of the kubelet that a manifest sets to its configuration.
func addKubeletSettings(conf map[string]any, k v1alpha1.Kubelet) {
	for name, value := range map[string]int{
		"maxPods":                     k.MaxPods,
		"podPidsLimit":                k.PodPidsLimit,
		"imageGCHighThresholdPercent": k.ImageGCHighThresholdPercent,
		"imageGCLowThresholdPercent":  k.ImageGCLowThresholdPercent,
		"containerLogMaxFiles":        k.ContainerLogMaxFiles,
		"maxParallelImagePulls":       k.MaxParallelImagePulls,
	} {
		if value != 0 {
			conf[name] = value
		}
	}

	if k.ContainerLogMaxSize != "" {
		conf["containerLogMaxSize"] = k.ContainerLogMaxSize
	}

	if len(k.AllowedUnsafeSysctls) > 0 {
		conf["allowedUnsafeSysctls"] = k.AllowedUnsafeSysctls
	}

	if len(k.EvictionSoft) > 0 {
		conf["evictionSoft"] = k.EvictionSoft
		conf["evictionSoftGracePeriod"] = k.EvictionSoftGracePeriod
	}
}
