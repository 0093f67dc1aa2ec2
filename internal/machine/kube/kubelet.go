// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"maps"
	"strings"

	"sigs.k8s.io/yaml"
)

// KubeletConfig is the kubelet's configuration file. The names are those of kubelet.config.k8s.io/v1beta1; the type itself
// would bring half of Kubernetes into the agent. Keys of a map are printed sorted. The numbers are rows of the CIS
// benchmark. rotateCertificates stays unset (4.2.10 passes): the agent renews both certificates, on the tmpfs.
func KubeletConfig(c Config) ([]byte, error) {
	conf := map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		// 4.2.1 to 4.2.3.
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false},
			"webhook":   map[string]any{"enabled": true},
			"x509":      map[string]any{"clientCAFile": pkiPath("kubernetes-ca.crt")},
		},
		"authorization": map[string]any{"mode": "Webhook"},
		// 4.2.4 to 4.2.6, 4.2.8.
		"readOnlyPort":                   0,
		"streamingConnectionIdleTimeout": "5m0s",
		"makeIPTablesUtilChains":         true,
		"eventRecordQPS":                 50,
		"protectKernelDefaults":          true,
		// 4.2.9, 4.2.12: our own CA's certificate, reloaded when the agent renews it.
		"tlsCertFile":       pkiPath("kubelet.crt"),
		"tlsPrivateKeyFile": pkiPath("kubelet.key"),
		"tlsMinVersion":     "VersionTLS13",
		// 4.2.13, 4.2.14.
		"podPidsLimit":   4096,
		"seccompDefault": true,

		"cgroupDriver":             "systemd",
		"containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
		"clusterDNS":               []string{c.DNSIP},
		"clusterDomain":            c.DNSDomain,
		"providerID":               "aws:///" + c.Zone + "/" + c.InstanceID,
		"resolvConf":               c.ResolvConf,
		"serializeImagePulls":      false,
		"maxParallelImagePulls":    4,
		"kubeReserved":             applyOverrides(reservedResources(c, 1), c.Kubelet.KubeReserved),
		"systemReserved":           applyOverrides(reservedResources(c, 2), c.Kubelet.SystemReserved),
		// The kubelet drops every default of its own when one signal is given.
		"evictionHard": applyOverrides(map[string]string{
			"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%", "imagefs.available": "15%",
		}, c.Kubelet.EvictionHard),
	}
	if c.ControlPlane {
		conf["staticPodPath"] = ConfigDir + "/manifests"
		// A static pod that the API would not take when it had just started is shown to it again after this time, by
		// default a minute.
		conf["syncFrequency"] = "10s"
	}

	taints, err := parseTaints(c.Taints)
	if err != nil {
		return nil, err
	}

	if len(taints) > 0 {
		conf["registerWithTaints"] = taints
	}

	body, err := yaml.Marshal(conf)
	if err != nil {
		return nil, fmt.Errorf("print kubelet configuration: %w", err)
	}

	return body, nil
}

// reservedResources keeps 4 % of the memory (256 MiB to 2 GiB) and 2 % of the processors (50m at least) from pods, divided for
// the system's own share, so that pods can not starve the kubelet (S5.10).
func reservedResources(c Config, divisor int) map[string]string {
	memory := min(max(c.MemoryMiB/25, 256), 2048) / divisor
	cpu := max(c.CPUs*20, 100) / divisor
	return map[string]string{"memory": fmt.Sprintf("%dMi", memory), "cpu": fmt.Sprintf("%dm", cpu)}
}

// applyOverrides puts what the manifest says over our own, key by key.
func applyOverrides(own, manifest map[string]string) map[string]string {
	maps.Copy(own, manifest)
	return own
}

func parseTaints(taints []string) ([]map[string]string, error) {
	out := make([]map[string]string, 0, len(taints))
	for _, t := range taints {
		pair, effect, ok := strings.Cut(t, ":")
		key, value, _ := strings.Cut(pair, "=")
		if !ok || key == "" || effect == "" {
			return nil, fmt.Errorf("taint %q: must be key=value:Effect", t)
		}

		out = append(out, map[string]string{"key": key, "value": value, "effect": effect})
	}

	return out, nil
}

// CertificateKubeconfig that uses certificate files, which clients read again when they are renewed.
func CertificateKubeconfig(server, certificate string) []byte {
	return []byte(
		renderKubeconfig(
			server,
			pkiPath("kubernetes-ca.crt"),
			"    client-certificate: "+pkiPath(certificate+".crt")+
				"\n    client-key: "+pkiPath(certificate+".key"),
		),
	)
}

// PodKubeconfig is for pods on the host's network that must reach the API before Services work: the pod's own
// service account at this machine's way to the API. It holds no secret.
func PodKubeconfig(server string) []byte {
	const mounted = "/var/run/secrets/kubernetes.io/serviceaccount/"
	return []byte(renderKubeconfig(server, mounted+"ca.crt", "    tokenFile: "+mounted+"token"))
}

func renderKubeconfig(server, ca, user string) string {
	return `apiVersion: v1
kind: Config
clusters:
- name: slipway
  cluster:
    server: ` + server + `
    certificate-authority: ` + ca + `
users:
- name: slipway
  user:
` + user + `
contexts:
- name: slipway
  context:
    cluster: slipway
    user: slipway
current-context: slipway
`
}
