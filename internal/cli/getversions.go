// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster/manifests"
	"github.com/slipway-k8s/slipway/internal/lib/asset"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// kubernetesRelease is a version of Kubernetes that a cluster can have.
type kubernetesRelease struct {
	// Version without "v".
	Version string `json:"version"`
	// Default is set for the version of a new cluster for which none is given.
	Default bool `json:"default,omitempty"`
	// Architectures for which the catalogue has it, as in GOARCH.
	Architectures []string `json:"architectures"`
}

func newGetVersionsCommand(a *app) *cobra.Command {
	var o getOptions
	cmd := &cobra.Command{
		Use:     "versions",
		Aliases: []string{"version"},
		Short:   "List the versions of Kubernetes that clusters can have",
		Long: `List the versions of Kubernetes in the asset catalogue, for --kubernetes-version of 'slipway create cluster' and
'slipway upgrade cluster'. A minor version such as 1.36 stands for its newest patch in the catalogue. 'slipway assets build'
adds versions to the catalogue of a local region. Makes no call to AWS.` + getFormatsHelp + exitStatusHelp(),
		Example: "  slipway get versions\n  slipway get versions -o json",
		Args:    requireNoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return lister{a}.runGet(cmd.Context(), o, func(ctx context.Context) ([]resourceList, error) {
				catalog, err := manifests.LoadCatalog(ctx, a.catalogSource())

				return []resourceList{versionList(releasesOf(catalog))}, err
			})
		},
	}

	addFormatFlag(cmd, &o.format, formatTable, formatWide, formatJSON, formatYAML, formatName)
	a.addAssetsFlag(cmd)

	return cmd
}

// releasesOf returns the versions of Kubernetes in a catalogue, the newest first.
func releasesOf(catalog asset.Catalog) []kubernetesRelease {
	var out []kubernetesRelease
	for _, version := range catalog.Versions("kubelet") {
		r := kubernetesRelease{Version: version, Default: version == manifest.DefaultKubernetesVersion}
		for _, f := range catalog.Files {
			if f.Name == "kubelet" && f.Version == version && !slices.Contains(r.Architectures, f.Arch) {
				r.Architectures = append(r.Architectures, f.Arch)
			}
		}

		slices.Sort(r.Architectures)
		out = append(out, r)
	}

	slices.SortFunc(out, func(x, y kubernetesRelease) int { return asset.CompareVersions(y.Version, x.Version) })

	return out
}

func versionList(releases []kubernetesRelease) resourceList {
	list := resourceList{
		kind:   "version",
		header: []string{"VERSION", "DEFAULT", "ARCHITECTURES"},
		empty:  "the asset catalogue has no version of Kubernetes",
	}
	for _, r := range releases {
		isDefault := ""
		if r.Default {
			isDefault = "yes"
		}

		list.items = append(list.items, resourceItem{
			name:     r.Version,
			cells:    dashIfEmpty([]string{r.Version, isDefault, strings.Join(r.Architectures, ",")}),
			document: r,
		})
	}

	return list
}
