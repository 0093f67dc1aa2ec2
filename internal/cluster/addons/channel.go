// SPDX-License-Identifier: Apache-2.0

package addons

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/machine/addon/applier"
	"github.com/slipway-k8s/slipway/internal/machine/addon/bundle"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// Channel is a channel with the objects of the add-ons that were chosen for a cluster.
type Channel struct {
	// Name of the channel.
	Name string
	// Releases in the order in which they are applied.
	Releases []applier.Release
	// Unfit are add-ons of which no version is for the cluster's version of Kubernetes.
	Unfit []string
}

// Load chooses the versions of a channel for the cluster and reads their objects. Paths in the channel are relative to
// the directory.
func (s *Session) Load(text []byte, directory string) (Channel, error) {
	parsed, findings := manifest.ParseAddonChannel(text)
	if err := findings.Err(); err != nil {
		return Channel{}, err
	}

	choice, err := bundle.Choose(parsed.Spec.Addons, s.Kubernetes)
	if err != nil {
		return Channel{}, err
	}

	waves, err := bundle.Waves(choice.Addons)
	if err != nil {
		return Channel{}, err
	}

	out := Channel{Name: parsed.Metadata.Name, Unfit: choice.Unfit}
	values := manifest.AddonClusterValues(s.Cluster)
	var errs []error

	for n, wave := range waves {
		for _, a := range wave {
			objects, err := prepareObjects(a, directory, values)
			if err != nil {
				errs = append(errs, fmt.Errorf("add-on %s: %w", a.Name, err))
				continue
			}

			release := applier.Release{Addon: a, Channel: out.Name, Wave: n + 1, Objects: objects}
			out.Releases = append(out.Releases, release)
		}
	}

	return out, errors.Join(errs...)
}

// Plan returns what an apply of the channel would do.
func (s *Session) Plan(ctx context.Context, c Channel) (applier.Plan, error) {
	plan, err := s.Applier.Plan(ctx, c.Name, c.Releases)
	plan.Left = slices.DeleteFunc(plan.Left, func(i applier.Inventory) bool { return slices.Contains(c.Unfit, i.Name) })

	return plan, err
}

// Left returns the add-ons that were applied from this channel and that it no longer has. Those of which only protected
// objects are left are among them if the applier deletes one of these.
func (c Channel) Left(all []applier.Inventory, a *applier.Applier) []string {
	var out []string

	for _, i := range all {
		named := func(r applier.Release) bool { return r.Addon.Name == i.Name }
		has := slices.ContainsFunc(c.Releases, named) || slices.Contains(c.Unfit, i.Name)
		deletes := func(e applier.Entry) bool { return a.Deletes(e.Reference, all) }
		if i.Channel == c.Name && !has && (i.State != applier.Deleted || slices.ContainsFunc(i.Objects, deletes)) {
			out = append(out, i.Name)
		}
	}

	return out
}

// prepareObjects reads the objects of an add-on and fills in its parameters.
func prepareObjects(a v1alpha1.Addon, directory string, values map[string]string) ([]*unstructured.Unstructured, error) {
	parameters := map[string]string{}
	for _, p := range a.Parameters {
		parameters[p.Name] = p.Value
		if p.From == "" {
			continue
		}

		parameters[p.Name] = values[p.From]
		if values[p.From] == "" {
			return nil, diag.WithHint(
				fmt.Errorf("parameter %s: the cluster has no value for %s", p.Name, p.From),
				"set the field in the cluster's manifest, or give the parameter a value",
			)
		}
	}

	files, err := sourceFiles(a.Source, directory)
	if err != nil {
		return nil, err
	}

	var objects []*unstructured.Unstructured

	for _, file := range files {
		read, err := readSource(file, a.Source.SHA256)
		if err != nil {
			return nil, err
		}

		objects = append(objects, read...)
	}

	if len(objects) == 0 {
		return nil, diag.WithHint(
			errors.New("its source has no objects"),
			"to delete the add-on, remove it from the channel and run: slipway addons prune",
		)
	}

	return bundle.Prepare(a.Name, objects, parameters, a.Selector)
}

// sourceFiles returns the files of a source, sorted.
func sourceFiles(s v1alpha1.AddonSource, directory string) ([]string, error) {
	resolve := func(path string) string {
		if filepath.IsAbs(path) {
			return path
		}

		return filepath.Join(directory, path)
	}

	if s.Directory == "" {
		return []string{resolve(s.Manifest)}, nil
	}

	entries, err := os.ReadDir(resolve(s.Directory))
	if err != nil {
		return nil, fmt.Errorf("read the directory of the source: %w", err)
	}

	var out []string

	for _, e := range entries {
		name := e.Name()
		if slices.Contains([]string{"kustomization.yaml", "kustomization.yml", "Kustomization", "Chart.yaml"}, name) {
			return nil, diag.WithHint(
				fmt.Errorf("directory %s has %s: this version of slipway reads no kustomizations and charts", s.Directory, name),
				"render it with 'kubectl kustomize' or 'helm template --include-crds' into a file, and write manifest: FILE",
			)
		}

		if slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name)) && !e.IsDir() {
			out = append(out, filepath.Join(resolve(s.Directory), name))
		}
	}

	return out, nil
}

// maxSourceBytes limits the size of a file of a source.
const maxSourceBytes = 16 << 20

// readSource returns the objects of a file. A hash that is given must be that of the file.
func readSource(file, hash string) ([]*unstructured.Unstructured, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, fmt.Errorf("read the source: %w", err)
	}

	if info.Size() > maxSourceBytes {
		return nil, fmt.Errorf("read the source: %s has %d bytes, more than the limit of %d", file, info.Size(), maxSourceBytes)
	}

	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the source: %w", err)
	}

	sum := sha256.Sum256(text)
	if found := hex.EncodeToString(sum[:]); hash != "" && found != hash {
		return nil, diag.WithHint(
			fmt.Errorf("manifest %s has the SHA-256 %s, not %s as the channel says", file, found, hash),
			"restore the file, or write its hash into the channel if the change is right",
		)
	}

	objects, err := bundle.ReadObjects(text)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}

	return objects, nil
}
