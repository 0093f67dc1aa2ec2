// SPDX-License-Identifier: Apache-2.0

// Package pin finds the digests of container images in their registries. A tag can be moved to other content, a digest
// cannot.
package pin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"golang.org/x/sync/errgroup"

	"github.com/slipway-k8s/slipway/internal/lib/asset"
)

// parallelRequests is the number of images that are looked up at the same time.
const parallelRequests = 4

// Registries is how registries are asked.
type Registries struct {
	Transport http.RoundTripper // nil: http.DefaultTransport
	Keys      authn.Keychain    // the credentials, by host; nil: none
}

// Need is an image that machines of some architectures need.
type Need struct {
	Name    string
	Version string   // empty: the default version of the catalogue
	Archs   []string // amd64, arm64 or both
}

// Pin returns the catalogue with digests for the images that are needed. Those with digests keep them. Others get the digests
// that their tag has now, in the registry of the catalogue. It names all images that have no digest afterwards.
func Pin(ctx context.Context, c asset.Catalog, needs []Need, from Registries) (asset.Catalog, error) {
	images := slices.Clone(c.Images)
	errs := make([]error, len(needs))
	found := make([]map[string]string, len(needs))
	var group errgroup.Group
	group.SetLimit(parallelRequests)

	for i, need := range needs {
		image, err := c.FindImage(need.Name, need.Version)
		if err != nil {
			errs[i] = err
			continue
		}

		if len(image.Digests) > 0 {
			continue
		}

		group.Go(func() error {
			found[i], errs[i] = from.find(ctx, c.ImagePrefix()+image.Ref, need.Archs)
			return nil
		})
	}

	_ = group.Wait() // the failures are in errs

	for i, need := range needs {
		if found[i] == nil {
			continue
		}

		at := slices.IndexFunc(images, func(image asset.Image) bool {
			return image.Name == need.Name && (need.Version == "" || image.Version == need.Version)
		})
		images[at].Digests = found[i]
	}

	c.Images = images

	return c, errors.Join(errs...)
}

// find returns the digests of an image for all architectures that its registry has. The wanted ones must be among them.
func (r Registries) find(ctx context.Context, ref string, archs []string) (map[string]string, error) {
	transport := r.Transport
	if transport == nil {
		transport = http.DefaultTransport
	}

	options := []remote.Option{remote.WithTransport(transport)}
	if r.Keys != nil {
		options = append(options, remote.WithAuthFromKeychain(r.Keys))
	}

	digests, err := Digests(ctx, ref, options...)
	if err != nil {
		return nil, fmt.Errorf("find the digest of image %s: %w", ref, err)
	}

	texts := map[string]string{}
	for arch, digest := range digests {
		if asset.IsKnownArchitecture(arch) {
			texts[arch] = digest.String()
		}
	}

	for _, arch := range archs {
		if _, ok := texts[arch]; !ok {
			return nil, fmt.Errorf(
				"find the digest of image %s: the registry has it for %s, not for linux on %s",
				ref,
				strings.Join(slices.Sorted(maps.Keys(digests)), ", "),
				arch,
			)
		}
	}

	return texts, nil
}

// Digests returns the digests of the manifests for Linux that an image has now, by architecture. The error names the
// registry.
func Digests(ctx context.Context, image string, options ...remote.Option) (map[string]v1.Hash, error) {
	ref, err := name.ParseReference(image)
	if err != nil {
		return nil, err
	}

	tagged, err := remote.Get(ref, append(slices.Clone(options), remote.WithContext(ctx))...)
	if err == nil {
		var found map[string]v1.Hash
		if found, err = PlatformDigests(tagged); err == nil {
			return found, nil
		}
	}

	return nil, fmt.Errorf("ask the registry %s: %w", ref.Context().RegistryStr(), err)
}

// PlatformDigests returns the digests of the manifests for Linux that a tag has, by architecture.
func PlatformDigests(tagged *remote.Descriptor) (map[string]v1.Hash, error) {
	if !tagged.MediaType.IsIndex() {
		image, err := tagged.Image()
		if err != nil {
			return nil, err
		}

		config, err := image.ConfigFile()
		if err != nil {
			return nil, err
		}

		return map[string]v1.Hash{config.Architecture: tagged.Digest}, nil
	}

	index, err := tagged.ImageIndex()
	if err != nil {
		return nil, err
	}

	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}

	found := map[string]v1.Hash{}
	for _, d := range manifest.Manifests {
		if d.Platform == nil || d.Platform.OS != "linux" {
			continue
		}

		if _, ok := found[d.Platform.Architecture]; !ok {
			found[d.Platform.Architecture] = d.Digest
		}
	}

	return found, nil
}
