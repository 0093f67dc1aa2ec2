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
func Program(t testing.TB, component, program string) string {
	t.Helper()

	return ProgramIn(t, cacheDir(t), component, program)
}

// ProgramIn is [Program] for another cache of slipway than the user's.
func ProgramIn(t testing.TB, cache, component, program string) string {
	t.Helper()

	found, err := filepath.Glob(filepath.Join(cache, "assets/work", component+"-"+hashPattern, program))
	if err != nil {
		t.Fatal(err)
	}

	if len(found) > 0 {
		return slices.Max(found)
	}

	if os.Getenv("SLIPWAY_E2E") == "require" { //nolint:forbidigo // a test's own setting
		t.Fatalf("%s of %s is not built: run make assets", program, component)
	}

	t.Skipf("SKIPPED: %s of %s is not built: run make assets", program, component)

	return ""
}

// hashPattern matches the hash at the end of a component's directory, and no further part of a name: etcd must not match
// a directory of an earlier etcd.
var hashPattern = strings.Repeat("[0-9a-f]", 16)

func cacheDir(t testing.TB) string {
	t.Helper()

	if cache := os.Getenv("SLIPWAY_CACHE"); cache != "" { //nolint:forbidigo // see above
		return cache
	}

	home, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}

	return filepath.Join(home, "slipway")
}
