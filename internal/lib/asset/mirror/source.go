// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/slipway-k8s/slipway/internal/lib/asset/fetch"
)

// open returns an image for one architecture: from the folder, else from where the catalogue has it. Nothing is read
// before it is needed.
func (m *imageMirror) open(ctx context.Context, i pinnedImage, arch string) (v1.Image, error) {
	digest := i.digests[arch]
	path, err := layout.FromPath(filepath.Join(m.Folder, "images"))
	if err == nil && fetch.IsComplete(path, digest, arch) {
		return path.Image(digest)
	}

	tag, err := name.NewTag(m.Catalog.ImagePrefix() + i.Ref)
	if err != nil {
		return nil, err
	}

	image, err := remote.Image(tag.Digest(digest.String()), append(m.pull, remote.WithContext(ctx))...)
	if err != nil {
		return nil, err
	}

	found, err := image.Digest()
	if err != nil {
		return nil, err
	}

	if found != digest {
		return nil, fmt.Errorf("%s is an index and not the manifest of an image: pin the manifest for %s", digest, arch)
	}

	return image, nil
}
