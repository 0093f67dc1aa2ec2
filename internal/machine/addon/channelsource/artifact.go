// SPDX-License-Identifier: Apache-2.0

package channelsource

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/ecraddress"
	"github.com/slipway-k8s/slipway/internal/lib/guardedhttp"
	"github.com/slipway-k8s/slipway/internal/lib/signing"
	"github.com/slipway-k8s/slipway/internal/machine/addon/published"
)

const (
	schemeTLS   = "oci://"
	schemePlain = "oci+http://"

	// createdAnnotation of an artifact:
	// https://github.com/opencontainers/image-spec/blob/main/annotations.md.
	createdAnnotation = "org.opencontainers.image.created"
)

// artifactClient asks one repository of a registry.
type artifactClient struct {
	reference name.Reference
	options   []remote.Option
}

// newArtifactClient returns a client for the repository of a source.
func (f Fetcher) newArtifactClient(ctx context.Context, s published.Source) (artifactClient, error) {
	address, isPlain := strings.CutPrefix(s.OCI, schemePlain)
	parsing := []name.Option{name.StrictValidation}
	if isPlain {
		parsing = append(parsing, name.Insecure)
	} else {
		address = strings.TrimPrefix(address, schemeTLS)
	}

	reference, err := name.ParseReference(address, parsing...)
	if err != nil {
		return artifactClient{}, errors.New("the reference is not valid")
	}

	credentials, err := f.credentials(ctx, s, address)
	if err != nil {
		return artifactClient{}, err
	}

	if isPlain && credentials != (published.Credentials{}) {
		return artifactClient{}, errors.New("credentials are not sent over HTTP")
	}

	login := authn.Anonymous
	if credentials != (published.Credentials{}) {
		login = authn.FromConfig(authn.AuthConfig{Username: credentials.User, Password: credentials.Password})
	}

	return artifactClient{reference: reference, options: []remote.Option{
		remote.WithContext(ctx),
		remote.WithAuth(login),
		remote.WithTransport(guardedhttp.NewTransport(f.options(reference.Context().RegistryStr(), isPlain))),
	}}, nil
}

// credentials returns the credentials of a source: those that it has, or those of the machine's
// role for Amazon ECR.
func (f Fetcher) credentials(ctx context.Context, s published.Source, address string) (published.Credentials, error) {
	registry, isECR := ecraddress.Parse(address)
	if s.Credentials != (published.Credentials{}) || !isECR || f.Login == nil {
		return s.Credentials, nil
	}

	return f.Login(ctx, registry)
}

// fetchArtifact returns the newest revision of an artifact. After an error it may have its id.
func (f Fetcher) fetchArtifact(ctx context.Context, s published.Source, known string) (Revision, error) {
	keys, err := artifactKeys(s.PublicKeys)
	if err != nil {
		return Revision{}, err
	}

	client, err := f.newArtifactClient(ctx, s)
	if err != nil {
		return Revision{}, err
	}

	found, err := remote.Get(client.reference, client.options...)
	if err != nil {
		return Revision{}, describeMissing(err)
	}

	sum := sha256.Sum256(found.Manifest)
	out := Revision{ID: "sha256:" + hex.EncodeToString(sum[:])}
	if pinned, isPinned := client.reference.(name.Digest); isPinned && pinned.DigestStr() != out.ID {
		return out, errors.New("the registry serves other bytes for the digest")
	}

	if out.ID == known {
		return out, nil
	}

	if len(keys) > 0 {
		if err := client.verify(out.ID, keys); err != nil {
			return out, err
		}
	}

	return client.read(out, found)
}

// describeMissing returns an error with a hint how to get an artifact.
func describeMissing(err error) error {
	return diag.WithHint(guardedhttp.Cause(err), "check the reference, the credentials, and that machines reach the registry")
}

// artifactKeys returns the keys of a source.
func artifactKeys(texts []string) ([]signing.ArtifactKey, error) {
	var out []signing.ArtifactKey
	for n, text := range texts {
		key, err := signing.ParseArtifactKey(text)
		if err != nil {
			return nil, fmt.Errorf("public key %d %w", n+1, err)
		}

		out = append(out, key)
	}

	return out, nil
}

// read returns the files of an artifact: those of its only layer that is an archive.
func (c artifactClient) read(out Revision, found *remote.Descriptor) (Revision, error) {
	if !found.MediaType.IsImage() {
		return out, fmt.Errorf("it is of type %s, not an artifact with files", found.MediaType)
	}

	image, err := found.Image()
	if err != nil {
		return out, err
	}

	manifest, err := image.Manifest()
	if err != nil {
		return out, errors.New("its manifest is not valid")
	}

	if created := manifest.Annotations[createdAnnotation]; created != "" {
		if out.Created, err = time.Parse(time.RFC3339, created); err != nil {
			return out, fmt.Errorf("its annotation %s is not a time", createdAnnotation)
		}
	}

	var archives []v1.Descriptor
	for _, layer := range manifest.Layers {
		if kind := string(layer.MediaType); strings.HasSuffix(kind, "tar+gzip") || strings.HasSuffix(kind, "tar.gzip") {
			archives = append(archives, layer)
		}
	}

	if len(archives) != 1 {
		return out, fmt.Errorf("it has %d layers, of which %d are archives (tar+gzip): one is needed",
			len(manifest.Layers), len(archives))
	}

	archive, err := readLayer(image, archives[0], maxAnswerBytes)
	if err != nil {
		return out, err
	}

	out.Files, err = readArchive(archive)

	return out, err
}

// readLayer returns the bytes of a layer, whose hash the library checks at their end.
func readLayer(image v1.Image, layer v1.Descriptor, limit int64) ([]byte, error) {
	if layer.Size > limit {
		return nil, fmt.Errorf("its layer %s has %d bytes, more than %d", layer.Digest, layer.Size, limit)
	}

	found, err := image.LayerByDigest(layer.Digest)
	if err != nil {
		return nil, err
	}

	body, err := found.Compressed()
	if err != nil {
		return nil, err
	}

	defer func() { _ = body.Close() }()
	text, err := io.ReadAll(io.LimitReader(body, limit+1))
	if err != nil {
		return nil, err
	}

	sum := sha256.Sum256(text)
	if hex.EncodeToString(sum[:]) != layer.Digest.Hex || layer.Digest.Algorithm != "sha256" {
		return nil, fmt.Errorf("the registry serves other bytes for its layer %s", layer.Digest)
	}

	return text, nil
}
