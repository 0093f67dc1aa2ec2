// SPDX-License-Identifier: Apache-2.0

package manifests

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
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// Limits on a catalogue that is fetched by HTTP.
const (
	catalogTimeout = 30 * time.Second
	maxCatalogSize = 8 << 20
)

// LoadCatalog reads the asset catalogue at a path or URL; empty: the embedded one.
func LoadCatalog(ctx context.Context, from string) (asset.Catalog, error) {
	if from == "" {
		return asset.LoadEmbedded()
	}

	raw, err := readFileOrURL(ctx, from)
	if err != nil {
		return asset.Catalog{}, diag.WithHint(
			fmt.Errorf("read the asset catalogue: %w", err),
			"check --assets or SLIPWAY_ASSETS",
		)
	}

	return asset.ParseCatalog(raw)
}

// readFileOrURL reads a file, a file:// URL or an http(s) URL.
func readFileOrURL(ctx context.Context, place string) ([]byte, error) {
	if !strings.HasPrefix(place, "http://") && !strings.HasPrefix(place, "https://") {
		return os.ReadFile(strings.TrimPrefix(place, "file://"))
	}

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, place, nil)
	if err != nil {
		return nil, err
	}

	resp, err := (&http.Client{Timeout: catalogTimeout}).Do(req)
	if err != nil {
		return nil, err
	}

	defer func() { _ = resp.Body.Close() }() // it was read to its end
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("get %s: %s", place, resp.Status)
	}

	return io.ReadAll(io.LimitReader(resp.Body, maxCatalogSize))
}

// checkCatalog reports the architectures for which the catalogue lacks the cluster's version of Kubernetes.
func checkCatalog(set manifest.Set, c asset.Catalog) diag.Findings {
	var fs diag.Findings
	seen := map[string]bool{}

	for _, g := range set.Groups {
		arch := set.Arch(g.Spec.MachineType)
		version := manifest.GroupVersion(set.Cluster, g)
		path := "cluster/" + set.Cluster.Metadata.Name
		if g.Spec.KubernetesVersion != "" {
			path = "instancegroup/" + g.Metadata.Name
		}

		key := path + " " + arch
		if _, err := c.File("kubelet", version, arch); errors.Is(err, asset.ErrNotFound) && !seen[key] {
			fs.Errorf(
				path+": spec.kubernetesVersion",
				version,
				"use one of "+strings.Join(
					c.Versions("kubelet"),
					", ",
				)+", or set --assets to another catalogue",
				"is not in the asset catalogue for %s",
				arch,
			)
		}

		seen[key] = true
	}

	return fs
}
