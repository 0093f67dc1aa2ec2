// SPDX-License-Identifier: Apache-2.0

// Package bundle decides what of a channel of add-ons is applied to a cluster and in which order: the best version of each
// add-on for the cluster's Kubernetes version, the waves that follow from dependencies, the objects of a version with
// the cluster's parameters, and the differences between two states of an object.
//
// Everything here is a pure function. The package reads no file and makes no request.
package bundle

import (
	"fmt"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// Choice is what a channel has for one Kubernetes version.
type Choice struct {
	// Addons has one entry for each name, sorted by name.
	Addons []v1alpha1.Addon
	// Unfit are the names of which no entry is for this version, sorted.
	Unfit []string
}

// ParseKubernetesVersion parses a version as API servers report it, such as v1.36.3. A pre-release counts as its release,
// so that ranges of releases contain it.
func ParseKubernetesVersion(text string) (*semver.Version, error) {
	v, err := semver.NewVersion(text)
	if err != nil {
		return nil, fmt.Errorf("version %q of Kubernetes: %w", text, err)
	}

	return semver.New(v.Major(), v.Minor(), v.Patch(), "", ""), nil
}

// Choose returns the best entry of each name: the one with the highest version among those that are for this version
// of Kubernetes. Of several with the same version the last one wins, as in kops.
func Choose(addons []v1alpha1.Addon, kubernetes *semver.Version) (Choice, error) {
	best := map[string]v1alpha1.Addon{}
	var names []string

	for _, a := range addons {
		if !slices.Contains(names, a.Name) {
			names = append(names, a.Name)
		}

		fits, err := Supports(a.KubernetesVersion, kubernetes)
		if err != nil {
			return Choice{}, fmt.Errorf("add-on %s: %w", a.Name, err)
		}

		if now, chosen := best[a.Name]; fits && (!chosen || compareVersions(a.Version, now.Version) >= 0) {
			best[a.Name] = a
		}
	}

	slices.Sort(names)

	var out Choice

	for _, name := range names {
		if a, chosen := best[name]; chosen {
			out.Addons = append(out.Addons, a)
			continue
		}

		out.Unfit = append(out.Unfit, name)
	}

	return out, nil
}

// Supports reports whether a range of versions of Kubernetes, such as ">=1.35 <1.37", contains a version. An empty range
// contains all.
func Supports(versions string, kubernetes *semver.Version) (bool, error) {
	if versions == "" {
		return true, nil
	}

	limits, err := semver.NewConstraint(versions)
	if err != nil {
		return false, fmt.Errorf("kubernetesVersion %q: %w", versions, err)
	}

	return limits.Check(kubernetes), nil
}

// compareVersions compares versions. One that is empty or cannot be parsed is lower than all others.
func compareVersions(a, b string) int {
	left, leftErr := semver.NewVersion(a)
	right, rightErr := semver.NewVersion(b)

	switch {
	case leftErr != nil && rightErr != nil:
		return strings.Compare(a, b)
	case leftErr != nil:
		return -1
	case rightErr != nil:
		return 1
	}

	return left.Compare(right)
}

// Waves returns the chosen add-ons in waves: an add-on without dependencies is in the first one, each other one in the
// wave after the last of those that it depends on. An error names a cycle, or a dependency that is missing.
func Waves(addons []v1alpha1.Addon) ([][]v1alpha1.Addon, error) {
	byName := map[string]v1alpha1.Addon{}
	for _, a := range addons {
		byName[a.Name] = a
	}

	sorter := waveSorter{addons: byName, depth: map[string]int{}}
	for _, a := range addons {
		if _, err := sorter.visit(a.Name, nil); err != nil {
			return nil, err
		}
	}

	var waves [][]v1alpha1.Addon

	for _, a := range addons {
		n := sorter.depth[a.Name]
		for len(waves) < n {
			waves = append(waves, nil)
		}

		waves[n-1] = append(waves[n-1], a)
	}

	return waves, nil
}

// waveSorter computes the wave of each add-on.
type waveSorter struct {
	addons map[string]v1alpha1.Addon
	depth  map[string]int // the waves that are known, from 1
}

// visit returns the wave of an add-on. path are those that depend on it.
func (s waveSorter) visit(name string, path []string) (int, error) {
	if depth, known := s.depth[name]; known {
		return depth, nil
	}

	if at := slices.Index(path, name); at >= 0 {
		return 0, diag.WithHint(
			fmt.Errorf("add-ons depend on each other: %s", strings.Join(append(path[at:], name), " → ")),
			"remove one of these entries of dependsOn",
		)
	}

	path = append(slices.Clone(path), name)
	depth := 1
	for _, other := range s.addons[name].DependsOn {
		if _, chosen := s.addons[other]; !chosen {
			return 0, diag.WithHint(
				fmt.Errorf("add-on %s depends on %s, which the channel does not have for this version of Kubernetes", name, other),
				"widen kubernetesVersion of an entry of "+other+", or remove the dependency",
			)
		}

		below, err := s.visit(other, path)
		if err != nil {
			return 0, err
		}

		depth = max(depth, below+1)
	}

	s.depth[name] = depth

	return depth, nil
}
