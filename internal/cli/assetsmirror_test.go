// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/slipway-k8s/slipway/internal/lib/asset"
	"github.com/slipway-k8s/slipway/internal/lib/asset/build"
)

// mirrorAssets is the command of scripts `mirror CATALOG`: it serves a kubelet and an image on loopback until the script
// ends, writes a catalogue with the address of this mirror, and sets DIGEST to the digest of the image.
func mirrorAssets(ts *testscript.TestScript, _ bool, args []string) {
	dir := ts.MkAbs("mirror")
	const url = "dl.k8s.io/release/v1.36.3/bin/linux/amd64/kubelet"
	program := []byte("a kubelet")
	path := filepath.Join(dir, "files", url)
	ts.Check(os.MkdirAll(filepath.Dir(path), 0o755))
	ts.Check(os.WriteFile(path, program, 0o644))

	const ref = "registry.k8s.io/pause:3.10.1"
	image, err := random.Image(1000, 1)
	ts.Check(err)
	config, err := image.ConfigFile()
	ts.Check(err)
	config = config.DeepCopy()
	config.Architecture = "amd64"
	image, err = mutate.ConfigFile(image, config)
	ts.Check(err)
	digest, err := image.Digest()
	ts.Check(err)
	ts.Setenv("DIGEST", digest.String())
	index, err := layout.Write(filepath.Join(dir, "images"), empty.Index)
	ts.Check(err)
	ts.Check(index.AppendImage(image, layout.WithAnnotations(map[string]string{build.RefAnnotation: ref})))

	server := httptest.NewServer(build.RegistryHandler(dir))
	ts.Defer(server.Close)
	sum := sha256.Sum256(program)
	raw, err := asset.Catalog{
		APIVersion: asset.APIVersion, Kind: asset.CatalogKind,
		FileRepository: server.URL + "/files", ContainerRegistry: strings.TrimPrefix(server.URL, "http://"),
		Files: []asset.File{{
			Name: "kubelet", Version: "1.36.3", Arch: "amd64", URL: "https://" + url, SHA256: hex.EncodeToString(sum[:]), Format: asset.FormatBinary,
		}},
		Images: []asset.Image{{Name: "pause", Version: "3.10.1", Ref: ref}},
	}.YAML()
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), raw, 0o644))
}

// cmdRegistry is the command of scripts `registry`: it starts an empty registry on loopback and sets REGISTRY to its
// address.
func cmdRegistry(ts *testscript.TestScript, _ bool, _ []string) {
	server := httptest.NewServer(registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo))))
	ts.Defer(server.Close)
	ts.Setenv("REGISTRY", strings.TrimPrefix(server.URL, "http://"))
}
