// SPDX-License-Identifier: Apache-2.0

package addons

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// secretOperation is a change of a registry secret in the journal.
const secretOperation = "addon-secret"

// RegistrySecret is a secret with which machines pull images from private registries, as it is given to namespaces.
type RegistrySecret struct {
	// Name of the secret, and of the Secrets in the namespaces.
	Name string `json:"name"`
	// Registries that it has credentials for, sorted. Empty in lists: the secrets stay encrypted.
	Registries []string `json:"registries,omitempty"`

	config []byte
}

// registryLogin is what a config.json has for one registry.
type registryLogin struct {
	Auth          string `json:"auth"` // user name and password, in base64
	Username      string `json:"username"`
	Password      string `json:"password"`
	IdentityToken string `json:"identitytoken"`
}

// parseLogins returns the logins in a config.json, by the registry as the file names it.
func parseLogins(config []byte) (map[string]registryLogin, error) {
	var parsed struct {
		Auths map[string]registryLogin `json:"auths"`
	}
	if err := json.Unmarshal(config, &parsed); err != nil {
		return nil, errors.New("the file is not JSON") // the error may quote a password
	}

	return parsed.Auths, nil
}

// ParseRegistrySecret returns a secret with the content of a config.json, as docker login writes it. Credentials that are
// in a helper or store of the computer are not in such a file, and refused.
func ParseRegistrySecret(name string, config []byte) (RegistrySecret, error) {
	if err := manifest.CheckRegistrySecretName(name); err != nil {
		return RegistrySecret{}, fmt.Errorf("registry secret %q: %w", name, err)
	}

	logins, err := parseLogins(config)
	if err != nil {
		return RegistrySecret{}, fmt.Errorf("registry secret %s: %w", name, err)
	}

	registries := slices.Sorted(maps.Keys(logins))
	if len(registries) == 0 {
		return RegistrySecret{}, diag.WithHint(
			fmt.Errorf("registry secret %s: the file has no registries in auths", name),
			"give a file as docker login writes it, without a credential store: "+
				`{"auths": {"registry.example.com": {"username": "...", "password": "..."}}}`,
		)
	}

	for _, registry := range registries {
		a := logins[registry]
		if a.Auth == "" && a.IdentityToken == "" && (a.Username == "" || a.Password == "") {
			return RegistrySecret{}, diag.WithHint(
				fmt.Errorf("registry secret %s: auths[%s] has no credentials", name, registry),
				"docker login has put them into a credential store: write username and password into the file",
			)
		}
	}

	return RegistrySecret{Name: name, Registries: registries, config: config}, nil
}

// secretsPrefix returns the prefix of the keys of a cluster's registry secrets in the state store.
func (s *Session) secretsPrefix() string {
	return clusterstate.AddonPrefix(s.Cluster.Metadata.Name) + secretsDirectory
}

// secretContext returns the context to which a registry secret is sealed.
func (s *Session) secretContext(name string) map[string]string {
	return map[string]string{"slipway.dev/cluster": s.Cluster.Metadata.Name, "slipway.dev/addon-secret": name}
}

// SetSecret encrypts a registry secret, signs it and writes it into the state store. One of the same name is replaced.
func (s *Session) SetSecret(ctx context.Context, secret RegistrySecret) error {
	sealed, err := s.sealer.Seal(ctx, secret.config, s.secretContext(secret.Name))
	if err != nil {
		return fmt.Errorf("registry secret %s: %w", secret.Name, err)
	}

	return s.write(ctx, secretOperation, s.secretsPrefix()+secret.Name, sealed)
}

// Secrets returns the registry secrets of the cluster, sorted by name.
func (s *Session) Secrets(ctx context.Context) ([]RegistrySecret, error) {
	keys, err := s.state.List(ctx, s.secretsPrefix())
	if err != nil {
		return nil, err
	}

	var out []RegistrySecret
	for _, key := range keys {
		out = append(out, RegistrySecret{Name: strings.TrimPrefix(key, s.secretsPrefix())})
	}

	return out, nil
}

// DeleteSecret deletes a registry secret from the state store. Namespaces keep theirs until the next apply of their channel.
func (s *Session) DeleteSecret(ctx context.Context, name string) error {
	return s.write(ctx, secretOperation, s.secretsPrefix()+name, nil)
}

// HasSecret reports whether the state store has a registry secret of this name.
func (s *Session) HasSecret(ctx context.Context, name string) (bool, error) {
	_, err := s.state.Get(ctx, s.secretsPrefix()+name)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}

	return err == nil, err
}

// readSecret returns the decrypted content of a registry secret.
func (s *Session) readSecret(ctx context.Context, name string) ([]byte, error) {
	object, err := s.state.Get(ctx, s.secretsPrefix()+name)
	if errors.Is(err, store.ErrNotFound) {
		return nil, diag.WithHint(err, "write it first: slipway addons secrets set "+name+" -f config.json")
	}

	if err != nil {
		return nil, err
	}

	if err := s.verify(ctx, object); err != nil {
		return nil, err
	}

	text, err := s.sealer.Open(ctx, object.Body, s.secretContext(name))
	if err != nil {
		return nil, fmt.Errorf("decrypt %s: %w", object.Key, err)
	}

	return text, nil
}
