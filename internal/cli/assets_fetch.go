// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster/manifests"
	"github.com/slipway-k8s/slipway/internal/lib/asset"
	"github.com/slipway-k8s/slipway/internal/lib/asset/build"
	"github.com/slipway-k8s/slipway/internal/lib/asset/fetch"
)

// assetsFetcher is the command assets fetch.
type assetsFetcher struct {
	*app
	out        string
	arch       string
	kubernetes []string

	fileRepository    string
	containerRegistry string
}

func newAssetsFetchCommand(a *app) *cobra.Command {
	f := assetsFetcher{app: a}
	cmd := &cobra.Command{
		Use:   "fetch",
		Short: "Download upstream's releases of Kubernetes, etcd, containerd and the images of the core add-ons",
		Long: `Download everything that the machines of the local region download: the files that Kubernetes, etcd, containerd, runc and
the CNI project publish, and their container images. It takes a minute or two where 'slipway assets build' compiles for 25 minutes.

Every file is checked against the hash of the asset catalogue: the built-in one, or that of --assets. Images are pinned by
the digest that their tag has when they are downloaded. Files that exist already are not downloaded again.

--file-repository and --container-registry download from mirrors: https://dl.k8s.io/x becomes FILE-REPOSITORY/dl.k8s.io/x, and
registry.k8s.io/x becomes CONTAINER-REGISTRY/registry.k8s.io/x.` + exitStatusHelp(),
		Example: "  slipway assets fetch\n  slipway assets fetch --kubernetes-version 1.35\n" +
			"  slipway assets fetch --file-repository https://mirror.example.com/files --container-registry mirror.example.com",
		Args: requireNoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context()) },
	}

	flags := cmd.Flags()
	flags.StringSliceVar(
		&f.kubernetes,
		"kubernetes-version",
		nil,
		"also download this version of Kubernetes, such as 1.35; repeatable",
	)

	flags.StringVar(&f.out, "out", "", "output directory (default: assets in the cache directory)")
	flags.StringVar(&f.arch, "arch", runtime.GOARCH, "architecture of the machines: amd64 or arm64")
	flags.StringVar(&f.fileRepository, "file-repository", "", "base URL of a mirror of all files")
	flags.StringVar(&f.containerRegistry, "container-registry", "", "a mirror of all image registries, HOST[:PORT][/PATH]")
	a.addAssetsFlag(cmd)

	return cmd
}

// run downloads the assets and prints the path of their catalogue.
func (f assetsFetcher) run(ctx context.Context) error {
	if f.out == "" {
		cache, err := f.cacheDir()
		if err != nil {
			return err
		}

		f.out = assetsDir(cache)
	}

	catalog, err := f.loadCatalog(ctx)
	if err != nil {
		return err
	}

	r, err := fetch.Run(ctx, fetch.Options{
		Catalog:           catalog,
		Out:               f.out,
		Arch:              f.arch,
		Kubernetes:        f.kubernetes,
		FileRepository:    build.DefaultFileRepository,
		ContainerRegistry: build.DefaultContainerRegistry,
		Transport:         http.DefaultTransport,
		Log:               f.Stderr,
		Clock:             f.Now,
	})
	if err != nil {
		return withHint(err, "run it again to continue; without access to the internet, name mirrors or use: slipway assets build")
	}

	fmt.Fprintln(f.Stdout, r.Catalog)

	return nil
}

// loadCatalog returns the catalogue of what to download, with the addresses of the mirrors.
func (f assetsFetcher) loadCatalog(ctx context.Context) (asset.Catalog, error) {
	source := f.catalogSource()
	if path, err := filepath.Abs(source); err == nil && source != "" && path == filepath.Join(f.out, "catalog.yaml") {
		return asset.Catalog{}, withHint(
			fmt.Errorf("--assets (SLIPWAY_ASSETS) is %s, the catalogue of what is downloaded", source),
			"unset SLIPWAY_ASSETS to download the versions of the built-in catalogue",
		)
	}

	catalog, err := manifests.LoadCatalog(ctx, source)
	if err != nil {
		return asset.Catalog{}, err
	}

	if f.fileRepository != "" {
		catalog.FileRepository = f.fileRepository
	}

	if f.containerRegistry != "" {
		catalog.ContainerRegistry = f.containerRegistry
	}

	return catalog, nil
}
