// SPDX-License-Identifier: Apache-2.0

package addons

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/ecraddress"
	"github.com/slipway-k8s/slipway/internal/machine/addon/published"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// ErrFollowed is the cause of errors about channels whose add-ons only the control plane reads.
var ErrFollowed = errors.New("the channel names a source, which the control plane reads")

// LoadForPublication returns a channel as Load does, or the name and the source of a channel that
// the control plane follows.
func (s *Session) LoadForPublication(ctx context.Context, text []byte, directory string) (Channel, error) {
	parsed, findings := manifest.ParseAddonChannel(text)
	if err := findings.Err(); err != nil {
		return Channel{}, err
	}

	if parsed.Spec.Source == nil {
		return s.Load(ctx, text, directory)
	}

	source, err := s.publishedSource(ctx, *parsed.Spec.Source)
	if err != nil {
		return Channel{}, fmt.Errorf("channel %s: %w", parsed.Metadata.Name, err)
	}

	return Channel{Name: parsed.Metadata.Name, Source: &source}, nil
}

// publishedSource returns a source as the control plane gets it: with its credentials and the
// values of the cluster.
func (s *Session) publishedSource(ctx context.Context, from v1alpha1.AddonChannelSource) (published.Source, error) {
	values, err := s.clusterValues(ctx, nil)
	if err != nil {
		return published.Source{}, err
	}

	if id := s.Cluster.Spec.Networking.NetworkID; id != "" {
		values[manifest.AddonVPC] = id
	}

	out := published.Source{
		OCI:        from.OCI,
		Git:        from.Git,
		Ref:        from.Ref,
		Path:       from.Path,
		Interval:   manifest.AddonSourceInterval(from),
		PublicKeys: from.PublicKeys,
		Values:     values,
	}

	host := manifest.AddonSourceHost(from)
	if from.Credentials == "" {
		return out, s.checkMachinesPull(from.OCI)
	}

	config, err := s.readSecret(ctx, from.Credentials)
	if err != nil {
		return published.Source{}, err
	}

	out.Credentials, err = credentialsFor(config, host)
	if err != nil {
		return published.Source{}, fmt.Errorf("registry secret %s: %w", from.Credentials, err)
	}

	return out, nil
}

// checkMachinesPull refuses an artifact in Amazon ECR that the role of the machines cannot read: it
// names the repositories below the container registry of the cluster.
func (s *Session) checkMachinesPull(reference string) error {
	registry := s.Cluster.Spec.Assets.ContainerRegistry
	_, address, _ := strings.Cut(reference, "://")
	if _, isECR := ecraddress.Parse(address); !isECR || registry != "" && strings.HasPrefix(address, strings.TrimSuffix(registry, "/")+"/") {
		return nil
	}

	return diag.WithHint(
		fmt.Errorf("the role of the machines cannot read %s: it is not below spec.assets.containerRegistry %q", reference, registry),
		"push the artifact to a repository below the container registry of the cluster",
	)
}

// credentialsFor returns the credentials that a config.json has for a host.
func credentialsFor(config []byte, host string) (published.Credentials, error) {
	logins, err := parseLogins(config)
	if err != nil {
		return published.Credentials{}, err
	}

	for _, key := range slices.Sorted(maps.Keys(logins)) {
		a := logins[key]
		name := strings.TrimPrefix(strings.TrimPrefix(key, "https://"), "http://")
		name, _, _ = strings.Cut(name, "/")
		if name != host {
			continue
		}

		out := published.Credentials{User: a.Username, Password: a.Password}
		if a.Auth != "" {
			text, err := base64.StdEncoding.DecodeString(a.Auth)
			user, password, found := strings.Cut(string(text), ":")
			if err != nil || !found {
				return published.Credentials{}, fmt.Errorf("auths[%s].auth is not USER:PASSWORD in base64", key)
			}

			out = published.Credentials{User: user, Password: password}
		}

		if out.User != "" && out.Password != "" {
			return out, nil
		}
	}

	return published.Credentials{}, diag.WithHint(
		fmt.Errorf("it has no user name and password for %s", host),
		"write them into the file of the secret: slipway addons secrets set",
	)
}
