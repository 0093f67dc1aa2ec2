// SPDX-License-Identifier: Apache-2.0

package channelsource_test

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
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/slipway-k8s/slipway/internal/machine/addon/channelsource"
	"github.com/slipway-k8s/slipway/internal/machine/addon/published"
)

// archiveType is the media type of what `oras push` makes of a directory.
const archiveType = "application/vnd.oci.image.layer.v1.tar+gzip"

// fakeRegistry is a registry over TLS whose answers a test can change.
type fakeRegistry struct {
	t       *testing.T
	host    string
	fetcher channelsource.Fetcher
	options []remote.Option
	key     *ecdsa.PrivateKey

	mu       sync.Mutex
	answer   func(w http.ResponseWriter, r *http.Request) bool // true: it has answered
	requests []string
}

// setAnswer has a function answer requests first, and forgets the requests so far.
func (f *fakeRegistry) setAnswer(answer func(w http.ResponseWriter, r *http.Request) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
	f.requests = nil
}

// seen returns the requests since then.
func (f *fakeRegistry) seen() string {
	f.mu.Lock()
	defer f.mu.Unlock()

	return strings.Join(f.requests, ", ")
}

func startRegistry(t *testing.T) *fakeRegistry {
	t.Helper()

	return startRegistryWith(t, httptest.NewTLSServer)
}

func startRegistryWith(t *testing.T, start func(http.Handler) *httptest.Server) *fakeRegistry {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	f := &fakeRegistry{t: t, key: key}
	backend := registry.New(registry.WithReferrersSupport(true), registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)))
	server := start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		f.requests = append(f.requests, r.Method+" "+r.URL.Path)
		answer := f.answer
		f.mu.Unlock()
		if answer == nil || !answer(w, r) {
			backend.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	_, f.host, _ = strings.Cut(server.URL, "://")
	f.options = []remote.Option{remote.WithTransport(server.Client().Transport)}
	f.fetcher = newFetcher(t, server)

	return f
}

// newFetcher returns a fetcher that may reach a server of this computer and trusts its certificate.
func newFetcher(t *testing.T, server *httptest.Server) channelsource.Fetcher {
	t.Helper()
	transport, ok := server.Client().Transport.(*http.Transport)
	if !ok {
		t.Fatal("no transport")
	}

	return channelsource.Fetcher{
		Allowed: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
		TLS:     transport.TLSClientConfig,
	}
}

// publicKey returns the key that verifies signatures, in PEM.
func (f *fakeRegistry) publicKey() string {
	f.t.Helper()
	der, err := x509.MarshalPKIXPublicKey(f.key.Public())
	if err != nil {
		f.t.Fatal(err)
	}

	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// source returns a source that verifies what it reads.
func (f *fakeRegistry) source(reference string) published.Source {
	return published.Source{OCI: "oci://" + f.host + "/channels/base" + reference, PublicKeys: []string{f.publicKey()}}
}

// signBundle stores a signature of an artifact as cosign 3 does: a bundle that refers to it. purpose is what is signed.
func (f *fakeRegistry) signBundle(digest, signed, purpose string, key crypto.Signer) {
	f.t.Helper()
	statement := fmt.Sprintf(`{"_type":"https://in-toto.io/Statement/v1","subject":[{"digest":{"sha256":%q}}],"predicateType":%q}`,
		strings.TrimPrefix(signed, "sha256:"), purpose)
	const kind = "application/vnd.in-toto+json"
	sum := sha256.Sum256([]byte(fmt.Sprintf("DSSEv1 %d %s %d %s", len(kind), kind, len(statement), statement)))
	signature, err := key.Sign(rand.Reader, sum[:], crypto.SHA256)
	if err != nil {
		f.t.Fatal(err)
	}

	const bundle = "application/vnd.dev.sigstore.bundle.v0.3+json"
	text := fmt.Sprintf(`{"mediaType":%q,"dsseEnvelope":{"payload":%q,"payloadType":%q,"signatures":[{"sig":%q}]}}`, bundle,
		base64.StdEncoding.EncodeToString([]byte(statement)), kind, base64.StdEncoding.EncodeToString(signature))
	hash, err := v1.NewHash(digest)
	if err != nil {
		f.t.Fatal(err)
	}

	image, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), static.NewLayer([]byte(text), bundle))
	if err != nil {
		f.t.Fatal(err)
	}

	subject := v1.Descriptor{MediaType: types.OCIManifestSchema1, Digest: hash}
	referring, ok := mutate.Subject(mutate.ConfigMediaType(image, bundle), subject).(v1.Image)
	if !ok {
		f.t.Fatal("no image")
	}

	own, err := referring.Digest()
	if err != nil {
		f.t.Fatal(err)
	}

	reference, err := name.NewDigest(f.host + "/channels/base@" + own.String())
	if err != nil {
		f.t.Fatal(err)
	}

	if err := remote.Write(reference, referring, f.options...); err != nil {
		f.t.Fatal(err)
	}
}

// archive returns a compressed archive of files.
func archive(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	writer := tar.NewWriter(compressed)
	for file, text := range files {
		header := &tar.Header{Name: file, Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg}
		if target, isLink := strings.CutPrefix(text, "-> "); isLink {
			header = &tar.Header{Name: file, Linkname: target, Typeflag: tar.TypeSymlink}
			text = ""
		}

		if err := writer.WriteHeader(header); err != nil {
			t.Fatal(err)
		}

		if _, err := io.WriteString(writer, text); err != nil {
			t.Fatal(err)
		}
	}

	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}

	if err := compressed.Close(); err != nil {
		t.Fatal(err)
	}

	return out.Bytes()
}

func (f *fakeRegistry) write(tag string, image v1.Image) string {
	f.t.Helper()
	reference, err := name.NewTag(f.host + "/channels/base:" + tag)
	if err != nil {
		f.t.Fatal(err)
	}

	if err := remote.Write(reference, image, f.options...); err != nil {
		f.t.Fatal(err)
	}

	digest, err := image.Digest()
	if err != nil {
		f.t.Fatal(err)
	}

	return digest.String()
}

// push writes an artifact with one archive under a tag, and returns its digest. created may be empty.
func (f *fakeRegistry) push(tag, created string, files map[string]string) string {
	f.t.Helper()
	image := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	image, err := mutate.AppendLayers(image, static.NewLayer(archive(f.t, files), archiveType))
	if err != nil {
		f.t.Fatal(err)
	}

	if created != "" {
		annotated, ok := mutate.Annotations(image, map[string]string{"org.opencontainers.image.created": created}).(v1.Image)
		if !ok {
			f.t.Fatal("no image")
		}

		image = annotated
	}

	return f.write(tag, image)
}

// sign stores a signature of an artifact, as cosign does.
func (f *fakeRegistry) sign(digest string, key crypto.Signer) {
	f.t.Helper()
	f.signAs(digest, digest, key)
}

// signAs stores a signature whose payload is about another artifact.
func (f *fakeRegistry) signAs(digest, signed string, key crypto.Signer) {
	f.t.Helper()
	payload := fmt.Appendf(nil, `{"critical":{"identity":{"docker-reference":"x"},"image":{"docker-manifest-digest":%q},`+
		`"type":"cosign container image signature"},"optional":null}`, signed)
	sum := sha256.Sum256(payload)
	signature, err := key.Sign(rand.Reader, sum[:], crypto.SHA256)
	if err != nil {
		f.t.Fatal(err)
	}

	image, err := mutate.Append(mutate.MediaType(empty.Image, types.OCIManifestSchema1), mutate.Addendum{
		Layer:       static.NewLayer(payload, "application/vnd.dev.cosign.simplesigning.v1+json"),
		Annotations: map[string]string{"dev.cosignproject.cosign/signature": base64.StdEncoding.EncodeToString(signature)},
	})
	if err != nil {
		f.t.Fatal(err)
	}

	f.write(strings.Replace(digest, ":", "-", 1)+".sig", image)
}
