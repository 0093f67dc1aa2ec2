// SPDX-License-Identifier: Apache-2.0

// Package assettest finds the programs that `slipway assets build` has built, for tests that run them.
package assettest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Program returns the path of a built program, such as bin/etcd of component etcd. It skips the test if the component is
// not built, or fails it if SLIPWAY_E2E is require.
func Program(tb testing.TB, component, program string) string {
	tb.Helper()

	return ProgramIn(tb, cacheDir(tb), component, program)
}

// ProgramIn is [Program] for another cache of slipway than the user's.
func ProgramIn(tb testing.TB, cache, component, program string) string {
	tb.Helper()

	// The pattern matches a hash and no further part of a name: etcd must not match a directory of an earlier etcd.
	hash := strings.Repeat("[0-9a-f]", hashLength)

	found, err := filepath.Glob(filepath.Join(cache, "assets/work", component+"-"+hash, program))
	if err != nil {
		tb.Fatal(err)
	}

	if len(found) > 0 {
		return slices.Max(found)
	}

	if os.Getenv("SLIPWAY_E2E") == "require" { //nolint:forbidigo // a test's own setting
		tb.Fatalf("%s of %s is not built: run make assets", program, component)
	}

	tb.Skipf("SKIPPED: %s of %s is not built: run make assets", program, component)

	return ""
}

// hashLength is the number of hexadecimal digits of the hash at the end of a component's directory.
const hashLength = 16

func cacheDir(tb testing.TB) string {
	tb.Helper()

	if cache := os.Getenv("SLIPWAY_CACHE"); cache != "" { //nolint:forbidigo // see above
		return cache
	}

	home, err := os.UserCacheDir()
	if err != nil {
		tb.Fatal(err)
	}

	return filepath.Join(home, "slipway")
}
