// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/spf13/cobra"
)

// cacheDir returns the folder of the local region, its machine image and the built assets.
func (a *app) cacheDir() (string, error) {
	if dir := a.Getenv("SLIPWAY_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}

	if dir := a.Getenv("XDG_CACHE_HOME"); dir != "" {
		return filepath.Join(dir, "slipway"), nil
	}

	if home := a.Getenv("HOME"); home != "" {
		return filepath.Join(home, ".cache", "slipway"), nil
	}

	return "", withHint(errors.New("no cache folder is known"), "set SLIPWAY_CACHE, XDG_CACHE_HOME or HOME")
}

// withCacheDir returns a RunE function that passes the cache folder to run.
func (a *app) withCacheDir(
	run func(ctx context.Context, cache string) error,
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		cache, err := a.cacheDir()
		if err != nil {
			return err
		}

		return run(cmd.Context(), cache)
	}
}

// orDash returns s, or a dash for an empty cell.
func orDash(s string) string {
	if s == "" {
		return "-"
	}

	return s
}
