// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// shutdownGracePeriod is how long the kubelet delays a shutdown of the machine, in the form of Kubernetes and of systemd.
const shutdownGracePeriod = "60s"

// KubeletConfig returns the kubelet's configuration file as YAML with sorted keys. It uses the
// field names of kubelet.config.k8s.io/v1beta1, because importing the type would link much of
// Kubernetes into the agent. The numbers are controls of the CIS benchmark. rotateCertificates is
// unset (4.2.10 passes): the agent renews both certificates on the tmpfs.
func KubeletConfig(c Config) ([]byte, error) {
	conf := map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1",
		"kind":       "KubeletConfiguration",
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
		// 4.2.9, 4.2.12: a certificate of the cluster's own CA. The kubelet reloads it when the
		// agent renews it.
		"tlsCertFile":       pkiPath("kubelet.crt"),
		"tlsPrivateKeyFile": pkiPath("kubelet.key"),
		"tlsMinVersion":     "VersionTLS13",
		// 4.2.13, 4.2.14.
		"podPidsLimit":   4096,
		"seccompDefault": true,

		// When the operating system shuts down, systemd waits until the kubelet has stopped its pods: 40 s for
		// usual pods, then 20 s for critical ones. AWS waits some minutes for an instance that it terminates.
		"shutdownGracePeriod":             shutdownGracePeriod,
		"shutdownGracePeriodCriticalPods": "20s",

		"cgroupDriver":             "systemd",
		"containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
		"clusterDNS":               []string{c.DNSIP},
		"clusterDomain":            c.DNSDomain,
		"providerID":               "aws:///" + c.Zone + "/" + c.InstanceID,
		"resolvConf":               c.ResolvConf,
		// Administrators read the machine's journal through the API (slipway logs), which needs no SSH. The
		// kubelet asks the API whether a caller may (nodes/log).
		"enableSystemLogHandler": true,
		"enableSystemLogQuery":   true,
		"serializeImagePulls":    false,
		"maxParallelImagePulls":  4,
		"kubeReserved":           applyOverrides(reservedResources(c, 1), c.Kubelet.KubeReserved),
		"systemReserved":         applyOverrides(reservedResources(c, 2), c.Kubelet.SystemReserved),
		// If any signal is set, the kubelet drops its defaults for all others.
		"evictionHard": applyOverrides(map[string]string{
			"memory.available":  "100Mi",
			"nodefs.available":  "10%",
			"nodefs.inodesFree": "5%",
			"imagefs.available": "15%",
		}, c.Kubelet.EvictionHard),
	}
	addMachineSettings(conf, c)
	addKubeletSettings(conf, c.Kubelet)

	taints, err := parseTaints(c.Taints)
	if err != nil {
		return nil, err
	}

	if len(taints) > 0 {
		conf["registerWithTaints"] = taints
	}

	body, err := yaml.Marshal(conf)
	if err != nil {
		return nil, fmt.Errorf("encode kubelet configuration: %w", err)
	}

	return body, nil
}

// addMachineSettings adds the settings that depend on the machine's role and version.
func addMachineSettings(conf map[string]any, c Config) {
	if c.ControlPlane {
		conf["staticPodPath"] = ConfigDir + "/manifests"
		// If the API server rejects a static pod's mirror pod right after its start, the kubelet
		// retries after this interval (default 1 minute).
		conf["syncFrequency"] = "10s"
	}

	minor, known := minorVersion(c.KubernetesVersion)
	if c.ControlPlane && (!known || minor >= restartPeriodMinor) {
		// Controller manager and scheduler exit while their API server has no etcd. By default, each exit within
		// 10 minutes doubles the time until the next start, up to 5 minutes.
		conf["crashLoopBackOff"] = map[string]any{"maxContainerRestartPeriod": "20s"}
	}

	if known && minor < logQueryMinor {
		conf["featureGates"] = map[string]any{"NodeLogQuery": true}
	}
}

// restartPeriodMinor is the minor version of Kubernetes in which the feature gate of crashLoopBackOff is enabled by
// default. Before, a kubelet does not start with it.
const restartPeriodMinor = 35

// logQueryMinor is the minor version of Kubernetes in which the log query became generally available. Before, a
// kubelet refuses enableSystemLogQuery without its feature gate (pkg/features/kube_features.go of Kubernetes).
const logQueryMinor = 36

// minorVersion returns the minor version of a version such as 1.36.3, and whether it has one.
func minorVersion(version string) (minor int, known bool) {
	parts := strings.Split(version, ".")
	if len(parts) < 2 {
		return 0, false
	}

	minor, err := strconv.Atoi(parts[1])

	return minor, err == nil
}

// ReservedResources returns what the kubelet reserves on a machine of this size with these settings: kubeReserved and systemReserved.
func ReservedResources(cpus, memoryMiB int, k v1alpha1.Kubelet) (kubelet, system map[string]string) {
	c := Config{CPUs: cpus, MemoryMiB: memoryMiB}

	return applyOverrides(reservedResources(c, 1), k.KubeReserved), applyOverrides(reservedResources(c, 2), k.SystemReserved)
}

// reservedResources returns a share of the memory (4 %, 256 MiB to 2 GiB) and of the CPU (2 %, at
// least 50m) to reserve, so that pods cannot starve the kubelet and the system. kubeReserved has
// divisor 1; systemReserved has divisor 2.
func reservedResources(c Config, divisor int) map[string]string {
	memory := min(max(c.MemoryMiB/25, 256), 2048) / divisor
	cpu := max(c.CPUs*20, 100) / divisor
	return map[string]string{"memory": fmt.Sprintf("%dMi", memory), "cpu": fmt.Sprintf("%dm", cpu)}
}

// applyOverrides overwrites defaults with the settings of the manifest, key by key.
func applyOverrides(defaults, manifest map[string]string) map[string]string {
	maps.Copy(defaults, manifest)
	return defaults
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

// CertificateKubeconfig returns a kubeconfig that reads the CA, the client certificate and the key from files in a
// directory. Clients reload the files when the agent renews them.
func CertificateKubeconfig(server, directory, certificate string) []byte {
	at := directory + "/" + certificate

	return []byte(
		renderKubeconfig(
			server,
			directory+"/kubernetes-ca.crt",
			"    client-certificate: "+at+".crt\n    client-key: "+at+".key",
		),
	)
}

// PodKubeconfig returns a kubeconfig for host-network pods that must reach the API before Services
// work. It uses the pod's own service account and contains no secret.
func PodKubeconfig(server string) []byte {
	const mounted = "/var/run/secrets/kubernetes.io/serviceaccount/"
	return []byte(renderKubeconfig(server, mounted+"ca.crt", "    tokenFile: "+mounted+"token"))
}

// EmptyAdminKubeconfig returns the kubeconfig admin.conf of a control-plane machine. It has no credential: machines keep none of
// an administrator. The file exists because auditors, and kube-bench, look for it and check who may read it.
func EmptyAdminKubeconfig(server string) []byte {
	const comment = "# Administrators get certificates from 'slipway export kubeconfig': this file has no credential.\n"

	return []byte(comment + renderKubeconfig(server, PKIDir+"/kubernetes-ca.crt", "    {}"))
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
