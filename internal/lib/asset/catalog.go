// SPDX-License-Identifier: Apache-2.0

// Package asset defines the catalogue of the files and container images that machines download,
// each with its version, upstream address and hash. A catalogue for Kubernetes' upstream locations
// is built into the program.
//
// The package does not fetch, build or install anything.
package asset

import (
	"cmp"
	_ "embed" // the upstream catalogue
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// The apiVersion and kind of a catalogue document.
const (
	APIVersion  = "slipway.dev/v1alpha1"
	CatalogKind = "AssetCatalog"
)

// ErrNotFound means that a catalogue does not contain a file or image.
var ErrNotFound = errors.New("not in the asset catalogue")

// ErrNoDigest means that a catalogue names an image by its tag only.
var ErrNoDigest = errors.New("has no digest in the asset catalogue, and its tag can be moved")

// FileFormat is the format of a downloaded file.
type FileFormat string

// The formats of files.
const (
	FormatBinary  FileFormat = "binary"  // a program
	FormatArchive FileFormat = "archive" // a gzipped tar with the layout of upstream
)

// Catalog lists the files and images of a cluster. If it lists several versions of a name, the
// first one is the default.
type Catalog struct {
	// APIVersion is the constant APIVersion.
	APIVersion string `json:"apiVersion"`
	// Kind is the constant CatalogKind.
	Kind string `json:"kind"`

	// FileRepository is the base URL of a mirror for all files: https://dl.k8s.io/x becomes
	// <fileRepository>/dl.k8s.io/x. If unset, machines use the upstream URLs.
	FileRepository string `json:"fileRepository,omitempty"`

	// ContainerRegistry is a mirror for all images: registry.k8s.io/x:v1 becomes
	// <containerRegistry>/registry.k8s.io/x:v1. If unset, machines use the upstream registries.
	ContainerRegistry string `json:"containerRegistry,omitempty"`

	// Files are unique by name, version and architecture.
	Files []File `json:"files"`
	// Images are unique by name and version.
	Images []Image `json:"images"`
}

// File is one downloadable file for one architecture.
type File struct {
	Name    string     `json:"name"`    // such as kubelet
	Version string     `json:"version"` // without a leading v
	Arch    string     `json:"arch"`    // amd64 or arm64
	URL     string     `json:"url"`     // the upstream URL; Catalog.File rewrites it for a mirror
	SHA256  string     `json:"sha256"`  // 64 lowercase hex digits
	Format  FileFormat `json:"form"`    // binary or archive

	// Size in bytes, at which a download is stopped; zero: not known.
	Size int64 `json:"size,omitempty"`
}

// Image is one container image. It supports the architectures for which it has a digest. Machines
// do not use one without digests: package pin finds them.
type Image struct {
	Name    string `json:"name"`    // such as kube-apiserver
	Version string `json:"version"` // without a leading v
	Ref     string `json:"ref"`     // the upstream reference, host/path:tag

	// Digests are the digests of the manifests, sha256:<hex>, by architecture. It is empty until
	// they are looked up, since upstream's lists have none.
	Digests map[string]string `json:"digests,omitempty"`
}

//go:embed upstream.yaml
var upstream []byte

// LoadEmbedded returns the catalogue of the upstream locations, which is built into the program.
func LoadEmbedded() (Catalog, error) {
	c, err := ParseCatalog(upstream)
	if err != nil {
		return Catalog{}, fmt.Errorf("read the embedded asset catalogue: %w", err)
	}

	return c, nil
}

// YAML returns the catalogue as a document for ParseCatalog.
func (c Catalog) YAML() ([]byte, error) {
	raw, err := yaml.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode the asset catalogue: %w", err)
	}

	return raw, nil
}

// File returns a file, with its URL rewritten for FileRepository. An empty version selects the
// default. The error wraps ErrNotFound, and lists the versions and architectures that the catalogue
// contains.
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
		"file %s %s for %s: %w, which contains %s",
		name,
		cmp.Or(version, "of any version"),
		arch,
		ErrNotFound,
		formatVersions(has),
	)
}

// Image returns the reference of the default version of an image, rewritten for ContainerRegistry.
// It ends with the digest for the architecture. The error wraps ErrNotFound or ErrNoDigest.
func (c Catalog) Image(name, arch string) (string, error) {
	return c.ImageVersion(name, "", arch)
}

// ImageVersion is Image for the given version. An empty version selects the default.
func (c Catalog) ImageVersion(name, version, arch string) (string, error) {
	image, err := c.FindImage(name, version)
	if err != nil {
		return "", err
	}

	if len(image.Digests) == 0 {
		return "", fmt.Errorf("image %s %s, %s: %w", image.Name, image.Version, image.Ref, ErrNoDigest)
	}

	if _, ok := image.Digests[arch]; !ok {
		return "", fmt.Errorf(
			"image %s %s for %s: %w, which has it for %s",
			image.Name,
			image.Version,
			arch,
			ErrNotFound,
			strings.Join(slices.Sorted(maps.Keys(image.Digests)), ", "),
		)
	}

	return c.PullReference(image, arch), nil
}

// FindImage returns an image as the catalogue has it. An empty version selects the default. The
// error wraps ErrNotFound.
func (c Catalog) FindImage(name, version string) (Image, error) {
	version = strings.TrimPrefix(version, "v")
	var has []string
	for _, i := range c.Images {
		if i.Name != name {
			continue
		}

		if cmp.Or(version, i.Version) == i.Version {
			return i, nil
		}

		has = append(has, i.Version)
	}

	return Image{}, fmt.Errorf(
		"image %s %s: %w, which contains %s",
		name,
		cmp.Or(version, "of any version"),
		ErrNotFound,
		formatVersions(has),
	)
}

// PullReference returns the reference of an image, rewritten for ContainerRegistry, with the digest
// for the architecture if it has one.
func (c Catalog) PullReference(i Image, arch string) string {
	if digest, ok := i.Digests[arch]; ok {
		return c.rewriteRef(i.Ref) + "@" + digest
	}

	return c.rewriteRef(i.Ref)
}

// Versions returns the versions of a file or image, the default first.
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

// WithDigests returns the catalogue with the digests that other has of images that it has without.
func (c Catalog) WithDigests(other Catalog) Catalog {
	c.Images = slices.Clone(c.Images)
	for at, i := range c.Images {
		same := func(j Image) bool { return j.Name == i.Name && j.Version == i.Version && j.Ref == i.Ref }
		if known := slices.IndexFunc(other.Images, same); len(i.Digests) == 0 && known >= 0 {
			c.Images[at].Digests = other.Images[known].Digests
		}
	}

	return c
}

// WithMissing returns the catalogue with the files and images of other that it does not have, after
// its own. So it also has the versions that running machines use. It includes
// [Catalog.WithDigests].
func (c Catalog) WithMissing(other Catalog) Catalog {
	c = c.WithDigests(other)
	c.Files = slices.Clone(c.Files)
	for _, f := range other.Files {
		same := func(g File) bool { return g.Name == f.Name && g.Version == f.Version && g.Arch == f.Arch }
		if !slices.ContainsFunc(c.Files, same) {
			c.Files = append(c.Files, f)
		}
	}

	for _, i := range other.Images {
		same := func(j Image) bool { return j.Name == i.Name && j.Version == i.Version }
		if !slices.ContainsFunc(c.Images, same) {
			c.Images = append(c.Images, i)
		}
	}

	return c
}

func (c Catalog) rewriteURL(url string) string {
	if c.FileRepository == "" {
		return url
	}

	return strings.TrimRight(c.FileRepository, "/") + "/" + strings.TrimPrefix(url, "https://")
}

func (c Catalog) rewriteRef(ref string) string { return c.ImagePrefix() + ref }

// ImagePrefix returns what precedes the reference of an image: ContainerRegistry with a slash, such
// as mirror.example.com/, or nothing without a mirror.
func (c Catalog) ImagePrefix() string {
	if c.ContainerRegistry == "" {
		return ""
	}

	return strings.TrimRight(c.ContainerRegistry, "/") + "/"
}

func formatVersions(items []string) string {
	if len(items) == 0 {
		return "none of that name"
	}

	return strings.Join(items, ", ")
}
