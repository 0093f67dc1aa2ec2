// SPDX-License-Identifier: Apache-2.0

// Package fetch downloads the files and images of a cluster that upstream publishes, and stores
// them as package build stores those that it compiles, so that the local region serves them to its
// machines.
//
// Every file is checked against the hash of the catalogue. An image without a digest in the
// catalogue is found by its tag; the catalogue that Run writes pins the digest that was found.
package fetch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/lib/asset"
	"github.com/slipway-k8s/slipway/internal/lib/asset/build"
)

// Options configure Run.
type Options struct {
	// Catalog lists what can be downloaded. Its FileRepository and ContainerRegistry are the
	// mirrors to download from.
	Catalog asset.Catalog
	// Out is the output folder, such as ~/.cache/slipway/assets.
	Out string
	// Arch is the architecture of the machines, amd64 or arm64.
	Arch string

	// Kubernetes are versions to download in addition to the default one, each as a minor version,
	// such as 1.35, or in full.
	Kubernetes []string

	// FileRepository and ContainerRegistry are written to the catalogue of Out: where its machines
	// find what was downloaded.
	FileRepository    string
	ContainerRegistry string

	Transport http.RoundTripper // of all requests
	Log       io.Writer         // gets progress messages for a person
	Clock     func() time.Time  // for elapsed times
}

// Result is the result of Run.
type Result struct {
	Catalog    string        // the path of the catalogue
	Downloaded int           // files and images that were not there already
	Bytes      int64         // their size
	Elapsed    time.Duration // the duration of Run
}

// Run downloads the default version of everything in the catalogue, and further versions of
// Kubernetes, for one architecture. Files that exist already are not downloaded again, so an
// interrupted run continues where it stopped. It writes the catalogue last. All failures are
// reported at once. A concurrent Run with the same Out waits.
func Run(ctx context.Context, o Options) (Result, error) {
	selected, err := selectAssets(o.Catalog, o.Arch, o.Kubernetes)
	if err != nil {
		return Result{}, err
	}

	o.Transport = WatchStalls(o.Transport)
	unlock, err := build.LockOutput(o.Out, o.Log)
	if err != nil {
		return Result{}, err
	}

	defer unlock()

	f := &fetcher{
		Options:  o,
		selected: selected,
		progress: progress{out: o.Log, clock: o.Clock, total: len(selected.Files) + len(selected.Images)},
	}

	return f.fetchAll(ctx)
}

// fetcher is the state of one Run.
type fetcher struct {
	Options
	selected asset.Catalog // what Run downloads, with upstream's addresses
	progress progress
}

func (f *fetcher) fetchAll(ctx context.Context) (Result, error) {
	start := f.Clock()
	if err := build.Forget(f.Out); err != nil {
		return Result{}, err
	}

	images, err := f.pullImages(ctx)
	if err := errors.Join(f.downloadFiles(ctx), err); err != nil {
		return Result{}, err
	}

	path, err := f.writeCatalog(images)
	if err != nil {
		return Result{}, err
	}

	result := Result{
		Catalog:    path,
		Downloaded: f.progress.downloaded,
		Bytes:      f.progress.bytes,
		Elapsed:    f.Clock().Sub(start),
	}
	f.progress.report(result)

	return result, nil
}

// writeCatalog writes the catalogue of what was downloaded, and returns its path.
func (f *fetcher) writeCatalog(images []asset.Image) (string, error) {
	c := f.selected
	c.Images = images
	c.FileRepository = f.FileRepository
	c.ContainerRegistry = f.ContainerRegistry
	raw, err := c.YAML()
	if err != nil {
		return "", err
	}

	if _, err := asset.ParseCatalog(raw); err != nil {
		return "", fmt.Errorf("validate the catalogue of what was downloaded: %w", err)
	}

	path := filepath.Join(f.Out, "catalog.yaml")
	partial := path + ".partial"
	err = os.WriteFile(partial, append([]byte(catalogHeader), raw...), 0o644)
	if err == nil {
		err = os.Rename(partial, path)
	}

	if err != nil {
		return "", fmt.Errorf("write the catalogue: %w", err)
	}

	return path, nil
}

// catalogHeader is the first line of a catalogue that Run wrote.
const catalogHeader = "# Created by slipway assets fetch; the local region serves these assets.\n"

// IsFetched reports whether Run wrote the catalogue at a path.
func IsFetched(path string) bool {
	raw, err := os.ReadFile(path)
	return err == nil && bytes.HasPrefix(raw, []byte(catalogHeader))
}

// Select returns the part of a catalogue that clusters of some architectures need: the default
// version of everything, and the given versions of Kubernetes, each as a minor version or in full.
func Select(c asset.Catalog, archs, kubernetes []string) (asset.Catalog, error) {
	all := c
	all.Files = nil
	all.Images = nil

	for _, arch := range archs {
		selected, err := selectAssets(c, arch, kubernetes)
		if err != nil {
			return asset.Catalog{}, err
		}

		all = all.WithMissing(selected)
	}

	return all, nil
}

// kubernetesNames are the files and images that have the version of Kubernetes.
func kubernetesNames() []string {
	return []string{"kubelet", "kubectl", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"}
}

// selectAssets returns the part of a catalogue to download: the default version of everything for
// an architecture, and the given versions of Kubernetes. The errors name all versions that the
// catalogue lacks.
func selectAssets(c asset.Catalog, arch string, kubernetes []string) (asset.Catalog, error) {
	available := c.Versions("kubelet")
	wanted := map[string]bool{}
	var errs []error

	for _, v := range kubernetes {
		version := asset.NewestPatch(strings.TrimPrefix(v, "v"), available)
		if !slices.Contains(available, version) {
			errs = append(errs, fmt.Errorf(
				"kubernetes version %s: %w, which contains %s",
				v,
				asset.ErrNotFound,
				strings.Join(available, ", "),
			))
		}

		wanted[version] = true
	}

	isSelected := func(name, version string) bool {
		return version == c.Versions(name)[0] || slices.Contains(kubernetesNames(), name) && wanted[version]
	}
	out := c
	out.Files = slices.DeleteFunc(slices.Clone(c.Files), func(f asset.File) bool {
		return f.Arch != arch || !isSelected(f.Name, f.Version)
	})
	out.Images = slices.DeleteFunc(slices.Clone(c.Images), func(i asset.Image) bool {
		return !isSelected(i.Name, i.Version)
	})

	if len(out.Files) == 0 {
		errs = append(errs, fmt.Errorf("architecture %s: the catalogue has no files for it", arch))
	}

	return out, errors.Join(errs...)
}
