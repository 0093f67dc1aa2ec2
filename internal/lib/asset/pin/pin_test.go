// SPDX-License-Identifier: Apache-2.0

package pin_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/slipway-k8s/slipway/internal/lib/asset"
	"github.com/slipway-k8s/slipway/internal/lib/asset/assettest"
	"github.com/slipway-k8s/slipway/internal/lib/asset/pin"
)

// newImage returns an image for an architecture, and its digest.
func newImage(t *testing.T, arch string) (v1.Image, string) {
	t.Helper()
	image := assettest.NewImage(t, arch)
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return image, digest.String()
}

// lab is a registry on loopback, and a catalogue without digests whose mirror it is.
type lab struct {
	catalog asset.Catalog
	host    string
	digests map[string]string // of coredns, by architecture
	pause   string            // the digest of pause, which there is for amd64 only
}

func startLab(t *testing.T) lab {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo))))
	t.Cleanup(server.Close)
	l := lab{host: strings.TrimPrefix(server.URL, "http://"), digests: map[string]string{}}
	l.catalog = asset.Catalog{ContainerRegistry: l.host, Images: []asset.Image{
		{Name: "coredns", Version: "1.14.2", Ref: "registry.k8s.io/coredns/coredns:v1.14.2"},
		{Name: "coredns", Version: "1.14.1", Ref: "registry.k8s.io/coredns/coredns:v1.14.1"},
		{Name: "pause", Version: "3.10.1", Ref: "registry.k8s.io/pause:3.10.1"},
	}}

	index := mutate.IndexMediaType(empty.Index, "application/vnd.oci.image.index.v1+json")
	for _, platform := range []string{"windows/amd64", "linux/amd64", "linux/arm64", "linux/s390x", "unknown/unknown"} {
		system, arch, _ := strings.Cut(platform, "/")
		image, digest := newImage(t, arch)
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: system, Architecture: arch}},
		})
		if system == "linux" && arch != "s390x" {
			l.digests[arch] = digest
		}
	}
	l.push(t, l.catalog.Images[0].Ref, func(ref name.Reference) error { return remote.WriteIndex(ref, index) })
	image, digest := newImage(t, "amd64")
	l.pause = digest
	l.push(t, l.catalog.Images[2].Ref, func(ref name.Reference) error { return remote.Write(ref, image) })
	return l
}

func (l lab) push(t *testing.T, image string, write func(name.Reference) error) {
	t.Helper()
	ref, err := name.ParseReference(l.host + "/" + image)
	if err != nil {
		t.Fatal(err)
	}
	if err := write(ref); err != nil {
		t.Fatal(err)
	}
}

// TestTagsBecomeDigests: the images that are needed get the digests of their tags for each architecture of the catalogue.
func TestTagsBecomeDigests(t *testing.T) {
	l := startLab(t)
	before := l.catalog.Images[0]
	needs := []pin.Need{{Name: "coredns", Archs: []string{"amd64", "arm64"}}, {Name: "pause", Version: "3.10.1", Archs: []string{"amd64"}}}
	got, err := pin.Pin(t.Context(), l.catalog, needs, pin.Registries{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]map[string]string{l.digests, nil, {"amd64": l.pause}}, []map[string]string{
		got.Images[0].Digests, got.Images[1].Digests, got.Images[2].Digests,
	}); diff != "" {
		t.Errorf("digests (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, l.catalog.Images[0]); diff != "" {
		t.Errorf("the given catalogue was changed:\n%s", diff)
	}

	// A second run asks no registry.
	again, err := pin.Pin(t.Context(), got, needs, pin.Registries{Transport: refusing{}})
	if diff := cmp.Diff(got, again); err != nil || diff != "" {
		t.Errorf("a second run: %v\n%s", err, diff)
	}
}

// refusing is a network without registries.
type refusing struct{}

func (refusing) RoundTrip(*http.Request) (*http.Response, error) { return nil, http.ErrServerClosed }

// TestMissingDigestsAreNamed: each image without a digest is named with its registry and the reason.
func TestMissingDigestsAreNamed(t *testing.T) {
	l := startLab(t)
	_, err := pin.Pin(t.Context(), l.catalog, []pin.Need{
		{Name: "coredns", Version: "1.14.1", Archs: []string{"amd64"}},
		{Name: "pause", Archs: []string{"amd64", "arm64"}},
		{Name: "flannel", Archs: []string{"amd64"}},
	}, pin.Registries{})
	if err == nil {
		t.Fatal("images without digests are not an error")
	}
	for _, want := range []string{
		"find the digest of image " + l.host + "/registry.k8s.io/coredns/coredns:v1.14.1: ask the registry " + l.host + ": ",
		"find the digest of image " + l.host + "/registry.k8s.io/pause:3.10.1: the registry has it for amd64, not for linux on arm64",
		"image flannel of any version: not in the asset catalogue",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q:\n%v", want, err)
		}
	}
}

// TestUnreachableRegistryIsNamed: without a network, the error names the image and upstream's registry.
func TestUnreachableRegistryIsNamed(t *testing.T) {
	l := startLab(t)
	l.catalog.ContainerRegistry = ""
	needs := []pin.Need{{Name: "pause", Archs: []string{"amd64"}}}
	_, err := pin.Pin(t.Context(), l.catalog, needs, pin.Registries{Transport: refusing{}})
	const want = "find the digest of image registry.k8s.io/pause:3.10.1: ask the registry registry.k8s.io: "
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

// TestStandInHasEveryImage: the registries of other tests have digests of every image.
func TestStandInHasEveryImage(t *testing.T) {
	l := startLab(t)
	l.catalog.ContainerRegistry = ""
	needs := []pin.Need{{Name: "pause", Archs: []string{"amd64", "arm64"}}, {Name: "coredns", Archs: []string{"arm64"}}}
	got, err := pin.Pin(t.Context(), l.catalog, needs, pin.Registries{Transport: assettest.Registries{}})
	if err != nil {
		t.Fatal(err)
	}
	pause, coredns := got.Images[2].Digests, got.Images[0].Digests
	if len(pause) != 2 || pause["amd64"] == pause["arm64"] || pause["amd64"] == coredns["amd64"] {
		t.Errorf("digests of pause %v and coredns %v", pause, coredns)
	}
}
