// SPDX-License-Identifier: Apache-2.0

package build_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/slipway-k8s/slipway/internal/lib/asset/build"
)

const imageRef = "registry.k8s.io/coredns/coredns:v1.2.3"

// served is a folder with one random image and one file behind the handler.
func served(t *testing.T) (*httptest.Server, string) {
	t.Helper()
	dir := t.TempDir()
	image, err := random.Image(2000, 3)
	if err != nil {
		t.Fatal(err)
	}
	image = mutate.MediaType(image, types.OCIManifestSchema1)
	path, err := layout.Write(filepath.Join(dir, "images"), empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := path.AppendImage(image, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": imageRef})); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "files/dl.k8s.io/release/kubelet")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("a kubelet"), 0o644); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(build.RegistryHandler(dir))
	t.Cleanup(server.Close)
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return server, digest.String()
}

func TestARegistryClientPullsByTagAndDigest(t *testing.T) {
	server, digest := served(t)
	host := strings.TrimPrefix(server.URL, "http://")
	for _, ref := range []string{imageRef, "registry.k8s.io/coredns/coredns@" + digest} {
		parsed, err := name.ParseReference(host + "/" + ref)
		if err != nil {
			t.Fatal(err)
		}
		image, err := remote.Image(parsed, remote.WithContext(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		if err := validate.Image(image); err != nil {
			t.Error(err)
		}
		if got, err := image.Digest(); err != nil || got.String() != digest {
			t.Errorf("%s has digest %s, %v, want %s", ref, got, err, digest)
		}
	}
	repository, err := name.NewRepository(host + "/registry.k8s.io/coredns/coredns")
	if err != nil {
		t.Fatal(err)
	}
	if tags, err := remote.List(repository, remote.WithContext(t.Context())); err != nil || strings.Join(tags, " ") != "v1.2.3" {
		t.Errorf("tags %v, %v", tags, err)
	}
}

func TestTheHandlerAnswersAsTheSpecificationSays(t *testing.T) {
	server, digest := served(t)
	tests := []struct {
		method, path string
		status       int
		body         string
	}{
		{"GET", "/v2/", 200, ""},
		{"HEAD", "/v2/registry.k8s.io/coredns/coredns/manifests/v1.2.3", 200, ""},
		{"GET", "/v2/registry.k8s.io/coredns/coredns/manifests/v9", 404, "MANIFEST_UNKNOWN"},
		{"GET", "/v2/registry.k8s.io/other/manifests/" + digest, 404, "MANIFEST_UNKNOWN"},
		{"GET", "/v2/x/blobs/sha256:" + strings.Repeat("0", 64), 404, "BLOB_UNKNOWN"},
		{"GET", "/v2/x/blobs/sha256:..", 400, "DIGEST_INVALID"},
		{"GET", "/v2/x/tags/list", 404, "NAME_UNKNOWN"},
		{"GET", "/v2/nothing", 404, "NAME_UNKNOWN"},
		{"PUT", "/v2/registry.k8s.io/coredns/coredns/manifests/v1.2.3", 405, ""},
		{"GET", "/files/dl.k8s.io/release/kubelet", 200, "a kubelet"},
		{"GET", "/files/dl.k8s.io/release/kubectl", 404, ""},
		{"GET", "/files/../images/index.json", 404, ""},
	}
	for _, tt := range tests {
		req, err := http.NewRequestWithContext(t.Context(), tt.method, server.URL+tt.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != tt.status || !strings.Contains(string(body), tt.body) {
			t.Errorf("%s %s: %d %s, %v, want %d %s", tt.method, tt.path, resp.StatusCode, body, err, tt.status, tt.body)
		}
	}
}

func TestWithoutImagesTheHandlerSaysWhatToDo(t *testing.T) {
	recorder := httptest.NewRecorder()
	build.RegistryHandler(t.TempDir()).ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), "GET", "/v2/x/manifests/v1", nil))
	if recorder.Code != http.StatusServiceUnavailable || !strings.Contains(recorder.Body.String(), "slipway assets build") {
		t.Errorf("%d %s", recorder.Code, recorder.Body)
	}
}
