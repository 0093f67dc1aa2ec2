// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrNoSource means that the sources of the assets are in none of the usual places.
var ErrNoSource = errors.New("the sources of the assets were not found")

// FindSource returns the directory with the nested modules that Run builds, for a program at the path
// executable: in a checkout of slipway, or where packages install them. The error wraps ErrNoSource.
func FindSource(executable string) (string, error) {
	if resolved, err := filepath.EvalSymlinks(executable); err == nil {
		executable = resolved
	}

	dir := filepath.Dir(executable)
	places := []string{
		"assets",                           // the working directory is a checkout
		filepath.Join(dir, "..", "assets"), // the program is bin/slipway of a checkout
		filepath.Join(dir, "share/slipway/assets"),       // an unpacked archive
		filepath.Join(dir, "../share/slipway/assets"),    // PREFIX/bin/slipway
		filepath.Join(dir, "../../share/slipway/assets"), // PREFIX/lib/slipway/slipway, as in the deb
	}

	for _, place := range places {
		if _, err := os.Stat(filepath.Join(place, "kubernetes", "go.mod")); err == nil {
			return filepath.Abs(place)
		}
	}

	return "", fmt.Errorf("%w: neither in %s nor in share/slipway/assets of %s", ErrNoSource, places[0], dir)
}

// FindCatalog returns the path of the catalogue of the assets in the output folder out. The error wraps
// fs.ErrNotExist if they have not been built.
func FindCatalog(out string) (string, error) {
	path := filepath.Join(out, "catalog.yaml")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("the assets are not built yet: missing %s: %w", path, fs.ErrNotExist)
	}

	return path, nil
}

// Pending returns the names of the steps that Run would build, in order; empty if all are cached. The error
// is what prevents Run from building them, such as missing Debian packages.
func Pending(ctx context.Context, o Options) ([]string, error) {
	if o.Go == "" {
		o.Go = "go"
	}

	source, err := filepath.Abs(o.Source)
	if err != nil {
		return nil, fmt.Errorf("resolve %s: %w", o.Source, err)
	}

	o.Source = source
	b := newBuilder(o)
	steps, err := b.planSteps(ctx)
	if err != nil {
		return nil, err
	}

	var pending []string
	for _, s := range steps {
		if !b.isCached(s) {
			pending = append(pending, s.name)
		}
	}

	return pending, b.checkHostPackages(ctx, steps)
}
