// SPDX-License-Identifier: Apache-2.0

// Package kube generates the configuration of the Kubernetes components on a machine: flags, static
// pods, the kubelet's configuration, policies, and systemd units. It also has a small client for
// the Kubernetes API.
//
// All values that differ between machines are in Config. The package knows no cloud and writes no
// files.
package kube

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
)

// Config holds all values that differ between machines.
type Config struct {
	// KubernetesVersion without the leading "v", such as 1.36.3.
	KubernetesVersion string
	// NodeName is the instance's private DNS name.
	NodeName string
	// Address is the instance's private IPv4 address.
	Address string
	// Zone is the availability zone.
	Zone string
	// Region is the AWS region.
	Region string
	// InstanceID is the EC2 instance id.
	InstanceID string
	// InstanceType is the EC2 instance type, such as m7i.large.
	InstanceType string
	// Group is the name of the instance group.
	Group string
	// MemoryMiB is the machine's memory, from which reservations are computed.
	MemoryMiB int
	// CPUs is the number of processors, from which reservations are computed.
	CPUs int
	// ControlPlane is set if the machine runs the control plane.
	ControlPlane bool
	// BinDir is the directory of containerd, runc, and the kubelet. Default /usr/local/bin.
	BinDir string
	// Spot is set for a spot instance, which AWS may interrupt.
	Spot bool
	// APIServer is the URL of the Kubernetes API for this machine.
	APIServer string
	// EtcdURL is the client URL of this machine's own member. Control plane only.
	EtcdURL string
	// EtcdGeneration counts the restorations of etcd from 1. Control plane only.
	EtcdGeneration int
	// PodCIDR is the address range of all pods. Empty: they have addresses of the VPC, and Nodes have no ranges.
	PodCIDR string
	// ServiceCIDR is the address range of Services.
	ServiceCIDR string
	// DNSIP is the Service address of CoreDNS.
	DNSIP string
	// DNSDomain of Services, such as cluster.local.
	DNSDomain string
	// Images maps a component to its image reference with digest.
	Images map[string]string
	// PrivateRegistry is the host name of the registry that the images come from, if the kubelet needs credentials for
	// it; empty if not.
	PrivateRegistry string
	// NodeLabels of the Node object.
	NodeLabels map[string]string
	// Taints of the Node object, each key=value:Effect.
	Taints []string
	// ExternalNodeController is set if the cloud controller manager initializes the Node: its labels of zone, region and machine
	// type, and its addresses.
	ExternalNodeController bool
	// Kubelet settings from the manifest; they override the defaults of KubeletConfig.
	Kubelet v1alpha1.Kubelet
	// APIServerSettings from the manifest; they override the defaults of APIServerFlags.
	APIServerSettings v1alpha1.KubeAPIServer
	// ControllerManagerSettings from the manifest; they override the defaults of ControllerManagerFlags.
	ControllerManagerSettings v1alpha1.KubeControllerManager
	// ResolvConf is the path of the resolv.conf with the upstream resolvers for pods.
	ResolvConf string
	// TokenReviewURL is where kube-apiserver asks whose a token is, on this machine. Empty: nowhere.
	TokenReviewURL string
	// EncryptionKey for Secrets in etcd, 32 bytes. Control plane only.
	EncryptionKey []byte
	// FormerKeys are those of other clusters whose backup was restored. Secrets are read with them, and never written.
	FormerKeys [][]byte
}

// binDir returns the directory of containerd, runc, and the kubelet.
func (c Config) binDir() string { return cmp.Or(c.BinDir, "/usr/local/bin") }

// PKIDir is the directory of keys and certificates, on a tmpfs.
const PKIDir = "/run/slipway/pki"

// ConfigDir is the directory of policies, kubeconfigs, and static pod manifests.
const ConfigDir = "/etc/kubernetes"

// PKILink is the name under which other programs, such as those that check a machine against the CIS benchmark, expect
// [PKIDir].
const PKILink = ConfigDir + "/pki"

// KubeconfigPath returns the path of a kubeconfig under the name that kubeadm gives it. Those of the controller manager and
// the scheduler are root's: the CIS benchmark requires it (1.1.15 to 1.1.18). They are for root on the machine; the
// components, which are not root, have a copy each (see [ComponentKubeconfig]).
func KubeconfigPath(component string) string { return ConfigDir + "/" + component + ".conf" }

// FormerFiles returns the files that earlier versions of the agent wrote under other names.
func FormerFiles() []string {
	return []string{
		ConfigDir + "/controller-manager.kubeconfig",
		ConfigDir + "/kubelet.kubeconfig",
		ConfigDir + "/scheduler.kubeconfig",
	}
}

// SecretDir is the directory of configuration that contains keys, on a tmpfs.
const SecretDir = "/run/slipway/config" //nolint:gosec // the path of a directory

// LogDir is the directory of the audit log.
const LogDir = "/var/log/kubernetes"

// APIPort is the port of kube-apiserver on control-plane machines.
const APIPort = "6443"

// The ports at which the other components of the control plane answer health checks on the machine itself.
const (
	ControllerManagerPort = "10257"
	SchedulerPort         = "10259"
)

// formatFlags formats a set of flags as sorted command-line arguments.
func formatFlags(set map[string]string) []string {
	out := make([]string, 0, len(set))
	for _, k := range slices.Sorted(maps.Keys(set)) {
		out = append(out, "--"+k+"="+set[k])
	}

	return out
}

// The components of the control plane that run as static pods.
const (
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
)

// StaticPodNames returns the names of these components.
func StaticPodNames() []string { return []string{APIServer, ControllerManager, Scheduler} }

// ComponentDir returns the directory of a component's own keys and certificates, the only one of them that its pod
// mounts. It belongs to the component's user, so it is not below [PKIDir]: the CIS benchmark requires that everything there
// is root's (1.1.19).
func ComponentDir(component string) string { return "/run/slipway/" + component }

// ComponentKubeconfig returns the path of the kubeconfig with which a component reaches the API.
func ComponentKubeconfig(component string) string { return ComponentDir(component) + "/kubeconfig" }

// UserID returns the user as which a component's container runs, and to whom its files belong. Each has one of its own,
// without an entry in /etc/passwd: the number of its port. Others run as root: 0.
func UserID(component string) int {
	switch component {
	case APIServer:
		return 6443
	case ControllerManager:
		return 10257
	case Scheduler:
		return 10259
	default:
		return 0
	}
}

func pkiPath(name string) string { return PKIDir + "/" + name }

// DefaultServiceAccountIssuer is the issuer of the tokens of service accounts if the manifest names none.
const DefaultServiceAccountIssuer = "https://kubernetes.default.svc"

// APIServerFlags returns the flags of kube-apiserver. The numbers are controls of the CIS
// benchmark.
func APIServerFlags(c Config) []string {
	flags := formatFlags(withSettings(c.apiServerSettings(), map[string]string{
		"advertise-address": c.Address,
		"secure-port":       APIPort,
		"allow-privileged":  "true",
		// 1.2.1: the file allows anonymous requests for health checks only.
		"authentication-config": ConfigDir + "/authentication.yaml",
		// 1.2.6-8.
		"authorization-mode": "Node,RBAC",
		// 1.2.3, 1.2.9, 1.2.14; the default plugins (ServiceAccount, NamespaceLifecycle,
		// PodSecurity) stay enabled.
		"enable-admission-plugins":      "DenyServiceExternalIPs,EventRateLimit,NodeRestriction",
		"admission-control-config-file": ConfigDir + "/admission.yaml",
		// 1.2.4, 1.2.5.
		"kubelet-client-certificate":      ComponentDir(APIServer) + "/apiserver-kubelet-client.crt",
		"kubelet-client-key":              ComponentDir(APIServer) + "/apiserver-kubelet-client.key",
		"kubelet-certificate-authority":   ComponentDir(APIServer) + "/kubernetes-ca.crt",
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
		"service-account-key-file":                ComponentDir(APIServer) + "/service-account.pub",
		"service-account-signing-key-file":        ComponentDir(APIServer) + "/service-account.key",
		"service-account-issuer":                  DefaultServiceAccountIssuer,
		"service-account-extend-token-expiration": "false",
		// 1.2.23, 1.2.26: each API server uses only its own etcd member, so that slots fail
		// independently.
		"etcd-servers":  c.EtcdURL,
		"etcd-cafile":   ComponentDir(APIServer) + "/etcd-client-ca.crt",
		"etcd-certfile": ComponentDir(APIServer) + "/apiserver-etcd-client.crt",
		"etcd-keyfile":  ComponentDir(APIServer) + "/apiserver-etcd-client.key",
		// 1.2.24, 1.2.25, 1.2.29.
		"tls-cert-file":        ComponentDir(APIServer) + "/apiserver.crt",
		"tls-private-key-file": ComponentDir(APIServer) + "/apiserver.key",
		"client-ca-file":       ComponentDir(APIServer) + "/kubernetes-ca.crt",
		// The health checks of load balancers cannot speak TLS 1.3.
		"tls-min-version":   "VersionTLS12",
		"tls-cipher-suites": strings.Join(apiCipherSuites(), ","),
		// 1.2.27, 1.2.28.
		"encryption-provider-config": SecretDir + "/encryption.yaml",
		// Aggregated APIs trust only the front-proxy CA.
		"requestheader-client-ca-file":       ComponentDir(APIServer) + "/front-proxy-ca.crt",
		"requestheader-allowed-names":        "front-proxy-client",
		"requestheader-extra-headers-prefix": "X-Remote-Extra-",
		"requestheader-group-headers":        "X-Remote-Group",
		"requestheader-username-headers":     "X-Remote-User",
		"proxy-client-cert-file":             ComponentDir(APIServer) + "/front-proxy-client.crt",
		"proxy-client-key-file":              ComponentDir(APIServer) + "/front-proxy-client.key",
		"service-cluster-ip-range":           c.ServiceCIDR,
		// Behind a load balancer, HTTP/2 connections stay on one API server. GOAWAY on one request
		// in a thousand rebalances them.
		"goaway-chance": "0.001",
	}))

	// The first issuer is that of new tokens; the API server accepts those of all.
	for _, issuer := range c.APIServerSettings.AcceptedServiceAccountIssuers {
		flags = append(flags, "--service-account-issuer="+issuer)
	}

	return flags
}

// apiCipherSuites returns the cipher suites of the API server for TLS 1.2: those of the CIS benchmark with authenticated
// encryption, for ECDSA, which all keys of a cluster use. TLS 1.3 always has all of its suites.
func apiCipherSuites() []string {
	return []string{
		"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
		"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
		"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
	}
}

// HasSigningKey reports whether kube-controller-manager has the key that signs tokens of service accounts.
func (c Config) HasSigningKey() bool {
	return c.ControllerManagerSettings.ServiceAccountTokenSecrets != v1alpha1.TokenSecretsDisabled
}

// controllerManagerSigningKey returns the file with which kube-controller-manager signs tokens of service accounts for
// Secrets; empty if the manifest leaves that key to kube-apiserver. Its controllers have tokens of their own, which
// kube-apiserver signs (TokenRequest).
func (c Config) controllerManagerSigningKey() string {
	if !c.HasSigningKey() {
		return ""
	}

	return ComponentDir(ControllerManager) + "/service-account.key"
}

// ControllerManagerFlags returns the flags of kube-controller-manager.
func ControllerManagerFlags(c Config) []string {
	conf := ComponentKubeconfig(ControllerManager)
	flags := map[string]string{
		"kubeconfig":                conf,
		"authentication-kubeconfig": conf,
		"authorization-kubeconfig":  conf,
		"leader-elect":              "true",
		"allocate-node-cidrs":       "false",
		"service-cluster-ip-range":  c.ServiceCIDR,
		// 1.3.1 to 1.3.5, 1.3.7. An empty value of 1.3.4 says that there is no key.
		"terminated-pod-gc-threshold":      "100",
		"profiling":                        "false",
		"use-service-account-credentials":  "true",
		"service-account-private-key-file": c.controllerManagerSigningKey(),
		"root-ca-file":                     ComponentDir(ControllerManager) + "/kubernetes-ca.crt",
		"bind-address":                     "127.0.0.1",
		"tls-min-version":                  "VersionTLS13",
		"requestheader-client-ca-file":     ComponentDir(ControllerManager) + "/front-proxy-ca.crt",
		"client-ca-file":                   ComponentDir(ControllerManager) + "/kubernetes-ca.crt",
	}
	if c.PodCIDR != "" {
		flags["allocate-node-cidrs"] = "true"
		flags["cluster-cidr"] = c.PodCIDR
	}

	return formatFlags(withSettings(controllerManagerSettings(c.ControllerManagerSettings), flags))
}

// SchedulerFlags returns the flags of kube-scheduler.
func SchedulerFlags() []string {
	conf := ComponentKubeconfig(Scheduler)
	return formatFlags(map[string]string{
		"kubeconfig":                conf,
		"authentication-kubeconfig": conf,
		"authorization-kubeconfig":  conf,
		"leader-elect":              "true",
		// 1.4.1, 1.4.2.
		"profiling":                    "false",
		"bind-address":                 "127.0.0.1",
		"tls-min-version":              "VersionTLS13",
		"requestheader-client-ca-file": ComponentDir(Scheduler) + "/front-proxy-ca.crt",
		"client-ca-file":               ComponentDir(Scheduler) + "/kubernetes-ca.crt",
	})
}

// TaintUninitialized is the key of the taint with which a kubelet registers its Node if the cloud controller manager has to
// initialize it.
const TaintUninitialized = "node.cloudprovider.kubernetes.io/uninitialized"

// LabelExcluded of a Node makes controllers take it out of the load balancers of Services.
const LabelExcluded = "node.kubernetes.io/exclude-from-external-load-balancers"

// keepsWorkloadsAway reports whether a taint keeps the pods of users from a control-plane machine. Such a machine needs no
// connections from the load balancers of their Services, for which its ports would be opened to the internet.
func keepsWorkloadsAway(taint string) bool {
	return strings.HasPrefix(taint, "node-role.kubernetes.io/control-plane")
}

// KubeletFlags returns the flags of the kubelet; all other settings are in its configuration file.
// hostname-override is set because AWS images use the short host name, while certificates and Nodes
// use the private DNS name.
func KubeletFlags(c Config) []string {
	labels := maps.Clone(c.NodeLabels)
	if labels == nil {
		labels = map[string]string{}
	}

	labels["slipway.dev/group"] = c.Group
	if !c.ExternalNodeController {
		maps.Copy(labels, map[string]string{
			"topology.kubernetes.io/zone":      c.Zone,
			"topology.kubernetes.io/region":    c.Region,
			"node.kubernetes.io/instance-type": c.InstanceType,
		})
	}

	if c.Spot {
		labels["node.kubernetes.io/lifecycle"] = "spot"
	}

	if c.ControlPlane && slices.ContainsFunc(c.Taints, keepsWorkloadsAway) {
		labels[LabelExcluded] = ""
	}

	pairs := make([]string, 0, len(labels))
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, k+"="+labels[k])
	}

	flags := map[string]string{
		"config":            "/var/lib/kubelet/config.yaml",
		"config-dir":        ConfigDir + "/kubelet.conf.d",
		"kubeconfig":        KubeconfigPath("kubelet"),
		"hostname-override": c.NodeName,
		"node-ip":           c.Address,
		"node-labels":       strings.Join(pairs, ","),
	}
	if c.ExternalNodeController {
		flags["cloud-provider"] = "external"
	}

	maps.Copy(flags, credentialProviderFlags(c))

	return formatFlags(flags)
}
