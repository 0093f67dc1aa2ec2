// SPDX-License-Identifier: Apache-2.0

package assettest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/slipway-k8s/slipway/internal/lib/asset"
	"github.com/slipway-k8s/slipway/internal/lib/asset/pin"
)

// Registries stands for all registries of images, for tests without a network: each has every tag, for amd64 and arm64. The
// digests are those of no content, and always the same. Its zero value is ready.
type Registries struct{}

// RoundTrip answers a request for a manifest.
func (Registries) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_ = req.Body.Close()
	}

	body := []byte("{}")
	header := http.Header{"Docker-Distribution-Api-Version": {"registry/2.0"}}
	if req.URL.Path != "/v2/" {
		var err error
		if body, err = json.Marshal(indexOf(req.URL.Host + req.URL.Path)); err != nil {
			return nil, err
		}

		header.Set("Content-Type", string(types.OCIImageIndex))
	}

	header.Set("Content-Length", strconv.Itoa(len(body)))

	return &http.Response{
		Status:        http.StatusText(http.StatusOK),
		StatusCode:    http.StatusOK,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        header,
		Body:          io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)),
		Request:       req,
	}, nil
}

// indexOf returns the index of an image with made-up digests.
func indexOf(image string) v1.IndexManifest {
	index := v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex}
	for _, arch := range []string{"amd64", "arm64"} {
		sum := sha256.Sum256([]byte(image + " " + arch))
		index.Manifests = append(index.Manifests, v1.Descriptor{
			MediaType: types.OCIManifestSchema1,
			Size:      1,
			Digest:    v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum[:])},
			Platform:  &v1.Platform{OS: "linux", Architecture: arch},
		})
	}

	return index
}

// WritePinnedCatalog writes the built-in catalogue, with made-up digests for all images, into a folder. It returns the path, for
// programs that cannot use [Registries].
func WritePinnedCatalog(tb testing.TB, dir string) string {
	tb.Helper()

	catalog, err := asset.LoadEmbedded()
	if err != nil {
		tb.Fatal(err)
	}

	var needs []pin.Need
	for _, i := range catalog.Images {
		needs = append(needs, pin.Need{Name: i.Name, Version: i.Version, Archs: []string{"amd64", "arm64"}})
	}

	if catalog, err = pin.Pin(tb.Context(), catalog, needs, pin.Registries{Transport: Registries{}}); err != nil {
		tb.Fatal(err)
	}

	path := filepath.Join(dir, "catalog.yaml")
	raw, err := catalog.YAML()
	if err == nil {
		err = os.WriteFile(path, raw, 0o644)
	}

	if err != nil {
		tb.Fatal(err)
	}

	return path
}
