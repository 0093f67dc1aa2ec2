// SPDX-License-Identifier: Apache-2.0

// Package asset holds the catalogue of what machines download: files and container images, each with version, upstream address and hash.
// It does not know how to fetch, build or install any of them.
package asset

import (
	"cmp"
	_ "embed" // the upstream catalogue
	"errors"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// What a catalogue document says it is.
const (
	APIVersion  = "slipway.dev/v1alpha1"
	CatalogKind = "AssetCatalog"
)

// ErrNotFound says that a catalogue lacks what was asked for.
var ErrNotFound = errors.New("not in the asset catalogue")

// FileFormat says what a downloaded file is.
type FileFormat string

// The forms of a file.
const (
	FormatBinary  FileFormat = "binary"  // the file itself is the program
	FormatArchive FileFormat = "archive" // a gzipped tar, unpacked as upstream lays it out
)

// Catalog lists the files and images of a cluster. Of several versions of one name, the first listed is the default.
type Catalog struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// FileRepository, if set, is the base URL every file is fetched from: https://dl.k8s.io/x becomes <fileRepository>/dl.k8s.io/x.
	FileRepository string `json:"fileRepository,omitempty"`
	// ContainerRegistry, if set, is the registry every image is pulled from: registry.k8s.io/x:v1 becomes <containerRegistry>/registry.k8s.io/x:v1.
	ContainerRegistry string  `json:"containerRegistry,omitempty"`
	Files             []File  `json:"files"`
	Images            []Image `json:"images"`
}

// File is one downloadable file for one architecture.
type File struct {
	Name    string     `json:"name"`    // such as kubelet
	Version string     `json:"version"` // without a leading v
	Arch    string     `json:"arch"`    // amd64 or arm64
	URL     string     `json:"url"`     // upstream's address; Catalog.File returns it rewritten
	SHA256  string     `json:"sha256"`  // 64 lower-case hex digits
	Format  FileFormat `json:"form"`
}

// Image is one container image for every architecture it has a digest for, or for all if it has none.
type Image struct {
	Name    string            `json:"name"`              // such as kube-apiserver
	Version string            `json:"version"`           // without a leading v
	Ref     string            `json:"ref"`               // upstream's reference, host/path:tag
	Digests map[string]string `json:"digests,omitempty"` // architecture → sha256:<hex> of its manifest; empty where upstream publishes none
}

//go:embed upstream.yaml
var upstream []byte

// LoadEmbedded returns the upstream catalogue that is built into the program.
func LoadEmbedded() (Catalog, error) {
	c, err := ParseCatalog(upstream)
	if err != nil {
		return Catalog{}, fmt.Errorf("reading the embedded asset catalogue: %w", err)
	}

	return c, nil
}

// YAML renders c as a document that Parse reads back.
func (c Catalog) YAML() ([]byte, error) {
	raw, err := yaml.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("printing the asset catalogue: %w", err)
	}

	return raw, nil
}

// File finds a file, its URL rewritten to FileRepository. An empty version means the default one.
// The error is ErrNotFound, with what there is instead.
func (c Catalog) File(name, version, arch string) (File, error) {
	version = strings.TrimPrefix(version, "v")
	for _, f := range c.Files {
		if f.Name == name && f.Arch == arch && cmp.Or(version, f.Version) == f.Version {
			f.URL = c.rewriteURL(f.URL)
			return f, nil
		}
	}

	var has []string

	for _, f := range c.Files {
		if f.Name == name {
			has = append(has, f.Version+"/"+f.Arch)
		}
	}

	return File{}, fmt.Errorf(
		"file %s %s for %s: %w, which has %s",
		name,
		cmp.Or(version, "of any version"),
		arch,
		ErrNotFound,
		formatVersions(has),
	)
}

// Image finds the reference of the default version of an image, rewritten to ContainerRegistry,
// with @digest if the catalogue has one for arch. The error is ErrNotFound.
func (c Catalog) Image(name, arch string) (string, error) {
	return c.ImageVersion(name, "", arch)
}

// ImageVersion is Image for one version; empty means the default one.
func (c Catalog) ImageVersion(name, version, arch string) (string, error) {
	version = strings.TrimPrefix(version, "v")
	var has []string
	for _, i := range c.Images {
		if i.Name != name {
			continue
		}

		has = append(has, i.Version)
		if cmp.Or(version, i.Version) != i.Version {
			continue
		}

		digest, ok := i.Digests[arch]

		switch {
		case ok:
			return c.rewriteRef(i.Ref) + "@" + digest, nil
		case len(i.Digests) == 0:
			return c.rewriteRef(i.Ref), nil
		}
	}

	return "", fmt.Errorf(
		"image %s %s for %s: %w, which has %s",
		name,
		cmp.Or(version, "of any version"),
		arch,
		ErrNotFound,
		formatVersions(has),
	)
}

// Versions lists the versions of a file or image, the default first.
func (c Catalog) Versions(name string) []string {
	var versions []string
	add := func(n, v string) {
		if n == name && !slices.Contains(versions, v) {
			versions = append(versions, v)
		}
	}

	for _, f := range c.Files {
		add(f.Name, f.Version)
	}

	for _, i := range c.Images {
		add(i.Name, i.Version)
	}

	return versions
}

func (c Catalog) rewriteURL(url string) string {
	if c.FileRepository == "" {
		return url
	}

	return strings.TrimRight(c.FileRepository, "/") + "/" + strings.TrimPrefix(url, "https://")
}

func (c Catalog) rewriteRef(ref string) string {
	if c.ContainerRegistry == "" {
		return ref
	}

	return strings.TrimRight(c.ContainerRegistry, "/") + "/" + ref
}

func formatVersions(items []string) string {
	if len(items) == 0 {
		return "none of that name"
	}

	return strings.Join(items, ", ")
}
