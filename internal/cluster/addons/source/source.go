// SPDX-License-Identifier: Apache-2.0

// Package source reads the objects of an add-on from where its channel says: a manifest (a file, an address, an object of
// the state store), a directory, a kustomization or a Helm chart.
//
// Nothing is run: no plugin, no shell, no git. What comes over the network needs its SHA-256 in the channel. Every
// size is limited, and a chart or kustomization reads no file outside of its directory, also not through symbolic links.
//
// The same source gives the same objects. The package makes no request to Kubernetes, so that a chart's lookups find
// nothing, and a chart that generates passwords or certificates is refused: each apply would replace them.
package source

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/machine/addon/bundle"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// The limits of what is read.
const (
	maxManifestBytes = 16 << 20
	maxChartBytes    = 20 << 20 // of an archive
	maxTreeBytes     = 64 << 20 // of the files of a chart or of a kustomization
	maxTreeFiles     = 5000
	maxIndexBytes    = 64 << 20 // of a chart repository; those of large repositories have 30 MB
)

// Reader reads the sources of a channel for one cluster.
type Reader struct {
	// Directory that paths of the channel are relative to.
	Directory string
	// Kubernetes is the version that charts are rendered for.
	Kubernetes *semver.Version
	// Values are those of the cluster that parameters are taken from.
	Values map[string]string
	// Transport makes the requests for addresses. Nil: http.DefaultTransport.
	Transport http.RoundTripper
	// ReadState returns an object of the cluster in the state store. Nil: there is none.
	ReadState func(ctx context.Context, path string) ([]byte, error)
	// ReadSecret returns a registry secret of the cluster, decrypted. Nil: there is none.
	ReadSecret func(ctx context.Context, name string) ([]byte, error)
}

// Objects returns the objects of an add-on as they are applied: with its parameters, its labels and the label of
// their owner, sorted.
func (r Reader) Objects(ctx context.Context, a v1alpha1.Addon) ([]*unstructured.Unstructured, error) {
	parameters, err := r.parameters(a)
	if err != nil {
		return nil, err
	}

	if a.Source.Helm != nil {
		used := bundle.NewParameters(parameters)
		objects, err := r.readChart(ctx, a, used)
		if err == nil {
			err = used.CheckUsed(a.Name, "value of the chart")
		}

		if err != nil {
			return nil, err
		}

		return prepare(a, objects, nil)
	}

	objects, err := r.readObjects(ctx, a.Source)
	if err != nil {
		return nil, err
	}

	return prepare(a, objects, parameters)
}

// prepare returns the objects as they are applied.
func prepare(
	a v1alpha1.Addon,
	objects []*unstructured.Unstructured,
	parameters map[string]string,
) ([]*unstructured.Unstructured, error) {
	if len(objects) == 0 {
		return nil, diag.WithHint(
			errors.New("its source has no objects"),
			"to delete the add-on, remove it from the channel and run: slipway addons prune",
		)
	}

	return bundle.Prepare(a.Name, objects, parameters, a.Selector)
}

// parameters returns the values of an add-on's parameters.
func (r Reader) parameters(a v1alpha1.Addon) (map[string]string, error) {
	out := map[string]string{}
	for _, p := range a.Parameters {
		out[p.Name] = p.Value
		if p.From == "" {
			continue
		}

		out[p.Name] = r.Values[p.From]
		if r.Values[p.From] == "" && p.From != manifest.AddonImagePrefix {
			return nil, diag.WithHint(
				fmt.Errorf("parameter %s: the cluster has no value for %s", p.Name, p.From),
				"set the field in the cluster's manifest, or give the parameter a value",
			)
		}
	}

	return out, nil
}

// readObjects returns the objects of a manifest, a directory, a kustomization or a list of namespaces.
func (r Reader) readObjects(ctx context.Context, s v1alpha1.AddonSource) ([]*unstructured.Unstructured, error) {
	switch {
	case len(s.Namespaces) > 0:
		return r.namespaceObjects(ctx, s.Namespaces)
	case s.Kustomization != "":
		return r.readKustomization(s.Kustomization)
	case s.Directory != "":
		return r.readDirectory(s.Directory)
	}

	text, err := r.readManifest(ctx, s)
	if err != nil {
		return nil, err
	}

	return parseObjects(withoutQuery(s.Manifest), text)
}

// parseObjects returns the objects of a text. name is where it is from.
func parseObjects(name string, text []byte) ([]*unstructured.Unstructured, error) {
	objects, err := bundle.ReadObjects(text)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}

	return objects, nil
}

// readManifest returns a manifest. A hash that is given must be that of the manifest.
func (r Reader) readManifest(ctx context.Context, s v1alpha1.AddonSource) ([]byte, error) {
	var text []byte
	var err error

	path, inState := strings.CutPrefix(s.Manifest, manifest.AddonStateScheme)

	switch {
	case inState && r.ReadState == nil:
		return nil, fmt.Errorf("read %s: there is no state store", s.Manifest)
	case inState:
		text, err = r.ReadState(ctx, path)
	case manifest.IsWebAddress(s.Manifest):
		text, err = r.download(ctx, s.Manifest, maxManifestBytes)
	default:
		text, err = readFile(r.resolve(s.Manifest), maxManifestBytes)
	}

	if err != nil {
		return nil, fmt.Errorf("read the source: %w", err)
	}

	return text, checkSum("manifest "+withoutQuery(s.Manifest), text, s.SHA256)
}

// checkSum returns an error if a text does not have a hash. An empty hash is not checked.
func checkSum(what string, text []byte, want string) error {
	sum := sha256.Sum256(text)
	found := hex.EncodeToString(sum[:])
	if want == "" || found == want {
		return nil
	}

	return diag.WithHint(
		fmt.Errorf("%s has the SHA-256 %s, not %s as the channel says", what, found, want),
		"restore it, or write its hash into the channel if the change is right",
	)
}

// readDirectory returns the objects of the files of a directory.
func (r Reader) readDirectory(directory string) ([]*unstructured.Unstructured, error) {
	entries, err := os.ReadDir(r.resolve(directory))
	if err != nil {
		return nil, fmt.Errorf("read the directory of the source: %w", err)
	}

	var objects []*unstructured.Unstructured

	for _, e := range entries {
		if hint := otherSourceHint(e.Name(), directory); hint != "" {
			return nil, diag.WithHint(fmt.Errorf("directory %s has %s", directory, e.Name()), hint)
		}

		if !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) || e.IsDir() {
			continue
		}

		path := filepath.Join(r.resolve(directory), e.Name())
		text, err := readFile(path, maxManifestBytes)
		if err != nil {
			return nil, fmt.Errorf("read the source: %w", err)
		}

		read, err := parseObjects(path, text)
		if err != nil {
			return nil, err
		}

		objects = append(objects, read...)
	}

	return objects, nil
}

// otherSourceHint returns how a directory is read that a file says is not one of manifests.
func otherSourceHint(file, directory string) string {
	switch {
	case file == "Chart.yaml":
		return "it is a Helm chart: write helm: {chart: " + directory + "} instead of directory"
	case isKustomizationName(file):
		return "it is a kustomization: write kustomization: " + directory + " instead of directory"
	}

	return ""
}

// resolve returns the path of a file of the channel.
func (r Reader) resolve(path string) string {
	if filepath.IsAbs(path) {
		return path
	}

	return filepath.Join(r.Directory, path)
}

// readFile returns a file of a limited size.
func readFile(path string, limit int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}

	defer func() { _ = file.Close() }()

	return readLimited(file, path, limit)
}

// readLimited reads up to a number of bytes, and returns an error if there are more.
func readLimited(from io.Reader, name string, limit int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(from, limit+1))
	if err != nil {
		return nil, err
	}

	if int64(len(text)) > limit {
		return nil, fmt.Errorf("%s has more than the limit of %d bytes", name, limit)
	}

	return text, nil
}
