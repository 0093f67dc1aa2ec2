// SPDX-License-Identifier: Apache-2.0

package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/ignore"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// loadChart reads a chart from a directory, an archive, an address, a repository or a registry.
func (r Reader) loadChart(ctx context.Context, source *v1alpha1.AddonChart) (*chart.Chart, error) {
	archive, err := r.readArchive(ctx, source)
	if err != nil {
		return nil, err
	}

	var loaded *chart.Chart
	if archive == nil {
		loaded, err = loadChartDirectory(r.resolve(source.Chart))
	} else {
		loaded, err = loader.LoadArchive(bytes.NewReader(archive))
	}

	if err != nil {
		return nil, fmt.Errorf("read the chart: %w", err)
	}

	if source.Version != "" && loaded.Metadata.Version != source.Version {
		return nil, diag.WithHint(
			fmt.Errorf("it has version %s, not %s as the channel says", loaded.Metadata.Version, source.Version),
			"correct the version or the digest of the channel",
		)
	}

	return loaded, nil
}

// readArchive returns the archive of a chart, or nil if the chart is a directory.
func (r Reader) readArchive(ctx context.Context, source *v1alpha1.AddonChart) ([]byte, error) {
	var archive []byte
	var err error

	switch {
	case strings.HasPrefix(source.Chart, manifest.AddonRegistryScheme):
		return r.pullChart(ctx, source) // its digest is that of the manifest, not of the archive
	case source.Repository != "":
		archive, err = r.downloadFromRepository(ctx, source)
	case manifest.IsWebAddress(source.Chart):
		archive, err = r.download(ctx, source.Chart, maxChartBytes)
	default:
		info, statErr := os.Stat(r.resolve(source.Chart))
		if statErr != nil || info.IsDir() {
			return nil, statErr
		}

		archive, err = readFile(r.resolve(source.Chart), maxChartBytes)
	}

	if err != nil {
		return nil, err
	}

	return archive, checkSum("the archive", archive, strings.TrimPrefix(source.Digest, "sha256:"))
}

// repositoryIndex is the index.yaml of a chart repository.
type repositoryIndex struct {
	Entries map[string][]struct {
		Version string   `json:"version"`
		URLs    []string `json:"urls"`
	} `json:"entries"`
}

// downloadFromRepository returns the archive that a repository's index names for a version. The index need not be
// trusted, as the caller checks the hash.
func (r Reader) downloadFromRepository(ctx context.Context, source *v1alpha1.AddonChart) ([]byte, error) {
	base := strings.TrimSuffix(source.Repository, "/") + "/"

	text, err := r.download(ctx, base+"index.yaml", maxIndexBytes)
	if err != nil {
		return nil, err
	}

	var index repositoryIndex
	if err := yaml.Unmarshal(text, &index); err != nil {
		return nil, fmt.Errorf("read the index of repository %s: %w", source.Repository, err)
	}

	for _, entry := range index.Entries[source.Chart] {
		if entry.Version != source.Version || len(entry.URLs) == 0 {
			continue
		}

		address, err := resolveAddress(base, entry.URLs[0])
		if err != nil {
			return nil, fmt.Errorf("read the index of repository %s: %w", source.Repository, err)
		}

		return r.download(ctx, address, maxChartBytes)
	}

	return nil, diag.WithHint(
		fmt.Errorf("repository %s does not have version %s of it", source.Repository, source.Version),
		"list its versions with: helm search repo --versions",
	)
}

// resolveAddress returns the address of a file of a repository, which may be relative.
func resolveAddress(base, file string) (string, error) {
	root, err := url.Parse(base)
	if err != nil {
		return "", err
	}

	relative, err := url.Parse(file)
	if err != nil {
		return "", err
	}

	out := root.ResolveReference(relative)
	if out.Scheme != "https" && out.Scheme != "http" {
		return "", fmt.Errorf("it refers to an address of %s", out.Scheme)
	}

	return out.String(), nil
}

// chartLayer is the media type of a chart in a registry: https://helm.sh/docs/topics/registries/.
const chartLayer = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"

// pullChart returns the archive of a chart in an OCI registry, by the digest of its manifest.
func (r Reader) pullChart(ctx context.Context, source *v1alpha1.AddonChart) ([]byte, error) {
	repository := strings.TrimPrefix(source.Chart, manifest.AddonRegistryScheme)

	reference, err := name.NewDigest(repository + "@" + source.Digest)
	if err != nil {
		return nil, fmt.Errorf("the reference is not valid: %w", err)
	}

	ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()

	options := []remote.Option{remote.WithContext(ctx)}
	if r.Transport != nil {
		options = append(options, remote.WithTransport(r.Transport))
	}

	image, err := remote.Image(reference, options...)
	if err != nil {
		return nil, diag.WithHint(
			fmt.Errorf("pull it: %w", err),
			"check the address and the digest, and that it can be pulled without credentials",
		)
	}

	return readChartLayer(image)
}

// readChartLayer returns the layer of an OCI artifact that is a chart. The library checks its hash.
func readChartLayer(image v1.Image) ([]byte, error) {
	content, err := image.Manifest()
	if err != nil {
		return nil, fmt.Errorf("pull it: %w", err)
	}

	for _, found := range content.Layers {
		if string(found.MediaType) != chartLayer {
			continue
		}

		layer, err := image.LayerByDigest(found.Digest)
		if err != nil {
			return nil, fmt.Errorf("pull it: %w", err)
		}

		body, err := layer.Compressed()
		if err != nil {
			return nil, fmt.Errorf("pull it: %w", err)
		}

		defer func() { _ = body.Close() }()

		archive, err := readLimited(body, "the archive", maxChartBytes)
		if err != nil {
			return nil, fmt.Errorf("pull it: %w", err)
		}

		return archive, nil
	}

	return nil, errors.New("the registry has an artifact with this digest that is not a Helm chart")
}

// loadChartDirectory reads a chart from a directory. It follows no symbolic link out of it: a template could print the
// files of this machine.
func loadChartDirectory(directory string) (*chart.Chart, error) {
	root, err := os.OpenRoot(directory)
	if err != nil {
		return nil, err
	}

	defer func() { _ = root.Close() }()

	rules, err := ignoredFiles(root)
	if err != nil {
		return nil, err
	}

	reader := treeReader{root: root}
	var files []*loader.BufferedFile

	err = fs.WalkDir(root.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == "." {
			return err
		}

		info, err := entry.Info()
		if err != nil {
			return err
		}

		switch {
		case rules.Ignore(path, info) && entry.IsDir():
			return fs.SkipDir
		case rules.Ignore(path, info) || entry.IsDir():
			return nil
		}

		text, err := reader.read(path)
		if err != nil {
			return err
		}

		files = append(files, &loader.BufferedFile{Name: path, Data: bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))})

		return nil
	})
	if err != nil {
		return nil, err
	}

	return loader.LoadFiles(files)
}

// ignoredFiles returns the rules of .helmignore.
func ignoredFiles(root *os.Root) (*ignore.Rules, error) {
	rules := ignore.Empty()

	file, err := root.Open(ignore.HelmIgnore)
	if err == nil {
		defer func() { _ = file.Close() }()

		rules, err = ignore.Parse(io.LimitReader(file, maxManifestBytes))
	}

	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read %s: %w", ignore.HelmIgnore, err)
	}

	rules.AddDefaults()

	return rules, nil
}

// treeReader reads the files below a directory, up to a limit of all of them.
type treeReader struct {
	root  *os.Root
	files int
	bytes int64
}

// read returns a regular file.
func (t *treeReader) read(path string) ([]byte, error) {
	info, err := t.root.Stat(path)
	if err != nil {
		return nil, err
	}

	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}

	file, err := t.root.Open(path)
	if err != nil {
		return nil, err
	}

	defer func() { _ = file.Close() }()

	text, err := readLimited(file, path, maxTreeBytes)
	t.files++
	t.bytes += int64(len(text))

	switch {
	case err != nil:
		return nil, err
	case t.files > maxTreeFiles:
		return nil, fmt.Errorf("it has more than %d files", maxTreeFiles)
	case t.bytes > maxTreeBytes:
		return nil, fmt.Errorf("its files have more than the limit of %d bytes", maxTreeBytes)
	}

	return text, nil
}
