// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/asset"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// Limits on a catalogue that is fetched.
const (
	catalogTimeout = 30 * time.Second
	maxCatalogSize = 8 << 20
)

// catalogSource is --assets, else SLIPWAY_ASSETS, else "".
func (a *app) catalogSource() string { return a.flagOrEnv(a.assets, "SLIPWAY_ASSETS") }

// loadCatalog reads the catalogue that was given, else the built-in one.
func (a *app) loadCatalog(ctx context.Context) (asset.Catalog, error) {
	from := a.catalogSource()
	if from == "" {
		return asset.LoadEmbedded()
	}

	raw, err := readFileOrURL(ctx, from)
	if err != nil {
		return asset.Catalog{}, withHint(
			fmt.Errorf("read the asset catalogue: %w", err),
			"check --assets or SLIPWAY_ASSETS",
		)
	}

	return asset.ParseCatalog(raw)
}

// readPinnedCatalog reads the catalogue that a cluster was created with.
func readPinnedCatalog(ctx context.Context, s store.Store, cluster string) (asset.Catalog, error) {
	o, err := s.Get(ctx, manifest.AssetsKey(cluster))
	if err != nil {
		return asset.Catalog{}, err
	}

	c, err := asset.ParseCatalog(o.Body)
	if err != nil {
		return asset.Catalog{}, fmt.Errorf("read %s: %w", o.Key, err)
	}

	return c, nil
}

// readFileOrURL reads a file or an http(s) URL.
func readFileOrURL(ctx context.Context, place string) ([]byte, error) {
	if !strings.HasPrefix(place, "http://") && !strings.HasPrefix(place, "https://") {
		return os.ReadFile(strings.TrimPrefix(place, "file://"))
	}

	ctx, cancel := context.WithTimeout(ctx, catalogTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, place, nil)
	if err != nil {
		return nil, err
	}

	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}

	defer resp.Body.Close() //nolint:errcheck // read to its end
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("get %s: %s", place, resp.Status)
	}

	return io.ReadAll(io.LimitReader(resp.Body, maxCatalogSize))
}

// checkCatalog reports architectures for which the catalogue lacks the cluster's version of Kubernetes.
func checkCatalog(set manifest.Set, c asset.Catalog) diag.Findings {
	var fs diag.Findings
	version := set.Cluster.Spec.KubernetesVersion
	seen := map[string]bool{}

	for _, g := range set.Groups {
		arch := manifest.InstanceTypeArch(g.Spec.MachineType)
		if _, err := c.File("kubelet", version, arch); errors.Is(err, asset.ErrNotFound) && !seen[arch] {
			fs.Errorf(
				"cluster/"+set.Cluster.Metadata.Name+": spec.kubernetesVersion",
				version,
				"it has "+strings.Join(
					c.Versions("kubelet"),
					", ",
				)+"; --assets gives another catalogue",
				"is not in the asset catalogue for %s",
				arch,
			)
		}

		seen[arch] = true
	}

	return fs
}
