// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"crypto/tls"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

func config() kube.Config {
	return kube.Config{
		NodeName: "ip-10-80-0-4.ec2.internal", Address: "10.80.0.4", Zone: "us-east-1a", Region: "us-east-1", InstanceID: "i-1",
		InstanceType: "t3.large", Group: "control-plane", MemoryMiB: 8192, CPUs: 2, ControlPlane: true,
		APIServer: "https://127.0.0.1:6443", EtcdURL: "https://127.0.0.1:2379", PodCIDR: "10.244.0.0/16", ServiceCIDR: "10.96.0.0/16",
		DNSIP: "10.96.0.10", DNSDomain: "cluster.local", ResolvConf: "/etc/resolv.conf", EncryptionKey: []byte(strings.Repeat("k", 32)),
		Images: map[string]string{"kube-apiserver": "a:1", "kube-controller-manager": "c:1", "kube-scheduler": "s:1", "pause": "p:1"},
		Taints: []string{"node-role.kubernetes.io/control-plane=:NoSchedule"},
	}
}

// TestCISFlags checks the controls of the CIS Kubernetes benchmark 1.12 that concern flags. In
// want, "" means that the flag must be set to any value, and "-" that it must not be set.
func TestCISFlags(t *testing.T) {
	c := config()
	parts := map[string][]string{
		"apiserver": kube.APIServerFlags(c), "kcm": kube.ControllerManagerFlags(c), "scheduler": kube.SchedulerFlags(),
	}
	for _, row := range []struct{ id, part, flag, want string }{
		{"1.2.1", "apiserver", "authentication-config", ""},
		{"1.2.1", "apiserver", "anonymous-auth", "-"}, // conflicts with the configuration file
		{"1.2.2", "apiserver", "token-auth-file", "-"},
		{"1.2.3", "apiserver", "enable-admission-plugins", "DenyServiceExternalIPs"},
		{"1.2.4", "apiserver", "kubelet-client-certificate", ""},
		{"1.2.4", "apiserver", "kubelet-client-key", ""},
		{"1.2.5", "apiserver", "kubelet-certificate-authority", ""},
		{"1.2.6-8", "apiserver", "authorization-mode", "Node,RBAC"},
		{"1.2.9", "apiserver", "enable-admission-plugins", "EventRateLimit"},
		{"1.2.10", "apiserver", "enable-admission-plugins", "!AlwaysAdmit"},
		{"1.2.12", "apiserver", "disable-admission-plugins", "-"},
		{"1.2.13", "apiserver", "disable-admission-plugins", "-"},
		{"1.2.14", "apiserver", "enable-admission-plugins", "NodeRestriction"},
		{"1.2.15", "apiserver", "profiling", "false"},
		{"1.2.16", "apiserver", "audit-log-path", ""},
		{"1.2.17", "apiserver", "audit-log-maxage", "30"},
		{"1.2.18", "apiserver", "audit-log-maxbackup", "10"},
		{"1.2.19", "apiserver", "audit-log-maxsize", "100"},
		{"1.2.20", "apiserver", "request-timeout", "60s"},
		{"1.2.21", "apiserver", "service-account-lookup", "true"},
		{"1.2.22", "apiserver", "service-account-key-file", "/run/slipway/kube-apiserver/service-account.pub"},
		{"1.2.23", "apiserver", "etcd-certfile", ""},
		{"1.2.23", "apiserver", "etcd-keyfile", ""},
		{"1.2.24", "apiserver", "tls-cert-file", ""},
		{"1.2.24", "apiserver", "tls-private-key-file", ""},
		{"1.2.25", "apiserver", "client-ca-file", ""},
		{"1.2.26", "apiserver", "etcd-cafile", ""},
		{"1.2.27", "apiserver", "encryption-provider-config", ""},
		{"1.2.29", "apiserver", "tls-min-version", "VersionTLS12"}, // see TestAPIServerSpeaksToHealthChecks
		{"1.2.29", "apiserver", "tls-cipher-suites", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"},
		{"1.2.30", "apiserver", "service-account-extend-token-expiration", "false"},
		{"1.3.1", "kcm", "terminated-pod-gc-threshold", "100"},
		{"1.3.2", "kcm", "profiling", "false"},
		{"1.3.3", "kcm", "use-service-account-credentials", "true"},
		{"1.3.4", "kcm", "service-account-private-key-file", "/run/slipway/kube-controller-manager/service-account.key"}, // see TestControllerManagerWithoutKey
		{"1.3.5", "kcm", "root-ca-file", ""},
		{"1.3.6", "kcm", "feature-gates", "-"}, // RotateKubeletServerCertificate is on by default
		{"1.3.7", "kcm", "bind-address", "127.0.0.1"},
		{"1.4.1", "scheduler", "profiling", "false"},
		{"1.4.2", "scheduler", "bind-address", "127.0.0.1"},
		{"3.2.1", "apiserver", "audit-policy-file", ""},
	} {
		t.Run(row.id+" "+row.flag, func(t *testing.T) {
			value, found := flag(parts[row.part], row.flag)
			switch {
			case row.want == "-":
				if found {
					t.Errorf("--%s=%s must not be set", row.flag, value)
				}
			case !found || value == "":
				t.Errorf("--%s is not set", row.flag)
			case strings.HasPrefix(row.want, "!"):
				if slices.Contains(strings.Split(value, ","), row.want[1:]) {
					t.Errorf("--%s=%s has %s", row.flag, value, row.want[1:])
				}
			case row.want != "" && value != row.want && !slices.Contains(strings.Split(value, ","), row.want):
				t.Errorf("--%s=%s, want %s", row.flag, value, row.want)
			}
		})
	}
}

// TestAPIServerSpeaksToHealthChecks: AWS's health checks cannot speak TLS 1.3. Every suite of TLS 1.2 must have
// authenticated encryption, and HTTP/2 requires one of them.
func TestAPIServerSpeaksToHealthChecks(t *testing.T) {
	args := kube.APIServerFlags(config())
	if version, _ := flag(args, "tls-min-version"); version != "VersionTLS12" {
		t.Errorf("--tls-min-version=%s rejects health checks", version)
	}
	list, _ := flag(args, "tls-cipher-suites")
	if !strings.Contains(list, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256") {
		t.Errorf("--tls-cipher-suites=%s lacks the suite that HTTP/2 requires", list)
	}
	safe := map[string]bool{}
	for _, suite := range tls.CipherSuites() {
		safe[suite.Name] = strings.Contains(suite.Name, "_GCM_") || strings.Contains(suite.Name, "_POLY1305_")
	}
	for name := range strings.SplitSeq(list, ",") {
		if !safe[name] {
			t.Errorf("--tls-cipher-suites has %s", name)
		}
	}
}

func flag(args []string, name string) (string, bool) {
	for _, a := range args {
		if key, value, _ := strings.Cut(a, "="); key == "--"+name {
			return value, true
		}
	}
	return "", false
}

// TestCISKubelet checks section 4.2 on the configuration file.
func TestCISKubelet(t *testing.T) {
	body, err := kube.KubeletConfig(config())
	if err != nil {
		t.Fatal(err)
	}
	var conf map[string]any
	if err := yaml.Unmarshal(body, &conf); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		id, path string
		want     any
	}{
		{"4.2.1", "authentication.anonymous.enabled", false},
		{"4.2.2", "authorization.mode", "Webhook"},
		{"4.2.3", "authentication.x509.clientCAFile", "/run/slipway/pki/kubernetes-ca.crt"},
		{"4.2.4", "readOnlyPort", float64(0)},
		{"4.2.5", "streamingConnectionIdleTimeout", "5m0s"},
		{"4.2.6", "makeIPTablesUtilChains", true},
		{"4.2.8", "eventRecordQPS", float64(50)},
		{"4.2.9", "tlsCertFile", "/run/slipway/pki/kubelet.crt"},
		{"4.2.9", "tlsPrivateKeyFile", "/run/slipway/pki/kubelet.key"},
		{"4.2.10", "rotateCertificates", nil}, // the control fails on false only; the agent rotates certificates
		{"4.2.12", "tlsMinVersion", "VersionTLS13"},
		{"4.2.13", "podPidsLimit", float64(4096)},
		{"4.2.14", "seccompDefault", true},
		{"protect kernel defaults", "protectKernelDefaults", true},
	} {
		t.Run(row.id+" "+row.path, func(t *testing.T) {
			var value any = conf
			for key := range strings.SplitSeq(row.path, ".") {
				m, ok := value.(map[string]any)
				if !ok {
					t.Fatalf("%s is not set", row.path)
				}
				value = m[key]
			}
			if value != row.want {
				t.Errorf("%s is %v, want %v", row.path, value, row.want)
			}
		})
	}
}

// TestStaticPods checks that static pods contain their flags and drop unneeded privileges.
func TestStaticPods(t *testing.T) {
	pods, err := kube.StaticPods(config())
	if err != nil {
		t.Fatal(err)
	}
	if len(pods) != 3 {
		t.Fatalf("%d static pods, want 3", len(pods))
	}
	for _, p := range pods {
		for _, want := range []string{"hostNetwork: true", "drop:\n        - ALL", "readOnlyRootFilesystem: true", "livenessProbe", "startupProbe", "system-node-critical"} {
			if !strings.Contains(string(p.Body), want) {
				t.Errorf("%s lacks %q", p.Path, want)
			}
		}
		if strings.Contains(string(p.Body), "privileged: true") {
			t.Errorf("%s is privileged", p.Path)
		}
	}
}

func TestTaintsAreChecked(t *testing.T) {
	c := config()
	c.Taints = []string{"no-effect"}
	if _, err := kube.KubeletConfig(c); err == nil || !strings.Contains(err.Error(), "no-effect") {
		t.Errorf("got %v, want an error that names the taint", err)
	}
}

// TestNoSecretOutsideTheTmpfs checks that only one file contains the encryption key, and that it is
// on the tmpfs.
func TestNoSecretOutsideTheTmpfs(t *testing.T) {
	const encoded = "a2tra2tra2tra2tr" // kkkkkkkkkkkk
	for _, f := range kube.APIServerConfigFiles(config()) {
		if strings.Contains(string(f.Body), encoded) != strings.HasPrefix(f.Path, kube.SecretDir) {
			t.Errorf("%s: contains the encryption key outside the tmpfs", f.Path)
		}
	}
}
