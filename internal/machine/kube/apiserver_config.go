// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"encoding/base64"
	"strings"
)

// File is a configuration file with mode 0600 (CIS 1.1 and 4.1).
type File struct {
	// Path of the file on the machine.
	Path string
	// Body is the content.
	Body []byte
}

// APIServerConfigFiles returns the configuration files of kube-apiserver. The file with the
// encryption key is in SecretDir.
func APIServerConfigFiles(c Config) []File {
	files := []File{
		{ConfigDir + "/admission.yaml", []byte(admissionConfig)},
		{ConfigDir + "/audit-policy.yaml", []byte(auditPolicy)},
		{ConfigDir + "/authentication.yaml", []byte(authenticationConfig)},
		{SecretDir + "/encryption.yaml", []byte(encryptionConfig(c))},
	}
	if c.TokenReviewURL != "" {
		review := CertificateKubeconfig(c.TokenReviewURL, ComponentDir(APIServer), "apiserver-kubelet-client")
		files = append(files, File{tokenReviewConfig, review})
	}

	return files
}

// tokenReviewConfig is the kubeconfig with which kube-apiserver asks the agent whose a token is.
const tokenReviewConfig = ConfigDir + "/token-review.conf"

// Anonymous requests may only reach the health endpoints, which load balancers probe (CIS 1.2.1).
const authenticationConfig = `apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
anonymous:
  enabled: true
  conditions:
  - path: /livez
  - path: /readyz
  - path: /healthz
`

// The baseline level is enforced and the restricted level only warns; kube-system is exempt because
// it runs the network's privileged pods.
const admissionConfig = `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: EventRateLimit
  configuration:
    apiVersion: eventratelimit.admission.k8s.io/v1alpha1
    kind: Configuration
    limits:
    - type: Server
      qps: 5000
      burst: 20000
    - type: Namespace
      qps: 500
      burst: 1000
      cacheSize: 2000
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults:
      enforce: baseline
      enforce-version: latest
      audit: restricted
      audit-version: latest
      warn: restricted
      warn-version: latest
    exemptions:
      usernames: []
      runtimeClasses: []
      namespaces: [kube-system]
`

// Secrets, ConfigMaps, and token reviews are logged without bodies; exec, attach, and port-forward
// always (CIS 3.2.2). Health checks and the frequent reads of system components are not logged.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  nonResourceURLs: ["/livez*", "/readyz*", "/healthz*", "/version", "/openapi/*"]
- level: None
  users: ["system:apiserver", "system:kube-scheduler", "system:kube-controller-manager"]
  verbs: [get, list, watch]
  resources:
  - group: ""
    resources: [endpoints, services, nodes, pods, namespaces]
- level: None
  resources:
  - group: coordination.k8s.io
    resources: [leases]
- level: None
  resources:
  - group: ""
    resources: [events]
  - group: events.k8s.io
    resources: [events]
- level: Metadata
  resources:
  - group: ""
    resources: [secrets, configmaps, serviceaccounts/token]
  - group: authentication.k8s.io
    resources: [tokenreviews]
- level: Metadata
  resources:
  - group: ""
    resources: [pods/exec, pods/attach, pods/portforward, pods/proxy, services/proxy]
- level: Metadata
  verbs: [get, list, watch]
- level: Request
`

// encryptionConfig makes kube-apiserver encrypt Secrets with XSalsa20-Poly1305. Secrets stored
// unencrypted stay readable, and those of other clusters: they have the same prefix, and kube-apiserver tries one provider
// after the other.
func encryptionConfig(c Config) string {
	var providers strings.Builder
	for _, key := range append([][]byte{c.EncryptionKey}, c.FormerKeys...) {
		providers.WriteString(`  - secretbox:
      keys:
      - name: key1
        secret: ` + base64.StdEncoding.EncodeToString(key) + "\n")
	}

	return `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
` + providers.String() + `  - identity: {}
`
}
