// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/slipway-k8s/slipway/internal/lib/asset"
	"github.com/slipway-k8s/slipway/internal/lib/asset/pin"
)

// Registry is where images are copied to.
type Registry struct {
	Prefix string         // HOST[:PORT][/PATH], which precedes upstream's reference of each image
	Keys   authn.Keychain // the credentials for registries, by host
	ECR    *ECR           // nil: not Amazon ECR
}

// pinnedImage is an image with the digests of its manifests.
type pinnedImage struct {
	asset.Image
	archs   []string           // that have a digest, in the order of the options
	digests map[string]v1.Hash // by architecture
	target  name.Tag
}

// imageMirror copies images to a registry.
type imageMirror struct {
	Options
	pull, push []remote.Option
	existing   map[string]bool // repositories of ECR; nil: another registry, which creates them itself
}

// addImages adds a step for each image that the registry lacks, and for each repository that ECR lacks.
func (p *Plan) addImages(ctx context.Context) error {
	m, err := newImageMirror(ctx, p.options)
	if err != nil {
		return err
	}

	var errs []error
	var copies []Step

	for i, image := range p.options.Catalog.Images {
		p.Total++
		pinned, err := m.pin(ctx, image)
		if err != nil {
			errs = append(errs, fmt.Errorf("find image %s: %w", image.Ref, err))
			continue
		}

		p.Catalog.Images[i].Digests = pinned.digestTexts()
		present, err := m.isPresent(ctx, pinned)
		if err != nil {
			errs = append(errs, fmt.Errorf("compare %s: %w", pinned.target, err))
			continue
		}

		if present {
			continue
		}

		p.Steps = append(p.Steps, m.missingRepository(pinned)...)
		copies = append(copies, Step{
			Action: actionCopy,
			Asset:  "image " + image.Name + " " + image.Version + " " + strings.Join(pinned.archs, " and "),
			Target: pinned.target.String(),
			run:    func(ctx context.Context) (int64, error) { return m.copyImage(ctx, pinned) },
		})
	}

	p.Steps = append(p.Steps, copies...)

	return errors.Join(errs...)
}

func newImageMirror(ctx context.Context, o Options) (*imageMirror, error) {
	m := &imageMirror{Options: o}
	m.pull = []remote.Option{
		remote.WithTransport(o.source()),
		remote.WithAuthFromKeychain(o.Registry.Keys),
	}
	m.push = []remote.Option{remote.WithTransport(o.Transport)}
	if o.Registry.ECR == nil {
		m.push = append(m.push, remote.WithAuthFromKeychain(o.Registry.Keys))
		return m, nil
	}

	login, err := o.Registry.ECR.login(ctx)
	if err != nil {
		return nil, err
	}

	m.push = append(m.push, remote.WithAuth(login))
	m.existing, err = o.Registry.ECR.listRepositories(ctx)

	return m, err
}

// digestTexts returns the digests as a catalogue has them.
func (i pinnedImage) digestTexts() map[string]string {
	texts := map[string]string{}
	for arch, digest := range i.digests {
		texts[arch] = digest.String()
	}

	return texts
}

// pin returns an image with a digest for each architecture that it supports: those of the catalogue, else those that the
// tag has now where it is copied from.
func (m *imageMirror) pin(ctx context.Context, image asset.Image) (pinnedImage, error) {
	pinned := pinnedImage{Image: image, digests: map[string]v1.Hash{}}
	target, err := name.NewTag(strings.TrimRight(m.Registry.Prefix, "/") + "/" + image.Ref)
	if err != nil {
		return pinned, err
	}

	pinned.target = target
	found, err := m.findDigests(ctx, image)
	if err != nil {
		return pinned, err
	}

	for _, arch := range m.Archs {
		if digest, ok := found[arch]; ok {
			pinned.archs = append(pinned.archs, arch)
			pinned.digests[arch] = digest
		}
	}

	if len(pinned.archs) == 0 {
		return pinned, fmt.Errorf("there is none for linux on %s", strings.Join(m.Archs, " or "))
	}

	return pinned, nil
}

// findDigests returns the digests of the manifests of an image by architecture.
func (m *imageMirror) findDigests(ctx context.Context, image asset.Image) (map[string]v1.Hash, error) {
	found := map[string]v1.Hash{}
	for arch, text := range image.Digests {
		digest, err := v1.NewHash(text)
		if err != nil {
			return nil, fmt.Errorf("read its digest for %s: %w", arch, err)
		}

		found[arch] = digest
	}

	if len(found) > 0 {
		return found, nil
	}

	return pin.Digests(ctx, m.Catalog.ImagePrefix()+image.Ref, m.pull...)
}

// isPresent reports whether the registry has the manifests of an image, and the tag has them all.
func (m *imageMirror) isPresent(ctx context.Context, i pinnedImage) (bool, error) {
	if m.existing != nil && !m.existing[i.target.RepositoryStr()] {
		return false, nil
	}

	tagged, err := remote.Get(i.target, append(m.push, remote.WithContext(ctx))...)
	if isMissing(err) {
		return false, nil
	}

	if err != nil {
		return false, err
	}

	tag := map[v1.Hash]bool{tagged.Digest: true}
	if tagged.MediaType.IsIndex() {
		digests, err := pin.PlatformDigests(tagged)
		if err != nil {
			return false, err
		}

		for _, digest := range digests {
			tag[digest] = true
		}
	}

	for _, digest := range i.digests {
		if !tag[digest] {
			return false, nil
		}

		_, err := remote.Head(i.target.Digest(digest.String()), append(m.push, remote.WithContext(ctx))...)
		if isMissing(err) {
			return false, nil
		}

		if err != nil {
			return false, err
		}
	}

	return true, nil
}

// isMissing reports whether a registry answered that it has no such repository, tag or manifest.
func isMissing(err error) bool {
	var answer *transport.Error
	return errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound
}

// copyImage copies the manifests of an image with their layers, then sets the tag. Layers that the registry has are not
// copied. It returns the size of all layers.
func (m *imageMirror) copyImage(ctx context.Context, i pinnedImage) (int64, error) {
	pusher, err := remote.NewPusher(m.push...)
	if err != nil {
		return 0, err
	}

	var size int64
	images := map[string]v1.Image{}
	for _, arch := range i.archs {
		image, err := m.open(ctx, i, arch)
		if err != nil {
			return 0, fmt.Errorf("open it for %s: %w", arch, err)
		}

		manifest, err := image.Manifest()
		if err != nil {
			return 0, err
		}

		for _, layer := range manifest.Layers {
			size += layer.Size
		}

		if err := pusher.Push(ctx, i.target.Digest(i.digests[arch].String()), image); err != nil {
			return 0, err
		}

		images[arch] = image
	}

	if len(images) == 1 {
		return size, pusher.Push(ctx, i.target, images[i.archs[0]])
	}

	return size, pusher.Push(ctx, i.target, newIndex(i.archs, images))
}

// newIndex returns the index of an image for several architectures.
func newIndex(archs []string, images map[string]v1.Image) v1.ImageIndex {
	var all []mutate.IndexAddendum
	for _, arch := range archs {
		all = append(all, mutate.IndexAddendum{
			Add:        images[arch],
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}

	return mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), all...)
}
