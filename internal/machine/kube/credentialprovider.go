// SPDX-License-Identifier: Apache-2.0

package kube

// CredentialProviderConfigPath is the file that tells the kubelet which program knows the
// credentials of a registry.
const CredentialProviderConfigPath = ConfigDir + "/credential-provider.yaml"

// The agent is that program: the kubelet runs it with this argument.
const (
	CredentialProviderProgram = "slipway-node"
	CredentialProviderCommand = "credential-provider" //nolint:gosec // an argument
)

// CredentialProviderConfig returns the configuration of the kubelet's credential provider for the
// registry with a host name. The kubelet keeps credentials for as long as the agent says.
func CredentialProviderConfig(registry string) []byte {
	return []byte(`apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: ` + CredentialProviderProgram + `
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  args: [` + CredentialProviderCommand + `]
  matchImages: ["` + registry + `"]
  defaultCacheDuration: 0s
`)
}

// credentialProviderFlags returns the flags of a kubelet that pulls from a private registry. The
// agent is next to the other programs.
func credentialProviderFlags(c Config) map[string]string {
	if c.PrivateRegistry == "" {
		return nil
	}

	return map[string]string{
		"image-credential-provider-config":  CredentialProviderConfigPath,
		"image-credential-provider-bin-dir": c.binDir(),
	}
}
