// SPDX-License-Identifier: Apache-2.0

package channelsource

import (
	"errors"
	"fmt"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/slipway-k8s/slipway/internal/lib/guardedhttp"
	"github.com/slipway-k8s/slipway/internal/lib/signing"
)

const (
	// signatureAnnotation of a layer with a payload:
	// https://github.com/sigstore/cosign/blob/main/specs/SIGNATURE_SPEC.md.
	signatureAnnotation = "dev.cosignproject.cosign/signature"
	payloadMediaType    = "application/vnd.dev.cosign.simplesigning.v1+json"
	// bundleMediaType begins the type of a bundle: https://docs.sigstore.dev/about/bundle/.
	bundleMediaType = "application/vnd.dev.sigstore.bundle"

	maxSignatures   = 50
	maxPayloadBytes = 256 << 10 // a bundle can have an entry of a log
)

// verify checks that one of the keys has signed an artifact. cosign 3 stores bundles that refer to
// the artifact; before, signatures were under a tag that is made of the digest.
func (c artifactClient) verify(digest string, keys []signing.ArtifactKey) error {
	tagProblem := c.verifyTag(digest, keys)
	if tagProblem == nil {
		return nil
	}

	bundleProblem := c.verifyBundles(digest, keys)
	if bundleProblem == nil {
		return nil
	}

	return fmt.Errorf("its signature is refused: %w; %w", tagProblem, bundleProblem)
}

// verifyTag looks for a signature under the tag of the artifact's signatures.
func (c artifactClient) verifyTag(digest string, keys []signing.ArtifactKey) error {
	tag := c.reference.Context().Tag(strings.Replace(digest, ":", "-", 1) + ".sig")

	image, err := remote.Image(tag, c.options...)
	if err != nil {
		return fmt.Errorf("tag %s cannot be read: %w", tag.TagStr(), guardedhttp.Cause(err))
	}

	return eachLayer(image, payloadMediaType, func(layer v1.Descriptor, payload []byte) error {
		return signing.VerifyArtifact(keys, digest, payload, layer.Annotations[signatureAnnotation])
	})
}

// verifyBundles looks for a bundle that refers to the artifact.
func (c artifactClient) verifyBundles(digest string, keys []signing.ArtifactKey) error {
	repository := c.reference.Context()

	index, err := remote.Referrers(repository.Digest(digest), c.options...)
	if err != nil {
		return fmt.Errorf("what refers to it cannot be read: %w", guardedhttp.Cause(err))
	}

	list, err := index.IndexManifest()
	if err != nil {
		return errors.New("the list of what refers to it is not valid")
	}

	if len(list.Manifests) > maxSignatures {
		return fmt.Errorf("%d artifacts refer to it, more than %d", len(list.Manifests), maxSignatures)
	}

	problem := errors.New("no bundle of cosign refers to it")
	for _, d := range list.Manifests {
		if d.ArtifactType != "" && !strings.HasPrefix(d.ArtifactType, bundleMediaType) {
			continue
		}

		image, err := remote.Image(repository.Digest(d.Digest.String()), c.options...)
		if err != nil {
			problem = guardedhttp.Cause(err)
			continue
		}

		problem = eachLayer(image, bundleMediaType, func(_ v1.Descriptor, text []byte) error {
			return signing.VerifyBundle(keys, digest, text)
		})
		if problem == nil {
			return nil
		}
	}

	return problem
}

// eachLayer calls a function for the layers whose media type begins with kind, until it returns no
// error. Without such a layer, and if all fail, it returns an error.
func eachLayer(image v1.Image, kind string, verify func(v1.Descriptor, []byte) error) error {
	manifest, err := image.Manifest()
	if err != nil {
		return errors.New("the manifest of its signatures is not valid")
	}

	if len(manifest.Layers) > maxSignatures {
		return fmt.Errorf("it has %d signatures, more than %d", len(manifest.Layers), maxSignatures)
	}

	problem := errors.New("it has no signature of cosign")
	for _, layer := range manifest.Layers {
		if !strings.HasPrefix(string(layer.MediaType), kind) {
			continue
		}

		text, err := readLayer(image, layer, maxPayloadBytes)
		if err != nil {
			problem = err
			continue
		}

		if problem = verify(layer, text); problem == nil {
			return nil
		}
	}

	return problem
}
