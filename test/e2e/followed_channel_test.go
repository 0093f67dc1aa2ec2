// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// followedRepository is where the followed channel is in the region's registry.
const followedRepository = "localhost/channels/followed"

// followedChannel is what is published. The registry of the region has no TLS, so the signature is needed.
const followedChannel = `apiVersion: slipway.dev/v1alpha1
kind: AddonChannel
metadata: {name: followed}
spec:
  source:
    oci: oci+http://198.18.0.1:5000/` + followedRepository + `:stable
    interval: 1m
    publicKeys:
    - |
%s`

// artifactStore is the registry of the region with artifacts of this test. The images of the cache stay as they are.
type artifactStore struct {
	*environment

	images layout.Path
	key    *ecdsa.PrivateKey
}

// openArtifactStore has the region serve a copy of the images' layout, whose blobs are links, until the test ends.
func (e *environment) openArtifactStore() *artifactStore {
	e.t.Helper()
	link := filepath.Join(e.cache, "assets")
	shared, err := filepath.EvalSymlinks(link)
	if err != nil {
		e.t.Fatal(err)
	}
	copied := filepath.Join(e.t.TempDir(), "assets")
	blobs := filepath.Join("images", "blobs", "sha256")
	if err := os.MkdirAll(filepath.Join(copied, blobs), 0o755); err != nil {
		e.t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Join(shared, blobs))
	if err != nil {
		e.t.Fatal(err)
	}
	names := []string{"files"}
	for _, entry := range entries {
		names = append(names, filepath.Join(blobs, entry.Name()))
	}
	for _, name := range names {
		if err := os.Symlink(filepath.Join(shared, name), filepath.Join(copied, name)); err != nil {
			e.t.Fatal(err)
		}
	}
	for _, name := range []string{"index.json", "oci-layout"} {
		text, err := os.ReadFile(filepath.Join(shared, "images", name))
		if err != nil {
			e.t.Fatal(err)
		}
		writeFile(e.t, filepath.Join(copied, "images", name), string(text))
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		e.t.Fatal(err)
	}
	e.replaceLink(link, copied)
	e.t.Cleanup(func() { e.replaceLink(link, shared) })

	return &artifactStore{environment: e, images: layout.Path(filepath.Join(copied, "images")), key: key}
}

func (e *environment) replaceLink(link, target string) {
	next := link + ".next"
	if err := os.Symlink(target, next); err != nil {
		e.t.Fatal(err)
	}
	if err := os.Rename(next, link); err != nil {
		e.t.Fatal(err)
	}
}

// write writes an image under a tag and returns its digest.
func (s *artifactStore) write(tag string, image v1.Image) string {
	s.t.Helper()
	reference := followedRepository + ":" + tag
	annotation := map[string]string{"org.opencontainers.image.ref.name": reference}
	if err := s.images.ReplaceImage(image, match.Name(reference), layout.WithAnnotations(annotation)); err != nil {
		s.t.Fatal(err)
	}
	digest, err := image.Digest()
	if err != nil {
		s.t.Fatal(err)
	}

	return digest.String()
}

// push writes a channel with one ConfigMap, and returns the digest of the artifact.
func (s *artifactStore) push(value string) string {
	s.t.Helper()
	var archive bytes.Buffer
	compressed := gzip.NewWriter(&archive)
	files := tar.NewWriter(compressed)
	for name, text := range map[string]string{
		"channel.yaml": "apiVersion: slipway.dev/v1alpha1\nkind: AddonChannel\nmetadata: {name: followed}\nspec:\n  addons:\n" +
			"  - {name: followed, version: 1.0.0, source: {manifest: objects.yaml}, parameters: [{name: NAME, from: cluster.name}]}\n",
		"objects.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: followed, namespace: default}\n" +
			"data: {value: " + value + ", cluster: \"${NAME}\"}\n",
	} {
		if err := files.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg}); err != nil {
			s.t.Fatal(err)
		}
		if _, err := files.Write([]byte(text)); err != nil {
			s.t.Fatal(err)
		}
	}
	if err := files.Close(); err != nil {
		s.t.Fatal(err)
	}
	if err := compressed.Close(); err != nil {
		s.t.Fatal(err)
	}
	layer := static.NewLayer(archive.Bytes(), "application/vnd.oci.image.layer.v1.tar+gzip")
	image, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), layer)
	if err != nil {
		s.t.Fatal(err)
	}

	return s.write("stable", image)
}

// sign signs an artifact as cosign does.
func (s *artifactStore) sign(digest string) {
	s.t.Helper()
	payload := fmt.Appendf(nil, `{"critical":{"identity":{"docker-reference":%q},"image":{"docker-manifest-digest":%q},`+
		`"type":"cosign container image signature"},"optional":null}`, followedRepository, digest)
	sum := sha256.Sum256(payload)
	signature, err := s.key.Sign(rand.Reader, sum[:], crypto.SHA256)
	if err != nil {
		s.t.Fatal(err)
	}
	image, err := mutate.Append(mutate.MediaType(empty.Image, types.OCIManifestSchema1), mutate.Addendum{
		Layer:       static.NewLayer(payload, "application/vnd.dev.cosign.simplesigning.v1+json"),
		Annotations: map[string]string{"dev.cosignproject.cosign/signature": base64.StdEncoding.EncodeToString(signature)},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.write(strings.Replace(digest, ":", "-", 1)+".sig", image)
}

// checkFollowedChannel has the control plane follow a signed artifact in the region's registry. An artifact that is not signed is
// refused, and the one before stays applied.
func checkFollowedChannel(e *environment) {
	e.t.Helper()
	store := e.openArtifactStore()
	der, err := x509.MarshalPKIXPublicKey(store.key.Public())
	if err != nil {
		e.t.Fatal(err)
	}
	public := string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	public = "      " + strings.ReplaceAll(strings.TrimSpace(public), "\n", "\n      ") + "\n"
	file := filepath.Join(e.t.TempDir(), "followed.yaml")
	writeFile(e.t, file, fmt.Sprintf(followedChannel, public))

	store.sign(store.push("one"))
	e.t.Log("\n" + e.runSlipway("addons", "publish", clusterName, "-f", file, "--yes"))
	e.waitForFollowed("one", " Applied ")

	unsigned := store.push("unsigned")
	e.waitForFollowed("one", " Failed ")
	if out := e.runSlipway("addons", "channels", clusterName); !strings.Contains(out, "revision "+unsigned) {
		e.t.Errorf("the channels do not show the refused revision %s:\n%s", unsigned, out)
	}
	e.kubectl("delete", "configmap", "followed")
	e.waitForFollowed("one", " Failed ") // what was accepted is still kept applied

	store.sign(store.push("two"))
	e.waitForFollowed("two", " Applied ")
	if out := e.runSlipway("addons", "channels", clusterName, "-o", "yaml"); !strings.Contains(out, "isVerified: true") {
		e.t.Errorf("the channels are\n%s", out)
	}
	e.runSlipway("addons", "unpublish", "followed", "--name", clusterName, "--yes")
}

// waitForFollowed waits until the followed channel has a state, and the cluster the value that goes with it.
func (e *environment) waitForFollowed(value, state string) {
	e.t.Helper()
	start := time.Now()
	var out string
	e.waitUntil("the followed channel is"+state+"with value "+value, 6*time.Minute, func() error {
		out = e.runSlipway("addons", "channels", clusterName)
		r := e.tryKubectl("get", "configmap", "followed", "-o", "jsonpath={.data.value}/{.data.cluster}")
		if !strings.Contains(out, state) || r.out != value+"/"+clusterName {
			return fmt.Errorf("the value is %q (%s), the channels are\n%s", r.out, strings.TrimSpace(r.err), out)
		}

		return nil
	})
	e.t.Logf("COUNT the followed channel is%swith value %s after %s\n%s", state, value, time.Since(start).Round(time.Second), out)
}
