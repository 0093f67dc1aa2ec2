// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/slipway-k8s/slipway/internal/lib/asset"
	"github.com/slipway-k8s/slipway/internal/lib/asset/build"
)

// pullImages pulls the selected images into one OCI layout, and returns them with their digests. It continues after a
// failure, and returns all failures.
func (f *fetcher) pullImages(ctx context.Context) ([]asset.Image, error) {
	path, err := f.openLayout()
	if err != nil {
		return nil, err
	}

	known, err := f.knownDigests(path)
	if err != nil {
		return nil, err
	}

	var images []asset.Image
	var errs []error

	for _, image := range f.selected.Images {
		digest, err := f.pullImage(ctx, path, known, image)
		if err != nil {
			errs = append(errs, fmt.Errorf("pull image %s: %w", image.Ref, err))
			continue
		}

		image.Digests = map[string]string{f.Arch: digest}
		images = append(images, image)
	}

	return images, errors.Join(errs...)
}

// openLayout returns the OCI layout of the output folder, which it creates if it is missing.
func (f *fetcher) openLayout() (layout.Path, error) {
	dir := filepath.Join(f.Out, "images")
	path, err := layout.FromPath(dir)
	if errors.Is(err, fs.ErrNotExist) {
		path, err = layout.Write(dir, empty.Index)
	}

	if err != nil {
		return "", fmt.Errorf("open the image layout %s: %w", dir, err)
	}

	return path, nil
}

// knownDigests returns the digests of the images of a layout that are for the architecture and whose blobs are all there,
// by reference.
func (f *fetcher) knownDigests(path layout.Path) (map[string]string, error) {
	index, err := path.ImageIndex()
	if err != nil {
		return nil, fmt.Errorf("read the image layout: %w", err)
	}

	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("read the image layout: %w", err)
	}

	known := map[string]string{}
	for _, d := range manifest.Manifests {
		if IsComplete(path, d.Digest, f.Arch) {
			known[d.Annotations[build.RefAnnotation]] = d.Digest.String()
		}
	}

	return known, nil
}

// IsComplete reports whether an image of a layout is for an architecture, and all of its blobs are there. One whose
// download was cut off is shorter.
func IsComplete(path layout.Path, digest v1.Hash, arch string) bool {
	image, err := path.Image(digest)
	if err != nil {
		return false
	}

	manifest, err := image.Manifest()
	if err != nil {
		return false
	}

	for _, d := range append(manifest.Layers, manifest.Config) {
		info, err := os.Stat(filepath.Join(string(path), "blobs", d.Digest.Algorithm, d.Digest.Hex))
		if err != nil || info.Size() != d.Size {
			return false
		}
	}

	config, err := image.ConfigFile()

	return err == nil && config.Architecture == arch
}

// pullImage pulls an image unless it is there, and returns the digest of its manifest. An image that the catalogue pins
// must have that digest. One that it does not pin keeps the digest of an earlier run: upstream never moves the tag of
// a release.
func (f *fetcher) pullImage(
	ctx context.Context,
	path layout.Path,
	known map[string]string,
	image asset.Image,
) (string, error) {
	pinned := image.Digests[f.Arch]
	if digest, ok := known[image.Ref]; ok && (pinned == "" || pinned == digest) {
		f.progress.skip()
		return digest, nil
	}

	source := f.Catalog.PullReference(image, f.Arch)
	ref, err := name.ParseReference(source)
	if err != nil {
		return "", fmt.Errorf("parse %s: %w", source, err)
	}

	start := f.Clock()
	pulled, err := remote.Image(
		ref,
		remote.WithContext(ctx),
		remote.WithTransport(f.Transport),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: f.Arch}),
	)
	if err != nil {
		return "", fmt.Errorf("ask the registry %s: %w", ref.Context().RegistryStr(), err)
	}

	config, err := pulled.ConfigFile()
	if err != nil {
		return "", err
	}

	if config.Architecture != f.Arch {
		return "", fmt.Errorf("it is for the architecture %q, not %s", config.Architecture, f.Arch)
	}

	digest, err := pulled.Digest()
	if err != nil {
		return "", err
	}

	size, err := storeImage(path, image.Ref, pulled)
	if err != nil {
		return "", err
	}

	f.progress.done(image.Ref, size, f.Clock().Sub(start))

	return digest.String(), nil
}

// storeImage writes an image to a layout, where it replaces the one with the same reference. It returns the size of its
// layers.
func storeImage(path layout.Path, ref string, image v1.Image) (int64, error) {
	manifest, err := image.Manifest()
	if err != nil {
		return 0, err
	}

	var size int64
	for _, layer := range manifest.Layers {
		size += layer.Size
	}

	hasRef := func(d v1.Descriptor) bool { return d.Annotations[build.RefAnnotation] == ref }
	annotation := layout.WithAnnotations(map[string]string{build.RefAnnotation: ref})

	return size, path.ReplaceImage(image, hasRef, annotation)
}
