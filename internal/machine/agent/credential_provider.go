// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// The kubelet's interface to credential providers:
// https://kubernetes.io/docs/reference/config-api/kubelet-credentialprovider.v1/
const credentialProviderVersion = "credentialprovider.kubelet.k8s.io/v1" //nolint:gosec // a version

// credentialCache is for how long the kubelet keeps credentials before it asks again. It is much
// shorter than what is left of a token that the agent is about to renew.
const credentialCache = 10 * time.Minute

// credentialRequest is what the kubelet writes to its credential provider.
type credentialRequest struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Image      string `json:"image"`
}

// credentialResponse is the answer.
type credentialResponse struct {
	APIVersion    string                       `json:"apiVersion"`
	Kind          string                       `json:"kind"`
	CacheKeyType  string                       `json:"cacheKeyType"`
	CacheDuration string                       `json:"cacheDuration"`
	Auth          map[string]registryAuthEntry `json:"auth"`
}

type registryAuthEntry struct {
	Username string `json:"username"`
	Password string `json:"password"`
}

// provideCredentials is the kubelet's credential provider. It only reads the token that the agent
// keeps: the kubelet runs it in its own control group, which does not reach the instance metadata
// service.
func provideCredentials(root *HostFS, env Env) error {
	if err := hardenProcess(); err != nil {
		return err
	}

	var request credentialRequest
	if err := json.NewDecoder(env.Stdin).Decode(&request); err != nil {
		return fmt.Errorf("read the kubelet's request: %w", err)
	}

	if request.Kind != "CredentialProviderRequest" ||
		request.APIVersion != credentialProviderVersion {
		return fmt.Errorf(
			"the kubelet's request is a %s of %s, want a CredentialProviderRequest of %s",
			request.Kind,
			request.APIVersion,
			credentialProviderVersion,
		)
	}

	host, _, _ := strings.Cut(request.Image, "/")
	t := readRegistryToken(root)
	if !t.isValidFor(host, env.Now(), 0) {
		// Nothing is cached, so that the next pull asks again.
		return fmt.Errorf(
			"the agent has no valid token for %s: read journalctl -u slipway-node",
			host,
		)
	}

	cached := min(credentialCache, t.Expires.Sub(env.Now())).Truncate(time.Second)
	answer := credentialResponse{
		APIVersion:    credentialProviderVersion,
		Kind:          "CredentialProviderResponse",
		CacheKeyType:  "Registry",
		CacheDuration: cached.String(),
		Auth:          map[string]registryAuthEntry{host: {Username: t.User, Password: t.Password}},
	}

	if err := json.NewEncoder(env.Stdout).Encode(answer); err != nil {
		return fmt.Errorf("answer the kubelet: %w", err)
	}

	return nil
}
