// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// imageUser is the user of the container: no user of a distribution, as in distroless images.
const imageUser = "65532:65532"

// buildImage builds the container image of all Linux platforms as one OCI layout in an archive. It needs no
// daemon and no base image: the image has the programs, certificate authorities, and little else.
func (r *release) buildImage(_ context.Context, work string) error {
	var index v1.ImageIndex = empty.Index
	index = mutate.IndexMediaType(index, types.OCIImageIndex)
	for _, p := range r.targets {
		if p.os != "linux" {
			continue
		}

		image, err := r.platformImage(p)
		if err != nil {
			return fmt.Errorf("image for %s: %w", p, err)
		}

		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.os, Architecture: p.arch}},
		})
	}

	dir := filepath.Join(work, "image")
	path, err := layout.Write(dir, mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	if err != nil {
		return err
	}

	names := map[string]string{"org.opencontainers.image.ref.name": r.version.number}
	if err := path.AppendIndex(index, layout.WithAnnotations(names)); err != nil {
		return err
	}

	files, err := filesBelow(dir)
	if err != nil {
		return err
	}

	return r.writeFile(fmt.Sprintf("slipway_%s_image.tar", r.version.number), func(w io.Writer) error {
		return writeTar(w, files, r.version.when)
	})
}

// platformImage returns the image of one platform.
func (r *release) platformImage(p platform) (v1.Image, error) {
	base, err := r.newLayer(systemFiles())
	if err != nil {
		return nil, err
	}

	programs := append(
		r.programFiles(p, libDir),
		file{path: "usr/bin/slipway", link: "../lib/slipway/slipway"},
		file{path: "usr/bin/slipway-node", link: "../lib/slipway/slipway-node"},
	)
	own, err := r.newLayer(programs)
	if err != nil {
		return nil, err
	}

	image := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	image = mutate.ConfigMediaType(image, types.OCIConfigJSON)
	image, err = mutate.AppendLayers(image, base, own)
	if err != nil {
		return nil, err
	}

	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}

	config = config.DeepCopy()
	config.OS = p.os
	config.Architecture = p.arch
	config.Created = v1.Time{Time: r.version.when}
	config.Config = v1.Config{
		User:       imageUser,
		Entrypoint: []string{"/usr/bin/slipway"},
		WorkingDir: "/home/slipway",
		Env:        []string{"PATH=/usr/bin", "HOME=/home/slipway"},
		Labels: map[string]string{
			"org.opencontainers.image.title":    programCLI,
			"org.opencontainers.image.version":  r.version.number,
			"org.opencontainers.image.licenses": "Apache-2.0",
			"org.opencontainers.image.source":   "https://github.com/slipway-k8s/slipway",
		},
	}
	for i := range config.History {
		config.History[i].Created = config.Created
	}

	return mutate.ConfigFile(image, config)
}

// newLayer returns a layer with files.
func (r *release) newLayer(files []file) (v1.Layer, error) {
	var b bytes.Buffer
	if err := writeTar(&b, files, r.version.when); err != nil {
		return nil, err
	}

	return tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer),
	)
}

// systemFiles returns what programs expect of a system: users, a directory for temporary files, a home, and
// the certificate authorities of Mozilla, from the module golang.org/x/crypto/x509roots/fallback.
func systemFiles() []file {
	var roots bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue // trusted for some certificates only, which this format cannot express
		}

		_ = pem.Encode(&roots, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer takes everything
	}

	const passwd = "root:x:0:0:root:/root:/sbin/nologin\nslipway:x:65532:65532:slipway:/home/slipway:/sbin/nologin\n"

	return []file{
		{path: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, body: roots.Bytes()},
		{path: "etc/passwd", mode: 0o644, body: []byte(passwd)},
		{path: "etc/group", mode: 0o644, body: []byte("root:x:0:\nslipway:x:65532:\n")},
		{path: "tmp/", mode: 0o777 | fs.ModeDir | fs.ModeSticky},
		{path: "home/slipway/", mode: 0o755 | fs.ModeDir, owner: 65532},
	}
}

// filesBelow returns the files of a directory.
func filesBelow(dir string) ([]file, error) {
	var out []file
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}

		name, err := filepath.Rel(dir, path)
		out = append(out, file{path: filepath.ToSlash(name), mode: 0o644, source: path})

		return err
	})

	return slices.Clip(out), err
}
