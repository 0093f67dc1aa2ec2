// SPDX-License-Identifier: Apache-2.0

package fetch_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/slipway-k8s/slipway/internal/lib/asset"
	"github.com/slipway-k8s/slipway/internal/lib/asset/build"
	"github.com/slipway-k8s/slipway/internal/lib/asset/fetch"
)

// mirror is a mirror of upstream on loopback.
type mirror struct {
	*httptest.Server
	catalog  asset.Catalog
	requests atomic.Int32
	refuse   atomic.Pointer[string] // paths that contain it are answered with 503
	digests  map[string]string      // of the images, by reference
}

// startMirror serves two versions of a file for two architectures, one of another file, and three images.
func startMirror(t *testing.T) *mirror {
	t.Helper()
	dir := t.TempDir()
	m := &mirror{digests: map[string]string{}}
	m.catalog = asset.Catalog{APIVersion: asset.APIVersion, Kind: asset.CatalogKind}
	for _, version := range []string{"1.36.3", "1.35.8"} {
		m.addFile(t, dir, "kubelet", version, "amd64")
		m.addFile(t, dir, "kubelet", version, "arm64")
	}
	m.addFile(t, dir, "etcd", "3.6.14", "amd64")

	index, err := layout.Write(filepath.Join(dir, "images"), empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	for _, image := range [][2]string{{"kube-proxy", "1.36.3"}, {"kube-proxy", "1.35.8"}, {"pause", "3.10.1"}} {
		m.addImage(t, index, image[0], image[1])
	}

	handler := build.RegistryHandler(dir)
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		m.requests.Add(1)
		if part := m.refuse.Load(); part != nil && strings.Contains(req.URL.Path, *part) {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		handler.ServeHTTP(w, req)
	}))
	t.Cleanup(m.Close)
	m.catalog.FileRepository = m.URL + "/files"
	m.catalog.ContainerRegistry = strings.TrimPrefix(m.URL, "http://")
	return m
}

func (m *mirror) addFile(t *testing.T, dir, file, version, arch string) {
	t.Helper()
	url := "example.com/v" + version + "/" + arch + "/" + file
	raw := []byte("the program " + url)
	path := filepath.Join(dir, "files", url)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, raw, 0o644)); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(raw)
	m.catalog.Files = append(m.catalog.Files, asset.File{
		Name: file, Version: version, Arch: arch, URL: "https://" + url, SHA256: hex.EncodeToString(sum[:]), Format: asset.FormatBinary,
	})
}

func (m *mirror) addImage(t *testing.T, index layout.Path, image, version string) {
	t.Helper()
	content, err := random.Image(1000, 2)
	if err != nil {
		t.Fatal(err)
	}
	config, err := content.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.Architecture = "amd64"
	if content, err = mutate.ConfigFile(content, config); err != nil {
		t.Fatal(err)
	}
	ref := "registry.example.com/" + image + ":v" + version
	if err := index.AppendImage(content, layout.WithAnnotations(map[string]string{build.RefAnnotation: ref})); err != nil {
		t.Fatal(err)
	}
	digest, err := content.Digest()
	if err != nil {
		t.Fatal(err)
	}
	m.digests[ref] = digest.String()
	m.catalog.Images = append(m.catalog.Images, asset.Image{Name: image, Version: version, Ref: ref})
}

func (m *mirror) fetch(t *testing.T, out string, kubernetes ...string) (fetch.Result, string, error) {
	t.Helper()
	var log bytes.Buffer
	r, err := fetch.Run(t.Context(), fetch.Options{
		Catalog: m.catalog, Out: out, Arch: "amd64", Kubernetes: kubernetes,
		FileRepository: "http://198.18.0.1:5000/files", ContainerRegistry: "198.18.0.1:5000",
		Transport: http.DefaultTransport, Log: &log, Clock: time.Now,
	})
	return r, log.String(), err
}

// readCatalog returns the catalogue of a run and the names and versions in it.
func readCatalog(t *testing.T, path string) (c asset.Catalog, names []string) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = asset.ParseCatalog(raw); err != nil {
		t.Fatal(err)
	}
	for _, f := range c.Files {
		names = append(names, f.Name+" "+f.Version+" "+f.Arch)
	}
	for _, i := range c.Images {
		names = append(names, i.Name+" "+i.Version)
	}
	return c, names
}

// TestFetchedAssetsAreServed: what was downloaded is served as what is built, with pinned images.
func TestFetchedAssetsAreServed(t *testing.T) {
	m, out := startMirror(t), t.TempDir()
	r, log, err := m.fetch(t, out)
	if err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	c, names := readCatalog(t, r.Catalog)
	want := []string{"kubelet 1.36.3 amd64", "etcd 3.6.14 amd64", "kube-proxy 1.36.3", "pause 3.10.1"}
	if !slices.Equal(names, want) {
		t.Errorf("the catalogue has %q, want %q", names, want)
	}

	served := httptest.NewServer(build.RegistryHandler(out))
	defer served.Close()
	for _, i := range c.Images {
		if i.Digests["amd64"] != m.digests[i.Ref] {
			t.Errorf("%s is pinned to %s, want %s", i.Ref, i.Digests["amd64"], m.digests[i.Ref])
		}
		pull(t, strings.TrimPrefix(served.URL, "http://")+"/"+i.Ref+"@"+i.Digests["amd64"])
	}
	resp, err := http.Get(served.URL + "/files/example.com/v1.36.3/amd64/kubelet")
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("the kubelet is not served: %v, %v", resp, err)
	}
	_ = resp.Body.Close()
	if c.FileRepository != "http://198.18.0.1:5000/files" || c.ContainerRegistry != "198.18.0.1:5000" {
		t.Errorf("machines would download from %s and %s", c.FileRepository, c.ContainerRegistry)
	}
}

func pull(t *testing.T, address string) {
	t.Helper()
	ref, err := name.ParseReference(address)
	if err != nil {
		t.Fatal(err)
	}
	image, err := remote.Image(ref)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		checkLayer(t, l)
	}
}

// checkLayer reads a layer to its end, which compares its content with its digest.
func checkLayer(t *testing.T, l v1.Layer) {
	t.Helper()
	r, err := l.Compressed()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := new(bytes.Buffer).ReadFrom(r); err != nil {
		t.Error(err)
	}
}

// TestSecondFetchDownloadsNothing: a second run makes no request, and a further version adds only its own.
func TestSecondFetchDownloadsNothing(t *testing.T) {
	m, out := startMirror(t), t.TempDir()
	if _, log, err := m.fetch(t, out); err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	m.requests.Store(0)
	r, log, err := m.fetch(t, out)
	if err != nil || r.Downloaded != 0 || m.requests.Load() != 0 || !strings.Contains(log, "nothing to download") {
		t.Errorf("the second run downloaded %d in %d requests: %v\n%s", r.Downloaded, m.requests.Load(), err, log)
	}

	r, log, err = m.fetch(t, out, "1.35")
	_, names := readCatalog(t, r.Catalog)
	if err != nil || r.Downloaded != 2 || !slices.Contains(names, "kubelet 1.35.8 amd64") || !slices.Contains(names, "kube-proxy 1.35.8") {
		t.Errorf("with 1.35: %d downloads, %q, %v\n%s", r.Downloaded, names, err, log)
	}
}

// TestFetchContinues: a run that failed names every failure and writes no catalogue; the next one downloads the rest.
func TestFetchContinues(t *testing.T) {
	m, out := startMirror(t), t.TempDir()
	missing := "etcd"
	m.refuse.Store(&missing)
	image := m.catalog.Images[2]
	m.catalog.Images[2].Ref = "registry.example.com/other:v1"
	_, log, err := m.fetch(t, out)
	if err == nil || !strings.Contains(err.Error(), "download etcd 3.6.14") || !strings.Contains(err.Error(), "pull image registry.example.com/other:v1") {
		t.Errorf("the failures are not named: %v\n%s", err, log)
	}
	if _, err := os.Stat(filepath.Join(out, "catalog.yaml")); err == nil {
		t.Error("there is a catalogue of an incomplete run")
	}

	m.refuse.Store(nil)
	m.catalog.Images[2] = image
	r, log, err := m.fetch(t, out)
	if err != nil || r.Downloaded != 2 {
		t.Errorf("the next run downloaded %d, want 2: %v\n%s", r.Downloaded, err, log)
	}
}

// TestWrongContentIsRefused: neither a file with another hash nor an image with another digest is stored.
func TestWrongContentIsRefused(t *testing.T) {
	m, out := startMirror(t), t.TempDir()
	wrong := strings.Repeat("ab", sha256.Size)
	m.catalog.Files[0].SHA256 = wrong
	m.catalog.Images[0].Digests = map[string]string{"amd64": "sha256:" + wrong}
	_, _, err := m.fetch(t, out)
	if err == nil || !strings.Contains(err.Error(), "and the catalogue says "+wrong) || !strings.Contains(err.Error(), "pull image registry.example.com/kube-proxy:v1.36.3") {
		t.Errorf("wrong content: %v", err)
	}
	if found, _ := filepath.Glob(filepath.Join(out, "files/example.com/v1.36.3/amd64/*")); len(found) != 0 {
		t.Errorf("wrong content is stored: %v", found)
	}
}

// TestUnknownVersionIsRefused: all mistakes are named before anything is downloaded.
func TestUnknownVersionIsRefused(t *testing.T) {
	m := startMirror(t)
	_, _, err := m.fetch(t, t.TempDir(), "1.34", "1.36.9")
	if !errors.Is(err, asset.ErrNotFound) || !strings.Contains(err.Error(), "kubernetes version 1.34:") || !strings.Contains(err.Error(), "kubernetes version 1.36.9:") {
		t.Errorf("unknown versions: %v", err)
	}
	if m.requests.Load() != 0 {
		t.Error("something was downloaded")
	}
}

// TestImagesOfAnotherArchitecture: what was downloaded for one architecture is not used for another one.
func TestImagesOfAnotherArchitecture(t *testing.T) {
	m, out := startMirror(t), t.TempDir()
	if _, log, err := m.fetch(t, out); err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	var log bytes.Buffer
	_, err := fetch.Run(t.Context(), fetch.Options{
		Catalog: m.catalog, Out: out, Arch: "arm64", Transport: http.DefaultTransport, Log: &log, Clock: time.Now,
	})
	if err == nil || !strings.Contains(err.Error(), `it is for the architecture "amd64", not arm64`) {
		t.Errorf("the images for amd64 are used: %v\n%s", err, log.String())
	}
}
