// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/lib/asset/build"
)

func newAssetsCommand(a *app) *cobra.Command {
	return newGroupCommand(
		"assets",
		"Build, download or mirror the files and images that machines need",
		groupLocal,
		newAssetsBuildCommand(a),
		newAssetsFetchCommand(a),
		newAssetsMirrorCommand(a),
	)
}

func newAssetsBuildCommand(a *app) *cobra.Command {
	var o build.Options
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build Kubernetes, etcd, containerd and the images of the core add-ons",
		Long: `Build everything that machines download, from source with the Go toolchain: Kubernetes, etcd, containerd, runc, the
CNI plugins, flannel, CoreDNS and their container images. Results are cached by content. They are stored under upstream's
paths, with a catalogue of their hashes for SLIPWAY_ASSETS; 'slipway region env' sets it. Needs Go and gcc on Debian 12.

--kubernetes-version builds an earlier minor version as well, and adds it to the catalogue. It takes as long as the default
version. --earlier-components does the same for an earlier version of etcd, containerd and the CNI plugins, to rehearse their
upgrade, and --addon-images for the controllers of the channel in examples/addons. --conformance builds Kubernetes' own
conformance tests and the images that they start, for 'make conformance'. What was built once is kept in later builds.

The sources are the directory assets of a checkout of slipway. Packages install them in share/slipway/assets.` + exitStatusHelp(),
		Example: "  slipway assets build\n  slipway assets build --kubernetes-version 1.35\n" +
			"  slipway assets build --source ~/src/slipway/assets",
		Args: requireNoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.buildAssets(cmd.Context(), o)
		},
	}

	addAssetsBuildFlags(cmd, &o)

	return cmd
}

func addAssetsBuildFlags(cmd *cobra.Command, o *build.Options) {
	cmd.Flags().StringVar(
		&o.Source,
		"source",
		"",
		"directory of the sources (default: assets of a checkout, or share/slipway/assets of a package)",
	)

	cmd.Flags().StringSliceVar(
		&o.Kubernetes,
		"kubernetes-version",
		nil,
		"also build this version of Kubernetes, such as 1.35; repeatable",
	)

	cmd.Flags().BoolVar(
		&o.EarlierComponents,
		"earlier-components",
		false,
		"also build an earlier version of etcd, containerd and the CNI plugins",
	)

	cmd.Flags().BoolVar(
		&o.LaterEtcd,
		"later-etcd",
		false,
		"also build the next minor version of etcd, to rehearse its upgrade",
	)

	cmd.Flags().BoolVar(
		&o.AddonImages,
		"addon-images",
		false,
		"also build the images of the add-ons in examples/addons, such as metrics-server",
	)

	cmd.Flags().BoolVar(
		&o.Conformance,
		"conformance",
		false,
		"also build Kubernetes' conformance tests and the images that they start, which the catalogue does not list",
	)

	cmd.Flags().StringVar(
		&o.Out, "out", "",
		"output directory (default: assets in the cache directory)",
	)
}

// buildAssets builds the assets that o asks for, and prints the path of their catalogue.
func (a *app) buildAssets(ctx context.Context, o build.Options) error {
	if o.Out == "" {
		cache, err := a.cacheDir()
		if err != nil {
			return err
		}

		o.Out = assetsDir(cache)
	}

	source, err := findAssetSource(o.Source)
	if err != nil {
		return err
	}

	o.Source, o.Env, o.Log, o.Clock = source, os.Environ(), a.Stderr, a.Now
	r, err := build.Run(ctx, o)
	if err != nil {
		return err
	}

	fmt.Fprintln(a.Stdout, r.Catalog)

	return nil
}

// assetsDir returns the folder of the built assets.
func assetsDir(cache string) string { return filepath.Join(cache, "assets") }

// findAssetSource returns given, else the directory of the assets' sources.
func findAssetSource(given string) (string, error) {
	if given != "" {
		return given, nil
	}

	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find slipway's own program: %w", err)
	}

	source, err := build.FindSource(self)
	if err != nil {
		return "", withHint(err, "run it in a checkout of slipway, install the slipway package, or set --source")
	}

	return source, nil
}
