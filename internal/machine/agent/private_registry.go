// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/ecraddress"
	"github.com/slipway-k8s/slipway/internal/lib/ecrlogin"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// registryTokenPath is the file with the token of the private registry that the machine's images
// come from. It is on a tmpfs, and only root can read it: it is never on a disk
// (docs/design/0025-private-registries.md).
const registryTokenPath = "/run/slipway/registry-token.json" //nolint:gosec // the path of a file

// A token is valid for 12 hours. The agent renews it when half of that is left, so that an outage
// of Amazon ECR that is shorter has no effect.
const registryTokenRenewal = 6 * time.Hour

// sandboxImage is the name of the image that every pod's sandbox runs. containerd pulls it without
// credentials, so the agent pulls it from a private registry.
const sandboxImage = "pause"

// registryToken is the content of the file with the token.
type registryToken struct {
	Registry string    `json:"registry"` // host name
	User     string    `json:"user"`
	Password string    `json:"password"`
	Expires  time.Time `json:"expires"`
}

// isValidFor reports whether the token is one for a registry, and will be for a while.
func (t registryToken) isValidFor(host string, now time.Time, while time.Duration) bool {
	return t.Registry == host && t.Password != "" && now.Add(while).Before(t.Expires)
}

// privateRegistry returns the registry in Amazon ECR that a machine's images come from, and whether
// they do.
func privateRegistry(d node.Document) (ecraddress.Registry, bool) {
	for _, name := range slices.Sorted(maps.Keys(d.Images)) {
		if registry, ok := ecraddress.Parse(d.Images[name]); ok {
			return registry, true
		}
	}

	return ecraddress.Registry{}, false
}

// readRegistryToken returns the stored token; the zero token if there is none.
func readRegistryToken(root *HostFS) registryToken {
	var t registryToken
	body, err := root.Read(registryTokenPath)
	if err != nil || json.Unmarshal(body, &t) != nil {
		return registryToken{}
	}

	return t
}

// getRegistryToken returns a new token of a registry.
func getRegistryToken(
	ctx context.Context,
	a *Agent,
	registry ecraddress.Registry,
) (registryToken, error) {
	got, err := ecrlogin.GetToken(ctx, a.Registry(registry.Region))
	if err != nil {
		return registryToken{}, fmt.Errorf("get a token for %s: %w", registry.Host, err)
	}

	return registryToken{
		Registry: registry.Host,
		User:     got.User,
		Password: got.Password,
		Expires:  got.Expires,
	}, nil
}

// keepRegistryToken renews the stored token when it is due. Without a private registry it removes
// it.
func keepRegistryToken(ctx context.Context, a *Agent) error {
	registry, ok := privateRegistry(a.doc)
	if !ok {
		return a.Root.Remove(registryTokenPath)
	}

	if readRegistryToken(a.Root).isValidFor(registry.Host, a.Now(), registryTokenRenewal) {
		return nil
	}

	t, err := getRegistryToken(ctx, a, registry)
	if err != nil {
		return err
	}

	body, err := json.Marshal(t) //nolint:gosec // the file is where the token is kept
	if err != nil {
		return fmt.Errorf("encode the token for %s: %w", registry.Host, err)
	}

	_, err = a.Root.Write(File{Path: registryTokenPath, Body: body, Mode: 0o600})

	return err
}

// keepRegistry renews the token of a private registry, and pulls the image of sandboxes if it is
// missing.
func keepRegistry(ctx context.Context, a *Agent) error {
	if err := keepRegistryToken(ctx, a); err != nil {
		return err
	}

	ref := a.doc.Images[sandboxImage]
	registry, ok := ecraddress.Parse(ref)
	if !ok {
		return nil
	}

	has, err := a.Images.Has(ctx, ref)
	if err != nil || has {
		return err
	}

	return pullPrivateImage(ctx, a, registry, ref)
}

// pullPrivateImage pulls an image from a private registry. The token reaches containerd over its
// socket: it is in no command line and in no log.
func pullPrivateImage(
	ctx context.Context,
	a *Agent,
	registry ecraddress.Registry,
	ref string,
) error {
	t := readRegistryToken(a.Root)
	if !t.isValidFor(registry.Host, a.Now(), pullTimeout) {
		var err error
		if t, err = getRegistryToken(ctx, a, registry); err != nil {
			return fmt.Errorf("pull image %s: %w", ref, err)
		}
	}

	return a.Images.Pull(ctx, ref, registryCredentials{User: t.User, Password: t.Password})
}
