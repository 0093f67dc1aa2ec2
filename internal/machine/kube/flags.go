// SPDX-License-Identifier: Apache-2.0

// Package kube says how the parts of Kubernetes are configured on a machine: flags, static pods, kubelet and policies.
// It knows no cloud and writes nothing; every value that differs between machines is in Config.
package kube

import (
	"maps"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// Config is all that differs between machines.
type Config struct {
	// NodeName is the instance's private DNS name, Address its private address.
	NodeName, Address string
	// Zone, Region, InstanceID and InstanceType as the metadata service tells them; Group of the machine.
	Zone, Region, InstanceID, InstanceType, Group string
	// MemoryMiB and CPUs of the machine, for what is reserved.
	MemoryMiB, CPUs int
	// ControlPlane says that the machine runs the control plane.
	ControlPlane bool
	// BinDir is the folder of containerd, runc and the kubelet.
	BinDir string
	// Spot says that it is a spot machine, which AWS may take away.
	Spot bool
	// APIServer is the URL of the API that this machine uses.
	APIServer string
	// EtcdURL of this machine's own member.
	EtcdURL string
	// PodCIDR, ServiceCIDR, DNSIP and DNSDomain of the cluster.
	PodCIDR, ServiceCIDR, DNSIP, DNSDomain string
	// Images by component, with digest.
	Images map[string]string
	// NodeLabels and Taints of the node; a taint is key=value:Effect.
	NodeLabels map[string]string
	Taints     []string
	// Kubelet settings of the manifest, over our own.
	Kubelet v1alpha1.Kubelet
	// ResolvConf is the file of upstream resolvers for pods.
	ResolvConf string
	// EncryptionKey for Secrets in etcd, 32 bytes.
	EncryptionKey []byte
}

// PKIDir holds keys and certificates; it is a tmpfs.
const PKIDir = "/run/slipway/pki"

// ConfigDir holds what the control plane reads: policies, kubeconfigs, manifests.
const ConfigDir = "/etc/kubernetes"

// SecretDir holds configuration that contains a key, so it is on the tmpfs too.
const SecretDir = "/run/slipway/config" //nolint:gosec // a folder, not a secret

// LogDir holds the audit log.
const LogDir = "/var/log/kubernetes"

// APIPort is the port of kube-apiserver on every control-plane machine.
const APIPort = "6443"

// formatFlags prints a set of flags as arguments, sorted.
func formatFlags(set map[string]string) []string {
	out := make([]string, 0, len(set))
	for _, k := range slices.Sorted(maps.Keys(set)) {
		out = append(out, "--"+k+"="+set[k])
	}

	return out
}

func pkiPath(name string) string { return PKIDir + "/" + name }

// APIServerFlags of kube-apiserver. The numbers are rows of the CIS benchmark.
func APIServerFlags(c Config) []string {
	return formatFlags(map[string]string{
		"advertise-address": c.Address,
		"secure-port":       APIPort,
		"allow-privileged":  "true",
		// 1.2.1: anonymous for health checks only; the file says so.
		"authentication-config": ConfigDir + "/authentication.yaml",
		// 1.2.6-8.
		"authorization-mode": "Node,RBAC",
		// 1.2.3, 1.2.9, 1.2.14; the defaults (ServiceAccount, NamespaceLifecycle, PodSecurity) stay on.
		"enable-admission-plugins":      "DenyServiceExternalIPs,EventRateLimit,NodeRestriction",
		"admission-control-config-file": ConfigDir + "/admission.yaml",
		// 1.2.4, 1.2.5.
		"kubelet-client-certificate":      pkiPath("apiserver-kubelet-client.crt"),
		"kubelet-client-key":              pkiPath("apiserver-kubelet-client.key"),
		"kubelet-certificate-authority":   pkiPath("kubernetes-ca.crt"),
		"kubelet-preferred-address-types": "InternalIP",
		// 1.2.15.
		"profiling": "false",
		// 1.2.16-19, 3.2.
		"audit-log-path":      LogDir + "/audit.log",
		"audit-log-maxage":    "30",
		"audit-log-maxbackup": "10",
		"audit-log-maxsize":   "100",
		"audit-policy-file":   ConfigDir + "/audit-policy.yaml",
		// 1.2.20.
		"request-timeout": "60s",
		// 1.2.21, 1.2.22, 1.2.30.
		"service-account-lookup":                  "true",
		"service-account-key-file":                pkiPath("service-account.pub"),
		"service-account-signing-key-file":        pkiPath("service-account.key"),
		"service-account-issuer":                  "https://kubernetes.default.svc",
		"service-account-extend-token-expiration": "false",
		// 1.2.23, 1.2.26: its own member only, so that each slot fails alone.
		"etcd-servers":  c.EtcdURL,
		"etcd-cafile":   pkiPath("etcd-client-ca.crt"),
		"etcd-certfile": pkiPath("apiserver-etcd-client.crt"),
		"etcd-keyfile":  pkiPath("apiserver-etcd-client.key"),
		// 1.2.24, 1.2.25, 1.2.29.
		"tls-cert-file":        pkiPath("apiserver.crt"),
		"tls-private-key-file": pkiPath("apiserver.key"),
		"client-ca-file":       pkiPath("kubernetes-ca.crt"),
		"tls-min-version":      "VersionTLS13",
		// 1.2.27, 1.2.28.
		"encryption-provider-config": SecretDir + "/encryption.yaml",
		// Aggregated APIs trust the front proxy's CA only.
		"requestheader-client-ca-file":       pkiPath("front-proxy-ca.crt"),
		"requestheader-allowed-names":        "front-proxy-client",
		"requestheader-extra-headers-prefix": "X-Remote-Extra-",
		"requestheader-group-headers":        "X-Remote-Group",
		"requestheader-username-headers":     "X-Remote-User",
		"proxy-client-cert-file":             pkiPath("front-proxy-client.crt"),
		"proxy-client-key-file":              pkiPath("front-proxy-client.key"),
		"service-cluster-ip-range":           c.ServiceCIDR,
		// Behind a load balancer connections stay where they first went; one in a thousand requests moves one.
		"goaway-chance": "0.001",
	})
}

// ControllerManagerFlags of kube-controller-manager.
func ControllerManagerFlags(c Config) []string {
	conf := ConfigDir + "/controller-manager.kubeconfig"
	return formatFlags(map[string]string{
		"kubeconfig": conf, "authentication-kubeconfig": conf, "authorization-kubeconfig": conf,
		"leader-elect":             "true",
		"allocate-node-cidrs":      "true",
		"cluster-cidr":             c.PodCIDR,
		"service-cluster-ip-range": c.ServiceCIDR,
		// 1.3.1 to 1.3.5, 1.3.7.
		"terminated-pod-gc-threshold":      "100",
		"profiling":                        "false",
		"use-service-account-credentials":  "true",
		"service-account-private-key-file": pkiPath("service-account.key"),
		"root-ca-file":                     pkiPath("kubernetes-ca.crt"),
		"bind-address":                     "127.0.0.1",
		"tls-min-version":                  "VersionTLS13",
		"requestheader-client-ca-file":     pkiPath("front-proxy-ca.crt"),
		"client-ca-file":                   pkiPath("kubernetes-ca.crt"),
	})
}

// SchedulerFlags of kube-scheduler.
func SchedulerFlags() []string {
	conf := ConfigDir + "/scheduler.kubeconfig"
	return formatFlags(map[string]string{
		"kubeconfig": conf, "authentication-kubeconfig": conf, "authorization-kubeconfig": conf,
		"leader-elect": "true",
		// 1.4.1, 1.4.2.
		"profiling":                    "false",
		"bind-address":                 "127.0.0.1",
		"tls-min-version":              "VersionTLS13",
		"requestheader-client-ca-file": pkiPath("front-proxy-ca.crt"),
		"client-ca-file":               pkiPath("kubernetes-ca.crt"),
	})
}

// KubeletFlags of the kubelet; everything that its configuration file can say is there instead. The name is given
// because AWS images set the short host name, while every certificate and Node is for the private DNS name.
func KubeletFlags(c Config) []string {
	labels := maps.Clone(c.NodeLabels)
	if labels == nil {
		labels = map[string]string{}
	}

	maps.Copy(labels, map[string]string{
		"topology.kubernetes.io/zone":      c.Zone,
		"topology.kubernetes.io/region":    c.Region,
		"node.kubernetes.io/instance-type": c.InstanceType,
		"slipway.dev/group":                c.Group,
	})
	if c.Spot {
		labels["node.kubernetes.io/lifecycle"] = "spot"
	}

	pairs := make([]string, 0, len(labels))
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, k+"="+labels[k])
	}

	return formatFlags(map[string]string{
		"config":            "/var/lib/kubelet/config.yaml",
		"config-dir":        ConfigDir + "/kubelet.conf.d",
		"kubeconfig":        ConfigDir + "/kubelet.kubeconfig",
		"hostname-override": c.NodeName,
		"node-ip":           c.Address,
		"node-labels":       strings.Join(pairs, ","),
	})
}
