// SPDX-License-Identifier: Apache-2.0

package channelsource

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/machine/addon/applier"
	"github.com/slipway-k8s/slipway/internal/machine/addon/bundle"
	"github.com/slipway-k8s/slipway/internal/machine/addon/published"
)

// channelFile is the file of a source with the channel.
const channelFile = "channel.yaml"

// Cluster is what a channel is read for.
type Cluster struct {
	// Kubernetes is the version of the API server.
	Kubernetes *semver.Version
	// Values are those that parameters are taken from.
	Values map[string]string
}

// Channel returns the channel of a revision: the versions for a cluster, with their objects. It
// must have the given name, so that a source cannot replace another channel.
func (f Files) Channel(channel string, cluster Cluster) (published.Channel, error) {
	text, found := f[channelFile]
	if !found {
		return published.Channel{}, diag.WithHint(
			fmt.Errorf("it has no file %s", channelFile),
			"set spec.source.path to the directory that has it",
		)
	}

	var parsed v1alpha1.AddonChannel
	if err := yaml.UnmarshalStrict(text, &parsed); err != nil {
		return published.Channel{}, fmt.Errorf("parse %s: %w", channelFile, err)
	}

	if err := checkChannel(parsed, channel); err != nil {
		return published.Channel{}, fmt.Errorf("%s: %w", channelFile, err)
	}

	choice, err := bundle.Choose(parsed.Spec.Addons, cluster.Kubernetes)
	if err != nil {
		return published.Channel{}, fmt.Errorf("%s: %w", channelFile, err)
	}

	waves, err := bundle.Waves(choice.Addons)
	if err != nil {
		return published.Channel{}, fmt.Errorf("%s: %w", channelFile, err)
	}

	var releases []applier.Release
	var errs []error

	for n, wave := range waves {
		for _, a := range wave {
			objects, err := f.objects(a, cluster.Values)
			if err != nil {
				errs = append(errs, fmt.Errorf("add-on %s: %w", a.Name, err))
			}

			releases = append(releases, applier.Release{Addon: a, Channel: channel, Wave: n + 1, Objects: objects})
		}
	}

	out := published.NewChannel(channel, releases)
	out.Unfit = choice.Unfit

	return out, errors.Join(errs...)
}

// checkChannel refuses a channel that could not be published. CI checks the rest with slipway
// addons render.
func checkChannel(c v1alpha1.AddonChannel, name string) error {
	switch {
	case c.APIVersion != v1alpha1.APIVersion || c.Kind != v1alpha1.KindAddonChannel:
		return fmt.Errorf("is %s %s, not %s %s", c.APIVersion, c.Kind, v1alpha1.APIVersion, v1alpha1.KindAddonChannel)
	case c.Metadata.Name != name:
		return fmt.Errorf("is channel %q, not %q as it is published", c.Metadata.Name, name)
	case c.Spec.Source != nil:
		return errors.New("follows another source, which is not supported")
	case len(c.Spec.Addons) == 0:
		return errors.New("has no add-ons")
	}

	for n, a := range c.Spec.Addons {
		if err := checkAddon(a); err != nil {
			return fmt.Errorf("spec.addons[%d]: %w", n, err)
		}
	}

	return nil
}

// checkAddon checks what the engine relies on.
func checkAddon(a v1alpha1.Addon) error {
	switch {
	case !isName(a.Name):
		return fmt.Errorf("name %q is not valid", a.Name)
	case strings.HasPrefix(a.Name, v1alpha1.SystemAddonPrefix):
		return fmt.Errorf("name %s is reserved for the add-ons that the control plane applies", a.Name)
	case a.Namespace != "" && !isName(a.Namespace):
		return fmt.Errorf("namespace %q is not valid", a.Namespace)
	}

	if _, err := semver.NewVersion(a.Version); err != nil {
		return fmt.Errorf("version %q of add-on %s is not a semantic version", a.Version, a.Name)
	}

	for _, k := range a.Prune {
		if err := checkPruneKind(k); err != nil {
			return fmt.Errorf("prune of add-on %s: %w", a.Name, err)
		}
	}

	return nil
}

// objects returns the objects of an add-on as they are applied.
func (f Files) objects(a v1alpha1.Addon, values map[string]string) ([]*unstructured.Unstructured, error) {
	parameters := map[string]string{}
	for _, p := range a.Parameters {
		value, known := values[p.From]
		if p.From != "" && !known {
			return nil, diag.WithHint(
				fmt.Errorf("parameter %s: %s is not a value that the control plane knows", p.Name, p.From),
				"give it a value, or take another one of the cluster",
			)
		}

		parameters[p.Name] = p.Value
		if p.From != "" {
			parameters[p.Name] = value
		}
	}

	names, err := f.manifestsOf(a.Source)
	if err != nil {
		return nil, err
	}

	var objects []*unstructured.Unstructured
	for _, name := range names {
		read, err := bundle.ReadObjects(f[name])
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}

		objects = append(objects, read...)
	}

	if len(objects) == 0 {
		return nil, errors.New("its source has no objects")
	}

	return bundle.Prepare(a.Name, objects, parameters, a.Selector)
}

// manifestsOf returns the names of the files of a source: one, or those in a directory, without its
// subdirectories.
func (f Files) manifestsOf(s v1alpha1.AddonSource) ([]string, error) {
	isOther := s.Kustomization != "" || s.Helm != nil || len(s.Namespaces) > 0 || strings.Contains(s.Manifest, "://")
	if isOther || (s.Manifest == "") == (s.Directory == "") {
		return nil, diag.WithHint(
			errors.New("its source is not one file or one directory of the channel"),
			"render charts, kustomizations and namespaces in CI: slipway addons render",
		)
	}

	if s.Manifest != "" {
		name := path.Clean(s.Manifest)
		if _, found := f[name]; !found {
			return nil, fmt.Errorf("the channel has no file %s", s.Manifest)
		}

		return []string{name}, nil
	}

	var out []string
	directory := path.Clean(s.Directory)
	for name := range f {
		isManifest := slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name))
		if isManifest && path.Dir(name) == directory {
			out = append(out, name)
		}
	}

	slices.Sort(out)
	if len(out) == 0 {
		return nil, fmt.Errorf("the channel has no manifests in directory %s", s.Directory)
	}

	return out, nil
}
