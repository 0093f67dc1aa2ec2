// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/lib/asset"
	"github.com/slipway-k8s/slipway/internal/lib/asset/pin"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/machine/node"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// PinImages returns a catalogue with digests for all images that the cluster's machines need. Those that the catalogue names
// by tag are looked up in their registry, or in the mirror that the manifests or the catalogue set.
func PinImages(ctx context.Context, env *cluster.Env, catalog asset.Catalog, set manifest.Set) (asset.Catalog, error) {
	registry := catalog.ContainerRegistry
	catalog.ContainerRegistry = cmp.Or(set.Cluster.Spec.Assets.ContainerRegistry, registry)
	from := pin.Registries{Transport: env.Registries, Keys: authn.DefaultKeychain}
	pinned, err := pin.Pin(ctx, catalog, neededImages(set), from)
	pinned.ContainerRegistry = registry
	if hint := node.MissingImageHint(err); hint != "" {
		return pinned, diag.WithHint(err, hint)
	}

	if err != nil && !errors.Is(err, asset.ErrNotFound) {
		err = diag.WithHint(err, "without access to the registry, give a catalogue with digests: "+
			"slipway assets mirror --to REGISTRY --out FILE writes one for --assets")
	}

	return pinned, err
}

// neededImages returns the images that the machines of all groups need, in order.
func neededImages(set manifest.Set) []pin.Need {
	type image struct{ name, version string }
	archs := map[image][]string{}

	for _, g := range set.Groups {
		if g.Spec.Role == v1alpha1.RoleBastion {
			continue // it runs no containers
		}

		arch := set.Arch(g.Spec.MachineType)
		for name, version := range node.ImageVersions(set.Cluster.Spec, g.Spec) {
			key := image{name, version}
			if !slices.Contains(archs[key], arch) {
				archs[key] = append(archs[key], arch)
			}
		}
	}

	byName := func(a, b image) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.version, b.version)) }
	var needs []pin.Need
	for _, key := range slices.SortedFunc(maps.Keys(archs), byName) {
		needs = append(needs, pin.Need{Name: key.name, Version: key.version, Archs: archs[key]})
	}

	return needs
}

// PinImages makes the change also write digests for the images that after needs, unless the catalogue has them.
func (c Change) PinImages(ctx context.Context, env *cluster.Env, after manifest.Set) (Change, error) {
	pinned, err := PinImages(ctx, env, c.catalog, after)
	if err != nil {
		return c, err
	}

	lines := describePinned(c.catalog, pinned)
	if len(lines) > 0 {
		c = c.WithCatalog(pinned)
		c.pinned = lines
	}

	return c, nil
}

// describePinned returns the images that have digests in after and none in before, one line each.
func describePinned(before, after asset.Catalog) []string {
	var lines []string
	for at, i := range after.Images {
		if len(i.Digests) == 0 || len(before.Images[at].Digests) > 0 {
			continue
		}

		var digests []string
		for _, arch := range slices.Sorted(maps.Keys(i.Digests)) {
			digests = append(digests, arch+" "+i.Digests[arch])
		}

		lines = append(lines, fmt.Sprintf("image %s %s: %s -> %s", i.Name, i.Version, i.Ref, strings.Join(digests, ", ")))
	}

	return lines
}
